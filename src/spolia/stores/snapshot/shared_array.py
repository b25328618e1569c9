"""Arrays that go on from one generation to the next without being copied."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

_ROOM = 1_024


class SharedArray:
    """The values of one generation, in memory that the next one goes on to fill.

    >>> first = SharedArray(np.array([10, 20])).appended(np.array([30]))
    >>> first.appended(np.array([40])).values.tolist(), first.appended(np.array([50])).values.tolist()
    ([10, 20, 30, 40], [10, 20, 30, 50])
    """

    __slots__ = ("_buffers", "values")

    def __init__(self, values: npt.NDArray[Any]) -> None:
        self.values = values
        self._buffers: list[npt.NDArray[Any]] = []

    def appended(self, added: npt.NDArray[Any]) -> "SharedArray":
        """Return these values, then the added ones."""
        if not len(added):
            return self
        start, end = len(self.values), len(self.values) + len(added)
        # A generation may get two next ones, in two threads: only the one that takes the buffer writes behind it.
        try:
            buffer = self._buffers.pop()
        except IndexError:
            buffer = self.values
        if end > len(buffer):
            # Room for later generations, so that only few of them copy everything.
            buffer = np.empty(end + start // 8 + _ROOM, dtype=self.values.dtype)
            buffer[:start] = self.values
        buffer[start:end] = added
        extended = SharedArray(buffer[:end])
        extended._buffers.append(buffer)
        return extended

    def without(self, positions: npt.NDArray[np.int64]) -> "SharedArray":
        """Return the values but those at these positions."""
        return SharedArray(np.delete(self.values, positions)) if len(positions) else self


def positions_of(requested_keys: Sequence[int], keys: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the positions in `keys`, which ascend, of those requested keys that are among them.

    >>> positions_of([30, 25, 10], np.array([10, 20, 30])).tolist()
    [2, 0]
    """
    if not len(requested_keys) or not len(keys):
        return np.zeros(0, dtype=np.int64)
    positions: npt.NDArray[np.int64] = np.minimum(np.searchsorted(keys, requested_keys), len(keys) - 1)
    return np.extract(keys[positions] == requested_keys, positions)
