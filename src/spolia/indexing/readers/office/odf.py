"""OpenDocument: texts, sheets and slides (ODT, ODS, ODP), ISO/IEC 26300."""

import zipfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from xml.etree.ElementTree import Element

from spolia.indexing.readers.layout import BLANK_LINE, LINE, Layout
from spolia.indexing.readers.office.excel import write_sheet
from spolia.indexing.readers.office.odf_visibility import OdfHiding
from spolia.indexing.readers.office.package import left_out, locked, metadata_of, read_package
from spolia.indexing.readers.reader import Blob, Reading
from spolia.indexing.readers.safe_xml import tree
from spolia.indexing.readers.unit_failures import UnitFailures
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
    f"{_DRAW}object-ole": "embedded objects",
}
_SILENT = frozenset([f"{_OFFICE}forms", f"{_TEXT}sequence-decls", f"{_TABLE}shapes", f"{_OFFICE}event-listeners"])
_APART = frozenset(
    [f"{_TEXT}p", f"{_TEXT}h", f"{_TEXT}list-item", f"{_TABLE}table-cell", f"{_TABLE}covered-table-cell"]
)
"""Their words do not touch those before and after them."""
_MAY_SHOW = frozenset([f"{_TEXT}span", f"{_TEXT}a"])
"""What may be shown in a hidden paragraph, by a style of its own."""
_META = {"initial-creator": "author", "creation-date": "date", "date": "modified", "subject": "subject",
         "keyword": "keywords", "language": "language", "description": "description"}  # fmt: skip
_DESCRIPTIONS = tuple(
    f"{{urn:oasis:names:tc:opendocument:xmlns:svg-compatible:1.0}}{name}" for name in ("title", "desc")
)
_VALUES = ("string-value", "date-value", "time-value", "boolean-value", "value")
_MOST_REPEATED, _MOST_REPEATS = 1000, 1_000_000
"""How often a repeated cell or row counts at most, and how many cells all of them make at
most; sheets say so of a million empty ones."""


@dataclass(frozen=True)
class OdfReader(Value):
    """Reads OpenDocument texts, sheets and slides.

    Sheets and slides are pages. Tables, the data of charts and pictures are regions; footnotes and comments, under
    their author's name, stand below their paragraph. Hidden text is left out; a warning names the number of hidden
    sheets and slides, which are pages without text. Headers, footers, comments on cells of sheets, hidden rows, tracked
    deletions, embedded objects and macros are counted as dropped.
    """

    name = "odf"
    version = 5
    media_type = "application/vnd.oasis.opendocument.text"
    suffixes = (".odt", ".ods", ".odp", ".ott", ".ots", ".otp")
    apart = True

    def read(self, blob: Blob, /) -> Reading:
        return read_package(blob, "OpenDocument file", partial(self._read, blob))

    def _read(self, blob: Blob, archive: zipfile.ZipFile, failures: UnitFailures) -> Reading:
        names = archive.namelist()
        if "META-INF/manifest.xml" in names and b"encryption-data" in archive.read("META-INF/manifest.xml"):
            raise locked(blob)
        content = tree(archive.read("content.xml"), blob.uri)
        layout, none = Layout(failures), Element("none")

        def part(name: str) -> Element:
            return failures.attempt("part", lambda: tree(archive.read(name), name), none)

        styles = part("styles.xml") if "styles.xml" in names else none
        writing = _Writing(blob, archive, OdfHiding((styles, content)), layout)
        if (body := content.find(f"{_OFFICE}body")) is not None:
            writing.blocks(body)
        stated = part("meta.xml").iter() if "meta.xml" in names else ()
        title, meta = metadata_of(stated, _META)
        writing.dropped["macros"] += any(name.startswith("Basic/") for name in names)
        writing.dropped["headers and footers"] += _around(styles)
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
    def __init__(self, blob: Blob, archive: zipfile.ZipFile, hides: OdfHiding, layout: Layout) -> None:
        self.blob, self.archive, self.hides, self.layout = blob, archive, hides, layout
        self.pages: list[int] = []
        self.hidden: Counter[str] = Counter()
        self.hidden_pages: set[int] = set()
        self.dropped: Counter[str] = Counter()
        self._repeats = _MOST_REPEATS
        self._frames: list[Element] = []  # pictures in the present paragraph

    def blocks(self, blocks: Iterable[Element], container: str = "") -> None:
        """Write blocks; `container`: the tag of their parent element, where it matters."""
        for block in blocks:
            tag = block.tag
            if tag in _NOT_READ:
                self.dropped[_NOT_READ[tag]] += 1
            elif tag in (f"{_TEXT}p", f"{_TEXT}h"):
                self._attempt("paragraph", partial(self._paragraph, block), block)
            elif self.hides(block):
                self._leave_out(block, container)
            elif tag == _COMMENT:
                self._attempt("comment", partial(self._comment_block, block), block)
            elif tag == f"{_TEXT}list-item":
                self._attempt("list item", partial(self._item, block), block)
            elif tag == f"{_TABLE}table":
                is_sheet = container == f"{_OFFICE}spreadsheet"
                if is_sheet:
                    self._begin_page()
                self._attempt("sheet" if is_sheet else "table", partial(self._table, block, is_sheet=is_sheet), block)
            elif tag == f"{_DRAW}page":
                self._begin_page()
                self._attempt("slide", partial(self.blocks, block), block)
            elif tag == f"{_DRAW}frame":
                self._attempt("frame", partial(self._frame, block), block)
            elif tag == f"{_DRAW}object":
                self._object(block)
            elif tag not in _SILENT:
                self.blocks(block, tag)

    def _attempt(self, unit: str, write: Callable[[], object], block: Element) -> None:
        self.layout.attempt(
            unit, write, lambda: " ".join(words for part in block.itertext() if (words := part.strip()))
        )

    def _comment_block(self, comment: Element) -> None:
        self._comment(comment)
        self._below()

    def _leave_out(self, block: Element, container: str) -> None:
        """A hidden sheet or slide is a page without text, so that those after it keep their numbers."""
        is_sheet = block.tag == f"{_TABLE}table" and container == f"{_OFFICE}spreadsheet"
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
                self.blocks([block])
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
                apart = " " if child.tag in _APART else ""
                yield apart
                yield from self._words(child, is_hidden)
                yield apart
            yield "" if is_hidden else child.tail or ""

    def _comment(self, comment: Element) -> str:
        author = comment.findtext(_CREATOR)
        paragraphs = (self._said(one) for one in comment if one.tag.startswith(_TEXT))
        return self.layout.refer(f"{f'{author}: ' if author else ''}{' '.join(paragraphs)}")

    def _frame(self, frame: Element) -> None:
        """A text box, a table on a slide, an object, or a picture with its description. The file has several forms of
        the same for programs that can less: a picture counts if the others have no text."""
        said = " ".join(" ".join(one.text or "" for one in frame if one.tag.endswith(("}title", "}desc"))).split())
        before = len(self.layout)
        self.blocks(inner for inner in frame if inner.tag not in (f"{_DRAW}image", *_DESCRIPTIONS))
        if len(self.layout) > before:
            return
        for inner in frame.findall(f"{_DRAW}image"):
            if (image := self._image(inner.get(_HREF) or "")) is not None:
                self.layout.picture(image, said)
                return
            self.dropped["pictures"] += 1
        self.layout.paragraph(said)

    def _object(self, element: Element) -> None:
        """The data of a chart, the source of a formula, or the table of a sheet that is embedded."""
        name = f"{(element.get(_HREF) or '').removeprefix('./')}/content.xml"
        if name not in self.archive.namelist():
            self.dropped["embedded objects"] += 1
            return
        self.layout.attempt("embedded object", lambda: self._embedded(tree(self.archive.read(name), name)))

    def _embedded(self, root: Element) -> None:
        if (body := root.find(f"{_OFFICE}body")) is not None:
            self.blocks(body)
        else:
            source = next((one.text or "" for one in root.iter() if one.tag.endswith("}annotation")), "")
            self.layout.paragraph(source or " ".join("".join(root.itertext()).split()))

    def _image(self, href: str) -> Blob | None:
        if href.removeprefix("./") not in self.archive.namelist():
            return None
        return Blob(f"{self.blob.uri}/{href.removeprefix('./')}", self.archive.read(href.removeprefix("./")))

    def _table(self, table: Element, *, is_sheet: bool) -> None:
        name = table.get(f"{_TABLE}name") or ""
        if is_sheet:
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

    def _value(self, cell: Element) -> str:
        """The value of a cell that has no text; a formula without one is counted."""
        value = next((value for name in _VALUES if (value := cell.get(f"{_OFFICE}{name}"))), "")
        self.dropped["formulas without a saved value"] += not value and cell.get(f"{_TABLE}formula") is not None
        return value

    def _row(self, row: Element) -> list[str]:
        cells: list[str] = []
        for cell in row:
            if cell.tag in (f"{_TABLE}table-cell", f"{_TABLE}covered-table-cell"):
                words = " ".join(" ".join(self._said(block).split()) for block in self._blocks_of(cell))
                cells += [words.strip() or self._value(cell)] * self._repeated(cell, "columns", 1)
        while cells and not cells[-1]:
            cells.pop()
        return cells


def _around(styles: Element) -> int:
    """Number of the headers and footers that have words."""
    return sum(part.tag in _AROUND and bool("".join(part.itertext()).strip()) for part in styles.iter())
