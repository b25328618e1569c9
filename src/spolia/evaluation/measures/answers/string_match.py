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
    check_tokeniser,
    is_unanswerable,
    normalise,
)
from spolia.evaluation.measures.measure import Measure, Result, check_item
from spolia.evaluation.measures.rank_measures import harmonic_mean
from spolia.evaluation.measures.retrieval_measure import check_k
from spolia.types import Answer, Item
from spolia.worker_process import WorkerDied, pattern_matches


@dataclass(frozen=True)
class ExactMatch(WordMeasure):
    """1 if the answer has exactly the words of an accepted one, else 0.

    Args:
        rule: `squad2`: questions of the type `unanswerable` are asked too, and the right answer is to abstain.
            `regex`: an accepted answer is a regular expression, as in CuratedTREC, that all of the answer must match,
            after SQuAD's normalisation and whatever its case.

    Source: Rajpurkar et al. 2016 (SQuAD); the rules: Rajpurkar et al. 2018 (SQuAD 2.0), Jin et al. 2024 (FlashRAG).

    >>> str(ExactMatch()), ExactMatch().score_text("The Moon!", ["the sun", "moon"])
    ('EM', 1.0)
    """

    rule: str = ""

    notation: ClassVar[str] = "EM"
    rules: ClassVar[tuple[str, ...]] = ("squad2", "regex")

    def applies(self, item: Item) -> bool:
        return bool(item.answers) or (self.rule == "squad2" and is_unanswerable(item))

    def score_text(self, text: str, answers: Sequence[str]) -> float:
        if self.rule == "regex":
            return float(any(_matches_whole_text(answer, normalise(text)) for answer in answers))
        return super().score_text(text, answers)

    def score_words(self, answer: list[str], gold: list[str]) -> float:
        return float(answer == gold)


# A data set's pattern may backtrack without end: a worker process matches it, and is stopped after this.
_MATCH_S = 5.0


def _is_match(pattern: re.Pattern[str], method: str, text: str) -> bool:
    """Return whether a data set's pattern matches, within a time limit."""
    try:
        return pattern_matches(pattern, method, text, _MATCH_S)
    except WorkerDied as died:
        # A cancelled run also stops the worker: then it is the run that ends, not the pattern that fails.
        check_cancelled()
        raise MeasureError(
            f"The regular expression {pattern.pattern!r:.200} of an accepted answer {died} on {text!r:.60}. Write one "
            "without a repetition within a repetition."
        ) from died


def _matches_whole_text(pattern: str, text: str) -> bool:
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

    >>> str(Accuracy()), Accuracy().score_text("Not known.", ["no"])
    ('Acc', 0.0)
    >>> Accuracy(rule="prefrag").score_text("Not known.", ["no"])
    1.0
    """

    rule: str = ""

    notation: ClassVar[str] = "Acc"
    rules: ClassVar[tuple[str, ...]] = ("flashrag", "prefrag", "bioasq")

    def score_text(self, text: str, answers: Sequence[str]) -> float:
        if self.rule == "flashrag":
            plain_text = normalise(text)
            return float(any(normalise(answer) in plain_text for answer in answers))
        if self.rule == "prefrag":
            return float(any(answer.lower() in text.lower() for answer in answers))
        if self.rule == "bioasq":
            return float(any(_contains_pattern(answer.lower(), text.lower()) for answer in answers))
        return super().score_text(text, answers)

    def score_words(self, answer: list[str], gold: list[str]) -> float:
        return float(contains_phrase(answer, gold))


def contains_phrase(words: Sequence[str], phrase: Sequence[str]) -> bool:
    """Return whether a phrase of one word at least stands among words in a row.

    >>> contains_phrase(["it", "opened", "in", "1974"], ["in", "1974"])
    True
    >>> contains_phrase(["19740"], ["1974"]), contains_phrase(["1974"], [])
    (False, False)
    """
    # Blanks around both keep a word from matching inside a longer one.
    return bool(phrase) and f" {' '.join(phrase)} " in f" {' '.join(words)} "


def _contains_pattern(pattern: str, text: str) -> bool:
    try:
        return _is_match(re.compile(rf"\b{pattern}\b"), "search", text)
    except NO_PATTERN:
        # An accepted answer such as "C++" is no regular expression; look for its characters.
        return re.search(rf"\b{re.escape(pattern)}\b", text) is not None


# HotpotQA's script gives no credit for other words beside one of these.
_CLOSED_ANSWERS = (["yes"], ["no"], ["noanswer"])


@dataclass(frozen=True)
class F1(WordMeasure):
    """Overlap of words: harmonic mean of the share of the answer's words that the gold has, and the reverse.

    Words are counted as often as they occur in both. The best over the accepted answers. No overlap is 0, also where
    both are empty.

    Args:
        rule: `squad2`: two empty texts score 1, and questions of the type `unanswerable` are asked too, whose right
            answer is to abstain. `hotpotqa`: 0 where one side is yes, no or noanswer and the other is not the same.

    Source: Rajpurkar et al. 2016 (SQuAD); the rules: Rajpurkar et al. 2018 (SQuAD 2.0), Yang et al. 2018 (HotpotQA).

    >>> strict = F1(rule="hotpotqa")
    >>> str(strict), F1().score_text("Yes, it was.", ["yes"]), strict.score_text("Yes, it was.", ["yes"])
    ('F1(rule="hotpotqa")', 0.5, 0.0)
    """

    rule: str = ""

    notation: ClassVar[str] = "F1"
    rules: ClassVar[tuple[str, ...]] = ("squad2", "hotpotqa")

    def applies(self, item: Item) -> bool:
        return bool(item.answers) or (self.rule == "squad2" and is_unanswerable(item))

    def score_words(self, answer: list[str], gold: list[str]) -> float:
        if self.rule == "squad2" and not (answer and gold):
            return float(answer == gold)
        if self.rule == "hotpotqa" and answer != gold and (answer in _CLOSED_ANSWERS or gold in _CLOSED_ANSWERS):
            return 0.0
        return overlap(answer, gold)


def overlap(words: Sequence[str], gold: Sequence[str]) -> float:
    """Return the F1 of two multisets of words.

    >>> overlap(["a", "a", "b"], ["a", "b", "c"])
    0.6666666666666666
    """
    shared = (Counter(words) & Counter(gold)).total()
    return harmonic_mean(shared / len(words), shared / len(gold)) if shared else 0.0


@dataclass(frozen=True)
class PrefRAGAverage(AnswerMeasure):
    """Mean of `Acc(rule="prefrag")`, `F1` and `EM`.

    Source: Zhao et al. 2024 (PrefRAG), the column Avg.

    >>> str(PrefRAGAverage()), PrefRAGAverage().score_text("in Paris", ["Paris"])  # (1 + 2/3 + 0) / 3
    ('PrefRAG-Avg', 0.5555555555555555)
    """

    notation: ClassVar[str] = "PrefRAG-Avg"

    def score_text(self, text: str, answers: Sequence[str]) -> float:
        parts = (Accuracy(rule="prefrag"), F1(), ExactMatch())
        return sum(part.score_text(text, answers) for part in parts) / len(parts)


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

    notation: ClassVar[str] = "AnswerHit"

    def __post_init__(self) -> None:
        check_k(self.k)
        check_tokeniser(self.notation, self.words)

    def applies(self, item: Item) -> bool:
        return bool(item.answers)

    def score(self, result: Result, item: Item) -> float:
        check_item(self, item)
        ranking = result.evidence if isinstance(result, Answer) else result
        if ranking is None:
            raise MeasureError("An Answer without evidence holds no passages. Measure the Ranking before it.")
        tokenise = TOKENISERS[self.words]
        texts, answers = (
            [tokenise(node.shown_text) for node in ranking.cut(self.k).nodes],
            list(map(tokenise, item.answers)),
        )
        return float(any(contains_phrase(text, answer) for text in texts for answer in answers))
