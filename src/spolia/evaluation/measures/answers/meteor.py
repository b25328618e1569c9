"""METEOR without synonyms."""

from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

from spolia.errors import MeasureError
from spolia.evaluation.measures.answers.answer_text import TOKENISERS, AnswerMeasure, checked_words
from spolia.stores.lexical.analysis import Analyzer

Pairs = dict[int, int]


@dataclass(frozen=True)
class Meteor(AnswerMeasure):
    """Words aligned one to one with a reference, exact ones first, then stems, less a penalty for scattered ones.

    P = aligned / words of the answer, R = aligned / words of the reference, F = P·R / (alpha·P + (1 - alpha)·R),
    penalty = gamma · (chunks / aligned)^beta, METEOR = F · (1 - penalty); a chunk is a run of words aligned in the
    same order. The best over the accepted answers.

    The published measure has a third stage, synonyms from WordNet, which is no part of this package; so the name says
    that it is another number. A word with several places in the reference takes the one that goes on with its chunk,
    else one where the next word matches too, else the first; a search over all alignments may find fewer chunks.

    Args:
        alpha, beta, gamma: as above.
        words: how a text is cut into words.
        stem: language of the stemmer (`spolia.stores.lexical.analysis.STEMMERS`); empty for exact words alone.

    Source: Banerjee and Lavie 2005; parameters of Lavie and Agarwal 2007 as nltk has them.

    >>> str(Meteor()), round(Meteor().of("the cats sat", ["the cat sat down"]), 4)  # F = 10/13, one chunk of 3
    ('METEOR-no-synonyms', 0.755)
    """

    alpha: float = 0.9
    beta: float = 3.0
    gamma: float = 0.5
    words: str = "unicode"
    stem: str = "english"

    called: ClassVar[str] = "METEOR-no-synonyms"

    def __post_init__(self) -> None:
        checked_words(self.called, self.words)
        if not (0 < self.alpha < 1 and 0 <= self.gamma <= 1 and self.beta >= 0):
            raise MeasureError(f"{self} has a parameter out of range. Write 0 < alpha < 1, 0 <= gamma <= 1, beta >= 0.")

    def of(self, text: str, answers: Sequence[str]) -> float:
        cut = TOKENISERS[self.words]
        found = cut(text)
        return max(self._against(found, cut(answer)) for answer in answers)

    def _against(self, found: list[str], gold: list[str]) -> float:
        stages = (str, _stemmer(self.stem)) if self.stem else (str,)
        pairs = aligned(found, gold, stages)
        if not pairs:
            return 0.0
        precision, recall = len(pairs) / len(found), len(pairs) / len(gold)
        f = precision * recall / (self.alpha * precision + (1 - self.alpha) * recall)
        return float(f * (1 - self.gamma * (chunks(pairs) / len(pairs)) ** self.beta))


def aligned(found: Sequence[str], gold: Sequence[str], stages: Sequence[Callable[[str], str]]) -> Pairs:
    """The place in the gold of each aligned word; each stage aligns what the ones before have left.

    >>> aligned(["a", "b", "a", "c"], ["a", "x", "a", "c"], [str])
    {0: 0, 2: 2, 3: 3}
    """
    pairs: Pairs = {}
    taken: set[int] = set()
    for form in stages:
        words, free = [form(word) for word in found], _Free([form(word) for word in gold], taken)
        for at, word in enumerate(words):
            if at not in pairs:
                place = free.take(word, words[at + 1] if at + 1 < len(words) else "", pairs.get(at - 1, -2) + 1)
                if place is not None:
                    pairs[at] = place
    return pairs


class _Free:
    """The places of the gold that are not taken, by word and by pair of words; each is looked at a few times."""

    def __init__(self, gold: Sequence[str], taken: set[int]) -> None:
        self.gold, self.taken = gold, taken
        self.places: dict[tuple[str, ...], deque[int]] = defaultdict(deque)
        for place, word in enumerate(gold):
            self.places[(word,)].append(place)
        for place, pair in enumerate(pairwise(gold)):
            self.places[pair].append(place)

    def take(self, word: str, following: str, after: int) -> int | None:
        """Take the place that goes on with the chunk, or begins one of two words at least, or is the first."""
        if (word,) not in self.places:
            return None
        if 0 <= after < len(self.gold) and after not in self.taken and self.gold[after] == word:
            place: int | None = after
        else:
            place = self._first((word, following))
            place = self._first((word,)) if place is None else place
        if place is not None:
            self.taken.add(place)
        return place

    def _first(self, words: tuple[str, ...]) -> int | None:
        queue = self.places.get(words, deque())
        while queue and queue[0] in self.taken:
            queue.popleft()
        return queue[0] if queue else None


def chunks(pairs: Pairs) -> int:
    """Runs of words that are next to each other on both sides.

    >>> chunks({0: 0, 2: 2, 3: 3})
    2
    """
    return sum(pairs.get(at - 1, -2) + 1 != place for at, place in pairs.items())


def _stemmer(language: str) -> Callable[[str], str]:
    """Stems, each distinct word once."""
    analyzer, known = Analyzer(stem=language), dict[str, str]()

    def stem(word: str) -> str:
        if word not in known:
            known[word] = " ".join(analyzer.terms(word)) or word
        return known[word]

    return stem
