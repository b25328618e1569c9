"""Gold quotes located in the nodes that were found: scores are the same for every way of cutting the documents.

A quote is found where the nodes found so far hold it together, blanks aside. Ids of places stand where ids of passages
stood: the parts of one quote are one place, and a node that holds several quotes is several places.
"""

import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from spolia.errors import MeasureError
from spolia.types import Citation, Gold, Hit, Item, Quote, Span

_BLANK = re.compile(r"\s")


class GoldPlace(NamedTuple):
    """One place of a ranking: a document, a stretch of it, or a text that has no place in it."""

    document: str
    span: Span | None = None
    text: str = ""

    @classmethod
    def from_hit(cls, hit: Hit) -> "GoldPlace":
        return cls(hit.node.document or hit.node.id, hit.node.span, hit.node.text)

    @classmethod
    def from_citation(cls, citation: Citation) -> "GoldPlace":
        return cls(citation.document or citation.node, citation.span, citation.quote)


ELSEWHERE = GoldPlace("")
"""A place in a document of which nothing is gold."""


@dataclass
class QuoteCoverage:
    """Coverage of a quote by the places so far, and the place that completed it."""

    quote: Quote
    parts: list[int] = field(default_factory=list)
    completed_at: int | None = None

    def __post_init__(self) -> None:
        if self.quote.start < 0:
            raise MeasureError(
                f"Where {str(self.quote)[:80]!r} starts is not said. Write its start, or measure by an Experiment, "
                "which looks for it in the store."
            )
        self.start, self.end = self.quote.start, self.quote.end
        self.blanks = [self.start + match.start() for match in _BLANK.finditer(self.quote.text)]
        self.gaps = [(self.start, self.end)]
        self.length = self.uncovered = self._count_letters(self.start, self.end)

    @property
    def share(self) -> float:
        return 1 - self.uncovered / self.length if self.length else 0.0

    def is_covered(self, share: float) -> bool:
        """Return whether at least this share is covered, and one character at least."""
        return 0 < self.length - self.uncovered >= share * self.length

    def add_place(self, place: GoldPlace) -> bool:
        """Cover the characters of a place; return whether it adds one."""
        if place.span is None:  # a text without a place in its document holds the quote or nothing of it
            start, end = (self.start, self.end) if self.quote.text in place.text else (self.end, self.end)
        else:
            start, end = place.span.start, place.span.end
        if end <= self.start or start >= self.end:
            return False
        pieces = ((max(a, low), min(b, high)) for a, b in self.gaps for low, high in ((a, start), (end, b)))
        self.gaps = [(low, high) for low, high in pieces if low < high]
        previous, self.uncovered = self.uncovered, sum(self._count_letters(low, high) for low, high in self.gaps)
        return self.uncovered < previous

    def _count_letters(self, start: int, end: int) -> int:
        """Count the characters of a stretch, without blanks."""
        # The positions of blanks are sorted, so that two searches count them in any stretch.
        return end - start - bisect_left(self.blanks, end) + bisect_left(self.blanks, start)


@dataclass(frozen=True)
class GoldPlaces:
    """Places of an item's gold in a ranking, and of its parts, shared by all measures."""

    item: Item
    number: int
    completed_at: Mapping[Gold, int]
    parts: Mapping[Gold, Sequence[int]]

    def first(self, k: int | None = None) -> tuple[tuple[str, ...], Item]:
        """Return the ids of the gold at the first k places, best first, and the item with those ids as its gold.

        A place without gold has no id. Parts of gold found only after the first k are such places.

        >>> item = Item("q", "?", gold=((Quote("d", 0, "The moon pulls."),),))
        >>> places = [GoldPlace("d", Span(0, 8)), GoldPlace("x", Span(0, 9)), GoldPlace("d", Span(9, 15))]
        >>> found = locate_gold(places, item, 1.0)
        >>> ids, seen = found.first()
        >>> ids, seen.gold
        (('', 'place 3'), (('place 3',),))
        >>> found.first(2)[0]
        ('', '')
        """
        number = self.number if k is None else min(k, self.number)
        completed_at = {passage: index for passage, index in self.completed_at.items() if index < number}
        names = dict(self._name_gold(completed_at))
        names_at: dict[int, list[str]] = {}
        for passage, name in names.items():
            names_at.setdefault(completed_at[passage], []).append(name)
        # A place with a part of a quote that another place completes is no wrong passage.
        hidden = {index for passage in completed_at for index in self.parts.get(passage, ())}
        ids = tuple(id for index in range(number) for id in names_at.get(index, () if index in hidden else ("",)))
        gold = tuple(tuple(names.get(passage, f"missing {passage}") for passage in group) for group in self.item.gold)
        grades = dict(self.item.grades)
        graded = {
            passage: names.get(passage, f"missing {passage}")
            for group in self.item.gold
            for passage in group
            if str(passage) in grades
        }
        return ids, self.item.but(
            gold=gold, grades=tuple((name, grades[str(passage)]) for passage, name in graded.items())
        )

    def _name_gold(self, completed_at: Mapping[Gold, int]) -> Iterator[tuple[Gold, str]]:
        """Yield the passages that get an id: for each group the best that satisfies it; else one for each place."""
        grades = dict(self.item.grades)
        rank = {passage: (index, -grades.get(str(passage), 1.0)) for passage, index in completed_at.items()}
        firsts = {
            min(complete, key=rank.__getitem__)
            for group in self.item.gold
            if (complete := [passage for passage in group if passage in completed_at])
        }
        occupied = {completed_at[passage] for passage in firsts}
        remaining = {index: passage for passage, index in completed_at.items() if index not in occupied}
        chosen = sorted((*firsts, *remaining.values()), key=lambda passage: (*rank[passage], str(passage)))
        for number, passage in enumerate(chosen):
            is_repeated = number > 0 and completed_at[chosen[number - 1]] == completed_at[passage]
            yield passage, f"place {completed_at[passage] + 1}" + (f": {passage}" if is_repeated else "")


def locate_gold(places: Sequence[GoldPlace], item: Item, share: float) -> GoldPlaces:
    """Locate the gold of an item at places, best first, in one pass for all measures. A quote counts once a `share` of
    it is covered, from 0 (any character) to 1 (all of it)."""
    documents = {passage for group in item.gold for passage in group if isinstance(passage, str)}
    coverages_of: dict[str, list[QuoteCoverage]] = {}
    for quote in item.quotes:
        coverages_of.setdefault(quote.document, []).append(QuoteCoverage(quote))
    completed_at: dict[Gold, int] = {}
    for index, place in enumerate(places):
        if place.document in documents:
            completed_at.setdefault(place.document, index)
        for coverage in coverages_of.get(place.document, ()):
            if coverage.completed_at is None and coverage.add_place(place):
                coverage.parts.append(index)
                coverage.completed_at = index if coverage.is_covered(share) else None
    coverages = [coverage for group in coverages_of.values() for coverage in group]
    completed_at |= {
        coverage.quote: coverage.completed_at for coverage in coverages if coverage.completed_at is not None
    }
    return GoldPlaces(item, len(places), completed_at, {coverage.quote: coverage.parts for coverage in coverages})
