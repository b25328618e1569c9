"""Parsers of scores and orders."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from spolia.models.parsers.parser import Parser, normalize_reply

_DIGIT = re.compile(r"\d+")
_DIGITS = r"[-+]?(?:\d+(?:[.,]\d+)?|\.\d+)(?:[eE][-+]?\d+)?"
_NUMBER = re.compile(rf"(?<![A-Za-z0-9_.,])({_DIGITS})(?![A-Za-z0-9_]|[.,]\d)(?:\s*+(%|percent\b))?")
_LABELLED = re.compile(
    r"(?:scores?|rating|grade|mark|points|confidence|probability|relevance|utility|overall|total|answer|"
    r"得分|评分|分数|评级|评价|点数|スコア|評価|점수|평점|평가|note|punktzahl|puntuación|[Ww]e|I|(?<![\s\"'\])]))"
    r"[\s\"'\])]*+(?:[:=≈]|"
    r"\bis\b|\b(?:score|rating|mark|grade) of\b|\b(?:say|choose|makes|gets|earns|settle on|go with|give it|give)\b|"
    r"\bscores?\b)"
    rf"[\s\"'(\[{{$]*(?:an?\s+)?(?<![A-Za-z0-9_.,])({_DIGITS})(?![A-Za-z0-9_]|[.,]\d|\s+of\b)(?:\s*+(%|percent\b))?",
    re.IGNORECASE,
)
_WORDS = "zero one two three four five six seven eight nine ten"
_NAMED = {word: str(number) for number, word in enumerate(_WORDS.split())} | {
    word: str(number) for number, word in enumerate("零一二三四五六七八九十")
}
_NAME = re.compile(rf"\b(?:{_WORDS.replace(' ', '|')})\b|[零一二三四五六七八九十]", re.IGNORECASE)


@dataclass(frozen=True)
class Number(Parser[float]):
    """Parser of the score that a reply states, within bounds: what is labelled or stated of the highest, else what it
    begins with, else its last number. Where the highest is 1, percents are read too.

    >>> Number(0, 10).parse("Score: 7/10, so I say 7.5")
    7.5
    >>> Number(0, 1).parse("I am 90% sure.")
    0.9
    """

    low: float
    high: float

    def parse(self, reply: str) -> float:
        text = normalize_reply(reply)
        if not re.search(r"\d", text):
            text = _NAME.sub(lambda word: _NAMED[word[0].lower()], text)
        numbers = self._in_bounds(self._candidates(self._strip_scale(text)))
        if numbers:
            return numbers[0]
        raise ValueError(f"it must end in a number from {self.low:g} to {self.high:g}")

    def _candidates(self, text: str) -> list[float]:
        """Return all numbers that could be meant, the clearest first."""
        labelled = [self._to_number(match[1], match[2]) for match in _LABELLED.finditer(text)]
        numbers = [self._to_number(match[1], match[2]) for match in _NUMBER.finditer(text)]
        start = _NUMBER.match(text.lstrip(" \"'([{#>$→~=\n"))
        first = [self._to_number(start[1], start[2])] if start else []
        return self._in_bounds(labelled)[-1:] or self._in_bounds(first) or numbers[-1:]

    def _in_bounds(self, numbers: list[float]) -> list[float]:
        return [number for number in numbers if self.low <= number <= self.high]

    def _to_number(self, digits: str, percent: str | None) -> float:
        number = float(digits.replace(",", "."))
        return number / 100 if percent and self.high <= 1 else number

    def _strip_scale(self, text: str) -> str:
        """Return the text without the bounds: `7/10` becomes `= 7`, and a range from low to high is dropped."""
        low, high = f"{self.low:g}", f"{self.high:g}"
        text = re.sub(rf"{low}\s*(?:-|–|to|bis|~)\s*{high}(?![\d.])", "", text)
        text = re.sub(rf"{high}\s*(?:点満点で|점 만점에)|满分{high}分", "", text)
        separator = r"(?:points?\s*)?(?:/|out of|von|sur|of|de)"
        return re.sub(rf"(?<![\d.,])(\d+(?:[.,]\d+)?)점?\s*{separator}\s*{high}(?!\d|[.,]\d|\s*%)", r"= \1", text)


_MARKS = re.compile(r"≻|→|»|﹥|-+>|>=|≥|\\?succ\b|&gt;|=>|>+")
_TAG = re.compile(r"</?[A-Za-z][^<>]{0,50}>")
_SQUARE = re.compile(r"[\[【]\s*(\d{1,4})\s*[\]】]")
_BRACKETED = re.compile(r"[\[({【<]\s*[\"']?(\d{1,4})[\"']?\s*[\])}】>]")
_BARE = re.compile(r"(?<![\d.])(\d{1,4})(?![\d]|\.\d)")
_NAMED_PASSAGE = re.compile(
    r"(?:passage|document|doc|text|source|snippet|abschnitt|段落|文档|文書|문서|문단)[\s_#-]*(\d{1,4})|\bid[\"']?[\s:=]*(\d{1,4})",
    re.IGNORECASE,
)
_PAIRS = re.compile(r"\"\d{1,4}\"\s*:\s*\"?(\d{1,4})")
_LIST = re.compile(r"\[[\s\"'\[]*\d{1,4}[\]\"'\s]*(?:,[\s\"'\[]*\d{1,4}[\]\"'\s]*)+\]")
# bounded, or a long line of signs takes quadratic time
_LINE = re.compile(r"^\W{0,20}?(?:\d{1,3}[.):]\s+)?\W{0,20}?(\d{1,4})\W{0,20}$", re.MULTILINE)
_CHAIN = re.compile(r"(?<![\d.])\d{1,4}(?:(?:[\s,;|/、\"'-]|番|번|\band\b|\bthen\b)+\d{1,4}(?!\d|\.\d))+")


@dataclass(frozen=True)
class Order(Parser[tuple[int, ...]]):
    """Parser of numbers of passages, best first, each once.

    >>> Order().parse("Ranking: [2] > [1] > [2] > [3]")
    (2, 1, 3)
    """

    def parse(self, reply: str) -> tuple[int, ...]:
        text = _TAG.sub(" ", normalize_reply(reply))
        text = re.sub(r"<\s*(\d+)\s*>", r"[\1]", text)
        text = _MARKS.sub(">", re.sub(r"\]\s*=\s*\[", "] > [", text))
        square, bracketed = partial(_find_numbers, _SQUARE), partial(_find_numbers, _BRACKETED)
        for read in (  # From the clearest form to the vaguest: a bare row of numbers may be anything.
            _compared_numbers,
            square,
            _listed_numbers,
            bracketed,
            _passage_numbers,
            _line_numbers,
            _longest_chain,
        ):
            if order := tuple(dict.fromkeys(number for number in read(text) if number > 0)):
                return order
        raise ValueError("it must be numbers of passages, best first, written: [2] > [1] > [3]")


def complete_order(numbers: Sequence[int], count: int) -> tuple[int, ...]:
    """Return a permutation of 1 … `count`: the valid numbers in their order, then the rest as it was.

    >>> complete_order((3, 9, 3, 1), 4)
    (3, 1, 2, 4)
    """
    valid = dict.fromkeys(number for number in numbers if 1 <= number <= count)
    return tuple(dict.fromkeys((*valid, *range(1, count + 1))))


completed = complete_order  # its former name, which goes with the next minor version


def _compared_numbers(text: str) -> list[int]:
    """Return the numbers of `a > b > c`: the last number of the first part, the first one of each further part."""
    parts = text.split(">")
    if len(parts) < 2:
        return []
    numbers = [_numbers(part) for part in parts]
    first = next((index for index, group in enumerate(numbers) if group), len(parts))
    return [group[-1 if part == first == 0 else 0] for part, group in enumerate(numbers) if group]


def _numbers(part: str) -> list[int]:
    return _find_numbers(_BRACKETED, part) or _find_numbers(_BARE, part)


def _listed_numbers(text: str) -> list[int]:
    """Return a list of numbers in brackets, or of JSON objects with one number each."""
    lists = _LIST.findall(text)
    return _find_numbers(_DIGIT, lists[-1]) if lists else _find_numbers(_PAIRS, text)


def _find_numbers(pattern: re.Pattern[str], text: str) -> list[int]:
    return list(map(int, pattern.findall(text)))


def _passage_numbers(text: str) -> list[int]:
    return [int(first or second) for first, second in _NAMED_PASSAGE.findall(text)]


def _line_numbers(text: str) -> list[int]:
    numbers = _find_numbers(_LINE, text)
    return numbers if len(numbers) > 1 else []


def _longest_chain(text: str) -> list[int]:
    """Return the longest row of numbers with nothing but separators between them, or the only number."""
    chains = [_find_numbers(_DIGIT, chain) for chain in _CHAIN.findall(text)]
    return max(reversed(chains), key=len, default=[]) or _find_numbers(_BARE, text)[-1:]  # of equal ones the last
