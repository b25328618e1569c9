"""Short ways to what is measured."""

from __future__ import annotations

from spolia.evaluation.measures.measure import Case, Measure, SetMeasure
from spolia.evaluation.measures.registry import parse_measure
from spolia.types import Answer, Citation, Hit, Item, Node, Query, Ranking

ABSTAINED = Answer("I do not know.", stop_reason="abstained")


def measure_of(text: str) -> Measure:
    measure = parse_measure(text)
    assert isinstance(measure, Measure)
    return measure


def item_with(*answers: str, gold: tuple[tuple[str, ...], ...] = ()) -> Item:
    return Item("q", "?", answers=answers, gold=gold)


def unanswerable_item() -> Item:
    return Item("u", "?", type="unanswerable")


def ranking(*names: str, source: str = "", score: float = 1.0) -> Ranking:
    return Ranking(Query("?"), tuple(Hit(Node(name, f"text of {name}"), score) for name in names), source)


def answer_citing(text: str, *documents: str) -> Answer:
    marked = enumerate(documents, start=1)
    return Answer(text, tuple(Citation(str(n), f"{d}-1", d, f"{d}.txt", f"quote of {d}") for n, d in marked))


def total_of(measure: SetMeasure, cases: list[Case]) -> float | None:
    return measure.total([observation for observation in measure.observe_all(cases) if observation is not None])
