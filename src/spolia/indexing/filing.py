"""Files on their way into the store: their bytes, documents, nodes, reports."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from spolia.errors import DocumentError, FilterError
from spolia.indexing.intake import Unreadable
from spolia.indexing.labels import Labels
from spolia.indexing.readers.reading import Reading
from spolia.indexing.report import DocumentReport
from spolia.models.protocols import Embedder, SparseEmbedder
from spolia.stores.groups.growing import Grown, Growth, grow
from spolia.stores.groups.storing import store
from spolia.stores.tables.rows import SourceRow
from spolia.stores.writer import Writer
from spolia.types import Node

_SAMPLE = 2_000
_KNOWN_SHARE = 0.95


@dataclass
class Filed:
    """A source that was read and waits to be stored with others.

    Args:
        is_new: it was not known.
        parts: number of the files in it.
        within: uri of the container that it stands in.
    """

    reading: Reading
    row: SourceRow
    is_new: bool
    parts: int = 0
    within: str = ""

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

    writer: Writer
    growths: Sequence[Growth]
    main: str
    labels: Labels
    pending: list[Filed] = field(default_factory=list)
    tried: set[str] = field(default_factory=set)
    """Documents of which a group could not be made, by their ids."""

    @property
    def weight(self) -> int:
        """How much waits, in characters and bytes of pictures."""
        return sum(filed.weight for filed in self.pending)

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
        report = self._report(filed, one, tally)
        row = filed.row.but(document=document.id, report=report.json)
        try:
            images = {image.content_hash: image.data for image in filed.reading.images}
            is_new = self.writer.put(document, (), row, images)
        except FilterError as error:
            raise Unreadable(filed.row, str(error), None) from error
        if is_new:
            store(self.writer, one)
            self._refuse_unmade(filed, one)
        elif not isinstance(nodes, list):  # a document that was there already is not cut, but counted
            deque(one.made.get(self.main, ()), maxlen=0)
        return self._corrected(report, filed, one, tally, row)

    def _refuse_unmade(self, filed: Filed, one: Grown) -> None:
        if one.failures:
            self.tried.add(one.document.id)
            if not one.made:
                reason = next(iter(one.reasons.values()))
                raise Unreadable(filed.row, reason, DocumentError(reason))

    def _corrected(
        self, report: DocumentReport, filed: Filed, one: Grown, tally: _Tally, row: SourceRow
    ) -> DocumentReport:
        """The report once all nodes were made: those of a long document are counted as they pass."""
        found = self._report(filed, one, tally)
        if found != report:
            self.writer.touch(row.but(report=found.json))
        return found

    @property
    def _embedder(self) -> Embedder | SparseEmbedder | None:
        embedders = (embedder for growth in self.growths if growth.group == self.main for embedder in growth.embedders)
        return next(embedders, None)

    def _report(self, filed: Filed, one: Grown, tally: _Tally) -> DocumentReport:
        reading, is_made = filed.reading, self.main in one.made
        document = reading.document
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
            chunks=tally.nodes if is_made else 0,
            tokens=tally.tokens if self._embedder else None,
            beyond_window=tally.beyond_window,
            encoding=reading.encoding,
            warnings=(*reading.warnings, *(self._warnings(filed, tally) if is_made else ())),
            labels=self.labels.mark(document.uri),
        )

    def _warnings(self, filed: Filed, tally: _Tally) -> Iterator[str]:
        document = filed.reading.document
        if not tally.nodes and not filed.parts:
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
