"""SVG picture of a flow: the graph of `draw`, with the steps of a chain in a column and arms side by side."""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from typing import Any, TypeAlias

from spolia.core.draw import DrawnBlock, draw_graph
from spolia.core.operator import Operator

LETTER, LINE, PAD, GAP, ARM_GAP, FRAME = 7.0, 17.0, 11.0, 34.0, 26.0, 16.0
"""Pixels: of a letter's mean width, of a line, around texts, between steps, between arms, inside frames."""
WIDEST = 44
"""Letters of a line."""
STYLE = """
.flow { background: #fff; } .flow text { font: 13px system-ui, sans-serif; fill: #222; }
.flow .edge { fill: none; stroke: #666; stroke-width: 1.3; } .flow .again { stroke-dasharray: 4 3; }
.flow .label { font-size: 11px; fill: #555; } .flow .title { font-size: 12px; fill: #555; }
.flow .step { fill: #eef3f7; stroke: #2f6690; } .flow .choice { fill: #f7f1e6; stroke: #a8892c; }
.flow .end { fill: #f2f2f0; stroke: #666; } .flow .frame { fill: none; stroke: #999; stroke-dasharray: 2 2; }
"""
"""Each rule names the class of the picture, so that it changes nothing else of a page that shows it."""
KINDS = {"([": ("end", 16.0), "{": ("choice", 3.0), "{{": ("choice", 3.0), "((": ("end", 14.0)}
"""How nodes are drawn, by their shape in Mermaid: the class and the radius of the corners."""
Place: TypeAlias = tuple[float, float, float, float]
"""Left, top, width and height."""


def svg(flow: Operator[Any, Any]) -> str:
    """Return the flow as an SVG picture, which is text and needs nothing else.

    >>> from spolia.core.combinators import Identity, Samples
    >>> picture = svg(Identity() >> Samples(2))
    >>> picture[:4], "Samples(n=2)" in picture
    ('<svg', True)
    """
    drawing = draw_graph(flow)
    lines = {name: _wrap_label(label) for name, (label, _) in drawing.nodes.items()}
    sizes = {name: _measure_text(label_lines) for name, label_lines in lines.items()}
    places: dict[str, Place] = {}
    frames: list[tuple[Place, str]] = []
    width, height = _measure_block(drawing.root, sizes)
    _place_block(drawing.root, 10.0, 10.0, width, sizes, lambda name, place: places.update({name: place}), frames)
    parts = [
        f'<svg class="flow" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width + 20:.0f} {height + 20:.0f}" '
        f'width="{width + 20:.0f}" height="{height + 20:.0f}" role="img">',
        f"<title>{escape(type(flow).__name__)}</title><style>{STYLE}</style>",
        '<defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0 8 4 0 8z" fill="#666"/></marker></defs>',
    ]
    for (left, top, wide, high), title in frames:
        parts.append(
            f'<rect class="frame" x="{left:.1f}" y="{top:.1f}" width="{wide:.1f}" height="{high:.1f}" rx="8"/>'
        )
        parts.append(f'<text class="title" x="{left + 8:.1f}" y="{top + 15:.1f}">{_escape_text(title)}</text>')
    parts += [
        _draw_edge(places[start], places[end], label, dotted, frames) for start, end, label, dotted in drawing.edges
    ]
    parts += [_draw_node(places[name], lines[name], shape) for name, (_, shape) in drawing.nodes.items()]
    return "\n".join((*parts, "</svg>"))


def _escape_text(text: str) -> str:
    return escape("".join(c if c.isprintable() else " " for c in text))


def _wrap_label(label: str) -> list[str]:
    """Break a label into lines, after commas and blanks where possible."""
    lines, rest = [], label
    while len(rest) > WIDEST:
        cut = max(rest.rfind(mark, 8, WIDEST - 1) + 1 for mark in " ,(")
        cut = cut if cut > 8 else WIDEST
        lines.append(rest[:cut].rstrip())
        rest = rest[cut:].lstrip()
    return [*lines, rest]


def _measure_text(lines: list[str]) -> tuple[float, float]:
    # from there on letters are twice as wide (CJK)
    longest = max(sum(2 if ord(c) > 0x2E80 else 1 for c in line) for line in lines)
    return max(24.0, longest * LETTER + 2 * PAD), len(lines) * LINE + PAD


def _measure_block(block: DrawnBlock, sizes: dict[str, tuple[float, float]]) -> tuple[float, float]:
    """Return width and height of a block."""
    inner = [sizes[part] if isinstance(part, str) else _measure_block(part, sizes) for part in block.parts]
    widths, heights = [w for w, _ in inner] or [0.0], [h for _, h in inner] or [0.0]
    if block.aside and widths[-1]:
        return sum(widths) + ARM_GAP, sum(heights) + GAP
    if block.aside:
        return widths[0], heights[0]
    if block.row:
        return sum(widths) + ARM_GAP * (len(widths) - 1), max(heights)
    width, height = max(widths), sum(heights) + GAP * (len(heights) - 1)
    if block.title is None:
        return width, height
    return max(width, _measure_text([block.title])[0]) + 4 * FRAME, height + 3 * FRAME


def _place_block(
    block: DrawnBlock,
    left: float,
    top: float,
    width: float,
    sizes: dict[str, tuple[float, float]],
    place_node: Callable[[str, Place], None],
    frames: list[tuple[Place, str]],
) -> None:
    """Place the parts of a block in the middle of `width`."""
    wide, high = _measure_block(block, sizes)
    left += (width - wide) / 2
    if block.title is not None:
        frames.append(((left, top, wide, high), block.title))
        top += 2 * FRAME
    for part in block.parts:
        w, h = sizes[part] if isinstance(part, str) else _measure_block(part, sizes)
        room = w if block.row or block.aside else wide
        if isinstance(part, str):
            place_node(part, (left + (room - w) / 2, top, w, h))
        else:
            _place_block(part, left, top, room, sizes, place_node, frames)
        left += w + ARM_GAP if block.row or block.aside else 0.0
        top += h + GAP if not block.row else 0.0


def _draw_node(place: Place, lines: list[str], shape: str) -> str:
    left, top, width, _ = place
    kind, corner = KINDS.get(shape, ("step", 5.0))
    box = f'<rect class="{kind}" {_box(place)} rx="{corner:.0f}"/>'
    middle = f'x="{left + width / 2:.1f}" text-anchor="middle"'
    texts = [
        f'<text {middle} y="{top + PAD / 2 + LINE * (n + 0.75):.1f}">{_escape_text(line)}</text>'
        for n, line in enumerate(lines)
        if line.strip()
    ]
    return "".join((box, *texts))


def _box(place: Place) -> str:
    return 'x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}"'.format(*place)


def _draw_edge(start: Place, end: Place, label: str, dotted: bool, frames: list[tuple[Place, str]]) -> str:
    """Draw an edge from the bottom of one box to the top of another; an edge back runs at the right side."""
    x, y = start[0] + start[2] / 2, start[1] + start[3]
    to_x, to_y = end[0] + end[2] / 2, end[1]
    if to_y <= y:  # back to the beginning of a loop, at the right side of its frame
        enclosing = [frame for frame, _ in frames if all(_is_inside(it, frame) for it in (start, end))]
        side = (
            min((frame[0] + frame[2] for frame in enclosing), default=max(start[0] + start[2], end[0] + end[2]))
            - FRAME / 2
        )
        y, to_y = start[1] + start[3] / 2, end[1] + end[3] / 2
        path = f"M{start[0] + start[2]:.1f} {y:.1f}H{side:.1f}V{to_y:.1f}H{end[0] + end[2]:.1f}"
        at_x, at_y = side - 5 * LETTER, to_y - 5
    else:
        turn = max(y, to_y - GAP)
        bend = (turn + to_y) / 2
        path = f"M{x:.1f} {y:.1f}V{turn:.1f}C{x:.1f} {bend:.1f} {to_x:.1f} {bend:.1f} {to_x:.1f} {to_y:.1f}"
        at_x, at_y = (x + to_x) / 2, bend
    label_element = (
        f'<text class="label" x="{at_x + 4:.1f}" y="{at_y:.1f}">{_escape_text(label)}</text>' if label else ""
    )
    return f'<path class="edge{" again" if dotted else ""}" d="{path}" marker-end="url(#arrow)"/>{label_element}'


def _is_inside(inner: Place, outer: Place) -> bool:
    left, top, wide, high = outer
    return left <= inner[0] <= left + wide and top <= inner[1] <= top + high
