"""Whether the right questions are left unanswered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from spolia.evaluation.measures.answers.answer import answer_in, unanswerable
from spolia.evaluation.measures.measure import Case, Seen, SetMeasure
from spolia.types import Failure, Item


@dataclass(frozen=True)
class AbstentionF1(SetMeasure):
    """F1 of abstaining: of the abstentions, how many were right; of the unanswerable questions, how many were left.

    F1 = 2·tp / (2·tp + fp + fn): tp unanswerable and abstained, fp answerable and abstained, fn unanswerable and not. A
    failure is no abstention. Items are unanswerable by their type, `unanswerable`; others need an answer in their gold.
    Without an unanswerable question and without an abstention it is not defined.

    Source: the no-answer class of SQuAD 2.0 (Rajpurkar et al. 2018), measured by F1.

    >>> from spolia.types import Answer
    >>> case = Case(Item("q", "?", type="unanswerable"), Answer("No passage says so.", stop_reason="abstained"))
    >>> str(AbstentionF1()), AbstentionF1().total([AbstentionF1().seen(case), (0.0, 0.0, 1.0)])
    ('AbstentionF1', 0.6666666666666666)
    """

    called: ClassVar[str] = "AbstentionF1"
    additive: ClassVar[bool] = True

    def applies(self, item: Item) -> bool:
        return unanswerable(item) or bool(item.answers)

    def seen(self, case: Case) -> Seen:
        """True positive, false positive, false negative."""
        should = unanswerable(case.item)
        did = not isinstance(case.result, Failure) and answer_in(case.result).abstained
        return (float(should and did), float(did and not should), float(should and not did))

    def total(self, seen: Sequence[Seen]) -> float | None:
        true, false, missed = (sum(column) for column in zip(*seen, strict=True))
        return 2 * true / (2 * true + false + missed) if true + false + missed else None
