"""Exact match."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from spolia.errors import MeasureError
from spolia.evaluation.measures.answers.answer import AnswerMeasure, unanswerable
from spolia.evaluation.measures.answers.words import TOKENISERS, checked_words, normalised
from spolia.evaluation.measures.rules import checked_rule
from spolia.types import Item


@dataclass(frozen=True)
class ExactMatch(AnswerMeasure):
    """1 if the answer has exactly the words of an accepted one, else 0.

    Args:
        words: how a text is cut into words (`spolia.evaluation.measures.answers.words`); `unicode` for any script.
        rule: `squad2`: questions of the type `unanswerable` are asked too, and the right answer is to abstain.
            `regex`: an accepted answer is a regular expression, as in CuratedTREC, that all of the answer must match,
            after SQuAD's normalisation and whatever its case.

    Source: Rajpurkar et al. 2016 (SQuAD); the rules: Rajpurkar et al. 2018 (SQuAD 2.0), Jin et al. 2024 (FlashRAG).

    >>> str(ExactMatch()), ExactMatch().of("The Moon!", ["the sun", "moon"])
    ('EM', 1.0)
    """

    words: str = "squad"
    rule: str = ""

    called: ClassVar[str] = "EM"

    def __post_init__(self) -> None:
        checked_words(self.called, self.words)
        checked_rule(self.called, self.rule, ("squad2", "regex"))

    def applies(self, item: Item) -> bool:
        return bool(item.answers) or (self.rule == "squad2" and unanswerable(item))

    def of(self, text: str, answers: Sequence[str]) -> float:
        if self.rule == "regex":
            return float(any(_matches(answer, normalised(text)) for answer in answers))
        cut = TOKENISERS[self.words]
        found = cut(text)
        return float(any(cut(answer) == found for answer in answers or ("",)))


def _matches(pattern: str, text: str) -> bool:
    try:
        return re.fullmatch(pattern, text, re.IGNORECASE) is not None
    except re.error as error:
        raise MeasureError(
            f"The accepted answer {pattern!r} is no regular expression: {error}. Mend it, or write EM without its rule."
        ) from error
