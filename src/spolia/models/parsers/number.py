"""Scores."""

from __future__ import annotations

import re
from dataclasses import dataclass

from spolia.models.parsers.parser import Parser, plain

_DIGITS = r"[-+]?(?:\d+(?:[.,]\d+)?|\.\d+)(?:[eE][-+]?\d+)?"
_NUMBER = re.compile(rf"(?<![A-Za-z0-9_.,])({_DIGITS})(?![A-Za-z0-9_]|[.,]\d)\s*(%|percent\b)?")
_LABELLED = re.compile(
    r"(?:scores?|rating|grade|mark|points|confidence|probability|relevance|utility|overall|total|answer|"
    r"得分|评分|分数|评级|评价|点数|スコア|評価|점수|평점|평가|note|punktzahl|puntuación|[Ww]e|I)?"
    r"[\s\"'\])]*(?:[:=≈]|"
    r"\bis\b|\b(?:score|rating|mark|grade) of\b|\b(?:say|choose|makes|gets|earns|settle on|go with|give it|give)\b|"
    r"\bscores?\b)"
    rf"[\s\"'(\[{{$]*(?:an?\s+)?(?<![A-Za-z0-9_.,])({_DIGITS})(?![A-Za-z0-9_]|[.,]\d|\s+of\b)\s*(%|percent\b)?",
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
