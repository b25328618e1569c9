"""Jupyter notebooks: the cells in order; code and what it printed as code, headings from the Markdown cells.

https://nbformat.readthedocs.io/
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from spolia.errors import DocumentError
from spolia.indexing.readers.file_metadata import fields
from spolia.indexing.readers.html import words_of
from spolia.indexing.readers.markup.markdown import headings_of, regions_of
from spolia.indexing.readers.reader import Blob, Reading
from spolia.indexing.readers.text import source_text
from spolia.types import Heading, Region, Value


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
        """What an output says, in the plainest of its forms."""
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
