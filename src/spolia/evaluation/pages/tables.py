"""The tables of a report, as a terminal, Markdown and HTML show them."""

from __future__ import annotations

from dataclasses import dataclass

from spolia.evaluation.comparison import amount
from spolia.evaluation.evaluation import Latency
from spolia.evaluation.report import Report
from spolia.evaluation.slices import Slice
from spolia.types import Value


@dataclass(frozen=True)
class Table(Value):
    """Cells in rows; the first column names the row."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def scores(report: Report) -> Table:
    """Each measure of each flow with its interval."""
    rows = []
    for index, measured in enumerate(report.flows[0].measured):
        unit = measured.measure in report.units
        intervals = [flow.intervals[index] for flow in report.flows]
        rows.append((measured.measure, *("–" if one is None else amount(one, unit) for one in intervals)))
    return Table(("", *(flow.flow for flow in report.flows)), tuple(rows))


def costs(report: Report) -> Table:
    """What each flow took."""
    head = ("", "p50", "p95", "set-up", "at once", "calls", "tokens", "embedded", "USD", "judges' USD", "failed")
    rows = []
    for flow in report.flows:
        latency, usage = flow.latency, flow.usage
        tokens = usage.input_tokens + usage.output_tokens
        rows.append((
            flow.flow, *(_taken(one, latency) for one in (latency.p50_s, latency.p95_s)), seconds(latency.setup_s),
            str(latency.at_once),
            f"{usage.calls:,}", f"{tokens:,}", f"{usage.embedded:,}", f"{usage.cost_usd:.4g}",
            f"{flow.judging.cost_usd:.4g}", str(len(flow.failures)),
        ))  # fmt: skip
    return Table(head, tuple(rows))


def of_slice(report: Report, kind: Slice) -> Table:
    """The scores of the questions of one kind."""
    found = {(flow, measure): interval for flow, measure, interval in kind.scores}
    rows = []
    for measured in report.flows[0].measured:
        cells = [found[flow.flow, measured.measure] for flow in report.flows]
        unit = measured.measure in report.units
        rows.append((measured.measure, *("–" if one is None else amount(one, unit) for one in cells)))
    return Table(
        (f"{kind.field} {kind.value or '(none)'}, n = {kind.n}", *(flow.flow for flow in report.flows)), tuple(rows)
    )


def _taken(one: float | None, latency: Latency) -> str:
    return "cached" if one is None and latency.cached else seconds(one)


def seconds(taken: float | None) -> str:
    """A time for people.

    >>> seconds(0.00042), seconds(0.25), seconds(3.21), seconds(None)
    ('0.42 ms', '250 ms', '3.2 s', '–')
    """
    if taken is None:
        return "–"
    return f"{taken:.1f} s" if taken >= 1 else f"{1000 * taken:.0f} ms" if taken >= 0.01 else f"{1000 * taken:.2f} ms"


UNDER = "Times 100 where a score lies between 0 and 1; in brackets the 95 % interval."
TIMES = (
    "p50 and p95 of the questions that no cache answered; set-up: opening stores and the first question, apart. "
    "Calls, tokens and texts embedded as the flow needs them, results from a cache included."
)
