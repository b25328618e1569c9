"""Whether a flow knows what it cannot answer."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from math import inf, isnan
from operator import itemgetter
from typing import ClassVar

from spolia.errors import MeasureError
from spolia.evaluation.measures.answers.answer_text import answer_in, unanswerable
from spolia.evaluation.measures.answers.string_match import ExactMatch
from spolia.evaluation.measures.measure import Case, Measure, Result, Seen, SetMeasure
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

    called: ClassVar[str] = "TopScore"
    range: ClassVar[tuple[float, float]] = (-inf, inf)

    def applies(self, item: Item) -> bool:
        return True

    def score(self, result: Result, item: Item) -> float:
        ranking = result.evidence if isinstance(result, Answer) else result
        return max((hit.score for hit in ranking.hits), default=-inf) if ranking is not None else -inf


EXACT = ExactMatch()


def checked_measure(called: str, of: object, *parts: object) -> None:
    """Raise for a part without a score for each question, and for a risk of something that is not a share."""
    for part in (of, *parts):
        if not isinstance(part, Measure):
            raise MeasureError(
                f"{called} cannot be made of {part}. Write a measure of one answer, as in {called}(of=F1)."
            )
    if isinstance(of, Measure) and of.range != (0.0, 1.0):
        raise MeasureError(
            f"{called} cannot be made of {of}, which is not a number from 0 to 1. Write {called}(of=F1)."
        )


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
class _RiskMeasure(SetMeasure):
    """A measure of how wrong answers are, by how good each is."""

    of: Measure = EXACT

    lower_is_better: ClassVar[bool] = True

    def __post_init__(self) -> None:
        checked_measure(self.called, self.of, getattr(self, "by", self.of))

    def applies(self, item: Item) -> bool:
        return self.of.applies(item)

    def seen(self, case: Case) -> Seen | None:
        return self.all_seen([case])[0]


@dataclass(frozen=True)
class SelectiveRisk(_RiskMeasure):
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

    called: ClassVar[str] = "Risk"
    additive: ClassVar[bool] = True

    def all_seen(self, cases: Sequence[Case]) -> list[Seen | None]:
        """Whether each was answered, and how well."""
        scores = iter(self.of.all_seen([case for case in cases if answered(case)]))
        pairs = ((1.0, next(scores)) if answered(case) else (0.0, (0.0,)) for case in cases)
        return [score and (one, *score) for one, score in pairs]

    def total(self, seen: Sequence[Seen]) -> float | None:
        answered = sum(one for one, _ in seen)
        return 1 - sum(score for _, score in seen) / answered if answered else None


def answered(case: Case) -> bool:
    """Whether a flow neither abstained nor failed."""
    return not isinstance(case.result, Failure) and not answer_in(case.result).abstained


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

    called: ClassVar[str] = "AURC"

    def all_seen(self, cases: Sequence[Case]) -> list[Seen | None]:
        """Confidence and score of each."""
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
    """The curve from each answer's confidence and score: share of answers taken and their risk, for 1 to all of them.

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
