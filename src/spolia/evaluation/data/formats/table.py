"""Questions in a table, as people keep them: a row a question, columns by whatever name."""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any, ClassVar

from spolia.deferred import python_calamine as calamine
from spolia.errors import DataError, DocumentError, require
from spolia.evaluation.data.formats.autorag import meta_of, parquet_rows
from spolia.evaluation.data.formats.form import Form, PlacedItem, PlacedPassage
from spolia.evaluation.data.formats.native import parse_item
from spolia.evaluation.data.json_lines import read_first_record, read_records
from spolia.indexing.readers.records import dialect_of, rows_of
from spolia.indexing.readers.text import decode
from spolia.types import SOMEWHERE, Document, Gold, Item, Quote, digest_of

COLUMNS: Mapping[str, str] = {
    "question": "question text|question|query|user input|input|prompt|q|frage|pregunta|问题|提问|問題|质问|질문|質問",
    "id": "id|qid|question id|query id|nr|no|编号|번호",
    "answers": (
        "answers?|expected answers?|expected output|expected|reference answers?|references?|gold answers?|"
        "ground truths?|correct answers?|antwort|respuesta|答案|回答|정답|답변|답|解答"
    ),
    "file": (
        "files?|file ?names?|documents?|docs?|document names?|sources?|source files?|source documents?|gold files?|"
        "gold documents?|gold|uri|path|datei|quelle|dokument|文件|文档|来源|파일|문서|출처|ファイル|文書"
    ),
    "page": "pages?|page numbers?|page nos?|seiten?|页码?|쪽|페이지|ページ",
    "quote": (
        "quotes?|gold quotes?|evidences?|passages?|contexts?|reference contexts?|gold passages?|gold contexts?|"
        "excerpts?|citation|zitat|引文|原文|인용|근거|引用"
    ),
    "type": "type|question type|kind|category|typ|kategorie|类型|类别|유형|종류|種類",
    "accept": "accept",
}
"""By what they are read as, the names of columns; the first that fits is taken."""
REJECTS = frozenset(
    ("no", "n", "0", "false", "reject", "rejected", "drop", "nein", "否", "不", "아니요", "아니오", "いいえ")
)
"""Values of the column `accept` that leave a question out."""
ASKS = re.compile(r"[?？؟]\s*$")
SAMPLE = 50
"""Rows that are read to find the column of questions if no column has that name."""
TITLES = 10
"""Rows at the top that are searched for the names of columns, if the first has empty cells or numbers."""
END = "(end)"
"""A row after the last one: it is missing if a quote does not close."""
PAGES = re.compile(r"\s*(\d{1,6})(?:\.0)?(?:\s*[-–—]\s*(\d{1,6}))?\s*")  # spreadsheets hold page 3 as 3.0
WIDEST = 100
"""Pages of one range."""


class QuestionTable(Form):
    """Table with a row for each question. The meaning of a column is guessed from its name, and told (`columns`)."""

    name: ClassVar[str] = "table"
    files: ClassVar[str] = "questions.csv (or .tsv, .xlsx, .xls, .parquet, .json, .jsonl)"

    def fits(self, path: Path) -> bool:
        if path.suffix.lower() in (".json", ".jsonl"):
            return path.is_file() and "question" in guess_columns(path, [read_first_record(path)])
        return path.is_file() and path.suffix.lower() in READERS

    def passages(self, path: Path) -> Iterator[PlacedPassage]:
        raise DataError(f"{path} has questions and no passages. Ask them of a store: --store STORE.")

    def columns(self, path: Path) -> Mapping[str, str]:
        return guess_columns(path, [row for _, row in islice(_rows(path), SAMPLE)])

    def other_columns(self, path: Path) -> Sequence[str]:
        read_columns = (*self.columns(path).values(), "gold_ids")
        return list(
            dict.fromkeys(name for _, row in islice(_rows(path), SAMPLE) for name in row if name not in read_columns)
        )

    def items(self, path: Path) -> Iterator[PlacedItem]:
        columns, id_counts = self.columns(path), Counter[str]()
        if "question" not in columns:
            names = ", ".join(next((row for _, row in _rows(path)), {}))
            if not names:
                raise DataError(f"{path} has no rows. Write a line with the names of columns, then one a question.")
            raise DataError(f"{path} has no question column. It has: {names}. Call one of them 'question'.")
        for place, row in _rows(path):
            if _text(row.get(columns.get("accept", ""))).casefold() in REJECTS:
                continue
            if isinstance(row.get("gold_ids"), list):
                yield place, parse_item(place, {"id": _id(row, columns, id_counts), **row})
            elif question := _text(row.get(columns["question"])):
                yield (
                    place,
                    Item(
                        _id(row, columns, id_counts),
                        question,
                        answers=tuple(_texts(place, row, columns, "answers", r"\|")),
                        gold=tuple(dict.fromkeys(_gold(place, row, columns))),
                        type=_text(row.get(columns.get("type", ""))),
                        meta=meta_of(row, tuple(columns.values())),
                    ),
                )

    def write_files(self, path: Path, passages: Sequence[Document], items: Sequence[Item]) -> None:
        raise DataError("A data set is not written as a table. Write the form 'spolia'.")


def guess_columns(path: Path, rows: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Guess which column is read as what: by its name, and the question else by its marks.

    >>> guess_columns(Path("q.csv"), [{"Frage": "Wer?", "Source File": "a.pdf", "Topic": "sea"}])
    {'question': 'Frage', 'file': 'Source File'}
    """
    names = list(dict.fromkeys(name for row in rows for name in row))
    plain = {name: " ".join(re.sub(r"[\W_]+", " ", name).casefold().split()) for name in names}
    columns: dict[str, str] = {}
    for role, patterns in COLUMNS.items():
        remaining = [name for name in names if name not in columns.values()]
        matching = (name for pattern in patterns.split("|") for name in remaining if re.fullmatch(pattern, plain[name]))
        if (name := next(matching, None)) is not None:
            columns[role] = name
    if "question" not in columns:
        mark_counts = Counter(name for row in rows for name in names if ASKS.search(_text(row.get(name))))
        candidates = [
            # Half of the rows: one stray question mark names no column.
            name
            for name, times in mark_counts.most_common()
            if name not in columns.values() and 2 * times >= len(rows)
        ]
        columns = {"question": candidates[0], **columns} if candidates else columns
    return columns


def _gold(place: str, row: Mapping[str, Any], columns: Mapping[str, str]) -> Iterator[tuple[Gold, ...]]:
    """Yield the gold: each file, page or quote is a group of its own; the pages of a range are one group."""
    files, quotes, pages = (
        _texts(place, row, columns, role, marks)
        for role, marks in (("file", r"[;\n|]"), ("quote", r"\|"), ("page", r"[,;\n|]"))
    )
    parts = quotes or pages
    if not parts or (pages and not quotes and not files):
        yield from ((file,) for file in files)
        return
    if len(files) > 1 and len(files) != len(parts):
        amount = f"{len(quotes)} quotes" if quotes else f"{len(pages)} pages"
        raise DataError(f"{place}: {len(files)} files and {amount}. Write as many, in the same order, or one file.")
    paired = zip(files, parts, strict=True) if len(files) > 1 else zip_longest([], parts, fillvalue="".join(files))
    for file, part in paired:
        yield (Quote(file, SOMEWHERE, part),) if quotes else tuple(_pages(place, file, part))


def _pages(place: str, file: str, cell: str) -> Iterator[Gold]:
    match = PAGES.fullmatch(cell)
    first, last = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
    if not 1 <= first <= last < first + WIDEST:
        raise DataError(f"{place}: page {cell!r} of {file!r} is not a number or range of pages. Write 3, or 3-5.")
    return (f"{file}#page={number}" for number in range(first, last + 1))


def _id(row: Mapping[str, Any], columns: Mapping[str, str], id_counts: Counter[str]) -> str:
    """Return its id; without one a hash of the question, so that it stays in its part when rows are put before it."""
    if cell := _text(row.get(columns.get("id", ""))):
        return cell
    id = digest_of(_text(row.get(columns["question"]))).hex()[:12]
    id_counts[id] += 1
    return id if id_counts[id] == 1 else f"{id}-{id_counts[id]}"


def _texts(place: str, row: Mapping[str, Any], columns: Mapping[str, str], role: str, marks: str) -> list[str]:
    """Return the texts of a cell: a list, a list in JSON, or what stands between marks."""
    cell = row.get(columns.get(role, ""))
    if isinstance(cell, str) and cell.lstrip().startswith("["):
        with suppress(ValueError, RecursionError):  # else it is a text that begins with a bracket
            cell = json.loads(cell)
    listed: Iterable[Any] = cell if isinstance(cell, list | tuple) else re.split(marks, _text(cell))
    if nested := [value for value in listed if isinstance(value, list | tuple | Mapping)]:
        raise DataError(
            f"{place}: {columns[role]!r} holds {json.dumps(nested[0], default=str)}, which is not a text. Write a list "
            'of texts; for passages of which any one suffices, write "gold_ids": [["a", "b"]].'
        )
    return [text for value in listed if value is not None and (text := _format_cell(value))]


def _text(cell: Any) -> str:
    """Return a cell as a text; whole numbers, which spreadsheets keep with a fraction, without it."""
    # NaN, which an empty cell of numbers may hold, is the only value that differs from itself.
    if cell is None or cell != cell or isinstance(cell, bool):
        return ""
    return unguard_cell(_format_cell(cell))


def _format_cell(cell: Any) -> str:
    return str(int(cell) if isinstance(cell, float) and cell.is_integer() else cell).strip()


def _rows(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    if not path.is_file():
        raise DataError(f"{path} is not a file. Name the table itself, for example questions.csv.")
    yield from READERS[path.suffix.lower()](path)


def _read_separated(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    try:
        text = decode(path.read_bytes(), str(path)).text
    except (OSError, DocumentError) as error:
        raise DataError(f"{path} cannot be read: {error}. Save it as CSV in UTF-8.") from error
    dialect = dialect_of(text)
    rows = list(rows_of(f"{text}\n{END}", dialect.mark))
    # A quote that never closes swallows the rows after it, and so the row added at the end.
    if rows.pop() != [END]:
        raise DataError(f'{path} row {len(rows) + 1}: a quote (") opens and never closes. Close it, or delete it.')
    yield from _rows_by_column(path, rows, dialect.has_head)


def _read_sheet(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the rows of the first sheet that has rows."""
    require(calamine, f"Reading {path}")
    try:
        book = calamine.CalamineWorkbook.from_path(path)
        sheets = (book.get_sheet_by_name(name).to_python() for name in book.sheet_names)
        rows = next((rows for rows in sheets if len(rows) > 1), [])
    except (calamine.CalamineError, OSError) as error:
        raise DataError(f"{path} is not a readable workbook: {error}. Save it as XLSX or CSV.") from error
    yield from _rows_by_column(path, [[_text(cell) for cell in row] for row in rows], True)


def _rows_by_column(
    path: Path, rows: Sequence[Sequence[str]], has_head: bool
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield rows by the names of their columns, by number if none has names. Titles may stand above the names."""
    width = max(map(len, rows), default=0)
    naming = (
        index for index, row in enumerate(rows[:TITLES]) if "question" in guess_columns(path, [dict.fromkeys(row, "")])
    )
    index = 0 if has_head and rows and all(rows[0]) else next(naming, has_head - 1)
    head = [name.strip() for name in rows[index]] if rows and index >= 0 else []
    for name, times in Counter(filter(None, head)).items():
        if times > 1:
            raise DataError(f"{path} has {times} columns {name!r}. Rename or delete all but one.")
    names = [name or f"column {index}" for index, name in enumerate([*head, *[""] * (width - len(head))], 1)]
    for number, row in enumerate(rows[index + 1 :], index + 2):
        if head and any(cell.strip() for cell in row[len(head) :]):
            raise DataError(
                f"{path} row {number} has {len(row)} cells, and the header names {len(head)}. {row[len(head)]!r} is "
                'left over. Put a cell that contains the separator in quotes ("1,299 EUR"), or name the column.'
            )
        if any(cell.strip() for cell in row):
            yield f"{path} row {number}", dict(zip_longest(names, row, fillvalue=""))


READERS: Mapping[str, Callable[[Path], Iterator[tuple[str, Mapping[str, Any]]]]] = {
    ".csv": _read_separated,
    ".tsv": _read_separated,
    ".xlsx": _read_sheet,
    ".xlsm": _read_sheet,
    ".xls": _read_sheet,
    ".parquet": parquet_rows,
    ".json": read_records,
    ".jsonl": read_records,
}


_CHANGES = re.compile(
    r"\s*[=@＝＠\t\r]|\s*[+＋－]|\s*-(?!(?:0|[1-9]\d{0,14})\Z)|"  # read as a formula
    r"(?!(?:0|[1-9]\d{0,14})\Z)[\d\s.,:/%€$£¥-]*\d[\d\s.,:/%€$£¥-]*\Z|[\d.,]+e[+-]?\d+\Z|"  # as a number or date
    r"(?=.*\d)(?:\d{1,4}[\s.,/-]*)?(?:jan|feb|mar|mär|apr|may|mai|jun|jul|aug|sep|oct|okt|nov|dec|dez)[a-zä]*\.?"
    r"(?:[\s.,/-]*\d{1,4}){0,2}\Z|\d{1,4}\s?[年년](?:\s?\d{1,2}\s?[月월](?:\s?\d{1,2}\s?[日일])?)?\Z|"
    r"\d{1,2}(?::\d\d){0,2}\s*[ap]\.?m\.?\Z|(?:true|false|wahr|falsch|vrai|faux)\Z",
    re.IGNORECASE,
)


def guard_cell(cell: str) -> str:
    """Return a cell with a mark before it if a spreadsheet would read a formula, a date or another number in it.

    >>> guard_cell("=1+1"), guard_cell("1/2"), guard_cell("1871"), guard_cell("007"), guard_cell("in 1871")
    ("'=1+1", "'1/2", '1871', "'007", 'in 1871')
    """
    # A cell that has the mark gets another one: `unguard_cell` takes one away.
    return f"'{cell}" if _CHANGES.match(cell.lstrip("'")) else cell


def unguard_cell(cell: str) -> str:
    """Return the cell without the mark, and with plain ends of lines.

    >>> unguard_cell("'=1+1"), unguard_cell("'tis so")
    ('=1+1', "'tis so")
    """
    text = cell.replace("\r\n", "\n").replace("\r", "\n")
    return text[1:] if text[:1] == "'" and _CHANGES.match(text.lstrip("'")) else text
