"""Risk and coverage, whatever the threshold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from math import inf, isnan
from operator import itemgetter
from typing import ClassVar

from spolia.evaluation.measures.abstention.coverage import EXACT, checked_measure
from spolia.evaluation.measures.abstention.top_score import TopScore
from spolia.evaluation.measures.measure import Case, Measure, Seen, SetMeasure
from spolia.types import Answer, Failure, Item

TOP = TopScore()


@dataclass(frozen=True)
class AURC(SetMeasure):
    """Area under the risk-coverage curve; lower is better.

    Answers are taken in the order of a confidence, highest first: risk(i) = 1 - mean of a measure over the first i,
    AURC = mean of risk(i) over i = 1..n. Where several are equally sure, the mean over all their orders is taken, so
    that without any confidence (all scores equal) AURC is the risk of all. An abstention or a failure comes last, and
    scores 0 unless the measure says otherwise.

    Args:
        of: how good an answer is, from 0 to 1.
        by: how sure the flow is; any measure that needs no gold.

    Source: Geifman, Uziel and El-Yaniv 2019; the curve: El-Yaniv and Wiener 2010.

    >>> str(AURC()), round(AURC().total([(0.9, 1.0), (0.8, 0.0), (0.7, 1.0)]), 4)  # (0 + 1/2 + 1/3) / 3
    ('AURC', 0.2778)
    """

    of: Measure = EXACT
    by: Measure = TOP

    called: ClassVar[str] = "AURC"
    lower_is_better: ClassVar[bool] = True

    def __post_init__(self) -> None:
        checked_measure(self.called, self.of, self.by)

    def applies(self, item: Item) -> bool:
        return self.of.applies(item)

    def seen(self, case: Case) -> Seen | None:
        """Confidence and score."""
        return self.all_seen([case])[0]

    def all_seen(self, cases: Sequence[Case]) -> list[Seen | None]:
        scores = self.of.all_seen(cases)
        return [score and (self._confidence(case), *score) for case, score in zip(cases, scores, strict=True)]

    def total(self, seen: Sequence[Seen]) -> float:
        return sum(risk for _, risk in risk_coverage(seen)) / len(seen)

    def curve(self, seen: Sequence[Seen]) -> list[tuple[float, float]]:
        """Coverage and risk, as far as the flow answers: an abstention or a failure covers nothing."""
        answered = sum(confidence > -inf for confidence, _ in seen)
        return risk_coverage(seen)[:answered]

    def _confidence(self, case: Case) -> float:
        if isinstance(case.result, Failure) or (isinstance(case.result, Answer) and case.result.abstained):
            return -inf
        found = self.by.score(case.result, case.item)
        return -inf if found is None or isnan(found) else float(found)


def risk_coverage(seen: Sequence[Seen]) -> list[tuple[float, float]]:
    """The curve: share of the answers taken, and the risk of these, for 1 to all of them.

    Args:
        seen: confidence and score of each answer.

    >>> risk_coverage([(0.1, 0.0), (0.9, 1.0)])
    [(0.5, 0.0), (1.0, 0.5)]
    >>> risk_coverage([(0.5, 0.0), (0.5, 1.0)])
    [(0.5, 0.5), (1.0, 0.5)]
    """
    found: list[tuple[float, float]] = []
    right = 0.0
    for _, tied in groupby(sorted(seen, key=itemgetter(0), reverse=True), key=itemgetter(0)):
        scores = [score for _, score in tied]
        each = sum(scores) / len(scores)
        for _ in scores:
            right += each
            taken = len(found) + 1
            found.append((taken / len(seen), 1 - right / taken))
    return found
