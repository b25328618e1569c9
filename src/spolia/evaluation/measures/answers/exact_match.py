"""Exact match."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from spolia.evaluation.measures.answers.answer import AnswerMeasure, unanswerable
from spolia.evaluation.measures.answers.words import TOKENISERS, checked_words
from spolia.evaluation.measures.rules import checked_rule
from spolia.types import Item


@dataclass(frozen=True)
class ExactMatch(AnswerMeasure):
    """1 if the answer has exactly the words of an accepted one, else 0.

    Args:
        words: how a text is cut into words (`spolia.evaluation.measures.answers.words`); `unicode` for any script.
        rule: `squad2`: questions of the type `unanswerable` are asked too, and the right answer is to abstain.

    Source: Rajpurkar et al. 2016 (SQuAD); the rule: Rajpurkar et al. 2018 (SQuAD 2.0).

    >>> str(ExactMatch()), ExactMatch().of("The Moon!", ["the sun", "moon"])
    ('EM', 1.0)
    """

    words: str = "squad"
    rule: str = ""

    called: ClassVar[str] = "EM"

    def __post_init__(self) -> None:
        checked_words(self.called, self.words)
        checked_rule(self.called, self.rule, ("squad2",))

    def applies(self, item: Item) -> bool:
        return bool(item.answers) or (self.rule == "squad2" and unanswerable(item))

    def of(self, text: str, answers: Sequence[str]) -> float:
        cut = TOKENISERS[self.words]
        found = cut(text)
        return float(any(cut(answer) == found for answer in answers or ("",)))
