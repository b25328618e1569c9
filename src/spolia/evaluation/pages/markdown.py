"""A report as Markdown."""

from __future__ import annotations

from collections.abc import Iterable

from spolia.evaluation.pages.tables import TIMES, Table, corrected, costs, in_slices, of_slice, scores, under
from spolia.evaluation.report import Report


def markdown(report: Report) -> str:
    """The report as Markdown, to be committed or posted."""
    parts = [f"# {flat(report.about)}", *(f"**{flat(warning)}**" for warning in report.warnings)]
    parts += ["## Scores", table(scores(report)), under(report)]
    if report.comparisons:
        parts += ["## Verdicts", "\n".join(f"- {flat(one.verdict)}" for one in report.comparisons), corrected(report)]
    parts += ["## Time and cost", table(costs(report)), TIMES]
    if report.slices:
        parts += ["## Slices", *(table(of_slice(report, kind)) for kind in report.slices)]
        parts += ["\n".join(f"- {flat(one)}" for one in in_slices(report))] if len(report.flows) > 1 else []
    parts += ["## Flows", "\n".join(f"- {flat(flow.flow)}: `{flat(flow.notation)}`" for flow in report.flows)]
    return "\n\n".join(parts) + "\n"


def table(made: Table) -> str:
    """One table."""
    rule = ("---", *("--:" for _ in made.head[1:]))
    return "\n".join(_line(row) for row in (made.head, rule, *made.rows))


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(flat(cell).replace('|', chr(92) + '|') for cell in cells)} |"


def flat(text: str) -> str:
    """The text in one line."""
    return " ".join(text.split())
