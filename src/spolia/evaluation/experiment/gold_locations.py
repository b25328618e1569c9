"""Gold that flows can find: as written, and its places in the stores that they search."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches

from spolia.core.plurals import several
from spolia.errors import DataError
from spolia.evaluation.experiment.flows import Flow, groups_of
from spolia.stores.backends import rows, sql
from spolia.stores.corpus import Corpus, NodeGroup
from spolia.stores.snapshot.snapshot import Snapshot
from spolia.types import Document, Gold, Item, Node, Quote, Value

NOWHERE = Quote("", 0)
"""Where gold stands that a store has not, and that another one has."""
SHOWN = 80
"""Characters of a quote that a message shows."""
LISTED = 10
"""Gold that a message lists beside the first."""


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


def gold_locations(items: Sequence[Item], flows: Iterable[Flow], rivals: Iterable[NodeGroup] = ()) -> GoldLocations:
    """Places of the gold of questions in the stores that flows search; gold of a flow without a store stands for
    itself.

    Args:
        rivals: groups that are searched by flows that these are compared with: gold that is there, and that a parser
            has lost here, is never found here.

    Raises `DataError` if a flow cannot find some gold: the document is missing, or its text does not hold the quote
    exactly once, word for word.
    """
    wanted = list(dict.fromkeys(one for item in items for group in item.gold for one in group))
    found: dict[Gold, dict[Gold, None]] = {one: {} for one in wanted}
    others = _stores(rivals)
    for corpora in dict.fromkeys(_stores(groups_of(flow)) for flow in flows):
        places = _among(corpora, wanted, items, others) if corpora else _anywhere(wanted, items)
        for gold, here in places.items():
            found[gold] |= dict.fromkeys(here)
    return GoldLocations({gold: tuple(places) for gold, places in found.items() if tuple(places) != (gold,)})


def is_gold(node: Node, gold: Gold) -> bool:
    """Whether a node is of a gold document, or overlaps a gold quote; the gold as stores have it."""
    if isinstance(gold, str):
        return node.document == gold
    is_near = node.span is not None and node.span.start < gold.end and gold.start < node.span.end
    return node.document == gold.document and is_near


def _stores(groups: Iterable[NodeGroup]) -> tuple[Corpus, ...]:
    return tuple({group.corpus.path: group.corpus for group in groups}.values())


def _among(
    corpora: Sequence[Corpus], wanted: Sequence[Gold], items: Sequence[Item], others: Sequence[Corpus]
) -> dict[Gold, list[Gold]]:
    found: dict[Gold, list[Gold]] = {one: [] for one in wanted}
    for corpus in corpora:
        for gold, place in _in(corpus.snapshot(), wanted):
            found[gold].append(place)
    missing = [gold for gold, places in found.items() if not places]
    for corpus in others if missing else ():
        for gold, _ in _in(corpus.snapshot(), missing):
            found[gold] = [NOWHERE]
        missing = [gold for gold, places in found.items() if not places]
    if missing:
        first, *more = missing
        raise DataError(
            f"{_whose(first, items)} {_lacks(first, corpora)}. {_instead(first, corpora)}{_listed(more, items)}"
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
    """Gold that a store has, and its place; documents are read one at a time."""
    ids = _named(snapshot, {one.document if isinstance(one, Quote) else one for one in wanted})
    within: dict[str, list[Gold]] = {}
    for one in wanted:
        if isinstance(one, str) and one in ids:
            yield one, ids[one]
        elif isinstance(one, Quote) and not one.document:
            for id in _documents(snapshot):
                within.setdefault(id, []).append(one)
        elif document_of(one) in ids:
            within.setdefault(ids[document_of(one)], []).append(one)
    for id, listed in within.items():
        document = _document(snapshot, id)
        for one in listed:
            if isinstance(one, str):
                yield from ((one, Quote(id, *place)) for place in _on_page(document, page_of(one)[1]))
            elif len(places := places_of(one, document.text)) == 1 or (places and not one.document):
                yield from ((one, Quote(id, start, document.text[start:end])) for start, end in places)


def _named(snapshot: Snapshot, names: set[str]) -> dict[str, str]:
    """Ids of documents by id or by the name of their source; else by the end of a path that only one of them has."""
    found = snapshot.named(names | {page_of(name)[0] for name in names})
    if lacking := {page_of(name)[0] for name in names} - found.keys() - {""}:
        for name, ids in _by_end(snapshot, lacking).items():
            if len(ids) == 1:
                found |= dict.fromkeys([name], *ids)
    return found


def _by_end(snapshot: Snapshot, names: set[str]) -> dict[str, set[str]]:
    """`report.pdf` for `2024/report.pdf`, and `/home/ann/docs/2024/report.pdf` for it too."""
    found: dict[str, set[str]] = {name: set() for name in names}
    for uri, row in snapshot.sources().items():
        if row.document:
            for name in names:
                if f"/{uri}".endswith(f"/{name}") or name.replace("\\", "/").endswith(f"/{uri}"):
                    found[name].add(row.document)
    return found


def _documents(snapshot: Snapshot) -> list[str]:
    return list(dict.fromkeys(row.document for row in snapshot.sources().values() if row.document))


LINE = re.compile(r"\S[^\n]*")
SHORTEST = 20
"""Characters of a line by which a page is found, where it has longer ones: others, such as its number, may recur."""


def _on_page(document: Document, page: int) -> list[tuple[int, str]]:
    """The lines of a page, start and text: who finds any of them has found the page."""
    if not 1 <= page <= len(document.pages):
        return []
    start, end = [*document.pages, len(document.text)][page - 1 : page + 1]
    lines = [(found.start(), found[0].rstrip()) for found in LINE.finditer(document.text, start, end)]
    return [line for line in lines if len(line[1]) >= SHORTEST] or lines


def page_of(gold: str) -> tuple[str, int]:
    """Document and page of gold that names a page; 0 where it names none.

    >>> page_of("report.pdf#page=3"), page_of("report.pdf")
    (('report.pdf', 3), ('report.pdf', 0))
    """
    name, mark, page = gold.rpartition("#page=")
    return (name, int(page)) if mark and page.isdecimal() else (gold, 0)


def places_of(quote: Quote, text: str) -> list[tuple[int, int]]:
    """Places of a quote in a text, start and end: its own start if that is right, else each place of its words.

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
    return gold.document if isinstance(gold, Quote) else page_of(gold)[0]


def _document(snapshot: Snapshot, id: str) -> Document:
    row = snapshot.opened.row(sql.DOCUMENT, {"id": id, "at": snapshot.generation})
    return rows.document_of(row, snapshot.readers.lists)


def _whose(gold: Gold, items: Sequence[Item]) -> str:
    item = _asked(gold, items)
    return f"Gold {str(gold)[:SHOWN]!r} of question {item.id!r} (“{item.question[:SHOWN]}”)"


def _asked(gold: Gold, items: Sequence[Item]) -> Item:
    return next(item for item in items if any(gold in group for group in item.gold))


def _listed(more: Sequence[Gold], items: Sequence[Item]) -> str:
    """Other gold that is not found, each with its question, so that you can fix all of it together."""
    if not more:
        return ""
    named = [f"{str(one)[:SHOWN]!r} (“{_asked(one, items).question[:SHOWN]}”)" for one in more[:LISTED]]
    rest = [f"and {len(more) - LISTED:,} more"] if len(more) > LISTED else []
    return f" Nor {'is this' if len(more) == 1 else 'are these'} found: {', '.join(named + rest)}."


def _lacks(gold: Gold, corpora: Sequence[Corpus]) -> str:
    stores, name = ", ".join(corpus.path for corpus in corpora), document_of(gold)
    if isinstance(gold, Quote) and not name:
        return f"is in no document of {stores}"
    there = [_document(one.snapshot(), id) for one in corpora for id in _named(one.snapshot(), {name}).values()]
    if not there:
        return f"names no document of {stores}"
    if isinstance(gold, str):
        pages = max(len(document.pages) for document in there)
        return (
            f"names a page that {name!r} of {stores} does not have, or that is empty; it has {several(pages, 'page')}"
        )
    times = max(len(places_of(gold, document.text)) for document in there)
    return f"occurs {times} times in {name!r} of {stores}" if times else f"does not occur in {name!r} of {stores}"


def _instead(gold: Gold, corpora: Sequence[Corpus]) -> str:
    names = [uri for corpus in corpora for uri, row in corpus.snapshot().sources().items() if row.document]
    if (
        isinstance(gold, str)
        and page_of(gold)[1]
        and any(_named(one.snapshot(), {document_of(gold)}) for one in corpora)
    ):
        return "Write another page, or the name of the file alone."
    if isinstance(gold, Quote) and not gold.document:
        return "Quote words as `spolia docs show` shows them."
    if isinstance(gold, Quote) and any(_named(corpus.snapshot(), {gold.document}) for corpus in corpora):
        return "Quote words that occur there once, as `spolia docs show` shows them, or write the start too."
    within = [uri for uri in names if uri.endswith(f"/{document_of(gold)}")]
    near = within or get_close_matches(document_of(gold), names, 1) or names
    return f"Write a name as `spolia docs list` shows it{f': {near[0]!r}' if near else ''}, or index that file."
