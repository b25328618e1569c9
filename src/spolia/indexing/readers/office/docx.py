"""DOCX: paragraphs, headings, tables, pictures and notes in the order of the document.

python-docx opens the package and knows the styles. The text is walked here, because its own iterators leave out content
controls, text boxes and tracked insertions.
"""

import zipfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from spolia.deferred import docx
from spolia.errors import require
from spolia.indexing.readers.layout import BLANK_LINE, LINE, Layout
from spolia.indexing.readers.office.docx_numbers import BULLET, Numbering
from spolia.indexing.readers.office.docx_visibility import HiddenRuns
from spolia.indexing.readers.office.drawing_ml import (
    CX,
    DIAGRAM,
    A,
    C,
    M,
    R,
    resolve_alternatives,
    write_chart,
    write_diagram,
)
from spolia.indexing.readers.office.mending import xml_root
from spolia.indexing.readers.office.omml import to_latex
from spolia.indexing.readers.office.opc import chart_data
from spolia.indexing.readers.office.package import core_properties, package_bytes, read_package
from spolia.indexing.readers.reader import Blob, Reading
from spolia.indexing.readers.unit_failures import UnitFailures
from spolia.types import Value

_W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_WP = "{http://schemas.openxmlformats.org/drawingml/2006/wordprocessingDrawing}"
_V = "{urn:schemas-microsoft-com:vml}"
_TEXT = frozenset([f"{_W}t", f"{M}t"])
_SKIPPED = frozenset([f"{_W}del", f"{_W}moveFrom", f"{_W}instrText", f"{_W}delText"])
_AS_TEXT = {f"{_W}tab": " ", f"{_W}noBreakHyphen": "\u2011", f"{_W}cr": "\n", f"{_W}br": "\n"}
_NOTES = {
    f"{_W}footnoteReference": "footnotes", f"{_W}endnoteReference": "endnotes", f"{_W}commentReference": "comments",
}  # fmt: skip
_UNITS = {f"{C}chart": "chart", f"{CX}chart": "chart", f"{DIAGRAM}relIds": "diagram"}
_MAIN = "application/vnd.{}.main+xml"
_KINDS = (
    "ms-word.document.macroEnabled",
    "ms-word.template.macroEnabledTemplate",
    "openxmlformats-officedocument.wordprocessingml.template",
)


@dataclass(frozen=True)
class DocxReader(Value):
    """Reader of DOCX, also with macros, which are not run, and templates.

    Tables, the values of charts and pictures are regions; headings and list items keep the numbers that Word shows;
    footnotes, endnotes and comments, under their author's name, stand below the paragraph that refers to them. Headers,
    footers, embedded objects and macros are counted as dropped; hidden text, also by its style, and deletions that are
    tracked are left out.
    """

    name = "docx"
    version = 7
    media_type = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
    suffixes = (".docx", ".docm", ".dotx", ".dotm")
    isolated = True

    def read(self, blob: Blob, /) -> Reading:
        require(docx, f"Reading {blob.uri}")
        return read_package(blob, "DOCX", partial(self._read, blob))

    def _read(self, blob: Blob, archive: zipfile.ZipFile, failures: UnitFailures) -> Reading:
        main = _open_main_part(archive)
        writer = _DocxWriter(blob, main, failures)
        resolve_alternatives(main.element)
        writer.write_blocks(main.element.body)
        layout = writer.layout
        title, meta = failures.attempt("metadata part", lambda: core_properties(archive), ("", ()))
        dropped = (
            _count_dropped(archive, main, len(writer.notes["comments"].keys() - writer.referred_comments))
            + writer.dropped
        )
        return layout.build_reading(self, blob, title=title or layout.title, meta=meta, dropped=dropped)


def _open_main_part(archive: zipfile.ZipFile) -> Any:
    for kind in _KINDS:  # it reads templates and documents with macros once it knows their types
        docx.opc.part.PartFactory.part_type_for.setdefault(_MAIN.format(kind), docx.parts.document.DocumentPart)
    main_part = docx.package.Package.open(package_bytes(archive)).main_document_part
    if not isinstance(main_part, docx.parts.document.DocumentPart):
        raise ValueError(f"its main part is of type {main_part.content_type}")
    return main_part


class _DocxWriter:
    def __init__(self, blob: Blob, main: Any, failures: UnitFailures) -> None:
        self.blob, self.main = blob, main
        self.layout = Layout(failures)
        self.dropped: Counter[str] = Counter()
        attempt = failures.attempt
        styles = attempt("part", lambda: main.styles.element, None)
        self.levels = attempt("part", lambda: _heading_levels(styles), {})
        self.is_hidden = attempt("part", lambda: HiddenRuns(styles), lambda run: False)
        self.numbering = attempt("part", lambda: Numbering(_numbering_root(main), styles), Numbering(None, None))
        self.notes = {kind: attempt("part", partial(_notes, main, kind), {}) for kind in _NOTES.values()}
        self.referred_comments: set[str] = set()  # comments that something refers to, by id

    def write_blocks(self, container: Any) -> None:
        """Write the blocks of a body or a content control. It is recursive: the parser has rejected XML that is nested
        too deep."""
        for block in container:
            if block.tag == f"{_W}p":
                self.layout.attempt("paragraph", partial(self._write_paragraph, block), partial(_all_text, block))
            elif block.tag == f"{_W}tbl":
                self.layout.attempt("table", partial(self._write_table, block), partial(_all_text, block))
            elif block.tag not in _SKIPPED and block.tag != f"{_W}sectPr":
                self.write_blocks(block)

    def _write_table(self, table: Any) -> None:
        self.layout.write_table(list(self._row_cells(row)) for row in table.iter(f"{_W}tr"))
        self._write_drawings(table)
        self.layout.write_notes()

    def _write_paragraph(self, paragraph: Any) -> None:
        level = _level(paragraph, self.levels)
        label = self.numbering.label(paragraph)
        is_item = bool(label) and not level
        layout = self.layout
        layout.gap(LINE if is_item else BLANK_LINE)
        if level:
            layout.open_heading()
        words = "".join(self._words(paragraph))
        if words.strip() and label and not (level and label == BULLET):
            layout.write(f"{label} ", is_exact=True)
        formula = layout.mark() if paragraph.find(f"{M}oMathPara") is not None else None
        layout.write(words)
        if formula:
            layout.add_region("formula", formula)
        if level:
            layout.close_heading(level)
        layout.gap(LINE if is_item else BLANK_LINE)
        self._write_drawings(paragraph)
        layout.write_notes()

    def _words(self, element: Any) -> Iterator[str]:
        for child in element:
            if child.tag in _TEXT:
                yield child.text or ""
            elif child.tag in _AS_TEXT:
                yield _AS_TEXT[child.tag]
            elif child.tag in _NOTES:
                yield self._add_note(_NOTES[child.tag], child.get(f"{_W}id") or "")
            elif child.tag == f"{_W}p":  # in a text box
                yield "\n"
                yield from self._words(child)
            elif child.tag == f"{M}oMath":
                formula = to_latex(child, lambda node: node.tag in _SKIPPED or self.is_hidden(node))
                yield f"${formula}$" if formula else ""
            elif child.tag not in _SKIPPED and not self.is_hidden(child):
                yield from self._words(child)

    def _add_note(self, kind: str, id: str) -> str:
        note = self.notes[kind].get(id)
        if note is None:
            return ""
        if kind == "comments":
            self.referred_comments.add(id)
        author = f"{note.get(f'{_W}author')}: " if note.get(f"{_W}author") else ""
        return self.layout.add_note(f"{author}{''.join(self._words(note))}")

    def _row_cells(self, row: Any) -> Iterator[str]:
        for cell in row.iter(f"{_W}tc"):
            if next(cell.iterancestors(f"{_W}tr"), None) is row:  # past content controls
                blocks = (block for block in cell if block.tag != f"{_W}tbl")  # its rows come later, as rows of its own
                yield " ".join(" ".join("".join(self._words(block)).split()) for block in blocks).strip()
                span = cell.find(f"{_W}tcPr/{_W}gridSpan")
                # Word has at most 63 columns; a file may state more.
                yield from [""] * min(62, int(span.get(f"{_W}val") or 1) - 1 if span is not None else 0)

    def _write_drawings(self, block: Any) -> None:
        """Write the pictures, charts and diagrams in a block."""
        for drawing in block.iter(f"{A}blip", f"{_V}imagedata", f"{C}chart", f"{CX}chart", f"{DIAGRAM}relIds"):
            if not any(ancestor.tag in _SKIPPED or self.is_hidden(ancestor) for ancestor in drawing.iterancestors()):
                self.layout.attempt(_UNITS.get(drawing.tag, "picture"), partial(self._write_drawing, drawing))

    def _write_drawing(self, drawing: Any) -> None:
        if drawing.tag == f"{DIAGRAM}relIds":
            write_diagram(self.layout, self._related_root(drawing.get(f"{R}dm")))
        elif drawing.tag in _UNITS:
            write_chart(self.layout, self._related_root(drawing.get(f"{R}id")))
        else:
            self._write_picture(drawing)

    def _related_root(self, id: str) -> Any:
        return xml_root(self.main.related_parts[id].blob)

    def _write_picture(self, drawing: Any) -> None:
        part = self.main.related_parts.get(drawing.get(f"{R}embed") or drawing.get(f"{R}id") or "")
        if part is None or not getattr(part, "content_type", "").startswith("image/"):
            self.dropped["pictures"] += 1
            return
        image = Blob(f"{self.blob.uri}{part.partname}", part.blob)
        self.layout.images.setdefault(image.content_hash, image)
        mark, description = self.layout.mark(), _description(drawing)
        self.layout.write(description)
        self.layout.add_region("image", mark, image=image.content_hash, caption=description)
        self.layout.gap(BLANK_LINE)


def _all_text(block: Any) -> str:
    """Return every text in a block that is not deleted, a line for each paragraph."""
    return "\n".join("".join(run.text or "" for run in paragraph.iter(*_TEXT)) for paragraph in block.iter(f"{_W}p"))


def _numbering_root(main: Any) -> Any:
    """Return the root element of the part with the numbers of lists; None without one."""
    parts = (relation for relation in main.rels.values() if relation.reltype.endswith("/numbering"))
    return next((xml_root(part.target_part.blob) for part in parts if not part.is_external), None)


def _description(drawing: Any) -> str:
    for ancestor in drawing.iterancestors():
        if ancestor.tag in (f"{_WP}inline", f"{_WP}anchor"):
            properties = ancestor.find(f"{_WP}docPr")
            return " ".join((properties.get("descr") or "").split()) if properties is not None else ""
        if ancestor.tag == f"{_V}shape":
            return " ".join((ancestor.get("alt") or "").split())
    return ""


def _heading_levels(styles: Any) -> dict[str, int]:
    """Map each paragraph style that makes headings, by id, to their level, inherited ones included."""
    levels: dict[str, int] = {}
    for style in styles.findall(f"{_W}style"):
        id, label = style.get(f"{_W}styleId") or "", _value(style, "name").lower()
        level, parent = style.find(f"{_W}pPr/{_W}outlineLvl"), _value(style, "basedOn")
        if label == "title":
            levels[id] = 1
        elif label.startswith("heading ") and label[8:].isdecimal():
            levels[id] = int(label[8:])
        elif level is not None:
            levels[id] = int(level.get(f"{_W}val") or 0) + 1
        elif parent in levels:
            levels[id] = levels[parent]
    return {id: level for id, level in levels.items() if level <= 9}


def _value(element: Any, *path: str) -> str:
    """Return the value of a property; empty if it is absent."""
    child = element.find("/".join(f"{_W}{name}" for name in path))
    return (child.get(f"{_W}val") or "") if child is not None else ""


def _level(paragraph: Any, levels: dict[str, int]) -> int:
    """Return the level of a paragraph as a heading; 0 if it is none."""
    outline_level = _value(paragraph, "pPr", "outlineLvl")
    if outline_level.isdecimal() and int(outline_level) < 9:
        return int(outline_level) + 1
    return levels.get(_value(paragraph, "pPr", "pStyle"), 0)


def _notes(main: Any, kind: str) -> dict[str, Any]:
    """Return footnotes, endnotes or comments by id, without the lines that separate them from the text."""
    for relation in main.rels.values():
        if relation.reltype.endswith(f"/{kind}") and not relation.is_external:
            root = xml_root(relation.target_part.blob)
            resolve_alternatives(root)
            return {note.get(f"{_W}id") or "": note for note in root if note.get(f"{_W}type") is None}
    return {}


def _count_dropped(archive: zipfile.ZipFile, main: Any, comments: int) -> Counter[str]:
    counts = Counter({"comments": comments})
    data = chart_data(archive)
    for part in main.package.iter_parts():
        name = str(part.partname)
        if name.endswith("/vbaProject.bin"):
            counts["macros"] = 1
        elif "/header" in name or "/footer" in name:
            counts["headers and footers"] += b"<w:t" in part.blob  # one without text loses nothing
        elif "/embeddings/" in name and name.lstrip("/") not in data:
            counts["embedded objects"] += 1
    return counts
