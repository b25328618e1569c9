"""What a measure of answers sees: what was said, against the answers of the gold."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Sequence

from spolia.errors import MeasureError
from spolia.evaluation.measures.measure import Measure, Result, checked_item
from spolia.types import Answer, Item

UNANSWERABLE = "unanswerable"
"""The type of items that should not be answered."""
_MARKER = re.compile(r"[ \t]?\[(\d{1,4})\]")


class AnswerMeasure(Measure):
    """A measure of what an answer says: the best over the accepted answers.

    To abstain from a question that has an answer scores 0.
    """

    def applies(self, item: Item) -> bool:
        return bool(item.answers)

    def score(self, result: Result, item: Item) -> float | None:
        checked_item(self, item)
        if item.answers and answer_in(result).abstained:
            return 0.0
        return self.of(said(result), item.answers)

    @abstractmethod
    def of(self, text: str, answers: Sequence[str]) -> float | None:
        """The number for a text, given one accepted answer at least."""


def said(result: Result) -> str:
    """What an answer says, without the markers of its citations; nothing where it abstains.

    >>> from spolia.types import Citation
    >>> cited = (Citation("1", "n", "d", "a.txt", "..."),)
    >>> said(Answer("Since 508 [1], say some [sic].", cited)), said(Answer("I do not know.", stop_reason="abstained"))
    ('Since 508, say some [sic].', '')
    """
    answer = answer_in(result)
    if answer.abstained:
        return ""
    markers = {citation.marker for citation in answer.citations}
    return _MARKER.sub(lambda found: "" if found[1] in markers else found[0], answer.text) if markers else answer.text


def answer_in(result: Result) -> Answer:
    """The answer, or an error that says that there is none."""
    if not isinstance(result, Answer):
        raise MeasureError(
            f"A {type(result).__name__} is no answer to measure. Measure a flow that ends in one, for example with "
            "Extract or Reader."
        )
    return result


def unanswerable(item: Item) -> bool:
    """Whether the right reply is to abstain."""
    return item.type == UNANSWERABLE
