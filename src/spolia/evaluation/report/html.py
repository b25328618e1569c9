"""A report as one page of HTML that needs nothing else: tables, plots as SVG, every question down to its steps."""

import json
from collections.abc import Callable, Iterable, Sequence
from html import escape
from pathlib import Path
from typing import TypeAlias

from spolia.evaluation.experiment.comparison import TYPE, format_number, kinds_of
from spolia.evaluation.experiment.results import Report
from spolia.evaluation.experiment.score_table import Cell
from spolia.evaluation.measures.costs import shown_hits
from spolia.evaluation.report import tables
from spolia.evaluation.report.plots import Bar, Points, plot_bars, plot_curves
from spolia.journal import TraceSpan
from spolia.types import Answer, Failure, Hit, Item


def plot_scores(report: Report) -> list[tuple[str, str]]:
    """Plot the intervals of all flows, by measure."""
    figures = []
    for index, measured in enumerate(report.flows[0].measured):
        times = 100 if measured.measure in report.units else 1
        bars = [
            Bar(flow.flow, times * i.low, times * i.mean, times * i.high, format_number(i.mean, times == 100), colour)
            for colour, flow in enumerate(report.flows)
            if (i := flow.intervals[index]) is not None
        ]
        figures.append(
            (measured.measure, plot_bars(bars, title=f"{measured.measure} of each flow") if bars else "nothing")
        )
    return figures


def plot_differences(report: Report) -> list[tuple[str, str]]:
    """Plot by how much one flow is better than another, by measure."""
    bars_by_measure: dict[str, list[Bar]] = {}
    for comparison in report.comparisons:
        times, i = 100 if comparison.is_share else 1, comparison.interval
        label, bar_text = (
            f"{comparison.better} over {comparison.other}",
            f"{format_number(i.mean, comparison.is_share)}, {tables.format_p(comparison.adjusted)}",
        )
        bar = Bar(label, times * i.low, times * i.mean, times * i.high, bar_text, faint=not comparison.shown)
        bars_by_measure.setdefault(comparison.measure, []).append(bar)
    return [
        (measure, plot_bars(bars, zero=True, title=f"differences of {measure}"))
        for measure, bars in bars_by_measure.items()
    ]


def plot_times(report: Report) -> list[tuple[str, str]]:
    """Plot bars from each flow's median to its 95th percentile, in milliseconds."""
    bars = []
    for colour, flow in enumerate(report.flows):
        p50, p95 = flow.latency.p50_s, flow.latency.p95_s
        if p50 is not None and p95 is not None:
            bar_text = f"{tables.format_seconds(p50)} to {tables.format_seconds(p95)}"
            bars.append(Bar(flow.flow, 1000 * p50, 1000 * p50, 1000 * p95, bar_text, colour))
    name = "Milliseconds a question, from the median to the 95th percentile"
    return [(name, plot_bars(bars, zero=True, title=name))] if bars else []


def plot_risk(report: Report) -> list[tuple[str, str]]:
    """Plot the risk of what flows answer by the share they answer, by measure. Each curve ends where its flow answers
    no more."""
    curves_by_measure: dict[str, dict[str, Points]] = {}
    for measure, flow, points in report.curves:
        curves_by_measure.setdefault(measure, {})[flow] = points
    colours = {flow.flow: number for number, flow in enumerate(report.flows)}
    x_label, point_label = "coverage: answered of 100", "risk {1:.1f} at {0:.1f}"
    return [
        (measure, plot_curves(f"{measure}: risk by coverage", curves, colours, x_label, point_label))
        for measure, curves in curves_by_measure.items()
    ]


FOLDER = Path(__file__).parent
POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"
"""Text of a question, a document or an answer can load nothing and send nothing."""


def html(report: Report, traces: "Traces | None" = None) -> str:
    """Render the report as a page; without `traces`, it says where the steps of a question are stored."""
    title = f"{report.data or 'Experiment'}: {', '.join(flow.flow for flow in report.flows)}"
    body = (
        f"<h1>{escape(title)}</h1><p>{escape(report.about)}</p>",
        *(f'<div class="warning">{escape(warning)}</div>' for warning in report.warnings),
        render_section(
            "Scores",
            render_table(tables.tabulate_scores(report)),
            f"<p>{tables.explain_scores(report)}</p>",
            render_plots(plot_scores(report)),
        ),
        _render_risk(report),
        _render_verdicts(report),
        render_section(
            "Time and cost",
            render_table(tables.tabulate_costs(report)),
            f"<p>{tables.explain_times(report)}</p>",
            render_plots(plot_times(report)),
        ),
        _render_degraded(report),
        _render_slices(report),
        render_section(
            "Flows", *(f"<h3>{escape(flow.flow)}</h3><code>{escape(flow.notation)}</code>" for flow in report.flows)
        ),
        _render_questions(report, traces),
    )
    return wrap_page(title, *body, script=(FOLDER / "filter.js").read_text("utf-8"))


def render_fragment(report: Report) -> str:
    """Render scores and verdicts for a notebook; `html` has the rest."""
    warnings = "".join(f"<p>{escape(warning)}</p>" for warning in report.warnings)
    verdicts = "".join(f"<li>{escape(comparison.verdict)}</li>" for comparison in report.comparisons)
    return (
        f"<p>{escape(report.about)}</p>{warnings}{render_table(tables.tabulate_scores(report))}"
        f"<p>{escape(tables.explain_scores(report))}</p><ul>{verdicts}</ul>"
    )


def wrap_page(title: str, *body: str, script: str = "") -> str:
    """Render a whole page, which can load nothing.

    Args:
        title: plain text.
        body: HTML.
    """
    style = (FOLDER / "look.css").read_text("utf-8")
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{style}</style></head>'
        f"<body>{''.join(body)}<script>{script}</script></body></html>\n"
    )


def render_section(title: str, *parts: str) -> str:
    """Render parts under a heading."""
    return f"<h2>{escape(title)}</h2>{''.join(parts)}"


def render_table(content: tables.Table) -> str:
    """Render a table that is as wide as it must be."""
    head = "".join(f"<th>{escape(cell)}</th>" for cell in content.head)
    rows = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in content.rows)
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'


def render_plots(figures: Iterable[tuple[str, str]]) -> str:
    """Render plots side by side, each under its name."""
    return f'<div class="plots">{"".join(f"<div><h3>{escape(name)}</h3>{svg}</div>" for name, svg in figures)}</div>'


def _render_risk(report: Report) -> str:
    """Render how often each flow would be wrong if it answered only what it is surest of."""
    if not report.curves:
        return ""
    explanation = (
        "Answers in the order of how sure a flow is, the surest first: the share answered (coverage) and the share "
        "of these that is wrong (risk), both in per cent. A line ends where its flow answers no more; "
        "AURC is its mean height, over all questions."
    )
    return render_section("Risk and coverage", render_plots(plot_risk(report)), f"<p>{explanation}</p>")


def _render_verdicts(report: Report) -> str:
    if not report.comparisons:
        return ""
    ordered = sorted(report.comparisons, key=lambda comparison: not comparison.shown)
    listed = "".join(
        f'<li class="{"shown" if comparison.shown else ""}">{escape(comparison.verdict)}</li>' for comparison in ordered
    )
    body = render_table(tables.tabulate_verdicts(report)) if report.against else f'<ul class="verdicts">{listed}</ul>'
    return render_section(
        "Verdicts", f"{body}<p>{escape(tables.explain_verdicts(report))}</p>", render_plots(plot_differences(report))
    )


def _render_degraded(report: Report) -> str:
    wrong = tables.tabulate_degraded(report)
    return render_section("Degraded calls", render_table(wrong), f"<p>{tables.DEGRADED_NOTE}</p>") if wrong.rows else ""


def _render_slices(report: Report) -> str:
    if not report.slices:
        return ""
    *differences, summary = tables.describe_slices(report) or [""]
    listed = "".join(f'<li class="shown">{escape(difference)}</li>' for difference in differences)
    body = f'<ul class="verdicts">{listed}</ul><p>{escape(summary)}</p>' if summary else ""
    return render_section(
        "Slices", *(render_table(tables.tabulate_slice(report, kind)) for kind in report.slices), body
    )


def _render_questions(report: Report, traces: "Traces | None") -> str:
    inside = "".join(render_question(report, index, traces) for index in range(report.n))
    boxes = _render_checkbox("differ", "flows differ") * (len(report.flows) > 1) + _render_checkbox("failed", "failed")
    kinds = sorted({kind for item in report.items for kind in kinds_of(item, TYPE)})
    options = "".join(f'<option value="{escape(kind)}">{escape(kind or "(none)")}</option>' for kind in kinds)
    all_option = '<option value="*">all types</option>'
    by_type = f'<select id="kind" aria-label="type">{all_option}{options}</select>' if len(kinds) > 1 else ""
    return render_section(
        "Questions",
        '<div class="filter"><input type="search" id="text" placeholder="Find in questions, answers and passages">'
        f'{by_type}{boxes}<span id="count" class="soft"></span></div>{_render_heading(report)}{inside}',
    )


def _render_checkbox(name: str, label: str) -> str:
    return f'<label><input type="checkbox" id="{name}"> {label}</label>'


def _render_heading(report: Report) -> str:
    """Render what the numbers beside the questions are."""
    measure = next(
        (measurement.measure for measurement in report.flows[0].measured if measurement.measure in report.units), ""
    )
    if not measure:
        return ""
    flows = ", ".join(flow.flow for flow in report.flows)
    text = f"Beside each question: {measure}, or the first that says anything of it, of {flows}."
    return f'<p class="soft">{escape(text)}</p>'


Traces: TypeAlias = Callable[[str, int], Sequence[TraceSpan]]
"""The spans of a run and a lane, in order; none where they are not kept any more."""


CHARACTERS = 240
"""Of a passage or a query that are shown."""
SHOWN_PASSAGES = 10
"""Passages that are shown."""
ANSWER_CHARACTERS = 20_000
"""Characters of an answer that are shown."""


def render_question(report: Report, index: int, traces: Traces | None) -> str:
    """Render the question at an index, closed; opened it shows everything."""
    item, cells = report.items[index], [report.table.cell(flow, index) for flow in range(len(report.flows))]
    differ = any(cell.observations != cells[0].observations for cell in cells)
    failed = any(isinstance(cell.case.result, Failure) for cell in cells)
    chips = "".join(_render_chip(cell, report) for cell in cells)
    return (
        f'<details class="question" data-differ="{int(differ)}" data-failed="{int(failed)}" '
        f'data-kinds="{escape(json.dumps(kinds_of(item, TYPE)))}"><summary>'
        f'<span class="id" title="{escape(item.id)}">{escape(item.id)}</span>'
        f'<span class="asked">{escape(item.question)}</span>{chips}</summary><div class="inside">{_render_gold(item)}'
        f'<div class="flows">{"".join(_render_flow(report, cell, traces) for cell in cells)}</div></div></details>'
    )


def _render_chip(cell: Cell, report: Report) -> str:
    """Render the first measure that has a number for the question."""
    for measure, observation in cell.observations.items():
        if observation is not None and measure in report.units:
            kind = "full" if observation[0] >= 1 else "none" if observation[0] <= 0 else "part"
            title, number = escape(f"{cell.flow}: {measure}"), format_number(observation[0], True)
            return f'<span class="chip {kind}" title="{title}">{number}</span>'
    return ""


def _render_gold(item: Item) -> str:
    answers = f"answers: {escape(' / '.join(item.answers))}" if item.answers else ""
    gold = " and ".join(" or ".join(map(str, group)) for group in item.gold)
    passages = f"gold passages: {escape(gold)}" if gold else ""
    kind = f"type: {escape(item.type)}" if item.type else ""
    return f'<div class="gold soft">{" · ".join(part for part in (answers, passages, kind) if part)}</div>'


def _render_flow(report: Report, cell: Cell, traces: Traces | None) -> str:
    result, item = cell.case.result, cell.case.item
    scores = " · ".join(
        f"{escape(name)} {_format_score(observation, name in report.units)}"
        for name, observation in cell.observations.items()
    )
    searches = (
        (retrieval.source or "retriever", len(retrieval), retrieval.query.text[:CHARACTERS])
        for retrieval in cell.case.retrievals
    )
    calls = "".join(f"<div>{escape(f'{source} found {n} for “{query}”')}</div>" for source, n, query in searches)
    hits = "".join(_render_hit(hit, item) for hit in shown_hits(cell.case)[:SHOWN_PASSAGES] if hit.node.text)
    failure = ""
    if isinstance(result, Failure):
        failure = f'<div class="error">{escape(f"{result.kind}: {result.message}")}</div>'
    wrong = (f"{step.step}: {reason}" for step in cell.steps for reason, _ in step.reasons)
    failure += "".join(f'<div class="warning">{escape(warning)}</div>' for warning in wrong)
    answer = ""
    if isinstance(result, Answer):
        text, reason = escape(result.text[:ANSWER_CHARACTERS]), escape(result.stop_reason)
        answer = f'<div class="answer">{text} <span class="soft">({reason})</span></div>'
    duration = f"{'≥ ' * cell.cached}{tables.format_seconds(cell.seconds)}"
    return (
        f'<div class="flow"><h4>{escape(cell.flow)}</h4><div class="numbers">{scores}</div>{failure}'
        f"{answer}<ol>{hits}</ol>"
        f'<div class="trace">{duration}{calls}{_render_steps(cell, traces)}</div></div>'
    )


def _format_score(numbers: tuple[float, ...] | None, unit: bool) -> str:
    if numbers is None:
        return "undetermined"
    return ", ".join(format_number(score, unit) for score in numbers[:2]) + (" …" if len(numbers) > 2 else "")


def _render_hit(hit: Hit, item: Item) -> str:
    node = hit.node
    overlaps_quote = node.span is not None and any(
        quote.document == node.document and node.span.start < quote.end and quote.start < node.span.end
        for quote in item.quotes
    )
    is_gold_node = any(gold in (node.id, node.document) for group in item.gold for gold in group)
    kind = "gold-hit" if overlaps_quote or is_gold_node else ""
    name = escape(node.uri or node.document or node.id)
    text = escape(node.text if len(node.text) <= CHARACTERS else f"{node.text[: CHARACTERS - 1]}…")
    parts = f'<span class="soft">({escape(hit.parts_text)})</span> ' if hit.parts else ""
    return f'<li class="{kind}"><b>{name}</b> {hit.score:.4g} {parts}<span class="soft">{text}</span></li>'


def _render_steps(cell: Cell, traces: Traces | None) -> str:
    spans = traces(cell.run, cell.lane) if traces is not None and cell.lane else ()
    if not spans:
        return f"<div>run {escape(cell.run)}, question {cell.lane}</div>" if cell.lane else ""
    depth: dict[int, int] = {}
    lines = []
    for span in spans:
        depth[span.span] = depth.get(span.parent, -1) + 1
        cells = [
            f"{'  ' * depth[span.span]}{span.step}",
            tables.format_seconds(span.seconds),
            *["cached"] * span.cached,
        ]
        lines.append("  ".join(cells) + "".join(f"\n{'  ' * depth[span.span]}  ! {note}" for note in span.notes))
    summary = f"{len(spans)} step{'' if len(spans) == 1 else 's'}, run {escape(cell.run)}"
    return f"<details><summary>{summary}</summary><pre>{escape(chr(10).join(lines))}</pre></details>"
