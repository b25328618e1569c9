"""From drafts to the questions of a data set, and from a review by people back to them."""

import csv
import io
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from spolia.errors import DataError
from spolia.evaluation.creation.draft import QuestionDraft
from spolia.evaluation.creation.filters import is_same_answer
from spolia.evaluation.data.dataset import part_of
from spolia.evaluation.data.formats.table import READERS, REJECTS, guard_cell, unguard_cell
from spolia.evaluation.data.json_lines import replace_files
from spolia.models.prompting.template import shorten
from spolia.types import SOMEWHERE, Gold, Item, Quote, SubQuestion, Value, digest_of

COLUMNS = ("id", "accept", "question", "answers", "type", "file", "quote", "passages")
"""Of a review file. People write into `accept`, and may change `question`, `answers`, `type`, `file` and `quote`."""
LONGEST_CELL = 32_000
"""Characters; spreadsheets cut longer cells off, or break them in two."""
_YES = frozenset(("yes", "y", "1", "true", "ok", "accept", "accepted", "ja", "是", "对", "예", "네", "はい"))


def item_of(draft: QuestionDraft) -> Item:
    """Return the question of a data set that a draft stands for: gold is the quotes, by the names of the files.

    Its metadata say of which passages it was made, by which model and prompts, and which filters it passed.

    >>> from spolia.types import Node, Quote
    >>> node = Node("n1", "Clovis made Paris his capital in 508.", "d1", uri="france.txt")
    >>> draft = QuestionDraft("factoid", (node,), "", "When did Clovis move?", ("508",), (), (Quote("d1", 30, "508"),))
    >>> item = item_of(draft)
    >>> item.answers, item.gold[0][0].document, dict(item.meta)["passages"]
    (('508',), 'france.txt', '["n1"]')
    """
    names = {node.document: node.uri or node.document for node in draft.passages}
    details: dict[str, Any] = {
        "passages": [node.id for node in draft.passages],
        "links": [link for link in draft.links if link],
        "evolved_from": draft.evolved_from,
        "made_by": [list(asdict(use).values()) for use in draft.made_by],
        "filters": list(draft.passed),
    }
    is_answerable = draft.type != "unanswerable"
    return Item(
        f"q{digest_of((draft.type, draft.question)).hex()[:12]}",  # a hash alone may be a number to a spreadsheet
        draft.question,
        answers=draft.answers if is_answerable else (),
        gold=tuple((quote.but(document=names[quote.document]),) for quote in draft.quotes) if is_answerable else (),
        type=draft.type,
        decomposition=fitting_hops(
            (hop.but(gold_id=names.get(hop.gold_id, hop.gold_id)) for hop in draft.hops), draft.answers
        ),
        meta=tuple(
            (name, json.dumps(value, ensure_ascii=False) if isinstance(value, list) else value)
            for name, value in details.items()
            if value
        ),
    )


def tuning_item(draft: QuestionDraft) -> Item:
    """Return the question of a draft, with an id never in the part `report`: flows are tuned on what users ask."""
    item = item_of(draft)
    # The part follows from the id, so that a suffix finds another part after a few tries.
    ids = (item.id, *(f"{item.id}-{number}" for number in range(2, 1_000)))
    return item.but(id=next(id for id in ids if part_of(id) != "report"))


def fitting_hops(hops: Iterable[SubQuestion], answers: Sequence[str]) -> tuple[SubQuestion, ...]:
    """Return the hops of a question with these answers; none if the last hop leads to another answer."""
    steps = tuple(hops)
    return steps if steps and is_same_answer(steps[-1].answer, answers) else ()


def dropped_row(draft: QuestionDraft) -> dict[str, Any]:
    """Return what is written of a draft that was dropped."""
    return {
        "dropped_by": draft.dropped_by,
        "reason": draft.reason,
        "type": draft.type,
        "question": draft.question,
        "answers": list(draft.answers),
        "passages": [node.id for node in draft.passages],
    }


def write_review(path: Path, items: Sequence[Item], drafts: Sequence[QuestionDraft]) -> None:
    """Write a table for people, with the passages beside each question: UTF-8 with a mark, as spreadsheets want it."""
    buffer = io.StringIO()
    table = csv.writer(buffer, lineterminator="\n", quoting=csv.QUOTE_ALL)
    table.writerow(COLUMNS)
    for item, draft in zip(items, drafts, strict=True):
        passage_limit = LONGEST_CELL // max(1, len(draft.passages))
        texts = "\n\n".join(shorten(node.shown_text, passage_limit - 100) for node in draft.passages)
        row = (item.id, "", item.question, _join_texts(item.answers), item.type, *_gold_cells(item), texts)
        table.writerow(map(guard_cell, row))
    with replace_files(path) as (part,):
        part.write_text(buffer.getvalue(), encoding="utf-8-sig", newline="")


def _gold_cells(item: Item) -> tuple[str, str]:
    quotes = [gold for group in item.gold for gold in group if isinstance(gold, Quote)]
    files = [quote.document for quote in quotes]
    return (
        _join_texts(files[:1] if len(set(files)) == 1 else files, ";"),
        _join_texts([quote.text for quote in quotes]),
    )


def _join_texts(texts: Sequence[str], separator: str = "|") -> str:
    """Join several texts into one cell: with a bar between them, as JSON if one has a bar itself."""
    if any(re.search(rf"[\n{re.escape(separator)}]|^\s*\[", text) for text in texts):
        return json.dumps(list(texts), ensure_ascii=False)
    return f" {separator} ".join(texts)


def _split_cell(cell: str, separator: str = "|") -> tuple[str, ...]:
    """Return the texts of a cell."""
    if cell.lstrip().startswith("["):
        try:
            values = json.loads(cell)
        except (ValueError, RecursionError):
            values = None
        if isinstance(values, list):
            return tuple(str(value) for value in values)
    return tuple(value.strip() for value in cell.split(separator) if value.strip())


@dataclass(frozen=True)
class Review(Value):
    """The review of questions by people: the remaining ones, and how many were accepted, changed and rejected."""

    items: tuple[Item, ...]
    accepted: int
    changed: int
    rejected: int


def apply_review(path: Path, items: Iterable[Item]) -> Review:
    """Return the questions after a review: `no` in the column `accept` leaves one out, changed cells change it.

    A question without a word in `accept`, or without a row, stays as it is. A changed quote has to occur in the file
    exactly once, which `spolia eval` checks.

    Raises:
        DataError: a row names none of these questions, has no text, or something other than yes and no in `accept`.
    """
    if path.suffix.lower() not in READERS:
        raise DataError(f"{path} is not a table. Write a review as one of: {', '.join(READERS)}.")
    items_by_id = {item.id: item for item in items}
    remaining = dict(items_by_id)
    accepted = changed = 0
    for place, row in READERS[path.suffix.lower()](path):
        cells = {str(name).strip().lower(): _cell_text(value) for name, value in row.items()}
        if (item := items_by_id.get(cells.get("id", ""))) is None:
            raise DataError(f"{place}: no question has the id {cells.get('id', '')!r}. Leave the column 'id' as it is.")
        word = cells.get("accept", "").casefold()
        if word and word not in _YES | REJECTS:
            raise DataError(f"{place}: 'accept' is {cells['accept']!r}. Write yes, no, or nothing.")
        if word in REJECTS:
            remaining.pop(item.id, None)
            continue
        accepted += word in _YES
        remaining[item.id] = _apply_row(place, item, cells)
        changed += remaining[item.id] != item
    return Review(tuple(remaining.values()), accepted, changed, len(items_by_id) - len(remaining))


def _cell_text(value: object) -> str:
    return unguard_cell(str(value if value is not None else "").strip()).strip()


def _round_trip(text: str) -> str:
    """Return a text as a cell gives it back."""
    return text.replace("\r\n", "\n").replace("\r", "\n").strip()


def _apply_row(place: str, item: Item, cells: Mapping[str, str]) -> Item:
    """Return the question as a row has it: gold stays with a changed question, hops while they lead to its answer."""
    changes: dict[str, Any] = {}
    for name, value in ("question", item.question), ("type", item.type):
        if name in cells and cells[name] != _round_trip(value):
            changes[name] = cells[name]
    if not changes.get("question", "-"):
        raise DataError(f"{place}: the question is empty. Write no into 'accept' to leave it out.")
    if "answers" in cells and _split_cell(cells["answers"]) != _split_cell(_round_trip(_join_texts(item.answers))):
        changes["answers"] = _split_cell(cells["answers"])
    files, quotes = _gold_cells(item)
    if (cells.get("file", files), cells.get("quote", quotes)) != (_round_trip(files), _round_trip(quotes)):
        changes["gold"] = tuple(_read_quotes(place, cells))
    if not changes:
        return item
    edited = item.but(meta=(*item.meta, ("edited", ", ".join(changes))), **changes)
    if edited.type == "unanswerable" and (edited.answers or edited.gold):
        raise DataError(f"{place}: an unanswerable question has answers or a quote. Write another word into 'type'.")
    return edited.but(decomposition=fitting_hops(edited.decomposition, edited.answers))


def _read_quotes(place: str, cells: Mapping[str, str]) -> Iterator[tuple[Gold, ...]]:
    files, quotes = _split_cell(cells.get("file", ""), ";"), _split_cell(cells.get("quote", ""))
    if len(files) not in (1, len(quotes)):
        raise DataError(f"{place}: {len(files)} files and {len(quotes)} quotes. Write one file, or one for each quote.")
    for file, words in zip(files if len(files) > 1 else files * len(quotes), quotes, strict=True):
        yield (Quote(file, SOMEWHERE, words),)
