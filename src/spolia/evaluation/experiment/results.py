"""What an experiment says of one flow."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from spolia.core.plurals import several, were
from spolia.errors import DataError
from spolia.evaluation import report
from spolia.evaluation.data.dataset import counted
from spolia.evaluation.experiment.comparison import Comparison, Estimates, Slice, compared, sliced, unsliced
from spolia.evaluation.experiment.flows import inside
from spolia.evaluation.experiment.score_store import NO_ANSWER, WITHOUT_GOLD
from spolia.evaluation.experiment.score_table import ScoreTable
from spolia.evaluation.measures.measure import Measured
from spolia.evaluation.statistics.interval import Interval
from spolia.run.lane import StepCalls, counted_reasons
from spolia.types import Failure, Item, Usage, Value

if TYPE_CHECKING:
    from spolia.evaluation.experiment.experiment import Experiment
    from spolia.evaluation.experiment.score_store import Columns


@dataclass(frozen=True)
class Latency(Value):
    """How long questions took. A result that one process computed once for several flows counts for each.

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
    def of(cls, answers: "Columns", at_once: int) -> "Latency":
        others = np.isnan(answers["opening"])
        first, cached = answers[~others], answers["cached"] & others
        taken, ran = (sorted(answers["seconds"][rows].tolist()) for rows in (others & ~cached, cached))
        p50, p95, ran_p50, ran_p95 = (
            some[-(-len(some) * share // 100) - 1] if some else None for some in (taken, ran) for share in (50, 95)
        )
        setup_s = float((first["opening"] + first["seconds"]).max(initial=0.0))
        return cls(setup_s, p50, p95, len(taken), len(ran), at_once, ran_p50, ran_p95)


@dataclass(frozen=True)
class Evaluation(Value):
    """What a flow scored: by measure its number and its interval, None where no question is determined.

    `failures` are the questions on which the flow failed, which score 0. `usage` is what the flow needs, results from a
    cache included, `spent` what it really spent, `judging` what judges spent on it. On `degraded` questions a step was
    out of order. `names` are those of the equal flows that `flow` names together.
    """

    flow: str
    notation: str
    data: str
    n: int
    measured: tuple[Measured, ...]
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
        """The number of a measure, as it is written, with its interval; None where no question is determined."""
        names = [one.measure for one in self.measured]
        if measure not in names:
            raise DataError(f"{measure!r} was not measured. Measured: {', '.join(names)}.")
        return self.intervals[names.index(measure)]

    @property
    def never_worked(self) -> tuple[str, ...]:
        return tuple(one.step for one in self.steps if one.never_worked)

    @property
    def caveat(self) -> str:
        """What a verdict on the flow must say; empty where nothing was out of order."""
        if self.never_worked:
            return f"{', '.join(self.never_worked)} of {self.flow} never worked"
        return f"{self.degraded:,} of {self.n:,} results of {self.flow} are degraded" if self.degraded else ""

    def json(self) -> dict[str, Any]:
        """The report as plain data, means in 0 to 1."""
        nothing = {"mean": None, "low": None, "high": None, "n": 0}
        measures = {
            one.measure: (interval.json() if interval is not None else nothing) | {"undetermined": one.undetermined}
            for one, interval in zip(self.measured, self.intervals, strict=True)
        }
        found = {"flow": self.flow, "data": self.data, "n": self.n, "measures": measures, "usage": asdict(self.usage)}
        found |= {"seconds": self.seconds, "failures": len(self.failures), "without_gold": self.without_gold}
        found |= {name: asdict(getattr(self, name)) for name in ("latency", "spent", "judging")}
        found |= {"degraded": counted_reasons(self.steps), "never_worked": list(self.never_worked)}
        return found | {"notation": self.notation}


@dataclass(frozen=True)
class Report(Value):
    """What came of an experiment: what each flow scored, how the flows compare, and the same by type or metadata.

    `items` are the questions asked; measures in `units` are reported times 100. `tuned` of the questions chose one of
    the `tuned_flows` or trained a part of a flow, `looked` says how often they were looked at before (`UsageLog`).
    `curves` has by measure and flow the points of the curve under which the number lies.
    """

    data: str
    items: tuple[Item, ...]
    without_gold: int
    flows: tuple[Evaluation, ...]
    comparisons: tuple[Comparison, ...]
    slices: tuple[Slice, ...]
    parts: tuple[tuple[str, int], ...]
    tuned: int
    correction: str
    units: frozenset[str]
    table: ScoreTable = field(compare=False, repr=False)
    looked: int = 0
    primary: str = ""
    against: str = ""
    notes: tuple[str, ...] = ()
    tuned_flows: tuple[str, ...] = ()
    curves: tuple[tuple[str, str, tuple[tuple[float, float], ...]], ...] = field(default=(), repr=False)

    @property
    def n(self) -> int:
        return len(self.items)

    def flow(self, name: str) -> Evaluation:
        """The scores of a flow by its name; `DataError` for an unknown name."""
        found = {name: one for one in self.flows for name in (*one.names, one.flow)}
        if name not in found:
            raise DataError(f"No flow is called {name!r}. Write one of: {', '.join(found)}.")
        return found[name]

    def over(self, ours: str, theirs: str, measure: str) -> Comparison:
        """Two flows compared on a measure; DataError if no question is determined for both."""
        for name in (ours, theirs):
            self.flow(name).interval(measure)
        ours, theirs = self.flow(ours).flow, self.flow(theirs).flow
        if ours == theirs:
            raise DataError(f"{ours} is one flow, which cannot be compared with itself. Name another one.")
        for one in self.comparisons:
            if {one.better, one.other} == {ours, theirs} and one.measure == measure:
                return one
        if self.primary not in ("", measure) or self.against not in ("", ours, theirs):
            limits = f"{self.primary or 'all measures'}, {f'against {self.against}' if self.against else 'all flows'}"
            raise DataError(f"{ours} and {theirs} were not compared on {measure}, but on: {limits}.")
        raise DataError(f"{ours} and {theirs} cannot be compared on {measure}: no question is determined for both.")

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a reader must know before the numbers."""
        found = []
        if self.tuned:
            flows = f" ({', '.join(self.tuned_flows)})" if self.tuned_flows else ""
            found.append(
                f"{self.tuned} of {several(self.n, 'question')} {were(self.n)} used to tune or choose a flow{flows}, "
                "so their scores are too good."
            )
        for one in self.flows:
            if one.failures:
                found.append(failure_warning(one.flow, one.failures, one.n))
            for step in one.steps:
                if step.reasons:
                    reason, n = step.reasons[0]
                    named = f"{one.flow}: {step.step}{' never worked' * step.never_worked}"
                    failed = f"{step.failed:,}" if step.failed else "none"
                    calls = f"{failed} of {several(step.trials, 'call')} failed"
                    others = sum(n for _, n in step.reasons[1:])
                    more = f"; {several(others, 'time')} something else" if others else ""
                    found.append(f"{named}, {calls}; {several(n, 'time')}: {reason.rstrip('.')}{more}")
            found += [
                f"{one.flow}: {measured.measure} is undetermined for {measured.undetermined} of "
                f"{several(measured.n + measured.undetermined, 'question')}, left out"
                for measured in one.measured
                if measured.undetermined
            ]
        found += [
            f"{name}: {several(n, 'question')} met a server that was down or busy; the same experiment asks again"
            for name, n in zip(self.table.flows, self.table.interrupted.sum(axis=1).tolist(), strict=True)
            if n
        ]
        if self.without_gold:
            left = several(self.without_gold, "question")
            found.append(f"{left} without gold {were(self.without_gold)} left out.")
        lacking: dict[int, list[str]] = {}
        for measured in self.flows[0].measured:
            lacking.setdefault(measured.without_gold, []).append(measured.measure)
        found += [
            f"{', '.join(measures)}: {n} of {several(self.n, 'question')} {'has' if n == 1 else 'have'} no gold for "
            f"{'it' if len(measures) == 1 else 'them'}."
            for n, measures in lacking.items()
            if n
        ]
        return (*found, *self.notes, *self.table.notes)

    def is_partial(self, degraded: str = "stop") -> bool:
        """Whether questions failed; or a step failed on every call, however few, unless that is `ok`."""
        return any(one.failures or (one.never_worked and degraded != "ok") for one in self.flows)

    @property
    def about(self) -> str:
        """Which questions, in one line."""
        parts = dict(self.parts)
        named = next(iter(parts)) if len(parts) == 1 else ", ".join(f"{part} {n}" for part, n in parts.items())
        which = f"part{'' if len(parts) == 1 else 's'} {named}"
        times = "" if not self.looked else f", looked at {several(self.looked, 'time')} before"
        return f"{self.data and f'{self.data}, '}{several(self.n, 'question')} ({which}{times})"

    def __str__(self) -> str:
        return report.tables.text(self)

    def _repr_html_(self) -> str:
        """Scores and verdicts, which a notebook shows."""
        return report.html.fragment(self)

    def json(self) -> dict[str, Any]:
        """Plain data, scores in 0 to 1."""
        found: dict[str, Any] = {"data": self.data, "n": self.n, "without_gold": self.without_gold}
        found |= {"parts": dict(self.parts), "tuned_on": self.tuned, "looked_at_before": self.looked}
        found |= {"correction": self.correction, "primary": self.primary, "against": self.against}
        found |= {name: [one.json() for one in getattr(self, name)] for name in ("flows", "comparisons", "slices")}
        return found | {"warnings": list(self.warnings)}


def failure_warning(flow: str, failures: Sequence[tuple[str, Failure]], n: int) -> str:
    """Say on how many of `n` questions a flow failed, and how on the first of them.

    >>> failure_warning("dense", [("q2", Failure("ValueError", "no vector."))], 60)
    'dense: 1 of 60 questions failed and score 0; the first, q2: ValueError: no vector.'
    """
    id, failure = failures[0]
    failed = f"{len(failures)} of {several(n, 'question')} failed and score 0"
    return f"{flow}: {failed}; the first, {id}: {failure.kind}: {failure.message}"


def reported(experiment: "Experiment", table: ScoreTable, threads: int) -> Report:
    """The report of an experiment of which all scores are there."""
    estimates = Estimates.of(table, experiment.seed)
    left = len(experiment.items) - len(table.items)
    flows = []
    for index, (name, flow) in enumerate(experiment.flows):
        answers = table.answers[index]
        usage, spent, judging = (table.usage(kind, index) for kind in ("usage", "spent", "judging"))
        measured = tuple(_measured(table, one, index, at) for at, one in enumerate(estimates))
        intervals = tuple(one.interval(index) for one in estimates)
        latency = Latency.of(answers, threads if flow.waiting else 1)
        failed = (table.case(index, question) for question in table.failed[index].nonzero()[0].tolist())
        failures = tuple((case.item.id, case.result) for case in failed if isinstance(case.result, Failure))
        given = (name, repr(flow), experiment.data, len(table.items), measured, intervals, failures, left)
        took = usage, spent, judging, latency, float(answers["seconds"].sum())
        names = experiment.names[index]
        flows.append(Evaluation(*given, *took, table.steps(index), table.degraded(index), names))
    caveats = {one.flow: one.caveat for one in flows}

    def told(comparisons: Sequence[Comparison]) -> tuple[Comparison, ...]:
        return tuple(
            one.but(caveat="; ".join(filter(None, (caveats[one.better], caveats[one.other])))) for one in comparisons
        )

    return Report(
        experiment.data,
        table.items,
        left,
        tuple(flows),
        told(compared(table.flows, estimates, experiment.correction, experiment.primary, experiment.against)),
        tuple(one.but(comparisons=told(one.comparisons)) for one in sliced(experiment, table)),
        tuple(counted(item.id for item in table.items).items()),
        len(experiment.tuned),
        experiment.correction,
        frozenset(str(one.measure) for one in estimates if one.unit),
        table,
        primary=experiment.primary,
        against=experiment.against,
        notes=(*unsliced(experiment), *_too_short(experiment, table)),
        curves=tuple(_curves(table.flows, estimates)),
    )


def _too_short(experiment: "Experiment", table: ScoreTable) -> Iterator[str]:
    """Of each flow that is cut off by its `top_k` before a measure's k: that R@10 is then R@3 for it."""
    for name, flow in experiment.flows:
        at = table.flows.index(name)
        longest = int(table.answers["found"][at].max(initial=0))
        deeper = [str(one) for one in experiment.measures if (getattr(one, "k", None) or 0) > longest]
        if deeper and longest in {getattr(one, "top_k", None) for one in inside(flow)}:
            yield (
                f"{name} returns {several(longest, 'passage')}, so its {', '.join(deeper)} "
                f"{'equals' if len(deeper) == 1 else 'equal'} those at {longest}."
            )


def _curves(
    names: Sequence[str], estimates: Sequence[Estimates]
) -> Iterator[tuple[str, str, tuple[tuple[float, float], ...]]]:
    for one in estimates:
        for name, seen in zip(names, one.columns, strict=True):
            if points := one.measure.curve([row for row in seen if row is not None]):
                yield str(one.measure), name, tuple(points)


def _measured(table: ScoreTable, estimates: Estimates, flow: int, measure: int) -> Measured:
    seen = estimates.columns[flow]
    known = [one for one in seen if one is not None]
    states = table.states[flow, :, measure]
    applies, rankings = int((states != WITHOUT_GOLD).sum()), int((states == NO_ANSWER).sum())
    failed = int((table.failed[flow] & (table.widths[flow, :, measure] > 0)).sum())
    value = estimates.measure.total(known) if known else None
    left = len(known), failed, applies - rankings - len(known), len(seen) - applies
    return Measured(str(estimates.measure), value, *left, tuple(seen))
