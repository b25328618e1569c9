"""Files on their way into the store: their bytes, documents, nodes, reports."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from spolia.errors import DocumentError
from spolia.indexing.counted import Counted
from spolia.indexing.intake import Unreadable
from spolia.indexing.labels import Labels
from spolia.indexing.readers.reader import Reading
from spolia.indexing.report import DocumentReport
from spolia.models.protocols import Embedder, SparseEmbedder
from spolia.stores.groups.growing import Grown, Growth, grow
from spolia.stores.groups.reaching import passes
from spolia.stores.groups.storing import store
from spolia.stores.staging import AnyWriter
from spolia.stores.tables.rows import SourceRow
from spolia.types import Document


@dataclass
class Filed:
    """A source that was read and waits to be stored with others.

    Args:
        is_new: it was not known.
        parts: number of the files in it.
        within: uri of the container that it stands in.
        beside: what was seen of the pictures that it names, by uri.
    """

    reading: Reading
    row: SourceRow
    is_new: bool
    parts: int = 0
    within: str = ""
    beside: tuple[tuple[str, str], ...] = ()

    @property
    def weight(self) -> int:
        """How much memory it takes, in characters and bytes."""
        document = self.reading.document
        return len(document.text) + len(document.boxes.packed) + sum(image.size for image in self.reading.images)


@dataclass
class Filing:
    """Puts documents into the store with the nodes of all groups, and reports.

    Args:
        writer: of the store.
        growths: the groups, in order.
        main: name of the group whose nodes the report counts.
        labels: what the caller says of files.
    """

    writer: AnyWriter
    growths: Sequence[Growth]
    main: str
    labels: Labels
    pending: list[Filed] = field(default_factory=list)
    tried: set[str] = field(default_factory=set)
    """Documents of which a group could not be made, by their ids."""
    counted: set[str] = field(default_factory=set)
    """Documents whose reports tell the nodes that they have by now, by their ids."""

    @property
    def weight(self) -> int:
        """How much waits, in characters and bytes of pictures."""
        return sum(filed.weight for filed in self.pending)

    def flush(self) -> Iterator[tuple[Filed, DocumentReport | Unreadable]]:
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
        grown = {one.document.id: one for one in grow(list(fresh.values()), self.growths)}
        for filed in pending:
            try:
                yield filed, self._put(filed, grown.pop(filed.reading.document.id, None))
            except Unreadable as failure:
                yield filed, failure

    def recount(self, document: Document) -> int:
        """Bring the reports of a document's sources in step with its nodes, which were made otherwise; their number."""
        self.counted.add(document.id)
        counted = Counted(self._embedder)
        counted.count(self.writer.nodes(document.id, self.main))
        for row in self.writer.holders(document.id):
            if row.report:
                self.writer.touch(row.but(report=counted.on(DocumentReport.of(row.report), document).json))
        return counted.nodes

    def _put(self, filed: Filed, one: Grown | None) -> DocumentReport:
        """Store a document and what could be made of it; None where it is there already.

        Raises:
            Unreadable: no group could be made of it.
        """
        document, counted = filed.reading.document, Counted(self._embedder)
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

    def _store(self, filed: Filed, report: DocumentReport) -> None:
        document, images = filed.reading.document, filed.reading.images
        row = filed.row.but(document=document.id, report=report.json)
        self.writer.put(document, (), row, {image.content_hash: image.data for image in images})

    def _refuse_unmade(self, filed: Filed, one: Grown) -> None:
        if one.failures:
            self.tried.add(one.document.id)
            if not one.made:
                reason = next(iter(one.reasons.values()))
                is_away = any(map(passes, one.failures.values()))  # which is not the document's fault
                raise Unreadable(filed.row, reason, None if is_away else DocumentError(reason))

    def _corrected(self, filed: Filed, said: DocumentReport, one: Grown, counted: Counted) -> DocumentReport:
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

    def _report(self, filed: Filed) -> DocumentReport:
        """What the reader noticed; of the nodes, nothing yet."""
        reading, document = filed.reading, filed.reading.document
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
            warnings=(*reading.warnings, *self.writer.declared.misfits(document.meta)),
            lacks=reading.lacks,
            beside=filed.beside,
            labels=self.labels.mark(document.uri),
        )
