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
from spolia.indexing.readers.office.docx_visibility import Hiding
from spolia.indexing.readers.office.drawing_ml import CX, DIAGRAM, A, C, M, R, choose, write_chart, write_diagram
from spolia.indexing.readers.office.mending import xml_root
from spolia.indexing.readers.office.omml import latex
from spolia.indexing.readers.office.opc import chart_data
from spolia.indexing.readers.office.package import package_bytes, properties, read_package
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
    """Reads DOCX, also with macros, which are not run, and templates.

    Tables, the values of charts and pictures are regions; headings and list items keep the numbers that Word shows;
    footnotes, endnotes and comments, under their author's name, stand below the paragraph that refers to them. Headers,
    footers, embedded objects and macros are counted as dropped; hidden text, also by its style, and deletions that are
    tracked are left out.
    """

    name = "docx"
    version = 7
    media_type = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
    suffixes = (".docx", ".docm", ".dotx", ".dotm")
    apart = True

    def read(self, blob: Blob, /) -> Reading:
        require(docx, f"Reading {blob.uri}")
        return read_package(blob, "DOCX", partial(self._read, blob))

    def _read(self, blob: Blob, archive: zipfile.ZipFile, failures: UnitFailures) -> Reading:
        main = _main_part(archive)
        writing = _Writing(blob, main, failures)
        choose(main.element)
        writing.blocks(main.element.body)
        layout = writing.layout
        title, meta = failures.attempt("metadata part", lambda: properties(archive), ("", ()))
        dropped = _dropped(archive, main, len(writing.notes["comments"].keys() - writing.read)) + writing.dropped
        return layout.reading(self, blob, title=title or layout.title, meta=meta, dropped=dropped)


def _main_part(archive: zipfile.ZipFile) -> Any:
    for kind in _KINDS:  # it reads templates and documents with macros once it knows their types
        docx.opc.part.PartFactory.part_type_for.setdefault(_MAIN.format(kind), docx.parts.document.DocumentPart)
    found = docx.package.Package.open(package_bytes(archive)).main_document_part
    if not isinstance(found, docx.parts.document.DocumentPart):
        raise ValueError(f"its main part is of type {found.content_type}")
    return found


class _Writing:
    def __init__(self, blob: Blob, main: Any, failures: UnitFailures) -> None:
        self.blob, self.main = blob, main
        self.layout = Layout(failures)
        self.dropped: Counter[str] = Counter()
        attempt = failures.attempt
        styles = attempt("part", lambda: main.styles.element, None)
        self.levels = attempt("part", lambda: _heading_levels(styles), {})
        self.hides = attempt("part", lambda: Hiding(styles), lambda run: False)
        self.numbering = attempt("part", lambda: Numbering(_numbering(main), styles), Numbering(None, None))
        self.notes = {kind: attempt("part", partial(_notes, main, kind), {}) for kind in _NOTES.values()}
        self.read: set[str] = set()  # comments that something refers to, by id

    def blocks(self, container: Any) -> None:
        """The blocks of a body or a content control. The parser has rejected XML that is nested too deep."""
        for block in container:
            if block.tag == f"{_W}p":
                self.layout.attempt("paragraph", partial(self._paragraph, block), partial(_all_text, block))
            elif block.tag == f"{_W}tbl":
                self.layout.attempt("table", partial(self._table, block), partial(_all_text, block))
            elif block.tag not in _SKIPPED and block.tag != f"{_W}sectPr":
                self.blocks(block)

    def _table(self, table: Any) -> None:
        self.layout.table(list(self._row(row)) for row in table.iter(f"{_W}tr"))
        self._drawings(table)
        self.layout.write_notes()

    def _paragraph(self, paragraph: Any) -> None:
        level = _level(paragraph, self.levels)
        label = self.numbering.label(paragraph)
        listed = bool(label) and not level
        layout = self.layout
        layout.gap(LINE if listed else BLANK_LINE)
        if level:
            layout.open_heading()
        words = "".join(self._words(paragraph))
        if words.strip() and label and not (level and label == BULLET):
            layout.write(f"{label} ", exactly=True)
        formula = layout.mark() if paragraph.find(f"{M}oMathPara") is not None else None
        layout.write(words)
        if formula:
            layout.region("formula", formula)
        if level:
            layout.close_heading(level)
        layout.gap(LINE if listed else BLANK_LINE)
        self._drawings(paragraph)
        layout.write_notes()

    def _words(self, element: Any) -> Iterator[str]:
        for child in element:
            if child.tag in _TEXT:
                yield child.text or ""
            elif child.tag in _AS_TEXT:
                yield _AS_TEXT[child.tag]
            elif child.tag in _NOTES:
                yield self._reference(_NOTES[child.tag], child.get(f"{_W}id") or "")
            elif child.tag == f"{_W}p":  # in a text box
                yield "\n"
                yield from self._words(child)
            elif child.tag == f"{M}oMath":
                formula = latex(child, lambda one: one.tag in _SKIPPED or self.hides(one))
                yield f"${formula}$" if formula else ""
            elif child.tag not in _SKIPPED and not self.hides(child):
                yield from self._words(child)

    def _reference(self, kind: str, id: str) -> str:
        note = self.notes[kind].get(id)
        if note is None:
            return ""
        if kind == "comments":
            self.read.add(id)
        author = f"{note.get(f'{_W}author')}: " if note.get(f"{_W}author") else ""
        return self.layout.refer(f"{author}{''.join(self._words(note))}")

    def _row(self, row: Any) -> Iterator[str]:
        for cell in row.iter(f"{_W}tc"):
            if next(cell.iterancestors(f"{_W}tr"), None) is row:  # past content controls
                blocks = (block for block in cell if block.tag != f"{_W}tbl")  # its rows come later, as rows of its own
                yield " ".join(" ".join("".join(self._words(block)).split()) for block in blocks).strip()
                span = cell.find(f"{_W}tcPr/{_W}gridSpan")
                yield from [""] * min(62, int(span.get(f"{_W}val") or 1) - 1 if span is not None else 0)

    def _drawings(self, block: Any) -> None:
        """The pictures, charts and diagrams in a block."""
        for drawing in block.iter(f"{A}blip", f"{_V}imagedata", f"{C}chart", f"{CX}chart", f"{DIAGRAM}relIds"):
            if not any(found.tag in _SKIPPED or self.hides(found) for found in drawing.iterancestors()):
                self.layout.attempt(_UNITS.get(drawing.tag, "picture"), partial(self._drawing, drawing))

    def _drawing(self, drawing: Any) -> None:
        if drawing.tag == f"{DIAGRAM}relIds":
            write_diagram(self.layout, self._related(drawing.get(f"{R}dm")))
        elif drawing.tag in _UNITS:
            write_chart(self.layout, self._related(drawing.get(f"{R}id")))
        else:
            self._picture(drawing)

    def _related(self, id: str) -> Any:
        return xml_root(self.main.related_parts[id].blob)

    def _picture(self, drawing: Any) -> None:
        part = self.main.related_parts.get(drawing.get(f"{R}embed") or drawing.get(f"{R}id") or "")
        if part is None or not getattr(part, "content_type", "").startswith("image/"):
            self.dropped["pictures"] += 1
            return
        image = Blob(f"{self.blob.uri}{part.partname}", part.blob)
        self.layout.images.setdefault(image.content_hash, image)
        mark, said = self.layout.mark(), _description(drawing)
        self.layout.write(said)
        self.layout.region("image", mark, image=image.content_hash, caption=said)
        self.layout.gap(BLANK_LINE)


def _all_text(block: Any) -> str:
    """Every text in a block that is not deleted, a line for each paragraph."""
    return "\n".join("".join(run.text or "" for run in one.iter(*_TEXT)) for one in block.iter(f"{_W}p"))


def _numbering(main: Any) -> Any:
    """The element of the part with the numbers of lists; None where the document has none."""
    parts = (relation for relation in main.rels.values() if relation.reltype.endswith("/numbering"))
    return next((xml_root(part.target_part.blob) for part in parts if not part.is_external), None)


def _description(drawing: Any) -> str:
    for above in drawing.iterancestors():
        if above.tag in (f"{_WP}inline", f"{_WP}anchor"):
            properties = above.find(f"{_WP}docPr")
            return " ".join((properties.get("descr") or "").split()) if properties is not None else ""
        if above.tag == f"{_V}shape":
            return " ".join((above.get("alt") or "").split())
    return ""


def _heading_levels(styles: Any) -> dict[str, int]:
    """Level of the headings that a paragraph style makes, by the style's id; what it inherits counts too."""
    found: dict[str, int] = {}
    for style in styles.findall(f"{_W}style"):
        id, label = style.get(f"{_W}styleId") or "", _value(style, "name").lower()
        level, based = style.find(f"{_W}pPr/{_W}outlineLvl"), _value(style, "basedOn")
        if label == "title":
            found[id] = 1
        elif label.startswith("heading ") and label[8:].isdecimal():
            found[id] = int(label[8:])
        elif level is not None:
            found[id] = int(level.get(f"{_W}val") or 0) + 1
        elif based in found:
            found[id] = found[based]
    return {id: level for id, level in found.items() if level <= 9}


def _value(element: Any, *path: str) -> str:
    """The value of a property; empty where it is not there."""
    found = element.find("/".join(f"{_W}{name}" for name in path))
    return (found.get(f"{_W}val") or "") if found is not None else ""


def _level(paragraph: Any, levels: dict[str, int]) -> int:
    """The level of the heading that a paragraph is; 0 if it is none."""
    own = _value(paragraph, "pPr", "outlineLvl")
    if own.isdecimal() and int(own) < 9:
        return int(own) + 1
    return levels.get(_value(paragraph, "pPr", "pStyle"), 0)


def _notes(main: Any, kind: str) -> dict[str, Any]:
    """Footnotes, endnotes or comments by id, without the lines that separate them from the text."""
    for relation in main.rels.values():
        if relation.reltype.endswith(f"/{kind}") and not relation.is_external:
            root = xml_root(relation.target_part.blob)
            choose(root)
            return {note.get(f"{_W}id") or "": note for note in root if note.get(f"{_W}type") is None}
    return {}


def _dropped(archive: zipfile.ZipFile, main: Any, comments: int) -> Counter[str]:
    found = Counter({"comments": comments})
    data = chart_data(archive)
    for part in main.package.iter_parts():
        name = str(part.partname)
        if name.endswith("/vbaProject.bin"):
            found["macros"] = 1
        elif "/header" in name or "/footer" in name:
            found["headers and footers"] += b"<w:t" in part.blob
        elif "/embeddings/" in name and name.lstrip("/") not in data:
            found["embedded objects"] += 1
    return found
