"""METEOR without synonyms."""

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

from spolia.errors import MeasureError
from spolia.evaluation.measures.answers.answer_text import TOKENISERS, AnswerMeasure, check_tokeniser
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

    >>> str(Meteor()), round(Meteor().score_text("the cats sat", ["the cat sat down"]), 4)  # F = 10/13, one chunk of 3
    ('METEOR-no-synonyms', 0.755)
    """

    alpha: float = 0.9
    beta: float = 3.0
    gamma: float = 0.5
    words: str = "unicode"
    stem: str = "english"

    notation: ClassVar[str] = "METEOR-no-synonyms"

    def __post_init__(self) -> None:
        check_tokeniser(self.notation, self.words)
        if not (0 < self.alpha < 1 and 0 <= self.gamma <= 1 and self.beta >= 0):
            raise MeasureError(f"{self} has a parameter out of range. Write 0 < alpha < 1, 0 <= gamma <= 1, beta >= 0.")

    def score_text(self, text: str, answers: Sequence[str]) -> float | None:
        tokenise = TOKENISERS[self.words]
        words = tokenise(text)
        scores = [self._score_words(words, tokenise(answer)) for answer in answers]
        defined = [score for score in scores if score is not None]
        return max(defined) if len(defined) == len(scores) else None

    def _score_words(self, answer: list[str], gold: list[str]) -> float | None:
        size, chunk_count = fewest_chunks(answer, gold, _stemmer(self.stem) if self.stem else str)
        if not size:
            return 0.0
        if chunk_count is None:
            return None
        precision, recall = size / len(answer), size / len(gold)
        f = precision * recall / (self.alpha * precision + (1 - self.alpha) * recall)
        return float(f * (1 - self.gamma * (chunk_count / size) ** self.beta))


STEPS = 200_000
"""Steps of a search that proves an alignment the best."""


def fewest_chunks(answer: Sequence[str], gold: Sequence[str], stem: Callable[[str], str]) -> tuple[int, int | None]:
    """Count the words of the largest alignments, and the chunks of the best of these; None if the search cannot prove
    it.

    The largest aligns as many equal words as there are, and then as many equal stems. Chunks are its words less its
    bonds: pairs of neighbours in the answer that are neighbours in the reference.

    >>> fewest_chunks("the cat and the dog".split(), "the dog and the cat".split(), str)
    (5, 3)
    """
    pairs = align_words(answer, gold, (str, stem))
    known_bonds = len(pairs) - count_chunks(pairs)
    bonds = _count_most_bonds(answer, gold, stem, known_bonds)
    return len(pairs), None if bonds is None else len(pairs) - bonds


def _count_most_bonds(
    answer: Sequence[str], gold: Sequence[str], stem: Callable[[str], str], known_bonds: int
) -> int | None:
    """Return the most bonds of any of the largest alignments, given that one has `known_bonds`; None if it takes too
    many steps."""
    stems = [stem(word) for word in answer]
    places_of_pair: defaultdict[tuple[str, str], list[int]] = defaultdict(list)
    for place, pair in enumerate(pairwise(map(stem, gold))):
        places_of_pair[pair].append(place)
    bigrams, ahead = Counter[tuple[str, str]](), [0] * (len(answer) + 1)  # bonds that words from here on may have
    for index in range(len(answer) - 2, -1, -1):
        bigrams[pair := (stems[index], stems[index + 1])] += 1
        ahead[index] = ahead[index + 1] + (bigrams[pair] <= len(places_of_pair.get(pair, ())))
    # The known alignment reaches the upper bound: no search is needed.
    if known_bonds == ahead[0]:
        return known_bonds
    # A search would visit each of these places at least once; give up before the tables are built.
    if sum(len(places_of_pair.get(pair, ())) for pair in pairwise(stems)) > STEPS:
        return None
    words, gold_words = Counter(answer), Counter(gold)
    unmatched, unmatched_gold = (
        words - gold_words,
        gold_words - words,
    )  # words beside the equal ones, which alone may be aligned by stems
    cells: list[set[int]] = [set() for _ in answer]
    for index, pair in enumerate(pairwise(stems)):
        for place in places_of_pair.get(pair, ()):
            if all(
                answer[index + n] == gold[place + n]
                or (unmatched[answer[index + n]] and unmatched_gold[gold[place + n]])
                for n in (0, 1)
            ):
                cells[index].add(place)
                cells[index + 1].add(place + 1)
    later_places = [0]  # places that words after this one may take
    for row in reversed(cells):
        later_places.append(later_places[-1] | sum(1 << place for place in row))
    later_places.reverse()
    # By the last place, the places taken and the words aligned by stems: the most bonds so far.
    # -2 + 1 is no place, so that no word continues it.
    states: dict[tuple[int, int, tuple[str, ...]], int] = {(-2, 0, ()): 0}
    steps = 0
    for index, row in enumerate(cells):
        following: dict[tuple[int, int, tuple[str, ...]], int] = {}
        for (last, occupied, stemmed), bonds in states.items():
            steps += 1 + len(row)
            if steps > STEPS:
                return None
            options = [(-2, occupied, stemmed, bonds)]
            for place in row:
                starts = place != last + 1
                if occupied >> place & 1 or (starts and not (index + 1 < len(cells) and place + 1 in cells[index + 1])):
                    continue
                next_stemmed = stemmed
                if answer[index] != gold[place]:
                    next_stemmed = tuple(sorted((*stemmed, f"<{answer[index]}", f">{gold[place]}")))
                    if (
                        next_stemmed.count(f"<{answer[index]}") > unmatched[answer[index]]
                        or next_stemmed.count(f">{gold[place]}") > unmatched_gold[gold[place]]
                    ):
                        continue
                options.append((place, occupied | 1 << place, next_stemmed, bonds + (not starts)))
            for place, used, next_stemmed, bond_count in options:
                # Branch and bound: drop a state that cannot beat the known alignment, and keep the
                # best of equal states.
                if bond_count + ahead[index] > known_bonds:
                    # Places that no later word may take do not tell states apart.
                    key = place, used & later_places[index + 1], next_stemmed
                    following[key] = max(bond_count, following.get(key, 0))
        states = following
    return max(states.values(), default=known_bonds)


def align_words(answer: Sequence[str], gold: Sequence[str], stages: Sequence[Callable[[str], str]]) -> Alignment:
    """Map each aligned word to its place in the gold; each stage aligns what the stages before it left.

    >>> align_words(["a", "b", "a", "c"], ["a", "x", "a", "c"], [str])
    {0: 0, 2: 2, 3: 3}
    """
    pairs: Alignment = {}
    occupied: set[int] = set()
    for form in stages:
        words, free_places = [form(word) for word in answer], _FreePlaces([form(word) for word in gold], occupied)
        for index, word in enumerate(words):
            if index not in pairs:
                place = free_places.take(
                    word, words[index + 1] if index + 1 < len(words) else "", pairs.get(index - 1, -2) + 1
                )
                if place is not None:
                    pairs[index] = place
    return pairs


class _FreePlaces:
    """Free places of the gold by word and by pair of words, each visited a few times only."""

    def __init__(self, gold: Sequence[str], occupied: set[int]) -> None:
        self.gold, self.occupied = gold, occupied
        self.places: dict[tuple[str, ...], deque[int]] = defaultdict(deque)
        for place, word in enumerate(gold):
            self.places[(word,)].append(place)
        for place, pair in enumerate(pairwise(gold)):
            self.places[pair].append(place)

    def take(self, word: str, following: str, adjacent: int) -> int | None:
        """Take the place that continues the chunk, else one that starts a chunk of two words, else the first."""
        if (word,) not in self.places:
            return None
        if 0 <= adjacent < len(self.gold) and adjacent not in self.occupied and self.gold[adjacent] == word:
            place: int | None = adjacent
        else:
            place = self._first((word, following))
            place = self._first((word,)) if place is None else place
        if place is not None:
            self.occupied.add(place)
        return place

    def _first(self, words: tuple[str, ...]) -> int | None:
        queue = self.places.get(words, deque())
        while queue and queue[0] in self.occupied:
            # A place that is occupied stays so: dropping it here keeps all calls together linear.
            queue.popleft()
        return queue[0] if queue else None


def count_chunks(pairs: Alignment) -> int:
    """Count runs of words that are adjacent on both sides.

    >>> count_chunks({0: 0, 2: 2, 3: 3})
    2
    """
    return sum(pairs.get(index - 1, -2) + 1 != place for index, place in pairs.items())


def _stemmer(language: str) -> Callable[[str], str]:
    """Return a stemmer that stems each distinct word once."""
    analyzer, stems = Analyzer(stem=language), dict[str, str]()

    def stem(word: str) -> str:
        if word not in stems:
            # A word of which the analyzer keeps nothing stands for itself.
            stems[word] = " ".join(analyzer.terms(word)) or word
        return stems[word]

    return stem
