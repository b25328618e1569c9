"""What one measure says of flows that were asked the same questions, and how sure that is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Self

from spolia.evaluation.measures.measure import CostMeasure, Measure, Seen, SetMeasure
from spolia.evaluation.row import Row
from spolia.evaluation.statistics.interval import Interval
from spolia.evaluation.statistics.sample import Sample
from spolia.evaluation.statistics.totals import Totals
from spolia.types import Item

Column = Sequence[Seen | None]
Mask = tuple[int, ...]


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
        self._samples: dict[Mask, Sample | Totals] = {}

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
        """The number of a flow; None where no question is determined."""
        sample = self._sample(self._known(flow))
        return sample.interval(flow) if sample is not None else None

    def difference(self, ours: int, theirs: int) -> tuple[Interval, float] | None:
        """By how much one flow has more than another, and the p-value of that; None where no question is determined
        for both."""
        sample = self._sample(self._known(ours, theirs))
        return (sample.difference(ours, theirs), sample.p(ours, theirs)) if sample is not None else None

    @property
    def unit(self) -> bool:
        """Whether all scores lie between 0 and 1, and are told times 100."""
        known = [one for column in self.columns for one in column if one is not None]
        return isinstance(self.measure, Measure) and all(0 <= one[0] <= 1 for one in known)

    def _known(self, *flows: int) -> Mask:
        columns = [self.columns[flow] for flow in flows]
        return tuple(i for i, seen in enumerate(zip(*columns, strict=True)) if None not in seen)

    def _sample(self, rows: Mask) -> Sample | Totals | None:
        """Of all flows, so that one set of draws serves them all; what a flow lacks there is asked of no one."""
        if rows and rows not in self._samples:
            empty = (0.0,)
            if self.single:
                table = [[(column[row] or empty)[0] for column in self.columns] for row in rows]
                self._samples[rows] = Sample(table, scale=isinstance(self.measure, Measure), seed=self.seed)
            else:
                some = next(seen for column in self.columns for seen in column if seen is not None)
                listed = [[column[row] or some for row in rows] for column in self.columns]
                self._samples[rows] = Totals(listed, self.measure.total, seed=self.seed)
        return self._samples.get(rows)
