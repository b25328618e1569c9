"""Comparisons of flows that were asked the same questions: intervals, tests and slices of one measure."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import nan
from typing import Any, Protocol, Self

from spolia.core.deprecation import RenamedAttribute
from spolia.evaluation.experiment.score_table import ScoreTable
from spolia.evaluation.measures.measure import CostMeasure, Measure, Observation, SetMeasure
from spolia.evaluation.statistics.interval import Interval
from spolia.evaluation.statistics.sample import Sample, Totals
from spolia.evaluation.statistics.significance import CORRECTIONS
from spolia.types import Item, Value, lazy_property

MeasureColumn = Sequence[Observation | None]


class ComparisonPlan(Protocol):
    """Experiment as its comparisons see it: which flows are compared on what, and how."""

    @property
    def by(self) -> tuple[str, ...]: ...
    @property
    def correction(self) -> str: ...
    @property
    def primary(self) -> str: ...
    @property
    def against(self) -> str: ...
    @property
    def seed(self) -> int: ...
    @property
    def measurable_items(self) -> tuple[Item, ...]: ...


class Estimates:
    """Intervals and tests of a measure; undetermined questions are left out for each flow and for each pair with it."""

    def __init__(self, measure: SetMeasure, columns: Sequence[MeasureColumn], seed: int) -> None:
        self.measure, self.columns, self.seed = measure, columns, seed
        self.single = isinstance(measure, Measure | CostMeasure)

    @classmethod
    def from_table(cls, table: ScoreTable, seed: int, questions: Sequence[int] | None = None) -> list[Self]:
        """Build estimates for every measure of a table, over some of its questions by position, or all."""
        flows = range(len(table.flows))
        return [
            cls(measure, [table.observations(flow, column, questions) for flow in flows], seed)
            for column, measure in enumerate(table.measures)
        ]

    def interval(self, flow: int) -> Interval | None:
        """Return the number of a flow; None if no question is determined, or none of those defines it. A cost that is
        the same for every question has no interval."""
        observations = [observation for observation in self.columns[flow] if observation is not None]
        # All samples of a constant cost are equal, so no interval can be estimated.
        if isinstance(self.measure, CostMeasure) and len(observations) > 1 and len(set(observations)) == 1:
            (cost,) = observations[0]
            return Interval(cost, cost, cost, len(observations))
        return self._statistics.interval(flow) if self._has_common_question(flow) else None

    def difference(self, ours: int, theirs: int) -> tuple[Interval, float] | None:
        """Return by how much one flow has more than another, with the p-value; None if one of them has no number."""
        if not self._has_common_question(ours, theirs):
            return None
        if (difference := self._statistics.difference(ours, theirs)) is None:
            return None
        return difference, self._statistics.p(ours, theirs)

    @property
    def is_share(self) -> bool:
        """Return whether scores lie between 0 and 1, and are reported times 100."""
        return self.measure.range == (0.0, 1.0)

    def _has_common_question(self, *flows: int) -> bool:
        columns = [self.columns[flow] for flow in flows]
        return any(None not in observations for observations in zip(*columns, strict=True))

    @lazy_property
    def _statistics(self) -> Sample | Totals:
        """Return statistics of all flows together, so that one set of draws serves them all."""
        if self.single:
            table = [
                [nan if observation is None else observation[0] for observation in row]
                for row in zip(*self.columns, strict=True)
            ]
            return Sample(table, range=self.measure.range, seed=self.seed)
        options = {name: getattr(self.measure, name) for name in ("additive", "range")}
        return Totals(self.columns, self.measure.total, **options, seed=self.seed)


ALPHA = 0.05
NAMES = {"holm": "Holm", "bh": "Benjamini and Hochberg", "none": "no correction"}


@dataclass(frozen=True)
class Comparison(Value):
    """Difference of two flows on one measure, over the questions that both were asked.

    `interval` is never negative in the mean, whether the measure is good when high or when low. `adjusted` is the
    p-value of the paired permutation test, corrected for all comparisons; the `caveat` says what was out of order in
    the flows.
    """

    measure: str
    better: str
    other: str
    interval: Interval
    p: float
    adjusted: float
    correction: str
    comparison_count: int
    lower_is_better: bool
    is_share: bool

    of = RenamedAttribute("comparison_count")
    unit = RenamedAttribute("is_share")
    caveat: str = ""

    @property
    def shown(self) -> bool:
        """Return whether the interval and the corrected test both exclude zero."""
        return self.interval.excludes_zero and self.adjusted < ALPHA

    @property
    def aside(self) -> str:
        """Return the caveat, as it follows a verdict."""
        return f"; {self.caveat}" if self.caveat else ""

    @property
    def verdict(self) -> str:
        """Return the result in words; two flows are never called equal."""
        difference = format_interval(self.interval, self.is_share)
        if self.shown:
            less = " (lower is better)" if self.lower_is_better else ""
            return f"{self.better} beats {self.other} on {self.measure} by {difference}{less}{self.aside}"
        p_text = f"; p = {self.p:.2g}" if self.interval.excludes_zero else ""
        if p_text and self.p < ALPHA:
            correction_text = f"{self.comparison_count} comparisons ({NAMES[self.correction]})"
            p_text += f", corrected for {correction_text} {self.adjusted:.2g}"
        return (
            f"no difference shown between {self.better} and {self.other} on {self.measure}: "
            f"{difference}{p_text}{self.aside}"
        )

    def of_flow(self, flow: str) -> Interval:
        """Return by how much a flow is better than the other one, negative if it is worse."""
        return self.interval if flow == self.better else self.interval.reversed

    def json(self) -> dict[str, Any]:
        names = ("measure", "better", "other", "p", "adjusted", "shown", "verdict")
        return {name: getattr(self, name) for name in names} | {"difference": self.interval.json()}


def compare_flows(
    names: Sequence[str], estimates: Sequence[Estimates], correction: str, primary: str = "", against: str = ""
) -> tuple[Comparison, ...]:
    """Compare the pairs of flows, corrected together; pairs without a common question are left out."""
    return correct_comparisons(compare_pairs(names, estimates, primary, against), correction)


def compare_pairs(
    names: Sequence[str], estimates: Sequence[Estimates], primary: str = "", against: str = ""
) -> list[Comparison]:
    """Return uncorrected comparisons of pairs of flows: on all measures or the primary one, between all flows or with
    one."""
    comparisons = []
    for estimate in estimates:
        if primary not in ("", str(estimate.measure)):
            continue
        for i, j in combinations(range(len(names)), 2):
            if against in ("", names[i], names[j]) and (difference := estimate.difference(i, j)) is not None:
                interval, p = difference[0].widen(estimate.measure.resolution), difference[1]
                interval = interval.reversed if estimate.measure.lower_is_better else interval
                better, rival = names[i], names[j]
                # A mean that is NaN also swaps the pair, which `< 0` would not do.
                if not interval.mean >= 0:
                    better, rival, interval = rival, better, interval.reversed
                columns = str(estimate.measure), better, rival, interval, p, p, "none", 1
                comparisons.append(Comparison(*columns, estimate.measure.lower_is_better, estimate.is_share))
    return comparisons


def correct_comparisons(comparisons: Sequence[Comparison], correction: str) -> tuple[Comparison, ...]:
    adjusted = CORRECTIONS[correction]([comparison.p for comparison in comparisons])
    return tuple(
        comparison.but(adjusted=p, correction=correction, comparison_count=len(comparisons))
        for comparison, p in zip(comparisons, adjusted, strict=True)
    )


def format_interval(interval: Interval, is_share: bool) -> str:
    """Format a number with its interval, times 100 if scores lie between 0 and 1.

    >>> format_interval(Interval(0.031, 0.012, 0.05, 100), True)
    '3.1 [1.2, 5.0]'
    >>> format_interval(Interval(1812, 1500.2, float("inf"), 9), False)
    '1812 [1500, ?]'
    >>> format_interval(Interval(1.0, 1.0, 1.0, 60), False)
    '1'
    """
    if interval.low == interval.mean == interval.high:
        return format_number(interval.mean, is_share)
    mean, low, high = (format_number(bound, is_share) for bound in (interval.mean, interval.low, interval.high))
    return f"{mean} [{low}, {high}]"


def format_number(value: float, is_share: bool) -> str:
    """Format one number; `?` if it is unknown."""
    if value != value or value in (float("inf"), float("-inf")):  # NaN and the infinities: it cannot be estimated
        return "?"
    # Adding 0.0 turns -0.0 into 0.0.
    return f"{round(100 * value, 1) + 0.0:.1f}" if is_share else f"{value + 0.0:.4g}"


MOST = 20
"""Values of a field that is sliced, at most; a field with more, such as an id, has no slices."""
TYPE = "type"


@dataclass(frozen=True)
class Slice(Value):
    """Questions of one kind, by `type` or a metadata field, empty if they have none: what each flow scores there, and
    comparisons, corrected for those of all slices together."""

    field: str
    value: str
    n: int
    scores: tuple[tuple[str, str, Interval | None], ...]
    comparisons: tuple[Comparison, ...] = ()

    @property
    def label(self) -> str:
        """Return which questions these are: `type bridge`."""
        return f"{self.field} {self.value or '(none)'}"

    def json(self) -> dict[str, Any]:
        scores = [
            {"flow": flow, "measure": measure} | (interval.json() if interval is not None else {"mean": None})
            for flow, measure, interval in self.scores
        ]
        plain = {"field": self.field, "value": self.value, "n": self.n, "scores": scores}
        return plain | {"comparisons": [comparison.json() for comparison in self.comparisons]}


def compare_slices(experiment: ComparisonPlan, table: ScoreTable) -> tuple[Slice, ...]:
    """Compare flows by each field with two to twenty values; a question with several values counts for each."""
    slices: list[tuple[str, str, list[Item], list[Estimates]]] = []
    names, position = table.flows, {item.id: position for position, item in enumerate(table.items)}
    for field in experiment.by:
        kinds = group_by_kind(table.items, field)
        if 2 <= len(kinds) <= MOST:
            for kind, items in sorted(kinds.items()):
                estimates = Estimates.from_table(table, experiment.seed, [position[item.id] for item in items])
                slices.append((field, kind, items, estimates))
    compared = [compare_pairs(names, estimates, experiment.primary, experiment.against) for *_, estimates in slices]
    # One correction covers the comparisons of all slices, since each slice is another chance to err.
    all_corrected = iter(
        correct_comparisons([comparison for several in compared for comparison in several], experiment.correction)
    )
    return tuple(
        Slice(
            field,
            kind,
            len(items),
            tuple(
                (name, str(estimate.measure), estimate.interval(index))
                for estimate in estimates
                for index, name in enumerate(names)
            ),
            tuple(next(all_corrected) for _ in several),
        )
        for (field, kind, items, estimates), several in zip(slices, compared, strict=True)
    )


def explain_missing_slices(experiment: ComparisonPlan) -> Iterator[str]:
    """Explain why a requested field has no slices."""
    for field in experiment.by:
        kinds = group_by_kind(experiment.measurable_items, field)
        if len(kinds) > MOST:
            yield f"{field} has {len(kinds)} values, and no slices are made of more than {MOST}."
        elif len(kinds) < 2:
            yield f"All questions have the same {field}, {next(iter(kinds), '')!r}, so that there are no slices by it."


def group_by_kind(items: Iterable[Item], field: str) -> dict[str, list[Item]]:
    kinds: dict[str, list[Item]] = {}
    for item in items:
        for kind in kinds_of(item, field):
            kinds.setdefault(kind, []).append(item)
    return kinds


def kinds_of(item: Item, field: str) -> tuple[str, ...]:
    """Return the values of a question in a field: the members of a list one by one, an empty text if it has none.

    >>> item = Item("q", "?", meta=(("hops", 2), ("tags", '["date", "place"]'), ("metadata", '{"type": "bridge"}')))
    >>> kinds_of(item, "tags"), kinds_of(item, "metadata.type"), kinds_of(item, "type"), kinds_of(item, "topic")
    (('date', 'place'), ('bridge',), ('bridge',), ('',))
    """
    return tuple(dict.fromkeys(fields_of(item).get(field, ()))) or ("",)


def fields_of(item: Item) -> dict[str, tuple[str, ...]]:
    """Return what a question can be sliced by: its type and its metadata, with nested fields after a point.

    >>> fields_of(Item("q", "?", type="bridge", meta=(("hops", 2),)))
    {'hops': ('2',), 'type': ('bridge',)}
    """
    values_by_field = {name: values for key, value in item.meta for name, values in _values(key, value)}
    kind = (item.type,) if item.type else values_by_field.get(TYPE) or values_by_field.get(f"metadata.{TYPE}")
    return values_by_field | ({TYPE: kind} if kind else {})


def _values(name: str, value: object) -> Iterator[tuple[str, tuple[str, ...]]]:
    value = _parse_json(value)
    if isinstance(value, Mapping):
        for key, member in value.items():
            yield from _values(f"{name}.{key}", member)
    else:
        values = value if isinstance(value, list) else [value]
        yield (
            name,
            tuple(member if isinstance(member, str) else json.dumps(member, ensure_ascii=False) for member in values),
        )


def _parse_json(value: object) -> object:
    if not isinstance(value, str) or value[:1] not in ("[", "{"):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value
