"""Texts with only the tokens that tell most, within a budget."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from spolia.models.likelihood import Surprise
from spolia.sentences import sentences


def most_telling(weights: Sequence[float], count: int) -> list[int]:
    """Places of the highest weights, in their order; of equal ones the first.

    >>> most_telling([0.5, 2.0, 0.5, 1.0], 3)
    [0, 1, 3]
    """
    order = sorted(range(len(weights)), key=lambda at: -weights[at])
    return sorted(order[: max(0, count)])


def telling(text: str, told: Sequence[Surprise], weights: Sequence[float], count: int) -> str:
    """What the heaviest tokens of a text make of it; of a text with a word, one of them is no blank.

    >>> told = [Surprise(0, 1, 9.0), Surprise(1, 6, 2.0), Surprise(6, 12, 1.0)]
    >>> telling("\\nParis, France", told, [one.nats for one in told], 1)
    'Paris'
    """
    kept = most_telling(weights, count)
    words = [at for at, one in enumerate(told) if not text[one.start : one.end].isspace()]
    if kept and words and not set(kept).intersection(words):
        kept = sorted([*kept[1:], max(words, key=lambda at: weights[at])])
    return of_spans(text, [(told[at].start, told[at].end) for at in kept])


def of_spans(text: str, spans: Iterable[tuple[int, int]]) -> str:
    """The text that some stretches of it make, in their order; words that a blank stood between stay apart.

    >>> of_spans("Paris is it", [(0, 5), (8, 11)]), of_spans("Paris\\nis\\nit", [(0, 5), (9, 11)])
    ('Paris it', 'Paris\\nit')
    """
    found, before = "", 0
    for start, end in spans:
        if found and not found[-1].isspace() and not text[start : start + 1].isspace():
            found += next((sign for sign in text[before:start] if sign.isspace()), "")
        found += text[start:end]
        before = end
    return found


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
