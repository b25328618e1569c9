"""Spolia's own form, which has a place for everything: `spolia.evaluation.schema`."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from spolia.errors import DataError
from spolia.evaluation.formats.form import Asked, Form, Placed
from spolia.evaluation.jsonl import jsonl_file, rows, write_rows
from spolia.evaluation.schema import ITEM_FIELDS, PASSAGE_FIELDS, item_in, passage_in, quoted_documents
from spolia.types import Document, Item, Meta, Quote


class Own(Form):
    """`corpus.jsonl` and `questions.jsonl`, plain or gzipped."""

    called: ClassVar[str] = "spolia"
    files: ClassVar[str] = "corpus.jsonl, questions.jsonl (or .jsonl.gz)"

    def fits(self, path: Path) -> bool:
        return jsonl_file(path, "questions") is not None

    def corpus(self, path: Path) -> Sequence[Path]:
        found = jsonl_file(path, "corpus")
        return () if found is None else (found,)

    def passages(self, path: Path) -> Iterator[Placed]:
        file = _file(path, "corpus")
        for number, row in rows(file):
            place = f"{file} line {number}"
            yield place, passage_in(place, row)

    def items(self, path: Path) -> Iterator[Asked]:
        file = _file(path, "questions")
        wanted = {id for _, row in rows(file) for id in quoted_documents(row)} if self.corpus(path) else set()
        texts = {one.id: one.text for _, one in self.passages(path) if one.id in wanted} if wanted else {}
        for number, row in rows(file):
            place = f"{file} line {number}"
            yield place, item_in(place, row, texts)

    def unread(self, path: Path) -> Mapping[str, int]:
        found = Counter[str]()
        for name, known in (("corpus", PASSAGE_FIELDS), ("questions", ITEM_FIELDS)):
            if (file := jsonl_file(path, name)) is not None:
                found.update(f"{field} of {name}" for _, row in rows(file) for field in row if field not in known)
        return dict(found.most_common())

    def put(self, path: Path, passages: Sequence[Document], items: Sequence[Item]) -> None:
        write_rows(path / "corpus.jsonl", (passage_row(one) for one in passages))
        write_rows(path / "questions.jsonl", (item_row(one) for one in items))


def passage_row(passage: Document) -> dict[str, Any]:
    """A passage as it is written."""
    found = {"id": passage.id, "title": passage.title, "text": passage.text, "meta": plain(passage.meta)}
    return {name: value for name, value in found.items() if value or name in ("id", "text")}


def item_row(item: Item) -> dict[str, Any]:
    """A question as it is written."""
    groups = [[_member(one) for one in group] for group in item.gold]
    steps = [{"question": one.question, "answer": one.answer, "gold_id": one.gold_id} for one in item.decomposition]
    meta = plain(item.meta)
    found = {
        "id": item.id,
        "question": item.question,
        "answers": list(item.answers),
        "type": item.type,
        "gold_ids": [group[0] if len(group) == 1 else group for group in groups],
        "grades": {} if "grades" in meta else dict(item.grades),
        "decomposition": steps,
        "meta": meta,
    }
    return {name: value for name, value in found.items() if value or name in ("id", "question", "answers", "gold_ids")}


def plain(meta: Meta) -> dict[str, Any]:
    """Metadata as an object; what was kept as JSON is what it was."""
    return {name: _unpacked(value) for name, value in meta}


def _unpacked(value: Any) -> Any:
    if not isinstance(value, str) or not value.startswith(("[", "{")):
        return value
    try:
        found = json.loads(value)
    except (ValueError, RecursionError):
        return value
    return found if json.dumps(found, ensure_ascii=False) == value else value


def _member(gold: str | Quote) -> str | Mapping[str, Any]:
    if isinstance(gold, str):
        return gold
    start = {"start": gold.start} if gold.start >= 0 else {}
    return {"document": gold.document, **start, "quote": gold.text}


def _file(folder: Path, name: str) -> Path:
    if (found := jsonl_file(folder, name)) is not None:
        return found
    if not folder.is_dir():
        there = "is a file, not a folder" if folder.exists() else "does not exist"
        raise DataError(
            f"{folder} {there}. Give a folder with corpus.jsonl and questions.jsonl (or .jsonl.gz), or a data set in "
            "another form; docs/datasets.md has them all."
        )
    names = sorted(entry.name for entry in folder.iterdir())
    have = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
    instead = ", or ask the questions of a store of yours: --store STORE" if name == "corpus" else ""
    raise DataError(
        f"No {name}.jsonl or {name}.jsonl.gz in {folder}; it has: {have or 'nothing'}. Write it there{instead}."
    )
