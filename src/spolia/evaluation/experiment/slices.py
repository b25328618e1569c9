"""Questions by their type or metadata, what the flows score on each kind, and what differs there."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from spolia.evaluation.experiment.comparison import Comparison, Estimates, corrected, pairs
from spolia.evaluation.experiment.score_table import ScoreTable
from spolia.evaluation.statistics.interval import Interval
from spolia.types import Item, Value

if TYPE_CHECKING:
    from spolia.evaluation.experiment.experiment import Experiment

MOST = 20
"""Kinds that are told apart; of a field with more of them, such as an id, there are no slices."""
TYPE = "type"


@dataclass(frozen=True)
class Slice(Value):
    """The questions of one kind.

    Args:
        field: `type`, or the name of a metadata field.
        value: what they have there; empty where they have nothing.
        scores: by flow and measure; None where no question is determined.
        comparisons: those of the experiment, corrected for those of all slices together.
    """

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
    """The questions with each value of a field."""
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
