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
    """Line of a plot: its label, its interval, the text after it; faint where no difference is shown."""

    label: str
    low: float
    middle: float
    high: float
    text: str
    colour: int = 0
    faint: bool = False


def plot_bars(bars: Sequence[Bar], *, zero: bool = False, title: str = "") -> str:
    """Plot intervals one below the other on one scale, with a line at zero on demand."""
    # An unknown bound must not stretch the scale.
    ends = [bound for bar in bars for bound in (bar.low, bar.middle, bar.high) if isfinite(bound)] + [0.0] * zero
    scale = _Scale(min(ends), max(ends))
    height = TOP + LINE * len(bars) + 26
    parts = [f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(title)}">']
    for tick in scale.ticks:
        x = scale.to_x(tick)
        parts.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{height - 22}"/>')
        parts.append(f'<text class="tick" x="{x:.1f}" y="{height - 8}">{tick:g}</text>')
    if zero:
        parts.append(
            f'<line class="zero" x1="{scale.to_x(0):.1f}" x2="{scale.to_x(0):.1f}" y1="{TOP}" y2="{height - 22}"/>'
        )
    parts += [_draw_bar(bar, TOP + LINE * row + LINE / 2, scale) for row, bar in enumerate(bars)]
    return "".join((*parts, "</svg>"))


class _Scale:
    """Scale that maps numbers to places, with a little room at both ends."""

    def __init__(self, low: float, high: float) -> None:
        # Equal ends still need a scale of some width.
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
        """Return how far along the scale a number is."""
        # An unknown bound ends at the edge.
        return (min(max(value, self.low), self.high) - self.low) / (self.high - self.low)

    def to_x(self, value: float) -> float:
        return LABEL + self.share(value) * (WIDTH - LABEL - RIGHT)


def _draw_bar(bar: Bar, y: float, scale: _Scale) -> str:
    low, middle, high = (scale.to_x(bound) for bound in (bar.low, bar.middle, bar.high))
    colour = "#9a9a94" if bar.faint else COLOURS[bar.colour % len(COLOURS)]
    name = bar.label if len(bar.label) <= ROOM else f"{bar.label[: ROOM - 1]}…"
    return (
        f"<g><title>{escape(f'{bar.label}: {bar.text}')}</title>"
        f'<text class="label" x="{LABEL - 12}" y="{y + 4:.1f}">{escape(name)}</text>'
        f'<line x1="{low:.1f}" x2="{high:.1f}" y1="{y}" y2="{y}" stroke="{colour}" stroke-width="2.5"/>'
        f'<circle cx="{middle:.1f}" cy="{y}" r="4.5" fill="{colour}"/>'
        f'<text class="told" x="{WIDTH - RIGHT + 10}" y="{y + 4:.1f}">{escape(bar.text)}</text></g>'
    )


SIDE, LEFT, CURVE_TOP, CURVE_RIGHT, BOTTOM = 240, 46, 10, 200, 40
POINTS = 400
"""Points of a line, at most: more are not seen."""
Points = Sequence[tuple[float, float]]


def plot_curves(
    title: str, curves: dict[str, Points], colours: dict[str, int], x_label: str, point_label: str, x_max: float = 100
) -> str:
    """Plot curves over shares from 0 to 1; the vertical axis is written times 100.

    Args:
        x_max: what a share of 1 is on the horizontal axis.
        x_label: what the horizontal axis is.
        point_label: the label of the last point of a curve, with places for both of its numbers times 100.
    """
    # Curves that are 0 everywhere still need a scale.
    top = max(height for points in curves.values() for _, height in points) or 0.05
    scale = next(
        candidate
        for power in range(-2, 16)
        for candidate in (0.01 * 10**power * times for times in (5, 10, 20))
        if top <= candidate
    )
    width, height = LEFT + SIDE + CURVE_RIGHT, CURVE_TOP + SIDE + BOTTOM
    parts = [f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{escape(title)}">']
    for step in range(5):
        x, y = _place_point((step / 4, scale * step / 4), scale)
        parts.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{CURVE_TOP}" y2="{CURVE_TOP + SIDE}"/>')
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{LEFT + SIDE}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(
            f'<text class="tick" x="{x:.1f}" y="{CURVE_TOP + SIDE + 16}">{_format_tick(x_max * step / 4)}</text>'
        )
        parts.append(f'<text class="tick" x="{LEFT - 16}" y="{y + 4:.1f}">{25 * step * scale:g}</text>')
    parts.append(f'<text class="tick" x="{LEFT + SIDE / 2}" y="{height - 6}">{escape(x_label)}</text>')
    parts += [
        _draw_curve(flow, points, scale, colours[flow], row, point_label)
        for row, (flow, points) in enumerate(curves.items())
    ]
    return "".join((*parts, "</svg>"))


def _format_tick(number: float) -> str:
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"


def _draw_curve(flow: str, points: Points, scale: float, number: int, row: int, point_label: str) -> str:
    """Draw a curve with a dot at its end, and its name beside the plot."""
    sampled_points = [*points[:: max(1, len(points) // POINTS)], points[-1]]  # the end of the line, whatever the stride
    places = " ".join(f"{x:.1f},{y:.1f}" for x, y in (_place_point(point, scale) for point in sampled_points))
    colour = COLOURS[number % len(COLOURS)]
    (x, y), label_y = _place_point(points[-1], scale), CURVE_TOP + 14 + 36 * row
    name = flow if len(flow) <= ROOM else f"{flow[: ROOM - 1]}…"
    point_label = point_label.format(*(100 * share for share in points[-1]))
    return (
        f"<g><title>{escape(f'{flow}: {point_label}')}</title>"
        f'<polyline points="{places}" fill="none" stroke="{colour}" stroke-width="2"/>'
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}"/>'
        f'<circle cx="{LEFT + SIDE + 18}" cy="{label_y - 4}" r="4" fill="{colour}"/>'
        f'<text x="{LEFT + SIDE + 28}" y="{label_y}">{escape(name)}</text>'
        f'<text class="told" x="{LEFT + SIDE + 28}" y="{label_y + 16}">{escape(point_label)}</text></g>'
    )


def _place_point(point: tuple[float, float], scale: float) -> tuple[float, float]:
    coverage, risk = point
    return LEFT + SIDE * coverage, CURVE_TOP + SIDE * (1 - risk / scale)


@dataclass(frozen=True)
class Dot(Value):
    """Point of a plot with its label; faint where another point is better both ways."""

    across: float
    up: float
    text: str
    faint: bool = False


def plot_dots(title: str, dots: Sequence[Dot], across: str) -> str:
    """Plot points over two scales; the first is drawn larger.

    Args:
        across: what the horizontal axis is.
    """
    scales = [_Scale(min(values), max(values)) for values in ([dot.across for dot in dots], [dot.up for dot in dots])]

    def place_dot(x: float, y: float) -> tuple[float, float]:
        return LEFT + SIDE * scales[0].share(x), CURVE_TOP + SIDE * (1 - scales[1].share(y))

    width, height = LEFT + SIDE + CURVE_RIGHT, CURVE_TOP + SIDE + BOTTOM
    parts = [f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{escape(title)}">']
    for tick in scales[0].ticks:
        x, _ = place_dot(tick, 0.0)
        parts.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{CURVE_TOP}" y2="{CURVE_TOP + SIDE}"/>')
        parts.append(f'<text class="tick" x="{x:.1f}" y="{CURVE_TOP + SIDE + 16}">{tick:g}</text>')
    for tick in scales[1].ticks:
        _, y = place_dot(0.0, tick)
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{LEFT + SIDE}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text class="tick" x="{LEFT - 20}" y="{y + 4:.1f}">{tick:g}</text>')
    parts.append(f'<text class="tick" x="{LEFT + SIDE / 2}" y="{height - 6}">{escape(across)}</text>')
    # The first point is drawn last, so that no other covers it.
    for number, dot in reversed([*enumerate(dots)]):
        (x, y), colour = place_dot(dot.across, dot.up), "#9a9a94" if dot.faint else COLOURS[0]
        parts.append(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{4 if number else 7}" fill="{colour}">'
            f"<title>{escape(dot.text)}</title></circle>"
        )
    return "".join((*parts, "</svg>"))
