"""How much of a gold passage was seen at which rank: a quote may be found in parts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

from spolia.evaluation.measures.quoted import Place, Seen
from spolia.evaluation.row import Found
from spolia.types import Gold, Quote, Span

Steps: TypeAlias = tuple[tuple[int, float], ...]
"""Ranks at which more of it was seen, each with the share of its characters that was seen so far."""


def best_steps(places: Iterable[Gold], found: Sequence[Found]) -> Steps:
    """How a passage is seen that stands at several places: at the one of which most is seen, and first.

    >>> found = [Found("n1", "d", 2.0, 0, 8), Found("n2", "e", 1.5), Found("n3", "d", 1.0, 8, 20)]
    >>> best_steps([Quote("d", 0, "The moon pulls.")], found), best_steps(["e"], found), best_steps(["f"], found)
    (((1, 0.5384615384615384), (3, 1.0)), ((2, 1.0),), ())
    """
    every = [tuple(_steps(place, found)) for place in places]
    return min(every, key=lambda steps: (-steps[-1][1], steps[-1][0]) if steps else (0.0, 0), default=())


def _steps(gold: Gold, found: Sequence[Found]) -> Iterator[tuple[int, float]]:
    seen = Seen(gold) if isinstance(gold, Quote) else None
    for rank, one in enumerate(found, start=1):
        if seen is None and gold == (one.document or one.node):
            yield rank, 1.0
            return
        if seen is not None and one.document == seen.quote.document and seen.see(_place(one)):
            yield rank, seen.share
            if not seen.unseen:
                return


def _place(one: Found) -> Place:
    return Place(one.document, Span(one.start, one.end) if one.start >= 0 else None, one.text)


def in_words(steps: Steps) -> str:
    """In words.

    >>> in_words(()), in_words(((3, 1.0),)), in_words(((1, 0.4),)), in_words(((1, 0.4), (5, 0.7), (9, 1.0)))
    ('not found', 'rank 3', '40 % of it at rank 1', '40 % of it at rank 1, all by rank 9')
    """
    if not steps:
        return "not found"
    (first, share), (last, seen) = steps[0], steps[-1]
    if share >= 1:
        return f"rank {first}"
    begins = f"{int(100 * share)} % of it at rank {first}"
    return begins if len(steps) == 1 else f"{begins}, {'all' if seen >= 1 else f'{int(100 * seen)} %'} by rank {last}"
