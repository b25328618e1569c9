"""Plots as SVG that stands in the page itself: intervals, paired differences, times."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from math import floor, isfinite, log10

from spolia.evaluation.experiment.comparison import number
from spolia.evaluation.experiment.results import Report
from spolia.evaluation.report.tables import p_value, seconds
from spolia.types import Value

WIDTH, LABEL, RIGHT, LINE, TOP = 520, 160, 130, 22, 8
LONGEST = 24
"""Characters of a label that have room."""
COLOURS = ("#2f6690", "#c2571a", "#4a7c59", "#8a4f9e", "#a8892c", "#b03a48", "#3a8f97", "#6b6b6b")
"""Of the flows, in their order, told apart also by those who see no red and green."""


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


def of_scores(report: Report) -> list[tuple[str, str]]:
    """A plot for each measure: its name and the intervals of all flows."""
    found = []
    for index, measured in enumerate(report.flows[0].measured):
        times = 100 if measured.measure in report.units else 1
        bars = [
            Bar(flow.flow, times * i.low, times * i.mean, times * i.high, number(i.mean, times == 100), colour)
            for colour, flow in enumerate(report.flows)
            if (i := flow.intervals[index]) is not None
        ]
        found.append((measured.measure, plot(bars, title=f"{measured.measure} of each flow") if bars else "nothing"))
    return found


def of_differences(report: Report) -> list[tuple[str, str]]:
    """A plot for each measure: by how much one flow is better than another."""
    found: dict[str, list[Bar]] = {}
    for one in report.comparisons:
        times, i = 100 if one.unit else 1, one.interval
        label, told = f"{one.better} over {one.other}", f"{number(i.mean, one.unit)}, {p_value(one.adjusted)}"
        bar = Bar(label, times * i.low, times * i.mean, times * i.high, told, faint=not one.shown)
        found.setdefault(one.measure, []).append(bar)
    return [(measure, plot(bars, zero=True, title=f"differences of {measure}")) for measure, bars in found.items()]


def of_times(report: Report) -> list[tuple[str, str]]:
    """From the median of each flow to its 95th percentile, milliseconds."""
    bars = []
    for colour, flow in enumerate(report.flows):
        p50, p95 = flow.latency.p50_s, flow.latency.p95_s
        if p50 is not None and p95 is not None:
            told = f"{seconds(p50)} to {seconds(p95)}"
            bars.append(Bar(flow.flow, 1000 * p50, 1000 * p50, 1000 * p95, told, colour))
    name = "Milliseconds a question, from the median to the 95th percentile"
    return [(name, plot(bars, zero=True, title=name))] if bars else []


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

    def at(self, value: float) -> float:
        share = (min(max(value, self.low), self.high) - self.low) / (self.high - self.low)
        return LABEL + share * (WIDTH - LABEL - RIGHT)


def _bar(bar: Bar, y: float, scale: _Scale) -> str:
    low, middle, high = (scale.at(one) for one in (bar.low, bar.middle, bar.high))
    colour = "#9a9a94" if bar.faint else COLOURS[bar.colour % len(COLOURS)]
    name = bar.label if len(bar.label) <= LONGEST else f"{bar.label[: LONGEST - 1]}…"
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


def of_risk(report: Report) -> list[tuple[str, str]]:
    """A plot for each measure of risk and coverage: its name and the curves of all flows. Each ends where its flow
    answers no more; under it is the risk of what is answered if it answered only what it is surest of."""
    found: dict[str, dict[str, Points]] = {}
    for measure, flow, points in report.curves:
        found.setdefault(measure, {})[flow] = points
    colours = {flow.flow: number for number, flow in enumerate(report.flows)}
    return [(measure, _plot(measure, curves, colours)) for measure, curves in found.items()]


def _plot(measure: str, curves: dict[str, Points], colours: dict[str, int]) -> str:
    top = max(risk for points in curves.values() for _, risk in points)
    scale = next(one for one in (0.05, 0.1, 0.2, 0.5, 1.0) if top <= one)
    width, height = LEFT + SIDE + CURVE_RIGHT, CURVE_TOP + SIDE + BOTTOM
    parts = [f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{escape(measure)}: risk by coverage">']
    for step in range(5):
        x, y = _at((step / 4, scale * step / 4), scale)
        parts.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{CURVE_TOP}" y2="{CURVE_TOP + SIDE}"/>')
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{LEFT + SIDE}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text class="tick" x="{x:.1f}" y="{CURVE_TOP + SIDE + 16}">{25 * step}</text>')
        parts.append(f'<text class="tick" x="{LEFT - 16}" y="{y + 4:.1f}">{25 * step * scale:g}</text>')
    parts.append(f'<text class="tick" x="{LEFT + SIDE / 2}" y="{height - 6}">coverage: answered of 100</text>')
    parts += [_curve(flow, points, scale, colours[flow], row) for row, (flow, points) in enumerate(curves.items())]
    return "".join((*parts, "</svg>"))


def _curve(flow: str, points: Points, scale: float, number: int, row: int) -> str:
    """The line with a dot at its end, and its name beside the plot."""
    shown = [*points[:: max(1, len(points) // POINTS)], points[-1]]
    places = " ".join(f"{x:.1f},{y:.1f}" for x, y in (_at(point, scale) for point in shown))
    (coverage, risk), colour = points[-1], COLOURS[number % len(COLOURS)]
    (x, y), beside = _at(points[-1], scale), CURVE_TOP + 14 + 36 * row
    name = flow if len(flow) <= LONGEST else f"{flow[: LONGEST - 1]}…"
    told = f"risk {100 * risk:.1f} at {100 * coverage:.1f}"
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
