"""DOCX: paragraphs, headings and tables in the order of the document.

python-docx opens the package and knows the styles. The text is walked here, because its own iterators leave out what
stands in content controls, in text boxes and in insertions that are tracked.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from spolia.errors import DocumentError, EncryptedDocument, MissingExtra
from spolia.indexing.readers.layout import BLANK_LINE, LINE, Layout
from spolia.indexing.readers.reading import Blob, Reading
from spolia.types import Value

_W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_M = "{http://schemas.openxmlformats.org/officeDocument/2006/math}"
_MC = "{http://schemas.openxmlformats.org/markup-compatibility/2006}"
_TEXT = frozenset([f"{_W}t", f"{_M}t"])
_SKIPPED = frozenset([f"{_W}del", f"{_W}moveFrom", f"{_MC}Fallback", f"{_W}instrText", f"{_W}delText"])
_AS_TEXT = {f"{_W}tab": " ", f"{_W}noBreakHyphen": "\u2011", f"{_W}cr": "\n", f"{_W}br": "\n"}
_OLD_OFFICE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_ENCRYPTED = "EncryptedPackage".encode("utf-16-le")
_PIECE = 1 << 20
LARGEST_BYTES = 500_000_000
"""Unpacked bytes of a document at most."""
LARGEST_RATIO = 200
"""Unpacked bytes for each packed one at most, where there are more than a few megabytes; XML packs 10 to 30 times."""
_UNSUSPICIOUS = 20_000_000


@dataclass(frozen=True)
class DocxReader(Value):
    """Reads DOCX. Headers, footers, comments, footnotes and deletions that are tracked are left out."""

    name = "docx"
    version = 1
    media_type = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
    suffixes = (".docx",)

    def read(self, blob: Blob, /) -> Reading:
        try:
            import docx
        except ImportError as error:
            raise MissingExtra("docx", "python-docx", f"Reading {blob.uri}") from error
        _refuse_locked(blob)
        try:
            _refuse_bomb(blob)
            package = docx.Document(io.BytesIO(blob.data))
            levels = _heading_levels(package)
            title = " ".join((package.core_properties.title or "").split())
        except DocumentError:
            raise
        except Exception as error:  # python-docx and lxml raise whatever the damage leads to
            raise _damaged(blob, error) from error
        layout = Layout()
        _write(layout, package.element.body, levels)
        title = title or next((heading.text for heading in layout.headings if heading.level == 1), "")
        document = blob.document(self, layout.text(), title=title, headings=tuple(layout.headings))
        return Reading(document, warnings=tuple(_left_out(package)))


def _refuse_locked(blob: Blob) -> None:
    if not blob.data.startswith(_OLD_OFFICE):
        return
    if _ENCRYPTED in blob.data:
        raise EncryptedDocument(
            f"{blob.uri} is locked with a password. Open it, take the password away, and save it again."
        )
    raise DocumentError(f"{blob.uri} is an old Office file (.doc), not a DOCX. Open it and save it as DOCX.")


def _refuse_bomb(blob: Blob) -> None:
    """Refuse what would fill the memory: by the sizes that the archive states, then by those that come out."""
    with zipfile.ZipFile(io.BytesIO(blob.data)) as archive:
        parts = archive.infolist()
        allowed = min(LARGEST_BYTES, max(_UNSUSPICIOUS, LARGEST_RATIO * len(blob.data)))
        if (stated := sum(part.file_size for part in parts)) > allowed:
            raise _bomb(blob, stated, allowed)
        real = 0
        for part in parts:
            with archive.open(part) as file:
                while piece := file.read(_PIECE):
                    real += len(piece)
                    if real > allowed:
                        raise _bomb(blob, real, allowed)


def _bomb(blob: Blob, size: int, allowed: int) -> DocumentError:
    return DocumentError(
        f"{blob.uri} would unpack from {len(blob.data)} to {size} bytes, more than the {allowed} that are allowed "
        "for its size: it may be made to fill the memory. Save it again, or split it."
    )


def _damaged(blob: Blob, why: Exception) -> DocumentError:
    return DocumentError(
        f"{blob.uri} is no DOCX that can be read: {type(why).__name__}: {why}; it has {len(blob.data)} bytes and "
        f"begins with {blob.data[:4]!r}. Fetch it again, or open it and save it again."
    )


def _heading_levels(package: Any) -> dict[str, int]:
    """Level of the headings that a paragraph style makes, by the style's id; what it inherits counts too."""
    found: dict[str, int] = {}
    for style in package.styles.element.findall(f"{_W}style"):
        name = style.find(f"{_W}name")
        label = (name.get(f"{_W}val") or "").lower() if name is not None else ""
        level = style.find(f"{_W}pPr/{_W}outlineLvl")
        based = style.find(f"{_W}basedOn")
        id = style.get(f"{_W}styleId") or ""
        if label == "title":
            found[id] = 1
        elif label.startswith("heading ") and label[8:].isdecimal():
            found[id] = int(label[8:])
        elif level is not None:
            found[id] = int(level.get(f"{_W}val") or 0) + 1
        elif based is not None and based.get(f"{_W}val") in found:
            found[id] = found[based.get(f"{_W}val")]
    return {id: level for id, level in found.items() if level <= 9}


def _write(layout: Layout, container: Any, levels: dict[str, int]) -> None:
    """The blocks of a body, a cell or a content control. XML that is nested too deep was refused by the parser."""
    for block in container:
        if block.tag == f"{_W}p":
            _write_paragraph(layout, block, levels)
        elif block.tag == f"{_W}tbl":
            _write_table(layout, block)
        elif block.tag not in _SKIPPED and block.tag != f"{_W}sectPr":
            _write(layout, block, levels)


def _write_paragraph(layout: Layout, paragraph: Any, levels: dict[str, int]) -> None:
    level = _level(paragraph, levels)
    listed = paragraph.find(f"{_W}pPr/{_W}numPr") is not None and not level
    layout.gap(LINE if listed else BLANK_LINE)
    if level:
        layout.open_heading()
    elif listed and any(True for _ in paragraph.iter(f"{_W}t")):
        layout.write("- ", exactly=True)
    layout.write("".join(_words(paragraph)), exactly=False)
    if level:
        layout.close_heading(level)
    layout.gap(LINE if listed else BLANK_LINE)


def _level(paragraph: Any, levels: dict[str, int]) -> int:
    """The level of the heading that a paragraph is; 0 if it is none."""
    own = paragraph.find(f"{_W}pPr/{_W}outlineLvl")
    if own is not None and (own.get(f"{_W}val") or "").isdecimal() and int(own.get(f"{_W}val")) < 9:
        return int(own.get(f"{_W}val")) + 1
    style = paragraph.find(f"{_W}pPr/{_W}pStyle")
    return levels.get(style.get(f"{_W}val") or "", 0) if style is not None else 0


def _words(element: Any) -> Iterator[str]:
    for child in element:
        if child.tag in _TEXT:
            yield child.text or ""
        elif child.tag in _AS_TEXT:
            yield _AS_TEXT[child.tag]
        elif child.tag == f"{_W}p":  # in a text box
            yield "\n"
            yield from _words(child)
        elif child.tag not in _SKIPPED:
            yield from _words(child)


def _write_table(layout: Layout, table: Any) -> None:
    layout.gap(BLANK_LINE)
    for row in table.iter(f"{_W}tr"):
        layout.gap(LINE)
        layout.write(" | ".join(_cell(cell) for cell in row.iter(f"{_W}tc") if _row_of(cell) is row))
    layout.gap(BLANK_LINE)


def _row_of(cell: Any) -> Any:
    """The row that a cell stands in, past content controls."""
    found = cell.getparent()
    while found is not None and found.tag != f"{_W}tr":
        found = found.getparent()
    return found


def _cell(cell: Any) -> str:
    """The words of a cell; a table within it comes later, as rows of its own."""
    blocks = (block for block in cell if block.tag != f"{_W}tbl")
    return " ".join(" ".join("".join(_words(block)).split()) for block in blocks).strip()


def _left_out(package: Any) -> Iterator[str]:
    for part in package.part.package.iter_parts():
        if str(part.partname).endswith(("/footnotes.xml", "/endnotes.xml")) and part.blob.count(b"<w:t>") > 0:
            yield f"Its {str(part.partname).rsplit('/', 1)[-1][:-4]} are not read."
