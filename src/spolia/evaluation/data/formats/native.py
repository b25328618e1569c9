"""The rows of a data set as Spolia writes them; docs/reference/data_sets.md has the fields."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from math import inf
from pathlib import Path
from typing import Any, ClassVar

from spolia.errors import DataError
from spolia.evaluation.data.formats.form import Asked, Form, Placed, names_in
from spolia.evaluation.data.json_lines import jsonl_file, rows, write_rows
from spolia.types import SOMEWHERE, Document, Gold, Item, Meta, Quote, SubQuestion

PASSAGE_FIELDS = ("id", "title", "text", "meta")
ITEM_FIELDS = ("id", "question", "answers", "type", "gold_ids", "grades", "decomposition", "meta")
MAY_BE_EMPTY = ("text", "question")
"""A published data set has an empty question: it fails when it is asked, and is counted."""
WORST_GRADE = 4


def passage_in(place: str, row: Mapping[str, Any]) -> Document:
    """The passage that a row of a corpus describes; `place` names the row in errors."""
    return Document(
        _text(place, row, "id", required=True),
        _text(place, row, "text", required=True),
        title=_text(place, row, "title"),
        meta=meta_in(place, row),
    )


def quoted_documents(row: Mapping[str, Any]) -> set[str]:
    """Ids of the documents of which a row of questions names stretches, as far as it can be read."""
    gold = row.get("gold_ids")
    members = (one for group in gold for one in (group if isinstance(group, list) else [group])) if gold else ()
    found = (one.get("document") for one in members if isinstance(one, Mapping)) if isinstance(gold, list) else ()
    return {id for id in found if isinstance(id, str)}


def item_in(place: str, row: Mapping[str, Any], texts: Mapping[str, str] | None = None) -> Item:
    """The question that a row of questions describes; `texts` are those of `quoted_documents`, by id."""
    if "gold" in row and "gold_ids" not in row:
        raise DataError(f"{place}: 'gold' is not read. Call it 'gold_ids'.")
    gold = _gold(place, row, texts or {})
    return Item(
        _text(place, row, "id", required=True),
        _text(place, row, "question", required=True),
        answers=tuple(_strings(place, "answers", row.get("answers", []))),
        gold=gold,
        grades=_grades(place, row, gold),
        type=_text(place, row, "type"),
        decomposition=tuple(_hop(place, hop) for hop in _list(place, "decomposition", row.get("decomposition") or [])),
        meta=meta_in(place, row),
    )


def _hop(place: str, hop: object) -> SubQuestion:
    if not isinstance(hop, Mapping):
        raise DataError(
            f"{place}: a hop of 'decomposition' is {type(hop).__name__}; write an object with question and answer."
        )
    return SubQuestion(*(_text(place, hop, name) for name in ("question", "answer", "gold_id")))


def _gold(place: str, row: Mapping[str, Any], texts: Mapping[str, str]) -> tuple[tuple[Gold, ...], ...]:
    """Each gold id is a group of its own; a list among them is a group of which any one suffices."""
    groups: dict[tuple[Gold, ...], None] = {}
    for one in _list(place, "gold_ids", row.get("gold_ids") or []):
        group = [_member(place, each, texts) for each in (one if isinstance(one, list) else [one])]
        if not group:
            raise DataError(f"{place}: 'gold_ids' holds an empty group. Name at least one passage, or leave it out.")
        groups[tuple(dict.fromkeys(group))] = None
    return tuple(groups)


def _member(place: str, member: object, texts: Mapping[str, str]) -> Gold:
    if not isinstance(member, Mapping):
        return _strings(place, "gold_ids", [member])[0]
    document, start, quote = _text(place, member, "document", required=True), member.get("start"), member.get("quote")
    if document not in texts:
        return _elsewhere(place, document, start, quote)
    text = texts[document]
    if isinstance(quote, str) and quote.strip() and start is None:
        start = text.find(quote)
        if start >= 0 <= text.find(quote, start + 1):
            raise DataError(f"{place}: “{quote[:60]}” is in {document!r} more than once. Write its 'start' too.")
    end = start + len(quote) if isinstance(quote, str) and type(start) is int else member.get("end")
    if type(start) is not int or type(end) is not int or not 0 <= start < end <= len(text):
        raise DataError(
            f"{place}: {dict(member)} is not a stretch of {document!r}, which has {len(text)} characters. Write "
            '{"document": id, "start": number, "end": number}, or a "quote" from it.'
        )
    if (isinstance(quote, str) and text[start:end] != quote) or not text[start:end].strip():
        raise DataError(f"{place}: {document!r} has {text[start:end][:60]!r} at {start}, not {quote!r}.")
    return Quote(document, start, text[start:end])


def _elsewhere(place: str, document: str, start: object, quote: object) -> Quote:
    """A stretch of a document of a store: it is looked for when that is asked."""
    if not isinstance(quote, str) or not quote.strip() or not (start is None or (type(start) is int and start >= 0)):
        raise DataError(
            f"{place}: 'gold_ids' has a stretch of document {document!r}, which is not in the corpus. For a document "
            'of a store, write a quote: {"document": name, "quote": words}.'
        )
    return Quote(document, start if isinstance(start, int) else SOMEWHERE, quote)


def _grades(place: str, row: Mapping[str, Any], gold: Sequence[Sequence[Gold]]) -> tuple[tuple[str, float], ...]:
    """`grades` are gains; `meta.grades` are codes from 1, the best, to 4, whose gain is 5 - code."""
    known = {str(one) for group in gold for one in group}
    if (gains := row.get("grades")) is not None:
        return tuple(_gains(place, gains, known))
    meta = row.get("meta")
    codes = meta.get("grades") if isinstance(meta, Mapping) else None
    if codes is None:
        return ()
    found: list[tuple[str, float]] = []
    for id, code in codes.items() if isinstance(codes, Mapping) else [("meta.grades", codes)]:
        if type(code) is not int or not 1 <= code <= WORST_GRADE or id not in known:
            raise DataError(
                f"{place}: grade {code!r} of {id!r} is not a code from 1 (best) to {WORST_GRADE} of one of the gold "
                'ids. Write "grades": {"gold id": code}.'
            )
        found.append((id, float(WORST_GRADE + 1 - code)))
    return tuple(found)


def _gains(place: str, gains: object, known: Set[str]) -> Iterator[tuple[str, float]]:
    for id, gain in gains.items() if isinstance(gains, Mapping) else [("grades", gains)]:
        if isinstance(gain, bool) or not isinstance(gain, int | float) or not 0 < gain < inf or id not in known:
            raise DataError(
                f"{place}: grade {gain!r} of {id!r} is not a number above 0 of one of the gold ids. Write "
                '"grades": {"gold id": number}, higher for more relevant.'
            )
        yield id, float(gain)


def meta_in(place: str, row: Mapping[str, Any]) -> Meta:
    """The data set's own fields; what is not a scalar is kept as JSON."""
    meta = row.get("meta") or {}
    if not isinstance(meta, Mapping):
        raise DataError(f"{place}: 'meta' is {type(meta).__name__}; write an object.")
    plain = (str, int, float, bool, type(None))
    return tuple((k, v if isinstance(v, plain) else json.dumps(v, ensure_ascii=False)) for k, v in meta.items())


def _text(place: str, row: Mapping[str, Any], name: str, *, required: bool = False) -> str:
    found = row.get(name)
    if found is None and not required:
        return ""
    if not isinstance(found, str) or (required and not found and name not in MAY_BE_EMPTY):
        there = "missing" if name not in row else repr(found)
        raise DataError(f"{place}: {name!r} is {there}; write a text. The fields are: {', '.join(row) or 'none'}.")
    return found


def _list(place: str, name: str, found: object) -> list[Any]:
    if not isinstance(found, list):
        raise DataError(f"{place}: {name!r} is {found!r}; write a list.")
    return found


def _strings(place: str, name: str, found: object) -> list[str]:
    for one in (listed := _list(place, name, found)):
        if not isinstance(one, str):
            raise DataError(f"{place}: {name!r} holds {one!r}; write texts.")
    return listed


class NativeForm(Form):
    """`corpus.jsonl` and `questions.jsonl`, plain or gzipped."""

    called: ClassVar[str] = "spolia"
    files: ClassVar[str] = "corpus.jsonl, questions.jsonl (or .jsonl.gz)"

    def fits(self, path: Path) -> bool:
        return jsonl_file(path, "questions") is not None

    def corpus(self, path: Path) -> Sequence[Path]:
        found = jsonl_file(path, "corpus")
        return () if found is None else (found,)

    def passages(self, path: Path) -> Iterator[Placed]:
        for place, row in rows(_file(path, "corpus")):
            yield place, passage_in(place, row)

    def items(self, path: Path) -> Iterator[Asked]:
        file = _file(path, "questions")
        wanted = {id for _, row in rows(file) for id in quoted_documents(row)} if self.corpus(path) else set()
        texts = {one.id: one.text for _, one in self.passages(path) if one.id in wanted} if wanted else {}
        for place, row in rows(file):
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
    found = {"id": passage.id, "title": passage.title, "text": passage.text, "meta": plain(passage.meta)}
    return {name: value for name, value in found.items() if value or name in ("id", "text")}


def item_row(item: Item) -> dict[str, Any]:
    groups = [[_optional_member(one) for one in group] for group in item.gold]
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
    """Metadata as an object; values stored as JSON are decoded."""
    return {name: _unpacked(value) for name, value in meta}


def _unpacked(value: Any) -> Any:
    if not isinstance(value, str) or not value.startswith(("[", "{")):
        return value
    try:
        found = json.loads(value)
    except (ValueError, RecursionError):
        return value
    return found if json.dumps(found, ensure_ascii=False) == value else value


def _optional_member(gold: str | Quote) -> str | Mapping[str, Any]:
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
            "another form; docs/reference/data_sets.md has them all."
        )
    instead = ", or ask the questions of your own store: --store STORE" if name == "corpus" else ""
    raise DataError(
        f"No {name}.jsonl or {name}.jsonl.gz in {folder}; it has: {names_in(folder)}. Write it there{instead}."
    )
