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
from spolia.indexing.readers.office.odf_visibility import HiddenElements
from spolia.indexing.readers.office.package import hidden_warning, locked_error, metadata_of, read_package
from spolia.indexing.readers.reader import Blob, Reading
from spolia.indexing.readers.safe_xml import parse_tree
from spolia.indexing.readers.unit_failures import UnitFailures
from spolia.types import Value

_TEXT = "{urn:oasis:names:tc:opendocument:xmlns:text:1.0}"
_TABLE = "{urn:oasis:names:tc:opendocument:xmlns:table:1.0}"
_DRAW = "{urn:oasis:names:tc:opendocument:xmlns:drawing:1.0}"
_OFFICE = "{urn:oasis:names:tc:opendocument:xmlns:office:1.0}"
_HREF = "{http://www.w3.org/1999/xlink}href"
_HEADERS_AND_FOOTERS = tuple(
    f"{{urn:oasis:names:tc:opendocument:xmlns:style:1.0}}{name}" for name in ("header", "footer")
)
_CREATOR = "{http://purl.org/dc/elements/1.1/}creator"
_COMMENT = f"{_OFFICE}annotation"
_NOT_READ = {
    f"{_TEXT}tracked-changes": "tracked changes",
    f"{_TABLE}tracked-changes": "tracked changes",
    f"{_DRAW}object-ole": "embedded objects",
}
_SILENT = frozenset([f"{_OFFICE}forms", f"{_TEXT}sequence-decls", f"{_TABLE}shapes", f"{_OFFICE}event-listeners"])
_SEPARATE = frozenset(
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
    """Reader of OpenDocument texts, sheets and slides.

    Sheets and slides are pages. Tables, the data of charts and pictures are regions; footnotes and comments, under
    their author's name, stand below their paragraph. Hidden text is left out; a warning names the number of hidden
    sheets and slides, which are pages without text. Headers, footers, comments on cells of sheets, hidden rows, tracked
    deletions, embedded objects and macros are counted as dropped.
    """

    name = "odf"
    version = 5
    media_type = "application/vnd.oasis.opendocument.text"
    suffixes = (".odt", ".ods", ".odp", ".ott", ".ots", ".otp")
    isolated = True

    def read(self, blob: Blob, /) -> Reading:
        return read_package(blob, "OpenDocument file", partial(self._read, blob))

    def _read(self, blob: Blob, archive: zipfile.ZipFile, failures: UnitFailures) -> Reading:
        names = archive.namelist()
        if "META-INF/manifest.xml" in names and b"encryption-data" in archive.read("META-INF/manifest.xml"):
            raise locked_error(blob)
        content = parse_tree(archive.read("content.xml"), blob.uri)
        layout, empty = Layout(failures), Element("none")

        def part(name: str) -> Element:
            return failures.attempt("part", lambda: parse_tree(archive.read(name), name), empty)

        styles = part("styles.xml") if "styles.xml" in names else empty
        writer = _OdfWriter(blob, archive, HiddenElements((styles, content)), layout)
        if (body := content.find(f"{_OFFICE}body")) is not None:
            writer.write_blocks(body)
        elements = part("meta.xml").iter() if "meta.xml" in names else ()
        title, meta = metadata_of(elements, _META)
        writer.dropped["macros"] += any(name.startswith("Basic/") for name in names)
        writer.dropped["headers and footers"] += _count_headers(styles)
        stretches = pairwise((*writer.pages, len(layout)))
        return layout.build_reading(
            self,
            blob,
            title=title or layout.title,
            pages=writer.pages,
            meta=meta,
            empty_pages=(
                number
                for number, (start, end) in enumerate(stretches, 1)
                if number not in writer.hidden_pages and not layout.text()[start:end].strip()
            ),
            dropped=writer.dropped,
            warnings=(
                *hidden_warning(writer.hidden["sheet"], "sheet"),
                *hidden_warning(writer.hidden["slide"], "slide"),
            ),
        )


class _OdfWriter:
    def __init__(self, blob: Blob, archive: zipfile.ZipFile, hides: HiddenElements, layout: Layout) -> None:
        self.blob, self.archive, self.hides, self.layout = blob, archive, hides, layout
        self.pages: list[int] = []
        self.hidden: Counter[str] = Counter()
        self.hidden_pages: set[int] = set()
        self.dropped: Counter[str] = Counter()
        self._repeats = _MOST_REPEATS
        self._frames: list[Element] = []  # pictures in the present paragraph

    def write_blocks(self, blocks: Iterable[Element], container: str = "") -> None:
        """Write blocks; `container`: the tag of their parent element, where it matters."""
        for block in blocks:
            tag = block.tag
            if tag in _NOT_READ:
                self.dropped[_NOT_READ[tag]] += 1
            elif tag in (f"{_TEXT}p", f"{_TEXT}h"):
                self._attempt("paragraph", partial(self._write_paragraph, block), block)
            elif self.hides(block):
                self._leave_out(block, container)
            elif tag == _COMMENT:
                self._attempt("comment", partial(self._write_comment, block), block)
            elif tag == f"{_TEXT}list-item":
                self._attempt("list item", partial(self._write_item, block), block)
            elif tag == f"{_TABLE}table":
                is_sheet = container == f"{_OFFICE}spreadsheet"
                if is_sheet:
                    self._begin_page()
                self._attempt(
                    "sheet" if is_sheet else "table", partial(self._write_table, block, is_sheet=is_sheet), block
                )
            elif tag == f"{_DRAW}page":
                self._begin_page()
                self._attempt("slide", partial(self.write_blocks, block), block)
            elif tag == f"{_DRAW}frame":
                self._attempt("frame", partial(self._write_frame, block), block)
            elif tag == f"{_DRAW}object":
                self._write_object(block)
            elif tag not in _SILENT:
                self.write_blocks(block, tag)

    def _attempt(self, unit: str, write: Callable[[], object], block: Element) -> None:
        self.layout.attempt(
            unit, write, lambda: " ".join(words for part in block.itertext() if (words := part.strip()))
        )

    def _write_comment(self, comment: Element) -> None:
        self._add_comment(comment)
        self._write_pending()

    def _leave_out(self, block: Element, container: str) -> None:
        """Count a hidden sheet or slide as a page without text, so that later pages keep their numbers."""
        is_sheet = block.tag == f"{_TABLE}table" and container == f"{_OFFICE}spreadsheet"
        if unit := "sheet" if is_sheet else "slide" if block.tag == f"{_DRAW}page" else "":
            self.hidden[unit] += 1
            self.pages.append(len(self.layout))
            self.hidden_pages.add(len(self.pages))

    def _begin_page(self) -> None:
        self.layout.gap(BLANK_LINE)
        # The blank line before a page is written with its first words.
        self.pages.append(len(self.layout) + (2 if len(self.layout) else 0))

    def _write_paragraph(self, paragraph: Element) -> None:
        level = paragraph.get(f"{_TEXT}outline-level") if paragraph.tag == f"{_TEXT}h" else None
        words = self._visible_text(paragraph)
        if level is not None or paragraph.tag == f"{_TEXT}h":
            self.layout.write_heading(words, min(9, int(level or 1)))
        else:
            self.layout.write_paragraph(words)
        self._write_pending()

    def _write_item(self, item: Element) -> None:
        for block in item:
            self.layout.gap(LINE)
            if block.tag in (f"{_TEXT}p", f"{_TEXT}h"):
                words = self._visible_text(block).strip()
                self.layout.write(f"- {words}" if words else "")
                self.layout.gap(LINE)
            else:
                self.write_blocks([block])
        self._write_pending()

    def _write_pending(self) -> None:
        """Write the pictures and notes of the last paragraph."""
        frames, self._frames = self._frames, []
        for frame in frames:
            self._write_frame(frame)
        self.layout.write_notes()

    def _visible_text(self, element: Element) -> str:
        """Return the words in an element, without hidden ones."""
        return "".join(self._words(element, False))

    def _words(self, element: Element, is_hidden: bool) -> Iterator[str]:
        own_state = self.hides(element)
        is_hidden = is_hidden if own_state is None else own_state
        yield "" if is_hidden else element.text or ""
        for child in element:
            if is_hidden and child.tag not in _MAY_SHOW:
                continue
            if child.tag == f"{_TEXT}note":
                body = child.find(f"{_TEXT}note-body")
                yield self.layout.add_note(self._visible_text(body) if body is not None else "")
            elif child.tag == _COMMENT:
                yield self._add_comment(child)
            elif child.tag == f"{_DRAW}frame":
                self._frames.append(child)
            elif child.tag in _NOT_READ:
                self.dropped[_NOT_READ[child.tag]] += 1
            elif child.tag in (f"{_TEXT}s", f"{_TEXT}tab"):
                yield " "
            elif child.tag == f"{_TEXT}line-break":
                yield "\n"
            elif child.tag not in _SILENT:
                separator = " " if child.tag in _SEPARATE else ""
                yield separator
                yield from self._words(child, is_hidden)
                yield separator
            yield "" if is_hidden else child.tail or ""

    def _add_comment(self, comment: Element) -> str:
        author = comment.findtext(_CREATOR)
        paragraphs = (self._visible_text(paragraph) for paragraph in comment if paragraph.tag.startswith(_TEXT))
        return self.layout.add_note(f"{f'{author}: ' if author else ''}{' '.join(paragraphs)}")

    def _write_frame(self, frame: Element) -> None:
        """Write a text box, a table on a slide, an object, or a picture with its description. The file has several
        forms of the same for simpler programs: a picture counts if the others have no text."""
        description = " ".join(
            " ".join(child.text or "" for child in frame if child.tag.endswith(("}title", "}desc"))).split()
        )
        length = len(self.layout)
        self.write_blocks(part for part in frame if part.tag not in (f"{_DRAW}image", *_DESCRIPTIONS))
        if len(self.layout) > length:
            return
        for part in frame.findall(f"{_DRAW}image"):
            if (image := self._read_image(part.get(_HREF) or "")) is not None:
                self.layout.write_picture(image, description)
                return
            self.dropped["pictures"] += 1
        self.layout.write_paragraph(description)

    def _write_object(self, element: Element) -> None:
        """Write the data of a chart, the source of a formula, or the table of an embedded sheet."""
        name = f"{(element.get(_HREF) or '').removeprefix('./')}/content.xml"
        if name not in self.archive.namelist():
            self.dropped["embedded objects"] += 1
            return
        self.layout.attempt("embedded object", lambda: self._write_embedded(parse_tree(self.archive.read(name), name)))

    def _write_embedded(self, root: Element) -> None:
        if (body := root.find(f"{_OFFICE}body")) is not None:
            self.write_blocks(body)
        else:
            source = next((element.text or "" for element in root.iter() if element.tag.endswith("}annotation")), "")
            self.layout.write_paragraph(source or " ".join("".join(root.itertext()).split()))

    def _read_image(self, href: str) -> Blob | None:
        if href.removeprefix("./") not in self.archive.namelist():
            return None
        return Blob(f"{self.blob.uri}/{href.removeprefix('./')}", self.archive.read(href.removeprefix("./")))

    def _write_table(self, table: Element, *, is_sheet: bool) -> None:
        name = table.get(f"{_TABLE}name") or ""
        if is_sheet:
            self.layout.write_heading(name, 1)
        rows = self._rows(table)
        if is_sheet:
            write_sheet(self.layout, rows, name)
        else:
            self.layout.write_table(row for row in rows if any(row))
        self._write_pending()

    def _rows(self, table: Element) -> Iterator[list[str]]:
        for part in table:
            if part.tag == f"{_TABLE}table-row" and self.hides(part):
                self.dropped["hidden rows"] += bool("".join(part.itertext()).strip())
            elif part.tag == f"{_TABLE}table-row":
                row = self._row(part)
                for _ in range(self._repetitions(part, "rows", len(row)) if row else 1):
                    yield row
            elif part.tag in (f"{_TABLE}table-header-rows", f"{_TABLE}table-row-group", f"{_TABLE}table-rows"):
                yield from self._rows(part)

    def _repetitions(self, element: Element, unit: str, cells: int) -> int:
        """Return how often a row or a cell counts."""
        attribute = element.get(f"{_TABLE}number-{unit}-repeated") or "1"
        times = min(int(attribute), _MOST_REPEATED) if attribute.isdecimal() and len(attribute) < 10 else 1
        if (times - 1) * cells > self._repeats:
            return 1
        self._repeats -= (times - 1) * cells
        return times

    def _blocks_of(self, cell: Element) -> list[Element]:
        """Return the blocks of a cell without its comment, which on a sheet is not part of the value."""
        blocks = [block for block in cell if block.tag != _COMMENT]
        self.dropped["comments"] += len(cell) - len(blocks)
        return blocks

    def _cell_value(self, cell: Element) -> str:
        """Return the value of a cell that has no text; count a formula without one."""
        value = next((value for name in _VALUES if (value := cell.get(f"{_OFFICE}{name}"))), "")
        self.dropped["formulas without a saved value"] += not value and cell.get(f"{_TABLE}formula") is not None
        return value

    def _row(self, row: Element) -> list[str]:
        cells: list[str] = []
        for cell in row:
            if cell.tag in (f"{_TABLE}table-cell", f"{_TABLE}covered-table-cell"):
                words = " ".join(" ".join(self._visible_text(block).split()) for block in self._blocks_of(cell))
                cells += [words.strip() or self._cell_value(cell)] * self._repetitions(cell, "columns", 1)
        while cells and not cells[-1]:  # sheets state empty cells up to their last column
            cells.pop()
        return cells


def _count_headers(styles: Element) -> int:
    """Count the headers and footers that have words."""
    return sum(part.tag in _HEADERS_AND_FOOTERS and bool("".join(part.itertext()).strip()) for part in styles.iter())
