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
from spolia.evaluation.creation.filters import same_answer
from spolia.evaluation.data.dataset import part_of
from spolia.evaluation.data.formats.table import READERS, REJECTS, guarded, unguarded
from spolia.evaluation.data.json_lines import whole_files
from spolia.models.prompting.template import shortened
from spolia.types import SOMEWHERE, Gold, Item, Quote, SubQuestion, Value, digest_of

COLUMNS = ("id", "accept", "question", "answers", "type", "file", "quote", "passages")
"""Of a review file. People write into `accept`, and may change `question`, `answers`, `type`, `file` and `quote`."""
LONGEST_CELL = 32_000
"""Characters; spreadsheets cut longer cells off, or break them in two."""
_YES = frozenset(("yes", "y", "1", "true", "ok", "accept", "accepted", "ja", "是", "对", "예", "네", "はい"))


def item_of(draft: QuestionDraft) -> Item:
    """The question of a data set that a draft stands for: gold is the quotes, by the names of the files.

    Its metadata say of which passages it was made, by which model and prompts, and which filters it passed.

    >>> from spolia.types import Node, Quote
    >>> node = Node("n1", "Clovis made Paris his capital in 508.", "d1", uri="france.txt")
    >>> draft = QuestionDraft("factoid", (node,), "", "When did Clovis move?", ("508",), (), (Quote("d1", 30, "508"),))
    >>> item = item_of(draft)
    >>> item.answers, item.gold[0][0].document, dict(item.meta)["passages"]
    (('508',), 'france.txt', '["n1"]')
    """
    names = {node.document: node.uri or node.document for node in draft.passages}
    told: dict[str, Any] = {
        "passages": [node.id for node in draft.passages],
        "links": [link for link in draft.links if link],
        "evolved_from": draft.evolved_from,
        "made_by": [list(asdict(use).values()) for use in draft.made_by],
        "filters": list(draft.passed),
    }
    answered = draft.type != "unanswerable"
    return Item(
        f"q{digest_of((draft.type, draft.question)).hex()[:12]}",  # a hash alone may be a number to a spreadsheet
        draft.question,
        answers=draft.answers if answered else (),
        gold=tuple((quote.but(document=names[quote.document]),) for quote in draft.quotes) if answered else (),
        type=draft.type,
        decomposition=fitting_hops(
            (hop.but(gold_id=names.get(hop.gold_id, hop.gold_id)) for hop in draft.hops), draft.answers
        ),
        meta=tuple(
            (name, json.dumps(value, ensure_ascii=False) if isinstance(value, list) else value)
            for name, value in told.items()
            if value
        ),
    )


def tuning_item(draft: QuestionDraft) -> Item:
    """The question of a draft, with an id that is never in the part `report`: flows are tuned on what users ask."""
    item = item_of(draft)
    ids = (item.id, *(f"{item.id}-{number}" for number in range(2, 1_000)))
    return item.but(id=next(id for id in ids if part_of(id) != "report"))


def fitting_hops(hops: Iterable[SubQuestion], answers: Sequence[str]) -> tuple[SubQuestion, ...]:
    """The hops of a question with these answers; none where the last hop leads to another answer."""
    found = tuple(hops)
    return found if found and same_answer(found[-1].answer, answers) else ()


def dropped_row(draft: QuestionDraft) -> dict[str, Any]:
    """What is written down of a draft that was dropped."""
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
    written = io.StringIO()
    table = csv.writer(written, lineterminator="\n", quoting=csv.QUOTE_ALL)
    table.writerow(COLUMNS)
    for item, draft in zip(items, drafts, strict=True):
        each = LONGEST_CELL // max(1, len(draft.passages))
        texts = "\n\n".join(shortened(node.shown_text, each - 100) for node in draft.passages)
        row = (item.id, "", item.question, _cell(item.answers), item.type, *_gold_cells(item), texts)
        table.writerow(map(guarded, row))
    with whole_files(path) as (part,):
        part.write_text(written.getvalue(), encoding="utf-8-sig", newline="")


def _gold_cells(item: Item) -> tuple[str, str]:
    quotes = [one for group in item.gold for one in group if isinstance(one, Quote)]
    files = [quote.document for quote in quotes]
    return (_cell(files[:1] if len(set(files)) == 1 else files, ";"), _cell([quote.text for quote in quotes]))


def _cell(texts: Sequence[str], between: str = "|") -> str:
    """Several texts in one cell: with a bar between them, as JSON where one has a bar itself."""
    if any(re.search(rf"[\n{re.escape(between)}]|^\s*\[", text) for text in texts):
        return json.dumps(list(texts), ensure_ascii=False)
    return f" {between} ".join(texts)


def _texts(cell: str, between: str = "|") -> tuple[str, ...]:
    """The texts of a cell."""
    if cell.lstrip().startswith("["):
        try:
            found = json.loads(cell)
        except (ValueError, RecursionError):
            found = None
        if isinstance(found, list):
            return tuple(str(one) for one in found)
    return tuple(one.strip() for one in cell.split(between) if one.strip())


@dataclass(frozen=True)
class Review(Value):
    """The review of questions by people: the remaining ones, and how many were accepted, changed and rejected."""

    items: tuple[Item, ...]
    accepted: int
    changed: int
    rejected: int


def reviewed(path: Path, items: Iterable[Item]) -> Review:
    """The questions after a review: `no` in the column `accept` leaves one out, changed cells change it.

    A question without a word in `accept`, or without a row, stays as it is. A changed quote has to occur in the file
    exactly once, which `spolia eval` checks.

    Raises:
        DataError: a row names none of these questions, has no text, or something other than yes and no in `accept`.
    """
    if path.suffix.lower() not in READERS:
        raise DataError(f"{path} is not a table. Write a review as one of: {', '.join(READERS)}.")
    every = {item.id: item for item in items}
    found = dict(every)
    accepted = changed = 0
    for place, row in READERS[path.suffix.lower()](path):
        cells = {str(name).strip().lower(): _plain(value) for name, value in row.items()}
        if (item := every.get(cells.get("id", ""))) is None:
            raise DataError(f"{place}: no question has the id {cells.get('id', '')!r}. Leave the column 'id' as it is.")
        word = cells.get("accept", "").casefold()
        if word and word not in _YES | REJECTS:
            raise DataError(f"{place}: 'accept' is {cells['accept']!r}. Write yes, no, or nothing.")
        if word in REJECTS:
            found.pop(item.id, None)
            continue
        accepted += word in _YES
        found[item.id] = _changed(place, item, cells)
        changed += found[item.id] != item
    return Review(tuple(found.values()), accepted, changed, len(every) - len(found))


def _plain(value: object) -> str:
    return unguarded(str(value if value is not None else "").strip()).strip()


def _even(text: str) -> str:
    """A text as a cell gives it back."""
    return text.replace("\r\n", "\n").replace("\r", "\n").strip()


def _changed(place: str, item: Item, cells: Mapping[str, str]) -> Item:
    """The question as a row has it: gold stays with a changed question, hops as long as they lead to its answer."""
    changes: dict[str, Any] = {}
    for name, before in ("question", item.question), ("type", item.type):
        if name in cells and cells[name] != _even(before):
            changes[name] = cells[name]
    if not changes.get("question", "-"):
        raise DataError(f"{place}: the question is empty. Write no into 'accept' to leave it out.")
    if "answers" in cells and _texts(cells["answers"]) != _texts(_even(_cell(item.answers))):
        changes["answers"] = _texts(cells["answers"])
    files, quotes = _gold_cells(item)
    if (cells.get("file", files), cells.get("quote", quotes)) != (_even(files), _even(quotes)):
        changes["gold"] = tuple(_quoted(place, cells))
    if not changes:
        return item
    found = item.but(meta=(*item.meta, ("edited", ", ".join(changes))), **changes)
    if found.type == "unanswerable" and (found.answers or found.gold):
        raise DataError(f"{place}: an unanswerable question has answers or a quote. Write another word into 'type'.")
    return found.but(decomposition=fitting_hops(found.decomposition, found.answers))


def _quoted(place: str, cells: Mapping[str, str]) -> Iterator[tuple[Gold, ...]]:
    files, quotes = _texts(cells.get("file", ""), ";"), _texts(cells.get("quote", ""))
    if len(files) not in (1, len(quotes)):
        raise DataError(f"{place}: {len(files)} files and {len(quotes)} quotes. Write one file, or one for each quote.")
    for file, words in zip(files if len(files) > 1 else files * len(quotes), quotes, strict=True):
        yield (Quote(file, SOMEWHERE, words),)
