"""Whether a flow has become worse on a measure, and how that is decided."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, inf, isfinite
from statistics import NormalDist
from typing import Any, Literal, TypeAlias

from spolia.evaluation.experiment.comparison import ALPHA, Estimates, amount, number
from spolia.evaluation.plurals import several
from spolia.evaluation.statistics.interval import Interval
from spolia.evaluation.statistics.significance import holm
from spolia.types import Value

Outcome: TypeAlias = Literal["not worse", "worse", "undecided"]
ROUNDING = 1e-12


@dataclass(frozen=True)
class GateVerdict(Value):
    """One measure, then and now, on the same questions.

    It is **not worse** where no question scores otherwise, or where the interval of the paired difference ends no lower
    than minus the tolerance: a test of non-inferiority; and where every question that was determined then is so now.
    It is **worse** where the whole interval lies below minus the tolerance; or where only its lower end does, all of it
    lies below zero, and a paired permutation test excludes zero after Holm's correction for all measures. Else it is
    **undecided**. With a tolerance of 0 the test alone decides.

    Args:
        change: how much better it is, negative where it is worse, whether the measure is good when high or when low;
            None where no question is determined on both sides.
        p: of the paired permutation test, corrected.
        tolerance: how much worse it may be, in the measure's own unit.
        moved: how many questions score otherwise.
        lost: how many were determined then, and are not now.
        unit: whether scores lie between 0 and 1, and are told times 100.

    Source: Walker and Nowacki 2011 for non-inferiority.
    """

    measure: str
    before: Interval | None
    now: Interval | None
    change: Interval | None
    p: float
    tolerance: float
    moved: int
    lost: int
    unit: bool

    @property
    def outcome(self) -> Outcome:
        if self.change is None:
            return "undecided"
        if not self.moved or self.change.low >= -self.tolerance - ROUNDING:
            return "undecided" if self.lost else "not worse"
        lost_more = self.tolerance > 0 and self.change.high < -self.tolerance - ROUNDING
        return "worse" if lost_more or (self.change.high < 0 and self.p < ALPHA) else "undecided"

    @property
    def sentence(self) -> str:
        if self.change is None:
            return f"{self.measure}: undecided, since no question is determined then and now{self._lost}"
        n = f"of {several(self.change.n, 'question')}"
        if not self.moved:
            mean = float("nan") if self.now is None else self.now.mean
            said = f"{self.measure}: undecided, as it was" if self.lost else f"{self.measure} is as it was"
            each = "on each " if self.change.n > 1 else ""
            return f"{said} {each}{n}{self._lost}: {number(mean, self.unit)}"
        by, tolerance = f"{amount(self.change, self.unit)} {n}", number(self.tolerance, self.unit)
        if self.outcome == "not worse":
            return f"{self.measure} is not worse: {by}, where {tolerance} less would be tolerated"
        if self.outcome == "worse":
            how = f"where {tolerance} less would be tolerated; p = {self.p:.2g}"
            return f"{self.measure} is worse: {by}, {how}{self._lost}"
        if self.lost:
            return f"{self.measure}: undecided, {by}{self._lost}"
        return f"{self.measure}: undecided, {by} is neither worse nor within {tolerance} less{self._needed}"

    @property
    def _lost(self) -> str:
        return f"; {self.lost} that were determined then are not now" if self.lost else ""

    @property
    def _needed(self) -> str:
        """How many questions would decide it, if they were like these: the interval shrinks with their root."""
        change = self.change
        if change is None or not (isfinite(change.low) and isfinite(change.high)):
            return "; so few questions tell nothing of how sure it is"
        if change.mean > -self.tolerance:
            times = ((change.mean - change.low) / (change.mean + self.tolerance)) ** 2
            told = "would tell"
        elif change.mean < 0:
            by_interval = ((change.high - change.mean) / change.mean) ** 2
            deviate = -NormalDist().inv_cdf(self.p / 2)  # which grows with the root too
            by_test = (NormalDist().inv_cdf(1 - ALPHA / 2) / deviate) ** 2 if deviate > 0 else inf
            times = by_interval if change.high >= 0 else by_test
            if 0 < self.tolerance < -change.mean:
                times = min(times, ((change.high - change.mean) / (change.mean + self.tolerance)) ** 2)
            told = "would show that it is worse"
        else:
            return "; no number of questions tells a change of 0 from a tolerance of 0"
        if not isfinite(times):
            return f"; p = {self.p:.2g}, corrected for all measures"
        return f"; about {max(ceil(change.n * times), change.n + 1):,} questions like these {change.n:,} {told}"

    def json(self) -> dict[str, Any]:
        """Plain data, scores in their own unit."""
        sides = {name: getattr(self, name) for name in ("before", "now", "change")}
        named = ("measure", "outcome", "p", "tolerance", "moved", "lost", "sentence")
        return {name: getattr(self, name) for name in named} | {
            name: None if one is None else one.json() for name, one in sides.items()
        }


def verdicts(estimates: Sequence[Estimates], tolerances: Sequence[float]) -> tuple[GateVerdict, ...]:
    """Of each measure, column 0 then and column 1 now; where scores have no range, a tolerance is a share of then."""
    found = [one.difference(1, 0) for one in estimates]
    p = holm([1.0 if one is None else one[1] for one in found])
    return tuple(
        _verdict(one, None if difference is None else difference[0], tolerance, adjusted)
        for one, difference, tolerance, adjusted in zip(estimates, found, tolerances, p, strict=True)
    )


def _verdict(estimates: Estimates, change: Interval | None, tolerance: float, p: float) -> GateVerdict:
    before, now = estimates.interval(0), estimates.interval(1)
    if change is not None and estimates.measure.lower_is_better:
        change = change.reversed
    if not estimates.unit:
        tolerance *= abs(before.mean) if before is not None else 0.0
    pairs = list(zip(*estimates.columns, strict=True))
    moved = sum(was != now for was, now in pairs if None not in (was, now))
    lost = sum(was is not None and now is None for was, now in pairs)
    return GateVerdict(str(estimates.measure), before, now, change, p, tolerance, moved, lost, estimates.unit)
