"""What one measure says of flows that were asked the same questions, of all or of one kind, and how sure that is."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import nan
from typing import TYPE_CHECKING, Any, Self

from spolia.evaluation.experiment.score_table import ScoreTable
from spolia.evaluation.measures.measure import CostMeasure, Measure, Seen, SetMeasure
from spolia.evaluation.statistics.interval import Interval
from spolia.evaluation.statistics.sample import Sample, Totals
from spolia.evaluation.statistics.significance import CORRECTIONS
from spolia.types import Item, Value, kept

if TYPE_CHECKING:
    from spolia.evaluation.experiment.experiment import Experiment

MeasureColumn = Sequence[Seen | None]


class Estimates:
    """Intervals and tests of a measure; undetermined questions are left out for each flow and for each pair with it."""

    def __init__(self, measure: SetMeasure, columns: Sequence[MeasureColumn], seed: int) -> None:
        self.measure, self.columns, self.seed = measure, columns, seed
        self.single = isinstance(measure, Measure | CostMeasure)

    @classmethod
    def of(cls, table: ScoreTable, seed: int, questions: Sequence[int] | None = None) -> list[Self]:
        """Those of all measures of a table, of some of its questions by position, or of all."""
        flows = range(len(table.flows))
        return [
            cls(measure, [table.seen(flow, at, questions) for flow in flows], seed)
            for at, measure in enumerate(table.measures)
        ]

    def interval(self, flow: int) -> Interval | None:
        """Return the number of a flow; None where no question is determined, or none of those defines it. A cost that
        is the same for every question has no interval."""
        known = [one for one in self.columns[flow] if one is not None]
        if isinstance(self.measure, CostMeasure) and len(known) > 1 and len(set(known)) == 1:
            (cost,) = known[0]
            return Interval(cost, cost, cost, len(known))
        return self._statistics.interval(flow) if self._known(flow) else None

    def difference(self, ours: int, theirs: int) -> tuple[Interval, float] | None:
        """By how much one flow has more than another, and the p-value of that; None where one of them has no number."""
        if not self._known(ours, theirs):
            return None
        if (found := self._statistics.difference(ours, theirs)) is None:
            return None
        return found, self._statistics.p(ours, theirs)

    @property
    def unit(self) -> bool:
        """Whether scores lie between 0 and 1, and are reported times 100."""
        return self.measure.range == (0.0, 1.0)

    def _known(self, *flows: int) -> bool:
        columns = [self.columns[flow] for flow in flows]
        return any(None not in seen for seen in zip(*columns, strict=True))

    @kept
    def _statistics(self) -> Sample | Totals:
        """Statistics of all flows together, so that one set of draws serves them all."""
        if self.single:
            table = [[nan if seen is None else seen[0] for seen in row] for row in zip(*self.columns, strict=True)]
            return Sample(table, range=self.measure.range, seed=self.seed)
        named = {name: getattr(self.measure, name) for name in ("additive", "range")}
        return Totals(self.columns, self.measure.total, **named, seed=self.seed)


ALPHA = 0.05
NAMES = {"holm": "Holm", "bh": "Benjamini and Hochberg", "none": "no correction"}


@dataclass(frozen=True)
class Comparison(Value):
    """By how much one flow is better than another on the questions that both were asked.

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
    of: int
    lower_is_better: bool
    unit: bool
    caveat: str = ""

    @property
    def shown(self) -> bool:
        """Whether a difference is shown: the interval excludes zero, and so does the test after its correction."""
        return self.interval.excludes_zero and self.adjusted < ALPHA

    @property
    def aside(self) -> str:
        """The caveat, as it follows a verdict."""
        return f"; {self.caveat}" if self.caveat else ""

    @property
    def verdict(self) -> str:
        """In words; two flows are never called equal."""
        by = amount(self.interval, self.unit)
        if self.shown:
            less = " (lower is better)" if self.lower_is_better else ""
            return f"{self.better} beats {self.other} on {self.measure} by {by}{less}{self.aside}"
        why = f"; p = {self.p:.2g}" if self.interval.excludes_zero else ""
        if why and self.p < ALPHA:
            how = f"{self.of} comparisons ({NAMES[self.correction]})"
            why += f", corrected for {how} {self.adjusted:.2g}"
        return f"no difference shown between {self.better} and {self.other} on {self.measure}: {by}{why}{self.aside}"

    def of_flow(self, flow: str) -> Interval:
        """By how much one of the two is better than the other, negative where it is worse."""
        return self.interval if flow == self.better else self.interval.reversed

    def json(self) -> dict[str, Any]:
        named = ("measure", "better", "other", "p", "adjusted", "shown", "verdict")
        return {name: getattr(self, name) for name in named} | {"difference": self.interval.json()}


def compared(
    names: Sequence[str], estimates: Sequence[Estimates], correction: str, primary: str = "", against: str = ""
) -> tuple[Comparison, ...]:
    """The pairs of flows, corrected together; those without a common question are left out."""
    return corrected(pairs(names, estimates, primary, against), correction)


def pairs(
    names: Sequence[str], estimates: Sequence[Estimates], primary: str = "", against: str = ""
) -> list[Comparison]:
    """Pairs of flows, corrected for nothing: all on all measures, or on the primary one, or those with one flow."""
    found = []
    for one in estimates:
        if primary not in ("", str(one.measure)):
            continue
        for i, j in combinations(range(len(names)), 2):
            if against in ("", names[i], names[j]) and (difference := one.difference(i, j)) is not None:
                interval, p = difference[0].widened(one.measure.resolution), difference[1]
                interval = interval.reversed if one.measure.lower_is_better else interval
                better, other = names[i], names[j]
                if not interval.mean >= 0:
                    better, other, interval = other, better, interval.reversed
                said = str(one.measure), better, other, interval, p, p, "none", 1
                found.append(Comparison(*said, one.measure.lower_is_better, one.unit))
    return found


def corrected(comparisons: Sequence[Comparison], correction: str) -> tuple[Comparison, ...]:
    adjusted = CORRECTIONS[correction]([one.p for one in comparisons])
    return tuple(
        one.but(adjusted=p, correction=correction, of=len(comparisons))
        for one, p in zip(comparisons, adjusted, strict=True)
    )


def amount(interval: Interval, unit: bool) -> str:
    """A number with its interval for people: times 100 where scores lie between 0 and 1.

    >>> amount(Interval(0.031, 0.012, 0.05, 100), True), amount(Interval(1812, 1500.2, float("inf"), 9), False)
    ('3.1 [1.2, 5.0]', '1812 [1500, ?]')
    >>> amount(Interval(1.0, 1.0, 1.0, 60), False)
    '1'
    """
    if interval.low == interval.mean == interval.high:
        return number(interval.mean, unit)
    mean, low, high = (number(one, unit) for one in (interval.mean, interval.low, interval.high))
    return f"{mean} [{low}, {high}]"


def number(value: float, unit: bool) -> str:
    """One number for people; `?` where it is not known."""
    if value != value or value in (float("inf"), float("-inf")):
        return "?"
    return f"{round(100 * value, 1) + 0.0:.1f}" if unit else f"{value + 0.0:.4g}"


MOST = 20
"""Values of a field that is sliced, at most; a field with more, such as an id, has no slices."""
TYPE = "type"


@dataclass(frozen=True)
class Slice(Value):
    """The questions of one kind, by `type` or a metadata field, empty where they have nothing: what each flow scores
    there, and comparisons, corrected for those of all slices together."""

    field: str
    value: str
    n: int
    scores: tuple[tuple[str, str, Interval | None], ...]
    comparisons: tuple[Comparison, ...] = ()

    @property
    def named(self) -> str:
        """Which questions: `type bridge`."""
        return f"{self.field} {self.value or '(none)'}"

    def json(self) -> dict[str, Any]:
        scores = [
            {"flow": flow, "measure": measure} | (interval.json() if interval is not None else {"mean": None})
            for flow, measure, interval in self.scores
        ]
        found = {"field": self.field, "value": self.value, "n": self.n, "scores": scores}
        return found | {"comparisons": [one.json() for one in self.comparisons]}


def sliced(experiment: "Experiment", table: ScoreTable) -> tuple[Slice, ...]:
    """By each field that tells two to twenty kinds of questions apart; a question with several values is in several."""
    found: list[tuple[str, str, list[Item], list[Estimates]]] = []
    names, position = table.flows, {item.id: at for at, item in enumerate(table.items)}
    for field in experiment.by:
        kinds = by_kind(table.items, field)
        if 2 <= len(kinds) <= MOST:
            for kind, items in sorted(kinds.items()):
                estimates = Estimates.of(table, experiment.seed, [position[item.id] for item in items])
                found.append((field, kind, items, estimates))
    compared = [pairs(names, estimates, experiment.primary, experiment.against) for *_, estimates in found]
    all_corrected = iter(corrected([one for several in compared for one in several], experiment.correction))
    return tuple(
        Slice(
            field,
            kind,
            len(items),
            tuple((name, str(one.measure), one.interval(at)) for one in estimates for at, name in enumerate(names)),
            tuple(next(all_corrected) for _ in several),
        )
        for (field, kind, items, estimates), several in zip(found, compared, strict=True)
    )


def unsliced(experiment: "Experiment") -> Iterator[str]:
    """Why there are no slices by a field that was asked for."""
    for field in experiment.by:
        kinds = by_kind(experiment.asked, field)
        if len(kinds) > MOST:
            yield f"{field} has {len(kinds)} values, and no slices are made of more than {MOST}."
        elif len(kinds) < 2:
            yield f"All questions have the same {field}, {next(iter(kinds), '')!r}, so that there are no slices by it."


def by_kind(items: Iterable[Item], field: str) -> dict[str, list[Item]]:
    kinds: dict[str, list[Item]] = {}
    for item in items:
        for kind in kinds_of(item, field):
            kinds.setdefault(kind, []).append(item)
    return kinds


def kinds_of(item: Item, field: str) -> tuple[str, ...]:
    """What a question has in a field: the members of a list one by one, an empty text where it has nothing.

    >>> item = Item("q", "?", meta=(("hops", 2), ("tags", '["date", "place"]'), ("metadata", '{"type": "bridge"}')))
    >>> kinds_of(item, "tags"), kinds_of(item, "metadata.type"), kinds_of(item, "type"), kinds_of(item, "topic")
    (('date', 'place'), ('bridge',), ('bridge',), ('',))
    """
    return tuple(dict.fromkeys(fields_of(item).get(field, ()))) or ("",)


def fields_of(item: Item) -> dict[str, tuple[str, ...]]:
    """What a question can be sliced by: its type, and its metadata, those inside an object after a point.

    >>> fields_of(Item("q", "?", type="bridge", meta=(("hops", 2),)))
    {'hops': ('2',), 'type': ('bridge',)}
    """
    found = {name: values for key, value in item.meta for name, values in _values(key, value)}
    kind = (item.type,) if item.type else found.get(TYPE) or found.get(f"metadata.{TYPE}")
    return found | ({TYPE: kind} if kind else {})


def _values(name: str, value: object) -> Iterator[tuple[str, tuple[str, ...]]]:
    value = _unpacked(value)
    if isinstance(value, Mapping):
        for key, one in value.items():
            yield from _values(f"{name}.{key}", one)
    else:
        values = value if isinstance(value, list) else [value]
        yield name, tuple(one if isinstance(one, str) else json.dumps(one, ensure_ascii=False) for one in values)


def _unpacked(value: object) -> object:
    if not isinstance(value, str) or value[:1] not in ("[", "{"):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value
