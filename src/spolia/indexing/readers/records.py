"""Rows, values and trees: CSV, JSON, notebooks (https://nbformat.readthedocs.io/), XML."""

import csv
import json
import re
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from io import StringIO
from itertools import islice, takewhile
from statistics import mode
from typing import Any

from spolia.errors import DocumentError
from spolia.indexing.readers.file_metadata import fields
from spolia.indexing.readers.html import words_of
from spolia.indexing.readers.layout import BLANK_LINE, LINE, SPACE, Layout, LayoutTable, span
from spolia.indexing.readers.markup.markdown import headings_of, regions_of
from spolia.indexing.readers.reader import Blob, Reading, title_of
from spolia.indexing.readers.safe_xml import characters, events
from spolia.indexing.readers.source_structure import Structure, structured
from spolia.indexing.readers.text import is_large, parts, source_text
from spolia.types import Meta, Region, Value

SAMPLE = 1 << 16
"""Characters at the beginning of a file by which it is judged."""
_MARKS = "\t;|,"
_NUMBER = re.compile(r"[-+]?[\d.,\s]*\d%?|\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}.{0,20}")
csv.field_size_limit(2**31 - 1)  # the limit of 131,072 is the process's, and no protection: whole files are bounded


@dataclass(frozen=True)
class Dialect(Value):
    """Separator of the fields; whether the first row names the columns; number of rows before the table, such as a
    title or `sep=;`."""

    mark: str = ","
    has_head: bool = True
    before: int = 0


_SEPARATOR = re.compile(r'"?sep=(.)"?', re.IGNORECASE)
_MOST_BEFORE = 50


def dialect_of(text: str) -> Dialect:
    """The dialect of a table by its beginning: the mark that parts most rows into equally many fields, two or more.

    The first row names the columns unless a field of it is empty, a number or a date, or is repeated. Rows of a single
    field before it are a title.

    >>> dialect_of("stone;weight, t\\nbasalt;3,0\\nmarble;2,7\\n")
    Dialect(mark=';', has_head=True, before=0)
    """
    sample = text[:SAMPLE]
    if len(text) > SAMPLE:  # the last row is cut
        sample = sample[: sample.rfind("\n") + 1] or sample
    stated = _SEPARATOR.fullmatch(sample.partition("\n")[0].strip())
    best, mark, width = (0.0, 0), stated[1] if stated else ",", 0
    for candidate in (mark,) if stated else _MARKS:
        widths = [len(row) for row in rows_of(sample, candidate) if row]
        usual = mode(widths) if widths else 0
        if usual > 1 and (rating := (widths.count(usual) / len(widths), usual)) > best:
            best, mark, width = rating, candidate, usual
    rows = list(islice(rows_of(sample, mark), _MOST_BEFORE + 1))
    narrow = takewhile(lambda row: width > 1 and sum(map(bool, row)) < 2, rows)
    before = len(list(narrow)) if not stated else 1
    before = before if before <= _MOST_BEFORE and before < len(rows) else 0
    return Dialect(mark, _is_head(rows[before] if rows else []), before)


def rows_of(text: str, mark: str) -> Any:
    """The fields of each row, by a reader of `csv`. A quote that is not closed ends with the file."""
    return csv.reader(StringIO(text, newline=""), delimiter=mark, skipinitialspace=mark != "\t")


def _is_head(row: Sequence[str]) -> bool:
    cells = [cell.strip() for cell in row]
    named = all(cells) and not any(_NUMBER.fullmatch(cell) for cell in cells)
    return bool(cells) and named and len(set(cells)) == len(cells)


@dataclass(frozen=True)
class CsvReader(Value):
    """Reads tables in text files: the fields parted by commas, semicolons, tabs or bars, quoted as in RFC 4180.

    Rows may have more or fewer fields than the first one. A file of more than 20 MB is read in parts of 50,000 rows
    at most, each below the row that names the columns; its own document is its beginning.

    >>> document = CsvReader().read(Blob("a.csv", b"stone,t\\nbasalt,3.0\\n")).document
    >>> document.regions[0].rows
    (('stone', 't'), ('basalt', '3.0'))
    """

    name = "csv"
    version = 2
    media_type = "text/csv"
    suffixes = (".csv", ".tsv", ".tab", ".psv")

    def read(self, blob: Blob, /) -> Reading:
        return structured(source_text(blob, "rows"), self, blob, _table)

    def parts(self, blob: Blob, /) -> Iterator[Blob]:
        """The rows of a file that is too large for one document; none for others."""
        dialect = dialect_of(source_text(blob, "rows").text) if is_large(blob) else Dialect()
        return parts(blob, "rows", quoted=True, head=dialect.before + dialect.has_head)


def _table(text: str) -> Structure:
    dialect = dialect_of(text)
    reader = rows_of(text, dialect.mark)
    deque(islice(reader, dialect.before), 0)
    above = sum(map(len, islice(StringIO(text, newline=""), reader.line_num))) if dialect.before else 0
    rows = tuple(tuple(cell.strip() for cell in row) for row in reader if any(row))
    start, end = len(text) - len(text[above:].lstrip("\r\n")), len(text.rstrip())
    return Structure(regions=(Region("table", start, end, rows),) if rows and start < end else ())


_MOST_COLUMNS = 1000
_NESTED = frozenset([dict, list])


@dataclass(frozen=True)
class JsonReader(Value):
    r"""Reads JSON. Its text is the source with the escapes in it decoded: `K\u00f6ln` is `Köln`. A list of objects with
    the same flat fields is a table.

    What is no JSON is read as the text that it is, with a warning.

    >>> document = JsonReader().read(Blob("a.json", b'[{"stone": "basalt", "t": 3.0}]')).document
    >>> document.text, document.regions[0].rows
    ('[{"stone": "basalt", "t": 3.0}]', (('stone', 't'), ('basalt', '3.0')))
    """

    name = "json"
    version = 2
    media_type = "application/json"
    suffixes = (".json", ".geojson", ".jsonld")

    def read(self, blob: Blob, /) -> Reading:
        found = source_text(blob)
        try:
            value = json.loads(found.text) if found.text.strip() else None
        except RecursionError:
            value, found = None, found.warned("It is nested so deep that it was not parsed.")
        except ValueError as error:
            return found.warned(f"It is not valid JSON ({error}); it was read as text.").reading(self, blob)
        found = found.but(text=unescaped(found.text))
        return structured(found, self, blob, partial(_records, value if isinstance(value, list) else [], value))


@dataclass(frozen=True)
class JsonLinesReader(Value):
    """Reads JSON Lines: a value on each line, its escapes decoded as in JSON. A file of more than 20 MB is read in
    parts of 50,000 lines at most."""

    name = "jsonl"
    version = 2
    media_type = "application/jsonl"
    suffixes = (".jsonl", ".ndjson")

    def read(self, blob: Blob, /) -> Reading:
        found = source_text(blob, "lines")
        lines = found.text.split("\n")
        values, broken = _values(lines)
        if broken:
            found = found.warned(f"{len(broken)} of its lines are not valid JSON; they were read as text.")
        text = "\n".join(line if at in broken else unescaped(line) for at, line in enumerate(lines))
        return structured(found.but(text=text), self, blob, partial(_records, [] if broken else values, None))

    def parts(self, blob: Blob, /) -> Iterator[Blob]:
        """The lines of a file that is too large for one document; none for others."""
        return parts(blob, "lines")


def _values(lines: list[str]) -> tuple[list[Any], set[int]]:
    """Return the values of lines, and the numbers, from 0, of lines without a value."""
    filled = [line for line in lines if line.strip()]
    try:
        values = json.loads(f"[{','.join(filled)}]")  # at once, which takes a fraction of the time
        if len(values) == len(filled):
            return values, set()
    except (ValueError, RecursionError):
        pass  # read one by one below, the broken lines are found and reported
    values, broken = [], set()
    for at, line in enumerate(lines):
        try:
            values += [json.loads(line)] if line.strip() else []
        except (ValueError, RecursionError):
            broken.add(at)
    return values, broken


_ESCAPE = re.compile(r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|.)")
_NO_TEXT = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")


def unescaped(text: str) -> str:
    """Decode the escapes of a JSON text, which only its strings have."""
    return _ESCAPE.sub(_character, text) if "\\" in text else text


@lru_cache(maxsize=10_000)
def _decoded_escape(escape: str) -> str:
    try:
        return _NO_TEXT.sub("\ufffd", json.loads(f'"{escape}"'))
    except ValueError:
        return escape


def _character(escape: re.Match[str]) -> str:
    return _decoded_escape(escape[0])


def _records(values: Sequence[Any], whole: Any, text: str) -> Structure:
    rows = _rows(values)
    start, end = len(text) - len(text.lstrip()), len(text.rstrip())
    table = (Region("table", start, end, tuple(map(tuple, rows))),) if rows else ()
    return Structure(_title(whole), regions=table)


def _title(value: Any) -> str:
    said = value.get("title") if isinstance(value, dict) else None
    return " ".join(said.split()) if isinstance(said, str) else ""


def _rows(values: Sequence[Any]) -> list[list[str]]:
    """The head and the rows of records that have scalars only; none for others."""
    columns: dict[str, None] = {}
    for value in values:
        if not isinstance(value, dict) or not _NESTED.isdisjoint(map(type, value.values())):
            return []
        if not columns.keys() >= value.keys():
            columns.update(dict.fromkeys(value))
        if len(columns) > _MOST_COLUMNS:
            return []
    return [list(columns), *([_said(value.get(name, "")) for name in columns] for value in values)] if columns else []


def _said(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


@dataclass(frozen=True)
class NotebookReader(Value):
    """Reads notebooks, format 3 and 4. Outputs that are text are read; pictures are counted as dropped."""

    name = "notebook"
    version = 1
    media_type = "application/x-ipynb+json"
    suffixes = (".ipynb",)

    def read(self, blob: Blob, /) -> Reading:
        found = source_text(blob)
        try:
            book = json.loads(found.text)
            said = book.get("metadata") or {}
            cells = (
                book["cells"] if "cells" in book else [cell for sheet in book["worksheets"] for cell in sheet["cells"]]
            )
            writing = _NotebookWriting()
            for cell in cells:
                writing.layout.attempt("cell", partial(writing.cell, cell), partial(_source, cell))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise DocumentError(
                f"{blob.uri} is not a readable notebook: {type(error).__name__}: {error}. Open it and save it again."
            ) from error
        layout = writing.layout
        title = _string(said.get("title")) or title_of(layout.headings)
        meta = layout.failures.attempt("metadata part", partial(_notebook_meta, said), ())
        return layout.reading(self, blob, title=title, meta=meta, dropped=writing.dropped, warnings=found.warnings)


def _notebook_meta(said: dict[str, Any]) -> Meta:
    return fields(programming_language=_language(said), author=[_author(one) for one in said.get("authors") or ()])


def _source(cell: Any) -> str:
    return _string(cell.get("source", cell.get("input"))) if isinstance(cell, dict) else ""


class _NotebookWriting:
    def __init__(self) -> None:
        self.layout = Layout()
        self.dropped: Counter[str] = Counter()

    def cell(self, cell: dict[str, Any]) -> None:
        kind, source = cell.get("cell_type"), _source(cell)
        if kind == "code":
            self._code(source)
            for output in cell.get("outputs") or ():
                for text in self._said(output):
                    self._code(text)
        elif kind == "heading":
            self._marked(f"{'#' * min(6, int(cell.get('level', 1)))} {source}")
        else:
            self._marked(source)
            self.dropped["pictures"] += len(cell.get("attachments") or ())

    def _code(self, text: str) -> None:
        if text.strip():
            self.layout.insert(text, (), [Region("code", 0, len(text))])

    def _marked(self, text: str) -> None:
        if text.strip():
            self.layout.insert(text, headings_of(text), regions_of(text))

    def _said(self, output: dict[str, Any]) -> Iterator[str]:
        data = output.get("data") or output
        if output.get("output_type") in ("error", "pyerr"):
            yield f"{_string(output.get('ename'))}: {_string(output.get('evalue'))}"
        elif plain := _string(data.get("text/plain", data.get("text"))):
            yield plain.strip("\n")
        elif html := _string(data.get("text/html", data.get("html"))):
            yield words_of(html)
        self.dropped["pictures"] += any(str(key).startswith("image/") for key in data)


def _string(value: Any) -> str:
    """Sources are lists of lines, or a text."""
    text = "".join(map(str, value)) if isinstance(value, list) else value if isinstance(value, str) else ""
    return text.encode("utf-8", "replace").decode()


def _language(said: dict[str, Any]) -> str:
    return _string((said.get("language_info") or {}).get("name") or (said.get("kernelspec") or {}).get("language"))


def _author(said: Any) -> str:
    return _string(said.get("name")) if isinstance(said, dict) else _string(said)


_INLINE = frozenset([
    "a", "abbr", "b", "bold", "code", "em", "emphasis", "ext-link", "i", "italic", "link", "monospace",
    "named-content", "sc", "span", "strong", "styled-content", "sub", "sup", "tt", "u", "underline", "xref",
])  # fmt: skip
"""Elements that stand within sentences, in XHTML, JATS, DocBook and TEI."""
_SECTIONS = frozenset(
    ["appendix", "body", "chapter", "div", "part", "sec", "section", *(f"sect{n}" for n in range(1, 6))]
)
_ROWS = {"tr": "row", "row": "row", "td": "cell", "th": "cell", "entry": "cell"}


@dataclass(frozen=True)
class XmlReader(Value):
    """Reads XML. A `title` in a section is a heading, as in JATS and DocBook; tables keep their cells.

    Entities are not expanded and nothing is fetched; raises for a document that declares entities.

    >>> page = b"<book><title>Stones</title><stone><name>Basalt</name><t>3.0</t></stone></book>"
    >>> document = XmlReader().read(Blob("a.xml", page)).document
    >>> document.title, document.text.split("\\n")
    ('Stones', ['Stones', '', 'Basalt', '3.0'])
    """

    name = "xml"
    version = 3
    media_type = "application/xml"
    suffixes = (".xml", ".nxml", ".dbk", ".tei", ".rss", ".atom", ".opml", ".svg")
    apart = True

    def read(self, blob: Blob, /) -> Reading:
        if not blob.data.strip():
            raise DocumentError(f"{blob.uri} is not readable XML: it is empty.")
        found = characters(blob.data, blob.uri)
        writing, layout = _XmlWriting(), Layout()

        def write() -> None:
            events(found.text, blob.uri, writing.start, writing.end, writing.layout.write)
            layout.append(writing.layout)

        layout.attempt("document", write, lambda: words_of(found.text) if writing.has_begun else "")
        title = layout.headings[0].text if layout.headings else ""
        return layout.reading(self, blob, title=title, encoding=found.encoding, warnings=found.warnings)


class _XmlWriting:
    def __init__(self) -> None:
        self.layout = Layout()
        self.has_begun = False
        self._depth = 0
        self._tables: list[LayoutTable] = []

    def start(self, name: str, said: dict[str, str]) -> None:
        self.has_begun = True
        tag = name.rpartition("}")[2].lower()
        if tag in _INLINE:
            return
        self._depth += tag in _SECTIONS
        if tag in ("table", "tgroup"):
            self.layout.gap(BLANK_LINE)
            self._tables.append(LayoutTable(self.layout))
        elif self._tables and tag in _ROWS:
            self._tables[-1].enter(_ROWS[tag], *_spans(said, self._tables[-1].columns))
        elif self._tables and tag == "colspec":
            self._tables[-1].columns.append(said.get("colname", ""))
        elif self._tables and self._tables[-1].in_cell:
            self.layout.gap(SPACE)
        else:
            self.layout.gap(BLANK_LINE if tag in ("p", "para", "title", "sec", "section") else LINE)
        if tag in ("title", "article-title", "booktitle") and not self._tables:
            self.layout.open_heading()

    def end(self, name: str) -> None:
        tag = name.rpartition("}")[2].lower()
        if tag in _INLINE:
            return
        if tag in ("title", "article-title", "booktitle") and not self._tables:
            self.layout.close_heading(min(9, self._depth + 1))
            self.layout.gap(BLANK_LINE)
        self._depth -= tag in _SECTIONS
        if tag in ("table", "tgroup") and self._tables:
            self._tables.pop().close()
        elif self._tables and tag in _ROWS:
            self._tables[-1].leave(_ROWS[tag])
        else:
            self.layout.gap(SPACE if self._tables and self._tables[-1].in_cell else LINE)


def _spans(said: Mapping[str, str], columns: Sequence[str]) -> tuple[int, int]:
    """For how many rows and columns a cell counts: as HTML and JATS say it, or as CALS tables do (DocBook)."""
    if "namest" in said and said.get("nameend") in columns and said["namest"] in columns:
        return span(said.get("morerows"), 0) + 1, columns.index(said["nameend"]) - columns.index(said["namest"]) + 1
    return span(said.get("rowspan"), span(said.get("morerows"), 0) + 1), span(said.get("colspan"))
