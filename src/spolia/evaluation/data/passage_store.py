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

FORM = 2
GROUP = "chunk"
AT_ONCE = 64
"""Passages that are put and embedded together."""
PUBLISHED_S = 10.0
"""Seconds of work that a kill can cost, about."""
SELDOMER = 10
"""How many times longer than publishing takes nothing is published after it."""
UNFINISHED = ("data set", "passages")
"""Where it is noted that passages are still to come."""
BUSY_S = 600.0
Told: TypeAlias = Callable[[int, int], None]

SAMPLED = 100
"""Passages whose language is looked at."""


def indexed(
    data: DataSet,
    embedder: Embedder | None = None,
    *,
    analyzer: Analyzer | None = None,
    folder: Path | None = None,
    told: Told = lambda done, total: None,
    fields: Sequence[str] = (),
) -> NodeGroup:
    """The passages of a data set, one node each, searchable: from the cache when they were indexed before.

    What is interrupted goes on where it was, but for the last ten seconds. The node shows the passage's text; its title
    is indexed with it. The document has the passage's id.

    Args:
        embedder: gives the vectors for dense search; without one only words can be searched.
        analyzer: makes the terms; by default one for the language of the first passages, as when a folder is indexed.
        folder: where stores are kept; by default in `cache_folder()`.
        fields: of the passages' metadata, to filter by; each is of the kind that its values have.
    """
    declared = tuple(_field(data, name) for name in fields)
    if analyzer is None:
        analyzer = analyzer_for(passage.text for passage in islice(data.passages(), SAMPLED))
    embeddings = (GroupEmbedding(embedder.name, embedder.dimension),) if embedder is not None else ()
    manifest = Manifest(GROUP, "one node for each passage", f"data set, form {FORM}", analyzer, embeddings)
    said = embedder.fingerprint() if embedder is not None else None
    settings = (said,) if said and embedder is not None and said != embedder.name else ()  # as prefixes, and the server
    key = digest_of((data.content_hash(), manifest, *settings, *declared)).hex()[:16]
    root = folder if folder is not None else cache_folder() / "datasets"
    corpus = Corpus(str(root / f"{data.name}-{key}.spolia"))
    if not _is_whole(corpus):
        with corpus.create().writer(timeout_s=BUSY_S) as writer:
            if not writer.generation or writer.cursor(*UNFINISHED):  # another process may have written it meanwhile
                writer.declare(declared)
                _write(writer, data, embedder, manifest, told)
    return corpus.group(GROUP)


def _field(data: DataSet, name: str) -> Field:
    """A metadata field of the passages, of the kind that its values have: `float` for numbers of both kinds, or `str`.

    Raises:
        FilterError: no passage has it.
    """
    kinds = {type(value) for passage in data.passages() for own, value in passage.meta if own == name}
    if not kinds:
        named = sorted({own for passage in data.passages() for own, _ in passage.meta})
        raise FilterError(
            f"No passage of {data.name} has {name!r} in its metadata. Write one of: {', '.join(named) or 'none'}."
        )
    by_type: dict[type, Kind] = {bool: "bool", int: "int", float: "float"}
    if kinds == {int, float}:
        return Field(name, "float")
    return Field(name, by_type.get(kinds.pop(), "str") if len(kinds) == 1 else "str")


def _is_whole(corpus: Corpus) -> bool:
    """Whether something is published, and nothing says that there is more to come."""
    if not corpus.exists():
        return False
    snapshot = corpus.snapshot()
    return snapshot.generation > 0 and snapshot.opened.row(sql.CURSOR, UNFINISHED) is None


def _write(writer: "Writer", data: DataSet, embedder: Embedder | None, manifest: Manifest, told: Told) -> None:
    """Put and embed what is not there yet, published from time to time; leaving the writer's block does the rest."""
    writer.define(GROUP, manifest)
    source, item = UNFINISHED
    there, total = writer.stamps(), sum(1 for _ in data.passages())  # read once before, so that all of it is right
    done, pace = len(there), Pace()
    told(done, total)
    for some in in_batches((one for one in data.passages() if one.id not in there), AT_ONCE):
        for one in some:
            node = Node(f"{one.id}/{GROUP}", one.text, one.id, GROUP, Span(0, len(one.text)), one.title)
            writer.put(one, [node], SourceRow(one.id, len(one.text), content_hash=one.digest.hex()))
        if embedder is not None and (lacking := list(writer.unembedded(GROUP, embedder.name))):
            vectors = embedder.embed([text for _, text in lacking], kind="passage")
            writer.add_vectors(embedder.name, [content for content, _ in lacking], vectors)
        done += len(some)
        told(done, total)
        if done < total and pace.is_due:
            writer.remember(source, {item: f"{done} of {total}"})
            pace.past(writer.publish)
    writer.remember(source, {item: ""})


class Pace:
    """When to publish: every `PUBLISHED_S` seconds, and seldomer where that would take up the time."""

    def __init__(self) -> None:
        self._next = time.monotonic() + PUBLISHED_S

    @property
    def is_due(self) -> bool:
        return time.monotonic() >= self._next

    def past(self, publish: Callable[[], object]) -> None:
        began = time.monotonic()
        publish()
        ended = time.monotonic()
        self._next = ended + max(PUBLISHED_S, SELDOMER * (ended - began))
