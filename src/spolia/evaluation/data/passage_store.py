"""A data set's passages as a store to search, indexed once and kept."""

import time
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from spolia.errors import FilterError
from spolia.evaluation.data.dataset import DataSet
from spolia.filters import Field
from spolia.filters.fields import Kind
from spolia.models.file_hash import cache_folder
from spolia.models.protocols import Embedder
from spolia.stores.backends import sql
from spolia.stores.backends.rows import SourceRow, in_batches
from spolia.stores.corpus import Corpus, NodeGroup
from spolia.stores.lexical.analysis import Analyzer, analyzer_for
from spolia.stores.manifest import GroupEmbedding, Manifest
from spolia.types import Node, Span, digest_of

if TYPE_CHECKING:
    from spolia.stores.writer import Writer

# Part of an index's key: raise it if passages are stored in another way.
FORM = 2
GROUP = "chunk"
BATCH_SIZE = 64
"""Passages that are put and embedded together."""
PUBLISH_INTERVAL_S = 10.0
"""Seconds of work that a kill can cost, about."""
PAUSE_FACTOR = 10
"""How many times longer than publishing takes nothing is published after it."""
UNFINISHED = ("data set", "passages")
"""Where it is noted that passages are still to come."""
# Another process may be indexing the same data set; its index is then used.
BUSY_S = 600.0
ProgressCallback: TypeAlias = Callable[[int, int], None]

LANGUAGE_SAMPLE = 100
"""Passages whose language is looked at."""


def index_passages(
    data: DataSet,
    embedder: Embedder | None = None,
    *,
    analyzer: Analyzer | None = None,
    folder: Path | None = None,
    on_progress: ProgressCallback = lambda done, total: None,
    fields: Sequence[str] = (),
) -> NodeGroup:
    """Index the passages of a data set, one node each, to be searched; those of an earlier call come from the cache.

    What is interrupted goes on where it was, but for the last ten seconds. The node shows the passage's text; its title
    is indexed with it. The document has the passage's id.

    Args:
        embedder: gives the vectors for dense search; without one only words can be searched.
        analyzer: makes the terms; by default one for the language of the first passages, as when a folder is indexed.
        folder: where stores are kept; by default in `cache_folder()`.
        fields: of the passages' metadata, to filter by; each is of the kind that its values have.
    """
    declared = tuple(_declare_field(data, name) for name in fields)
    if analyzer is None:
        analyzer = analyzer_for(passage.text for passage in islice(data.passages(), LANGUAGE_SAMPLE))
    embeddings = (GroupEmbedding(embedder.name, embedder.dimension),) if embedder is not None else ()
    manifest = Manifest(GROUP, "one node for each passage", f"data set, form {FORM}", analyzer, embeddings)
    fingerprint = embedder.fingerprint() if embedder is not None else None
    settings = (
        (fingerprint,) if fingerprint and embedder is not None and fingerprint != embedder.name else ()
    )  # as prefixes, and the server
    key = digest_of((data.content_hash(), manifest, *settings, *declared)).hex()[:16]
    root = folder if folder is not None else cache_folder() / "datasets"
    corpus = Corpus(str(root / f"{data.name}-{key}.spolia"))
    if not _is_complete(corpus):
        with corpus.create().writer(timeout_s=BUSY_S) as writer:
            if not writer.generation or writer.cursor(*UNFINISHED):  # another process may have written it meanwhile
                writer.declare(declared)
                _write_passages(writer, data, embedder, manifest, on_progress)
    return corpus.group(GROUP)


def _declare_field(data: DataSet, name: str) -> Field:
    """Return a metadata field of the passages, of the kind that its values have: `float` for numbers of both kinds, or
    `str`.

    Raises:
        FilterError: no passage has it.
    """
    kinds = {type(value) for passage in data.passages() for key, value in passage.meta if key == name}
    if not kinds:
        names = sorted({key for passage in data.passages() for key, _ in passage.meta})
        raise FilterError(
            f"No passage of {data.name} has {name!r} in its metadata. Write one of: {', '.join(names) or 'none'}."
        )
    by_type: dict[type, Kind] = {bool: "bool", int: "int", float: "float"}
    if kinds == {int, float}:
        return Field(name, "float")
    return Field(name, by_type.get(kinds.pop(), "str") if len(kinds) == 1 else "str")


def _is_complete(corpus: Corpus) -> bool:
    """Return whether something is published, and nothing says that there is more to come."""
    if not corpus.exists():
        return False
    snapshot = corpus.snapshot()
    return snapshot.generation > 0 and snapshot.open_store.row(sql.CURSOR, UNFINISHED) is None


def _write_passages(
    writer: "Writer", data: DataSet, embedder: Embedder | None, manifest: Manifest, on_progress: ProgressCallback
) -> None:
    """Put and embed the passages that are not stored yet, published from time to time; leaving the writer's block does
    the rest."""
    writer.define(GROUP, manifest)
    source, item = UNFINISHED
    stored, total = writer.stamps(), sum(1 for _ in data.passages())  # read once before, so that all of it is right
    done_count, pace = len(stored), Pace()
    on_progress(done_count, total)
    for batch in in_batches((passage for passage in data.passages() if passage.id not in stored), BATCH_SIZE):
        for passage in batch:
            node = Node(
                f"{passage.id}/{GROUP}", passage.text, passage.id, GROUP, Span(0, len(passage.text)), passage.title
            )
            writer.put_document(
                passage, [node], SourceRow(passage.id, len(passage.text), content_hash=passage.digest.hex())
            )
        if embedder is not None and (unembedded := list(writer.unembedded(GROUP, embedder.name))):
            vectors = embedder.embed([text for _, text in unembedded], kind="passage")
            writer.add_vectors(embedder.name, [content for content, _ in unembedded], vectors)
        done_count += len(batch)
        on_progress(done_count, total)
        if done_count < total and pace.is_due:
            # The note is published with the passages, so that a later process knows that they are not
            # all.
            writer.remember(source, {item: f"{done_count} of {total}"})
            pace.run(writer.publish)
    writer.remember(source, {item: ""})


class Pace:
    """Pace of publishing: every `PUBLISH_INTERVAL_S` seconds, and less often if that would take up the time."""

    def __init__(self) -> None:
        self._next = time.monotonic() + PUBLISH_INTERVAL_S

    @property
    def is_due(self) -> bool:
        return time.monotonic() >= self._next

    def run(self, publish: Callable[[], object]) -> None:
        start = time.monotonic()
        publish()
        end = time.monotonic()
        self._next = end + max(PUBLISH_INTERVAL_S, PAUSE_FACTOR * (end - start))
