"""Base classes of retrievers over one node group, and the text of a query that they search for."""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from spolia.core.operator import Operator
from spolia.core.run_context import access, note, raise_first_failure, run_filter
from spolia.core.sweepable import VariantRanking
from spolia.core.type_compatibility import refuse_counts
from spolia.deferred import numpy as np
from spolia.errors import QueryError
from spolia.filters import combine_filters
from spolia.stores import snapshot as snapshot_package
from spolia.stores.corpus import NodeGroup, refuse_no_group
from spolia.types import Filter, Hit, LateHits, Query, Ranking

if TYPE_CHECKING:
    from spolia.stores.snapshot.snapshot import Snapshot
    from spolia.types.arrays import Mask, Numbers

LONGEST_CHARACTERS = 10_000
"""A longer question has a document pasted into it, with the real question before or after it."""


def search_text(query: Query, *, row: int | None = None) -> str:
    """Return the text to search for: both ends of a very long one, as is recorded; raise QueryError if it is empty."""
    text = query.text
    if len(text) > LONGEST_CHARACTERS:
        note(
            f"The question has {len(text)} characters; its first and last {LONGEST_CHARACTERS // 2} are searched.",
            row=row,
        )
        # A pasted document may stand before or after the real question, so both ends are searched.
        text = f"{text[: LONGEST_CHARACTERS // 2]} {text[-LONGEST_CHARACTERS // 2 :]}"
    if not text or text.isspace():
        raise QueryError(f"The question is empty: {text[:20]!r}. Write what to look for, in at least one word.")
    return text


class GroupSearch(Operator[Query, Ranking]):
    """Base of retrievers that search one node group by a query.

    A subclass is a frozen dataclass with these fields, and writes `hits`.

    Args:
        group: the node group to search.
        top_k: hits to return, at most.
        source: name of the ranking, for weights when it is fused.
        filter: what may be found at all; the query's filter and the run's narrow it further.

    Raises:
        QueryError: for an empty query.
        FilterError: for a filter on a field that the store does not declare.
        StoreError: when the store cannot be read, or lacks the group.
    """

    group: NodeGroup
    top_k: int
    source: str
    filter: Filter | None

    def __post_init__(self) -> None:
        refuse_no_group(self.group, type(self).__name__)
        refuse_counts(self, "top_k")

    @abstractmethod
    def hits(
        self, query: Query, snapshot: Snapshot, principals: frozenset[str], filter: Filter | None, /
    ) -> tuple[Hit, ...] | LateHits:
        """Return the best nodes that match the filter and that these principals may read."""

    def apply(self, value: Query, /) -> Ranking:
        hits = self.hits(value, self.snapshot(), access(), self.effective_filter(value))
        # Deferred hits stand for a tuple of hits until the ranking is read.
        return Ranking(value, hits, self.source)  # type: ignore[arg-type]

    def snapshot(self) -> Snapshot:
        """Return the generation to search, in which the group is built."""
        return self.group.snapshot()

    def is_nested(self) -> bool:
        """Return whether a smaller `top_k` gives the first hits of a larger one."""
        return False

    def variant_key(self) -> object:
        """Return what variants share that differ in `top_k` alone."""
        return self.but(top_k=1)

    def run_variants(
        self, variants: Sequence[GroupSearch], /
    ) -> Callable[[Sequence[Query]], list[list[VariantRanking]]]:
        """Search once for all variants where hits are nested, else once for each `top_k`."""
        depths = sorted({variant.top_k for variant in variants}, reverse=True)
        # Nested hits: one search with the largest `top_k` answers every variant.
        searches = [self.but(top_k=top_k) for top_k in (depths[:1] if self.is_nested() else depths)]

        def rank_queries(queries: Sequence[Query]) -> list[list[VariantRanking]]:
            by_depth = {
                search.top_k: [
                    VariantRanking.from_ranking(ranking) for ranking in raise_first_failure(search.batch(queries))
                ]
                for search in searches
            }
            sources = [(variant.top_k, by_depth.get(variant.top_k, by_depth[depths[0]])) for variant in variants]
            return [
                [rankings[row].select(range(len(rankings[row].order))[:top_k]) for top_k, rankings in sources]
                for row in range(len(queries))
            ]

        return rank_queries

    def reads(self, value: Query, /) -> object:
        return value.text, value.filter

    def effective_filter(self, query: Query) -> Filter | None:
        """Return the filter that this step, the query and the run all accept."""
        return combine_filters(self.filter, query.filter, run_filter())


class TermSearch(GroupSearch):
    """Base of retrievers that score nodes by the terms shared with the query, counted over what the asker may read.

    A filter changes which nodes are found and no score. Equal scores go by the id of the node. A subclass writes
    `scores`.
    """

    def is_nested(self) -> bool:
        return True

    @abstractmethod
    def scores(
        self, snapshot: Snapshot, terms: Mapping[str, int], principals: frozenset[str], /
    ) -> tuple[Numbers, Mask]:
        """Return float64[n] scores of all nodes in the order of their keys, and bool[n] which share a term."""

    def hits(
        self, query: Query, snapshot: Snapshot, principals: frozenset[str], filter: Filter | None, /
    ) -> tuple[Hit, ...]:
        allowed = snapshot.allowed(self.group.name, principals, filter)
        term_counts = Counter(snapshot.manifest(self.group.name).analyzer.terms(search_text(query)))
        # Terms are added in one order, so that rounding gives equal scores for any order of words.
        scores, shares = self.scores(snapshot, dict(sorted(term_counts.items())), principals)
        if allowed.mask is not None:
            shares = shares & allowed.mask
        places = np.flatnonzero(shares)
        if len(places) > self.top_k:
            # Only nodes that reach the k-th best score are sorted; ties stay in, and the ids decide
            # between them.
            lowest = np.partition(scores[places], len(places) - self.top_k)[len(places) - self.top_k]
            places = places[scores[places] >= lowest]
        scored = zip(allowed.keys[places].tolist(), scores[places].tolist(), strict=True)
        return snapshot.hits(snapshot_package.hit_order.best_hits(scored, self.top_k, snapshot.ids), principals)
