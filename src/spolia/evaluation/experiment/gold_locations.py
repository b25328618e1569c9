"""Gold that can be found: as it is written, and where it stands in the stores that flows search."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches

from spolia.errors import DataError
from spolia.evaluation.experiment.flows import Flow, groups_of
from spolia.stores.backends import rows, sql
from spolia.stores.corpus import Corpus
from spolia.stores.snapshot.snapshot import Snapshot
from spolia.types import Gold, Item, Quote, Value

SHOWN = 80
"""Characters of a quote that a message shows."""


@dataclass(frozen=True)
class GoldLocations(Value):
    """Where gold stands: documents by their ids, quotes at their places. As it was written it outlives an edit.

    Args:
        places: of gold as it is written; in several stores there may be several. What is not among them stands for
            itself.

    >>> found = GoldLocations({"tides.md": ("3f2a",), "sun.md": ("3f2a", "77b0")})
    >>> found.item(Item("q", "?", gold=(("tides.md",), ("sun.md",)))).gold
    (('3f2a',), ('3f2a', '77b0'))
    """

    places: Mapping[Gold, tuple[Gold, ...]] = field(default_factory=dict)

    def of(self, gold: Gold) -> tuple[Gold, ...]:
        """Where it stands; any of these places will do."""
        return self.places.get(gold, (gold,))

    def item(self, item: Item) -> Item:
        """The question as flows and measures see it."""
        gold = tuple(tuple(dict.fromkeys(place for one in group for place in self.of(one))) for group in item.gold)
        if gold == item.gold:
            return item
        grades = dict(item.grades)
        written = dict.fromkeys(one for group in item.gold for one in group if str(one) in grades)
        placed = {str(place): grades[str(one)] for one in written for place in self.of(one)}
        return item.but(gold=gold, grades=tuple(placed.items()))


def gold_locations(items: Sequence[Item], flows: Iterable[Flow]) -> GoldLocations:
    """Where the gold of questions stands in the stores that flows search.

    Of a flow that searches no store nothing is known: what is gold there has the ids that it gives.

    Raises:
        DataError: a flow could not find some gold whatever it did, which would only lower its scores: there is no such
            document, or it has not the quote, word for word, or more than once. Names the first, and its question.
    """
    wanted = list(dict.fromkeys(one for item in items for group in item.gold for one in group))
    found: dict[Gold, dict[Gold, None]] = {one: {} for one in wanted}
    searched = (tuple({group.corpus.path: group.corpus for group in groups_of(flow)}.values()) for flow in flows)
    for corpora in dict.fromkeys(searched):
        for gold, places in (_among(corpora, wanted, items) if corpora else _anywhere(wanted, items)).items():
            found[gold] |= dict.fromkeys(places)
    return GoldLocations({gold: tuple(places) for gold, places in found.items() if tuple(places) != (gold,)})


def _among(corpora: Sequence[Corpus], wanted: Sequence[Gold], items: Sequence[Item]) -> dict[Gold, list[Gold]]:
    found: dict[Gold, list[Gold]] = {one: [] for one in wanted}
    for corpus in corpora:
        for gold, place in _in(corpus.snapshot(), wanted):
            found[gold].append(place)
    if missing := [gold for gold, places in found.items() if not places]:
        more = f", and {len(missing) - 1} more are not to be found" if len(missing) > 1 else ""
        raise DataError(
            f"{_whose(missing[0], items)} {_lacks(missing[0], corpora)}{more}. {_instead(missing[0], corpora)}"
        )
    return found


def _anywhere(wanted: Sequence[Gold], items: Sequence[Item]) -> dict[Gold, list[Gold]]:
    for one in wanted:
        if isinstance(one, Quote) and one.start < 0:
            raise DataError(
                f"{_whose(one, items)} does not say where it starts, and a flow searches no store in which it could "
                "be looked for. Write its start."
            )
    return {one: [one] for one in wanted}


def _in(snapshot: Snapshot, wanted: Sequence[Gold]) -> Iterator[tuple[Gold, Gold]]:
    """What stands in a store, and where; documents are read one at a time."""
    ids = snapshot.named({document_of(one) for one in wanted})
    quotes: dict[str, list[Quote]] = {}
    for one in wanted:
        if (id := ids.get(document_of(one))) is None:
            continue
        if isinstance(one, Quote):
            quotes.setdefault(id, []).append(one)
        else:
            yield one, id
    for id, listed in quotes.items():
        text = _text(snapshot, id)
        for quote in listed:
            if len(places := places_of(quote, text)) == 1:
                yield quote, Quote(id, places[0][0], text[slice(*places[0])])


def places_of(quote: Quote, text: str) -> list[tuple[int, int]]:
    """Where a quote stands in a text, start and end: at its start if it says so rightly, else wherever its words do.

    >>> places_of(Quote("tides", text="moon pulls"), "The moon\\npulls.")
    [(4, 14)]
    >>> places_of(Quote("tides", 9, "sea"), "sea, sea")
    [(0, 3), (5, 8)]
    """
    if quote.start >= 0 and text[quote.start : quote.end] == quote.text:
        return [(quote.start, quote.end)]
    words = r"\s+".join(map(re.escape, quote.text.split()))
    return [found.span(1) for found in re.finditer(f"(?=({words}))", text)] if words else []


def document_of(gold: Gold) -> str:
    """The document that gold names."""
    return gold.document if isinstance(gold, Quote) else gold


def _text(snapshot: Snapshot, id: str) -> str:
    row = snapshot.opened.row(sql.DOCUMENT, {"id": id, "at": snapshot.generation})
    return rows.document_of(row, snapshot.readers.lists).text


def _whose(gold: Gold, items: Sequence[Item]) -> str:
    asks = next(item.id for item in items if any(gold in group for group in item.gold))
    return f"Gold {str(gold)[:SHOWN]!r} of question {asks!r}"


def _lacks(gold: Gold, corpora: Sequence[Corpus]) -> str:
    stores, name = ", ".join(corpus.path for corpus in corpora), document_of(gold)
    there = [(one.snapshot(), id) for one in corpora for id in one.snapshot().named([name]).values()]
    if not there:
        return f"names no document of {stores}"
    assert isinstance(gold, Quote)
    times = max(len(places_of(gold, _text(snapshot, id))) for snapshot, id in there)
    return f"stands {times} times in {name!r} of {stores}" if times else f"does not stand in {name!r} of {stores}"


def _instead(gold: Gold, corpora: Sequence[Corpus]) -> str:
    names = [uri for corpus in corpora for uri, row in corpus.snapshot().sources().items() if row.document]
    if isinstance(gold, Quote) and any(corpus.snapshot().named([gold.document]) for corpus in corpora):
        return "Quote words that stand there once, as `spolia docs show` shows them, or write the start too."
    within = [uri for uri in names if uri.endswith(f"/{document_of(gold)}")]
    near = within or get_close_matches(document_of(gold), names, 1) or names
    return f"Write a name as `spolia docs list` shows it{f': {near[0]!r}' if near else ''}, or index what is named."
