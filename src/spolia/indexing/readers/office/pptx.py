"""PPTX: slides are pages; titles are headings; tables, charts, pictures and notes."""

import io
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from spolia.errors import installed
from spolia.indexing.readers.layout import BLANK_LINE, LINE, Layout
from spolia.indexing.readers.office.omml import latex
from spolia.indexing.readers.office.package import left_out, package, properties
from spolia.indexing.readers.reader import Blob, Reading
from spolia.types import Value

_P = "{http://schemas.openxmlformats.org/presentationml/2006/main}"
_A = "{http://schemas.openxmlformats.org/drawingml/2006/main}"
_M = "{http://schemas.openxmlformats.org/officeDocument/2006/math}"
_COMPATIBILITY = "{http://schemas.openxmlformats.org/markup-compatibility/2006}"
_FORMULAS = "{http://schemas.microsoft.com/office/drawing/2010/main}m"
_DEEPEST = 50


@dataclass(frozen=True)
class PptxReader(Value):
    """Reads PPTX, also with macros, which are not run. A slide is a page, its title a heading.

    Shapes come in the order of the file, those of a group together. Tables, the values of charts and pictures are
    regions, formulas are LaTeX; the notes of a slide end its page, below the line `Notes:`. Hidden slides are pages
    without text, and a warning says how many there are. Comments, media, embedded objects and macros are counted as
    dropped.
    """

    name = "pptx"
    version = 3
    media_type = "application/vnd.openxmlformats-officedocument.presentationml.presentation"
    suffixes = (".pptx", ".pptm", ".ppsx", ".ppsm", ".potx")
    apart = True

    def read(self, blob: Blob, /) -> Reading:
        with installed("office", "python-pptx", f"Reading {blob.uri}"):
            import pptx
        with package(blob, "PPTX", "ppt/") as archive:
            slides = pptx.Presentation(io.BytesIO(blob.data))
            writing = _Writing(blob)
            for slide in slides.slides:
                writing.slide(slide)
            layout = writing.layout
            title, meta = properties(archive)
            dropped = _dropped(archive.namelist())
        if title in ("", "PowerPoint Presentation"):
            title = layout.headings[0].text if layout.headings else ""
        return layout.reading(
            self,
            blob,
            title=title,
            pages=writing.pages,
            meta=meta,
            empty_pages=writing.empty,
            dropped=dropped,
            warnings=left_out(writing.hidden, "slide"),
        )


class _Writing:
    def __init__(self, blob: Blob) -> None:
        self.blob = blob
        self.layout = Layout()
        self.pages: list[int] = []
        self.empty: list[int] = []
        self.hidden = 0

    def slide(self, slide: Any) -> None:
        layout, before = self.layout, len(self.layout)
        if slide._element.get("show") in ("0", "false"):
            self.hidden += 1
            self.pages.append(before)  # so that those after it keep their numbers
            return
        _choose_formulas(slide._element)
        layout.gap(BLANK_LINE)
        mark = layout.mark()
        title = slide.shapes.title
        if title is not None and title.has_text_frame:
            layout.heading(_text(title.text_frame), 1)
        for shape in _flat(slide.shapes, 0):
            if title is None or shape.shape_id != title.shape_id:
                self._shape(shape)
        self._notes(slide)
        self.pages.append(mark.start if len(layout) > before else before)
        if len(layout) == before:
            self.empty.append(len(self.pages))

    def _shape(self, shape: Any) -> None:
        if getattr(shape, "has_table", False) and shape.has_table:
            self.layout.table([_text(cell.text_frame) for cell in row.cells] for row in shape.table.rows)
        elif getattr(shape, "has_chart", False) and shape.has_chart:
            self._chart(shape.chart)
        elif shape.has_text_frame:
            self._text(shape.text_frame)
        elif (image := _image(shape)) is not None:
            self._picture(shape, image)

    def _text(self, frame: Any) -> None:
        self.layout.gap(BLANK_LINE)
        for paragraph in frame.paragraphs:
            self.layout.gap(LINE)
            formula = self.layout.mark() if paragraph._p.find(f".//{_M}oMathPara") is not None else None
            self.layout.write(_words(paragraph._p))
            if formula:
                self.layout.region("formula", formula)
        self.layout.gap(BLANK_LINE)

    def _chart(self, chart: Any) -> None:
        title = chart.chart_title.text_frame.text if chart.has_title and chart.chart_title.has_text_frame else ""
        self.layout.gap(BLANK_LINE)
        self.layout.write(title)
        for plot in chart.plots:
            series = list(plot.series)
            head = ["", *(one.name or "" for one in series)]
            labels = [str(category) for category in plot.categories]
            values = [[*one.values] for one in series]
            longest = max([len(labels), *map(len, values)], default=0)
            rows = [
                [labels[at] if at < len(labels) else "", *(_number(row[at]) if at < len(row) else "" for row in values)]
                for at in range(longest)
            ]
            self.layout.table([head, *rows], caption=title)

    def _picture(self, shape: Any, image: Any) -> None:
        blob = Blob(f"{self.blob.uri}/ppt/media/{shape.shape_id}.{image.ext}", image.blob)
        said = next((found.get("descr") or "" for found in shape._element.iter(f"{_P}cNvPr")), "")
        self.layout.picture(blob, said)

    def _notes(self, slide: Any) -> None:
        frame = slide.notes_slide.notes_text_frame if slide.has_notes_slide else None
        if frame is not None and _text(frame).strip():
            self.layout.gap(BLANK_LINE)
            self.layout.write("Notes:")
            self._text(frame)


def _flat(shapes: Any, depth: int) -> Iterator[Any]:
    """The shapes of a slide; those of a group in its place."""
    for shape in shapes:
        if hasattr(shape, "shapes") and depth < _DEEPEST:
            yield from _flat(shape.shapes, depth + 1)
        elif not hasattr(shape, "shapes"):
            yield shape


def _choose_formulas(slide: Any) -> None:
    """Put what has a formula in the place of the two that PowerPoint writes: it, and a picture for older programs."""
    for both in [*slide.iter(f"{_COMPATIBILITY}AlternateContent")]:
        choice = both.find(f"{_COMPATIBILITY}Choice")
        if choice is not None and next(choice.iter(f"{_M}oMath"), None) is not None:
            for element in [*choice]:
                both.addprevious(element)
            both.getparent().remove(both)


def _text(frame: Any) -> str:
    return "\n".join(_words(paragraph._p) for paragraph in frame.paragraphs)


def _words(element: Any) -> str:
    """The text of a paragraph, or of what is in it, with formulas as LaTeX."""
    words = []
    for child in element:
        if child.tag == f"{_M}oMath":
            formula = latex(child)
            words.append(f"${formula}$" if formula else "")
        elif child.tag in (f"{_A}r", f"{_A}fld"):
            words.append(child.text)
        elif child.tag == f"{_A}br":
            words.append("\n")
        elif child.tag == f"{_M}oMathPara" or child.tag == _FORMULAS:
            words.append(_words(child))
    return "".join(words)


def _image(shape: Any) -> Any:
    try:
        return getattr(shape, "image", None)
    except (ValueError, KeyError, AttributeError, OSError):  # linked, lost or of no known format
        return None


def _number(value: object) -> str:
    return "" if value is None else f"{value:.15g}" if isinstance(value, float) else str(value)


def _dropped(names: list[str]) -> dict[str, int]:
    kinds = {
        "comments": lambda name: name.startswith("ppt/comments/"),
        "embedded objects": lambda name: "/embeddings/" in name and not name.endswith((".rels", ".xlsx")),
        "macros": lambda name: name.endswith("vbaProject.bin"),
        "media": lambda name: "/media/" in name and name.endswith((".mp4", ".mp3", ".wav", ".mov", ".m4a", ".wmv")),
    }
    return {kind: sum(map(is_one, names)) for kind, is_one in kinds.items()}
