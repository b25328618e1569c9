"""A report as one page of HTML that needs nothing else: tables, plots as SVG, every question down to its steps."""

import json
from collections.abc import Callable, Iterable, Sequence
from html import escape
from pathlib import Path
from typing import TypeAlias

from spolia.evaluation.experiment.comparison import TYPE, kinds_of, number
from spolia.evaluation.experiment.results import Report
from spolia.evaluation.experiment.score_table import Cell
from spolia.evaluation.measures.costs import shown
from spolia.evaluation.report import tables
from spolia.evaluation.report.plots import Bar, Points, curves_plot, plot
from spolia.journal import TraceSpan
from spolia.types import Answer, Failure, Hit, Item


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
        label, told = f"{one.better} over {one.other}", f"{number(i.mean, one.unit)}, {tables.p_value(one.adjusted)}"
        bar = Bar(label, times * i.low, times * i.mean, times * i.high, told, faint=not one.shown)
        found.setdefault(one.measure, []).append(bar)
    return [(measure, plot(bars, zero=True, title=f"differences of {measure}")) for measure, bars in found.items()]


def of_times(report: Report) -> list[tuple[str, str]]:
    """Bars from each flow's median to its 95th percentile, milliseconds."""
    bars = []
    for colour, flow in enumerate(report.flows):
        p50, p95 = flow.latency.p50_s, flow.latency.p95_s
        if p50 is not None and p95 is not None:
            told = f"{tables.seconds(p50)} to {tables.seconds(p95)}"
            bars.append(Bar(flow.flow, 1000 * p50, 1000 * p50, 1000 * p95, told, colour))
    name = "Milliseconds a question, from the median to the 95th percentile"
    return [(name, plot(bars, zero=True, title=name))] if bars else []


def of_risk(report: Report) -> list[tuple[str, str]]:
    """A plot for each measure of risk and coverage: its name and the curves of all flows. Each ends where its flow
    answers no more; under it is the risk of what is answered if it answered only what it is surest of."""
    found: dict[str, dict[str, Points]] = {}
    for measure, flow, points in report.curves:
        found.setdefault(measure, {})[flow] = points
    colours = {flow.flow: number for number, flow in enumerate(report.flows)}
    below, told = "coverage: answered of 100", "risk {1:.1f} at {0:.1f}"
    return [
        (measure, curves_plot(f"{measure}: risk by coverage", curves, colours, below, told))
        for measure, curves in found.items()
    ]


HERE = Path(__file__).parent
POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"
"""Text of a question, a document or an answer can load nothing and send nothing."""


def html(report: Report, traces: "Traces | None" = None) -> str:
    """The page; without `traces`, the steps of a question, it says where they are."""
    title = f"{report.data or 'Experiment'}: {', '.join(flow.flow for flow in report.flows)}"
    body = (
        f"<h1>{escape(title)}</h1><p>{escape(report.about)}</p>",
        *(f'<div class="warning">{escape(warning)}</div>' for warning in report.warnings),
        section("Scores", table(tables.scores(report)), f"<p>{tables.under(report)}</p>", plots(of_scores(report))),
        _risk(report),
        _verdicts(report),
        section(
            "Time and cost", table(tables.costs(report)), f"<p>{tables.times(report)}</p>", plots(of_times(report))
        ),
        _degraded(report),
        _slices(report),
        section("Flows", *(f"<h3>{escape(one.flow)}</h3><code>{escape(one.notation)}</code>" for one in report.flows)),
        _questions(report, traces),
    )
    return page(title, *body, script=(HERE / "filter.js").read_text("utf-8"))


def fragment(report: Report) -> str:
    """Scores and verdicts, as a notebook shows them; `html` has the rest."""
    warnings = "".join(f"<p>{escape(warning)}</p>" for warning in report.warnings)
    verdicts = "".join(f"<li>{escape(one.verdict)}</li>" for one in report.comparisons)
    return (
        f"<p>{escape(report.about)}</p>{warnings}{table(tables.scores(report))}"
        f"<p>{escape(tables.under(report))}</p><ul>{verdicts}</ul>"
    )


def page(title: str, *body: str, script: str = "") -> str:
    """A whole page, which can load nothing.

    Args:
        title: plain text.
        body: HTML.
    """
    look = (HERE / "look.css").read_text("utf-8")
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{look}</style></head>'
        f"<body>{''.join(body)}<script>{script}</script></body></html>\n"
    )


def section(title: str, *parts: str) -> str:
    """Parts under a heading."""
    return f"<h2>{escape(title)}</h2>{''.join(parts)}"


def table(made: tables.Table) -> str:
    """A table that is as wide as it must be."""
    head = "".join(f"<th>{escape(cell)}</th>" for cell in made.head)
    rows = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in made.rows)
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'


def plots(named: Iterable[tuple[str, str]]) -> str:
    """Plots beside each other, each under its name."""
    return f'<div class="plots">{"".join(f"<div><h3>{escape(name)}</h3>{svg}</div>" for name, svg in named)}</div>'


def _risk(report: Report) -> str:
    """What a flow would be wrong in if it answered only what it is surest of."""
    if not report.curves:
        return ""
    said = (
        "Answers in the order of how sure a flow is, the surest first: the share answered (coverage) and the share "
        "of these that is wrong (risk), both in per cent. A line ends where its flow answers no more; "
        "AURC is its mean height, over all questions."
    )
    return section("Risk and coverage", plots(of_risk(report)), f"<p>{said}</p>")


def _verdicts(report: Report) -> str:
    if not report.comparisons:
        return ""
    ordered = sorted(report.comparisons, key=lambda one: not one.shown)
    listed = "".join(f'<li class="{"shown" if one.shown else ""}">{escape(one.verdict)}</li>' for one in ordered)
    said = table(tables.verdicts(report)) if report.against else f'<ul class="verdicts">{listed}</ul>'
    return section("Verdicts", f"{said}<p>{escape(tables.corrected(report))}</p>", plots(of_differences(report)))


def _degraded(report: Report) -> str:
    wrong = tables.degraded(report)
    return section("Degraded calls", table(wrong), f"<p>{tables.DEGRADED}</p>") if wrong.rows else ""


def _slices(report: Report) -> str:
    if not report.slices:
        return ""
    *shown, how = tables.in_slices(report) or [""]
    listed = "".join(f'<li class="shown">{escape(one)}</li>' for one in shown)
    said = f'<ul class="verdicts">{listed}</ul><p>{escape(how)}</p>' if how else ""
    return section("Slices", *(table(tables.of_slice(report, kind)) for kind in report.slices), said)


def _questions(report: Report, traces: "Traces | None") -> str:
    inside = "".join(question(report, at, traces) for at in range(report.n))
    boxes = _box("differ", "flows differ") * (len(report.flows) > 1) + _box("failed", "failed")
    kinds = sorted({kind for item in report.items for kind in kinds_of(item, TYPE)})
    options = "".join(f'<option value="{escape(one)}">{escape(one or "(none)")}</option>' for one in kinds)
    every = '<option value="*">all types</option>'
    by_type = f'<select id="kind" aria-label="type">{every}{options}</select>' if len(kinds) > 1 else ""
    return section(
        "Questions",
        '<div class="filter"><input type="search" id="text" placeholder="Find in questions, answers and passages">'
        f'{by_type}{boxes}<span id="count" class="soft"></span></div>{_heading(report)}{inside}',
    )


def _box(name: str, label: str) -> str:
    return f'<label><input type="checkbox" id="{name}"> {label}</label>'


def _heading(report: Report) -> str:
    """What the numbers beside the questions are."""
    measure = next((one.measure for one in report.flows[0].measured if one.measure in report.units), "")
    if not measure:
        return ""
    flows = ", ".join(flow.flow for flow in report.flows)
    said = f"Beside each question: {measure}, or the first that says anything of it, of {flows}."
    return f'<p class="soft">{escape(said)}</p>'


Traces: TypeAlias = Callable[[str, int], Sequence[TraceSpan]]
"""The spans of a run and a lane, in order; none where they are not kept any more."""


CHARACTERS = 240
"""Of a passage or a query that are shown."""
READ = 10
"""Passages that are shown."""
LONGEST = 20_000
"""Characters of an answer that are shown."""


def question(report: Report, at: int, traces: Traces | None) -> str:
    """The question at a position, closed; opened it shows everything."""
    item, cells = report.items[at], [report.table.cell(flow, at) for flow in range(len(report.flows))]
    differ = any(cell.seen != cells[0].seen for cell in cells)
    failed = any(isinstance(cell.case.result, Failure) for cell in cells)
    chips = "".join(_chip(cell, report) for cell in cells)
    return (
        f'<details class="question" data-differ="{int(differ)}" data-failed="{int(failed)}" '
        f'data-kinds="{escape(json.dumps(kinds_of(item, TYPE)))}"><summary>'
        f'<span class="id" title="{escape(item.id)}">{escape(item.id)}</span>'
        f'<span class="asked">{escape(item.question)}</span>{chips}</summary><div class="inside">{_gold(item)}'
        f'<div class="flows">{"".join(_flow(report, cell, traces) for cell in cells)}</div></div></details>'
    )


def _chip(cell: Cell, report: Report) -> str:
    """The first measure that says anything of the question."""
    for measure, seen in cell.seen.items():
        if seen is not None and measure in report.units:
            kind = "full" if seen[0] >= 1 else "none" if seen[0] <= 0 else "part"
            return (
                f'<span class="chip {kind}" title="{escape(f"{cell.flow}: {measure}")}">{number(seen[0], True)}</span>'
            )
    return ""


def _gold(item: Item) -> str:
    answers = f"answers: {escape(' / '.join(item.answers))}" if item.answers else ""
    gold = " and ".join(" or ".join(map(str, group)) for group in item.gold)
    passages = f"gold passages: {escape(gold)}" if gold else ""
    kind = f"type: {escape(item.type)}" if item.type else ""
    return f'<div class="gold soft">{" · ".join(part for part in (answers, passages, kind) if part)}</div>'


def _flow(report: Report, cell: Cell, traces: Traces | None) -> str:
    result, item = cell.case.result, cell.case.item
    scores = " · ".join(f"{escape(name)} {_score(seen, name in report.units)}" for name, seen in cell.seen.items())
    asked = ((one.source or "retriever", len(one), one.query.text[:CHARACTERS]) for one in cell.case.retrievals)
    calls = "".join(f"<div>{escape(f'{source} found {n} for “{query}”')}</div>" for source, n, query in asked)
    hits = "".join(_hit(hit, item) for hit in shown(cell.case)[:READ] if hit.node.text)
    failure = ""
    if isinstance(result, Failure):
        failure = f'<div class="error">{escape(f"{result.kind}: {result.message}")}</div>'
    wrong = (f"{step.step}: {reason}" for step in cell.steps for reason, _ in step.reasons)
    failure += "".join(f'<div class="warning">{escape(one)}</div>' for one in wrong)
    answer = ""
    if isinstance(result, Answer):
        text, reason = escape(result.text[:LONGEST]), escape(result.stop_reason)
        answer = f'<div class="answer">{text} <span class="soft">({reason})</span></div>'
    taken = f"{'≥ ' * cell.cached}{tables.seconds(cell.seconds)}"
    return (
        f'<div class="flow"><h4>{escape(cell.flow)}</h4><div class="numbers">{scores}</div>{failure}'
        f"{answer}<ol>{hits}</ol>"
        f'<div class="trace">{taken}{calls}{_steps(cell, traces)}</div></div>'
    )


def _score(seen: tuple[float, ...] | None, unit: bool) -> str:
    if seen is None:
        return "undetermined"
    return ", ".join(number(one, unit) for one in seen[:2]) + (" …" if len(seen) > 2 else "")


def _hit(hit: Hit, item: Item) -> str:
    node = hit.node
    quoted = node.span is not None and any(
        one.document == node.document and node.span.start < one.end and one.start < node.span.end for one in item.quotes
    )
    named = any(one in (node.id, node.document) for group in item.gold for one in group)
    kind = "gold-hit" if quoted or named else ""
    name = escape(node.uri or node.document or node.id)
    text = escape(node.text if len(node.text) <= CHARACTERS else f"{node.text[: CHARACTERS - 1]}…")
    parts = f'<span class="soft">({escape(hit.parts_text)})</span> ' if hit.parts else ""
    return f'<li class="{kind}"><b>{name}</b> {hit.score:.4g} {parts}<span class="soft">{text}</span></li>'


def _steps(cell: Cell, traces: Traces | None) -> str:
    spans = traces(cell.run, cell.lane) if traces is not None and cell.lane else ()
    if not spans:
        return f"<div>run {escape(cell.run)}, question {cell.lane}</div>" if cell.lane else ""
    depth: dict[int, int] = {}
    lines = []
    for span in spans:
        depth[span.span] = depth.get(span.parent, -1) + 1
        told = [f"{'  ' * depth[span.span]}{span.step}", tables.seconds(span.seconds), *["cached"] * span.cached]
        lines.append("  ".join(told) + "".join(f"\n{'  ' * depth[span.span]}  ! {note}" for note in span.notes))
    summary = f"{len(spans)} step{'' if len(spans) == 1 else 's'}, run {escape(cell.run)}"
    return f"<details><summary>{summary}</summary><pre>{escape(chr(10).join(lines))}</pre></details>"
