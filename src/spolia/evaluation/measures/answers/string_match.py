"""Answers compared with accepted ones as strings: EM, accuracy, F1, PrefRAG-Avg, AnswerHit."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from spolia.core.patterns import NO_PATTERN
from spolia.core.run_context import check_cancelled
from spolia.errors import MeasureError
from spolia.evaluation.measures.answers.answer_text import (
    TOKENISERS,
    AnswerMeasure,
    WordMeasure,
    checked_words,
    normalised,
    unanswerable,
)
from spolia.evaluation.measures.measure import Measure, Result, checked_item
from spolia.evaluation.measures.rank_measures import harmonic
from spolia.evaluation.measures.retrieval_measure import checked_k
from spolia.types import Answer, Item
from spolia.worker_process import Died, pattern_matches


@dataclass(frozen=True)
class ExactMatch(WordMeasure):
    """1 if the answer has exactly the words of an accepted one, else 0.

    Args:
        rule: `squad2`: questions of the type `unanswerable` are asked too, and the right answer is to abstain.
            `regex`: an accepted answer is a regular expression, as in CuratedTREC, that all of the answer must match,
            after SQuAD's normalisation and whatever its case.

    Source: Rajpurkar et al. 2016 (SQuAD); the rules: Rajpurkar et al. 2018 (SQuAD 2.0), Jin et al. 2024 (FlashRAG).

    >>> str(ExactMatch()), ExactMatch().of("The Moon!", ["the sun", "moon"])
    ('EM', 1.0)
    """

    rule: str = ""

    called: ClassVar[str] = "EM"
    rules: ClassVar[tuple[str, ...]] = ("squad2", "regex")

    def applies(self, item: Item) -> bool:
        return bool(item.answers) or (self.rule == "squad2" and unanswerable(item))

    def of(self, text: str, answers: Sequence[str]) -> float:
        if self.rule == "regex":
            return float(any(_matches(answer, normalised(text)) for answer in answers))
        return super().of(text, answers)

    def against(self, found: list[str], gold: list[str]) -> float:
        return float(found == gold)


_MATCH_S = 5.0


def _is_match(pattern: re.Pattern[str], method: str, text: str) -> bool:
    """Whether a data set's pattern matches."""
    try:
        return pattern_matches(pattern, method, text, _MATCH_S)
    except Died as died:
        check_cancelled()
        raise MeasureError(
            f"The regular expression {pattern.pattern!r:.200} of an accepted answer {died} on {text!r:.60}. Write one "
            "without a repetition within a repetition."
        ) from died


def _matches(pattern: str, text: str) -> bool:
    try:
        return _is_match(re.compile(pattern, re.IGNORECASE), "fullmatch", text)
    except NO_PATTERN as error:
        raise MeasureError(
            f"The accepted answer {pattern!r:.200} is not a regular expression: {error}. Mend it, or write EM without "
            "its rule."
        ) from error


@dataclass(frozen=True)
class Accuracy(WordMeasure):
    """1 if the words of an accepted answer occur in the answer, in a row, else 0.

    Args:
        rule: three published variants that look for characters, not words. `flashrag`: after SQuAD's normalisation.
            `prefrag`: lower-cased only, so that "no" is in "not known", and 1974 in 19740. `bioasq`: the accepted
            answer, as a regular expression between word boundaries, so that "yes or no" is right for both.

    Source: the rules: Jin et al. 2024 (FlashRAG), Zhao et al. 2024 (PrefRAG) and its script for BioASQ.

    >>> str(Accuracy()), Accuracy().of("Not known.", ["no"]), Accuracy(rule="prefrag").of("Not known.", ["no"])
    ('Acc', 0.0, 1.0)
    """

    rule: str = ""

    called: ClassVar[str] = "Acc"
    rules: ClassVar[tuple[str, ...]] = ("flashrag", "prefrag", "bioasq")

    def of(self, text: str, answers: Sequence[str]) -> float:
        if self.rule == "flashrag":
            found = normalised(text)
            return float(any(normalised(answer) in found for answer in answers))
        if self.rule == "prefrag":
            return float(any(answer.lower() in text.lower() for answer in answers))
        if self.rule == "bioasq":
            return float(any(_stands_in(answer.lower(), text.lower()) for answer in answers))
        return super().of(text, answers)

    def against(self, found: list[str], gold: list[str]) -> float:
        return float(holds(found, gold))


def holds(found: Sequence[str], wanted: Sequence[str]) -> bool:
    """Whether some words, one at least, stand among others in a row.

    >>> holds(["it", "opened", "in", "1974"], ["in", "1974"]), holds(["19740"], ["1974"]), holds(["1974"], [])
    (True, False, False)
    """
    return bool(wanted) and f" {' '.join(wanted)} " in f" {' '.join(found)} "


def _stands_in(pattern: str, text: str) -> bool:
    try:
        return _is_match(re.compile(rf"\b{pattern}\b"), "search", text)
    except NO_PATTERN:
        return re.search(rf"\b{re.escape(pattern)}\b", text) is not None


_CLOSED = (["yes"], ["no"], ["noanswer"])


@dataclass(frozen=True)
class F1(WordMeasure):
    """Overlap of words: harmonic mean of the share of the answer's words that the gold has, and the reverse.

    Words are counted as often as they occur in both. The best over the accepted answers. No overlap is 0, also where
    both are empty.

    Args:
        rule: `squad2`: two empty texts score 1, and questions of the type `unanswerable` are asked too, whose right
            answer is to abstain. `hotpotqa`: 0 where one side is yes, no or noanswer and the other is not the same.

    Source: Rajpurkar et al. 2016 (SQuAD); the rules: Rajpurkar et al. 2018 (SQuAD 2.0), Yang et al. 2018 (HotpotQA).

    >>> str(F1(rule="hotpotqa")), F1().of("Yes, it was.", ["yes"]), F1(rule="hotpotqa").of("Yes, it was.", ["yes"])
    ('F1(rule="hotpotqa")', 0.5, 0.0)
    """

    rule: str = ""

    called: ClassVar[str] = "F1"
    rules: ClassVar[tuple[str, ...]] = ("squad2", "hotpotqa")

    def applies(self, item: Item) -> bool:
        return bool(item.answers) or (self.rule == "squad2" and unanswerable(item))

    def against(self, found: list[str], gold: list[str]) -> float:
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


@dataclass(frozen=True)
class PrefRAGAverage(AnswerMeasure):
    """Mean of `Acc(rule="prefrag")`, `F1` and `EM`.

    Source: Zhao et al. 2024 (PrefRAG), the column Avg.

    >>> str(PrefRAGAverage()), PrefRAGAverage().of("in Paris", ["Paris"])  # (1 + 2/3 + 0) / 3
    ('PrefRAG-Avg', 0.5555555555555555)
    """

    called: ClassVar[str] = "PrefRAG-Avg"

    def of(self, text: str, answers: Sequence[str]) -> float:
        parts = (Accuracy(rule="prefrag"), F1(), ExactMatch())
        return sum(part.of(text, answers) for part in parts) / len(parts)


@dataclass(frozen=True)
class AnswerHit(Measure):
    """1 if the words of an accepted answer stand, in a row, in one of the first k passages, else 0.

    It needs no gold passages, and says less: the words may occur by chance. FlashRAG reports it as recall.

    Args:
        k: how many places to look at.
        words: how a text is cut into words (`spolia.evaluation.measures.answers.answer_text`); `unicode` for any
            script.

    Source: Chen et al. 2017 (DrQA) and Karpukhin et al. 2020 (DPR), top-k accuracy.

    >>> from spolia.types import Hit, Item, Node, Query, Ranking
    >>> found = Ranking(Query("?"), (Hit(Node("n1", "He worked for Nokia."), 1.0),))
    >>> str(AnswerHit(5)), AnswerHit(5).score(found, Item("q", "?", answers=("nokia",)))
    ('AnswerHit@5', 1.0)
    """

    k: int = 10
    words: str = "squad"

    called: ClassVar[str] = "AnswerHit"

    def __post_init__(self) -> None:
        checked_k(self.k)
        checked_words(self.called, self.words)

    def applies(self, item: Item) -> bool:
        return bool(item.answers)

    def score(self, result: Result, item: Item) -> float:
        checked_item(self, item)
        ranking = result.evidence if isinstance(result, Answer) else result
        if ranking is None:
            raise MeasureError("An Answer without evidence holds no passages. Measure the Ranking before it.")
        cut = TOKENISERS[self.words]
        texts, answers = [cut(node.shown_text) for node in ranking.cut(self.k).nodes], list(map(cut, item.answers))
        return float(any(holds(text, answer) for text in texts for answer in answers))
