"""Which nodes of a group may be found: alive in the generation, readable by who asks, fulfilling the filter."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Keys = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Allowed:
    """Live nodes of a group by key, int64[n] ascending; `mask`, bool[n], says which may be found, None that all may."""

    keys: Keys
    mask: Mask | None = None

    @property
    def count(self) -> int:
        return len(self.keys) if self.mask is None else int(np.count_nonzero(self.mask))

    def positions(self) -> npt.NDArray[np.int64]:
        """Positions in `keys` of those that may be found."""
        return np.arange(len(self.keys)) if self.mask is None else np.flatnonzero(self.mask)

    def runs(self, most: int) -> list[tuple[int, int]] | None:
        """First and last key of each run of nodes that may be found, none between them may not; None for too many."""
        positions = self.positions()
        is_last = np.diff(positions, append=-1) != 1
        if np.count_nonzero(is_last) > most:
            return None
        last = np.flatnonzero(is_last)
        first = np.concatenate([[0], last[:-1] + 1])[: len(last)]
        return list(zip(self.keys[positions[first]].tolist(), self.keys[positions[last]].tolist(), strict=True))

    def only(self, found: Iterable[int]) -> "Allowed":
        """Of these keys those that may be found, of no others."""
        mask = np.isin(self.keys, np.fromiter(found, dtype=np.int64))
        return Allowed(self.keys, mask if self.mask is None else mask & self.mask)

    def holds(self, found: Iterable[int]) -> Mask:
        """For each key, whether it may be found."""
        wanted = found if isinstance(found, np.ndarray) else np.fromiter(found, dtype=np.int64)
        at = np.searchsorted(self.keys, wanted)
        inside = at < len(self.keys)
        there = np.zeros(len(wanted), dtype=np.bool_)
        there[inside] = self.keys[at[inside]] == wanted[inside]
        if self.mask is not None:
            there[there] = self.mask[at[there]]
        return there
