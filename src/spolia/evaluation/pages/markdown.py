"""A report as Markdown."""

from __future__ import annotations

from collections.abc import Iterable

from spolia.evaluation.pages.tables import TIMES, UNDER, Table, costs, of_slice, scores
from spolia.evaluation.report import Report


def markdown(report: Report) -> str:
    """The report as Markdown, to be committed or posted."""
    parts = [f"# {flat(report.about)}", *(f"**{flat(warning)}**" for warning in report.warnings)]
    parts += ["## Scores", table(scores(report)), UNDER]
    if report.comparisons:
        parts += ["## Verdicts", "\n".join(f"- {flat(one.verdict)}" for one in report.comparisons), corrected(report)]
    parts += ["## Time and cost", table(costs(report)), TIMES]
    if report.slices:
        parts += ["## Slices", *(table(of_slice(report, kind)) for kind in report.slices)]
    parts += ["## Flows", "\n".join(f"- {flat(flow.flow)}: `{flat(flow.notation)}`" for flow in report.flows)]
    return "\n\n".join(parts) + "\n"


def table(made: Table) -> str:
    """One table."""
    rule = ("---", *("--:" for _ in made.head[1:]))
    return "\n".join(_line(row) for row in (made.head, rule, *made.rows))


def corrected(report: Report) -> str:
    """How the verdicts were come by."""
    how = {"holm": "Holm's correction", "bh": "the correction of Benjamini and Hochberg", "none": "no correction"}
    return (
        f"A difference is shown where its interval excludes zero and the paired permutation test gives p < 0.05 with "
        f"{how[report.correction]} for {len(report.comparisons)} comparisons. What is not shown may still be there."
    )


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(flat(cell).replace('|', chr(92) + '|') for cell in cells)} |"


def flat(text: str) -> str:
    """The text in one line."""
    return " ".join(text.split())
