"""What the searches by vectors of one node group have in common."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from spolia.errors import FilterError, QueryError
from spolia.retrieval.embedded import refuse_other
from spolia.retrieval.group_search import GroupSearch
from spolia.surrounding import access
from spolia.types import Failure, Filter, Hit, Query, Ranking

if TYPE_CHECKING:
    from spolia.stores.snapshot import Snapshot

V = TypeVar("V")
Found = list[list[tuple[int, float]]]


class VectorSearch(GroupSearch, Generic[V]):
    """Base of what embeds queries and searches a node group by their vectors.

    The queries of a batch are embedded together, and those with the same filter are searched together. What is wrong
    with a query is found before that, so that only its own row fails.

    A subclass is a frozen dataclass with these fields and those of `GroupSearch`, and writes `read`, `vectors` and
    `nearest`.

    Fields:
        embedder: one that the group was built with.

    Raises:
        ManifestMismatch: when the group was built with another embedder, or none.
        ModelError: when the embedder gives what are no vectors of its kind.
    """

    embedder: Any

    cached: ClassVar[bool] = True

    @abstractmethod
    def read(self, query: Query, row: int | None, /) -> str | None:
        """The text to embed, None where the query brings its vector.

        Args:
            row: which value of a batch the query is; None where it is alone.
        """

    @abstractmethod
    def vectors(self, queries: Sequence[Query], texts: Sequence[str | None], /) -> V:
        """The vectors of queries, a row for each.

        Args:
            texts: what `read` gave for them.
        """

    @abstractmethod
    def nearest(
        self, snapshot: Snapshot, vectors: V, rows: list[int], who: frozenset[str], wanted: Filter | None, /
    ) -> Found:
        """Keys and scores of what is nearest to some rows of the vectors."""

    def hits(self, query: Query, snapshot: Snapshot, who: frozenset[str], wanted: Filter | None, /) -> tuple[Hit, ...]:
        (found,) = self._found([query], [self.read(query, None)], snapshot, who)
        return found

    def snapshot(self) -> Snapshot:
        """The generation that is searched. A built-in group gets vectors by the embedder at their first use."""
        from spolia.stores.groups.first_use import with_vectors

        return with_vectors(self.group, self.embedder).snapshot()

    def apply_batch(self, values: Sequence[Query], /) -> list[Ranking | Failure]:
        snapshot, who = self.snapshot(), access()
        results: dict[int, Ranking | Failure] = {}
        texts: dict[int, str | None] = {}
        for row, query in enumerate(values):
            try:
                snapshot.allowed(self.group.name, who, self.wanted(query))
                texts[row] = self.read(query, row)
            except (QueryError, FilterError) as error:
                results[row] = Failure.of(error, self.short)
        asked = [values[row] for row in texts]
        for row, hits in zip(texts, self._found(asked, list(texts.values()), snapshot, who), strict=True):
            results[row] = Ranking(values[row], hits, self.source)
        return [results[row] for row in range(len(values))]

    def _found(
        self, asked: Sequence[Query], texts: Sequence[str | None], snapshot: Snapshot, who: frozenset[str]
    ) -> list[tuple[Hit, ...]]:
        if not asked:
            return []
        refuse_other(self.group, snapshot, self.embedder)
        vectors = self.vectors(asked, texts)
        found: dict[int, tuple[Hit, ...]] = {}
        for rows in self._by_filter(asked):
            wanted = self.wanted(asked[rows[0]])
            for row, pairs in zip(rows, self.nearest(snapshot, vectors, rows, who, wanted), strict=True):
                found[row] = snapshot.hits(pairs, who)
        return [found[row] for row in range(len(asked))]

    def _by_filter(self, asked: Sequence[Query]) -> list[list[int]]:
        """Which rows are searched together: those with the same filter."""
        rows: dict[bytes | None, list[int]] = {}
        for row, query in enumerate(asked):
            wanted = self.wanted(query)
            rows.setdefault(None if wanted is None else wanted.digest, []).append(row)
        return list(rows.values())
