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


def resolve_alternatives(root: Any) -> None:
    """Replace each `AlternateContent` by its first alternative with something to read. Word and PowerPoint write what
    is new together with what older programs show instead."""
    for alternate in [*root.iter(ALTERNATE)]:  # a list: the tree changes below
        parent = alternate.getparent()
        if parent is None:
            continue
        alternatives = [branch for branch in alternate if branch.tag in (f"{_COMPATIBILITY}Choice", FALLBACK)]
        readable_branch = next(
            (branch for branch in alternatives if next(branch.iter(*_READABLE), None) is not None), None
        )
        for element in [*(readable_branch if readable_branch is not None else ())]:
            alternate.addprevious(element)
        if alternate.tail and alternate.tail.strip():
            _append_text(alternate, alternate.tail)
        parent.remove(alternate)


def _append_text(element: Any, text: str) -> None:
    previous = element.getprevious()
    if previous is not None:
        previous.tail = (previous.tail or "") + text
    else:
        element.getparent().text = (element.getparent().text or "") + text


class _Series(NamedTuple):
    """Series of a chart: its name, and by index its labels and values. A bubble's or a stock's values are joined."""

    name: str
    labels: dict[int, str]
    values: dict[int, str]


def write_chart(layout: Layout, chart: Any) -> None:
    """Write the title of a chart and the values that were saved with it, a table for each of its plots."""
    title = next(chart.iter(f"{C}title", f"{CX}title"), None)
    text_elements = (
        title.iter(f"{A}t", f"{C}v", f"{CX}v") if title is not None and title.getparent().tag in _WHOLE else ()
    )
    words = " ".join("".join(element.text or "" for element in text_elements).split())
    layout.gap(BLANK_LINE)
    layout.write(words)
    for data in chart.iter(f"{CX}data"):
        columns = [[point.text or "" for point in level.iter(f"{CX}pt")] for level in data.iter(f"{CX}lvl")]
        layout.write_table(zip_longest(*columns, fillvalue=""), caption=words)
    plots = chart.find(f"{C}chart/{C}plotArea")
    for plot in plots if plots is not None else ():
        if series := [_read_series(element) for element in plot.findall(f"{C}ser")]:
            layout.write_table(_chart_rows(series), caption=words)


def _chart_rows(series: Sequence[_Series]) -> Iterator[list[str]]:
    labels = next((item.labels for item in series if item.labels), {})
    yield ["", *(item.name for item in series)]
    for index in sorted(set(labels).union(*(item.values for item in series))):
        yield [labels.get(index, ""), *(item.values.get(index, "") for item in series)]


def _read_series(element: Any) -> _Series:
    name = element.find(f"{C}tx")
    points = [_read_points(element.find(f"{C}{part}")) for part in ("val", "yVal", "bubbleSize")]
    labels = _read_points(element.find(f"{C}cat")) or _read_points(element.find(f"{C}xVal"))
    values: dict[int, str] = {}
    for point_values in points:
        for index, value in point_values.items():
            values[index] = f"{values[index]} ({value})" if index in values else value
    return _Series(" ".join(_read_points(name).values()) if name is not None else "", labels, values)


def _read_points(element: Any) -> dict[int, str]:
    """Return the values that a reference had when the file was saved, by index. Labels of several levels are joined."""
    if element is None:
        return {}
    values: dict[int, str] = {}
    for level in reversed([*element.iter(f"{C}lvl")]) if element.find(f".//{C}lvl") is not None else (element,):
        for point in level.iter(f"{C}pt"):
            index = int(point.get("idx") or 0)
            value = _round_number(point.findtext(f"{C}v") or "")
            if len(values) < _MOST_POINTS:
                values[index] = f"{values[index]} {value}" if index in values else value
    value = element.findtext(f"{C}v")
    return values or ({0: value} if value else {})


def _round_number(text: str) -> str:
    try:
        # Excel shows 15 digits; further ones come from binary fractions.
        return f"{float(text):.15g}" if len(text) > 15 or "." in text else text
    except ValueError:
        return text


def write_diagram(layout: Layout, data: Any) -> None:
    """Write the texts of a SmartArt diagram, a line each, those of a point below it."""
    texts = {
        point.get("modelId"): " ".join("".join(run.text or "" for run in point.iter(f"{A}t")).split())
        for point in data.iter(f"{DIAGRAM}pt")
    }
    children: dict[str, list[tuple[int, str]]] = {}
    for link in data.iter(f"{DIAGRAM}cxn"):
        if (link.get("type") or "parOf") == "parOf":
            order = int(link.get("srcOrd") or 0)
            children.setdefault(link.get("srcId"), []).append((order, link.get("destId")))
    targets = {target for links in children.values() for _, target in links}
    todo, visited = [point_id for point_id in reversed([*texts]) if point_id not in targets], set[str]()
    layout.gap(BLANK_LINE)
    while todo:
        id = todo.pop()
        # Links of a damaged file may form a circle.
        if id in visited:
            continue
        visited.add(id)
        if words := texts.get(id):
            layout.gap(LINE)
            layout.write(f"- {words}")
        # A stack: the first one comes off first.
        todo += [target for _, target in sorted(children.get(id, ()), reverse=True)]
    layout.gap(BLANK_LINE)
