"""Curves as SVG that stands in the page itself: risk against coverage."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from spolia.evaluation.pages.plots import COLOURS, LONGEST
from spolia.evaluation.report import Report

SIDE, LEFT, TOP, RIGHT, BOTTOM = 240, 46, 10, 200, 40
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
    width, height = LEFT + SIDE + RIGHT, TOP + SIDE + BOTTOM
    parts = [f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{escape(measure)}: risk by coverage">']
    for step in range(5):
        x, y = _at((step / 4, scale * step / 4), scale)
        parts.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{TOP + SIDE}"/>')
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{LEFT + SIDE}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text class="tick" x="{x:.1f}" y="{TOP + SIDE + 16}">{25 * step}</text>')
        parts.append(f'<text class="tick" x="{LEFT - 16}" y="{y + 4:.1f}">{25 * step * scale:g}</text>')
    parts.append(f'<text class="tick" x="{LEFT + SIDE / 2}" y="{height - 6}">coverage: answered of 100</text>')
    parts += [_curve(flow, points, scale, colours[flow], row) for row, (flow, points) in enumerate(curves.items())]
    return "".join((*parts, "</svg>"))


def _curve(flow: str, points: Points, scale: float, number: int, row: int) -> str:
    """The line with a dot at its end, and its name beside the plot."""
    shown = [*points[:: max(1, len(points) // POINTS)], points[-1]]
    places = " ".join(f"{x:.1f},{y:.1f}" for x, y in (_at(point, scale) for point in shown))
    (coverage, risk), colour = points[-1], COLOURS[number % len(COLOURS)]
    (x, y), beside = _at(points[-1], scale), TOP + 14 + 36 * row
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
    return LEFT + SIDE * coverage, TOP + SIDE * (1 - risk / scale)
