"""A store as it was published once: everything that is asked of a snapshot is of one generation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spolia.errors import StoreError
from spolia.stores.contents import Contents
from spolia.stores.opened import Opened
from spolia.stores.tables import sql
from spolia.types import Filter

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from spolia.models.vectors import SparseRows
    from spolia.stores.lexical.index import Lexical
    from spolia.stores.reading.allowed import Allowed
    from spolia.stores.reading.inherited import Inherited
    from spolia.stores.reading.records import Records
    from spolia.stores.truth import Lease, Stored
    from spolia.stores.vectors.places import Places
    from spolia.stores.vectors.searching import VectorSearch
    from spolia.stores.vectors.sparse import SparseSearch

_ATTEMPTS = 50


class Snapshot(Contents):
    """One published generation, read and searched. As long as it lives, what it needs is not swept."""

    def __init__(
        self,
        opened: Opened,
        published: tuple[int, str, str, str, str],
        lease: Lease | None = None,
        before: Snapshot | None = None,
    ) -> None:
        super().__init__(opened, published)
        self._lease = lease
        self._indexes: dict[object, Any] = {}
        self.derived: dict[object, Any] = {}  # what others computed of this generation, as long as it is looked at
        self._inherited: Inherited | None = None
        self._records: dict[str | None, Records] = {}
        self.places: dict[tuple[str, str], Places] = {}  # where vectors stand, by group and embedder
        if before is not None and before._lease is not None:  # else rows may be gone that have died since
            self._take_over(before)

    def search(
        self,
        group: str,
        text: str,
        top_k: int,
        access: frozenset[str],
        filter: Filter | None = None,
        *,
        every: bool = False,
    ) -> list[tuple[int, float]]:
        """Keys and BM25 scores of the best nodes that share a term with `text`, best first, ties by node id.

        A node's id is made of what it is, not of when it came: an order of files or a file that was put back change
        nothing.

        Args:
            access: principals who ask; what none of them may read is not found.
            filter: what it accepts is found; None for all.
            every: only nodes that hold every term, not just one of them.

        Raises:
            FilterError: for a field that is not declared, or values of another type.
        """
        allowed = None if filter is None else self.allowed(group, access, filter)
        lexical, readable = self.lexical(group), self.rights.narrowed(access)
        return lexical.search(text, top_k, readable, allowed, every=every, ids=self.ids)

    def nearest(
        self,
        group: str,
        embedder: str,
        vector: npt.NDArray[np.float32],
        top_k: int,
        access: frozenset[str],
        filter: Filter | None = None,
    ) -> list[tuple[int, float]]:
        """Keys and cosines of the nodes nearest to a vector float32[d], best first, ties by node id."""
        return self.nearest_batch(group, embedder, vector.reshape(1, -1), top_k, access, filter)[0]

    def nearest_batch(
        self,
        group: str,
        embedder: str,
        vectors: npt.NDArray[np.float32],
        top_k: int,
        access: frozenset[str],
        filter: Filter | None = None,
    ) -> list[list[tuple[int, float]]]:
        """`nearest` for each row of float32[m, d], with the same results."""
        found: list[list[tuple[int, float]]]
        found = self._vectors(group, embedder).search(vectors, top_k, self.allowed(group, access, filter), self.ids)
        return found

    def sparse(
        self,
        group: str,
        embedder: str,
        queries: SparseRows,
        top_k: int,
        access: frozenset[str],
        filter: Filter | None = None,
    ) -> list[list[tuple[int, float]]]:
        """For each sparse vector, keys and products of the nodes that share a term with it, best first, ties by id."""
        found = self._vectors(group, embedder).search(queries, top_k, self.allowed(group, access, filter), self.ids)
        return [[(key, score) for key, score in row if score > 0] for row in found]

    def is_exact(self, group: str, embedder: str) -> bool:
        """Whether the nearest nodes are found by comparing with all of them."""
        return getattr(self._vectors(group, embedder), "is_exact", False)

    def allowed(self, group: str, access: frozenset[str], filter: Filter | None = None) -> Allowed:
        """The nodes of a group that may be found: the one place where access and filters are decided."""
        return self.records(group).allowed(self.rights.narrowed(access), filter)

    def vectors(self, group: str, embedder: str, allowed: Allowed) -> npt.NDArray[np.float32]:
        """The vectors float32[n, d] of the allowed nodes of a group, in the order of their keys, as they are kept."""
        return self.stored(group, embedder).at(allowed.positions())

    def check(self) -> list[str]:
        """What is wrong with the store, in words; nothing if all is well. Reads everything."""
        from spolia.stores.integrity import problems

        return problems(self)

    def lexical(self, group: str) -> Lexical:
        """The lexical index of a group."""
        found: Lexical | None = self._indexes.get(group)
        if found is None:
            from spolia.stores.lexical.index import Lexical

            manifest = self.manifest(group)
            folder = self.opened.store.lexical(self, group)
            found = self.opened.shared(folder, lambda: Lexical(folder, manifest.analyzer))
            self._indexes[group] = found
        return found

    def records(self, group: str | None) -> Records:
        """What filters and access look at, of the nodes of a group; of None, of the documents themselves."""
        found = self._records.get(group)
        if found is None:
            from spolia.stores.reading.records import Records

            if group is not None:
                self.manifest(group)
            found = self._records[group] = Records(self.opened.rows, group, self._inheritance(), self.schema)
        return found

    def _inheritance(self, before: Inherited | None = None) -> Inherited:
        if self._inherited is None:
            from spolia.stores.reading.inherited import Inherited

            self._inherited = Inherited(self.opened.rows, self.generation, before)
        return self._inherited

    def _take_over(self, before: Snapshot) -> None:
        """What an earlier snapshot has computed of metadata and places, and has not changed since."""
        for group, records in before._records.copy().items():
            if group is None or group in self.indexes:
                self._records[group] = records.at(self._inheritance(before._inherited), self.schema)
        for (group, embedder), places in before.places.copy().items():
            if group in self.indexes and self.manifests[group].embedded(embedder):
                self.places[group, embedder] = places.at(self.generation)

    def stored(self, group: str, embedder: str) -> Stored:
        """The vectors of a group's live nodes, by their positions."""
        key = (group, embedder, "stored")
        found: Stored | None = self._indexes.get(key)
        if found is None:
            self.manifest(group)
            found = self._indexes[key] = self.opened.store.stored(self, group, embedder)
        return found

    def _vectors(self, group: str, embedder: str) -> Any:
        key = (group, embedder)
        found: VectorSearch | SparseSearch | None = self._indexes.get(key)
        if found is None:
            self.manifest(group)
            found = self._indexes[key] = self.opened.store.vector_search(self, group, embedder)
        return found


def latest(opened: Opened) -> Snapshot:
    """The published snapshot; the same object as long as nothing else is published."""
    found: Snapshot | None = opened.latest
    for _ in range(_ATTEMPTS):
        if found is not None and found.version == opened.row(sql.PUBLISHED):
            return found
        if found is not None and not opened.was_published(found.version):
            opened, found = opened.again(), None
        published = opened.row(sql.PUBLISHED_WHOLE)
        lease = opened.leased(published[0])
        if opened.row(sql.IS_KEPT, published[:1]):  # else it was swept before the lease held it
            opened.latest = found = Snapshot(opened, published, lease, found)
            return found
    raise StoreError(f"{opened.store} is published too fast to be read. Search again.")
