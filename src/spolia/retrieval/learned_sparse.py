"""Search by learned sparse vectors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from spolia.errors import FilterError, QueryError, WiringError
from spolia.filters import narrowed
from spolia.models.protocols import SparseEmbedder
from spolia.operator import Operator
from spolia.retrieval.embedded import refuse_other
from spolia.retrieval.searched import searched
from spolia.stores.corpus import NodeGroup
from spolia.surrounding import access, narrowing
from spolia.types import Failure, Filter, Query, Ranking


@dataclass(frozen=True)
class LearnedSparse(Operator[Query, Ranking]):
    """The nodes whose sparse vectors have the largest product with the query's; exact.

    score(q, d) = Σ over terms t of w_q(t) · w_d(t), with the weights that a model gives to the terms of a vocabulary. A
    node that shares no term with the query is not found.

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

    Source: Formal et al., "SPLADE: Sparse lexical and expansion model for first stage ranking", 2021.
    """

    group: NodeGroup
    embedder: SparseEmbedder
    top_k: int = 10
    source: str = "sparse"
    filter: Filter | None = None

    cached: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.top_k < 1:
            raise WiringError(f"{self.short}: top_k counts from 1.")

    def apply(self, value: Query, /) -> Ranking:
        return self._found([value], [self._read(value)])[0]

    def apply_batch(self, values: Sequence[Query], /) -> list[Ranking | Failure]:
        results: list[Ranking | Failure | None] = []
        texts: list[str] = []
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
        return value.text, value.filter

    def _read(self, query: Query, row: int | None = None) -> str:
        """The text to embed. What is wrong with a query is found here, so that only its own row of a batch fails."""
        self.group.snapshot().allowed(self.group.name, access(), self._wanted(query))
        return searched(query, row=row)

    def _wanted(self, query: Query) -> Filter | None:
        return narrowed(self.filter, query.filter, narrowing())

    def _found(self, asked: Sequence[Query], texts: Sequence[str]) -> list[Ranking]:
        who, snapshot = access(), self.group.snapshot()
        refuse_other(self.group, snapshot, self.embedder)
        vectors = self.embedder.embed_sparse(texts, kind="query")
        results = []
        for row, query in enumerate(asked):
            wanted = self._wanted(query)
            name, one = self.embedder.name, vectors.only(row)
            (found,) = snapshot.sparse(self.group.name, name, one, self.top_k, who, wanted)
            results.append(Ranking(query, snapshot.hits(found, who), self.source))
        return results
