"""Scores."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from spolia.models.parsers.parser import Parser, plain

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
    """The score that a reply states, within bounds: what is labelled or stated of the highest, else what it begins
    with, else its last number. Where the highest is 1, percents are read too.

    >>> Number(0, 10).parse("Score: 7/10, so I say 7.5")
    7.5
    >>> Number(0, 1).parse("I am 90% sure.")
    0.9
    """

    low: float
    high: float

    def parse(self, reply: str) -> float:
        said = plain(reply)
        if not re.search(r"\d", said):
            said = _NAME.sub(lambda word: _NAMED[word[0].lower()], said)
        found = self._within(self._candidates(self._without_scale(said)))
        if found:
            return found[0]
        raise ValueError(f"it must end in a number from {self.low:g} to {self.high:g}")

    def _candidates(self, said: str) -> list[float]:
        """All that could be meant, the clearest first."""
        labelled = [self._read(found[1], found[2]) for found in _LABELLED.finditer(said)]
        numbers = [self._read(found[1], found[2]) for found in _NUMBER.finditer(said)]
        begins = _NUMBER.match(said.lstrip(" \"'([{#>$→~=\n"))
        first = [self._read(begins[1], begins[2])] if begins else []
        return self._within(labelled)[-1:] or self._within(first) or numbers[-1:]

    def _within(self, numbers: list[float]) -> list[float]:
        return [number for number in numbers if self.low <= number <= self.high]

    def _read(self, digits: str, percent: str | None) -> float:
        number = float(digits.replace(",", "."))
        return number / 100 if percent and self.high <= 1 else number

    def _without_scale(self, said: str) -> str:
        """The text without what only states the bounds: `7/10` is `= 7`, and a range from low to high is nothing."""
        low, high = f"{self.low:g}", f"{self.high:g}"
        said = re.sub(rf"{low}\s*(?:-|–|to|bis|~)\s*{high}(?![\d.])", "", said)
        said = re.sub(rf"{high}\s*(?:点満点で|점 만점에)|满分{high}分", "", said)
        of = r"(?:points?\s*)?(?:/|out of|von|sur|of|de)"
        return re.sub(rf"(?<![\d.,])(\d+(?:[.,]\d+)?)점?\s*{of}\s*{high}(?!\d|[.,]\d|\s*%)", r"= \1", said)


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
_LINE = re.compile(r"^\W{0,20}?(?:\d{1,3}[.):]\s+)?\W{0,20}?(\d{1,4})\W{0,20}$", re.MULTILINE)
_CHAIN = re.compile(r"(?<![\d.])\d{1,4}(?:(?:[\s,;|/、\"'-]|番|번|\band\b|\bthen\b)+\d{1,4}(?!\d|\.\d))+")


@dataclass(frozen=True)
class Order(Parser[tuple[int, ...]]):
    """Numbers of passages, best first, each once.

    >>> Order().parse("Ranking: [2] > [1] > [2] > [3]")
    (2, 1, 3)
    """

    def parse(self, reply: str) -> tuple[int, ...]:
        said = _TAG.sub(" ", plain(reply))
        said = re.sub(r"<\s*(\d+)\s*>", r"[\1]", said)
        said = _MARKS.sub(">", re.sub(r"\]\s*=\s*\[", "] > [", said))
        square, bracketed = partial(_found, _SQUARE), partial(_found, _BRACKETED)
        for read in (_compared, square, _listed, bracketed, _named, _lines, _chained):
            if found := tuple(dict.fromkeys(number for number in read(said) if number > 0)):
                return found
        raise ValueError("it must be numbers of passages, best first, written: [2] > [1] > [3]")


def completed(numbers: Sequence[int], count: int) -> tuple[int, ...]:
    """A permutation of 1 … `count`: what was named, in that order, then the rest as it was.

    >>> completed((3, 9, 3, 1), 4)
    (3, 1, 2, 4)
    """
    named = dict.fromkeys(number for number in numbers if 1 <= number <= count)
    return tuple(dict.fromkeys((*named, *range(1, count + 1))))


def _compared(said: str) -> list[int]:
    """`a > b > c`: the last number of the first part, the first one of each further part."""
    parts = said.split(">")
    if len(parts) < 2:
        return []
    numbers = [_numbers(part) for part in parts]
    at = next((at for at, found in enumerate(numbers) if found), len(parts))
    return [found[-1 if part == at == 0 else 0] for part, found in enumerate(numbers) if found]


def _numbers(part: str) -> list[int]:
    return _found(_BRACKETED, part) or _found(_BARE, part)


def _listed(said: str) -> list[int]:
    """A list of numbers in brackets, or JSON objects with one number each."""
    lists = _LIST.findall(said)
    return _found(_DIGIT, lists[-1]) if lists else _found(_PAIRS, said)


def _found(pattern: re.Pattern[str], said: str) -> list[int]:
    return list(map(int, pattern.findall(said)))


def _named(said: str) -> list[int]:
    return [int(first or second) for first, second in _NAMED_PASSAGE.findall(said)]


def _lines(said: str) -> list[int]:
    found = _found(_LINE, said)
    return found if len(found) > 1 else []


def _chained(said: str) -> list[int]:
    """The longest row of numbers with nothing but separators between them, or the only number."""
    chains = [_found(_DIGIT, chain) for chain in _CHAIN.findall(said)]
    return max(reversed(chains), key=len, default=[]) or _found(_BARE, said)[-1:]
