"""F1 of words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from spolia.evaluation.measures.answers.answer import AnswerMeasure, unanswerable
from spolia.evaluation.measures.answers.words import TOKENISERS, checked_words
from spolia.evaluation.measures.rules import checked_rule
from spolia.evaluation.measures.sets import harmonic
from spolia.types import Item

_CLOSED = (["yes"], ["no"], ["noanswer"])


@dataclass(frozen=True)
class F1(AnswerMeasure):
    """Overlap of words: harmonic mean of the share of the answer's words that the gold has, and the reverse.

    Words are counted as often as they stand in both. The best over the accepted answers. No overlap is 0, also where
    both are empty.

    Args:
        words: how a text is cut into words (`spolia.evaluation.measures.answers.words`); `unicode` for any script.
        rule: `squad2`: two empty texts score 1, and questions of the type `unanswerable` are asked too, whose right
            answer is to abstain. `hotpotqa`: 0 where one side is yes, no or noanswer and the other is not the same.

    Source: Rajpurkar et al. 2016 (SQuAD); the rules: Rajpurkar et al. 2018 (SQuAD 2.0), Yang et al. 2018 (HotpotQA).

    >>> str(F1(rule="hotpotqa")), F1().of("Yes, it was.", ["yes"]), F1(rule="hotpotqa").of("Yes, it was.", ["yes"])
    ('F1(rule="hotpotqa")', 0.5, 0.0)
    """

    words: str = "squad"
    rule: str = ""

    called: ClassVar[str] = "F1"

    def __post_init__(self) -> None:
        checked_words(self.called, self.words)
        checked_rule(self.called, self.rule, ("squad2", "hotpotqa"))

    def applies(self, item: Item) -> bool:
        return bool(item.answers) or (self.rule == "squad2" and unanswerable(item))

    def of(self, text: str, answers: Sequence[str]) -> float:
        cut = TOKENISERS[self.words]
        found = cut(text)
        return max(self._against(found, cut(answer)) for answer in answers or ("",))

    def _against(self, found: list[str], gold: list[str]) -> float:
        if self.rule == "squad2" and not (found and gold):
            return float(found == gold)
        if self.rule == "hotpotqa" and found != gold and (found in _CLOSED or gold in _CLOSED):
            return 0.0
        return overlap(found, gold)


def overlap(found: Sequence[str], gold: Sequence[str]) -> float:
    """F1 of two multisets of words.

    >>> overlap(["a", "a", "b"], ["a", "b", "c"])
    0.6666666666666666
    """
    shared = (Counter(found) & Counter(gold)).total()
    return harmonic(shared / len(found), shared / len(gold)) if shared else 0.0
