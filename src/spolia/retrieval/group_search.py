"""What is searched of a query's text: all of it, unless it is empty or endless."""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from spolia.core.operator import Operator
from spolia.core.run_context import access, narrowing, note, whole
from spolia.core.sweepable import Swept
from spolia.core.type_compatibility import refuse_counts
from spolia.deferred import numpy as np
from spolia.errors import QueryError
from spolia.filters import narrowed
from spolia.stores import snapshot as snapshot_package
from spolia.stores.corpus import NodeGroup, refuse_no_group
from spolia.types import Filter, Hit, LateHits, Query, Ranking

if TYPE_CHECKING:
    from spolia.stores.snapshot.snapshot import Snapshot
    from spolia.types.arrays import Mask, Numbers

LONGEST_CHARACTERS = 10_000
"""A longer question has a document pasted into it, with the real question before or after it."""


def searched(query: Query, *, row: int | None = None) -> str:
    """The text to search for, of an endless one the two ends, which is recorded; QueryError if it is empty."""
    text = query.text
    if len(text) > LONGEST_CHARACTERS:
        note(
            f"The question has {len(text)} characters; its first and last {LONGEST_CHARACTERS // 2} are searched.",
            row=row,
        )
        text = f"{text[: LONGEST_CHARACTERS // 2]} {text[-LONGEST_CHARACTERS // 2 :]}"
    if not text or text.isspace():
        raise QueryError(f"The question is empty: {text[:20]!r}. Write what to look for, in at least one word.")
    return text


class GroupSearch(Operator[Query, Ranking]):
    """Base of what searches one node group by a query.

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
        self, query: Query, snapshot: Snapshot, who: frozenset[str], wanted: Filter | None, /
    ) -> tuple[Hit, ...] | LateHits:
        """The hits among nodes that match the filter and may be read."""

    def apply(self, value: Query, /) -> Ranking:
        found = self.hits(value, self.snapshot(), access(), self.wanted(value))
        return Ranking(value, found, self.source)  # type: ignore[arg-type]

    def snapshot(self) -> Snapshot:
        """The generation that is searched, in which the group is built."""
        return self.group.snapshot()

    def is_nested(self) -> bool:
        """Whether the hits for a smaller `top_k` are the first ones of those for a larger."""
        return False

    def alike(self) -> object:
        """Variants that give the same differ in `top_k` alone."""
        return self.but(top_k=1)

    def together(self, variants: Sequence[GroupSearch], /) -> Callable[[Sequence[Query]], list[list[Swept]]]:
        """One search for all variants where hits are nested, else one for each."""
        wanted = sorted({variant.top_k for variant in variants}, reverse=True)
        searches = [self.but(top_k=top_k) for top_k in (wanted[:1] if self.is_nested() else wanted)]

        def swept(queries: Sequence[Query]) -> list[list[Swept]]:
            found = {one.top_k: [Swept.of(ranking) for ranking in whole(one.batch(queries))] for one in searches}
            each = [(variant.top_k, found.get(variant.top_k, found[wanted[0]])) for variant in variants]
            return [
                [rankings[row].at(range(len(rankings[row].order))[:top_k]) for top_k, rankings in each]
                for row in range(len(queries))
            ]

        return swept

    def reads(self, value: Query, /) -> object:
        return value.text, value.filter

    def wanted(self, query: Query) -> Filter | None:
        """What may be found: what this step, the query and the run all accept."""
        return narrowed(self.filter, query.filter, narrowing())


class TermSearch(GroupSearch):
    """Base of what scores nodes by the terms that they share with the query, counted over what the asker may read.

    A filter changes which nodes are found and no score. Equal scores go by the id of the node. A subclass writes
    `scores`.
    """

    def is_nested(self) -> bool:
        return True

    @abstractmethod
    def scores(self, snapshot: Snapshot, terms: Mapping[str, int], who: frozenset[str], /) -> tuple[Numbers, Mask]:
        """float64[n] scores of all nodes in the order of their keys, and bool[n] which share a term."""

    def hits(self, query: Query, snapshot: Snapshot, who: frozenset[str], wanted: Filter | None, /) -> tuple[Hit, ...]:
        allowed = snapshot.allowed(self.group.name, who, wanted)
        counted = Counter(snapshot.manifest(self.group.name).analyzer.terms(searched(query)))
        scores, shares = self.scores(snapshot, dict(sorted(counted.items())), who)
        if allowed.mask is not None:
            shares = shares & allowed.mask
        places = np.flatnonzero(shares)
        if len(places) > self.top_k:
            least = np.partition(scores[places], len(places) - self.top_k)[len(places) - self.top_k]
            places = places[scores[places] >= least]
        found = zip(allowed.keys[places].tolist(), scores[places].tolist(), strict=True)
        return snapshot.hits(snapshot_package.hit_order.best_hits(found, self.top_k, snapshot.ids), who)
