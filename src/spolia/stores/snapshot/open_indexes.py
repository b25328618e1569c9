"""The indexes of a snapshot, each opened when it is first searched; what is as it was comes from an earlier one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import ref

if TYPE_CHECKING:
    from spolia.stores.backends.backend import Stored
    from spolia.stores.lexical.index import Lexical
    from spolia.stores.snapshot.document_metadata import DocumentMetadata
    from spolia.stores.snapshot.records import Records
    from spolia.stores.snapshot.snapshot import Snapshot
    from spolia.stores.vectors.placement import VectorPlaces
    from spolia.stores.vectors.search import VectorSearch
    from spolia.stores.vectors.sparse import SparseSearch


class OpenIndexes:
    """What is open of a snapshot.

    Args:
        before: of an earlier snapshot, all of whose rows are still there.

    Attributes:
        places: where vectors stand, by group and embedder.
    """

    def __init__(self, snapshot: Snapshot, before: OpenIndexes | None) -> None:
        self._of = ref(snapshot)  # which owns this: it ends, with its lease, as soon as nobody holds it
        self._indexes: dict[object, Any] = {}
        self._inherited: DocumentMetadata | None = None
        self._records: dict[str | None, Records] = {}
        self.places: dict[tuple[str, str], VectorPlaces] = {}
        if before is not None:
            self._take_over(snapshot, before)

    @property
    def _snapshot(self) -> Snapshot:
        found = self._of()
        assert found is not None
        return found

    def lexical(self, group: str) -> Lexical:
        """The lexical index of a group."""
        found: Lexical | None = self._indexes.get(group)
        if found is None:
            from spolia.stores.lexical.index import Lexical

            manifest = self._snapshot.manifest(group)
            folder = self._snapshot.opened.store.lexical(self._snapshot, group)
            found = self._snapshot.opened.shared(folder, lambda: Lexical(folder, manifest.analyzer))
            self._indexes[group] = found
        return found

    def records(self, group: str | None) -> Records:
        """What filters and access look at, of the nodes of a group; of None, of the documents themselves."""
        found = self._records.get(group)
        if found is None:
            from spolia.stores.snapshot.records import Records

            if group is not None:
                self._snapshot.manifest(group)
            found = self._records[group] = Records(
                self._snapshot.opened.rows, group, self._inheritance(), self._snapshot.schema
            )
        return found

    def _inheritance(self, before: DocumentMetadata | None = None) -> DocumentMetadata:
        if self._inherited is None:
            from spolia.stores.snapshot.document_metadata import DocumentMetadata

            self._inherited = DocumentMetadata(self._snapshot.opened.rows, self._snapshot.generation, before)
        return self._inherited

    def _take_over(self, snapshot: Snapshot, before: OpenIndexes) -> None:
        """What an earlier snapshot has computed of metadata and places, and has not changed since."""
        for group, records in before._records.copy().items():
            if group is None or group in snapshot.indexes:
                self._records[group] = records.at(self._inheritance(before._inherited), snapshot.schema)
        for (group, embedder), places in before.places.copy().items():
            if group in snapshot.indexes and snapshot.manifests[group].embedded(embedder):
                self.places[group, embedder] = places.at(snapshot.generation)

    def stored(self, group: str, embedder: str) -> Stored:
        """The vectors of a group's live nodes, by their positions."""
        key = (group, embedder, "stored")
        found: Stored | None = self._indexes.get(key)
        if found is None:
            self._snapshot.manifest(group)
            found = self._indexes[key] = self._snapshot.opened.store.stored(self._snapshot, group, embedder)
        return found

    def vectors(self, group: str, embedder: str) -> Any:
        """What searches the vectors of a group."""
        key = (group, embedder)
        found: VectorSearch | SparseSearch | None = self._indexes.get(key)
        if found is None:
            self._snapshot.manifest(group)
            found = self._indexes[key] = self._snapshot.opened.store.vector_search(self._snapshot, group, embedder)
        return found
