"""A data set's passages as a store to search, indexed once and kept."""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from spolia.evaluation.datasets import DataSet
from spolia.models.protocols import Embedder
from spolia.stores.corpus import Corpus, NodeGroup
from spolia.stores.lexical.analysis import Analyzer, analyzer_for
from spolia.stores.manifest import Embedded, Manifest
from spolia.stores.tables.rows import SourceRow
from spolia.types import Node, Span, digest_of

if TYPE_CHECKING:
    from spolia.stores.writer import Writer

FORM = 2
GROUP = "chunk"
EMBEDDED_AT_ONCE = 256
BUSY_S = 600.0

SAMPLED = 100
"""Passages whose language is looked at."""


def cache_folder() -> Path:
    """Where what can be made again is kept: `SPOLIA_CACHE`, else `spolia` in the user's cache directory."""
    if named := os.environ.get("SPOLIA_CACHE"):
        return Path(named).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "spolia"


def indexed(
    data: DataSet,
    embedder: Embedder | None = None,
    *,
    analyzer: Analyzer | None = None,
    folder: Path | None = None,
    told: Callable[[int, int], None] = lambda done, total: None,
) -> NodeGroup:
    """The passages of a data set, one node each, searchable: from the cache when they were indexed before.

    The node shows the passage's text; its title is indexed with it. The document has the passage's id.

    Args:
        data: the data set.
        embedder: gives the vectors for dense search; without one only words can be searched.
        analyzer: makes the terms; by default one for the language of the first passages, as when a folder is indexed.
        folder: where stores are kept; by default in `cache_folder()`.
        told: called with the number of passages embedded so far, and of all that are to be.

    Raises:
        DataError: the corpus does not follow the schema.
        StoreError: the store cannot be written.
    """
    if analyzer is None:
        analyzer = analyzer_for(passage.text for passage in islice(data.passages(), SAMPLED))
    manifest = _manifest(embedder, analyzer)
    key = digest_of((data.content_hash(), manifest)).hex()[:16]
    root = folder if folder is not None else cache_folder() / "datasets"
    corpus = Corpus(str(root / f"{data.name}-{key}.spolia"))
    if not _complete(corpus):
        with corpus.create().writer(timeout_s=BUSY_S) as writer:
            if not writer.generation:
                _write(writer, data, embedder, manifest, told)
    return corpus.group(GROUP)


def _complete(corpus: Corpus) -> bool:
    """All is published at once, so that what is published is whole."""
    return corpus.exists() and corpus.snapshot().generation > 0


def _manifest(embedder: Embedder | None, analyzer: Analyzer) -> Manifest:
    embeddings = (Embedded(embedder.name, embedder.dimension),) if embedder is not None else ()
    return Manifest(GROUP, "one node for each passage", f"data set, form {FORM}", analyzer, embeddings)


def _write(
    writer: Writer,
    data: DataSet,
    embedder: Embedder | None,
    manifest: Manifest,
    told: Callable[[int, int], None],
) -> None:
    """Leaving the writer's block publishes it."""
    writer.define(GROUP, manifest)
    for passage in data.passages():
        node = Node(f"{passage.id}/{GROUP}", passage.text, passage.id, GROUP, Span(0, len(passage.text)), passage.title)
        writer.put(passage, [node], SourceRow(passage.id, len(passage.text), content_hash=passage.digest.hex()))
    if embedder is None:
        return
    waiting = list(writer.unembedded(GROUP, embedder.name))
    for start in range(0, len(waiting), EMBEDDED_AT_ONCE):
        block = waiting[start : start + EMBEDDED_AT_ONCE]
        told(start, len(waiting))
        vectors = embedder.embed([text for _, text in block], kind="passage")
        writer.add_vectors(embedder.name, [content for content, _ in block], vectors)
