"""METEOR without synonyms."""

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

from spolia.errors import MeasureError
from spolia.evaluation.measures.answers.answer_text import TOKENISERS, AnswerMeasure, checked_words
from spolia.stores.lexical.analysis import Analyzer

Alignment = dict[int, int]


@dataclass(frozen=True)
class Meteor(AnswerMeasure):
    """Words aligned one to one with a reference, exact ones first, then stems, less a penalty for scattered ones.

    P = aligned / words of the answer, R = aligned / words of the reference, F = P·R / (alpha·P + (1 - alpha)·R),
    penalty = gamma · (chunks / aligned)^beta, METEOR = F · (1 - penalty); a chunk is a run of words aligned in the
    same order. The best over the accepted answers.

    Of the largest alignments the one with the fewest chunks counts. If a search of 200,000 steps cannot prove it, the
    question is undetermined: 1 of 40 pairs of texts of 300 words drawn from these pages, most of 800 beside 400.

    The published measure has a third stage, synonyms from WordNet, which this package lacks; so it has another name.
    nltk takes the last place of a word that comes twice, and so finds more chunks.

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

    def of(self, text: str, answers: Sequence[str]) -> float | None:
        cut = TOKENISERS[self.words]
        found = cut(text)
        scores = [self._against(found, cut(answer)) for answer in answers]
        known = [score for score in scores if score is not None]
        return max(known) if len(known) == len(scores) else None

    def _against(self, found: list[str], gold: list[str]) -> float | None:
        size, fewest = fewest_chunks(found, gold, _stemmer(self.stem) if self.stem else str)
        if not size:
            return 0.0
        if fewest is None:
            return None
        precision, recall = size / len(found), size / len(gold)
        f = precision * recall / (self.alpha * precision + (1 - self.alpha) * recall)
        return float(f * (1 - self.gamma * (fewest / size) ** self.beta))


STEPS = 200_000
"""Steps of a search that proves an alignment the best."""


def fewest_chunks(found: Sequence[str], gold: Sequence[str], stem: Callable[[str], str]) -> tuple[int, int | None]:
    """Words of the largest alignments, and chunks of the best of these; None where the search does not prove it.

    The largest aligns as many equal words as there are, and then as many equal stems. Chunks are its words less its
    bonds: pairs of neighbours in the answer that are neighbours in the reference.

    >>> fewest_chunks("the cat and the dog".split(), "the dog and the cat".split(), str)
    (5, 3)
    """
    pairs = aligned(found, gold, (str, stem))
    kept = len(pairs) - chunks(pairs)
    most = _most_bonds(found, gold, stem, kept)
    return len(pairs), None if most is None else len(pairs) - most


def _most_bonds(found: Sequence[str], gold: Sequence[str], stem: Callable[[str], str], least: int) -> int | None:
    """The most bonds of any of the largest alignments, of which one is known that has `least`."""
    stems = [stem(word) for word in found]
    there: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
    for place, pair in enumerate(pairwise(map(stem, gold))):
        there[pair].append(place)
    bigrams, ahead = Counter[tuple[str, str]](), [0] * (len(found) + 1)  # bonds that words from here on may have
    for at in range(len(found) - 2, -1, -1):
        bigrams[pair := (stems[at], stems[at + 1])] += 1
        ahead[at] = ahead[at + 1] + (bigrams[pair] <= len(there.get(pair, ())))
    if least == ahead[0]:
        return least
    if sum(len(there.get(pair, ())) for pair in pairwise(stems)) > STEPS:
        return None
    words, others = Counter(found), Counter(gold)
    left, lacking = words - others, others - words  # words beside the equal ones, which alone may be aligned by stems
    cells: list[set[int]] = [set() for _ in found]
    for at, pair in enumerate(pairwise(stems)):
        for place in there.get(pair, ()):
            if all(
                found[at + n] == gold[place + n] or (left[found[at + n]] and lacking[gold[place + n]]) for n in (0, 1)
            ):
                cells[at].add(place)
                cells[at + 1].add(place + 1)
    later = [0]  # places that words after this one may take
    for row in reversed(cells):
        later.append(later[-1] | sum(1 << place for place in row))
    later.reverse()
    # By the last place, the places taken and the words aligned by stems: the most bonds so far.
    states: dict[tuple[int, int, tuple[str, ...]], int] = {(-2, 0, ()): 0}
    steps = 0
    for at, row in enumerate(cells):
        following: dict[tuple[int, int, tuple[str, ...]], int] = {}
        for (last, taken, spent), bonds in states.items():
            steps += 1 + len(row)
            if steps > STEPS:
                return None
            options = [(-2, taken, spent, bonds)]
            for place in row:
                starts = place != last + 1
                if taken >> place & 1 or (starts and not (at + 1 < len(cells) and place + 1 in cells[at + 1])):
                    continue
                using = spent
                if found[at] != gold[place]:
                    using = tuple(sorted((*spent, f"<{found[at]}", f">{gold[place]}")))
                    if (
                        using.count(f"<{found[at]}") > left[found[at]]
                        or using.count(f">{gold[place]}") > lacking[gold[place]]
                    ):
                        continue
                options.append((place, taken | 1 << place, using, bonds + (not starts)))
            for place, used, using, kept in options:
                if kept + ahead[at] > least:
                    key = place, used & later[at + 1], using
                    following[key] = max(kept, following.get(key, 0))
        states = following
    return max(states.values(), default=least)


def aligned(found: Sequence[str], gold: Sequence[str], stages: Sequence[Callable[[str], str]]) -> Alignment:
    """The place in the gold of each aligned word; each stage aligns what the ones before have left.

    >>> aligned(["a", "b", "a", "c"], ["a", "x", "a", "c"], [str])
    {0: 0, 2: 2, 3: 3}
    """
    pairs: Alignment = {}
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


def chunks(pairs: Alignment) -> int:
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
