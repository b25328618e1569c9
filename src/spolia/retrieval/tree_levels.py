"""Steps from the nodes of one level of a tree to those of the next, and back."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from spolia.stores.access.allowed_nodes import Allowed, Keys
from spolia.stores.snapshot.lineage import AncestorPath, rows_of
from spolia.stores.snapshot.snapshot import Snapshot

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Level:
    """Nodes of a group (`keys` int64[n], ascending), and the number of each one's ancestor (int64[n])."""

    keys: Keys
    ancestors: Numbers

    def ancestors_of(self, keys: Iterable[int]) -> Numbers:
        """Return the ancestors of these nodes."""
        return self.ancestors[np.searchsorted(self.keys, np.fromiter(keys, dtype=np.int64))]

    def under(self, numbers: Numbers) -> Keys:
        """Return the nodes that have one of these ancestors."""
        return self.keys[np.isin(self.ancestors, numbers)]


class TreeSteps:
    """Steps between neighbouring levels, from the top, through the nearest group that both were made from."""

    def __init__(self, snapshot: Snapshot, groups: Sequence[str]) -> None:
        self._pairs = [_step(snapshot, upper, lower) for upper, lower in pairwise(groups)]

    def step_down(self, level: int, keys: Iterable[int]) -> Keys:
        """Return the nodes of the next level that belong to these nodes of a level."""
        upper, lower = self._pairs[level]
        return lower.under(upper.ancestors_of(keys))

    def leading_to_allowed(self, allowed: Sequence[Allowed]) -> list[Allowed]:
        """Return the allowed nodes of each level that lead to an allowed one on the last level."""
        leading = [allowed[-1]]
        for (upper, lower), level in zip(reversed(self._pairs), reversed(allowed[:-1]), strict=True):
            leads = upper.under(lower.ancestors_of(leading[0].keys[leading[0].positions()]))
            # From the last level up, since each level depends on the one below it.
            leading.insert(0, level.restrict_to(leads))
        return leading


def _step(snapshot: Snapshot, upper: str, lower: str) -> tuple[Level, Level]:
    lower_ancestors = snapshot.lineage_of(lower)
    common = next(name for name in snapshot.lineage_of(upper) if name in lower_ancestors)
    numbers: dict[object, int] = {}
    return _level(snapshot, upper, common, numbers), _level(snapshot, lower, common, numbers)


def _level(snapshot: Snapshot, group: str, common: str, numbers: dict[object, int]) -> Level:
    climbing = AncestorPath(snapshot, group, common)
    pairs = [(row.key, numbers.setdefault(climbing.ancestor_id(row), len(numbers))) for row in rows_of(snapshot, group)]
    keys, ancestors = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
    return Level(keys, ancestors)
