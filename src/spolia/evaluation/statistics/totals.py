"""How sure a measure is that is no mean: the same questions drawn again for all flows, and totalled each time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import sqrt
from typing import TYPE_CHECKING, TypeAlias

from spolia.evaluation.statistics.interval import Interval
from spolia.evaluation.statistics.quantiles import NORMAL, student
from spolia.types import kept

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats: TypeAlias = NDArray[np.float64]

Row: TypeAlias = tuple[float, ...]
Total: TypeAlias = Callable[[Sequence[Row]], float | None]
RESAMPLES = 1_000


class Totals:
    """As `Sample`, for rows of which a total is made: BLEU, AURC, F1 of abstaining.

    Intervals are expanded percentiles of the resampled totals (Hesterberg 2015). The p-value is twice the share of
    resampled differences that lie on the other side of zero.

    Args:
        rows: by flow, one row of numbers for each question, the same questions for all; at least one.
        total: what a measure makes of rows; None where it is not defined.

    >>> both = [[(1.0,), (0.0,), (1.0,)], [(0.0,), (0.0,), (1.0,)]]
    >>> Totals(both, lambda rows: max(number for number, in rows)).interval(0).mean
    1.0
    """

    def __init__(
        self,
        rows: Sequence[Sequence[Row]],
        total: Total,
        *,
        level: float = 0.95,
        resamples: int = RESAMPLES,
        seed: int = 0,
    ) -> None:
        if not rows or not rows[0]:
            raise ValueError("There are no rows to total. Give at least one for each flow.")
        self.rows, self.total = rows, total
        self.level, self.resamples, self.seed = level, resamples, seed

    @property
    def n(self) -> int:
        return len(self.rows[0])

    def interval(self, flow: int) -> Interval:
        """The total of a flow."""
        return self._of(self._whole(flow), self._totals[:, flow])

    def difference(self, ours: int, theirs: int) -> Interval:
        """The total of one flow minus that of another."""
        return self._of(self._whole(ours) - self._whole(theirs), self._totals[:, ours] - self._totals[:, theirs])

    def p(self, ours: int, theirs: int) -> float:
        """How often the difference is not on this side of zero, twice."""
        import numpy as np

        off = self._totals[:, ours] - self._totals[:, theirs]
        off = off[np.isfinite(off)]
        least = min(int((off <= 0).sum()), int((off >= 0).sum()))
        return min(1.0, 2 * (1 + least) / (1 + off.size))

    def _of(self, whole: float, resampled: Floats) -> Interval:
        import numpy as np

        found = resampled[np.isfinite(resampled)]
        if self.n == 1 or not found.size:
            return Interval(whole, -np.inf, np.inf, self.n, self.level, "one value")
        end = NORMAL.cdf(-sqrt(self.n / (self.n - 1)) * student(self.level, self.n - 1))
        low, high = np.quantile(found, (end, 1 - end))
        return Interval(whole, float(low), float(high), self.n, self.level, "bootstrap of rows").within()

    def _whole(self, flow: int) -> float:
        return self._number(self.rows[flow])

    def _number(self, rows: Sequence[Row]) -> float:
        found = self.total(rows)
        return float("nan") if found is None else float(found)

    @kept
    def _totals(self) -> Floats:
        import numpy as np

        random, found = np.random.default_rng(self.seed), np.empty((self.resamples, len(self.rows)))
        for draw in range(self.resamples):
            drawn = random.integers(0, self.n, self.n).tolist()
            for flow, rows in enumerate(self.rows):
                found[draw, flow] = self._number([rows[index] for index in drawn])
        return found
