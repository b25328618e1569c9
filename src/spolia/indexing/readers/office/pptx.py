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
from spolia.indexing.readers.office.package import core_properties, hidden_warning, package_bytes, read_package
from spolia.indexing.readers.reader import Blob, Reading
from spolia.indexing.readers.unit_failures import UnitFailures
from spolia.types import Value

_P = "{http://schemas.openxmlformats.org/presentationml/2006/main}"
_FORMULAS = "{http://schemas.microsoft.com/office/drawing/2010/main}m"
# Each group within a group is a level of Python's stack.
_DEEPEST = 50


@dataclass(frozen=True)
class PptxReader(Value):
    """Reader of PPTX, also with macros, which are not run. A slide is a page, its title a heading.

    Shapes come in the order of the file, those of a group together. Tables, the values of charts and pictures are
    regions, the texts of SmartArt a list, formulas are LaTeX; the notes of a slide end its page, below the line
    `Notes:`. Hidden slides are pages without text, and a warning says how many there are. Comments, media, embedded
    objects and macros are counted as dropped.
    """

    name = "pptx"
    version = 5
    media_type = "application/vnd.openxmlformats-officedocument.presentationml.presentation"
    suffixes = (".pptx", ".pptm", ".ppsx", ".ppsm", ".potx")
    isolated = True

    def read(self, blob: Blob, /) -> Reading:
        require(pptx, f"Reading {blob.uri}")
        return read_package(blob, "PPTX", partial(self._read, blob))

    def _read(self, blob: Blob, archive: zipfile.ZipFile, failures: UnitFailures) -> Reading:
        writer = _PptxWriter(blob, failures)
        for slide in _slides(pptx.Presentation(package_bytes(archive))):
            writer.write_slide(slide)
        layout = writer.layout
        title, meta = failures.attempt("metadata part", lambda: core_properties(archive), ("", ()))
        if title in ("", "PowerPoint Presentation"):  # the title that PowerPoint gives by itself
            title = layout.headings[0].text if layout.headings else ""
        return layout.build_reading(
            self,
            blob,
            title=title,
            pages=writer.pages,
            meta=meta,
            empty_pages=writer.empty,
            dropped=writer.dropped + Counter(_count_dropped(archive)),
            warnings=hidden_warning(writer.hidden, "slide"),
        )


def _slides(presentation: Any) -> Iterator[Callable[[], Any]]:
    """Yield a loader of each slide, in order. `presentation.slides` fails if one of them is lost."""
    for slide_id in presentation.element.get_or_add_sldIdLst():
        yield partial(presentation.part.related_slide, slide_id.rId)


class _PptxWriter:
    def __init__(self, blob: Blob, failures: UnitFailures) -> None:
        self.blob = blob
        self.layout = Layout(failures)
        self.pages: list[int] = []
        self.empty: list[int] = []
        self.hidden = 0
        self.dropped: Counter[str] = Counter()

    def write_slide(self, load: Callable[[], Any]) -> None:
        layout, length = self.layout, len(self.layout)
        if (slide := layout.failures.attempt("slide", load, None)) is not None:
            if slide._element.get("show") in ("0", "false"):
                self.hidden += 1
                self.pages.append(length)  # so that those after it keep their numbers
                return
            layout.gap(BLANK_LINE)
            mark = layout.mark()
            layout.attempt("slide", lambda: self._write_content(slide), lambda: _all_text(slide))
            if len(layout) > length:
                self.pages.append(mark.start)
                return
        self.pages.append(length)
        self.empty.append(len(self.pages))

    def _write_content(self, slide: Any) -> None:
        resolve_alternatives(slide._element)
        title = slide.shapes.title
        if title is not None and title.has_text_frame:
            self._attempt(title, lambda: self.layout.write_heading(_frame_text(title.text_frame), 1))
        for shape in _flatten_shapes(slide.shapes, 0):
            if title is None or shape._element is not title._element:
                self._attempt(shape, partial(self._write_shape, shape))
        self.layout.attempt("note", lambda: self._write_notes(slide))

    def _attempt(self, shape: Any, write: Callable[[], object]) -> None:
        self.layout.attempt("shape", write, lambda: _all_text(shape))

    def _write_shape(self, shape: Any) -> None:
        graphic = shape._element.find(f"{A}graphic/{A}graphicData")
        if getattr(shape, "has_table", False) and shape.has_table:
            self.layout.write_table([_frame_text(cell.text_frame) for cell in row.cells] for row in shape.table.rows)
        elif graphic is not None and (chart := next(graphic.iterchildren(f"{C}chart", f"{CX}chart"), None)) is not None:
            write_chart(self.layout, _related_root(shape, chart.get(f"{R}id")))
        elif graphic is not None and (diagram := graphic.find(f"{DIAGRAM}relIds")) is not None:
            write_diagram(self.layout, _related_root(shape, diagram.get(f"{R}dm")))
        elif shape.has_text_frame:
            self._write_text(shape.text_frame)
        elif hasattr(type(shape), "image"):
            self._write_picture(shape)

    def _write_text(self, frame: Any) -> None:
        self.layout.gap(BLANK_LINE)
        for paragraph in frame.paragraphs:
            self.layout.gap(LINE)
            formula = self.layout.mark() if paragraph._p.find(f".//{M}oMathPara") is not None else None
            self.layout.write(_paragraph_text(paragraph._p))
            if formula:
                self.layout.add_region("formula", formula)
        self.layout.gap(BLANK_LINE)

    def _write_picture(self, shape: Any) -> None:
        """Write a picture and its description. A picture that is linked, lost or of no known format is counted."""
        description = next((properties.get("descr") or "" for properties in shape._element.iter(f"{_P}cNvPr")), "")
        image = self.layout.failures.attempt("picture", lambda: self._read_image(shape), None)
        if image is None:
            self.layout.write_paragraph(description)
        else:
            self.layout.write_picture(image, description)

    def _read_image(self, shape: Any) -> Blob:
        return Blob(f"{self.blob.uri}/ppt/media/{shape.shape_id}.{shape.image.ext}", shape.image.blob)

    def _write_notes(self, slide: Any) -> None:
        frame = slide.notes_slide.notes_text_frame if slide.has_notes_slide else None
        if frame is not None and _frame_text(frame).strip():
            self.layout.gap(BLANK_LINE)
            self.layout.write("Notes:")
            self._write_text(frame)


def _related_root(shape: Any, id: str) -> Any:
    """Return the root element of the part that a shape refers to."""
    return xml_root(shape.part.related_part(id).blob)


def _all_text(shape: Any) -> str:
    """Return every text in a shape or a slide, a line for each paragraph."""
    paragraphs = shape._element.iter(f"{A}p")
    return "\n".join("".join(run.text or "" for run in paragraph.iter(f"{A}t")) for paragraph in paragraphs).strip()


def _flatten_shapes(shapes: Any, depth: int) -> Iterator[Any]:
    """Yield the shapes of a slide, with a group's shapes in its place."""
    for shape in shapes:
        if hasattr(shape, "shapes") and depth < _DEEPEST:
            yield from _flatten_shapes(shape.shapes, depth + 1)
        elif not hasattr(shape, "shapes"):
            yield shape


def _frame_text(frame: Any) -> str:
    return "\n".join(_paragraph_text(paragraph._p) for paragraph in frame.paragraphs)


def _paragraph_text(element: Any) -> str:
    """Return the text of a paragraph, or of a part of it, with formulas as LaTeX."""
    words = []
    for child in element:
        if child.tag == f"{M}oMath":
            formula = to_latex(child)
            words.append(f"${formula}$" if formula else "")
        elif child.tag in (f"{A}r", f"{A}fld"):
            words.append(child.text)
        elif child.tag == f"{A}br":
            words.append("\n")
        elif child.tag == f"{M}oMathPara" or child.tag == _FORMULAS:
            words.append(_paragraph_text(child))
    return "".join(words)


def _count_dropped(archive: zipfile.ZipFile) -> dict[str, int]:
    names = archive.namelist()
    data = chart_data(archive)
    kinds = {
        "comments": lambda name: name.startswith("ppt/comments/"),
        "embedded objects": lambda name: "/embeddings/" in name and not name.endswith(".rels") and name not in data,
        "macros": lambda name: name.endswith("vbaProject.bin"),
        "media": lambda name: "/media/" in name and name.endswith((".mp4", ".mp3", ".wav", ".mov", ".m4a", ".wmv")),
    }
    return {kind: sum(map(matches, names)) for kind, matches in kinds.items()}
