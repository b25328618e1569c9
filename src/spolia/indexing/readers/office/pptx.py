"""PPTX: slides are pages; titles are headings; tables, charts, pictures and notes."""

import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from spolia.deferred import pptx
from spolia.errors import require
from spolia.indexing.readers.layout import BLANK_LINE, LINE, Layout
from spolia.indexing.readers.office.drawing_ml import CX, DIAGRAM, A, C, M, R, choose, write_chart, write_diagram
from spolia.indexing.readers.office.mending import xml_root
from spolia.indexing.readers.office.omml import latex
from spolia.indexing.readers.office.opc import chart_data
from spolia.indexing.readers.office.package import left_out, package_bytes, properties, read_package
from spolia.indexing.readers.reader import Blob, Reading
from spolia.indexing.readers.unit_failures import UnitFailures
from spolia.types import Value

_P = "{http://schemas.openxmlformats.org/presentationml/2006/main}"
_FORMULAS = "{http://schemas.microsoft.com/office/drawing/2010/main}m"
_DEEPEST = 50


@dataclass(frozen=True)
class PptxReader(Value):
    """Reads PPTX, also with macros, which are not run. A slide is a page, its title a heading.

    Shapes come in the order of the file, those of a group together. Tables, the values of charts and pictures are
    regions, the texts of SmartArt a list, formulas are LaTeX; the notes of a slide end its page, below the line
    `Notes:`. Hidden slides are pages without text, and a warning says how many there are. Comments, media, embedded
    objects and macros are counted as dropped.
    """

    name = "pptx"
    version = 5
    media_type = "application/vnd.openxmlformats-officedocument.presentationml.presentation"
    suffixes = (".pptx", ".pptm", ".ppsx", ".ppsm", ".potx")
    apart = True

    def read(self, blob: Blob, /) -> Reading:
        require(pptx, f"Reading {blob.uri}")
        return read_package(blob, "PPTX", partial(self._read, blob))

    def _read(self, blob: Blob, archive: zipfile.ZipFile, failures: UnitFailures) -> Reading:
        writing = _Writing(blob, failures)
        for slide in _slides(pptx.Presentation(package_bytes(archive))):
            writing.slide(slide)
        layout = writing.layout
        title, meta = failures.attempt("metadata part", lambda: properties(archive), ("", ()))
        if title in ("", "PowerPoint Presentation"):
            title = layout.headings[0].text if layout.headings else ""
        return layout.reading(
            self,
            blob,
            title=title,
            pages=writing.pages,
            meta=meta,
            empty_pages=writing.empty,
            dropped=writing.dropped + Counter(_dropped(archive)),
            warnings=left_out(writing.hidden, "slide"),
        )


def _slides(presentation: Any) -> Iterator[Callable[[], Any]]:
    """The slides in their order, each loaded when it is called. `presentation.slides` fails if one of them is lost."""
    for listed in presentation.element.get_or_add_sldIdLst():
        yield partial(presentation.part.related_slide, listed.rId)


class _Writing:
    def __init__(self, blob: Blob, failures: UnitFailures) -> None:
        self.blob = blob
        self.layout = Layout(failures)
        self.pages: list[int] = []
        self.empty: list[int] = []
        self.hidden = 0
        self.dropped: Counter[str] = Counter()

    def slide(self, load: Callable[[], Any]) -> None:
        layout, before = self.layout, len(self.layout)
        if (slide := layout.failures.attempt("slide", load, None)) is not None:
            if slide._element.get("show") in ("0", "false"):
                self.hidden += 1
                self.pages.append(before)  # so that those after it keep their numbers
                return
            layout.gap(BLANK_LINE)
            mark = layout.mark()
            layout.attempt("slide", lambda: self._content(slide), lambda: _all_text(slide))
            if len(layout) > before:
                self.pages.append(mark.start)
                return
        self.pages.append(before)
        self.empty.append(len(self.pages))

    def _content(self, slide: Any) -> None:
        choose(slide._element)
        title = slide.shapes.title
        if title is not None and title.has_text_frame:
            self._attempt(title, lambda: self.layout.heading(_text(title.text_frame), 1))
        for shape in _flat(slide.shapes, 0):
            if title is None or shape._element is not title._element:
                self._attempt(shape, partial(self._shape, shape))
        self.layout.attempt("note", lambda: self._notes(slide))

    def _attempt(self, shape: Any, write: Callable[[], object]) -> None:
        self.layout.attempt("shape", write, lambda: _all_text(shape))

    def _shape(self, shape: Any) -> None:
        graphic = shape._element.find(f"{A}graphic/{A}graphicData")
        if getattr(shape, "has_table", False) and shape.has_table:
            self.layout.table([_text(cell.text_frame) for cell in row.cells] for row in shape.table.rows)
        elif graphic is not None and (chart := next(graphic.iterchildren(f"{C}chart", f"{CX}chart"), None)) is not None:
            write_chart(self.layout, _related(shape, chart.get(f"{R}id")))
        elif graphic is not None and (diagram := graphic.find(f"{DIAGRAM}relIds")) is not None:
            write_diagram(self.layout, _related(shape, diagram.get(f"{R}dm")))
        elif shape.has_text_frame:
            self._text(shape.text_frame)
        elif hasattr(type(shape), "image"):
            self._picture(shape)

    def _text(self, frame: Any) -> None:
        self.layout.gap(BLANK_LINE)
        for paragraph in frame.paragraphs:
            self.layout.gap(LINE)
            formula = self.layout.mark() if paragraph._p.find(f".//{M}oMathPara") is not None else None
            self.layout.write(_words(paragraph._p))
            if formula:
                self.layout.region("formula", formula)
        self.layout.gap(BLANK_LINE)

    def _picture(self, shape: Any) -> None:
        """A picture and its description; one that is linked, lost or has no known format is counted."""
        said = next((found.get("descr") or "" for found in shape._element.iter(f"{_P}cNvPr")), "")
        image = self.layout.failures.attempt("picture", lambda: self._image(shape), None)
        if image is None:
            self.layout.paragraph(said)
        else:
            self.layout.picture(image, said)

    def _image(self, shape: Any) -> Blob:
        return Blob(f"{self.blob.uri}/ppt/media/{shape.shape_id}.{shape.image.ext}", shape.image.blob)

    def _notes(self, slide: Any) -> None:
        frame = slide.notes_slide.notes_text_frame if slide.has_notes_slide else None
        if frame is not None and _text(frame).strip():
            self.layout.gap(BLANK_LINE)
            self.layout.write("Notes:")
            self._text(frame)


def _related(shape: Any, id: str) -> Any:
    """The root element of the part that a shape refers to."""
    return xml_root(shape.part.related_part(id).blob)


def _all_text(shape: Any) -> str:
    """Every text that is in a shape or a slide, a line for each paragraph."""
    paragraphs = shape._element.iter(f"{A}p")
    return "\n".join("".join(run.text or "" for run in paragraph.iter(f"{A}t")) for paragraph in paragraphs).strip()


def _flat(shapes: Any, depth: int) -> Iterator[Any]:
    """The shapes of a slide; those of a group in its place."""
    for shape in shapes:
        if hasattr(shape, "shapes") and depth < _DEEPEST:
            yield from _flat(shape.shapes, depth + 1)
        elif not hasattr(shape, "shapes"):
            yield shape


def _text(frame: Any) -> str:
    return "\n".join(_words(paragraph._p) for paragraph in frame.paragraphs)


def _words(element: Any) -> str:
    """The text of a paragraph, or of what is in it, with formulas as LaTeX."""
    words = []
    for child in element:
        if child.tag == f"{M}oMath":
            formula = latex(child)
            words.append(f"${formula}$" if formula else "")
        elif child.tag in (f"{A}r", f"{A}fld"):
            words.append(child.text)
        elif child.tag == f"{A}br":
            words.append("\n")
        elif child.tag == f"{M}oMathPara" or child.tag == _FORMULAS:
            words.append(_words(child))
    return "".join(words)


def _dropped(archive: zipfile.ZipFile) -> dict[str, int]:
    names = archive.namelist()
    data = chart_data(archive)
    kinds = {
        "comments": lambda name: name.startswith("ppt/comments/"),
        "embedded objects": lambda name: "/embeddings/" in name and not name.endswith(".rels") and name not in data,
        "macros": lambda name: name.endswith("vbaProject.bin"),
        "media": lambda name: "/media/" in name and name.endswith((".mp4", ".mp3", ".wav", ".mov", ".m4a", ".wmv")),
    }
    return {kind: sum(map(is_one, names)) for kind, is_one in kinds.items()}
