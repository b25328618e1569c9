"""Gate that compares a flow with its baseline: the verdict of each measure, the rules, and reasons not to compare."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil, inf, isfinite
from pathlib import Path
from statistics import NormalDist
from typing import Any, Literal, TypeAlias

from spolia import __version__
from spolia.core.deprecation import RenamedAttribute, renamed_arguments
from spolia.core.plurals import several
from spolia.errors import DataError, NeverWorked
from spolia.evaluation.data.usage_log import UsageLog
from spolia.evaluation.experiment.comparison import ALPHA, Estimates, format_interval, format_number
from spolia.evaluation.experiment.execution import QuestionCallback
from spolia.evaluation.experiment.experiment import Experiment
from spolia.evaluation.experiment.results import Report
from spolia.evaluation.gate.baseline import (
    PARTS,
    Baseline,
    BaselineQuestion,
    SearchedGroups,
    compute_signature,
    hash_item,
    measure_hashes,
)
from spolia.evaluation.gate.changes import (
    CAUSES,
    Cause,
    ChangedQuestion,
    find_changed_questions,
    find_changes,
    refuse_other_corpus,
)
from spolia.evaluation.measures.measure import Measure, SetMeasure
from spolia.evaluation.statistics.interval import Interval
from spolia.evaluation.statistics.significance import holm
from spolia.run import Run
from spolia.run.lane import count_reasons
from spolia.types import Value

Outcome: TypeAlias = Literal["not worse", "worse", "undecided"]
# A bound that equals the tolerance must pass, whatever floating point makes of it.
ROUNDING = 1e-12


@dataclass(frozen=True)
class GateVerdict(Value):
    """Verdict on one measure, then and now, on the same questions.

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
    is_share: bool

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
            return f"{self.measure}: undecided, since no question is determined then and now{self._lost_text}"
        n = f"of {several(self.change.n, 'question')}"
        if not self.moved:
            mean = float("nan") if self.now is None else self.now.mean
            opening = f"{self.measure}: undecided, unchanged" if self.lost else f"{self.measure} is unchanged"
            each_text = "on each " if self.change.n > 1 else ""
            return f"{opening} {each_text}{n}{self._lost_text}: {format_number(mean, self.is_share)}"
        change_text, tolerance = (
            f"{format_interval(self.change, self.is_share)} {n}",
            format_number(self.tolerance, self.is_share),
        )
        if self.outcome == "not worse":
            return f"{self.measure} is not worse: {change_text}, at a tolerance of {tolerance}"
        if self.outcome == "worse":
            details = f"at a tolerance of {tolerance}; p = {self.p:.2g}"
            return f"{self.measure} is worse: {change_text}, {details}{self._lost_text}"
        if self.lost:
            return f"{self.measure}: undecided, {change_text}{self._lost_text}"
        return f"{self.measure}: inconclusive at a tolerance of {tolerance}: {change_text}{self._needed_text}"

    @property
    def _lost_text(self) -> str:
        return f"; {self.lost} scores of the baseline cannot be determined now" if self.lost else ""

    @property
    def _needed_text(self) -> str:
        """Return how many questions like these would decide it: the interval shrinks with their root."""
        change = self.change
        if change is None or not (isfinite(change.low) and isfinite(change.high)):
            return "; too few questions for an interval"
        if change.mean > -self.tolerance:
            times = ((change.mean - change.low) / (change.mean + self.tolerance)) ** 2
            outcome_text = "would decide"
        elif change.mean < 0:
            by_interval = ((change.high - change.mean) / change.mean) ** 2
            deviate = -NormalDist().inv_cdf(self.p / 2)  # which grows with the root too
            by_test = (NormalDist().inv_cdf(1 - ALPHA / 2) / deviate) ** 2 if deviate > 0 else inf
            times = by_interval if change.high >= 0 else by_test
            if 0 < self.tolerance < -change.mean:
                times = min(times, ((change.high - change.mean) / (change.mean + self.tolerance)) ** 2)
            outcome_text = "would show that it is worse"
        else:
            return "; no number of questions decides a change of 0 at a tolerance of 0"
        if not isfinite(times):
            return f"; p = {self.p:.2g}, corrected for all measures"
        return f"; about {max(ceil(change.n * times), change.n + 1):,} questions like these {change.n:,} {outcome_text}"

    def json(self) -> dict[str, Any]:
        sides = {name: getattr(self, name) for name in ("before", "now", "change")}
        names = ("measure", "outcome", "p", "tolerance", "moved", "lost", "sentence")
        return {name: getattr(self, name) for name in names} | {
            name: None if interval is None else interval.json() for name, interval in sides.items()
        }


def judge_measures(estimates: Sequence[Estimates], tolerances: Sequence[float]) -> tuple[GateVerdict, ...]:
    """Judge each measure, column 0 then and column 1 now; without a range of scores, a tolerance is a share of then."""
    differences = [estimate.difference(1, 0) for estimate in estimates]
    # All measures are corrected together: more measures must not find more changes by chance.
    p = holm([1.0 if difference is None else difference[1] for difference in differences])
    return tuple(
        _judge_measure(estimate, None if difference is None else difference[0], tolerance, adjusted)
        for estimate, difference, tolerance, adjusted in zip(estimates, differences, tolerances, p, strict=True)
    )


def _judge_measure(estimates: Estimates, change: Interval | None, tolerance: float, p: float) -> GateVerdict:
    previous, now = estimates.interval(0), estimates.interval(1)
    if change is not None and estimates.measure.lower_is_better:
        change = change.reversed
    if not estimates.is_share:
        tolerance *= abs(previous.mean) if previous is not None else 0.0
        # A measure cannot show a difference below its resolution.
        tolerance = max(tolerance, estimates.measure.resolution)
    pairs = list(zip(*estimates.columns, strict=True))
    changed_count = sum(was != now for was, now in pairs if None not in (was, now))
    lost = sum(was is not None and now is None for was, now in pairs)
    return GateVerdict(
        str(estimates.measure), previous, now, change, p, tolerance, changed_count, lost, estimates.is_share
    )


GateRule: TypeAlias = Literal["not-worse", "worse"]
RULES: Mapping[GateRule, str] = {
    "not-worse": "no measure may drop beyond its tolerance",
    "worse": "no measure may be shown to be worse",
}


def refuse_incomparable(
    experiment: Experiment, baseline: Baseline, rule: str, tolerance: float, tolerances: Mapping[str, float]
) -> None:
    """Raise `DataError` with all reasons why an experiment cannot be compared with a baseline."""
    refuse_invalid_rule(experiment.measures, rule, tolerance, tolerances)
    if reasons := [
        *_describe_other_questions(experiment, baseline),
        *_describe_other_measures(experiment.measures, baseline),
    ]:
        raise DataError(
            f"The baseline of {baseline.flow} on {baseline.data or 'questions'} cannot be compared: "
            f"{'; '.join(reasons)}. Ask its questions with its measures, or write a new one: --write"
        )


def refuse_invalid_rule(
    measures: Sequence[SetMeasure], rule: str, tolerance: float, tolerances: Mapping[str, float]
) -> None:
    """Raise `DataError` for an unknown rule, or a tolerance that is not one of these measures."""
    names = [str(measure) for measure in measures]
    if rule not in RULES:
        raise DataError(f"There is no rule {rule!r}. Write one of: {', '.join(RULES)}.")
    numbers = (tolerance, *tolerances.values())
    if not all(0 <= value < float("inf") for value in numbers):
        raise DataError(f"A tolerance is a number from 0, for example 0.05; got {', '.join(map(str, numbers))}.")
    shares = [str(measure) for measure in measures if measure.range == (0.0, 1.0)]
    wide = [(name, number) for name in shares if (number := tolerances.get(name, tolerance)) >= 1]
    if wide:
        raise DataError(
            f"{wide[0][0]} lies between 0 and 1, and a tolerance of {wide[0][1]:g} tolerates everything. Write the "
            "share: 0.05 for 5 points of 100."
        )
    if unknown := [name for name in tolerances if name not in names]:
        raise DataError(f"A tolerance is given for {unknown[0]}, which is not measured. Measured: {', '.join(names)}.")


def _describe_other_questions(experiment: Experiment, baseline: Baseline) -> list[str]:
    then, now = baseline.by_item, {item.id: hash_item(item) for item in experiment.measurable_items}
    shared_ids = [id for id in then if id in now]
    changed = [
        (part, [id for id in shared_ids if then[id].content[index] != now[id][index]])
        for index, part in enumerate(PARTS)
    ]
    kinds = [
        ("of the baseline not asked now", [id for id in then if id not in now]),
        ("not in the baseline", [id for id in now if id not in then]),
        *((f"with another {part} than then", ids) for part, ids in changed),
    ]
    return [f"{several(len(ids), 'question')} {description}, the first {ids[0]!r}" for description, ids in kinds if ids]


def _describe_other_measures(measures: Sequence[SetMeasure], baseline: Baseline) -> list[str]:
    now = measure_hashes(measures)
    listed = [f"{name} is not measured now" for name in baseline.measures if name not in now]
    listed += [f"{name} was not measured then" for name in now if name not in baseline.measures]
    # What the baseline lacks is listed above.
    changed = [name for name in now if baseline.measures.get(name, now[name]) != now[name]]
    version = baseline.signature.get("Spolia", {}).get("version", "?")
    reason = "then: its code, its model or a prompt of it is another"
    origin = reason if version == __version__ else f"by Spolia {version}, which wrote it"
    return listed + [f"{name} is computed otherwise than {origin}" for name in changed]


TOLERANCE = 0.05


@dataclass(frozen=True)
class Gate(Value):
    """Comparison of a flow with its baseline: verdicts by measure, changed inputs, the questions that score differently
    (those that lost most first), and the next baseline. `idle` are steps that failed on every call, where that is not
    allowed: such a flow does not pass."""

    data: str
    flow: str
    n: int
    rule: GateRule
    verdicts: tuple[GateVerdict, ...]
    changes: tuple[tuple[str, str], ...]
    changed_questions: tuple[ChangedQuestion, ...]
    report: Report
    now: Baseline
    idle: tuple[str, ...] = ()

    moved = RenamedAttribute("changed_questions")

    @property
    def passed(self) -> bool:
        if self.idle:
            return False
        outcomes = {verdict.outcome for verdict in self.verdicts}
        return outcomes == {"not worse"} if self.rule == "not-worse" else "worse" not in outcomes

    @property
    def worse(self) -> tuple[ChangedQuestion, ...]:
        return tuple(question for question in self.changed_questions if question.worse)

    @property
    def causes(self) -> Mapping[Cause, int]:
        """Return how many questions score less by each cause, the most frequent cause first."""
        counts = {cause: sum(question.cause == cause for question in self.worse) for cause in CAUSES}
        return {cause: n for cause, n in sorted(counts.items(), key=lambda entry: -entry[1]) if n}

    @property
    def why(self) -> str:
        """Return what made questions worse, in one sentence; empty if no question is worse."""
        if not self.worse:
            return ""
        listed = ", ".join(f"{n} because {CAUSES[cause]}" for cause, n in self.causes.items())
        unknown = "" if self.changes else "; nothing that is recorded has changed, so the flow is not deterministic"
        return f"Of {several(self.n, 'question')} {len(self.worse)} score less: {listed}{unknown}."

    @property
    def sentence(self) -> str:
        outcome = "passes" if self.passed else "does not pass"
        caveat = f"; {self.report.flows[0].caveat}" if self.report.flows[0].caveat else ""
        questions_text = f"{self.data and f'{self.data}, '}{several(self.n, 'question')}"
        reason = f"{', '.join(self.idle)} never worked" if self.idle else f"{RULES[self.rule]}{caveat}"
        return f"{self.flow} {outcome} on {questions_text}: {reason}."

    def json(self) -> dict[str, Any]:
        plain = {name: getattr(self, name) for name in ("passed", "data", "flow", "n", "rule", "why")}
        return plain | {
            "verdicts": [verdict.json() for verdict in self.verdicts],
            "changes": [{"kind": kind, "change": text} for kind, text in self.changes],
            "causes": dict(self.causes),
            "questions": [question.json() for question in self.changed_questions],
            "degraded": count_reasons(self.report.flows[0].steps),
            "never_worked": list(self.report.flows[0].never_worked),
            "warnings": list(self.report.warnings),
        }


@renamed_arguments(told="on_progress", also="previous")
def record_baseline(
    experiment: Experiment,
    *,
    run: Run | None = None,
    path: str | Path | None = None,
    on_progress: QuestionCallback = lambda flow, done, total: None,
    previous: Baseline | None = None,
    usage_log: UsageLog | None = None,
) -> tuple[Report, Baseline]:
    """Run an experiment with one flow, and make a baseline of it. It also records the documents of `previous`, with
    which it will be compared. Without a `usage_log` nothing is noted: comparing a flow with itself chooses nothing."""
    if len(experiment.flows) != 1:
        raise DataError(f"A baseline is of one flow; here are {len(experiment.flows)}. Name one.")
    ((name, flow),) = experiment.flows
    run = run if run is not None else Run()
    with run:
        searched_groups = SearchedGroups.from_flow(flow)
        if previous is not None:
            refuse_other_corpus(previous, searched_groups)
        report = experiment.run(
            run=run, path=path, usage_log=usage_log if usage_log is not None else UsageLog(), on_progress=on_progress
        )
        places = report.table.places
        cells = ((item, report.table.cell(0, index)) for index, item in enumerate(report.items))
        questions = tuple(BaselineQuestion.from_cell(item, cell, places, searched_groups.names) for item, cell in cells)
        names = {document for question in questions for document in question.documents}
        documents = searched_groups.select_documents(names, previous.documents if previous is not None else {})
        signed = compute_signature(flow, searched_groups, run)
        return report, Baseline(
            experiment.data, name, measure_hashes(experiment.measures), signed, documents, questions
        )


recorded = record_baseline  # its former name, which goes with the next minor version


def refuse_idle(report: Report, degraded: str) -> None:
    """Raise `NeverWorked` if a baseline would be of a flow with a step that failed on every call."""
    evaluation = report.flows[0]
    if evaluation.never_worked and degraded == "stop":
        raise NeverWorked(
            f"{evaluation.caveat}: a baseline would be of a flow without that step, and is not written. Correct the "
            "cause, or leave the step out. To write it as it is, write --degraded ok (in Python degraded='ok').",
            evaluation.never_worked,
            count_reasons(evaluation.steps),
        )


@renamed_arguments(told="on_progress")
def gate(
    experiment: Experiment,
    baseline: Baseline | str | Path,
    *,
    tolerance: float = TOLERANCE,
    tolerances: Mapping[str, float] | None = None,
    rule: GateRule = "not-worse",
    run: Run | None = None,
    path: str | Path | None = None,
    on_progress: QuestionCallback = lambda flow, done, total: None,
) -> Gate:
    """Ask a flow the questions of a baseline, and report whether it has become worse, where, and what has changed.

    Args:
        experiment: one flow with the questions and measures of the baseline (`Baseline.select_items`).
        tolerance: how much worse a measure may be: 0.05 is 5 points of 100 where scores lie between 0 and 1, and a
            twentieth of what it was elsewhere.
        tolerances: other ones for some measures, as they are written.
        rule: `not-worse` passes where every measure is shown to be not worse, `worse` where none is shown to be worse.
        run, path, on_progress: as for `Experiment.run`.

    Raises:
        DataError: the two cannot be compared, and why: other questions, measures, another corpus.
    """
    stored = baseline if isinstance(baseline, Baseline) else Baseline.read(baseline)
    own_tolerances = dict(tolerances or {})
    refuse_incomparable(experiment, stored, rule, tolerance, own_tolerances)
    report, now = record_baseline(experiment, run=run, path=path, on_progress=on_progress, previous=stored)
    was, is_ = stored.by_item, now.by_item
    estimates = [
        Estimates(measure, [[side[item.id].seen.get(str(measure)) for item in report.items] for side in (was, is_)], 0)
        for measure in experiment.measures
    ]
    measure_tolerances = [own_tolerances.get(str(measure), tolerance) for measure in experiment.measures]
    # Others have no score for a single question.
    mean_measures = [str(measure) for measure in experiment.measures if isinstance(measure, Measure)]
    return Gate(
        experiment.data,
        now.flow,
        len(report.items),
        rule,
        judge_measures(estimates, measure_tolerances),
        find_changes(stored, now),
        find_changed_questions(report.items, mean_measures, stored, now),
        report,
        now,
        report.flows[0].never_worked if experiment.degraded == "stop" else (),
    )
