"""DrawingML that Office programs share: charts of every kind, SmartArt, and content with an alternative.

ECMA-376-1, 21.2 (charts), 21.4 (diagrams); ECMA-376-3 (markup compatibility).
"""

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Any, NamedTuple

from spolia.indexing.readers.layout import BLANK_LINE, LINE, Layout

A = "{http://schemas.openxmlformats.org/drawingml/2006/main}"
M = "{http://schemas.openxmlformats.org/officeDocument/2006/math}"
R = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}"
C = "{http://schemas.openxmlformats.org/drawingml/2006/chart}"
DIAGRAM = "{http://schemas.openxmlformats.org/drawingml/2006/diagram}"
CX = "{http://schemas.microsoft.com/office/drawing/2014/chartex}"
"""Charts since Office 2016: waterfalls, funnels, tree maps, box plots."""
_COMPATIBILITY = "{http://schemas.openxmlformats.org/markup-compatibility/2006}"
ALTERNATE, FALLBACK = f"{_COMPATIBILITY}AlternateContent", f"{_COMPATIBILITY}Fallback"
_W_TEXT = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}t"
_V_IMAGE = "{urn:schemas-microsoft-com:vml}imagedata"
_READABLE = (f"{A}t", _W_TEXT, f"{M}oMath", f"{A}blip", f"{C}chart", f"{CX}chart", f"{DIAGRAM}relIds", _V_IMAGE)
_WHOLE = (f"{C}chart", f"{CX}chart")
_MOST_POINTS = 1_000_000


def choose(root: Any) -> None:
    """Put one of its alternatives in the place of each `AlternateContent`: the first in which there is something to
    read. Word and PowerPoint write what is new, and what older programs show instead of it."""
    for both in [*root.iter(ALTERNATE)]:
        above = both.getparent()
        if above is None:
            continue
        alternatives = [one for one in both if one.tag in (f"{_COMPATIBILITY}Choice", FALLBACK)]
        chosen = next((one for one in alternatives if next(one.iter(*_READABLE), None) is not None), None)
        for element in [*(chosen if chosen is not None else ())]:
            both.addprevious(element)
        if both.tail and both.tail.strip():
            _append_text(both, both.tail)
        above.remove(both)


def _append_text(element: Any, text: str) -> None:
    before = element.getprevious()
    if before is not None:
        before.tail = (before.tail or "") + text
    else:
        element.getparent().text = (element.getparent().text or "") + text


class _Series(NamedTuple):
    """A series of a chart: its name, and by index its labels and its values, those of a bubble or a stock together."""

    name: str
    labels: dict[int, str]
    values: dict[int, str]


def write_chart(layout: Layout, chart: Any) -> None:
    """Write the title of a chart and the values that were saved with it, a table for each of its plots."""
    title = next(chart.iter(f"{C}title", f"{CX}title"), None)
    named = title.iter(f"{A}t", f"{C}v", f"{CX}v") if title is not None and title.getparent().tag in _WHOLE else ()
    words = " ".join("".join(one.text or "" for one in named).split())
    layout.gap(BLANK_LINE)
    layout.write(words)
    for data in chart.iter(f"{CX}data"):
        columns = [[point.text or "" for point in level.iter(f"{CX}pt")] for level in data.iter(f"{CX}lvl")]
        layout.table(zip_longest(*columns, fillvalue=""), caption=words)
    plots = chart.find(f"{C}chart/{C}plotArea")
    for plot in plots if plots is not None else ():
        if series := [_series(one) for one in plot.findall(f"{C}ser")]:
            layout.table(_rows(series), caption=words)


def _rows(series: Sequence[_Series]) -> Iterator[list[str]]:
    labels = next((one.labels for one in series if one.labels), {})
    yield ["", *(one.name for one in series)]
    for index in sorted(set(labels).union(*(one.values for one in series))):
        yield [labels.get(index, ""), *(one.values.get(index, "") for one in series)]


def _series(element: Any) -> _Series:
    name = element.find(f"{C}tx")
    points = [_points(element.find(f"{C}{part}")) for part in ("val", "yVal", "bubbleSize")]
    labels = _points(element.find(f"{C}cat")) or _points(element.find(f"{C}xVal"))
    values: dict[int, str] = {}
    for found in points:
        for index, value in found.items():
            values[index] = f"{values[index]} ({value})" if index in values else value
    return _Series(" ".join(_points(name).values()) if name is not None else "", labels, values)


def _points(element: Any) -> dict[int, str]:
    """The values that a reference had when the file was saved, by index; labels of several levels are joined."""
    if element is None:
        return {}
    found: dict[int, str] = {}
    for level in reversed([*element.iter(f"{C}lvl")]) if element.find(f".//{C}lvl") is not None else (element,):
        for point in level.iter(f"{C}pt"):
            index = int(point.get("idx") or 0)
            value = _number(point.findtext(f"{C}v") or "")
            if len(found) < _MOST_POINTS:
                found[index] = f"{found[index]} {value}" if index in found else value
    value = element.findtext(f"{C}v")
    return found or ({0: value} if value else {})


def _number(text: str) -> str:
    try:
        return f"{float(text):.15g}" if len(text) > 15 or "." in text else text
    except ValueError:
        return text


def write_diagram(layout: Layout, data: Any) -> None:
    """Write the texts of a SmartArt diagram, a line each, those of a point below it."""
    texts = {
        point.get("modelId"): " ".join("".join(one.text or "" for one in point.iter(f"{A}t")).split())
        for point in data.iter(f"{DIAGRAM}pt")
    }
    below: dict[str, list[tuple[int, str]]] = {}
    for link in data.iter(f"{DIAGRAM}cxn"):
        if (link.get("type") or "parOf") == "parOf":
            order = int(link.get("srcOrd") or 0)
            below.setdefault(link.get("srcId"), []).append((order, link.get("destId")))
    targets = {target for links in below.values() for _, target in links}
    todo, seen = [one for one in reversed([*texts]) if one not in targets], set[str]()
    layout.gap(BLANK_LINE)
    while todo:
        id = todo.pop()
        if id in seen:
            continue
        seen.add(id)
        if words := texts.get(id):
            layout.gap(LINE)
            layout.write(f"- {words}")
        todo += [target for _, target in sorted(below.get(id, ()), reverse=True)]
    layout.gap(BLANK_LINE)
