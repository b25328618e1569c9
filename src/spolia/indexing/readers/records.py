"""Readers of rows, values and trees: CSV, JSON, notebooks (https://nbformat.readthedocs.io/), XML."""

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
from spolia.indexing.readers.safe_xml import decode_xml, report_events
from spolia.indexing.readers.source_structure import Structure, read_structured
from spolia.indexing.readers.text import is_large, read_source_text, split_parts
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
    title_rows: int = 0


_SEPARATOR = re.compile(r'"?sep=(.)"?', re.IGNORECASE)
_MOST_TITLE_ROWS = 50


def dialect_of(text: str) -> Dialect:
    """Detect the dialect of a table by its beginning: the mark that splits most rows into equally many fields, two or
    more.

    The first row names the columns unless a field of it is empty, a number or a date, or is repeated. Rows of a single
    field before it are a title.

    >>> dialect_of("stone;weight, t\\nbasalt;3,0\\nmarble;2,7\\n")
    Dialect(mark=';', has_head=True, title_rows=0)
    """
    sample = text[:SAMPLE]
    if len(text) > SAMPLE:  # the last row is cut
        sample = sample[: sample.rfind("\n") + 1] or sample
    separator_line = _SEPARATOR.fullmatch(sample.partition("\n")[0].strip())
    best_rating, mark, width = (0.0, 0), separator_line[1] if separator_line else ",", 0
    for candidate in (mark,) if separator_line else _MARKS:
        widths = [len(row) for row in rows_of(sample, candidate) if row]
        usual_width = mode(widths) if widths else 0
        if usual_width > 1 and (rating := (widths.count(usual_width) / len(widths), usual_width)) > best_rating:
            best_rating, mark, width = rating, candidate, usual_width
    rows = list(islice(rows_of(sample, mark), _MOST_TITLE_ROWS + 1))
    titles = takewhile(lambda row: width > 1 and sum(map(bool, row)) < 2, rows)
    title_rows = len(list(titles)) if not separator_line else 1
    # Longer is no title, but a list of single values.
    title_rows = title_rows if title_rows <= _MOST_TITLE_ROWS and title_rows < len(rows) else 0
    return Dialect(mark, _is_head(rows[title_rows] if rows else []), title_rows)


def rows_of(text: str, mark: str) -> Any:
    """Read the fields of each row with `csv`. A quote that is not closed ends with the file."""
    return csv.reader(StringIO(text, newline=""), delimiter=mark, skipinitialspace=mark != "\t")


def _is_head(row: Sequence[str]) -> bool:
    cells = [cell.strip() for cell in row]
    is_named = all(cells) and not any(_NUMBER.fullmatch(cell) for cell in cells)
    return bool(cells) and is_named and len(set(cells)) == len(cells)


@dataclass(frozen=True)
class CsvReader(Value):
    """Reader of tables in text files: fields between commas, semicolons, tabs or bars, quoted as in RFC 4180.

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
        return read_structured(read_source_text(blob, "rows"), self, blob, _table_structure)

    def parts(self, blob: Blob, /) -> Iterator[Blob]:
        """Yield the rows of a file that is too large for one document in parts; nothing for others."""
        dialect = dialect_of(read_source_text(blob, "rows").text) if is_large(blob) else Dialect()
        return split_parts(blob, "rows", quoted=True, head=dialect.title_rows + dialect.has_head)


def _table_structure(text: str) -> Structure:
    dialect = dialect_of(text)
    reader = rows_of(text, dialect.mark)
    deque(islice(reader, dialect.title_rows), 0)  # reads past them, so that `line_num` tells how many lines they have
    title_length = sum(map(len, islice(StringIO(text, newline=""), reader.line_num))) if dialect.title_rows else 0
    rows = tuple(tuple(cell.strip() for cell in row) for row in reader if any(row))
    start, end = len(text) - len(text[title_length:].lstrip("\r\n")), len(text.rstrip())
    return Structure(regions=(Region("table", start, end, rows),) if rows and start < end else ())


_MOST_COLUMNS = 1000  # records with keys of their own would make a row as wide as there are records
_NESTED = frozenset([dict, list])


@dataclass(frozen=True)
class JsonReader(Value):
    r"""Reader of JSON. Its text is the source with decoded escapes: `K\u00f6ln` becomes `Köln`. A list of objects with
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
        source = read_source_text(blob)
        try:
            value = json.loads(source.text) if source.text.strip() else None
        except RecursionError:
            value, source = None, source.with_warning("It is nested so deep that it was not parsed.")
        except ValueError as error:
            return source.with_warning(f"It is not valid JSON ({error}); it was read as text.").build_reading(
                self, blob
            )
        source = source.but(text=unescape(source.text))
        return read_structured(
            source, self, blob, partial(_record_structure, value if isinstance(value, list) else [], value)
        )


@dataclass(frozen=True)
class JsonLinesReader(Value):
    """Reader of JSON Lines: a value on each line, its escapes decoded as in JSON. A file of more than 20 MB is read in
    parts of 50,000 lines at most."""

    name = "jsonl"
    version = 2
    media_type = "application/jsonl"
    suffixes = (".jsonl", ".ndjson")

    def read(self, blob: Blob, /) -> Reading:
        source = read_source_text(blob, "lines")
        lines = source.text.split("\n")
        values, invalid_lines = _values(lines)
        if invalid_lines:
            source = source.with_warning(
                f"{len(invalid_lines)} of its lines are not valid JSON; they were read as text."
            )
        text = "\n".join(line if number in invalid_lines else unescape(line) for number, line in enumerate(lines))
        return read_structured(
            source.but(text=text), self, blob, partial(_record_structure, [] if invalid_lines else values, None)
        )

    def parts(self, blob: Blob, /) -> Iterator[Blob]:
        """Yield the lines of a file that is too large for one document in parts; nothing for others."""
        return split_parts(blob, "lines")


def _values(lines: list[str]) -> tuple[list[Any], set[int]]:
    """Return the values of lines, and the numbers, from 0, of lines without a value."""
    filled_lines = [line for line in lines if line.strip()]
    try:
        values = json.loads(f"[{','.join(filled_lines)}]")  # at once, which takes a fraction of the time
        if len(values) == len(filled_lines):
            return values, set()
    except (ValueError, RecursionError):
        pass  # read one by one below, the broken lines are found and reported
    values, invalid_lines = [], set()
    for number, line in enumerate(lines):
        try:
            values += [json.loads(line)] if line.strip() else []
        except (ValueError, RecursionError):
            invalid_lines.add(number)
    return values, invalid_lines


_ESCAPE = re.compile(r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|.)")
_NO_TEXT = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")


def unescape(text: str) -> str:
    """Decode the escapes of a JSON text, which only its strings have."""
    return _ESCAPE.sub(_escaped_character, text) if "\\" in text else text


@lru_cache(maxsize=10_000)
def _decode_escape(escape: str) -> str:
    try:
        # Cached: a text repeats few escapes very often.
        return _NO_TEXT.sub("\ufffd", json.loads(f'"{escape}"'))
    except ValueError:
        return escape


def _escaped_character(escape: re.Match[str]) -> str:
    return _decode_escape(escape[0])


def _record_structure(values: Sequence[Any], document: Any, text: str) -> Structure:
    rows = _record_rows(values)
    start, end = len(text) - len(text.lstrip()), len(text.rstrip())
    table = (Region("table", start, end, tuple(map(tuple, rows))),) if rows else ()
    return Structure(_title(document), regions=table)


def _title(value: Any) -> str:
    title = value.get("title") if isinstance(value, dict) else None
    return " ".join(title.split()) if isinstance(title, str) else ""


def _record_rows(values: Sequence[Any]) -> list[list[str]]:
    """Return the names and the rows of records that hold only scalars; nothing if one holds more."""
    columns: dict[str, None] = {}
    for value in values:
        if not isinstance(value, dict) or not _NESTED.isdisjoint(map(type, value.values())):
            return []
        if not columns.keys() >= value.keys():
            columns.update(dict.fromkeys(value))
        if len(columns) > _MOST_COLUMNS:
            return []
    return (
        [list(columns), *([_cell_text(value.get(name, "")) for name in columns] for value in values)] if columns else []
    )


def _cell_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


@dataclass(frozen=True)
class NotebookReader(Value):
    """Reader of notebooks, format 3 and 4. It reads outputs that are text; pictures count as dropped."""

    name = "notebook"
    version = 1
    media_type = "application/x-ipynb+json"
    suffixes = (".ipynb",)

    def read(self, blob: Blob, /) -> Reading:
        source = read_source_text(blob)
        try:
            book = json.loads(source.text)
            metadata = book.get("metadata") or {}
            cells = (
                book["cells"] if "cells" in book else [cell for sheet in book["worksheets"] for cell in sheet["cells"]]
            )
            writer = _NotebookWriter()
            for cell in cells:
                writer.layout.attempt("cell", partial(writer.write_cell, cell), partial(_source, cell))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise DocumentError(
                f"{blob.uri} is not a readable notebook: {type(error).__name__}: {error}. Open it and save it again."
            ) from error
        layout = writer.layout
        title = _to_text(metadata.get("title")) or title_of(layout.headings)
        meta = layout.failures.attempt("metadata part", partial(_notebook_meta, metadata), ())
        return layout.build_reading(
            self, blob, title=title, meta=meta, dropped=writer.dropped, warnings=source.warnings
        )


def _notebook_meta(metadata: dict[str, Any]) -> Meta:
    return fields(
        programming_language=_language(metadata), author=[_author(author) for author in metadata.get("authors") or ()]
    )


def _source(cell: Any) -> str:
    return _to_text(cell.get("source", cell.get("input"))) if isinstance(cell, dict) else ""


class _NotebookWriter:
    def __init__(self) -> None:
        self.layout = Layout()
        self.dropped: Counter[str] = Counter()

    def write_cell(self, cell: dict[str, Any]) -> None:
        kind, source = cell.get("cell_type"), _source(cell)
        if kind == "code":
            self._write_code(source)
            for output in cell.get("outputs") or ():
                for text in self._output_texts(output):
                    self._write_code(text)
        elif kind == "heading":
            self._write_markdown(f"{'#' * min(6, int(cell.get('level', 1)))} {source}")
        else:
            self._write_markdown(source)
            self.dropped["pictures"] += len(cell.get("attachments") or ())

    def _write_code(self, text: str) -> None:
        if text.strip():
            self.layout.insert(text, (), [Region("code", 0, len(text))])

    def _write_markdown(self, text: str) -> None:
        if text.strip():
            self.layout.insert(text, headings_of(text), regions_of(text))

    def _output_texts(self, output: dict[str, Any]) -> Iterator[str]:
        data = output.get("data") or output
        if output.get("output_type") in ("error", "pyerr"):
            yield f"{_to_text(output.get('ename'))}: {_to_text(output.get('evalue'))}"
        elif plain := _to_text(data.get("text/plain", data.get("text"))):
            yield plain.strip("\n")
        elif html := _to_text(data.get("text/html", data.get("html"))):
            yield words_of(html)
        self.dropped["pictures"] += any(str(key).startswith("image/") for key in data)


def _to_text(value: Any) -> str:
    """Return a value as text; sources of cells are texts or lists of lines."""
    text = "".join(map(str, value)) if isinstance(value, list) else value if isinstance(value, str) else ""
    return text.encode("utf-8", "replace").decode()  # JSON may hold lone surrogates, which no store takes


def _language(metadata: dict[str, Any]) -> str:
    return _to_text(
        (metadata.get("language_info") or {}).get("name") or (metadata.get("kernelspec") or {}).get("language")
    )


def _author(author: Any) -> str:
    return _to_text(author.get("name")) if isinstance(author, dict) else _to_text(author)


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
    """Reader of XML. A `title` in a section is a heading, as in JATS and DocBook; tables keep their cells.

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
    isolated = True  # expat is C code that parses what strangers wrote

    def read(self, blob: Blob, /) -> Reading:
        if not blob.data.strip():
            raise DocumentError(f"{blob.uri} is not readable XML: it is empty.")
        source = decode_xml(blob.data, blob.uri)
        writer, layout = _XmlWriter(), Layout()

        def write() -> None:
            report_events(source.text, blob.uri, writer.start, writer.end, writer.layout.write)
            layout.append(writer.layout)

        # Into a layout of its own: what stands before the damage is dropped with it, and comes back as plain words.
        layout.attempt("document", write, lambda: words_of(source.text) if writer.has_begun else "")
        title = layout.headings[0].text if layout.headings else ""
        return layout.build_reading(self, blob, title=title, encoding=source.encoding, warnings=source.warnings)


class _XmlWriter:
    def __init__(self) -> None:
        self.layout = Layout()
        self.has_begun = False
        self._depth = 0
        self._tables: list[LayoutTable] = []

    def start(self, name: str, attributes: dict[str, str]) -> None:
        self.has_begun = True
        tag = name.rpartition("}")[2].lower()
        if tag in _INLINE:
            return
        self._depth += tag in _SECTIONS
        if tag in ("table", "tgroup"):
            self.layout.gap(BLANK_LINE)
            self._tables.append(LayoutTable(self.layout))
        elif self._tables and tag in _ROWS:
            self._tables[-1].enter(_ROWS[tag], *_spans(attributes, self._tables[-1].columns))
        elif self._tables and tag == "colspec":
            self._tables[-1].columns.append(attributes.get("colname", ""))
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


def _spans(attributes: Mapping[str, str], columns: Sequence[str]) -> tuple[int, int]:
    """Return how many rows and columns a cell spans, by attributes of HTML and JATS, or of CALS tables (DocBook)."""
    if "namest" in attributes and attributes.get("nameend") in columns and attributes["namest"] in columns:
        return span(attributes.get("morerows"), 0) + 1, columns.index(attributes["nameend"]) - columns.index(
            attributes["namest"]
        ) + 1
    return span(attributes.get("rowspan"), span(attributes.get("morerows"), 0) + 1), span(attributes.get("colspan"))
