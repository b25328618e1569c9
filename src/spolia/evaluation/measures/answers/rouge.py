"""ROUGE: n-grams or the longest common subsequence shared with a reference."""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import ClassVar

from spolia.evaluation.measures.answers.answer import AnswerMeasure
from spolia.evaluation.measures.answers.f1 import overlap
from spolia.evaluation.measures.answers.words import TOKENISERS, checked_words
from spolia.evaluation.measures.sets import harmonic


@dataclass(frozen=True)
class _Rouge(AnswerMeasure):
    """What the three have in common."""

    words: str = "rouge"

    def __post_init__(self) -> None:
        checked_words(self.called, self.words)

    def of(self, text: str, answers: Sequence[str]) -> float:
        cut = TOKENISERS[self.words]
        found = cut(text)
        return max(self.against(found, cut(answer)) for answer in answers)

    @abstractmethod
    def against(self, found: list[str], gold: list[str]) -> float:
        """F of two lists of words."""


@dataclass(frozen=True)
class Rouge1(_Rouge):
    """F1 of the words shared with the reference; the best over the accepted answers. No stemming.

    Args:
        words: how a text is cut into words. ROUGE's own has none in any other script than a-z; write `unicode` there.

    Source: Lin 2004; as the package rouge-score without a stemmer.

    >>> str(Rouge1()), Rouge1().of("the cat sat", ["the cat lay down"])  # P = 2/3, R = 2/4
    ('ROUGE-1', 0.5714285714285715)
    """

    called: ClassVar[str] = "ROUGE-1"

    def against(self, found: list[str], gold: list[str]) -> float:
        return overlap(found, gold)


@dataclass(frozen=True)
class Rouge2(_Rouge):
    """F1 of the pairs of neighbouring words shared with the reference; else as `ROUGE-1`.

    Args:
        words: how a text is cut into words.

    Source: Lin 2004.

    >>> str(Rouge2(words="unicode")), Rouge2().of("the cat sat", ["the cat lay down"])  # P = 1/2, R = 1/3
    ('ROUGE-2(words="unicode")', 0.4)
    """

    called: ClassVar[str] = "ROUGE-2"

    def against(self, found: list[str], gold: list[str]) -> float:
        pairs = [list(zip(words, islice(words, 1, None), strict=False)) for words in (found, gold)]
        shared = (Counter(pairs[0]) & Counter(pairs[1])).total()
        return harmonic(shared / len(pairs[0]), shared / len(pairs[1])) if shared else 0.0


@dataclass(frozen=True)
class RougeL(_Rouge):
    """F1 of the longest common subsequence with the reference; else as `ROUGE-1`.

    Args:
        words: how a text is cut into words.

    Source: Lin 2004, section 3; over whole texts, not by sentence.

    >>> str(RougeL()), RougeL().of("the cat sat down", ["down the cat lay"])  # "the cat": P = R = 2/4
    ('ROUGE-L', 0.5)
    """

    called: ClassVar[str] = "ROUGE-L"

    def against(self, found: list[str], gold: list[str]) -> float:
        shared = common_subsequence(found, gold)
        return harmonic(shared / len(found), shared / len(gold)) if shared else 0.0


def common_subsequence(one: Sequence[str], other: Sequence[str]) -> int:
    """Length of the longest common subsequence, one row of the table in one integer.

    Costs n · m / 64 operations on machine words, so that a text of a million characters does not matter against a short
    reference. Hyyrö 2004, "Bit-parallel LCS-length computation revisited".

    >>> common_subsequence("ABCBDAB", "BDCABA")
    4
    """
    short, long = sorted((one, other), key=len)
    places: dict[str, int] = {}
    for place, word in enumerate(short):
        places[word] = places.get(word, 0) | 1 << place
    row = all_ones = (1 << len(short)) - 1
    for word in long:
        if matched := row & places.get(word, 0):
            row = (row + matched | row - matched) & all_ones
    return len(short) - row.bit_count()
