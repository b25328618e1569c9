"""What a person should know of a document's nodes: how many there are, and how they suit the embedder."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from spolia.errors import DocumentError
from spolia.indexing.readers.reader import Reading
from spolia.indexing.sync.metadata import AccessLists, DocumentLabels
from spolia.indexing.sync.prefetch import Unreadable
from spolia.indexing.sync.report import DocumentReport
from spolia.models.protocols import Embedder, SparseEmbedder
from spolia.stores.backends.rows import SourceRow
from spolia.stores.groups.group_build import relabel, store
from spolia.stores.groups.nodes import CutPieces, GroupBuild, GroupNodes, grow, passes
from spolia.stores.staging import AnyWriter
from spolia.types import Document, Node

_SAMPLE = 2_000
_KNOWN_SHARE = 0.95
_EMPTY = "It has no text."
_LONG = "chunks are longer than the embedder's window."
_STRANGE = "The embedder knows"


class NodeCount:
    """Counts a document's nodes and their tokens, as the embedder counts them.

    Args:
        embedder: of the nodes; None where they are searched by words only.
    """

    def __init__(self, embedder: Embedder | SparseEmbedder | None) -> None:
        self.embedder = embedder
        self.nodes = self.tokens = self.beyond_window = 0

    def over(self, nodes: Iterable[Node]) -> Iterator[Node]:
        """Count nodes as they pass."""
        for node in nodes:
            self.count([node])
            yield node

    def count(self, nodes: Sequence[Node]) -> None:
        """Count nodes."""
        self.nodes += len(nodes)
        if self.embedder is not None:
            lengths = self.embedder.tokens([node.indexed_text for node in nodes])
            self.tokens += sum(lengths)
            self.beyond_window += sum(tokens > self.embedder.window for tokens in lengths)

    def on(self, report: DocumentReport, document: Document) -> DocumentReport:
        """A document's report with these numbers in the place of those that it had."""
        kept = (said for said in report.warnings if not _is_of_nodes(said))
        return report.but(
            chunks=self.nodes,
            tokens=self.tokens if self.embedder else None,
            beyond_window=self.beyond_window,
            warnings=(*kept, *self._warnings(document, report.parts)),
        )

    def _warnings(self, document: Document, parts: int) -> Iterator[str]:
        if not self.nodes and not parts:
            yield _EMPTY
        if self.embedder is None:
            return
        if self.beyond_window:
            yield f"{self.beyond_window} of {self.nodes} {_LONG}"
        if (known := self.embedder.covers(document.text[:_SAMPLE])) < _KNOWN_SHARE:
            yield f"{_STRANGE} {known:.0%} of its characters; words are the better way to search it."


def _is_of_nodes(warning: str) -> bool:
    return warning == _EMPTY or warning.endswith(_LONG) or warning.startswith(_STRANGE)


@dataclass
class BatchItem:
    """A source that was read and waits to be stored with others.

    Args:
        is_new: it was not known.
        pieces: of which its nodes are made, as far as they were found when it was read.
        parts: number of the files in it.
        within: uri of the container that it stands in.
        beside: what was seen of the pictures that it names, by uri.
    """

    reading: Reading
    row: SourceRow
    is_new: bool
    pieces: CutPieces = field(default_factory=dict[str, Any])
    parts: int = 0
    within: str = ""
    beside: tuple[tuple[str, str], ...] = ()

    @property
    def weight(self) -> int:
        """How much memory it takes, in characters and bytes."""
        document = self.reading.document
        return len(document.text) + len(document.boxes.packed) + sum(image.size for image in self.reading.images)


@dataclass
class Batch:
    """Puts documents into the store with the nodes of all groups, and reports.

    Args:
        writer: of the store.
        growths: the groups, in order.
        main: name of the group whose nodes the report counts.
        labels: what the caller says of files.
    """

    writer: AnyWriter
    growths: Sequence[GroupBuild]
    main: str
    labels: DocumentLabels
    pending: list[BatchItem] = field(default_factory=list)
    tried: set[str] = field(default_factory=set)
    """Documents of which a group could not be made, by their ids."""
    counted: set[str] = field(default_factory=set)
    """Documents whose reports tell the nodes that they have by now, by their ids."""

    @property
    def weight(self) -> int:
        """How much waits, in characters and bytes of pictures."""
        return sum(filed.weight for filed in self.pending)

    def flush(self) -> Iterator[tuple[BatchItem, DocumentReport | Unreadable]]:
        """Store what waits; for each file its report, or why it could not be cut.

        A document that some groups could not be made of is stored with the others. Of one that is there already,
        nothing is made again.
        """
        pending, self.pending = self.pending, []
        fresh: dict[str, Document] = {}
        for filed in pending:
            document = filed.reading.document
            if document.id not in fresh and not self.writer.holds(document):
                fresh[document.id] = document
        pieces = {filed.reading.document.id: filed.pieces for filed in reversed(pending)}
        grown = {one.document.id: one for one in grow(list(fresh.values()), self.growths, prepared=pieces)}
        for filed in pending:
            try:
                yield filed, self._put(filed, grown.pop(filed.reading.document.id, None))
            except Unreadable as failure:
                yield filed, failure

    def recount(self, document: Document) -> int:
        """Bring the reports of a document's sources in step with its nodes, which were made otherwise; their number."""
        self.counted.add(document.id)
        counted = NodeCount(self._embedder)
        counted.count(self.writer.nodes(document.id, self.main))
        for row in self.writer.holders(document.id):
            if row.report:
                self.writer.touch(row.but(report=counted.on(DocumentReport.of(row.report), document).json))
        return counted.nodes

    def _put(self, filed: BatchItem, one: GroupNodes | None) -> DocumentReport:
        """Store a document and what could be made of it; None where it is there already.

        Raises:
            Unreadable: no group could be made of it.
        """
        document, counted = filed.reading.document, NodeCount(self._embedder)
        self.counted.add(document.id)
        if one is None and not self.writer.holds(document):  # what was there has gone with what its source held
            (one,) = grow([document], self.growths)
        if one is None:
            counted.count(self.writer.nodes(document.id, self.main))
            report = counted.on(self._report(filed), document)
            self._store(filed, report)
            return report
        self._refuse_unmade(filed, one)
        report = self._report(filed)
        nodes = one.made.get(self.main)
        if isinstance(nodes, list):
            counted.count(nodes)
            report = counted.on(report, document)
        elif nodes is not None:
            one.made[self.main] = counted.over(nodes)
        self._store(filed, report)
        store(self.writer, one)
        self._refuse_unmade(filed, one)
        return self._corrected(filed, report, one, counted)

    def _store(self, filed: BatchItem, report: DocumentReport) -> None:
        document, images = filed.reading.document, filed.reading.images
        row = filed.row.but(document=document.id, report=report.json)
        self.writer.put(document, (), row, {image.content_hash: image.data for image in images})

    def _refuse_unmade(self, filed: BatchItem, one: GroupNodes) -> None:
        if one.failures:
            self.tried.add(one.document.id)
            if not one.made:
                reason = next(iter(one.reasons.values()))
                is_away = any(map(passes, one.failures.values()))  # which is not the document's fault
                raise Unreadable(filed.row, reason, None if is_away else DocumentError(reason))

    def _corrected(self, filed: BatchItem, said: DocumentReport, one: GroupNodes, counted: NodeCount) -> DocumentReport:
        """The report once all nodes were made: those of a long document are counted as they pass."""
        report, document = self._report(filed), filed.reading.document
        report = counted.on(report, document) if self.main in one.made else report
        if report != said:
            self.writer.touch(filed.row.but(document=document.id, report=report.json))
        return report

    @property
    def _embedder(self) -> Embedder | SparseEmbedder | None:
        embedders = (embedder for growth in self.growths if growth.group == self.main for embedder in growth.embedders)
        return next(embedders, None)

    def _report(self, filed: BatchItem) -> DocumentReport:
        """What the reader noticed; of the nodes, nothing yet."""
        reading, document, declared = filed.reading, filed.reading.document, self.writer.declared
        return DocumentReport(
            reader=document.id.rpartition(".")[2],
            characters=len(document.text),
            pages=len(document.pages),
            empty_pages=reading.empty_pages,
            ocr_pages=reading.ocr_pages,
            tables=sum(region.kind == "table" for region in document.regions),
            images=len(reading.images),
            dropped=reading.dropped,
            parts=filed.parts,
            within=filed.within,
            encoding=reading.encoding,
            warnings=(*reading.warnings, *(declared.misfits(document.meta) if declared else ())),
            lacks=reading.lacks,
            beside=filed.beside,
            labels=self.labels.mark(document.uri),
        )


class MetadataDiff:
    """Compares the labels of sources, and changes those of documents that are there.

    Args:
        writer: of the store.
        labels: what the caller says.
        held: who may read what the store has.
        filing: what waits to be stored.
    """

    def __init__(self, writer: AnyWriter, labels: DocumentLabels, held: AccessLists, filing: Batch) -> None:
        self.writer, self.labels, self.held, self.filing = writer, labels, held, filing

    def differs(self, row: SourceRow) -> bool:
        """Whether something else is said of a source by now."""
        try:
            return not self.is_same(row)
        except DocumentError:
            return True  # it is recorded when its turn comes

    def is_same(self, row: SourceRow, uri: str = "") -> bool:
        """Whether a source has the metadata and readers that the caller says; of another uri, if it is named."""
        if not self._is_described(row, uri or row.uri):
            return False
        return not self.labels.access or self.held.readers(row.document) == self.labels.readers(uri or row.uri)

    def _is_described(self, row: SourceRow, uri: str) -> bool:
        return not self.labels.metadata or DocumentReport.of(row.report).labels == self.labels.mark(uri)

    def on(self, document: Document, before: SourceRow | None) -> Document:
        """What was read, with what the caller says of it.

        What is there already of this source, but for its labels, gets these and keeps its id and its nodes: it is cut
        again and models are asked again only where a transform reads what has changed.
        """
        labelled = self.labels.on(document, self._is_free)
        if before is None or not before.document or not self._is_alone(before.document):
            return labelled
        there = self.writer.document(before.document)
        kept = labelled.but(id=there.id)
        if there.but(uri=kept.uri, meta=kept.meta, readers=kept.readers) != kept:
            return labelled
        if (there.meta, there.readers) != (kept.meta, kept.readers):
            relabel(self.writer, self.filing.growths, there, kept)
            self.held.change(there.id, kept.readers)
        return kept

    def _is_alone(self, id: str) -> bool:
        """Whether one source alone holds a document, and none that waits is going to."""
        if self.held.is_shared(id) or any(filed.reading.document.id == id for filed in self.filing.pending):
            return False
        return len(self.writer.holders(id)) == 1

    def _is_free(self, document: Document) -> bool:
        """Whether a document may have its id: no other one has it, with other labels."""
        there = self.writer.meta_of(document.id)
        return self.held.is_free(document.id, document.readers) and there in (None, document.meta)

    def gives_other_readers(self, row: SourceRow, uri: str = "") -> bool:
        """Whether only the reader list was another one, so that nothing has to be cut again.

        Args:
            uri: where the source is by now, if that is elsewhere.
        """
        if not self._is_described(row, uri or row.uri) or self.held.is_shared(row.document):
            return False  # another source may have another list: this one's becomes a document of its own
        readers = self.labels.readers(uri or row.uri)
        self.writer.set_readers(self.writer.document(row.document), readers)
        self.held.change(row.document, readers)
        return True

    def may_stay(self, before: SourceRow) -> bool:
        """Whether the last good version of what cannot be read stays: for those only who may read it now."""
        if not before.document or self.labels.access is None:
            return bool(before.document)
        readers = self.labels.readers(before.uri)
        if readers == self.held.readers(before.document):
            return True
        if self.held.is_shared(before.document):
            return False
        self.writer.set_readers(self.writer.document(before.document), readers)
        self.held.change(before.document, readers)
        return True
