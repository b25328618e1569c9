"""Whether a flow has become worse than its baseline: measure by measure, by which rule, and why not to compare."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, inf, isfinite
from pathlib import Path
from statistics import NormalDist
from typing import Any, Literal, TypeAlias

from spolia import __version__
from spolia.core.plurals import several
from spolia.errors import DataError, NeverWorked
from spolia.evaluation.data.usage_log import UsageLog
from spolia.evaluation.experiment.comparison import ALPHA, Estimates, amount, number
from spolia.evaluation.experiment.execution import Told
from spolia.evaluation.experiment.experiment import Experiment
from spolia.evaluation.experiment.results import Report
from spolia.evaluation.gate.baseline import (
    PARTS,
    Baseline,
    BaselineQuestion,
    SearchedGroups,
    content_of,
    measured_by,
    signature,
)
from spolia.evaluation.gate.changes import CAUSES, Cause, Moved, changed, moved, refuse_other_corpus
from spolia.evaluation.measures.measure import Measure, SetMeasure
from spolia.evaluation.statistics.interval import Interval
from spolia.evaluation.statistics.significance import holm
from spolia.run import Run
from spolia.run.lane import counted_reasons
from spolia.types import Value

Outcome: TypeAlias = Literal["not worse", "worse", "undecided"]
ROUNDING = 1e-12


@dataclass(frozen=True)
class GateVerdict(Value):
    """One measure, then and now, on the same questions.

    It is **not worse** where no question scores otherwise, or where the interval of the paired difference ends no lower
    than minus the tolerance: a test of non-inferiority; and where every question that was determined then is so now. It
    is **worse** where the whole interval lies below minus the tolerance; or where only its lower end does, all of it
    lies below zero, and a paired permutation test excludes zero after Holm's correction for all measures. Else it is
    **undecided**. With a tolerance of 0 the test alone decides.

    `change` is how much better it is, None where no question is determined on both sides. `moved` questions score
    otherwise; `lost` ones were determined then, and are not now.

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
            said = f"{self.measure}: undecided, unchanged" if self.lost else f"{self.measure} is unchanged"
            each = "on each " if self.change.n > 1 else ""
            return f"{said} {each}{n}{self._lost}: {number(mean, self.unit)}"
        by, tolerance = f"{amount(self.change, self.unit)} {n}", number(self.tolerance, self.unit)
        if self.outcome == "not worse":
            return f"{self.measure} is not worse: {by}, at a tolerance of {tolerance}"
        if self.outcome == "worse":
            how = f"at a tolerance of {tolerance}; p = {self.p:.2g}"
            return f"{self.measure} is worse: {by}, {how}{self._lost}"
        if self.lost:
            return f"{self.measure}: undecided, {by}{self._lost}"
        return f"{self.measure}: inconclusive at a tolerance of {tolerance}: {by}{self._needed}"

    @property
    def _lost(self) -> str:
        return f"; {self.lost} scores of the baseline cannot be determined now" if self.lost else ""

    @property
    def _needed(self) -> str:
        """How many questions would decide it, if they were like these: the interval shrinks with their root."""
        change = self.change
        if change is None or not (isfinite(change.low) and isfinite(change.high)):
            return "; too few questions for an interval"
        if change.mean > -self.tolerance:
            times = ((change.mean - change.low) / (change.mean + self.tolerance)) ** 2
            told = "would decide"
        elif change.mean < 0:
            by_interval = ((change.high - change.mean) / change.mean) ** 2
            deviate = -NormalDist().inv_cdf(self.p / 2)  # which grows with the root too
            by_test = (NormalDist().inv_cdf(1 - ALPHA / 2) / deviate) ** 2 if deviate > 0 else inf
            times = by_interval if change.high >= 0 else by_test
            if 0 < self.tolerance < -change.mean:
                times = min(times, ((change.high - change.mean) / (change.mean + self.tolerance)) ** 2)
            told = "would show that it is worse"
        else:
            return "; no number of questions decides a change of 0 at a tolerance of 0"
        if not isfinite(times):
            return f"; p = {self.p:.2g}, corrected for all measures"
        return f"; about {max(ceil(change.n * times), change.n + 1):,} questions like these {change.n:,} {told}"

    def json(self) -> dict[str, Any]:
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
        tolerance = max(tolerance, estimates.measure.resolution)
    pairs = list(zip(*estimates.columns, strict=True))
    moved = sum(was != now for was, now in pairs if None not in (was, now))
    lost = sum(was is not None and now is None for was, now in pairs)
    return GateVerdict(str(estimates.measure), before, now, change, p, tolerance, moved, lost, estimates.unit)


GateRule: TypeAlias = Literal["not-worse", "worse"]
RULES: Mapping[GateRule, str] = {
    "not-worse": "no measure may drop beyond its tolerance",
    "worse": "no measure may be shown to be worse",
}


def refuse_what_cannot_be_compared(
    experiment: Experiment, before: Baseline, rule: str, tolerance: float, named: Mapping[str, float]
) -> None:
    """Raise `DataError` with all reasons why an experiment cannot be compared with a baseline."""
    refuse_what_decides_nothing(experiment.measures, rule, tolerance, named)
    if reasons := [*_other_questions(experiment, before), *_other_measures(experiment.measures, before)]:
        raise DataError(
            f"The baseline of {before.flow} on {before.data or 'questions'} cannot be compared: {'; '.join(reasons)}. "
            "Ask its questions with its measures, or write a new one: --write"
        )


def refuse_what_decides_nothing(
    measures: Sequence[SetMeasure], rule: str, tolerance: float, tolerances: Mapping[str, float]
) -> None:
    """Raise `DataError` for an unknown rule, or a tolerance that is not one of these measures."""
    written = [str(one) for one in measures]
    if rule not in RULES:
        raise DataError(f"There is no rule {rule!r}. Write one of: {', '.join(RULES)}.")
    numbers = (tolerance, *tolerances.values())
    if not all(0 <= one < float("inf") for one in numbers):
        raise DataError(f"A tolerance is a number from 0, for example 0.05; got {', '.join(map(str, numbers))}.")
    shares = [str(one) for one in measures if one.range == (0.0, 1.0)]
    wide = [(one, number) for one in shares if (number := tolerances.get(one, tolerance)) >= 1]
    if wide:
        raise DataError(
            f"{wide[0][0]} lies between 0 and 1, and a tolerance of {wide[0][1]:g} tolerates everything. Write the "
            "share: 0.05 for 5 points of 100."
        )
    if unknown := [one for one in tolerances if one not in written]:
        raise DataError(
            f"A tolerance is given for {unknown[0]}, which is not measured. Measured: {', '.join(written)}."
        )


def _other_questions(experiment: Experiment, before: Baseline) -> list[str]:
    then, now = before.by_item, {item.id: content_of(item) for item in experiment.asked}
    both = [id for id in then if id in now]
    other = [(what, [id for id in both if then[id].content[at] != now[id][at]]) for at, what in enumerate(PARTS)]
    kinds = [
        ("of the baseline not asked now", [id for id in then if id not in now]),
        ("not in the baseline", [id for id in now if id not in then]),
        *((f"with another {what} than then", ids) for what, ids in other),
    ]
    return [f"{several(len(ids), 'question')} {what}, the first {ids[0]!r}" for what, ids in kinds if ids]


def _other_measures(measures: Sequence[SetMeasure], before: Baseline) -> list[str]:
    now = measured_by(measures)
    listed = [f"{name} is not measured now" for name in before.measures if name not in now]
    listed += [f"{name} was not measured then" for name in now if name not in before.measures]
    other = [name for name in now if before.measures.get(name, now[name]) != now[name]]
    version = before.signature.get("Spolia", {}).get("version", "?")
    told = "then: its code, its model or a prompt of it is another"
    than = told if version == __version__ else f"by Spolia {version}, which wrote it"
    return listed + [f"{name} is computed otherwise than {than}" for name in other]


TOLERANCE = 0.05


@dataclass(frozen=True)
class Gate(Value):
    """A flow compared with its baseline: verdicts by measure, what differs of all that results depend on, the questions
    that score otherwise (those that lost most first), and what would be the next baseline. `idle` are steps that failed
    on every call, where that is not allowed: such a flow does not pass."""

    data: str
    flow: str
    n: int
    rule: GateRule
    verdicts: tuple[GateVerdict, ...]
    changes: tuple[tuple[str, str], ...]
    moved: tuple[Moved, ...]
    report: Report
    now: Baseline
    idle: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        if self.idle:
            return False
        outcomes = {one.outcome for one in self.verdicts}
        return outcomes == {"not worse"} if self.rule == "not-worse" else "worse" not in outcomes

    @property
    def worse(self) -> tuple[Moved, ...]:
        return tuple(one for one in self.moved if one.worse)

    @property
    def causes(self) -> Mapping[Cause, int]:
        """How many questions score less by each cause, most first."""
        found = {cause: sum(one.cause == cause for one in self.worse) for cause in CAUSES}
        return {cause: n for cause, n in sorted(found.items(), key=lambda one: -one[1]) if n}

    @property
    def why(self) -> str:
        """What made questions worse, in one sentence; empty where none is."""
        if not self.worse:
            return ""
        listed = ", ".join(f"{n} because {CAUSES[cause]}" for cause, n in self.causes.items())
        unknown = "" if self.changes else "; nothing that is recorded has changed, so the flow is not deterministic"
        return f"Of {several(self.n, 'question')} {len(self.worse)} score less: {listed}{unknown}."

    @property
    def sentence(self) -> str:
        said = "passes" if self.passed else "does not pass"
        caveat = f"; {self.report.flows[0].caveat}" if self.report.flows[0].caveat else ""
        which = f"{self.data and f'{self.data}, '}{several(self.n, 'question')}"
        why = f"{', '.join(self.idle)} never worked" if self.idle else f"{RULES[self.rule]}{caveat}"
        return f"{self.flow} {said} on {which}: {why}."

    def json(self) -> dict[str, Any]:
        found = {name: getattr(self, name) for name in ("passed", "data", "flow", "n", "rule", "why")}
        return found | {
            "verdicts": [one.json() for one in self.verdicts],
            "changes": [{"kind": kind, "change": text} for kind, text in self.changes],
            "causes": dict(self.causes),
            "questions": [one.json() for one in self.moved],
            "degraded": counted_reasons(self.report.flows[0].steps),
            "never_worked": list(self.report.flows[0].never_worked),
            "warnings": list(self.report.warnings),
        }


def recorded(
    experiment: Experiment,
    *,
    run: Run | None = None,
    path: str | Path | None = None,
    told: Told = lambda flow, done, total: None,
    also: Baseline | None = None,
    usage_log: UsageLog | None = None,
) -> tuple[Report, Baseline]:
    """Run an experiment with one flow, and make a baseline of it; the documents of `also`, which it will be compared
    with, are written down too. Without a `usage_log` nothing is noted: what is compared with itself is not chosen."""
    if len(experiment.flows) != 1:
        raise DataError(f"A baseline is of one flow; here are {len(experiment.flows)}. Name one.")
    ((name, flow),) = experiment.flows
    run = run if run is not None else Run()
    with run:
        held = SearchedGroups.by(flow)
        if also is not None:
            refuse_other_corpus(also, held)
        report = experiment.run(
            run=run, path=path, usage_log=usage_log if usage_log is not None else UsageLog(), told=told
        )
        places = report.table.places
        cells = ((item, report.table.cell(0, at)) for at, item in enumerate(report.items))
        asked = tuple(BaselineQuestion.of(item, cell, places, held.names) for item, cell in cells)
        wanted = {document for one in asked for document in one.documents}
        documents = held.among(wanted, also.documents if also is not None else {})
        signed = signature(flow, held, run)
        return report, Baseline(experiment.data, name, measured_by(experiment.measures), signed, documents, asked)


def refuse_idle(report: Report, degraded: str) -> None:
    """Raise `NeverWorked` where a baseline would be of a flow with a step that failed on every call, however few."""
    found = report.flows[0]
    if found.never_worked and degraded == "stop":
        raise NeverWorked(
            f"{found.caveat}: a baseline would be of a flow without that step, and is not written. Correct the cause, "
            "or leave the step out. To write it as it is, write --degraded ok (in Python degraded='ok').",
            found.never_worked,
            counted_reasons(found.steps),
        )


def gate(
    experiment: Experiment,
    baseline: Baseline | str | Path,
    *,
    tolerance: float = TOLERANCE,
    tolerances: Mapping[str, float] | None = None,
    rule: GateRule = "not-worse",
    run: Run | None = None,
    path: str | Path | None = None,
    told: Told = lambda flow, done, total: None,
) -> Gate:
    """Ask a flow the questions of a baseline, and say whether it has become worse, where, and what has changed.

    Args:
        experiment: one flow with the questions and measures of the baseline (`Baseline.among`).
        tolerance: how much worse a measure may be: 0.05 is 5 points of 100 where scores lie between 0 and 1, and a
            twentieth of what it was elsewhere.
        tolerances: other ones for some measures, as they are written.
        rule: `not-worse` passes where every measure is shown to be not worse, `worse` where none is shown to be worse.
        run, path, told: as for `Experiment.run`.

    Raises:
        DataError: the two cannot be compared, and why: other questions, measures, another corpus.
    """
    before = baseline if isinstance(baseline, Baseline) else Baseline.read(baseline)
    own = dict(tolerances or {})
    refuse_what_cannot_be_compared(experiment, before, rule, tolerance, own)
    report, now = recorded(experiment, run=run, path=path, told=told, also=before)
    was, is_ = before.by_item, now.by_item
    estimates = [
        Estimates(one, [[side[item.id].seen.get(str(one)) for item in report.items] for side in (was, is_)], 0)
        for one in experiment.measures
    ]
    allowed = [own.get(str(one), tolerance) for one in experiment.measures]
    scored = [str(one) for one in experiment.measures if isinstance(one, Measure)]
    return Gate(
        experiment.data,
        now.flow,
        len(report.items),
        rule,
        verdicts(estimates, allowed),
        changed(before, now),
        moved(report.items, scored, before, now),
        report,
        now,
        report.flows[0].never_worked if experiment.degraded == "stop" else (),
    )
