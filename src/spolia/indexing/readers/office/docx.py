"""DOCX: paragraphs, headings, tables, pictures and notes in the order of the document.

python-docx opens the package and knows the styles. The text is walked here, because its own iterators leave out content
controls, text boxes and tracked insertions.
"""

import io
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from spolia.errors import installed
from spolia.indexing.readers.layout import BLANK_LINE, LINE, Layout
from spolia.indexing.readers.office.docx_visibility import Hiding
from spolia.indexing.readers.office.omml import latex
from spolia.indexing.readers.office.package import package, properties
from spolia.indexing.readers.reader import Blob, Reading
from spolia.types import Value

_W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_M = "{http://schemas.openxmlformats.org/officeDocument/2006/math}"
_MC = "{http://schemas.openxmlformats.org/markup-compatibility/2006}"
_A = "{http://schemas.openxmlformats.org/drawingml/2006/main}"
_R = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}"
_WP = "{http://schemas.openxmlformats.org/drawingml/2006/wordprocessingDrawing}"
_V = "{urn:schemas-microsoft-com:vml}"
_TEXT = frozenset([f"{_W}t", f"{_M}t"])
_SKIPPED = frozenset([f"{_W}del", f"{_W}moveFrom", f"{_MC}Fallback", f"{_W}instrText", f"{_W}delText"])
_AS_TEXT = {f"{_W}tab": " ", f"{_W}noBreakHyphen": "\u2011", f"{_W}cr": "\n", f"{_W}br": "\n"}
_NOTES = {
    f"{_W}footnoteReference": "footnotes", f"{_W}endnoteReference": "endnotes", f"{_W}commentReference": "comments",
}  # fmt: skip
_DROPPED = {"/embeddings/": "embedded objects", "/charts/chart": "charts", "/diagrams/data": "diagrams"}
_MAIN = "application/vnd.{}.main+xml"
_KINDS = (
    "ms-word.document.macroEnabled",
    "ms-word.template.macroEnabledTemplate",
    "openxmlformats-officedocument.wordprocessingml.template",
)


@dataclass(frozen=True)
class DocxReader(Value):
    """Reads DOCX, also with macros, which are not run, and templates.

    Tables and pictures are regions; footnotes, endnotes and comments, under their author's name, stand below the
    paragraph that refers to them. Headers, footers, embedded objects and macros are counted as dropped; hidden
    text, also by its style, and deletions that are tracked are left out.
    """

    name = "docx"
    version = 5
    media_type = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
    suffixes = (".docx", ".docm", ".dotx", ".dotm")
    apart = True

    def read(self, blob: Blob, /) -> Reading:
        with installed("office", "python-docx", f"Reading {blob.uri}"):
            import docx  # noqa: F401
        with package(blob, "DOCX", "word/") as archive:
            main = _main_part(blob)
            writing = _Writing(blob, main)
            writing.blocks(main.element.body)
            layout = writing.layout
            title, meta = properties(archive)
            dropped = _dropped(main, len(writing.notes["comments"].keys() - writing.read))
        return layout.reading(self, blob, title=title or layout.title, meta=meta, dropped=dropped)


def _main_part(blob: Blob) -> Any:
    from docx.opc.part import PartFactory
    from docx.package import Package
    from docx.parts.document import DocumentPart

    for kind in _KINDS:  # it reads templates and documents with macros once it knows their types
        PartFactory.part_type_for.setdefault(_MAIN.format(kind), DocumentPart)
    found = Package.open(io.BytesIO(blob.data)).main_document_part
    if not isinstance(found, DocumentPart):
        raise ValueError(f"its main part is of type {found.content_type}")
    return found


class _Writing:
    def __init__(self, blob: Blob, main: Any) -> None:
        self.blob, self.main = blob, main
        self.layout = Layout()
        self.levels = _heading_levels(main)
        self.hides = Hiding(main.styles.element)
        self.notes = {kind: _notes(main, kind) for kind in _NOTES.values()}
        self.read: set[str] = set()  # comments that something refers to, by id

    def blocks(self, container: Any) -> None:
        """The blocks of a body or a content control. The parser has rejected XML that is nested too deep."""
        for block in container:
            if block.tag == f"{_W}p":
                self._paragraph(block)
            elif block.tag == f"{_W}tbl":
                self.layout.table(list(self._row(row)) for row in block.iter(f"{_W}tr"))
                self._pictures(block)
                self.layout.write_notes()
            elif block.tag not in _SKIPPED and block.tag != f"{_W}sectPr":
                self.blocks(block)

    def _paragraph(self, paragraph: Any) -> None:
        level = _level(paragraph, self.levels)
        listed = paragraph.find(f"{_W}pPr/{_W}numPr") is not None and not level
        layout = self.layout
        layout.gap(LINE if listed else BLANK_LINE)
        if level:
            layout.open_heading()
        words = "".join(self._words(paragraph))
        if listed and words.strip():
            layout.write("- ", exactly=True)
        formula = layout.mark() if paragraph.find(f"{_M}oMathPara") is not None else None
        layout.write(words)
        if formula:
            layout.region("formula", formula)
        if level:
            layout.close_heading(level)
        layout.gap(LINE if listed else BLANK_LINE)
        self._pictures(paragraph)
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
            elif child.tag == f"{_M}oMath":
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

    def _pictures(self, block: Any) -> None:
        for drawing in block.iter(f"{_A}blip", f"{_V}imagedata"):
            if any(found.tag in _SKIPPED or self.hides(found) for found in drawing.iterancestors()):
                continue
            part = self.main.related_parts.get(drawing.get(f"{_R}embed") or drawing.get(f"{_R}id") or "")
            if part is None or not getattr(part, "content_type", "").startswith("image/"):
                continue
            image = Blob(f"{self.blob.uri}{part.partname}", part.blob)
            self.layout.images.setdefault(image.content_hash, image)
            mark, said = self.layout.mark(), _description(drawing)
            self.layout.write(said)
            self.layout.region("image", mark, image=image.content_hash, caption=said)
            self.layout.gap(BLANK_LINE)


def _description(drawing: Any) -> str:
    for above in drawing.iterancestors():
        if above.tag in (f"{_WP}inline", f"{_WP}anchor"):
            properties = above.find(f"{_WP}docPr")
            return " ".join((properties.get("descr") or "").split()) if properties is not None else ""
        if above.tag == f"{_V}shape":
            return " ".join((above.get("alt") or "").split())
    return ""


def _heading_levels(main: Any) -> dict[str, int]:
    """Level of the headings that a paragraph style makes, by the style's id; what it inherits counts too."""
    found: dict[str, int] = {}
    for style in main.styles.element.findall(f"{_W}style"):
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
    from docx.oxml import parse_xml

    for relation in main.rels.values():
        if relation.reltype.endswith(f"/{kind}") and not relation.is_external:
            root = parse_xml(relation.target_part.blob)
            return {note.get(f"{_W}id") or "": note for note in root if note.get(f"{_W}type") is None}
    return {}


def _dropped(main: Any, comments: int) -> Counter[str]:
    found = Counter({"comments": comments})
    for part in main.package.iter_parts():
        name = str(part.partname)
        if name.endswith("/vbaProject.bin"):
            found["macros"] = 1
        elif "/header" in name or "/footer" in name:
            found["headers and footers"] += b"<w:t" in part.blob
        else:
            found.update(what for where, what in _DROPPED.items() if where in name and not name.endswith(".rels"))
    return found
