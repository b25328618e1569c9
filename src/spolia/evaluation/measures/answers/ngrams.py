"""BLEU of a whole set of answers, and of each; ROUGE."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from math import exp, log
from typing import ClassVar

from spolia.evaluation.measures.answers.answer_text import TOKENISERS, WordMeasure, check_tokeniser, extract_text
from spolia.evaluation.measures.answers.string_match import overlap
from spolia.evaluation.measures.measure import Case, Measure, Observation, Result, SetMeasure
from spolia.evaluation.measures.rank_measures import harmonic_mean
from spolia.types import Failure, Item

ORDER = 4
Grams = Counter[tuple[str, ...]]


@dataclass(frozen=True)
class BLEU(SetMeasure):
    """n-grams shared with the references, over the whole set, with a penalty for answers that are too short; 0 to 1.

    BLEU = BP · exp(mean over n = 1..4 of ln p_n); p_n = matches of length n / n-grams of length n of all answers, each
    n-gram matched at most as often as in the reference that has it most often; BP = min(1, exp(1 - r / c)), c = words
    of all answers, r = words of the references nearest in length. An order without a match counts as 1 / 2^j match,
    j-th of its kind. It is not the mean of anything: of a few short answers it says little.

    Args:
        words: how a text is cut into words: `13a`; `characters` or `unicode` for scripts without blanks.

    Source: Papineni et al. 2002; smoothing 3 of Chen and Cherry 2014; as sacrebleu (Post 2018), divided by 100.

    >>> from spolia.types import Answer
    >>> case = Case(Item("q", "?", answers=("the cat sat on the mat",)), Answer("the cat sat on a mat"))
    >>> measure = BLEU()
    >>> str(measure), round(measure.total([measure.observe(case)]), 4)  # (5/6 · 3/5 · 2/4 · 1/3) ** (1/4)
    ('BLEU', 0.5373)
    """

    words: str = "13a"

    notation: ClassVar[str] = "BLEU"
    additive: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_tokeniser(self.notation, self.words)

    def applies(self, item: Item) -> bool:
        return bool(item.answers)

    def observe(self, case: Case) -> Observation:
        """Count the words of the answer and of the nearest reference, then matches and n-grams of each length."""
        tokenise = TOKENISERS[self.words]
        words = tokenise("" if isinstance(case.result, Failure) else extract_text(case.result))
        references = [tokenise(answer) for answer in case.item.answers]
        # Of two references as near in length the shorter one counts, as in sacrebleu.
        nearest = min(map(len, references), key=lambda length: (abs(length - len(words)), length))
        reference_grams: Grams = Counter()
        for reference in references:
            reference_grams |= _grams(reference)
        grams = _grams(words)
        matched = _count_by_length(grams & reference_grams)
        return (len(words), nearest, *matched, *_count_by_length(grams))

    def total(self, observations: Sequence[Observation]) -> float:
        c, r, *counts = (sum(column) for column in zip(*observations, strict=True))
        return _bleu(c, r, counts[:ORDER], counts[ORDER:])


@dataclass(frozen=True)
class SentenceBLEU(Measure):
    """BLEU of each answer alone; the number of a set is the mean, so that flows can be compared and tuned by it.

    The formula of `BLEU` for one answer, up to the longest n of which the answer has an n-gram (the effective order).

    Args:
        words: how a text is cut into words, as for `BLEU`.

    Source: as sacrebleu's `sentence_bleu` (Post 2018), divided by 100; AutoRAG's metric `bleu`.

    >>> from spolia.types import Answer
    >>> SentenceBLEU().score(Answer("Nokia"), Item("q", "?", answers=("Nokia",)))
    1.0
    """

    words: str = "13a"

    notation: ClassVar[str] = "SentenceBLEU"

    def __post_init__(self) -> None:
        check_tokeniser(self.notation, self.words)

    def applies(self, item: Item) -> bool:
        return bool(item.answers)

    def score(self, result: Result, item: Item) -> float:
        c, r, *counts = BLEU(self.words).observe(Case(item, result))
        order = sum(count > 0 for count in counts[ORDER:])
        return _bleu(c, r, counts[:order], counts[ORDER : ORDER + order])


def _bleu(c: float, r: float, matched: Sequence[float], grams: Sequence[float]) -> float:
    """Compute BLEU from the counts of words, and from matches among the n-grams of each length."""
    if not any(matched) or not all(grams):
        return 0.0
    halved, logs = 1.0, 0.0
    for matches, count in zip(matched, grams, strict=True):
        # Smoothing 3 of Chen and Cherry: the j-th order without a match counts 1 / 2^j matches.
        halved *= 1 if matches else 2
        logs += log((matches or 1 / halved) / count)
    return exp(logs / len(grams) + min(0.0, 1 - r / c))


def _grams(words: Sequence[str]) -> Grams:
    return Counter(tuple(words[start : start + n]) for n in range(1, ORDER + 1) for start in range(len(words) - n + 1))


def _count_by_length(grams: Grams) -> list[int]:
    counts = [0] * ORDER
    for gram, count in grams.items():
        counts[len(gram) - 1] += count
    return counts


@dataclass(frozen=True)
class Rouge1(WordMeasure):
    """F1 of the words shared with the reference; the best over the accepted answers. No stemming.

    Args:
        words: how a text is cut into words. ROUGE's own has none in any other script than a-z; write `unicode` there.

    Source: Lin 2004; as the package rouge-score without a stemmer.

    >>> str(Rouge1()), Rouge1().score_text("the cat sat", ["the cat lay down"])  # P = 2/3, R = 2/4
    ('ROUGE-1', 0.5714285714285715)
    """

    words: str = "rouge"

    notation: ClassVar[str] = "ROUGE-1"

    def score_words(self, answer: list[str], gold: list[str]) -> float:
        return overlap(answer, gold)


@dataclass(frozen=True)
class Rouge2(WordMeasure):
    """F1 of the pairs of neighbouring words shared with the reference; else as `ROUGE-1`.

    Source: Lin 2004.

    >>> str(Rouge2(words="unicode")), Rouge2().score_text("the cat sat", ["the cat lay down"])  # P = 1/2, R = 1/3
    ('ROUGE-2(words="unicode")', 0.4)
    """

    words: str = "rouge"

    notation: ClassVar[str] = "ROUGE-2"

    def score_words(self, answer: list[str], gold: list[str]) -> float:
        pairs = [list(zip(words, islice(words, 1, None), strict=False)) for words in (answer, gold)]
        shared = (Counter(pairs[0]) & Counter(pairs[1])).total()
        return harmonic_mean(shared / len(pairs[0]), shared / len(pairs[1])) if shared else 0.0


@dataclass(frozen=True)
class RougeL(WordMeasure):
    """F1 of the longest common subsequence with the reference; else as `ROUGE-1`.

    Source: Lin 2004, section 3; over whole texts, not by sentence.

    >>> str(RougeL()), RougeL().score_text("the cat sat down", ["down the cat lay"])  # "the cat": P = R = 2/4
    ('ROUGE-L', 0.5)
    """

    words: str = "rouge"

    notation: ClassVar[str] = "ROUGE-L"

    def score_words(self, answer: list[str], gold: list[str]) -> float:
        shared = common_subsequence(answer, gold)
        return harmonic_mean(shared / len(answer), shared / len(gold)) if shared else 0.0


def common_subsequence(first: Sequence[str], second: Sequence[str]) -> int:
    """Return the length of the longest common subsequence, with a row of the table in one integer.

    Costs n · m / 64 operations on machine words, so that a text of a million characters does not matter against a short
    reference. Hyyrö 2004, "Bit-parallel LCS-length computation revisited".

    >>> common_subsequence("ABCBDAB", "BDCABA")
    4
    """
    short, long = sorted((first, second), key=len)
    places: dict[str, int] = {}
    for place, word in enumerate(short):
        places[word] = places.get(word, 0) | 1 << place
    row = all_ones = (1 << len(short)) - 1
    for word in long:
        if matched := row & places.get(word, 0):
            # The carry of the addition updates all columns of the table's row together.
            row = (row + matched | row - matched) & all_ones
    return len(short) - row.bit_count()
