"""Questions on which the chosen flow and another one differ, with what each found."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from spolia.evaluation.measures.costs import shown_hits
from spolia.evaluation.measures.measure import Case
from spolia.types import Answer, Failure, Hit, Item, Value

SHOWN_QUESTIONS = 8
"""Questions that are shown of those on which one of two flows is better."""
HITS, CHARACTERS = 3, 240


@dataclass(frozen=True)
class FoundPassage(Value):
    """Passage near the top: its name, the beginning of its text, and whether it is gold."""

    name: str
    text: str
    is_gold: bool


@dataclass(frozen=True)
class FlowResult(Value):
    """Result of a flow for a question, as a report shows it."""

    score: float
    passages: tuple[FoundPassage, ...] = ()
    answer: str = ""


@dataclass(frozen=True)
class QuestionDifference(Value):
    """Question on which two flows differ; `is_fresh` if it did not choose."""

    id: str
    question: str
    ours: FlowResult
    theirs: FlowResult
    is_fresh: bool


@dataclass(frozen=True)
class FlowDifferences(Value):
    """Comparison of the chosen flow with another one, question by question.

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
    """Return the places of the greatest gaps, those above 0 first; NaN is none.

    >>> most_different([0.0, -0.5, 1.0, float("nan"), 0.2])
    [2, 4, 1]
    """
    known_gaps = np.nan_to_num(np.asarray(gaps, np.float64))
    better = sorted(np.flatnonzero(known_gaps > 0).tolist(), key=lambda index: -known_gaps[index])
    worse = sorted(np.flatnonzero(known_gaps < 0).tolist(), key=lambda index: known_gaps[index])
    return [*better[:SHOWN_QUESTIONS], *worse[:SHOWN_QUESTIONS]]


def summarise_result(case: Case, score: float) -> FlowResult:
    """Return what a report shows of a flow's result."""
    answer = case.result.text if isinstance(case.result, Answer) else ""
    if isinstance(case.result, Failure):
        answer = f"{case.result.kind}: {case.result.message}"
    return FlowResult(score, tuple(_top_passages(shown_hits(case)[:HITS], case.item)), answer[:CHARACTERS])


def _top_passages(hits: Iterable[Hit], item: Item) -> Iterable[FoundPassage]:
    for hit in hits:
        node = hit.node
        overlaps_quote = node.span is not None and any(
            quote.document == node.document and node.span.start < quote.end and quote.start < node.span.end
            for quote in item.quotes
        )
        is_gold_node = any(gold in (node.id, node.document) for group in item.gold for gold in group)
        text = node.text if len(node.text) <= CHARACTERS else f"{node.text[: CHARACTERS - 1]}…"
        yield FoundPassage(node.uri or node.document or node.id, text, overlaps_quote or is_gold_node)
