"""Accuracy: whether the answer holds an accepted one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from spolia.evaluation.measures.answers.answer import AnswerMeasure
from spolia.evaluation.measures.answers.words import TOKENISERS, checked_words, normalised
from spolia.evaluation.measures.rules import checked_rule


@dataclass(frozen=True)
class Accuracy(AnswerMeasure):
    """1 if the words of an accepted answer stand in the answer, in a row, else 0.

    Args:
        words: how a text is cut into words (`spolia.evaluation.measures.answers.words`); `unicode` for any script.
        rule: three published variants that look for characters, not words. `flashrag`: after SQuAD's normalisation.
            `prefrag`: lower-cased only, so that "no" stands in "not known", and 1974 in 19740. `bioasq`: the accepted
            answer, as a regular expression between word boundaries, so that "yes or no" is right for both.

    Source: the rules: Jin et al. 2024 (FlashRAG), Zhao et al. 2024 (PrefRAG) and its script for BioASQ.

    >>> str(Accuracy()), Accuracy().of("Not known.", ["no"]), Accuracy(rule="prefrag").of("Not known.", ["no"])
    ('Acc', 0.0, 1.0)
    """

    words: str = "squad"
    rule: str = ""

    called: ClassVar[str] = "Acc"

    def __post_init__(self) -> None:
        checked_words(self.called, self.words)
        checked_rule(self.called, self.rule, ("flashrag", "prefrag", "bioasq"))

    def of(self, text: str, answers: Sequence[str]) -> float:
        if self.rule == "flashrag":
            found = normalised(text)
            return float(any(normalised(answer) in found for answer in answers))
        if self.rule == "prefrag":
            return float(any(answer.lower() in text.lower() for answer in answers))
        if self.rule == "bioasq":
            return float(any(_stands_in(answer.lower(), text.lower()) for answer in answers))
        return float(any(holds(text, answer, self.words) for answer in answers))


def holds(text: str, answer: str, words: str) -> bool:
    """Whether the words of an answer, one at least, stand in a text in a row.

    >>> holds("It opened in 19740.", "1974", "squad"), holds("In 1974, it opened.", "1974!", "squad")
    (False, True)
    """
    cut = TOKENISERS[words]
    wanted = " ".join(cut(answer))
    return bool(wanted) and f" {wanted} " in f" {' '.join(cut(text))} "


def _stands_in(pattern: str, text: str) -> bool:
    try:
        return re.search(rf"\b{pattern}\b", text) is not None
    except re.error:
        return re.search(rf"\b{re.escape(pattern)}\b", text) is not None
