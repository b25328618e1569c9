"""Plots as SVG: intervals under each other, curves, points."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from math import floor, isfinite, log10

from spolia.types import Value

WIDTH, LABEL, RIGHT, LINE, TOP = 560, 200, 130, 22, 8
ROOM = 24
"""Characters of a label that have room."""
COLOURS = ("#2f6690", "#c2571a", "#4a7c59", "#8a4f9e", "#a8892c", "#b03a48", "#3a8f97", "#6b6b6b")
"""One for each flow, in their order; people who see no red and green can distinguish them too."""


@dataclass(frozen=True)
class Bar(Value):
    """One line of a plot: its label, its interval, the text after it; faint where no difference is shown."""

    label: str
    low: float
    middle: float
    high: float
    told: str
    colour: int = 0
    faint: bool = False


def plot(bars: Sequence[Bar], *, zero: bool = False, title: str = "") -> str:
    """Intervals under each other on one scale, with a line at zero on demand."""
    ends = [one for bar in bars for one in (bar.low, bar.middle, bar.high) if isfinite(one)] + [0.0] * zero
    scale = _Scale(min(ends), max(ends))
    height = TOP + LINE * len(bars) + 26
    parts = [f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(title)}">']
    for tick in scale.ticks:
        x = scale.at(tick)
        parts.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{height - 22}"/>')
        parts.append(f'<text class="tick" x="{x:.1f}" y="{height - 8}">{tick:g}</text>')
    if zero:
        parts.append(
            f'<line class="zero" x1="{scale.at(0):.1f}" x2="{scale.at(0):.1f}" y1="{TOP}" y2="{height - 22}"/>'
        )
    parts += [_bar(bar, TOP + LINE * row + LINE / 2, scale) for row, bar in enumerate(bars)]
    return "".join((*parts, "</svg>"))


class _Scale:
    """Numbers to places, with a little room at both ends."""

    def __init__(self, low: float, high: float) -> None:
        room = (high - low or abs(high) or 1.0) * 0.04
        self.low, self.high = low - room, high + room
        raw = (self.high - self.low) / 5
        power = 10.0 ** floor(log10(raw))
        self.step = next(times * power for times in (1, 2, 2.5, 5, 10) if times * power >= raw)

    @property
    def ticks(self) -> list[float]:
        first = int(self.low // self.step) + 1
        return [round(n * self.step, 10) for n in range(first, int(self.high // self.step) + 1)]

    def share(self, value: float) -> float:
        """How far along the scale a number is."""
        return (min(max(value, self.low), self.high) - self.low) / (self.high - self.low)

    def at(self, value: float) -> float:
        return LABEL + self.share(value) * (WIDTH - LABEL - RIGHT)


def _bar(bar: Bar, y: float, scale: _Scale) -> str:
    low, middle, high = (scale.at(one) for one in (bar.low, bar.middle, bar.high))
    colour = "#9a9a94" if bar.faint else COLOURS[bar.colour % len(COLOURS)]
    name = bar.label if len(bar.label) <= ROOM else f"{bar.label[: ROOM - 1]}…"
    return (
        f"<g><title>{escape(f'{bar.label}: {bar.told}')}</title>"
        f'<text class="label" x="{LABEL - 12}" y="{y + 4:.1f}">{escape(name)}</text>'
        f'<line x1="{low:.1f}" x2="{high:.1f}" y1="{y}" y2="{y}" stroke="{colour}" stroke-width="2.5"/>'
        f'<circle cx="{middle:.1f}" cy="{y}" r="4.5" fill="{colour}"/>'
        f'<text class="told" x="{WIDTH - RIGHT + 10}" y="{y + 4:.1f}">{escape(bar.told)}</text></g>'
    )


SIDE, LEFT, CURVE_TOP, CURVE_RIGHT, BOTTOM = 240, 46, 10, 200, 40
POINTS = 400
"""Points of a line, at most: more are not seen."""
Points = Sequence[tuple[float, float]]


def curves_plot(
    title: str, curves: dict[str, Points], colours: dict[str, int], below: str, told: str, most: float = 100
) -> str:
    """Curves over shares from 0 to 1; the vertical axis is written times 100.

    Args:
        most: what a share of 1 is on the horizontal axis.
        below: what the horizontal axis is.
        told: the label of the last point of a curve, with places for both of its numbers times 100.
    """
    top = max(height for points in curves.values() for _, height in points) or 0.05
    scale = next(
        one for power in range(-2, 16) for one in (0.01 * 10**power * times for times in (5, 10, 20)) if top <= one
    )
    width, height = LEFT + SIDE + CURVE_RIGHT, CURVE_TOP + SIDE + BOTTOM
    parts = [f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{escape(title)}">']
    for step in range(5):
        x, y = _at((step / 4, scale * step / 4), scale)
        parts.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{CURVE_TOP}" y2="{CURVE_TOP + SIDE}"/>')
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{LEFT + SIDE}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text class="tick" x="{x:.1f}" y="{CURVE_TOP + SIDE + 16}">{_tick(most * step / 4)}</text>')
        parts.append(f'<text class="tick" x="{LEFT - 16}" y="{y + 4:.1f}">{25 * step * scale:g}</text>')
    parts.append(f'<text class="tick" x="{LEFT + SIDE / 2}" y="{height - 6}">{escape(below)}</text>')
    parts += [
        _curve(flow, points, scale, colours[flow], row, told) for row, (flow, points) in enumerate(curves.items())
    ]
    return "".join((*parts, "</svg>"))


def _tick(number: float) -> str:
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"


def _curve(flow: str, points: Points, scale: float, number: int, row: int, told: str) -> str:
    """The line with a dot at its end, and its name beside the plot."""
    shown = [*points[:: max(1, len(points) // POINTS)], points[-1]]
    places = " ".join(f"{x:.1f},{y:.1f}" for x, y in (_at(point, scale) for point in shown))
    colour = COLOURS[number % len(COLOURS)]
    (x, y), beside = _at(points[-1], scale), CURVE_TOP + 14 + 36 * row
    name = flow if len(flow) <= ROOM else f"{flow[: ROOM - 1]}…"
    told = told.format(*(100 * one for one in points[-1]))
    return (
        f"<g><title>{escape(f'{flow}: {told}')}</title>"
        f'<polyline points="{places}" fill="none" stroke="{colour}" stroke-width="2"/>'
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}"/>'
        f'<circle cx="{LEFT + SIDE + 18}" cy="{beside - 4}" r="4" fill="{colour}"/>'
        f'<text x="{LEFT + SIDE + 28}" y="{beside}">{escape(name)}</text>'
        f'<text class="told" x="{LEFT + SIDE + 28}" y="{beside + 16}">{escape(told)}</text></g>'
    )


def _at(point: tuple[float, float], scale: float) -> tuple[float, float]:
    coverage, risk = point
    return LEFT + SIDE * coverage, CURVE_TOP + SIDE * (1 - risk / scale)


@dataclass(frozen=True)
class Dot(Value):
    """A point of a plot with what it is; faint where another one is better both ways."""

    across: float
    up: float
    told: str
    faint: bool = False


def dots_plot(title: str, dots: Sequence[Dot], across: str) -> str:
    """Points over two scales; the first is drawn larger.

    Args:
        across: what the horizontal axis is.
    """
    scales = [_Scale(min(one), max(one)) for one in ([dot.across for dot in dots], [dot.up for dot in dots])]

    def at(x: float, y: float) -> tuple[float, float]:
        return LEFT + SIDE * scales[0].share(x), CURVE_TOP + SIDE * (1 - scales[1].share(y))

    width, height = LEFT + SIDE + CURVE_RIGHT, CURVE_TOP + SIDE + BOTTOM
    parts = [f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{escape(title)}">']
    for tick in scales[0].ticks:
        x, _ = at(tick, 0.0)
        parts.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{CURVE_TOP}" y2="{CURVE_TOP + SIDE}"/>')
        parts.append(f'<text class="tick" x="{x:.1f}" y="{CURVE_TOP + SIDE + 16}">{tick:g}</text>')
    for tick in scales[1].ticks:
        _, y = at(0.0, tick)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{LEFT + SIDE}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text class="tick" x="{LEFT - 20}" y="{y + 4:.1f}">{tick:g}</text>')
    parts.append(f'<text class="tick" x="{LEFT + SIDE / 2}" y="{height - 6}">{escape(across)}</text>')
    for number, dot in reversed([*enumerate(dots)]):
        (x, y), colour = at(dot.across, dot.up), "#9a9a94" if dot.faint else COLOURS[0]
        parts.append(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{4 if number else 7}" fill="{colour}">'
            f"<title>{escape(dot.told)}</title></circle>"
        )
    return "".join((*parts, "</svg>"))
