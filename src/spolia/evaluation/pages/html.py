"""A report as one page of HTML that needs nothing else: tables, plots, every question down to its steps."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from pathlib import Path

from spolia.evaluation.comparison import Comparison
from spolia.evaluation.pages.curves import of_risk
from spolia.evaluation.pages.plots import of_differences, of_scores, of_times
from spolia.evaluation.pages.question import Traces, question
from spolia.evaluation.pages.tables import TIMES, Table, corrected, costs, in_slices, of_slice, scores, under
from spolia.evaluation.report import Report
from spolia.evaluation.slices import TYPE, kinds_of

HERE = Path(__file__).parent
POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"
"""What stands in a question, a document or an answer can load nothing and call nobody."""


def html(report: Report, traces: Traces | None = None) -> str:
    """The page.

    Args:
        traces: the steps of a question; without them the page says where they are.
    """
    title = escape(f"{report.data or 'Experiment'}: {', '.join(flow.flow for flow in report.flows)}")
    body = (
        f"<h1>{title}</h1><p>{escape(report.about)}</p>",
        *(f'<div class="warning">{escape(warning)}</div>' for warning in report.warnings),
        _section("Scores", _table(scores(report)), f"<p>{under(report)}</p>", _plots(of_scores(report))),
        _risk(report),
        _verdicts(report),
        _section("Time and cost", _table(costs(report)), f"<p>{TIMES}</p>", _plots(of_times(report))),
        _slices(report),
        _section("Flows", *(f"<h3>{escape(one.flow)}</h3><code>{escape(one.notation)}</code>" for one in report.flows)),
        _questions(report, traces),
    )
    look, script = ((HERE / name).read_text("utf-8") for name in ("look.css", "filter.js"))
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{look}</style></head>'
        f"<body>{''.join(body)}<script>{script}</script></body></html>\n"
    )


def _section(title: str, *parts: str) -> str:
    return f"<h2>{escape(title)}</h2>{''.join(parts)}"


def _table(made: Table) -> str:
    head = "".join(f"<th>{escape(cell)}</th>" for cell in made.head)
    rows = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in made.rows)
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'


def _plots(plots: Iterable[tuple[str, str]]) -> str:
    return f'<div class="plots">{"".join(f"<div><h3>{escape(name)}</h3>{svg}</div>" for name, svg in plots)}</div>'


def _risk(report: Report) -> str:
    """What a flow would be wrong in if it answered only what it is surest of."""
    if not report.curves:
        return ""
    said = (
        "Answers in the order of how sure a flow is, the surest first: of so many answered (coverage), so many are "
        "wrong (risk), both of 100. A line ends where its flow answers no more; AURC is its mean height, over all "
        "questions."
    )
    return _section("Risk and coverage", _plots(of_risk(report)), f"<p>{said}</p>")


def _verdicts(report: Report) -> str:
    if not report.comparisons:
        return ""
    listed = "".join(_verdict(one) for one in sorted(report.comparisons, key=lambda one: not one.shown))
    return _section(
        "Verdicts",
        f'<ul class="verdicts">{listed}</ul><p>{escape(corrected(report))}</p>',
        _plots(of_differences(report)),
    )


def _verdict(one: Comparison) -> str:
    return f'<li class="{"shown" if one.shown else ""}">{escape(one.verdict)}</li>'


def _slices(report: Report) -> str:
    if not report.slices:
        return ""
    *shown, how = in_slices(report) or [""]
    listed = "".join(f'<li class="shown">{escape(one)}</li>' for one in shown)
    said = f'<ul class="verdicts">{listed}</ul><p>{escape(how)}</p>' if how else ""
    return _section("Slices", *(_table(of_slice(report, kind)) for kind in report.slices), said)


def _questions(report: Report, traces: Traces | None) -> str:
    """Every question, with what makes it easy to find those that matter."""
    inside = "".join(question(report, item, traces) for item in report.items)
    boxes = _box("differ", "flows differ") * (len(report.flows) > 1) + _box("failed", "failed")
    kinds = sorted({kind for item in report.items for kind in kinds_of(item, TYPE)})
    options = "".join(f'<option value="{escape(one)}">{escape(one or "(none)")}</option>' for one in kinds)
    every = '<option value="*">all types</option>'
    by_type = f'<select id="kind" aria-label="type">{every}{options}</select>' if len(kinds) > 1 else ""
    return _section(
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
