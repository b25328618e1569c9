"""Places of gold in the stores that flows search."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches

from spolia.core.plurals import several
from spolia.errors import DataError
from spolia.evaluation.experiment.flows import Flow, searched_groups
from spolia.stores.backends import rows, sql
from spolia.stores.corpus import Corpus, NodeGroup
from spolia.stores.snapshot.snapshot import Snapshot
from spolia.types import Document, Gold, Item, Node, Quote, Value

NOWHERE = Quote("", 0)
"""Where gold stands that a store has not, and that another one has."""
QUOTE_CHARACTERS = 80
"""Characters of a quote that a message shows."""
LISTED_GOLD = 10
"""Gold that a message lists beside the first."""


@dataclass(frozen=True)
class GoldLocations(Value):
    """Places of gold: documents by their ids, quotes by their offsets. Gold itself stays as written, so that it
    outlives an edit of the document.

    Args:
        places: of gold as it is written; in several stores there may be several. What is not among them stands for
            itself.

    >>> found = GoldLocations({"tides.md": ("3f2a",), "sun.md": ("3f2a", "77b0")})
    >>> found.locate_item(Item("q", "?", gold=(("tides.md",), ("sun.md",)))).gold
    (('3f2a',), ('3f2a', '77b0'))
    """

    places: Mapping[Gold, tuple[Gold, ...]] = field(default_factory=dict)

    def places_for(self, gold: Gold) -> tuple[Gold, ...]:
        """Return the places of a piece of gold; any of these places will do."""
        return self.places.get(gold, (gold,))

    def locate_item(self, item: Item) -> Item:
        """Return the question with its gold as flows and measures see it."""
        gold = tuple(
            tuple(dict.fromkeys(place for gold in group for place in self.places_for(gold))) for group in item.gold
        )
        if gold == item.gold:
            return item
        grades = dict(item.grades)
        graded_gold = dict.fromkeys(gold for group in item.gold for gold in group if str(gold) in grades)
        placed = {str(place): grades[str(gold)] for gold in graded_gold for place in self.places_for(gold)}
        return item.but(gold=gold, grades=tuple(placed.items()))


def locate_gold(items: Sequence[Item], flows: Iterable[Flow], rivals: Iterable[NodeGroup] = ()) -> GoldLocations:
    """Locate the gold of questions in the stores that flows search; gold of a flow without a store stands for itself.

    Args:
        rivals: groups that are searched by flows that these are compared with: gold that is there, and that a parser
            has lost here, is never found here.

    Raises `DataError` if a flow cannot find some gold: the document is missing, or its text does not hold the quote
    exactly once, word for word.
    """
    unique_gold = list(dict.fromkeys(gold for item in items for group in item.gold for gold in group))
    places_by_gold: dict[Gold, dict[Gold, None]] = {gold: {} for gold in unique_gold}
    rival_corpora = _stores(rivals)
    for corpora in dict.fromkeys(_stores(searched_groups(flow)) for flow in flows):
        places = (
            _locate_in_corpora(corpora, unique_gold, items, rival_corpora)
            if corpora
            else _locate_without_store(unique_gold, items)
        )
        for gold, here in places.items():
            places_by_gold[gold] |= dict.fromkeys(here)
    return GoldLocations({gold: tuple(places) for gold, places in places_by_gold.items() if tuple(places) != (gold,)})


def is_gold(node: Node, gold: Gold) -> bool:
    """Return whether a node is of a gold document or overlaps a gold quote; the gold is as stores have it."""
    if isinstance(gold, str):
        return node.document == gold
    is_near = node.span is not None and node.span.start < gold.end and gold.start < node.span.end
    return node.document == gold.document and is_near


def _stores(groups: Iterable[NodeGroup]) -> tuple[Corpus, ...]:
    return tuple({group.corpus.path: group.corpus for group in groups}.values())


def _locate_in_corpora(
    corpora: Sequence[Corpus], gold_list: Sequence[Gold], items: Sequence[Item], rival_corpora: Sequence[Corpus]
) -> dict[Gold, list[Gold]]:
    places_by_gold: dict[Gold, list[Gold]] = {gold: [] for gold in gold_list}
    for corpus in corpora:
        for gold, place in _locate_in_snapshot(corpus.snapshot(), gold_list):
            places_by_gold[gold].append(place)
    missing = [gold for gold, places in places_by_gold.items() if not places]
    for corpus in rival_corpora if missing else ():
        for gold, _ in _locate_in_snapshot(corpus.snapshot(), missing):
            # A rival finds this gold, so here it counts as missed; an error would stop the comparison.
            places_by_gold[gold] = [NOWHERE]
        missing = [gold for gold, places in places_by_gold.items() if not places]
    if missing:
        first, *rest = missing
        raise DataError(
            f"{_describe_gold(first, items)} {_describe_absence(first, corpora)}. "
            f"{_suggest_gold(first, corpora)}{_list_rest(rest, items)}"
        )
    return places_by_gold


def _locate_without_store(gold_list: Sequence[Gold], items: Sequence[Item]) -> dict[Gold, list[Gold]]:
    for gold in gold_list:
        if isinstance(gold, Quote) and gold.start < 0:
            raise DataError(
                f"{_describe_gold(gold, items)} does not say where it starts, and a flow searches no store in which it "
                "could be looked for. Write its start."
            )
    return {gold: [gold] for gold in gold_list}


def _locate_in_snapshot(snapshot: Snapshot, gold_list: Sequence[Gold]) -> Iterator[tuple[Gold, Gold]]:
    """Yield gold that a store has, with its place; documents are read one at a time."""
    ids = _document_ids(snapshot, {gold.document if isinstance(gold, Quote) else gold for gold in gold_list})
    gold_by_document: dict[str, list[Gold]] = {}
    for gold in gold_list:
        if isinstance(gold, str) and gold in ids:
            yield gold, ids[gold]
        elif isinstance(gold, Quote) and not gold.document:
            for id in _documents(snapshot):
                gold_by_document.setdefault(id, []).append(gold)
        elif gold_document(gold) in ids:
            gold_by_document.setdefault(ids[gold_document(gold)], []).append(gold)
    for id, listed in gold_by_document.items():
        document = _document(snapshot, id)
        for gold in listed:
            if isinstance(gold, str):
                yield from ((gold, Quote(id, *place)) for place in _page_lines(document, split_page(gold)[1]))
            elif len(places := find_quote(gold, document.text)) == 1 or (places and not gold.document):
                yield from ((gold, Quote(id, start, document.text[start:end])) for start, end in places)


def _document_ids(snapshot: Snapshot, names: set[str]) -> dict[str, str]:
    """Return ids of documents by id or by the name of their source, or else by the end of a path that only one of them
    has."""
    ids_by_name = snapshot.document_ids(names | {split_page(name)[0] for name in names})
    if lacking := {split_page(name)[0] for name in names} - ids_by_name.keys() - {""}:
        for name, ids in _match_path_ends(snapshot, lacking).items():
            if len(ids) == 1:
                ids_by_name |= dict.fromkeys([name], *ids)
    return ids_by_name


def _match_path_ends(snapshot: Snapshot, names: set[str]) -> dict[str, set[str]]:
    """Match names with the ends of paths: `report.pdf` matches `2024/report.pdf` and `/home/ann/2024/report.pdf`."""
    ids_by_name: dict[str, set[str]] = {name: set() for name in names}
    for uri, row in snapshot.sources().items():
        if row.document:
            for name in names:
                # Data sets may have been written on Windows.
                if f"/{uri}".endswith(f"/{name}") or name.replace("\\", "/").endswith(f"/{uri}"):
                    ids_by_name[name].add(row.document)
    return ids_by_name


def _documents(snapshot: Snapshot) -> list[str]:
    return list(dict.fromkeys(row.document for row in snapshot.sources().values() if row.document))


LINE = re.compile(r"\S[^\n]*")
SHORTEST_LINE = 20
"""Characters of a line by which a page is found, where it has longer ones: others, such as its number, may recur."""


def _page_lines(document: Document, page: int) -> list[tuple[int, str]]:
    """Return the lines of a page, start and text: a flow that finds any of them has found the page."""
    if not 1 <= page <= len(document.pages):
        return []
    start, end = [*document.pages, len(document.text)][page - 1 : page + 1]
    lines = [(match.start(), match[0].rstrip()) for match in LINE.finditer(document.text, start, end)]
    return [line for line in lines if len(line[1]) >= SHORTEST_LINE] or lines


def split_page(gold: str) -> tuple[str, int]:
    """Split gold that names a page into document and page; 0 if it names none.

    >>> split_page("report.pdf#page=3"), split_page("report.pdf")
    (('report.pdf', 3), ('report.pdf', 0))
    """
    name, mark, page = gold.rpartition("#page=")
    return (name, int(page)) if mark and page.isdecimal() else (gold, 0)


def find_quote(quote: Quote, text: str) -> list[tuple[int, int]]:
    """Find a quote in a text, start and end: at its own start if that is right, else wherever its words occur.

    >>> find_quote(Quote("tides", text="moon pulls"), "The moon\\npulls.")
    [(4, 14)]
    >>> find_quote(Quote("tides", 9, "sea"), "sea, sea")
    [(0, 3), (5, 8)]
    """
    if quote.start >= 0 and text[quote.start : quote.end] == quote.text:
        return [(quote.start, quote.end)]
    # White space may differ, since parsers break lines elsewhere.
    words = r"\s+".join(map(re.escape, quote.text.split()))
    # (?=…) also finds places that overlap.
    return [match.span(1) for match in re.finditer(f"(?=({words}))", text)] if words else []


def gold_document(gold: Gold) -> str:
    return gold.document if isinstance(gold, Quote) else split_page(gold)[0]


def _document(snapshot: Snapshot, id: str) -> Document:
    row = snapshot.open_store.row(sql.DOCUMENT, {"id": id, "at": snapshot.generation})
    return rows.document_of(row, snapshot.readers.lists)


def _describe_gold(gold: Gold, items: Sequence[Item]) -> str:
    item = _first_item_with(gold, items)
    return f"Gold {str(gold)[:QUOTE_CHARACTERS]!r} of question {item.id!r} (“{item.question[:QUOTE_CHARACTERS]}”)"


def _first_item_with(gold: Gold, items: Sequence[Item]) -> Item:
    return next(item for item in items if any(gold in group for group in item.gold))


def _list_rest(rest: Sequence[Gold], items: Sequence[Item]) -> str:
    """List other gold that is not found, each with its question, so that you can fix all of it together."""
    if not rest:
        return ""
    names = [
        f"{str(gold)[:QUOTE_CHARACTERS]!r} (“{_first_item_with(gold, items).question[:QUOTE_CHARACTERS]}”)"
        for gold in rest[:LISTED_GOLD]
    ]
    tail = [f"and {len(rest) - LISTED_GOLD:,} more"] if len(rest) > LISTED_GOLD else []
    return f" Nor {'is this' if len(rest) == 1 else 'are these'} found: {', '.join(names + tail)}."


def _describe_absence(gold: Gold, corpora: Sequence[Corpus]) -> str:
    stores, name = ", ".join(corpus.path for corpus in corpora), gold_document(gold)
    if isinstance(gold, Quote) and not name:
        return f"is in no document of {stores}"
    documents = [
        _document(corpus.snapshot(), id)
        for corpus in corpora
        for id in _document_ids(corpus.snapshot(), {name}).values()
    ]
    if not documents:
        return f"names no document of {stores}"
    if isinstance(gold, str):
        pages = max(len(document.pages) for document in documents)
        return (
            f"names a page that {name!r} of {stores} does not have, or that is empty; it has {several(pages, 'page')}"
        )
    times = max(len(find_quote(gold, document.text)) for document in documents)
    return f"occurs {times} times in {name!r} of {stores}" if times else f"does not occur in {name!r} of {stores}"


def _suggest_gold(gold: Gold, corpora: Sequence[Corpus]) -> str:
    names = [uri for corpus in corpora for uri, row in corpus.snapshot().sources().items() if row.document]
    if (
        isinstance(gold, str)
        and split_page(gold)[1]
        and any(_document_ids(corpus.snapshot(), {gold_document(gold)}) for corpus in corpora)
    ):
        return "Write another page, or the name of the file alone."
    if isinstance(gold, Quote) and not gold.document:
        return "Quote words as `spolia docs show` shows them."
    if isinstance(gold, Quote) and any(_document_ids(corpus.snapshot(), {gold.document}) for corpus in corpora):
        return "Quote words that occur there once, as `spolia docs show` shows them, or write the start too."
    matching_names = [uri for uri in names if uri.endswith(f"/{gold_document(gold)}")]
    near = matching_names or get_close_matches(gold_document(gold), names, 1) or names
    return f"Write a name as `spolia docs list` shows it{f': {near[0]!r}' if near else ''}, or index that file."
