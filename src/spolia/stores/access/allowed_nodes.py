"""Which nodes of a group may be found: alive in the generation, readable by who asks, fulfilling the filter."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Keys = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


# Compared by identity: weak caches hold what was computed for one of them.
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

    def runs(self, limit: int) -> list[tuple[int, int]] | None:
        """Return first and last key of each run of nodes that may be found; None for more than `limit` runs."""
        positions = self.positions()
        is_last = np.diff(positions, append=-1) != 1
        if np.count_nonzero(is_last) > limit:
            return None
        last = np.flatnonzero(is_last)
        first = np.concatenate([[0], last[:-1] + 1])[: len(last)]
        return list(zip(self.keys[positions[first]].tolist(), self.keys[positions[last]].tolist(), strict=True))

    def restrict_to(self, keys: Iterable[int]) -> "Allowed":
        """Return the allowed nodes among these keys."""
        mask = np.isin(self.keys, np.fromiter(keys, dtype=np.int64))
        return Allowed(self.keys, mask if self.mask is None else mask & self.mask)

    def holds(self, keys: Iterable[int]) -> Mask:
        """Return for each key whether it may be found."""
        requested = keys if isinstance(keys, np.ndarray) else np.fromiter(keys, dtype=np.int64)
        places = np.searchsorted(self.keys, requested)
        # Keys beyond the last one get the place len(keys), which is no index.
        in_range = places < len(self.keys)
        is_allowed = np.zeros(len(requested), dtype=np.bool_)
        is_allowed[in_range] = self.keys[places[in_range]] == requested[in_range]
        if self.mask is not None:
            is_allowed[is_allowed] = self.mask[places[is_allowed]]
        return is_allowed
