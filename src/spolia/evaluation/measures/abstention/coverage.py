"""How much is answered, and how wrong that is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from spolia.errors import MeasureError
from spolia.evaluation.measures.answers.answer import answer_in
from spolia.evaluation.measures.answers.exact_match import ExactMatch
from spolia.evaluation.measures.measure import Case, Measure, Result, Seen, SetMeasure
from spolia.types import Failure, Item

EXACT = ExactMatch()


def checked_measure(called: str, of: object, *parts: object) -> None:
    """Refuse a part that has no score of its own for each question, and a risk of what is no share."""
    for part in (of, *parts):
        if not isinstance(part, Measure):
            raise MeasureError(
                f"{called} cannot be made of {part}. Write a measure of one answer, as in {called}(of=F1)."
            )
    if isinstance(of, Measure) and of.range != (0.0, 1.0):
        raise MeasureError(f"{called} cannot be made of {of}, which is no number from 0 to 1. Write {called}(of=F1).")


@dataclass(frozen=True)
class Coverage(Measure):
    """Share of the questions that are answered: neither abstained nor failed.

    Source: El-Yaniv and Wiener 2010.

    >>> from spolia.types import Answer
    >>> str(Coverage()), Coverage().score(Answer("I do not know.", stop_reason="abstained"), Item("q", "?"))
    ('Coverage', 0.0)
    """

    called: ClassVar[str] = "Coverage"

    def applies(self, item: Item) -> bool:
        return True

    def score(self, result: Result, item: Item) -> float:
        return float(not answer_in(result).abstained)


@dataclass(frozen=True)
class SelectiveRisk(SetMeasure):
    """How wrong a flow is where it answers: 1 - mean of a measure over what is neither abstained nor failed.

    Read it beside `Coverage`: who answers one question, and that right, has no risk. Nothing answered: not defined.

    Args:
        of: how good an answer is, from 0 to 1.

    Source: El-Yaniv and Wiener 2010.

    >>> from spolia.types import Answer
    >>> asked = Item("q", "?", answers=("Nokia",))
    >>> given = [Answer("Nokia"), Answer("?"), Answer("I do not know.", stop_reason="abstained")]
    >>> measure = SelectiveRisk()
    >>> str(measure), measure.total([measure.seen(Case(asked, answer)) for answer in given])
    ('Risk', 0.5)
    """

    of: Measure = EXACT

    called: ClassVar[str] = "Risk"
    additive: ClassVar[bool] = True
    lower_is_better: ClassVar[bool] = True

    def __post_init__(self) -> None:
        checked_measure(self.called, self.of)

    def applies(self, item: Item) -> bool:
        return self.of.applies(item)

    def seen(self, case: Case) -> Seen | None:
        """Whether it was answered, and how well."""
        return self.all_seen([case])[0]

    def all_seen(self, cases: Sequence[Case]) -> list[Seen | None]:
        scores = iter(self.of.all_seen([case for case in cases if answered(case)]))
        pairs = ((1.0, next(scores)) if answered(case) else (0.0, (0.0,)) for case in cases)
        return [score and (one, *score) for one, score in pairs]

    def total(self, seen: Sequence[Seen]) -> float | None:
        answered = sum(one for one, _ in seen)
        return 1 - sum(score for _, score in seen) / answered if answered else None


def answered(case: Case) -> bool:
    """Whether a flow neither abstained nor failed."""
    return not isinstance(case.result, Failure) and not answer_in(case.result).abstained
