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
from spolia.evaluation.data.formats.form import Asked, Form, Placed
from spolia.evaluation.data.formats.native import item_in
from spolia.evaluation.data.json_lines import first_record, records
from spolia.indexing.readers.records import dialect_of, rows_of
from spolia.indexing.readers.text import decoded
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
PAGES = re.compile(r"\s*(\d{1,6})(?:\.0)?(?:\s*[-–—]\s*(\d{1,6}))?\s*")
WIDEST = 100
"""Pages of one range."""


class QuestionTable(Form):
    """A file with a row for each question. Which column is what is guessed from its name, and told (`columns`)."""

    called: ClassVar[str] = "table"
    files: ClassVar[str] = "questions.csv (or .tsv, .xlsx, .xls, .parquet, .json, .jsonl)"

    def fits(self, path: Path) -> bool:
        if path.suffix.lower() in (".json", ".jsonl"):
            return path.is_file() and "question" in guessed(path, [first_record(path)])
        return path.is_file() and path.suffix.lower() in READERS

    def passages(self, path: Path) -> Iterator[Placed]:
        raise DataError(f"{path} has questions and no passages. Ask them of a store: --store STORE.")

    def columns(self, path: Path) -> Mapping[str, str]:
        return guessed(path, [row for _, row in islice(_rows(path), SAMPLE)])

    def other_columns(self, path: Path) -> Sequence[str]:
        read = (*self.columns(path).values(), "gold_ids")
        return list(dict.fromkeys(name for _, row in islice(_rows(path), SAMPLE) for name in row if name not in read))

    def items(self, path: Path) -> Iterator[Asked]:
        columns, seen = self.columns(path), Counter[str]()
        if "question" not in columns:
            names = ", ".join(next((row for _, row in _rows(path)), {}))
            if not names:
                raise DataError(f"{path} has no rows. Write a line with the names of columns, then one a question.")
            raise DataError(f"{path} has no question column. It has: {names}. Call one of them 'question'.")
        for place, row in _rows(path):
            if _text(row.get(columns.get("accept", ""))).casefold() in REJECTS:
                continue
            if isinstance(row.get("gold_ids"), list):
                yield place, item_in(place, {"id": _id(row, columns, seen), **row})
            elif question := _text(row.get(columns["question"])):
                yield (
                    place,
                    Item(
                        _id(row, columns, seen),
                        question,
                        answers=tuple(_texts(place, row, columns, "answers", r"\|")),
                        gold=tuple(dict.fromkeys(_gold(place, row, columns))),
                        type=_text(row.get(columns.get("type", ""))),
                        meta=meta_of(row, tuple(columns.values())),
                    ),
                )

    def put(self, path: Path, passages: Sequence[Document], items: Sequence[Item]) -> None:
        raise DataError("A data set is not written as a table. Write the form 'spolia'.")


def guessed(path: Path, rows: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Which column is read as what: by its name, and the question else by its marks.

    >>> guessed(Path("q.csv"), [{"Frage": "Wer?", "Source File": "a.pdf", "Topic": "sea"}])
    {'question': 'Frage', 'file': 'Source File'}
    """
    names = list(dict.fromkeys(name for row in rows for name in row))
    plain = {name: " ".join(re.sub(r"[\W_]+", " ", name).casefold().split()) for name in names}
    found: dict[str, str] = {}
    for role, known in COLUMNS.items():
        free = [name for name in names if name not in found.values()]
        fitting = (name for way in known.split("|") for name in free if re.fullmatch(way, plain[name]))
        if (name := next(fitting, None)) is not None:
            found[role] = name
    if "question" not in found:
        asking = Counter(name for row in rows for name in names if ASKS.search(_text(row.get(name))))
        asked = [name for name, times in asking.most_common() if name not in found.values() and 2 * times >= len(rows)]
        found = {"question": asked[0], **found} if asked else found
    return found


def _gold(place: str, row: Mapping[str, Any], columns: Mapping[str, str]) -> Iterator[tuple[Gold, ...]]:
    """Each file, page or quote is a group of its own; the pages of a range are one group."""
    files, quotes, pages = (
        _texts(place, row, columns, role, marks)
        for role, marks in (("file", r"[;\n|]"), ("quote", r"\|"), ("page", r"[,;\n|]"))
    )
    given = quotes or pages
    if not given or (pages and not quotes and not files):
        yield from ((file,) for file in files)
        return
    if len(files) > 1 and len(files) != len(given):
        what = f"{len(quotes)} quotes" if quotes else f"{len(pages)} pages"
        raise DataError(f"{place}: {len(files)} files and {what}. Write as many, in the same order, or one file.")
    paired = zip(files, given, strict=True) if len(files) > 1 else zip_longest([], given, fillvalue="".join(files))
    for file, one in paired:
        yield (Quote(file, SOMEWHERE, one),) if quotes else tuple(_pages(place, file, one))


def _pages(place: str, file: str, written: str) -> Iterator[Gold]:
    found = PAGES.fullmatch(written)
    first, last = (int(found[1]), int(found[2] or found[1])) if found else (0, 0)
    if not 1 <= first <= last < first + WIDEST:
        raise DataError(f"{place}: page {written!r} of {file!r} is not a number or range of pages. Write 3, or 3-5.")
    return (f"{file}#page={number}" for number in range(first, last + 1))


def _id(row: Mapping[str, Any], columns: Mapping[str, str], seen: Counter[str]) -> str:
    """Its id; without one a hash of the question, so that it stays in its part when rows are put before it."""
    if given := _text(row.get(columns.get("id", ""))):
        return given
    id = digest_of(_text(row.get(columns["question"]))).hex()[:12]
    seen[id] += 1
    return id if seen[id] == 1 else f"{id}-{seen[id]}"


def _texts(place: str, row: Mapping[str, Any], columns: Mapping[str, str], role: str, marks: str) -> list[str]:
    """Return the texts of a cell: a list, a list in JSON, or what stands between marks."""
    cell = row.get(columns.get(role, ""))
    if isinstance(cell, str) and cell.lstrip().startswith("["):
        with suppress(ValueError, RecursionError):
            cell = json.loads(cell)
    listed: Iterable[Any] = cell if isinstance(cell, list | tuple) else re.split(marks, _text(cell))
    if nested := [one for one in listed if isinstance(one, list | tuple | Mapping)]:
        raise DataError(
            f"{place}: {columns[role]!r} holds {json.dumps(nested[0], default=str)}, which is not a text. Write a list "
            'of texts; for passages of which any one suffices, write "gold_ids": [["a", "b"]].'
        )
    return [said for one in listed if one is not None and (said := _said(one))]


def _text(cell: Any) -> str:
    """A cell as a text; whole numbers, which spreadsheets keep with a fraction, without it."""
    if cell is None or cell != cell or isinstance(cell, bool):
        return ""
    return unguarded(_said(cell))


def _said(cell: Any) -> str:
    return str(int(cell) if isinstance(cell, float) and cell.is_integer() else cell).strip()


def _rows(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    if not path.is_file():
        raise DataError(f"{path} is not a file. Name the table itself, for example questions.csv.")
    yield from READERS[path.suffix.lower()](path)


def _separated(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    try:
        text = decoded(path.read_bytes(), str(path)).text
    except (OSError, DocumentError) as error:
        raise DataError(f"{path} cannot be read: {error}. Save it as CSV in UTF-8.") from error
    dialect = dialect_of(text)
    rows = list(rows_of(f"{text}\n{END}", dialect.mark))
    if rows.pop() != [END]:
        raise DataError(f'{path} row {len(rows) + 1}: a quote (") opens and never closes. Close it, or delete it.')
    yield from _named(path, rows, dialect.has_head)


def _sheet(path: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The first sheet that has rows."""
    require(calamine, f"Reading {path}")
    try:
        book = calamine.CalamineWorkbook.from_path(path)
        sheets = (book.get_sheet_by_name(name).to_python() for name in book.sheet_names)
        rows = next((rows for rows in sheets if len(rows) > 1), [])
    except (calamine.CalamineError, OSError) as error:
        raise DataError(f"{path} is not a readable workbook: {error}. Save it as XLSX or CSV.") from error
    yield from _named(path, [[_text(cell) for cell in row] for row in rows], True)


def _named(path: Path, rows: Sequence[Sequence[str]], has_head: bool) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Rows by the names of their columns, by number if none has names. Titles may stand above the names."""
    width = max(map(len, rows), default=0)
    naming = (at for at, row in enumerate(rows[:TITLES]) if "question" in guessed(path, [dict.fromkeys(row, "")]))
    at = 0 if has_head and rows and all(rows[0]) else next(naming, has_head - 1)
    head = [name.strip() for name in rows[at]] if rows and at >= 0 else []
    for name, times in Counter(filter(None, head)).items():
        if times > 1:
            raise DataError(f"{path} has {times} columns {name!r}. Rename or delete all but one.")
    names = [name or f"column {at}" for at, name in enumerate([*head, *[""] * (width - len(head))], 1)]
    for number, row in enumerate(rows[at + 1 :], at + 2):
        if head and any(cell.strip() for cell in row[len(head) :]):
            raise DataError(
                f"{path} row {number} has {len(row)} cells, and the header names {len(head)}. {row[len(head)]!r} is "
                'left over. Put a cell that contains the separator in quotes ("1,299 EUR"), or name the column.'
            )
        if any(cell.strip() for cell in row):
            yield f"{path} row {number}", dict(zip_longest(names, row, fillvalue=""))


READERS: Mapping[str, Callable[[Path], Iterator[tuple[str, Mapping[str, Any]]]]] = {
    ".csv": _separated,
    ".tsv": _separated,
    ".xlsx": _sheet,
    ".xlsm": _sheet,
    ".xls": _sheet,
    ".parquet": parquet_rows,
    ".json": records,
    ".jsonl": records,
}


_CHANGES = re.compile(
    r"\s*[=@＝＠\t\r]|\s*[+＋－]|\s*-(?!(?:0|[1-9]\d{0,14})\Z)|"  # read as a formula
    r"(?!(?:0|[1-9]\d{0,14})\Z)[\d\s.,:/%€$£¥-]*\d[\d\s.,:/%€$£¥-]*\Z|[\d.,]+e[+-]?\d+\Z|"  # as a number or date
    r"(?=.*\d)(?:\d{1,4}[\s.,/-]*)?(?:jan|feb|mar|mär|apr|may|mai|jun|jul|aug|sep|oct|okt|nov|dec|dez)[a-zä]*\.?"
    r"(?:[\s.,/-]*\d{1,4}){0,2}\Z|\d{1,4}\s?[年년](?:\s?\d{1,2}\s?[月월](?:\s?\d{1,2}\s?[日일])?)?\Z|"
    r"\d{1,2}(?::\d\d){0,2}\s*[ap]\.?m\.?\Z|(?:true|false|wahr|falsch|vrai|faux)\Z",
    re.IGNORECASE,
)


def guarded(cell: str) -> str:
    """A cell with a mark before it where a spreadsheet would read a formula, a date or another number in it.

    >>> guarded("=1+1"), guarded("1/2"), guarded("1871"), guarded("007"), guarded("in 1871")
    ("'=1+1", "'1/2", '1871', "'007", 'in 1871')
    """
    return f"'{cell}" if _CHANGES.match(cell.lstrip("'")) else cell


def unguarded(cell: str) -> str:
    """The cell without the mark, and with plain ends of lines.

    >>> unguarded("'=1+1"), unguarded("'tis so")
    ('=1+1', "'tis so")
    """
    said = cell.replace("\r\n", "\n").replace("\r", "\n")
    return said[1:] if said[:1] == "'" and _CHANGES.match(said.lstrip("'")) else said
