"""JSON, JSON Lines and Jupyter notebooks (https://nbformat.readthedocs.io/)."""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from spolia.errors import DocumentError
from spolia.indexing.readers.file_metadata import fields
from spolia.indexing.readers.html import words_of
from spolia.indexing.readers.markup.markdown import headings_of, regions_of
from spolia.indexing.readers.reader import Blob, Reading
from spolia.indexing.readers.text import Decoded, is_large, parts, source_text
from spolia.types import Heading, Region, Value

_MOST_COLUMNS = 1000
_NESTED = frozenset([dict, list])


@dataclass(frozen=True)
class JsonReader(Value):
    """Reads JSON. A list of objects with the same flat fields is a table.

    What is no JSON is read as the text that it is, with a warning.

    >>> document = JsonReader().read(Blob("a.json", b'[{"stone": "basalt", "t": 3.0}]')).document
    >>> document.text, document.regions[0].rows
    ('[{"stone": "basalt", "t": 3.0}]', (('stone', 't'), ('basalt', '3.0')))
    """

    name = "json"
    version = 1
    media_type = "application/json"
    suffixes = (".json", ".geojson", ".jsonld")

    def read(self, blob: Blob, /) -> Reading:
        found = source_text(blob)
        try:
            value = json.loads(found.text) if found.text.strip() else None
        except RecursionError:
            value, found = None, found.warned("It is nested so deep that it was not parsed.")
        except ValueError as error:
            value, found = None, found.warned(f"It is no valid JSON ({error}); it was read as text.")
        rows = _rows(value if isinstance(value, list) else [])
        return _reading(self, blob, found, rows, _title(value))


@dataclass(frozen=True)
class JsonLinesReader(Value):
    """Reads JSON Lines: a value on each line. A file of more than 20 MB is read in parts of 50,000 lines at most."""

    name = "jsonl"
    version = 1
    media_type = "application/jsonl"
    suffixes = (".jsonl", ".ndjson")

    def read(self, blob: Blob, /) -> Reading:
        found = source_text(blob, "lines")
        values, broken = _values([line for line in found.text.split("\n") if line.strip()])
        if broken:
            found = found.warned(f"{broken} of its lines are no valid JSON; they were read as text.")
        return _reading(self, blob, found, [] if broken else _rows(values), "")

    def parts(self, blob: Blob, /) -> Iterator[Blob]:
        """The lines of a file that is too large for one document; none for others."""
        if is_large(blob):
            yield from parts(blob, "lines")


def _values(lines: list[str]) -> tuple[list[Any], int]:
    """The values of lines, and how many are none."""
    try:
        values = json.loads(f"[{','.join(lines)}]")  # at once, which takes a fraction of the time
        if len(values) == len(lines):
            return values, 0
    except (ValueError, RecursionError):
        pass
    values, broken = [], 0
    for line in lines:
        try:
            values.append(json.loads(line))
        except (ValueError, RecursionError):
            broken += 1
    return values, broken


def _reading(reader: Any, blob: Blob, found: Decoded, rows: Sequence[Sequence[str]], title: str) -> Reading:
    text = found.text
    start, end = len(text) - len(text.lstrip()), len(text.rstrip())
    table = (Region("table", start, end, tuple(map(tuple, rows))),) if rows else ()
    return found.reading(reader, blob, title=title, regions=table)


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
            writing = _Writing()
            for cell in cells:
                writing.cell(cell)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise DocumentError(
                f"{blob.uri} is no notebook that can be read: {type(error).__name__}: {error}. "
                "Open it and save it again."
            ) from error
        headings = tuple(writing.headings)
        document = blob.document(
            self,
            writing.text(),
            title=_string(said.get("title")) or (headings[0].text if headings and headings[0].level == 1 else ""),
            headings=headings,
            regions=tuple(writing.regions),
            meta=fields(
                programming_language=_language(said), author=[_author(one) for one in said.get("authors") or ()]
            ),
        )
        return Reading(document, dropped=tuple(sorted(writing.dropped.items())), warnings=found.warnings)


class _Writing:
    def __init__(self) -> None:
        self.headings: list[Heading] = []
        self.regions: list[Region] = []
        self.dropped: Counter[str] = Counter()
        self._pieces: list[str] = []
        self._length = 0

    def text(self) -> str:
        return "\n\n".join(self._pieces)

    def cell(self, cell: dict[str, Any]) -> None:
        kind, source = cell.get("cell_type"), _string(cell.get("source", cell.get("input")))
        if kind == "code":
            self._code(source)
            for output in cell.get("outputs") or ():
                for text in self._said(output):
                    self._code(text)
        elif kind == "heading":
            self._marked(f"{'#' * min(6, int(cell.get('level', 1)))} {source}")
        else:
            self._marked(source)
            self.dropped.update({"pictures": len(cell.get("attachments") or ())} if cell.get("attachments") else {})

    def _code(self, text: str) -> None:
        if start := self._add(text):
            self.regions.append(Region("code", start[0], start[0] + len(text)))

    def _marked(self, text: str) -> None:
        if start := self._add(text):
            at = start[0]
            self.headings += [heading.but(start=at + heading.start) for heading in headings_of(text)]
            self.regions += [one.but(start=at + one.start, end=at + one.end) for one in regions_of(text)]

    def _add(self, text: str) -> tuple[int] | None:
        """Add a piece; where it begins, None for one without words."""
        if not text.strip():
            return None
        start = self._length + 2 * bool(self._pieces)
        self._pieces.append(text)
        self._length = start + len(text)
        return (start,)

    def _said(self, output: dict[str, Any]) -> Iterator[str]:
        data = output.get("data") or output
        if output.get("output_type") in ("error", "pyerr"):
            yield f"{_string(output.get('ename'))}: {_string(output.get('evalue'))}"
        elif plain := _string(data.get("text/plain", data.get("text"))):
            yield plain.strip("\n")
        elif html := _string(data.get("text/html", data.get("html"))):
            yield words_of(html)
        self.dropped.update({"pictures": 1} if any(str(key).startswith("image/") for key in data) else {})


def _string(value: Any) -> str:
    """Sources are lists of lines, or a text."""
    text = "".join(map(str, value)) if isinstance(value, list) else value if isinstance(value, str) else ""
    return text.encode("utf-8", "replace").decode()


def _language(said: dict[str, Any]) -> str:
    return _string((said.get("language_info") or {}).get("name") or (said.get("kernelspec") or {}).get("language"))


def _author(said: Any) -> str:
    return _string(said.get("name")) if isinstance(said, dict) else _string(said)
