"""What the searches of one node group have in common."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

from spolia.filters import narrowed
from spolia.operator import Operator
from spolia.stores.corpus import NodeGroup, refuse_no_group
from spolia.surrounding import access, narrowing
from spolia.types import Filter, Hit, Query, Ranking
from spolia.wiring import refuse_counts

if TYPE_CHECKING:
    from spolia.stores.snapshot import Snapshot


class GroupSearch(Operator[Query, Ranking]):
    """Base of what searches one node group by a query.

    A subclass is a frozen dataclass with these fields, and writes `hits`.

    Fields:
        group: the node group to search.
        top_k: hits to return, at most.
        source: name of the ranking, for weights when it is fused.
        filter: what may be found at all; the query's filter and the run's narrow it further.

    Raises:
        QueryError: for an empty query.
        FilterError: for a filter on a field that the store does not declare.
        StoreError: when the store cannot be read, or has no such group.
    """

    group: NodeGroup
    top_k: int
    source: str
    filter: Filter | None

    def __post_init__(self) -> None:
        refuse_no_group(self.group, type(self).__name__)
        refuse_counts(self, "top_k")

    @abstractmethod
    def hits(self, query: Query, snapshot: Snapshot, who: frozenset[str], wanted: Filter | None, /) -> tuple[Hit, ...]:
        """What is found.

        Args:
            snapshot: which generation.
            who: principals that may read it.
            wanted: what may be found.
        """

    def apply(self, value: Query, /) -> Ranking:
        return Ranking(value, self.hits(value, self.snapshot(), access(), self.wanted(value)), self.source)

    def snapshot(self) -> Snapshot:
        """The generation that is searched, in which the group is built."""
        return self.group.snapshot()

    def reads(self, value: Query, /) -> object:
        return value.text, value.filter

    def wanted(self, query: Query) -> Filter | None:
        """What may be found: what this step, the query and the run all accept."""
        return narrowed(self.filter, query.filter, narrowing())
