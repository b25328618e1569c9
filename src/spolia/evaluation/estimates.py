"""What one measure says of flows that were asked the same questions, and how sure that is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import nan
from typing import Self

from spolia.evaluation.measures.measure import CostMeasure, Measure, Seen, SetMeasure
from spolia.evaluation.row import Row
from spolia.evaluation.statistics.interval import Interval
from spolia.evaluation.statistics.sample import Sample
from spolia.evaluation.statistics.totals import Totals
from spolia.types import Item, kept

Column = Sequence[Seen | None]


class Estimates:
    """Intervals and tests of a measure. Questions that are undetermined for a flow are left out for that flow, and for
    each pair of flows that it is in.

    Args:
        measure: what was measured.
        columns: by flow, what each question adds; None where it does not count.
        seed: of what is drawn by lot.
    """

    def __init__(self, measure: SetMeasure, columns: Sequence[Column], seed: int) -> None:
        self.measure, self.columns, self.seed = measure, columns, seed
        self.single = isinstance(measure, Measure | CostMeasure)

    @classmethod
    def of(
        cls,
        measure: SetMeasure,
        flows: Sequence[str],
        items: Sequence[Item],
        rows: Mapping[tuple[str, str], Row],
        seed: int,
    ) -> Self:
        """Those of a measure of some questions, from their rows by flow and question."""
        written = str(measure)
        columns = [[dict(rows[flow, item.id].seen).get(written) for item in items] for flow in flows]
        return cls(measure, columns, seed)

    def interval(self, flow: int) -> Interval | None:
        """The number of a flow; None where no question is determined, or none of those defines it."""
        return self._statistics.interval(flow) if self._known(flow) else None

    def difference(self, ours: int, theirs: int) -> tuple[Interval, float] | None:
        """By how much one flow has more than another, and the p-value of that; None where no question is determined
        for both, or one of them has no number."""
        if not self._known(ours, theirs):
            return None
        if (found := self._statistics.difference(ours, theirs)) is None:
            return None
        return found, self._statistics.p(ours, theirs)

    @property
    def unit(self) -> bool:
        """Whether scores lie between 0 and 1, and are told times 100."""
        return self.measure.range == (0.0, 1.0)

    def _known(self, *flows: int) -> bool:
        columns = [self.columns[flow] for flow in flows]
        return any(None not in seen for seen in zip(*columns, strict=True))

    @kept
    def _statistics(self) -> Sample | Totals:
        """Of all flows, so that one set of draws serves them all."""
        if self.single:
            table = [[nan if seen is None else seen[0] for seen in row] for row in zip(*self.columns, strict=True)]
            return Sample(table, range=self.measure.range, seed=self.seed)
        named = {name: getattr(self.measure, name) for name in ("additive", "range")}
        return Totals(self.columns, self.measure.total, **named, seed=self.seed)
