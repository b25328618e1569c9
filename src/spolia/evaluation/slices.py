"""Questions by their type or metadata, and what the flows score on each kind."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from spolia.evaluation.estimates import Estimates
from spolia.evaluation.row import Row
from spolia.evaluation.statistics.interval import Interval
from spolia.types import Item, Value

if TYPE_CHECKING:
    from spolia.evaluation.experiment import Experiment

MOST = 20
"""Kinds that are told apart; of a field with more of them, such as an id, there are no slices."""


@dataclass(frozen=True)
class Slice(Value):
    """The questions of one kind.

    Args:
        field: `type`, or the name of a metadata field.
        value: what they have there; empty where they have nothing.
        n: how many they are.
        scores: by flow and measure; None where no question is determined.
    """

    field: str
    value: str
    n: int
    scores: tuple[tuple[str, str, Interval | None], ...]

    def json(self) -> dict[str, Any]:
        """Plain data."""
        scores = [
            {"flow": flow, "measure": measure} | (interval.json() if interval is not None else {"mean": None})
            for flow, measure, interval in self.scores
        ]
        return {"field": self.field, "value": self.value, "n": self.n, "scores": scores}


def sliced(experiment: Experiment, rows: Mapping[tuple[str, str], Row]) -> tuple[Slice, ...]:
    """By each field that tells two to twenty kinds of questions apart."""
    found: list[Slice] = []
    for field in experiment.by:
        kinds: dict[str, list[Item]] = {}
        for item in experiment.asked:
            kinds.setdefault(kind_of(item, field), []).append(item)
        if 2 <= len(kinds) <= MOST:
            found += [_slice(experiment, field, kind, kinds[kind], rows) for kind in sorted(kinds)]
    return tuple(found)


def kind_of(item: Item, field: str) -> str:
    """What a question has in a field; several values are joined. Some forms have the type among the metadata.

    >>> kind_of(Item("q", "?", meta=(("hops", 2),)), "hops")
    '2'
    """
    if field == "type" and item.type:
        return item.type
    return ", ".join(str(value) for name, value in item.meta if name == field)


def _slice(
    experiment: Experiment, field: str, kind: str, items: list[Item], rows: Mapping[tuple[str, str], Row]
) -> Slice:
    names = [name for name, _ in experiment.flows]
    scores = []
    for measure in experiment.measures:
        written = str(measure)
        estimates = Estimates.of(measure, names, items, rows, experiment.seed)
        scores += [(name, written, estimates.interval(index)) for index, name in enumerate(names)]
    return Slice(field, kind, len(items), tuple(scores))
