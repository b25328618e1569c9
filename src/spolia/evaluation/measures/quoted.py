"""Gold that is quotes, seen through the nodes that were found: the same for every way of cutting the documents.

A quote is found where the nodes found so far hold it together, blanks aside. The nodes before that which held a part of
it then take no place of their own: the parts of one passage are one passage. So what finds exactly the gold scores 1,
whatever the documents were cut into, and ids of places stand where ids of passages stood.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from spolia.types import Citation, Gold, Hit, Item, Quote, Span


class Place(NamedTuple):
    """What stands at one place of a ranking: a document, a stretch of it, or a text that has no place in it."""

    document: str
    span: Span | None = None
    text: str = ""

    @classmethod
    def of(cls, hit: Hit) -> Place:
        """What a hit shows."""
        return cls(hit.node.document or hit.node.id, hit.node.span, hit.node.text)

    @classmethod
    def cited(cls, citation: Citation) -> Place:
        """What a citation points to."""
        return cls(citation.document or citation.node, citation.span, citation.quote)


@dataclass
class Seen:
    """How much of a quote was seen so far."""

    quote: Quote
    left: list[tuple[int, int]] = field(default_factory=list)
    parts: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.left = [(self.quote.start, self.quote.end)]
        self.whole = self.unseen

    @property
    def unseen(self) -> int:
        """Characters, blanks not counted."""
        text, first = self.quote.text, self.quote.start
        return sum(len("".join(text[start - first : end - first].split())) for start, end in self.left)

    def holds(self, share: float) -> bool:
        """Whether that is the share of it, or more, and not nothing."""
        return 0 < self.whole - self.unseen >= share * self.whole

    def see(self, place: Place) -> bool:
        """Look at a place; whether it adds a character."""
        before = self.unseen
        start, end = self._stretch(place)
        pieces = ((max(a, low), min(b, high)) for a, b in self.left for low, high in ((a, start), (end, b)))
        self.left = [(low, high) for low, high in pieces if low < high]
        return self.unseen < before

    def _stretch(self, place: Place) -> tuple[int, int]:
        """Where a place stands; a text without a place in its document holds the quote or nothing of it."""
        if place.span is not None:
            return place.span.start, place.span.end
        held = self.quote.text in place.text
        return (self.quote.start, self.quote.end) if held else (self.quote.start, self.quote.start)


ELSEWHERE = Place("")
"""A place in a document of which nothing is gold."""


def placed(places: Sequence[Place], item: Item, share: float) -> tuple[tuple[str, ...], Item]:
    """Ids of places, best first, and the item with those ids as its gold; a place without gold has none.

    Args:
        places: what was found, best first.
        item: some of whose gold is quotes.
        share: how much of a quote must be seen, from 0 (any character) to 1 (all of it).

    >>> item = Item("q", "?", gold=((Quote("d", 0, "The moon pulls."),),))
    >>> places = [Place("d", Span(0, 8)), Place("x", Span(0, 9)), Place("d", Span(9, 15))]
    >>> found, seen = placed(places, item, 1.0)
    >>> found, seen.gold
    (('', 'place 3'), (('place 3',),))
    """
    done, parts = _done(places, item, share)
    hidden = parts - set(done.values())
    places_of = {at: f"place {at + 1}" for at in done.values()}
    names = {one: places_of[at] for one, at in done.items()}
    gold = tuple(tuple(dict.fromkeys(names.get(one, f"missing {one}") for one in group)) for group in item.gold)
    found = tuple(places_of.get(at, "") for at in range(len(places)) if at not in hidden)
    return found, item.but(gold=gold, grades=_grades(item, names))


def _done(places: Sequence[Place], item: Item, share: float) -> tuple[dict[Gold, int], set[int]]:
    """Where each of the gold is found, and the places that only hold parts of it."""
    wanted = {one for group in item.gold for one in group if isinstance(one, str)}
    seen = [Seen(quote) for quote in item.quotes]
    done: dict[Gold, int] = {}
    parts: set[int] = set()
    for at, place in enumerate(places):
        if place is ELSEWHERE:
            continue
        if place.document in wanted:
            done.setdefault(place.document, at)
        for one in [one for one in seen if one.quote.document == place.document and one.quote not in done]:
            if one.see(place):
                one.parts.append(at)
            if one.holds(share):
                done[one.quote] = at
                parts.update(one.parts)
    return done, parts


def _grades(item: Item, names: dict[Gold, str]) -> tuple[tuple[str, float], ...]:
    """A place that holds several gold passages is as relevant as the best of them."""
    grades, found = dict(item.grades), dict[str, float]()
    for one in (one for group in item.gold for one in group) if grades else ():
        name = names.get(one, f"missing {one}")
        found[name] = max(found.get(name, 0.0), grades.get(str(one), 1.0))
    return tuple(found.items())
