"""On which questions the chosen flow and another one differ, and what each found there."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from spolia.evaluation.measures.costs import shown
from spolia.evaluation.measures.measure import Case
from spolia.types import Answer, Failure, Hit, Item, Value

MOST = 8
"""Questions that are shown of those on which one of two flows is better."""
HITS, CHARACTERS = 3, 240


@dataclass(frozen=True)
class FoundPassage(Value):
    """A passage near the top: its name, the beginning of its text, and whether it is gold."""

    name: str
    text: str
    is_gold: bool


@dataclass(frozen=True)
class FlowResult(Value):
    """What a flow gave for a question."""

    score: float
    passages: tuple[FoundPassage, ...] = ()
    answer: str = ""


@dataclass(frozen=True)
class QuestionDifference(Value):
    """A question on which two flows differ; `is_fresh` if it did not choose."""

    id: str
    question: str
    ours: FlowResult
    theirs: FlowResult
    is_fresh: bool


@dataclass(frozen=True)
class FlowDifferences(Value):
    """The chosen flow against another one, question by question.

    Args:
        rival: what the other flow is, in words, and `choices` its candidates.
        better, worse, equal: on how many questions that both were asked.
        questions: some on which they differ most.
    """

    rival: str
    choices: tuple[tuple[str, str], ...]
    better: int
    worse: int
    equal: int
    questions: tuple[QuestionDifference, ...]


def most_different(gaps: Sequence[float]) -> list[int]:
    """Places of the greatest gaps, those above 0 first; NaN is none.

    >>> most_different([0.0, -0.5, 1.0, float("nan"), 0.2])
    [2, 4, 1]
    """
    known = np.nan_to_num(np.asarray(gaps, np.float64))
    above = sorted(np.flatnonzero(known > 0).tolist(), key=lambda at: -known[at])
    below = sorted(np.flatnonzero(known < 0).tolist(), key=lambda at: known[at])
    return [*above[:MOST], *below[:MOST]]


def result_of(case: Case, score: float) -> FlowResult:
    """What is shown of a flow's result."""
    answer = case.result.text if isinstance(case.result, Answer) else ""
    if isinstance(case.result, Failure):
        answer = f"{case.result.kind}: {case.result.message}"
    return FlowResult(score, tuple(_passages(shown(case)[:HITS], case.item)), answer[:CHARACTERS])


def _passages(hits: Iterable[Hit], item: Item) -> Iterable[FoundPassage]:
    for hit in hits:
        node = hit.node
        quoted = node.span is not None and any(
            one.document == node.document and node.span.start < one.end and one.start < node.span.end
            for one in item.quotes
        )
        named = any(one in (node.id, node.document) for group in item.gold for one in group)
        text = node.text if len(node.text) <= CHARACTERS else f"{node.text[: CHARACTERS - 1]}…"
        yield FoundPassage(node.uri or node.document or node.id, text, quoted or named)
