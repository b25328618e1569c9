"""What the searches have in common whose formulas are computed from the counts of terms."""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

from spolia.retrieval.group_search import GroupSearch
from spolia.retrieval.searched import searched
from spolia.types import Filter, Hit, Query

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from spolia.stores.snapshot import Snapshot

    Numbers = npt.NDArray[np.float64]
    Mask = npt.NDArray[np.bool_]


class TermSearch(GroupSearch):
    """Base of what scores the nodes of a group by the terms that they share with the query.

    What is counted is counted over all nodes of the group, as for BM25, so that a filter changes which nodes are found
    and no score. A node that shares no term with the query is not found. Equal scores go by the id of the node.

    A subclass is a frozen dataclass with the fields of `GroupSearch`, and writes `scores`.
    """

    @abstractmethod
    def scores(self, snapshot: Snapshot, terms: Mapping[str, int], /) -> tuple[Numbers, Mask]:
        """float64[n] scores of all nodes of the group in the order of their keys, and bool[n] which share a term.

        Args:
            terms: of the query, and how often each stands there; in one order whatever the order of the words.
        """

    def hits(self, query: Query, snapshot: Snapshot, who: frozenset[str], wanted: Filter | None, /) -> tuple[Hit, ...]:
        import numpy as np

        from spolia.stores.reading.ordered import ordered

        allowed = snapshot.allowed(self.group.name, who, wanted)
        counted = Counter(snapshot.manifest(self.group.name).analyzer.terms(searched(query)))
        scores, shares = self.scores(snapshot, dict(sorted(counted.items())))
        if allowed.mask is not None:
            shares = shares & allowed.mask
        places = np.flatnonzero(shares)
        if len(places) > self.top_k:
            least = np.partition(scores[places], len(places) - self.top_k)[len(places) - self.top_k]
            places = places[scores[places] >= least]
        found = zip(allowed.keys[places].tolist(), scores[places].tolist(), strict=True)
        return snapshot.hits(ordered(found, self.top_k, snapshot.ids), who)
