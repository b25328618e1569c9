"""Gold that is quotes, seen through the nodes that were found: the same for every way of cutting the documents.

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
    def of(cls, hit: Hit) -> "GoldPlace":
        return cls(hit.node.document or hit.node.id, hit.node.span, hit.node.text)

    @classmethod
    def cited(cls, citation: Citation) -> "GoldPlace":
        return cls(citation.document or citation.node, citation.span, citation.quote)


ELSEWHERE = GoldPlace("")
"""A place in a document of which nothing is gold."""


@dataclass
class QuoteCoverage:
    """How much of a quote was seen so far, at which places, and where it was complete."""

    quote: Quote
    parts: list[int] = field(default_factory=list)
    at: int | None = None

    def __post_init__(self) -> None:
        if self.quote.start < 0:
            raise MeasureError(
                f"Where {str(self.quote)[:80]!r} starts is not said. Write its start, or measure by an Experiment, "
                "which looks for it in the store."
            )
        self.start, self.end = self.quote.start, self.quote.end
        self.blanks = [self.start + found.start() for found in _BLANK.finditer(self.quote.text)]
        self.left = [(self.start, self.end)]
        self.whole = self.unseen = self._letters(self.start, self.end)

    @property
    def share(self) -> float:
        return 1 - self.unseen / self.whole if self.whole else 0.0

    def holds(self, share: float) -> bool:
        """Whether that is the share of it, or more, and not nothing."""
        return 0 < self.whole - self.unseen >= share * self.whole

    def see(self, place: GoldPlace) -> bool:
        """Look at a place; whether it adds a character."""
        if place.span is None:  # a text without a place in its document holds the quote or nothing of it
            start, end = (self.start, self.end) if self.quote.text in place.text else (self.end, self.end)
        else:
            start, end = place.span.start, place.span.end
        if end <= self.start or start >= self.end:
            return False
        pieces = ((max(a, low), min(b, high)) for a, b in self.left for low, high in ((a, start), (end, b)))
        self.left = [(low, high) for low, high in pieces if low < high]
        before, self.unseen = self.unseen, sum(self._letters(low, high) for low, high in self.left)
        return self.unseen < before

    def _letters(self, start: int, end: int) -> int:
        """Characters of a stretch, blanks not counted."""
        return end - start - bisect_left(self.blanks, end) + bisect_left(self.blanks, start)


@dataclass(frozen=True)
class GoldPlaces:
    """Where in a ranking the gold of an item is found, and which places hold parts of it, for all measures."""

    item: Item
    number: int
    done: Mapping[Gold, int]
    parts: Mapping[Gold, Sequence[int]]

    def first(self, k: int | None = None) -> tuple[tuple[str, ...], Item]:
        """Ids of the gold at the first k places, best first, and the item with those ids as its gold.

        A place without gold has no id. Parts of gold found only after the first k are such places.

        >>> item = Item("q", "?", gold=((Quote("d", 0, "The moon pulls."),),))
        >>> places = [GoldPlace("d", Span(0, 8)), GoldPlace("x", Span(0, 9)), GoldPlace("d", Span(9, 15))]
        >>> found = placed(places, item, 1.0)
        >>> ids, seen = found.first()
        >>> ids, seen.gold
        (('', 'place 3'), (('place 3',),))
        >>> found.first(2)[0]
        ('', '')
        """
        number = self.number if k is None else min(k, self.number)
        done = {one: at for one, at in self.done.items() if at < number}
        names = dict(self._named(done))
        held: dict[int, list[str]] = {}
        for one, name in names.items():
            held.setdefault(done[one], []).append(name)
        hidden = {at for one in done for at in self.parts.get(one, ())}
        ids = tuple(id for at in range(number) for id in held.get(at, () if at in hidden else ("",)))
        gold = tuple(tuple(names.get(one, f"missing {one}") for one in group) for group in self.item.gold)
        grades = dict(self.item.grades)
        of = {one: names.get(one, f"missing {one}") for group in self.item.gold for one in group if str(one) in grades}
        return ids, self.item.but(gold=gold, grades=tuple((name, grades[str(one)]) for one, name in of.items()))

    def _named(self, done: Mapping[Gold, int]) -> Iterator[tuple[Gold, str]]:
        """What gets an id: for each group the best that satisfies it first; else one of what a place holds."""
        grades = dict(self.item.grades)
        rank = {one: (at, -grades.get(str(one), 1.0)) for one, at in done.items()}
        firsts = {
            min(held, key=rank.__getitem__)
            for group in self.item.gold
            if (held := [one for one in group if one in done])
        }
        taken = {done[one] for one in firsts}
        others = {at: one for one, at in done.items() if at not in taken}
        chosen = sorted((*firsts, *others.values()), key=lambda one: (*rank[one], str(one)))
        for number, one in enumerate(chosen):
            again = number > 0 and done[chosen[number - 1]] == done[one]
            yield one, f"place {done[one] + 1}" + (f": {one}" if again else "")


def placed(places: Sequence[GoldPlace], item: Item, share: float) -> GoldPlaces:
    """Look for the gold of an item at places, best first: once through them, whatever is measured then. A quote counts
    once a `share` of it is seen, from 0 (any character) to 1 (all of it).
    """
    wanted = {one for group in item.gold for one in group if isinstance(one, str)}
    sought: dict[str, list[QuoteCoverage]] = {}
    for quote in item.quotes:
        sought.setdefault(quote.document, []).append(QuoteCoverage(quote))
    done: dict[Gold, int] = {}
    for at, place in enumerate(places):
        if place.document in wanted:
            done.setdefault(place.document, at)
        for seen in sought.get(place.document, ()):
            if seen.at is None and seen.see(place):
                seen.parts.append(at)
                seen.at = at if seen.holds(share) else None
    found = [seen for each in sought.values() for seen in each]
    done |= {seen.quote: seen.at for seen in found if seen.at is not None}
    return GoldPlaces(item, len(places), done, {seen.quote: seen.parts for seen in found})
