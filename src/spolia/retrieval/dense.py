"""Search by meaning."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from spolia.errors import FilterError, QueryError, WiringError
from spolia.filters import narrowed
from spolia.models.protocols import Embedder
from spolia.operator import Operator
from spolia.retrieval.embedded import read, refuse_other, vectors_of
from spolia.stores.corpus import NodeGroup
from spolia.surrounding import access, narrowing
from spolia.types import Failure, Filter, Query, Ranking


@dataclass(frozen=True)
class Dense(Operator[Query, Ranking]):
    """The nodes whose vectors are nearest to the query's, by the group's index for the embedder.

    The query is embedded, unless it brings its vector. Many queries are embedded together and searched with one matrix
    product. There is always a nearest node, so that `top_k` are found wherever the group has as many.

    Args:
        group: the node group to search.
        embedder: one that the group was built with.
        top_k: hits to return, at most.
        source: name of the ranking, for weights when it is fused.
        filter: what may be found at all; the query's filter and the run's narrow it further.

    Raises:
        QueryError: for an empty query.
        FilterError: for a filter on a field that the store does not declare.
        ManifestMismatch: when the group was built with another embedder, or none.
        StoreError: when the store cannot be read, or has no such group.

    >>> from spolia.models.minilm import MiniLM
    >>> from spolia.stores.corpus import Corpus
    >>> Dense(Corpus("notes.spolia").group(), MiniLM(), top_k=5).short
    "Dense(top_k=5, source='dense')"
    """

    group: NodeGroup
    embedder: Embedder
    top_k: int = 10
    source: str = "dense"
    filter: Filter | None = None

    cached: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.top_k < 1:
            raise WiringError(f"{self.short}: top_k counts from 1.")

    def apply(self, value: Query, /) -> Ranking:
        return self._found([value], [self._read(value)])[0]

    def apply_batch(self, values: Sequence[Query], /) -> list[Ranking | Failure]:
        results: list[Ranking | Failure | None] = []
        texts: list[str | None] = []
        for row, value in enumerate(values):
            try:
                texts.append(self._read(value, row))
                results.append(None)
            except (QueryError, FilterError) as error:
                results.append(Failure.of(error, self.short))
        asked = [value for value, result in zip(values, results, strict=True) if result is None]
        found = iter(self._found(asked, texts) if asked else ())
        return [next(found) if result is None else result for result in results]

    def reads(self, value: Query, /) -> object:
        return (value.text if value.vector is None else value.vector), value.filter

    def _read(self, query: Query, row: int | None = None) -> str | None:
        """The text to embed. What is wrong with a query is found here, so that only its own row of a batch fails."""
        self.group.snapshot().allowed(self.group.name, access(), self._wanted(query))
        return read(query, self.embedder, row)

    def _wanted(self, query: Query) -> Filter | None:
        return narrowed(self.filter, query.filter, narrowing())

    def _found(self, asked: Sequence[Query], texts: Sequence[str | None]) -> list[Ranking]:
        who = access()
        snapshot = self.group.snapshot()
        refuse_other(self.group, snapshot, self.embedder)
        vectors = vectors_of(asked, texts, self.embedder)
        results: dict[int, Ranking] = {}
        for rows in self._by_filter(asked).values():
            wanted = self._wanted(asked[rows[0]])
            found = snapshot.nearest_batch(self.group.name, self.embedder.name, vectors[rows], self.top_k, who, wanted)
            for row, pairs in zip(rows, found, strict=True):
                results[row] = Ranking(asked[row], snapshot.hits(pairs, who), self.source)
        return [results[row] for row in range(len(asked))]

    def _by_filter(self, asked: Sequence[Query]) -> dict[bytes | None, list[int]]:
        """Which rows are searched together: those with the same filter."""
        rows: dict[bytes | None, list[int]] = {}
        for row, query in enumerate(asked):
            wanted = self._wanted(query)
            rows.setdefault(None if wanted is None else wanted.digest, []).append(row)
        return rows
