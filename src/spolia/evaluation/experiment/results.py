"""Results of an experiment: scores of each flow, and the report."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from spolia.core.deprecation import RenamedAttribute
from spolia.core.plurals import several, were
from spolia.core.views import render_view
from spolia.errors import DataError
from spolia.evaluation.data.dataset import count_parts
from spolia.evaluation.experiment.comparison import (
    Comparison,
    ComparisonPlan,
    Estimates,
    Slice,
    compare_flows,
    compare_slices,
    explain_missing_slices,
)
from spolia.evaluation.experiment.flows import Flow, walk_parts
from spolia.evaluation.experiment.score_store import NO_ANSWER, WITHOUT_GOLD
from spolia.evaluation.experiment.score_table import ScoreTable
from spolia.evaluation.measures.measure import Measurement, SetMeasure
from spolia.evaluation.statistics.interval import Interval
from spolia.run.lane import StepCalls, count_reasons
from spolia.types import Failure, Item, Usage, Value

if TYPE_CHECKING:
    from spolia.evaluation.experiment.score_store import Columns


@dataclass(frozen=True)
class Latency(Value):
    """Times of questions. A result that one process computed once for several flows counts for each.

    `setup_s` is for opening stores, building groups and the first question, which loads models; `p50_s` and `p95_s` are
    of the other `n`. Of `cached` questions another process computed a step, so only the rest was timed: `ran_p50_s` and
    `ran_p95_s` are lower bounds. `at_once` questions were asked at the same time.
    """

    setup_s: float = 0.0
    p50_s: float | None = None
    p95_s: float | None = None
    n: int = 0
    cached: int = 0
    at_once: int = 1
    ran_p50_s: float | None = None
    ran_p95_s: float | None = None

    @classmethod
    def from_answers(cls, answers: "Columns", at_once: int) -> "Latency":
        is_later = np.isnan(answers["opening"])
        first, cached = answers[~is_later], answers["cached"] & is_later
        timed_s, ran = (sorted(answers["seconds"][rows].tolist()) for rows in (is_later & ~cached, cached))
        p50, p95, ran_p50, ran_p95 = (
            # The nearest-rank percentile, in whole numbers so that rounding cannot move it.
            sample[-(-len(sample) * share // 100) - 1] if sample else None
            for sample in (timed_s, ran)
            for share in (50, 95)
        )
        setup_s = float((first["opening"] + first["seconds"]).max(initial=0.0))
        return cls(setup_s, p50, p95, len(timed_s), len(ran), at_once, ran_p50, ran_p95)


@dataclass(frozen=True)
class Evaluation(Value):
    """Scores of one flow: by measure its number and its interval, None where no question is determined.

    `failures` are the questions on which the flow failed, which score 0. `usage` is what the flow needs, results from a
    cache included, `spent` what it really spent, `judging` what judges spent on it. On `degraded` questions a step was
    out of order. `names` are those of the equal flows that `flow` names together.
    """

    flow: str
    notation: str
    data: str
    n: int
    measured: tuple[Measurement, ...]
    intervals: tuple[Interval | None, ...]
    failures: tuple[tuple[str, Failure], ...] = ()
    without_gold: int = 0
    usage: Usage = field(default=Usage())
    spent: Usage = field(default=Usage())
    judging: Usage = field(default=Usage())
    latency: Latency = field(default=Latency())
    seconds: float = 0.0
    steps: tuple[StepCalls, ...] = ()
    degraded: int = 0
    names: tuple[str, ...] = ()

    def interval(self, measure: str) -> Interval | None:
        """Return the number of a measure, by its notation, with its interval; None where no question is determined."""
        names = [measurement.measure for measurement in self.measured]
        if measure not in names:
            raise DataError(f"{measure!r} was not measured. Measured: {', '.join(names)}.")
        return self.intervals[names.index(measure)]

    @property
    def never_worked(self) -> tuple[str, ...]:
        return tuple(step.step for step in self.steps if step.never_worked)

    @property
    def caveat(self) -> str:
        """Return what a verdict on the flow must mention; empty where nothing was out of order."""
        if self.never_worked:
            return f"{', '.join(self.never_worked)} of {self.flow} never worked"
        return f"{self.degraded:,} of {self.n:,} results of {self.flow} are degraded" if self.degraded else ""

    def json(self) -> dict[str, Any]:
        """Return the evaluation as plain data, means in 0 to 1."""
        nothing = {"mean": None, "low": None, "high": None, "n": 0}
        measures = {
            measurement.measure: (interval.json() if interval is not None else nothing)
            | {"undetermined": measurement.undetermined}
            for measurement, interval in zip(self.measured, self.intervals, strict=True)
        }
        plain = {"flow": self.flow, "data": self.data, "n": self.n, "measures": measures, "usage": asdict(self.usage)}
        plain |= {"seconds": self.seconds, "failures": len(self.failures), "without_gold": self.without_gold}
        plain |= {name: asdict(getattr(self, name)) for name in ("latency", "spent", "judging")}
        plain |= {"degraded": count_reasons(self.steps), "never_worked": list(self.never_worked)}
        return plain | {"notation": self.notation}


@dataclass(frozen=True)
class Report(Value):
    """Report of an experiment: what each flow scored, how the flows compare, and the same by type or metadata.

    `items` are the questions asked; measures in `units` are reported times 100. `tuned_count` of the questions chose
    one of the `tuned_flows` or trained a part of a flow, `look_count` says how often they were looked at before
    (`UsageLog`).
    `curves` has by measure and flow the points of the curve under which the number lies.
    """

    data: str
    items: tuple[Item, ...]
    without_gold: int
    flows: tuple[Evaluation, ...]
    comparisons: tuple[Comparison, ...]
    slices: tuple[Slice, ...]
    parts: tuple[tuple[str, int], ...]
    tuned_count: int
    correction: str
    units: frozenset[str]
    table: ScoreTable = field(compare=False, repr=False)
    look_count: int = 0
    primary: str = ""
    against: str = ""
    notes: tuple[str, ...] = ()
    tuned_flows: tuple[str, ...] = ()
    curves: tuple[tuple[str, str, tuple[tuple[float, float], ...]], ...] = field(default=(), repr=False)

    tuned = RenamedAttribute("tuned_count")
    looked = RenamedAttribute("look_count")
    over = RenamedAttribute("compare")

    @property
    def n(self) -> int:
        return len(self.items)

    def flow(self, name: str) -> Evaluation:
        """Return the scores of a flow by its name; `DataError` for an unknown name."""
        by_name = {name: evaluation for evaluation in self.flows for name in (*evaluation.names, evaluation.flow)}
        if name not in by_name:
            raise DataError(f"No flow is called {name!r}. Write one of: {', '.join(by_name)}.")
        return by_name[name]

    def compare(self, ours: str, theirs: str, measure: str) -> Comparison:
        """Return the comparison of two flows on a measure; DataError if no question is determined for both."""
        for name in (ours, theirs):
            self.flow(name).interval(measure)
        ours, theirs = self.flow(ours).flow, self.flow(theirs).flow
        if ours == theirs:
            raise DataError(f"{ours} is one flow, which cannot be compared with itself. Name another one.")
        for comparison in self.comparisons:
            if {comparison.better, comparison.other} == {ours, theirs} and comparison.measure == measure:
                return comparison
        if self.primary not in ("", measure) or self.against not in ("", ours, theirs):
            limits = f"{self.primary or 'all measures'}, {f'against {self.against}' if self.against else 'all flows'}"
            raise DataError(f"{ours} and {theirs} were not compared on {measure}, but on: {limits}.")
        raise DataError(f"{ours} and {theirs} cannot be compared on {measure}: no question is determined for both.")

    @property
    def warnings(self) -> tuple[str, ...]:
        """Return what a reader must know before the numbers."""
        texts = []
        if self.tuned_count:
            flows = f" ({', '.join(self.tuned_flows)})" if self.tuned_flows else ""
            texts.append(
                f"{self.tuned_count} of {several(self.n, 'question')} {were(self.n)} used to tune or choose a "
                f"flow{flows}, so their scores are too good."
            )
        for evaluation in self.flows:
            if evaluation.failures:
                texts.append(failure_warning(evaluation.flow, evaluation.failures, evaluation.n))
            for step in evaluation.steps:
                if step.reasons:
                    reason, n = step.reasons[0]
                    label = f"{evaluation.flow}: {step.step}{' never worked' * step.never_worked}"
                    failed = f"{step.failed:,}" if step.failed else "none"
                    calls = f"{failed} of {several(step.trials, 'call')} failed"
                    other_count = sum(n for _, n in step.reasons[1:])
                    suffix = f"; {several(other_count, 'time')} something else" if other_count else ""
                    texts.append(f"{label}, {calls}; {several(n, 'time')}: {reason.rstrip('.')}{suffix}")
            texts += [
                f"{evaluation.flow}: {measured.measure} is undetermined for {measured.undetermined} of "
                f"{several(measured.n + measured.undetermined, 'question')}, left out"
                for measured in evaluation.measured
                if measured.undetermined
            ]
        texts += [
            f"{name}: {several(n, 'question')} met a server that was down or busy; the same experiment asks again"
            for name, n in zip(self.table.flows, self.table.interrupted.sum(axis=1).tolist(), strict=True)
            if n
        ]
        if self.without_gold:
            count_text = several(self.without_gold, "question")
            texts.append(f"{count_text} without gold {were(self.without_gold)} left out.")
        lacking: dict[int, list[str]] = {}
        for measured in self.flows[0].measured:
            lacking.setdefault(measured.without_gold, []).append(measured.measure)
        texts += [
            f"{', '.join(measures)}: {n} of {several(self.n, 'question')} {'has' if n == 1 else 'have'} no gold for "
            f"{'it' if len(measures) == 1 else 'them'}."
            for n, measures in lacking.items()
            if n
        ]
        return (*texts, *self.notes, *self.table.notes)

    def is_partial(self, degraded: str = "stop") -> bool:
        """Return whether questions failed or, unless `degraded` is `ok`, a step failed on every call."""
        return any(evaluation.failures or (evaluation.never_worked and degraded != "ok") for evaluation in self.flows)

    @property
    def about(self) -> str:
        """Return which questions these are, in one line."""
        parts = dict(self.parts)
        part_names = next(iter(parts)) if len(parts) == 1 else ", ".join(f"{part} {n}" for part, n in parts.items())
        part_text = f"part{'' if len(parts) == 1 else 's'} {part_names}"
        times = "" if not self.look_count else f", looked at {several(self.look_count, 'time')} before"
        return f"{self.data and f'{self.data}, '}{several(self.n, 'question')} ({part_text}{times})"

    def __str__(self) -> str:
        return render_view(self, "text")

    def _repr_html_(self) -> str:
        """Return scores and verdicts as HTML, which a notebook shows."""
        return render_view(self, "html")

    def json(self) -> dict[str, Any]:
        """Return the report as plain data, scores in 0 to 1."""
        plain: dict[str, Any] = {"data": self.data, "n": self.n, "without_gold": self.without_gold}
        plain |= {"parts": dict(self.parts), "tuned_on": self.tuned_count, "looked_at_before": self.look_count}
        plain |= {"correction": self.correction, "primary": self.primary, "against": self.against}
        plain |= {name: [entry.json() for entry in getattr(self, name)] for name in ("flows", "comparisons", "slices")}
        return plain | {"warnings": list(self.warnings)}


def failure_warning(flow: str, failures: Sequence[tuple[str, Failure]], n: int) -> str:
    """Say on how many of `n` questions a flow failed, and how on the first of them.

    >>> failure_warning("dense", [("q2", Failure("ValueError", "no vector."))], 60)
    'dense: 1 of 60 questions failed and score 0; the first, q2: ValueError: no vector.'
    """
    id, failure = failures[0]
    failed = f"{len(failures)} of {several(n, 'question')} failed and score 0"
    return f"{flow}: {failed}; the first, {id}: {failure.kind}: {failure.message}"


class ExperimentPlan(ComparisonPlan, Protocol):
    """Experiment as its report sees it: what it asks and measures."""

    @property
    def flows(self) -> tuple[tuple[str, Flow], ...]: ...
    @property
    def items(self) -> tuple[Item, ...]: ...
    @property
    def measures(self) -> tuple[SetMeasure, ...]: ...
    @property
    def data(self) -> str: ...
    @property
    def names(self) -> tuple[tuple[str, ...], ...]: ...
    @property
    def tuned(self) -> tuple[str, ...]: ...


def build_report(experiment: ExperimentPlan, table: ScoreTable, threads: int) -> Report:
    """Build the report of an experiment whose scores are all in the table."""
    estimates = Estimates.from_table(table, experiment.seed)
    without_gold = len(experiment.items) - len(table.items)
    flows = []
    for index, (name, flow) in enumerate(experiment.flows):
        answers = table.answers[index]
        usage, paid_usage, judging = (table.usage(kind, index) for kind in ("usage", "spent", "judging"))
        measured = tuple(_measure_flow(table, estimate, index, column) for column, estimate in enumerate(estimates))
        intervals = tuple(estimate.interval(index) for estimate in estimates)
        latency = Latency.from_answers(answers, threads if flow.waiting else 1)
        failed = (table.case(index, question) for question in table.failed[index].nonzero()[0].tolist())
        failures = tuple((case.item.id, case.result) for case in failed if isinstance(case.result, Failure))
        fields = (name, repr(flow), experiment.data, len(table.items), measured, intervals, failures, without_gold)
        took = usage, paid_usage, judging, latency, float(answers["seconds"].sum())
        names = experiment.names[index]
        flows.append(Evaluation(*fields, *took, table.steps(index), table.count_degraded(index), names))
    caveats = {evaluation.flow: evaluation.caveat for evaluation in flows}

    def add_caveats(comparisons: Sequence[Comparison]) -> tuple[Comparison, ...]:
        return tuple(
            comparison.but(caveat="; ".join(filter(None, (caveats[comparison.better], caveats[comparison.other]))))
            for comparison in comparisons
        )

    return Report(
        experiment.data,
        table.items,
        without_gold,
        tuple(flows),
        add_caveats(
            compare_flows(table.flows, estimates, experiment.correction, experiment.primary, experiment.against)
        ),
        tuple(
            slice_result.but(comparisons=add_caveats(slice_result.comparisons))
            for slice_result in compare_slices(experiment, table)
        ),
        tuple(count_parts(item.id for item in table.items).items()),
        len(experiment.tuned),
        experiment.correction,
        frozenset(str(estimate.measure) for estimate in estimates if estimate.is_share),
        table,
        primary=experiment.primary,
        against=experiment.against,
        notes=(*explain_missing_slices(experiment), *_warn_of_short_rankings(experiment, table)),
        curves=tuple(_risk_curves(table.flows, estimates)),
    )


def _warn_of_short_rankings(experiment: ExperimentPlan, table: ScoreTable) -> Iterator[str]:
    """Warn of each flow whose `top_k` cuts it off before a measure's k: its R@10 is then R@3."""
    for name, flow in experiment.flows:
        row = table.flows.index(name)
        longest = int(table.answers["found"][row].max(initial=0))
        deeper = [str(measure) for measure in experiment.measures if (getattr(measure, "k", None) or 0) > longest]
        if deeper and longest in {getattr(part, "top_k", None) for part in walk_parts(flow)}:
            yield (
                f"{name} returns {several(longest, 'passage')}, so its {', '.join(deeper)} "
                f"{'equals' if len(deeper) == 1 else 'equal'} those at {longest}."
            )


def _risk_curves(
    names: Sequence[str], estimates: Sequence[Estimates]
) -> Iterator[tuple[str, str, tuple[tuple[float, float], ...]]]:
    for estimate in estimates:
        for name, observations in zip(names, estimate.columns, strict=True):
            if points := estimate.measure.curve([row for row in observations if row is not None]):
                yield str(estimate.measure), name, tuple(points)


def _measure_flow(table: ScoreTable, estimates: Estimates, flow: int, measure: int) -> Measurement:
    observations = estimates.columns[flow]
    determined = [observation for observation in observations if observation is not None]
    states = table.states[flow, :, measure]
    applies, rankings = int((states != WITHOUT_GOLD).sum()), int((states == NO_ANSWER).sum())
    failed = int((table.failed[flow] & (table.widths[flow, :, measure] > 0)).sum())
    value = estimates.measure.total(determined) if determined else None
    counts = len(determined), failed, applies - rankings - len(determined), len(observations) - applies
    return Measurement(str(estimates.measure), value, *counts, tuple(observations))
