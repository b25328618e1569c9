"""The rows of a data set as Spolia writes them; docs/reference/data_sets.md has the fields."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from math import inf
from pathlib import Path
from typing import Any, ClassVar

from spolia.errors import DataError
from spolia.evaluation.data.formats.form import Form, PlacedItem, PlacedPassage, list_names
from spolia.evaluation.data.json_lines import jsonl_file, read_rows, write_rows
from spolia.types import SOMEWHERE, Document, Gold, Item, Meta, Quote, SubQuestion

PASSAGE_FIELDS = ("id", "title", "text", "meta")
ITEM_FIELDS = ("id", "question", "answers", "type", "gold_ids", "grades", "decomposition", "meta")
MAY_BE_EMPTY = ("text", "question")
"""A published data set has an empty question: it fails when it is asked, and is counted."""
WORST_GRADE = 4


def parse_passage(place: str, row: Mapping[str, Any]) -> Document:
    """Return the passage that a row of a corpus describes; `place` names the row in errors."""
    return Document(
        _text(place, row, "id", required=True),
        _text(place, row, "text", required=True),
        title=_text(place, row, "title"),
        meta=parse_meta(place, row),
    )


def quoted_documents(row: Mapping[str, Any]) -> set[str]:
    """Return the ids of the documents of which a row of questions names stretches, as far as it can be read."""
    gold = row.get("gold_ids")
    members = (member for group in gold for member in (group if isinstance(group, list) else [group])) if gold else ()
    documents = (
        (member.get("document") for member in members if isinstance(member, Mapping)) if isinstance(gold, list) else ()
    )
    return {id for id in documents if isinstance(id, str)}


def parse_item(place: str, row: Mapping[str, Any], texts: Mapping[str, str] | None = None) -> Item:
    """Return the question that a row of questions describes; `texts` are those of `quoted_documents`, by id."""
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
        meta=parse_meta(place, row),
    )


def _hop(place: str, hop: object) -> SubQuestion:
    if not isinstance(hop, Mapping):
        raise DataError(
            f"{place}: a hop of 'decomposition' is {type(hop).__name__}; write an object with question and answer."
        )
    return SubQuestion(*(_text(place, hop, name) for name in ("question", "answer", "gold_id")))


def _gold(place: str, row: Mapping[str, Any], texts: Mapping[str, str]) -> tuple[tuple[Gold, ...], ...]:
    """Return the groups of gold: each id is one of its own; a list is a group of which any one suffices."""
    groups: dict[tuple[Gold, ...], None] = {}
    for entry in _list(place, "gold_ids", row.get("gold_ids") or []):
        group = [_member(place, member, texts) for member in (entry if isinstance(entry, list) else [entry])]
        if not group:
            raise DataError(f"{place}: 'gold_ids' holds an empty group. Name at least one passage, or leave it out.")
        groups[tuple(dict.fromkeys(group))] = None
    return tuple(groups)


def _member(place: str, member: object, texts: Mapping[str, str]) -> Gold:
    if not isinstance(member, Mapping):
        return _strings(place, "gold_ids", [member])[0]
    document, start, quote = _text(place, member, "document", required=True), member.get("start"), member.get("quote")
    if document not in texts:
        return _stored_quote(place, document, start, quote)
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


def _stored_quote(place: str, document: str, start: object, quote: object) -> Quote:
    """Return a stretch of a document of a store: it is looked for when the question is asked."""
    if not isinstance(quote, str) or not quote.strip() or not (start is None or (type(start) is int and start >= 0)):
        raise DataError(
            f"{place}: 'gold_ids' has a stretch of document {document!r}, which is not in the corpus. For a document "
            'of a store, write a quote: {"document": name, "quote": words}.'
        )
    return Quote(document, start if isinstance(start, int) else SOMEWHERE, quote)


def _grades(place: str, row: Mapping[str, Any], gold: Sequence[Sequence[Gold]]) -> tuple[tuple[str, float], ...]:
    """Return gains by gold id: `grades` are gains; `meta.grades` are codes from 1, the best, to 4, whose gain is 5 -
    code."""
    gold_ids = {str(member) for group in gold for member in group}
    if (gains := row.get("grades")) is not None:
        return tuple(_gains(place, gains, gold_ids))
    meta = row.get("meta")
    codes = meta.get("grades") if isinstance(meta, Mapping) else None
    if codes is None:
        return ()
    gains_of_codes: list[tuple[str, float]] = []
    for id, code in codes.items() if isinstance(codes, Mapping) else [("meta.grades", codes)]:
        if type(code) is not int or not 1 <= code <= WORST_GRADE or id not in gold_ids:
            raise DataError(
                f"{place}: grade {code!r} of {id!r} is not a code from 1 (best) to {WORST_GRADE} of one of the gold "
                'ids. Write "grades": {"gold id": code}.'
            )
        gains_of_codes.append((id, float(WORST_GRADE + 1 - code)))
    return tuple(gains_of_codes)


def _gains(place: str, gains: object, gold_ids: Set[str]) -> Iterator[tuple[str, float]]:
    for id, gain in gains.items() if isinstance(gains, Mapping) else [("grades", gains)]:
        if isinstance(gain, bool) or not isinstance(gain, int | float) or not 0 < gain < inf or id not in gold_ids:
            raise DataError(
                f"{place}: grade {gain!r} of {id!r} is not a number above 0 of one of the gold ids. Write "
                '"grades": {"gold id": number}, higher for more relevant.'
            )
        yield id, float(gain)


def parse_meta(place: str, row: Mapping[str, Any]) -> Meta:
    """Return the data set's own fields; what is not a scalar is kept as JSON."""
    meta = row.get("meta") or {}
    if not isinstance(meta, Mapping):
        raise DataError(f"{place}: 'meta' is {type(meta).__name__}; write an object.")
    plain = (str, int, float, bool, type(None))
    return tuple((k, v if isinstance(v, plain) else json.dumps(v, ensure_ascii=False)) for k, v in meta.items())


def _text(place: str, row: Mapping[str, Any], name: str, *, required: bool = False) -> str:
    value = row.get(name)
    if value is None and not required:
        return ""
    if not isinstance(value, str) or (required and not value and name not in MAY_BE_EMPTY):
        state = "missing" if name not in row else repr(value)
        raise DataError(f"{place}: {name!r} is {state}; write a text. The fields are: {', '.join(row) or 'none'}.")
    return value


def _list(place: str, name: str, value: object) -> list[Any]:
    if not isinstance(value, list):
        raise DataError(f"{place}: {name!r} is {value!r}; write a list.")
    return value


def _strings(place: str, name: str, value: object) -> list[str]:
    for text in (listed := _list(place, name, value)):
        if not isinstance(text, str):
            raise DataError(f"{place}: {name!r} holds {text!r}; write texts.")
    return listed


class NativeForm(Form):
    """`corpus.jsonl` and `questions.jsonl`, plain or gzipped."""

    name: ClassVar[str] = "spolia"
    files: ClassVar[str] = "corpus.jsonl, questions.jsonl (or .jsonl.gz)"

    def fits(self, path: Path) -> bool:
        return jsonl_file(path, "questions") is not None

    def corpus(self, path: Path) -> Sequence[Path]:
        file = jsonl_file(path, "corpus")
        return () if file is None else (file,)

    def passages(self, path: Path) -> Iterator[PlacedPassage]:
        for place, row in read_rows(_find_file(path, "corpus")):
            yield place, parse_passage(place, row)

    def items(self, path: Path) -> Iterator[PlacedItem]:
        file = _find_file(path, "questions")
        # The file is read twice, so that only the documents with quotes stay in memory.
        quoted_ids = {id for _, row in read_rows(file) for id in quoted_documents(row)} if self.corpus(path) else set()
        texts = (
            {passage.id: passage.text for _, passage in self.passages(path) if passage.id in quoted_ids}
            if quoted_ids
            else {}
        )
        for place, row in read_rows(file):
            yield place, parse_item(place, row, texts)

    def unread(self, path: Path) -> Mapping[str, int]:
        counts = Counter[str]()
        for name, fields in (("corpus", PASSAGE_FIELDS), ("questions", ITEM_FIELDS)):
            if (file := jsonl_file(path, name)) is not None:
                counts.update(
                    f"{field} of {name}" for _, row in read_rows(file) for field in row if field not in fields
                )
        return dict(counts.most_common())

    def write_files(self, path: Path, passages: Sequence[Document], items: Sequence[Item]) -> None:
        write_rows(path / "corpus.jsonl", (passage_row(passage) for passage in passages))
        write_rows(path / "questions.jsonl", (item_row(item) for item in items))


def passage_row(passage: Document) -> dict[str, Any]:
    row = {"id": passage.id, "title": passage.title, "text": passage.text, "meta": decode_meta(passage.meta)}
    return {name: value for name, value in row.items() if value or name in ("id", "text")}


def item_row(item: Item) -> dict[str, Any]:
    groups = [[_optional_member(member) for member in group] for group in item.gold]
    steps = [{"question": hop.question, "answer": hop.answer, "gold_id": hop.gold_id} for hop in item.decomposition]
    meta = decode_meta(item.meta)
    row = {
        "id": item.id,
        "question": item.question,
        "answers": list(item.answers),
        "type": item.type,
        "gold_ids": [group[0] if len(group) == 1 else group for group in groups],
        # Codes among the metadata are written there, and mean the same grades.
        "grades": {} if "grades" in meta else dict(item.grades),
        "decomposition": steps,
        "meta": meta,
    }
    return {name: value for name, value in row.items() if value or name in ("id", "question", "answers", "gold_ids")}


def decode_meta(meta: Meta) -> dict[str, Any]:
    """Return metadata as an object; values stored as JSON are decoded."""
    return {name: _decode_value(value) for name, value in meta}


def _decode_value(value: Any) -> Any:
    if not isinstance(value, str) or not value.startswith(("[", "{")):
        return value
    try:
        decoded = json.loads(value)
    except (ValueError, RecursionError):
        return value
    # Text that only looks like JSON comes back as it was.
    return decoded if json.dumps(decoded, ensure_ascii=False) == value else value


def _optional_member(gold: str | Quote) -> str | Mapping[str, Any]:
    if isinstance(gold, str):
        return gold
    start = {"start": gold.start} if gold.start >= 0 else {}
    return {"document": gold.document, **start, "quote": gold.text}


def _find_file(folder: Path, name: str) -> Path:
    if (file := jsonl_file(folder, name)) is not None:
        return file
    if not folder.is_dir():
        state = "is a file, not a folder" if folder.exists() else "does not exist"
        raise DataError(
            f"{folder} {state}. Give a folder with corpus.jsonl and questions.jsonl (or .jsonl.gz), or a data set in "
            "another form; docs/reference/data_sets.md has them all."
        )
    instead = ", or ask the questions of your own store: --store STORE" if name == "corpus" else ""
    raise DataError(
        f"No {name}.jsonl or {name}.jsonl.gz in {folder}; it has: {list_names(folder)}. Write it there{instead}."
    )
