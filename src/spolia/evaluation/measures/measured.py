"""What a measure says of a set of questions, and of how many it could not say anything."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from spolia.evaluation.measures.measure import Case, Seen, SetMeasure
from spolia.types import Failure, Value


@dataclass(frozen=True)
class Measured(Value):
    """A measure over cases.

    Args:
        measure: as it is written.
        value: the total; None where there is nothing to add up.
        n: cases that it is made of.
        failed: of these, those that failed.
        undetermined: cases left out because the measure could not tell: a judge that could not be asked or read,
            an answer without statements.
        without_gold: cases left out because their item lacks the gold.
        seen: by case, what it adds; None where it was left out.
    """

    measure: str
    value: float | None
    n: int
    failed: int
    undetermined: int
    without_gold: int
    seen: tuple[Seen | None, ...]

    def __str__(self) -> str:
        said = "nothing" if self.value is None else f"{self.value:.4g}"
        left = ((self.failed, "failed"), (self.undetermined, "undetermined"), (self.without_gold, "without gold"))
        return ", ".join([f"{self.measure} {said} of {self.n}", *(f"{n} {what}" for n, what in left if n)])


def measured(measure: SetMeasure, cases: Sequence[Case]) -> Measured:
    """What a measure says of cases. A judged one asks its model: inside a run, with its cache, budget and threads.

    >>> from spolia.evaluation.measures.answers.exact_match import ExactMatch
    >>> from spolia.types import Answer, Item
    >>> asked = [Item("q1", "?", answers=("Nokia",)), Item("q2", "?", answers=("1508",)), Item("q3", "?")]
    >>> print(measured(ExactMatch(), [Case(item, Answer("Nokia.")) for item in asked]))
    EM 0.5 of 2, 1 without gold
    """
    applies = [measure.applies(case.item) for case in cases]
    asked = [case for case, one in zip(cases, applies, strict=True) if one]
    found = iter(measure.all_seen(asked))
    seen = tuple(next(found) if one else None for one in applies)
    known = [one for one in seen if one is not None]
    told = [case for case, one in zip(cases, seen, strict=True) if one is not None]
    failed = sum(isinstance(case.result, Failure) for case in told)
    return Measured(
        str(measure),
        measure.total(known) if known else None,
        len(known),
        failed,
        len(asked) - len(known),
        len(cases) - len(asked),
        seen,
    )
