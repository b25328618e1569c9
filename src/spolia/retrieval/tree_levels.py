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
    """The nodes of a group (`keys` int64[n], ascending), and for each the number of its ancestor (`above` int64[n])."""

    keys: Keys
    above: Numbers

    def numbers(self, keys: Iterable[int]) -> Numbers:
        """The ancestors of these nodes."""
        return self.above[np.searchsorted(self.keys, np.fromiter(keys, dtype=np.int64))]

    def under(self, numbers: Numbers) -> Keys:
        """The nodes that have one of these ancestors."""
        return self.keys[np.isin(self.above, numbers)]


class TreeSteps:
    """The ways between neighbouring levels, from the top, through the nearest group that both were made from."""

    def __init__(self, snapshot: Snapshot, groups: Sequence[str]) -> None:
        self._pairs = [_step(snapshot, upper, lower) for upper, lower in pairwise(groups)]

    def below(self, level: int, keys: Iterable[int]) -> Keys:
        """The nodes of the next level that belong to these of a level."""
        upper, lower = self._pairs[level]
        return lower.under(upper.numbers(keys))

    def leading(self, allowed: Sequence[Allowed]) -> list[Allowed]:
        """The allowed nodes of each level that lead to an allowed one on the last level."""
        found = [allowed[-1]]
        for (upper, lower), mine in zip(reversed(self._pairs), reversed(allowed[:-1]), strict=True):
            leads = upper.under(lower.numbers(found[0].keys[found[0].positions()]))
            found.insert(0, mine.only(leads))
        return found


def _step(snapshot: Snapshot, upper: str, lower: str) -> tuple[Level, Level]:
    above = snapshot.above(lower)
    common = next(name for name in snapshot.above(upper) if name in above)
    numbers: dict[object, int] = {}
    return _level(snapshot, upper, common, numbers), _level(snapshot, lower, common, numbers)


def _level(snapshot: Snapshot, group: str, common: str, numbers: dict[object, int]) -> Level:
    climbing = AncestorPath(snapshot, group, common)
    found = [(row.key, numbers.setdefault(climbing.of(row), len(numbers))) for row in rows_of(snapshot, group)]
    keys, above = np.array(found, dtype=np.int64).reshape(-1, 2).T
    return Level(keys, above)
