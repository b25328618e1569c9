"""Files on their way into the store: their bytes, documents, nodes, reports."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from spolia.errors import FilterError, SpoliaError
from spolia.indexing.files import File
from spolia.indexing.labels import Labels
from spolia.indexing.loading import Loaded
from spolia.indexing.readers.reading import Blob, Reading
from spolia.indexing.report import DocumentReport
from spolia.models.protocols import Embedder, SparseEmbedder
from spolia.stores.groups.growing import Grown, Growth, grow
from spolia.stores.groups.storing import store
from spolia.stores.tables.rows import SourceRow
from spolia.stores.writer import Writer
from spolia.types import Document, Node

_SAMPLE = 2_000
_KNOWN_SHARE = 0.95


class Unreadable(Exception):
    """A file that is to be recorded as failed; `row` says how."""

    def __init__(self, row: SourceRow) -> None:
        super().__init__(row.error)
        self.row = row


@dataclass(frozen=True)
class Bytes:
    """A file's bytes and the row that stands for them, before they are read."""

    source: Blob
    row: SourceRow


def fetched(file: File, before: SourceRow | None) -> Bytes:
    """The bytes of a file.

    Args:
        before: what is known of it; where the bytes cannot be had, the document that they held stays.

    Raises:
        Unreadable: they could not be read, are too many, or change all the time.
    """
    try:
        loaded = file.load()
    except (OSError, SpoliaError) as error:
        row = before or SourceRow(file.uri)
        reason = f"It cannot be read: {error.strerror}." if isinstance(error, OSError) else str(error)
        raise Unreadable(row.but(size=file.size, mtime_ns=file.mtime_ns, status="failed", error=reason)) from error
    source = Blob(file.uri, loaded.content)
    return Bytes(source, _row(file, loaded, source.content_hash))


def _row(file: File, loaded: Loaded, content_hash: str) -> SourceRow:
    row = SourceRow(file.uri, loaded.size, loaded.mtime_ns, content_hash)
    return row.but(created_ns=loaded.created_ns, accessed_ns=loaded.accessed_ns)


def read(file: File, found: Bytes) -> Reading:
    """The document in a file.

    Raises:
        Unreadable: no document could be got out of its bytes; whatever the reason, other files go on.
    """
    try:
        return file.reader.read(found.source)
    except SpoliaError as error:
        reason = str(error)
    except Exception as error:  # a reader's fault on a strange file must not stop the others; it is recorded
        reason = f"The {file.reader.name} reader failed on it: {type(error).__name__}: {error}"
    raise Unreadable(found.row.but(status="failed", error=reason))


@dataclass
class Filed:
    """A file that was read and waits to be stored with others."""

    reading: Reading
    row: SourceRow
    is_new: bool


@dataclass
class Filing:
    """Puts documents into the store with the nodes of all groups, and reports.

    Args:
        writer: of the store.
        growths: the groups, in order.
        main: name of the group whose nodes the report counts.
        labels: what the caller says of files.
    """

    writer: Writer
    growths: Sequence[Growth]
    main: str
    labels: Labels
    pending: list[Filed] = field(default_factory=list)
    tried: set[str] = field(default_factory=set)
    """Documents of which a group could not be made, by their ids."""

    @property
    def characters(self) -> int:
        """How much waits."""
        return sum(len(filed.reading.document.text) for filed in self.pending)

    def flush(self) -> Iterator[tuple[Filed, DocumentReport | Unreadable]]:
        """Store what waits; for each file its report, or why it could not be cut.

        A document that some groups could not be made of is stored with the others.

        Raises:
            StoreError: the store could not take it.
            SpoliaError: a model that a transform asks could be reached for none of the documents.
        """
        pending, self.pending = self.pending, []
        documents = [filed.reading.document for filed in pending]
        for filed, one in zip(pending, grow(documents, self.growths), strict=True):
            try:
                yield filed, self._put(filed, one)
            except Unreadable as failure:
                yield filed, failure

    def _put(self, filed: Filed, one: Grown) -> DocumentReport:
        """Store a document and what could be made of it.

        Raises:
            Unreadable: no group could be made of it, or a field cannot hold what is said of it.
        """
        self._refuse_unmade(filed, one)
        document, tally = filed.reading.document, _Tally(self._embedder)
        nodes = one.made.get(self.main)
        if isinstance(nodes, list):
            tally.count(nodes)
        elif nodes is not None:
            one.made[self.main] = tally.over(nodes)
        report = self._report(filed.reading, one, tally)
        row = filed.row.but(document=document.id, report=report.json)
        try:
            images = {image.content_hash: image.data for image in filed.reading.images}
            is_new = self.writer.put(document, (), row, images)
        except FilterError as error:
            raise Unreadable(filed.row.but(status="failed", error=str(error))) from error
        if is_new:
            store(self.writer, one)
            self._refuse_unmade(filed, one)
        elif not isinstance(nodes, list):  # a document that was there already is not cut, but counted
            deque(one.made.get(self.main, ()), maxlen=0)
        return self._corrected(report, filed.reading, one, tally, row)

    def _refuse_unmade(self, filed: Filed, one: Grown) -> None:
        if one.failures:
            self.tried.add(one.document.id)
            if not one.made:
                raise Unreadable(filed.row.but(status="failed", error=next(iter(one.reasons.values()))))

    def _corrected(
        self, report: DocumentReport, reading: Reading, one: Grown, tally: _Tally, row: SourceRow
    ) -> DocumentReport:
        """The report once all nodes were made: those of a long document are counted as they pass."""
        found = self._report(reading, one, tally)
        if found != report:
            self.writer.touch(row.but(report=found.json))
        return found

    @property
    def _embedder(self) -> Embedder | SparseEmbedder | None:
        embedders = (embedder for growth in self.growths if growth.group == self.main for embedder in growth.embedders)
        return next(embedders, None)

    def _report(self, reading: Reading, one: Grown, tally: _Tally) -> DocumentReport:
        document, is_made = reading.document, self.main in one.made
        return DocumentReport(
            reader=document.id.rpartition(".")[2],
            characters=len(document.text),
            pages=len(document.pages),
            empty_pages=reading.empty_pages,
            chunks=tally.nodes if is_made else 0,
            tokens=tally.tokens if self._embedder else None,
            beyond_window=tally.beyond_window,
            encoding=reading.encoding,
            warnings=(*reading.warnings, *(self._warnings(document, tally) if is_made else ())),
            labels=self.labels.mark(document.uri),
        )

    def _warnings(self, document: Document, tally: _Tally) -> Iterator[str]:
        if not tally.nodes:
            yield "It has no text."
        if (embedder := self._embedder) is None:
            return
        if tally.beyond_window:
            yield f"{tally.beyond_window} of {tally.nodes} chunks are longer than the embedder's window."
        if (known := embedder.covers(document.text[:_SAMPLE])) < _KNOWN_SHARE:
            yield f"The embedder knows {known:.0%} of its characters; words are the better way to search it."


class _Tally:
    """Counts nodes and their tokens, as the embedder counts them."""

    def __init__(self, embedder: Embedder | SparseEmbedder | None) -> None:
        self.embedder = embedder
        self.nodes = self.tokens = self.beyond_window = 0

    def over(self, nodes: Iterable[Node]) -> Iterator[Node]:
        for node in nodes:
            self.count([node])
            yield node

    def count(self, nodes: Sequence[Node]) -> None:
        self.nodes += len(nodes)
        if self.embedder is not None:
            lengths = self.embedder.tokens([node.indexed_text for node in nodes])
            self.tokens += sum(lengths)
            self.beyond_window += sum(tokens > self.embedder.window for tokens in lengths)
