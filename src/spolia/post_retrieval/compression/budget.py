"""Texts with only the tokens that tell most, within a budget."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from spolia.models.likelihood import Surprise
from spolia.sentences import sentences


def most_telling(weights: Sequence[float], count: int) -> list[int]:
    """Places of the highest weights, in their order; of equal ones the first.

    >>> most_telling([0.5, 2.0, 0.5, 1.0], 3)
    [0, 1, 3]
    """
    order = sorted(range(len(weights)), key=lambda at: -weights[at])
    return sorted(order[: max(0, count)])


def of_tokens(text: str, told: Sequence[Surprise], kept: Sequence[int]) -> str:
    """The text that some of its tokens make.

    >>> of_tokens("Paris is it", [Surprise(0, 5, 1.0), Surprise(5, 8, 1.0), Surprise(8, 11, 1.0)], [0, 2])
    'Paris it'
    """
    return "".join(text[told[at].start : told[at].end] for at in kept)


def segments(text: str, characters: int) -> Iterator[str]:
    """Stretches of a text that are together all of it: whole sentences where they fit, else cut before a blank.

    >>> list(segments("One. Two three. Four.", 12))
    ['One.', ' Two three.', ' Four.']
    """
    ends = [*(end for _, end in sentences(text)[:-1]), len(text)]
    start = 0
    while start < len(text):
        fitting = [end for end in ends if start < end <= start + characters]
        end = fitting[-1] if fitting else _cut(text, start, characters)
        yield text[start:end]
        start = end


def _cut(text: str, start: int, characters: int) -> int:
    limit = min(len(text), start + characters)
    blank = text.rfind(" ", start + 1, limit) if limit < len(text) else -1
    return blank if blank > start else limit
