"""Measures of whether a flow knows which questions it cannot answer."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from math import inf, isnan
from operator import itemgetter
from typing import ClassVar

from spolia.errors import MeasureError
from spolia.evaluation.measures.answers.answer_text import is_unanswerable, require_answer
from spolia.evaluation.measures.answers.string_match import ExactMatch
from spolia.evaluation.measures.measure import Case, Measure, Observation, Result, SetMeasure
from spolia.types import Answer, Failure, Item


@dataclass(frozen=True)
class TopScore(Measure):
    """The highest score among the passages found, in the units of the flow's last retriever or reranker.

    It needs no gold and says nothing about quality by itself; it is what `AURC` orders answers by. Without a passage it
    is -inf.

    >>> from spolia.types import Hit, Node, Query, Ranking
    >>> str(TopScore()), TopScore().score(Ranking(Query("?"), (Hit(Node("n", ""), 3.5),)), Item("q", "?"))
    ('TopScore', 3.5)
    """

    notation: ClassVar[str] = "TopScore"
    range: ClassVar[tuple[float, float]] = (-inf, inf)

    def applies(self, item: Item) -> bool:
        return True

    def score(self, result: Result, item: Item) -> float:
        ranking = result.evidence if isinstance(result, Answer) else result
        return max((hit.score for hit in ranking.hits), default=-inf) if ranking is not None else -inf


EXACT = ExactMatch()


def check_measure(notation: str, quality: object, *parts: object) -> None:
    """Raise MeasureError for a part that does not score single answers, or for a quality that is no share."""
    for part in (quality, *parts):
        if not isinstance(part, Measure):
            raise MeasureError(
                f"{notation} cannot be made of {part}. Write a measure of one answer, as in {notation}(of=F1)."
            )
    if isinstance(quality, Measure) and quality.range != (0.0, 1.0):
        raise MeasureError(
            f"{notation} cannot be made of {quality}, which is not a number from 0 to 1. Write {notation}(of=F1)."
        )


@dataclass(frozen=True)
class Coverage(Measure):
    """Share of the questions that are answered: neither abstained nor failed.

    Source: El-Yaniv and Wiener 2010.

    >>> from spolia.types import Answer
    >>> str(Coverage()), Coverage().score(Answer("I do not know.", stop_reason="abstained"), Item("q", "?"))
    ('Coverage', 0.0)
    """

    notation: ClassVar[str] = "Coverage"

    def applies(self, item: Item) -> bool:
        return True

    def score(self, result: Result, item: Item) -> float:
        return float(not require_answer(result).abstained)


@dataclass(frozen=True)
class _RiskMeasure(SetMeasure):
    """Measure of risk: how wrong answers are, from the score of each."""

    of: Measure = EXACT

    lower_is_better: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_measure(self.notation, self.of, getattr(self, "by", self.of))

    def applies(self, item: Item) -> bool:
        return self.of.applies(item)

    def observe(self, case: Case) -> Observation | None:
        return self.observe_all([case])[0]


@dataclass(frozen=True)
class SelectiveRisk(_RiskMeasure):
    """Risk of the answered questions: 1 - mean of a measure over what is neither abstained nor failed.

    Read it beside `Coverage`: who answers one question, and that right, has no risk. Nothing answered: not defined.

    Args:
        of: how good an answer is, from 0 to 1.

    Source: El-Yaniv and Wiener 2010.

    >>> from spolia.types import Answer
    >>> asked = Item("q", "?", answers=("Nokia",))
    >>> given = [Answer("Nokia"), Answer("?"), Answer("I do not know.", stop_reason="abstained")]
    >>> measure = SelectiveRisk()
    >>> str(measure), measure.total([measure.observe(Case(asked, answer)) for answer in given])
    ('Risk', 0.5)
    """

    notation: ClassVar[str] = "Risk"
    additive: ClassVar[bool] = True

    def observe_all(self, cases: Sequence[Case]) -> list[Observation | None]:
        """Return for each case whether it was answered, and how well."""
        scores = iter(self.of.observe_all([case for case in cases if is_answered(case)]))
        pairs = ((1.0, next(scores)) if is_answered(case) else (0.0, (0.0,)) for case in cases)
        # Without a score an answered question stays undetermined, here too.
        return [score and (weight, *score) for weight, score in pairs]

    def total(self, observations: Sequence[Observation]) -> float | None:
        answer_count = sum(weight for weight, _ in observations)
        return 1 - sum(score for _, score in observations) / answer_count if answer_count else None


def is_answered(case: Case) -> bool:
    """Return whether a flow neither abstained nor failed."""
    return not isinstance(case.result, Failure) and not require_answer(case.result).abstained


@dataclass(frozen=True)
class AbstentionF1(SetMeasure):
    """F1 of abstaining: of the abstentions, how many were right; of the unanswerable questions, how many were left.

    F1 = 2·tp / (2·tp + fp + fn): tp unanswerable and abstained, fp answerable and abstained, fn unanswerable and not. A
    failure is no abstention. Items are unanswerable by their type, `unanswerable`; others need an answer in their gold.
    Without an unanswerable question and without an abstention it is not defined.

    Source: the no-answer class of SQuAD 2.0 (Rajpurkar et al. 2018), measured by F1.

    >>> from spolia.types import Answer
    >>> case = Case(Item("q", "?", type="unanswerable"), Answer("No passage says so.", stop_reason="abstained"))
    >>> str(AbstentionF1()), AbstentionF1().total([AbstentionF1().observe(case), (0.0, 0.0, 1.0)])
    ('AbstentionF1', 0.6666666666666666)
    """

    notation: ClassVar[str] = "AbstentionF1"
    additive: ClassVar[bool] = True

    def applies(self, item: Item) -> bool:
        return is_unanswerable(item) or bool(item.answers)

    def observe(self, case: Case) -> Observation:
        """Return whether the case is a true positive, a false positive and a false negative."""
        must_abstain = is_unanswerable(case.item)
        abstains = not isinstance(case.result, Failure) and require_answer(case.result).abstained
        return (
            float(must_abstain and abstains),
            float(abstains and not must_abstain),
            float(must_abstain and not abstains),
        )

    def total(self, observations: Sequence[Observation]) -> float | None:
        true, false, missed = (sum(column) for column in zip(*observations, strict=True))
        return 2 * true / (2 * true + false + missed) if true + false + missed else None


TOP = TopScore()


@dataclass(frozen=True)
class AURC(_RiskMeasure):
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

    by: Measure = TOP

    notation: ClassVar[str] = "AURC"

    def observe_all(self, cases: Sequence[Case]) -> list[Observation | None]:
        """Return the confidence and the score of each case."""
        scores = self.of.observe_all(cases)
        return [score and (self._confidence(case), *score) for case, score in zip(cases, scores, strict=True)]

    def total(self, observations: Sequence[Observation]) -> float:
        return sum(risk for _, risk in risk_coverage(observations)) / len(observations)

    def curve(self, observations: Sequence[Observation]) -> list[tuple[float, float]]:
        """Return coverage and risk up to the last answer; an abstention or a failure covers nothing."""
        answer_count = sum(confidence > -inf for confidence, _ in observations)
        # Abstentions and failures have the confidence -inf, so they come last in the order of the curve.
        return risk_coverage(observations)[:answer_count]

    def _confidence(self, case: Case) -> float:
        if isinstance(case.result, Failure) or (isinstance(case.result, Answer) and case.result.abstained):
            return -inf
        confidence = self.by.score(case.result, case.item)
        # An answer of unknown confidence comes last.
        return -inf if confidence is None or isnan(confidence) else float(confidence)


def risk_coverage(observations: Sequence[Observation]) -> list[tuple[float, float]]:
    """Return the share of answers and their risk, for 1 to all of them in the order of their confidence.

    >>> risk_coverage([(0.1, 0.0), (0.9, 1.0)])
    [(0.5, 0.0), (1.0, 0.5)]
    >>> risk_coverage([(0.5, 0.0), (0.5, 1.0)])
    [(0.5, 0.5), (1.0, 0.5)]
    """
    points: list[tuple[float, float]] = []
    score_sum = 0.0
    # Equally confident answers share their mean score, so the curve does not depend on the order of ties.
    for _, ties in groupby(sorted(observations, key=itemgetter(0), reverse=True), key=itemgetter(0)):
        scores = [score for _, score in ties]
        mean_score = sum(scores) / len(scores)
        for _ in scores:
            score_sum += mean_score
            count = len(points) + 1
            points.append((count / len(observations), 1 - score_sum / count))
    return points
