"""What the caller says of sources, beside what the store has of them."""

from __future__ import annotations

from spolia.errors import DocumentError
from spolia.indexing.filing import Filing
from spolia.indexing.held import Held
from spolia.indexing.labels import Labels
from spolia.indexing.report import DocumentReport
from spolia.stores.groups.relabelling import relabel
from spolia.stores.staging import AnyWriter
from spolia.stores.tables.rows import SourceRow
from spolia.types import Document


class Labelled:
    """Compares the labels of sources, and changes those of documents that are there.

    Args:
        writer: of the store.
        labels: what the caller says.
        held: who may read what the store has.
        filing: what waits to be stored.
    """

    def __init__(self, writer: AnyWriter, labels: Labels, held: Held, filing: Filing) -> None:
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
