"""JSON and JSON Lines: the document is the source itself; records are a table where they are flat."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from spolia.indexing.readers.reader import Blob, Reading
from spolia.indexing.readers.text import Decoded, beginning, is_large, parts, source_text
from spolia.types import Region, Value

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
            value, found = None, _warned(found, "It is nested so deep that it was not parsed.")
        except ValueError as error:
            value, found = None, _warned(found, f"It is no valid JSON ({error}); it was read as text.")
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
        large = is_large(blob)
        found = source_text(beginning(blob) if large else blob)
        if large:
            found = _warned(found, f"It has {blob.size} bytes: this is its beginning, its lines are read in parts.")
        values, broken = _values([line for line in found.text.split("\n") if line.strip()])
        if broken:
            found = _warned(found, f"{broken} of its lines are no valid JSON; they were read as text.")
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
    return Reading(blob.document(reader, text, title=title, regions=table), found.encoding, warnings=found.warnings)


def _warned(found: Decoded, warning: str) -> Decoded:
    return found.but(warnings=(*found.warnings, warning))


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
