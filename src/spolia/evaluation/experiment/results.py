"""What an experiment says of one flow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import add
from typing import TYPE_CHECKING, Any

from spolia.errors import DataError
from spolia.evaluation.data.dataset import counted
from spolia.evaluation.experiment.comparison import Comparison, Estimates, compared
from spolia.evaluation.experiment.execution import too_short
from spolia.evaluation.experiment.gold_locations import GoldLocations
from spolia.evaluation.experiment.rows import QuestionRow
from spolia.evaluation.experiment.slices import Slice, sliced, unsliced
from spolia.evaluation.measures.measure import Measured
from spolia.evaluation.plurals import several, were
from spolia.evaluation.statistics.interval import Interval
from spolia.types import Failure, Item, Usage, Value

if TYPE_CHECKING:
    from spolia.evaluation.experiment.experiment import Experiment


@dataclass(frozen=True)
class Latency(Value):
    """How long questions took. Those answered from a cache tell nothing of that, and are left out.

    Args:
        setup_s: opening stores, building groups that were not there, and the first question, which loads models.
        p50_s: half of the other questions took at most so long; None where there is none.
        p95_s: and 95 of 100 at most so long.
        n: questions behind that.
        cached: left out, because a step's result came from the cache.
        at_once: how many questions were asked at the same time.
    """

    setup_s: float = 0.0
    p50_s: float | None = None
    p95_s: float | None = None
    n: int = 0
    cached: int = 0
    at_once: int = 1

    @classmethod
    def of(cls, rows: Sequence[QuestionRow], at_once: int) -> Latency:
        """The latency of the rows of a flow."""
        first = [row.opening + row.seconds for row in rows if row.opening is not None]
        others = [row for row in rows if row.opening is None]
        taken = sorted(row.seconds for row in others if not row.cached)
        p50, p95 = (taken[-(-len(taken) * share // 100) - 1] if taken else None for share in (50, 95))
        return cls(max(first, default=0.0), p50, p95, len(taken), len(others) - len(taken), at_once)

    def json(self) -> dict[str, Any]:
        """Plain data, seconds."""
        return {name: getattr(self, name) for name in type(self).__dataclass_fields__}


@dataclass(frozen=True)
class Evaluation(Value):
    """What a flow scored.

    Args:
        flow: what it is called.
        notation: how it is written.
        data: what the questions are called.
        measured: by measure, its number, and of how many questions it is made.
        intervals: by measure; None where no question is determined.
        failures: ids of the questions on which the flow failed, which score 0, with what happened.
        without_gold: how many questions were left out because no measure applies to them.
        n: questions that were asked.
        usage: what the flow needed, results from a cache included.
        spent: what it really spent.
        judging: what judges spent on it.
        latency: how long questions took.
        seconds: all questions together, one after the other.
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

    def interval(self, measure: str) -> Interval | None:
        """The number of a measure, as it is written, with its interval; None where no question is determined.

        Raises:
            DataError: it was not measured.
        """
        names = [one.measure for one in self.measured]
        if measure not in names:
            raise DataError(f"{measure!r} was not measured. Measured: {', '.join(names)}.")
        return self.intervals[names.index(measure)]

    def json(self) -> dict[str, Any]:
        """The report as plain data, means in 0 to 1."""
        nothing = {"mean": None, "low": None, "high": None, "n": 0}
        measures = {
            one.measure: (interval.json() if interval is not None else nothing) | {"undetermined": one.undetermined}
            for one, interval in zip(self.measured, self.intervals, strict=True)
        }
        usage = {name: getattr(self, name) for name in ("usage", "spent", "judging")}
        return {
            "flow": self.flow,
            "data": self.data,
            "n": self.n,
            "measures": measures,
            "usage": _plain(usage.pop("usage")),
            "seconds": self.seconds,
            "failures": len(self.failures),
            "without_gold": self.without_gold,
            "latency": self.latency.json(),
            **{name: _plain(one) for name, one in usage.items()},
            "notation": self.notation,
        }


def _plain(usage: Usage) -> dict[str, Any]:
    return {name: getattr(usage, name) for name in Usage.__dataclass_fields__}


RowsOf = Mapping[tuple[str, str], QuestionRow]


@dataclass(frozen=True)
class Report(Value):
    """What came of an experiment.

    Args:
        data: what the questions are called.
        items: those that were asked, with their gold as it is written.
        without_gold: how many were left out because no measure applies to them.
        flows: what each scored.
        comparisons: all pairs of flows on all measures.
        slices: the same by type, or by metadata.
        parts: how many questions are of each part of the data set.
        tuned: how many of them a flow was tuned on or chosen by; more than 0 only where that was asked for.
        correction: of the p-values.
        units: measures that are told times 100.
        rows: by flow and question, what the flow made of it.
        looked: how often these questions were looked at before; see `Looks`.
        places: where their gold stands.
        notes: what else a reader must know, such as why there are no slices.
        curves: by measure and flow, the points of the curve under which the number lies.
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
    rows: RowsOf = field(compare=False, repr=False)
    looked: int = 0
    places: GoldLocations = field(default=GoldLocations(), compare=False, repr=False)
    notes: tuple[str, ...] = ()
    curves: tuple[tuple[str, str, tuple[tuple[float, float], ...]], ...] = field(default=(), repr=False)

    @property
    def n(self) -> int:
        return len(self.items)

    def flow(self, name: str) -> Evaluation:
        """What the flow of this name scored; `DataError` where there is none."""
        found = {one.flow: one for one in self.flows}
        if name not in found:
            raise DataError(f"No flow is called {name!r}. Write one of: {', '.join(found)}.")
        return found[name]

    def over(self, ours: str, theirs: str, measure: str) -> Comparison:
        """The comparison of two flows on a measure, whichever is ahead.

        Raises:
            DataError: there is no such flow or measure, or no question is determined for both.
        """
        for name in (ours, theirs):
            self.flow(name).interval(measure)
        for one in self.comparisons:
            if {one.better, one.other} == {ours, theirs} and one.measure == measure:
                return one
        raise DataError(f"{ours} and {theirs} cannot be compared on {measure}: no question is determined for both.")

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a reader must know before the numbers."""
        found = []
        if self.tuned:
            found.append(
                f"{self.tuned} of {several(self.n, 'question')} {were(self.n)} tuned on, or flows chosen by them: what "
                "they say is too good."
            )
        for one in self.flows:
            if one.failures:
                id, failure = one.failures[0]
                of = several(one.n, "question")
                found.append(
                    f"{one.flow}: {len(one.failures)} of {of} failed and score 0; the first, {id}: "
                    f"{failure.kind}: {failure.message}"
                )
            found += [
                f"{one.flow}: {measured.measure} is undetermined for {measured.undetermined} of "
                f"{several(measured.n + measured.undetermined, 'question')}, left out"
                for measured in one.measured
                if measured.undetermined
            ]
        found += [
            f"{name}: {several(n, 'question')} met a server that was down or busy; the same experiment asks again"
            for name, n in Counter(flow for (flow, _), row in self.rows.items() if row.interrupted).items()
        ]
        if self.without_gold:
            left = several(self.without_gold, "question")
            found.append(f"{left} without gold {were(self.without_gold)} left out.")
        return (*found, *self.notes)

    @property
    def about(self) -> str:
        """Which questions, in one line."""
        parts = dict(self.parts)
        which = (
            f"part {next(iter(parts))}"
            if len(parts) == 1
            else "parts " + ", ".join(f"{k} {v}" for k, v in parts.items())
        )
        times = "" if not self.looked else f", looked at {several(self.looked, 'time')} before"
        return f"{self.data or 'questions'}, {several(self.n, 'question')} ({which}{times})"

    def json(self) -> dict[str, Any]:
        """Plain data, scores in 0 to 1."""
        return {
            "data": self.data,
            "n": self.n,
            "without_gold": self.without_gold,
            "parts": dict(self.parts),
            "tuned_on": self.tuned,
            "looked_at_before": self.looked,
            "correction": self.correction,
            "flows": [one.json() for one in self.flows],
            "comparisons": [one.json() for one in self.comparisons],
            "slices": [one.json() for one in self.slices],
            "warnings": list(self.warnings),
        }


def reported(experiment: Experiment, rows: RowsOf, threads: int) -> Report:
    """The report of an experiment of which all rows are there."""
    items, names = experiment.asked, [name for name, _ in experiment.flows]
    estimates = [Estimates.of(one, names, items, rows, experiment.seed) for one in experiment.measures]
    flows = []
    for index, (name, flow) in enumerate(experiment.flows):
        mine = [rows[name, item.id] for item in items]
        latency = Latency.of(mine, threads if flow.waiting else 1)
        flows.append(
            Evaluation(
                name,
                repr(flow),
                experiment.data,
                len(items),
                tuple(_measured(one, index, mine) for one in estimates),
                tuple(one.interval(index) for one in estimates),
                tuple((row.item, row.failure) for row in mine if row.failure is not None),
                len(experiment.items) - len(items),
                **{kind: _sum(getattr(row, kind) for row in mine) for kind in ("usage", "spent", "judging")},
                latency=latency,
                seconds=sum(row.seconds for row in mine),
            )
        )
    return Report(
        experiment.data,
        items,
        len(experiment.items) - len(items),
        tuple(flows),
        compared(names, estimates, experiment.correction),
        sliced(experiment, rows),
        tuple(counted(item.id for item in items).items()),
        len(experiment.tuned),
        experiment.correction,
        frozenset(str(one.measure) for one in estimates if one.unit),
        rows,
        notes=(*unsliced(experiment), *too_short(experiment, rows)),
        curves=tuple(_curves(names, estimates)),
    )


def _curves(
    names: Sequence[str], estimates: Sequence[Estimates]
) -> Iterator[tuple[str, str, tuple[tuple[float, float], ...]]]:
    for one in estimates:
        for name, seen in zip(names, one.columns, strict=True):
            if points := one.measure.curve([row for row in seen if row is not None]):
                yield str(one.measure), name, tuple(points)


def _measured(estimates: Estimates, flow: int, rows: Sequence[QuestionRow]) -> Measured:
    written, seen = str(estimates.measure), estimates.columns[flow]
    known = [one for one in seen if one is not None]
    applies = sum(written in dict(row.seen) for row in rows)
    failed = sum(row.failure is not None and one is not None for row, one in zip(rows, seen, strict=True))
    value = estimates.measure.total(known) if known else None
    return Measured(written, value, len(known), failed, applies - len(known), len(rows) - applies, tuple(seen))


def _sum(usages: Any) -> Usage:
    return reduce(add, usages, Usage())
