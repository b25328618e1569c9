"""AutoRAG: Kim et al., "AutoRAG: Automated Framework for optimization of RAG pipeline", 2024. Two tables of Parquet."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date, datetime
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

from spolia.errors import DataError, installed
from spolia.evaluation.data.formats.form import Asked, Form, Placed, passage_groups
from spolia.evaluation.data.formats.native import plain
from spolia.evaluation.data.json_lines import whole_files
from spolia.types import Document, Item, Meta

LAST_MODIFIED = "last_modified_datetime"
NO_TIME = datetime(1970, 1, 1)
QUESTION = ("qid", "query", "retrieval_gt", "generation_gt")
PASSAGE = ("doc_id", "contents")
BATCH = 1024


class AutoRAG(Form):
    """`retrieval_gt` is an AND of ORs as our gold is; what else a row has is kept as metadata."""

    called: ClassVar[str] = "autorag"
    files: ClassVar[str] = "qa.parquet, corpus.parquet"
    needs_passages: ClassVar[bool] = True

    def fits(self, path: Path) -> bool:
        return _table(path, "qa") is not None

    def corpus(self, path: Path) -> Sequence[Path]:
        found = _table(path, "corpus")
        return () if found is None else (found,)

    def passages(self, path: Path) -> Iterator[Placed]:
        for place, row in _rows(path, "corpus", PASSAGE):
            title = row.get("title") or ""
            meta = meta_of(row, (*PASSAGE, "title"))
            yield place, Document(_text(place, row, "doc_id"), str(row["contents"] or ""), title=str(title), meta=meta)

    def items(self, path: Path) -> Iterator[Asked]:
        for place, row in _rows(path, "qa", QUESTION[:3]):
            answers = _listed(row.get("generation_gt"))
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

    def put(self, path: Path, passages: Sequence[Document], items: Sequence[Item]) -> None:
        path.mkdir(parents=True, exist_ok=True)
        _write(path / "corpus.parquet", [_passage_row(one) for one in passages])
        _write(path / "qa.parquet", [_item_row(one, self.called) for one in items])


def _passage_row(one: Document) -> dict[str, Any]:
    """AutoRAG asks for a path and for a time of every passage; objects elsewhere stay JSON, as their fields differ."""
    named = ("metadata", "path", "start_end_idx")
    meta = dict(one.meta) | plain(tuple(pair for pair in one.meta if pair[0] in named))
    told = meta.pop("metadata", None)
    metadata = {name: _time(value) for name, value in told.items()} if isinstance(told, dict) else {}
    known = {"doc_id": one.id, "contents": one.text, "path": meta.pop("path", None) or one.uri or None}
    known["start_end_idx"] = meta.pop("start_end_idx", None) or [0, len(one.text)]
    title = {"title": one.title} if one.title else {}
    return known | {"metadata": {LAST_MODIFIED: NO_TIME} | metadata} | title | meta


def _item_row(one: Item, form: str) -> dict[str, Any]:
    gold = [list(group) for group in passage_groups(one, form)]
    return dict(zip(QUESTION, (one.id, one.question, gold, list(one.answers)), strict=True)) | dict(one.meta)


def _time(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    try:
        return datetime.fromisoformat(value)
    except ValueError:
        return value


def _table(path: Path, name: str) -> Path | None:
    """`qa.parquet`, or the one file that is called so with something after it, such as `qa_test.parquet`."""
    if (whole := path / f"{name}.parquet").is_file():
        return whole
    found = sorted(path.glob(f"{name}*.parquet")) if path.is_dir() else []
    return found[0] if len(found) == 1 else None


def _rows(path: Path, name: str, columns: Sequence[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    file = _table(path, name)
    if file is None:
        raise DataError(f"There is no {name}.parquet in {path}. A data set of AutoRAG has {AutoRAG.files}.")
    return parquet_rows(file, columns)


def parquet_rows(file: Path, columns: Sequence[str] = ()) -> Iterator[tuple[str, dict[str, Any]]]:
    """The rows of a file, each with where it stands; DataError if a column is missing."""
    parquet = _pyarrow("parquet", file)
    try:
        with parquet.ParquetFile(file) as table:
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
    import_ = _pyarrow("", path)
    try:
        table = import_.Table.from_pylist(_filled(rows))
    except (import_.ArrowInvalid, import_.ArrowTypeError) as error:
        raise DataError(
            f"{path}: rows have values of different kinds in one column: {error}. Write the form 'spolia' instead."
        ) from error
    with whole_files(path) as (part,):
        _pyarrow("parquet", path).write_table(table, part)


def _filled(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """A column that any row has is one of the table; one whose values are of several kinds is of texts."""
    columns = dict.fromkeys(name for row in rows for name in row)
    kinds = {name: {type(row[name]) for row in rows if row.get(name) is not None} for name in columns}
    made: dict[str, Callable[[Any], Any]] = {name: _as_text for name in columns if len(kinds[name]) > 1}
    return [{name: made.get(name, lambda value: value)(row.get(name)) for name in columns} for row in rows]


def _as_text(value: Any) -> Any:
    return value if value is None or isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _pyarrow(module: str, file: Path) -> Any:
    with installed("parquet", "pyarrow", f"The Parquet file {file}"):
        return import_module(f"pyarrow.{module}" if module else "pyarrow")


def _text(place: str, row: Mapping[str, Any], name: str) -> str:
    found = row[name]
    if isinstance(found, int) and not isinstance(found, bool):
        return str(found)
    if not isinstance(found, str) or not found:
        raise DataError(f"{place}: {name!r} is {found!r}; write a text.")
    return found


def _groups(place: str, found: Any) -> tuple[tuple[str, ...], ...]:
    """Lists of lists; one list is a group, one text a group of one, as AutoRAG reads them."""
    outer = _listed(found)
    inner = outer if any(isinstance(one, list | tuple) for one in outer) else [outer] if outer else []
    groups = [tuple(dict.fromkeys(map(str, _listed(group)))) for group in inner]
    if any(not group for group in groups) and len(groups) > 1:
        raise DataError(f"{place}: 'retrieval_gt' holds an empty group. Name at least one passage, or leave it out.")
    return tuple(dict.fromkeys(group for group in groups if group))


def _listed(found: Any) -> list[Any]:
    return [] if found is None else list(found) if isinstance(found, list | tuple) else [found]


def meta_of(row: Mapping[str, Any], known: Sequence[str]) -> Meta:
    """All other columns; what is no scalar as JSON, times as ISO 8601."""
    rest = ((name, value) for name, value in row.items() if name not in known and value is not None)
    return tuple((name, value if isinstance(value, str | int | float) else _json(value)) for name, value in rest)


def _json(value: Any) -> str:
    if isinstance(value, datetime | date):
        return value.isoformat()
    return json.dumps(value, ensure_ascii=False, default=lambda one: getattr(one, "isoformat", one.__str__)())
