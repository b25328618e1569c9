"""A flow as an SVG picture: the graph of `draw`, with the steps of a chain below and arms beside each other."""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from typing import Any, TypeAlias

from spolia.core.draw import DrawnBlock, drawn
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
    """The flow as an SVG picture, which is text and needs nothing else.

    >>> from spolia.core.combinators import Identity, Samples
    >>> picture = svg(Identity() >> Samples(2))
    >>> picture[:4], "Samples(n=2)" in picture
    ('<svg', True)
    """
    drawing = drawn(flow)
    lines = {name: _wrapped(label) for name, (label, _) in drawing.nodes.items()}
    sizes = {name: _size(found) for name, found in lines.items()}
    places: dict[str, Place] = {}
    frames: list[tuple[Place, str]] = []
    width, height = _measured(drawing.whole, sizes)
    _set(drawing.whole, 10.0, 10.0, width, sizes, lambda name, place: places.update({name: place}), frames)
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
        parts.append(f'<text class="title" x="{left + 8:.1f}" y="{top + 15:.1f}">{_safe(title)}</text>')
    parts += [_edge(places[start], places[end], label, dotted, frames) for start, end, label, dotted in drawing.edges]
    parts += [_node(places[name], lines[name], shape) for name, (_, shape) in drawing.nodes.items()]
    return "\n".join((*parts, "</svg>"))


def _safe(text: str) -> str:
    return escape("".join(c if c.isprintable() else " " for c in text))


def _wrapped(label: str) -> list[str]:
    """A label in lines, broken after commas and blanks where that is possible."""
    lines, rest = [], label
    while len(rest) > WIDEST:
        at = max(rest.rfind(mark, 8, WIDEST - 1) + 1 for mark in " ,(")
        at = at if at > 8 else WIDEST
        lines.append(rest[:at].rstrip())
        rest = rest[at:].lstrip()
    return [*lines, rest]


def _size(lines: list[str]) -> tuple[float, float]:
    longest = max(sum(2 if ord(c) > 0x2E80 else 1 for c in line) for line in lines)
    return max(24.0, longest * LETTER + 2 * PAD), len(lines) * LINE + PAD


def _measured(block: DrawnBlock, sizes: dict[str, tuple[float, float]]) -> tuple[float, float]:
    """Width and height of a block."""
    inner = [sizes[part] if isinstance(part, str) else _measured(part, sizes) for part in block.parts]
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
    return max(width, _size([block.title])[0]) + 4 * FRAME, height + 3 * FRAME


def _set(
    block: DrawnBlock,
    left: float,
    top: float,
    width: float,
    sizes: dict[str, tuple[float, float]],
    put: Callable[[str, Place], None],
    frames: list[tuple[Place, str]],
) -> None:
    """Place what is in a block, in the middle of `width`."""
    wide, high = _measured(block, sizes)
    left += (width - wide) / 2
    if block.title is not None:
        frames.append(((left, top, wide, high), block.title))
        top += 2 * FRAME
    for part in block.parts:
        w, h = sizes[part] if isinstance(part, str) else _measured(part, sizes)
        room = w if block.row or block.aside else wide
        if isinstance(part, str):
            put(part, (left + (room - w) / 2, top, w, h))
        else:
            _set(part, left, top, room, sizes, put, frames)
        left += w + ARM_GAP if block.row or block.aside else 0.0
        top += h + GAP if not block.row else 0.0


def _node(place: Place, lines: list[str], shape: str) -> str:
    left, top, width, _ = place
    kind, corner = KINDS.get(shape, ("step", 5.0))
    box = f'<rect class="{kind}" {_box(place)} rx="{corner:.0f}"/>'
    middle = f'x="{left + width / 2:.1f}" text-anchor="middle"'
    texts = [
        f'<text {middle} y="{top + PAD / 2 + LINE * (n + 0.75):.1f}">{_safe(line)}</text>'
        for n, line in enumerate(lines)
        if line.strip()
    ]
    return "".join((box, *texts))


def _box(place: Place) -> str:
    return 'x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}"'.format(*place)


def _edge(start: Place, end: Place, label: str, dotted: bool, frames: list[tuple[Place, str]]) -> str:
    """An edge from the bottom of one box to the top of another: down in its own column, then over; back at the side."""
    x, y = start[0] + start[2] / 2, start[1] + start[3]
    to_x, to_y = end[0] + end[2] / 2, end[1]
    if to_y <= y:  # back to the beginning of a loop, at the right side of its frame
        around = [one for one, _ in frames if all(_is_inside(it, one) for it in (start, end))]
        side = min((one[0] + one[2] for one in around), default=max(start[0] + start[2], end[0] + end[2])) - FRAME / 2
        y, to_y = start[1] + start[3] / 2, end[1] + end[3] / 2
        path = f"M{start[0] + start[2]:.1f} {y:.1f}H{side:.1f}V{to_y:.1f}H{end[0] + end[2]:.1f}"
        at_x, at_y = side - 5 * LETTER, to_y - 5
    else:
        turn = max(y, to_y - GAP)
        bend = (turn + to_y) / 2
        path = f"M{x:.1f} {y:.1f}V{turn:.1f}C{x:.1f} {bend:.1f} {to_x:.1f} {bend:.1f} {to_x:.1f} {to_y:.1f}"
        at_x, at_y = (x + to_x) / 2, bend
    told = f'<text class="label" x="{at_x + 4:.1f}" y="{at_y:.1f}">{_safe(label)}</text>' if label else ""
    return f'<path class="edge{" again" if dotted else ""}" d="{path}" marker-end="url(#arrow)"/>{told}'


def _is_inside(one: Place, other: Place) -> bool:
    left, top, wide, high = other
    return left <= one[0] <= left + wide and top <= one[1] <= top + high
