"""AutoRAG: Kim et al., "AutoRAG: Automated Framework for optimization of RAG pipeline", 2024. Two tables of Parquet."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date, datetime
from pathlib import Path
from typing import Any, ClassVar

from spolia.deferred import load_module, pyarrow
from spolia.errors import DataError, require_extra
from spolia.evaluation.data.formats.form import Form, PlacedItem, PlacedPassage, passage_groups
from spolia.evaluation.data.formats.native import decode_meta
from spolia.evaluation.data.json_lines import replace_files
from spolia.types import Document, Item, Meta

LAST_MODIFIED = "last_modified_datetime"
# AutoRAG asks for a time of every passage, which other data sets do not have.
NO_TIME = datetime(1970, 1, 1)
QUESTION = ("qid", "query", "retrieval_gt", "generation_gt")
PASSAGE = ("doc_id", "contents")
BATCH = 1024  # rows that are in memory together


class AutoRAG(Form):
    """`retrieval_gt` is an AND of ORs as our gold is; what else a row has is kept as metadata."""

    name: ClassVar[str] = "autorag"
    files: ClassVar[str] = "qa.parquet, corpus.parquet"
    needs_passages: ClassVar[bool] = True

    def fits(self, path: Path) -> bool:
        return _find_table(path, "qa") is not None

    def corpus(self, path: Path) -> Sequence[Path]:
        file = _find_table(path, "corpus")
        return () if file is None else (file,)

    def passages(self, path: Path) -> Iterator[PlacedPassage]:
        for place, row in _rows(path, "corpus", PASSAGE):
            title = row.get("title") or ""
            meta = meta_of(row, (*PASSAGE, "title"))
            yield place, Document(_text(place, row, "doc_id"), str(row["contents"] or ""), title=str(title), meta=meta)

    def items(self, path: Path) -> Iterator[PlacedItem]:
        for place, row in _rows(path, "qa", QUESTION[:3]):
            answers = _as_list(row.get("generation_gt"))
            yield (
                place,
                Item(
                    _text(place, row, "qid"),
                    _text(place, row, "query"),
                    answers=tuple(map(str, answers)),
                    gold=_groups(place, row["retrieval_gt"]),
                    meta=meta_of(row, QUESTION),
                ),
            )

    def write_files(self, path: Path, passages: Sequence[Document], items: Sequence[Item]) -> None:
        path.mkdir(parents=True, exist_ok=True)
        _write(path / "corpus.parquet", [_passage_row(passage) for passage in passages])
        _write(path / "qa.parquet", [_item_row(item, self.name) for item in items])


def _passage_row(passage: Document) -> dict[str, Any]:
    """Return the row of a passage. AutoRAG asks for a path and a time of each; objects elsewhere stay JSON, as their
    fields differ."""
    json_fields = ("metadata", "path", "start_end_idx")
    meta = dict(passage.meta) | decode_meta(tuple(pair for pair in passage.meta if pair[0] in json_fields))
    stored = meta.pop("metadata", None)
    metadata = {name: _time(value) for name, value in stored.items()} if isinstance(stored, dict) else {}
    row = {"doc_id": passage.id, "contents": passage.text, "path": meta.pop("path", None) or passage.uri or None}
    row["start_end_idx"] = meta.pop("start_end_idx", None) or [0, len(passage.text)]
    title = {"title": passage.title} if passage.title else {}
    return row | {"metadata": {LAST_MODIFIED: NO_TIME} | metadata} | title | meta


def _item_row(item: Item, form: str) -> dict[str, Any]:
    gold = [list(group) for group in passage_groups(item, form)]
    return dict(zip(QUESTION, (item.id, item.question, gold, list(item.answers)), strict=True)) | dict(item.meta)


def _time(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return datetime.fromisoformat(value)
    except ValueError:
        return value


def _find_table(path: Path, name: str) -> Path | None:
    """Find `qa.parquet`, or the one file that is called so with something after it, such as `qa_test.parquet`."""
    if (exact := path / f"{name}.parquet").is_file():
        return exact
    candidates = sorted(path.glob(f"{name}*.parquet")) if path.is_dir() else []
    return candidates[0] if len(candidates) == 1 else None  # of several, none is surely meant


def _rows(path: Path, name: str, columns: Sequence[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    file = _find_table(path, name)
    if file is None:
        raise DataError(f"There is no {name}.parquet in {path}. A data set of AutoRAG has {AutoRAG.files}.")
    return parquet_rows(file, columns)


def parquet_rows(file: Path, columns: Sequence[str] = ()) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the rows of a file, each with where it stands; raise DataError if a column is missing."""
    _require_parquet(file)
    try:
        with pyarrow.parquet.ParquetFile(file) as table:
            if missing := [column for column in columns if column not in table.schema_arrow.names]:
                have = ", ".join(table.schema_arrow.names) or "none"
                raise DataError(f"{file} has no column {missing[0]!r}. It has: {have}.")
            number = 0
            for batch in table.iter_batches(BATCH):
                for row in batch.to_pylist():
                    number += 1
                    yield f"{file} row {number}", row
    except (OSError, ValueError) as error:  # pyarrow's own errors are among these
        if isinstance(error, DataError):
            raise
        raise DataError(f"{file} is not a readable Parquet file: {error}. Write it again.") from error


def _write(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    _require_parquet(path)
    try:
        table = pyarrow.Table.from_pylist(_fill_columns(rows))
    except (pyarrow.ArrowInvalid, pyarrow.ArrowTypeError) as error:
        raise DataError(
            f"{path}: rows have values of different kinds in one column: {error}. Write the form 'spolia' instead."
        ) from error
    with replace_files(path) as (part,):
        pyarrow.parquet.write_table(table, part)


def _fill_columns(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Give every row the columns of all rows; a column whose values are of several kinds becomes one of texts."""
    columns = dict.fromkeys(name for row in rows for name in row)
    kinds = {name: {type(row[name]) for row in rows if row.get(name) is not None} for name in columns}
    converters: dict[str, Callable[[Any], Any]] = {name: _as_text for name in columns if len(kinds[name]) > 1}
    return [{name: converters.get(name, lambda value: value)(row.get(name)) for name in columns} for row in rows]


def _as_text(value: Any) -> Any:
    return value if value is None or isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _require_parquet(file: Path) -> None:
    with require_extra("parquet", "pyarrow", f"The Parquet file {file}"):
        load_module("pyarrow.parquet")


def _text(place: str, row: Mapping[str, Any], name: str) -> str:
    value = row[name]
    if isinstance(value, int) and not isinstance(value, bool):  # `bool` is an `int`, too
        return str(value)
    if not isinstance(value, str) or not value:
        raise DataError(f"{place}: {name!r} is {value!r}; write a text.")
    return value


def _groups(place: str, cell: Any) -> tuple[tuple[str, ...], ...]:
    """Return the groups of a cell: lists of lists; one list is one group, a single text a group of one."""
    outer = _as_list(cell)
    inner = outer if any(isinstance(member, list | tuple) for member in outer) else [outer] if outer else []
    groups = [tuple(dict.fromkeys(map(str, _as_list(group)))) for group in inner]
    if any(not group for group in groups) and len(groups) > 1:
        raise DataError(f"{place}: 'retrieval_gt' holds an empty group. Name at least one passage, or leave it out.")
    return tuple(dict.fromkeys(group for group in groups if group))


def _as_list(cell: Any) -> list[Any]:
    return [] if cell is None else list(cell) if isinstance(cell, list | tuple) else [cell]


def meta_of(row: Mapping[str, Any], columns: Sequence[str]) -> Meta:
    """Return all other columns; what is no scalar as JSON, times as ISO 8601."""
    remaining = ((name, value) for name, value in row.items() if name not in columns and value is not None)
    return tuple(
        (name, value if isinstance(value, str | int | float) else _as_json(value)) for name, value in remaining
    )


def _as_json(value: Any) -> str:
    if isinstance(value, datetime | date):
        return value.isoformat()
    return json.dumps(value, ensure_ascii=False, default=lambda item: getattr(item, "isoformat", item.__str__)())
