"""Rankings, as RankGPT asks for them (Sun et al. 2023): `[2] > [1] > [3]`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from spolia.models.parsers.parser import Parser, plain

_MARKS = re.compile(r"≻|→|»|﹥|-+>|>=|≥|\\?succ\b|&gt;|=>|>+")
_TAG = re.compile(r"</?[A-Za-z][^<>]{0,50}>")
_BRACKETED = re.compile(r"[\[({【<]\s*[\"']?(\d{1,4})[\"']?\s*[\])}】>]")
_BARE = re.compile(r"(?<![\d.])(\d{1,4})(?![\d]|\.\d)")
_NAMED = re.compile(
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
        for read in (_compared, _bracketed, _listed, _braced, _named, _lines, _chained):
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
    return [int(found) for found in _BRACKETED.findall(part) or _BARE.findall(part)]


def _listed(said: str) -> list[int]:
    """A list of numbers in brackets, or JSON objects with one number each."""
    lists = _LIST.findall(said)
    return (
        [int(found) for found in re.findall(r"\d+", lists[-1]) if lists]
        if lists
        else [int(found) for found in _PAIRS.findall(said)]
    )


def _bracketed(said: str) -> list[int]:
    return [int(found) for found in re.findall(r"[\[【]\s*(\d{1,4})\s*[\]】]", said)]


def _braced(said: str) -> list[int]:
    return [int(found) for found in _BRACKETED.findall(said)]


def _named(said: str) -> list[int]:
    return [int(first or second) for first, second in _NAMED.findall(said)]


def _lines(said: str) -> list[int]:
    found = [int(number) for number in _LINE.findall(said)]
    return found if len(found) > 1 else []


def _chained(said: str) -> list[int]:
    """The longest row of numbers with nothing but separators between them, or the only number."""
    chains = [[int(number) for number in re.findall(r"\d+", chain)] for chain in _CHAIN.findall(said)]
    return max(reversed(chains), key=len, default=[]) or [int(number) for number in _BARE.findall(said)][-1:]
