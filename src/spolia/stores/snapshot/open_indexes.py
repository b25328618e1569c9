"""Data that a snapshot keeps open: its lexical indexes, vectors and metadata."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeVar
from weakref import ref

from spolia.errors import StoreCorrupt
from spolia.stores import lexical as lexical_package
from spolia.stores import snapshot as snapshot_package
from spolia.stores.backends.backend import PinnedSnapshot

if TYPE_CHECKING:
    from spolia.filters import Field, Leaf
    from spolia.stores.backends.backend import Backend
    from spolia.stores.backends.searches import StoredVectors
    from spolia.stores.lexical.index import Lexical
    from spolia.stores.manifest import Manifest
    from spolia.stores.open_store import OpenStore
    from spolia.stores.snapshot.records import DocumentMetadata, Records
    from spolia.stores.vectors.placement import VectorPlaces

T = TypeVar("T")


class StoredGeneration(PinnedSnapshot, Protocol):
    """Snapshot, as its open indexes see it."""

    @property
    def open_store(self) -> OpenStore: ...
    @property
    def manifests(self) -> dict[str, Manifest]: ...


class OpenIndexes:
    """Indexes and vectors opened for a snapshot; `places` says by group and embedder where vectors stand."""

    def __init__(self, snapshot: StoredGeneration, previous: OpenIndexes | None) -> None:
        self._snapshot_ref = ref(snapshot)  # which owns this: it ends, with its lease, as soon as nobody holds it
        self._indexes: dict[object, Any] = {}
        self._inherited: DocumentMetadata | None = None
        self._records: dict[str | None, Records] = {}
        self.places: dict[tuple[str, str], VectorPlaces] = {}
        if previous is not None:
            self._take_over(snapshot, previous)

    @property
    def _snapshot(self) -> StoredGeneration:
        snapshot = self._snapshot_ref()
        assert snapshot is not None
        return snapshot

    def lexical(self, group: str) -> Lexical:
        return self._open_once(group, lambda: self._open_lexical(self._snapshot, group))

    def _open_lexical(self, snapshot: StoredGeneration, group: str) -> Lexical:
        open_store, analyzer = snapshot.open_store, snapshot.manifest(group).analyzer
        folder = open_store.store.lexical_index(snapshot, group)
        return open_store.share(
            folder,
            lambda: lexical_package.index.Lexical(
                folder, analyzer, lambda keys: open_store.count_terms(keys, analyzer)
            ),
        )

    def _open_once(self, key: object, open: Callable[[], T]) -> T:
        index: T | None = self._indexes.get(key)
        if index is None:
            index = self._indexes[key] = open()
        return index

    def records(self, group: str | None) -> Records:
        """Return what filters and access read of the nodes of a group; for None, of the documents themselves."""
        records = self._records.get(group)
        if records is None:
            if group is not None:
                self._snapshot.manifest(group)
            records = self._records[group] = snapshot_package.records.Records(
                self._snapshot.open_store.rows, group, self._document_metadata(), self._snapshot.schema
            )
        return records

    def holders(self, group: str, leaf: Leaf, field: Field) -> list[int] | None:
        """Return the keys of the nodes that fulfil a condition; None where the lexical index cannot say, or is not
        there yet: it would take longer to make it than to read the metadata."""
        snapshot = self._snapshot
        if group not in self._indexes and snapshot.open_store.store.published_index(group, snapshot.generation) is None:
            return None
        try:
            return self.lexical(group).holders(leaf, field)
        except StoreCorrupt:  # who searches it says so
            return None

    def _document_metadata(self, previous: snapshot_package.records.DocumentMetadata | None = None) -> DocumentMetadata:
        if self._inherited is None:
            self._inherited = snapshot_package.records.DocumentMetadata(
                self._snapshot.open_store.rows, self._snapshot.generation, previous
            )
        return self._inherited

    def _take_over(self, snapshot: StoredGeneration, previous: OpenIndexes) -> None:
        """Take over what an earlier snapshot has computed of metadata and places, and has not changed since."""
        # A copy: other threads may search the earlier snapshot, and add entries, meanwhile.
        for group, records in previous._records.copy().items():
            if group is None or group in snapshot.indexes:
                self._records[group] = records.for_generation(
                    self._document_metadata(previous._inherited), snapshot.schema
                )
        for (group, embedder), places in previous.places.copy().items():
            if group in snapshot.indexes and snapshot.manifests[group].find_embedding(embedder):
                self.places[group, embedder] = places.for_generation(snapshot.generation)

    def stored_vectors(self, group: str, embedder: str) -> StoredVectors:
        return self._open_once(
            (group, embedder, "stored"), lambda: self._backend_of(group).stored_vectors(self._snapshot, group, embedder)
        )

    def vectors(self, group: str, embedder: str) -> Any:
        return self._open_once(
            (group, embedder), lambda: self._backend_of(group).vector_search(self._snapshot, group, embedder)
        )

    def _backend_of(self, group: str) -> Backend:
        self._snapshot.manifest(group)
        return self._snapshot.open_store.store
