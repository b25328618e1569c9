"""OpenDocument: texts, sheets and slides (ODT, ODS, ODP), ISO/IEC 26300."""

import zipfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from xml.etree.ElementTree import Element

from spolia.indexing.readers.layout import BLANK_LINE, LINE, Layout
from spolia.indexing.readers.office.excel import write_sheet
from spolia.indexing.readers.office.odf_visibility import OdfHiding
from spolia.indexing.readers.office.package import left_out, locked, metadata_of, package
from spolia.indexing.readers.reader import Blob, Reading
from spolia.indexing.readers.safe_xml import tree
from spolia.types import Value

_TEXT = "{urn:oasis:names:tc:opendocument:xmlns:text:1.0}"
_TABLE = "{urn:oasis:names:tc:opendocument:xmlns:table:1.0}"
_DRAW = "{urn:oasis:names:tc:opendocument:xmlns:drawing:1.0}"
_OFFICE = "{urn:oasis:names:tc:opendocument:xmlns:office:1.0}"
_HREF = "{http://www.w3.org/1999/xlink}href"
_AROUND = tuple(f"{{urn:oasis:names:tc:opendocument:xmlns:style:1.0}}{name}" for name in ("header", "footer"))
_CREATOR = "{http://purl.org/dc/elements/1.1/}creator"
_COMMENT = f"{_OFFICE}annotation"
_NOT_READ = {
    f"{_TEXT}tracked-changes": "tracked changes",
    f"{_TABLE}tracked-changes": "tracked changes",
    f"{_DRAW}object": "embedded objects",
}
_SILENT = frozenset([f"{_OFFICE}forms", f"{_TEXT}sequence-decls", f"{_TABLE}shapes", f"{_OFFICE}event-listeners"])
_MAY_SHOW = frozenset([f"{_TEXT}span", f"{_TEXT}a"])
"""What may be shown in a hidden paragraph, by a style of its own."""
_META = {"initial-creator": "author", "creation-date": "date", "date": "modified", "subject": "subject",
         "keyword": "keywords", "language": "language", "description": "description"}  # fmt: skip
_MOST_REPEATED, _MOST_REPEATS = 1000, 1_000_000
"""How often a repeated cell or row counts at most, and how many cells all of them make at
most; sheets say so of a million empty ones."""


@dataclass(frozen=True)
class OdfReader(Value):
    """Reads OpenDocument texts, sheets and slides.

    Sheets and slides are pages. Tables and pictures are regions; footnotes and comments, under their author's name,
    stand below their paragraph. Hidden text is left out; a warning names the number of hidden sheets and slides, which
    are pages without text. Headers, footers, comments on cells of sheets, hidden rows, tracked deletions, embedded
    objects and macros are counted as dropped.
    """

    name = "odf"
    version = 3
    media_type = "application/vnd.oasis.opendocument.text"
    suffixes = (".odt", ".ods", ".odp", ".ott", ".ots", ".otp")
    apart = True

    def read(self, blob: Blob, /) -> Reading:
        with package(blob, "OpenDocument file", "content.xml") as archive:
            names = archive.namelist()
            if "META-INF/manifest.xml" in names and b"encryption-data" in archive.read("META-INF/manifest.xml"):
                raise locked(blob)
            content = tree(archive.read("content.xml"), blob.uri)
            styles = tree(archive.read("styles.xml"), "styles.xml") if "styles.xml" in names else Element("none")
            writing = _Writing(blob, archive, OdfHiding((styles, content)))
            if (body := content.find(f"{_OFFICE}body")) is not None:
                writing.blocks(body)
            stated = tree(archive.read("meta.xml"), "meta.xml").iter() if "meta.xml" in names else ()
            title, meta = metadata_of(stated, _META)
            writing.dropped["macros"] += any(name.startswith("Basic/") for name in names)
            writing.dropped["headers and footers"] += _around(styles)
        layout = writing.layout
        stretches = pairwise((*writing.pages, len(layout)))
        return layout.reading(
            self,
            blob,
            title=title or layout.title,
            pages=writing.pages,
            meta=meta,
            empty_pages=(
                at
                for at, (start, end) in enumerate(stretches, 1)
                if at not in writing.hidden_pages and not layout.text()[start:end].strip()
            ),
            dropped=writing.dropped,
            warnings=(*left_out(writing.hidden["sheet"], "sheet"), *left_out(writing.hidden["slide"], "slide")),
        )


class _Writing:
    def __init__(self, blob: Blob, archive: zipfile.ZipFile, hides: OdfHiding) -> None:
        self.blob, self.archive, self.hides = blob, archive, hides
        self.layout = Layout()
        self.pages: list[int] = []
        self.hidden: Counter[str] = Counter()
        self.hidden_pages: set[int] = set()
        self.dropped: Counter[str] = Counter()
        self._repeats = _MOST_REPEATS
        self._frames: list[Element] = []  # pictures in the present paragraph

    def blocks(self, container: Element) -> None:
        for block in container:
            tag = block.tag
            if tag in _NOT_READ:
                self.dropped[_NOT_READ[tag]] += 1
            elif tag in (f"{_TEXT}p", f"{_TEXT}h"):
                self._paragraph(block)
            elif self.hides(block):
                self._leave_out(block, container)
            elif tag == _COMMENT:
                self._comment(block)
                self._below()
            elif tag == f"{_TEXT}list-item":
                self._item(block)
            elif tag == f"{_TABLE}table":
                self._table(block, is_sheet=container.tag == f"{_OFFICE}spreadsheet")
            elif tag == f"{_DRAW}page":
                self._begin_page()
                self.blocks(block)
            elif tag == f"{_DRAW}frame":
                self._frame(block)
            elif tag not in _SILENT:
                self.blocks(block)

    def _leave_out(self, block: Element, container: Element) -> None:
        """A hidden sheet or slide is a page without text, so that those after it keep their numbers."""
        is_sheet = block.tag == f"{_TABLE}table" and container.tag == f"{_OFFICE}spreadsheet"
        if what := "sheet" if is_sheet else "slide" if block.tag == f"{_DRAW}page" else "":
            self.hidden[what] += 1
            self.pages.append(len(self.layout))
            self.hidden_pages.add(len(self.pages))

    def _begin_page(self) -> None:
        self.layout.gap(BLANK_LINE)
        self.pages.append(len(self.layout) + (2 if len(self.layout) else 0))

    def _paragraph(self, paragraph: Element) -> None:
        level = paragraph.get(f"{_TEXT}outline-level") if paragraph.tag == f"{_TEXT}h" else None
        words = self._said(paragraph)
        if level is not None or paragraph.tag == f"{_TEXT}h":
            self.layout.heading(words, min(9, int(level or 1)))
        else:
            self.layout.paragraph(words)
        self._below()

    def _item(self, item: Element) -> None:
        for block in item:
            self.layout.gap(LINE)
            if block.tag in (f"{_TEXT}p", f"{_TEXT}h"):
                words = self._said(block).strip()
                self.layout.write(f"- {words}" if words else "")
                self.layout.gap(LINE)
            else:
                self.blocks([block])  # type: ignore[arg-type]
        self._below()

    def _below(self) -> None:
        """Pictures and notes of the paragraph that was written."""
        frames, self._frames = self._frames, []
        for frame in frames:
            self._frame(frame)
        self.layout.write_notes()

    def _said(self, element: Element) -> str:
        """The words in an element, without hidden ones."""
        return "".join(self._words(element, False))

    def _words(self, element: Element, is_hidden: bool) -> Iterator[str]:
        says = self.hides(element)
        is_hidden = is_hidden if says is None else says
        yield "" if is_hidden else element.text or ""
        for child in element:
            if is_hidden and child.tag not in _MAY_SHOW:
                continue
            if child.tag == f"{_TEXT}note":
                body = child.find(f"{_TEXT}note-body")
                yield self.layout.refer(self._said(body) if body is not None else "")
            elif child.tag == _COMMENT:
                yield self._comment(child)
            elif child.tag == f"{_DRAW}frame":
                self._frames.append(child)
            elif child.tag in _NOT_READ:
                self.dropped[_NOT_READ[child.tag]] += 1
            elif child.tag in (f"{_TEXT}s", f"{_TEXT}tab"):
                yield " "
            elif child.tag == f"{_TEXT}line-break":
                yield "\n"
            elif child.tag not in _SILENT:
                yield from self._words(child, is_hidden)
            yield "" if is_hidden else child.tail or ""

    def _comment(self, comment: Element) -> str:
        author = comment.findtext(_CREATOR)
        paragraphs = (self._said(one) for one in comment if one.tag.startswith(_TEXT))
        return self.layout.refer(f"{f'{author}: ' if author else ''}{' '.join(paragraphs)}")

    def _frame(self, frame: Element) -> None:
        """A text box, a table on a slide, or a picture with its description."""
        said = " ".join(" ".join(one.text or "" for one in frame if one.tag.endswith(("}title", "}desc"))).split())
        for inner in frame:
            if inner.tag == f"{_DRAW}image" and (image := self._image(inner.get(_HREF) or "")) is not None:
                self.layout.picture(image, said)
                return
        self.blocks(frame)

    def _image(self, href: str) -> Blob | None:
        if href.removeprefix("./") not in self.archive.namelist():
            return None
        return Blob(f"{self.blob.uri}/{href.removeprefix('./')}", self.archive.read(href.removeprefix("./")))

    def _table(self, table: Element, *, is_sheet: bool) -> None:
        name = table.get(f"{_TABLE}name") or ""
        if is_sheet:
            self._begin_page()
            self.layout.heading(name, 1)
        rows = self._rows(table)
        if is_sheet:
            write_sheet(self.layout, rows, name)
        else:
            self.layout.table(row for row in rows if any(row))
        self._below()

    def _rows(self, table: Element) -> Iterator[list[str]]:
        for part in table:
            if part.tag == f"{_TABLE}table-row" and self.hides(part):
                self.dropped["hidden rows"] += bool("".join(part.itertext()).strip())
            elif part.tag == f"{_TABLE}table-row":
                row = self._row(part)
                for _ in range(self._repeated(part, "rows", len(row)) if row else 1):
                    yield row
            elif part.tag in (f"{_TABLE}table-header-rows", f"{_TABLE}table-row-group", f"{_TABLE}table-rows"):
                yield from self._rows(part)

    def _repeated(self, element: Element, what: str, cells: int) -> int:
        """How often a row or a cell counts."""
        said = element.get(f"{_TABLE}number-{what}-repeated") or "1"
        times = min(int(said), _MOST_REPEATED) if said.isdecimal() and len(said) < 10 else 1
        if (times - 1) * cells > self._repeats:
            return 1
        self._repeats -= (times - 1) * cells
        return times

    def _blocks_of(self, cell: Element) -> list[Element]:
        """Without the comment that a cell of a sheet may have: its value is its own."""
        found = [block for block in cell if block.tag != _COMMENT]
        self.dropped["comments"] += len(cell) - len(found)
        return found

    def _row(self, row: Element) -> list[str]:
        cells: list[str] = []
        for cell in row:
            if cell.tag in (f"{_TABLE}table-cell", f"{_TABLE}covered-table-cell"):
                words = " ".join(" ".join(self._said(block).split()) for block in self._blocks_of(cell))
                cells += [words.strip()] * self._repeated(cell, "columns", 1)
        while cells and not cells[-1]:
            cells.pop()
        return cells


def _around(styles: Element) -> int:
    """Number of the headers and footers that have words."""
    return sum(part.tag in _AROUND and bool("".join(part.itertext()).strip()) for part in styles.iter())
