"""Reports of experiments and gates, on a screen and as files."""

from pathlib import Path

from spolia.cli.screen import Renderable, Screen, json_text, table
from spolia.evaluation.data.json_lines import replace_files
from spolia.evaluation.experiment.results import Report
from spolia.evaluation.gate.gate import Gate
from spolia.evaluation.report import gate_report, tables
from spolia.evaluation.report.html import Traces, html

MAX_ROWS, MAX_VERDICTS = 40, 10
"""How many rows of a table and how many verdicts are printed; a report has all."""


def write_report(report: Report, path: Path, traces: Traces | None) -> None:
    if path.suffix == ".json":
        text = json_text(report.json(), ascii_only=False) + "\n"
    elif path.suffix == ".md":
        text = tables.markdown(report)
    else:
        text = html(report, traces)
    with replace_files(path) as (part,):
        part.write_text(text, "utf-8", errors="backslashreplace")  # questions can hold half characters


def show_report(screen: Screen, report: Report) -> None:
    screen.show(
        f"{', '.join(flow.flow for flow in report.flows)} on {report.about}",
        _render_table(tables.tabulate_scores(report)),
    )
    costs = tables.tabulate_costs(report)
    screen.show(
        tables.explain_scores(report),
        # Too wide for the terminal: turned.
        _render_table(costs.transpose() if costs.width > (screen.width or costs.width) else costs),
    )
    if untimed := tables.explain_untimed(report):
        screen.show(untimed)
    if (degraded_table := tables.tabulate_degraded(report)).rows:
        screen.show(_render_table(degraded_table.but(rows=degraded_table.rows[:MAX_ROWS])))
        _print_omitted(screen, len(degraded_table.rows), "rows of degraded calls")
    comparisons = sorted(report.comparisons, key=lambda comparison: not comparison.shown)
    if comparisons and report.against:
        screen.show(_render_table(tables.tabulate_verdicts(report)))
    else:
        for comparison in comparisons[:MAX_VERDICTS]:
            screen.show(comparison.verdict)
        _print_omitted(screen, len(comparisons), "verdicts", MAX_VERDICTS)
    if comparisons:
        screen.show(tables.explain_verdicts(report))
    if report.slices:
        slices_table = tables.tabulate_slices(report)
        screen.show(_render_table(slices_table.but(rows=slices_table.rows[:MAX_ROWS])), *tables.describe_slices(report))
        _print_omitted(screen, len(slices_table.rows), "rows of slices")
    for warning in report.warnings:
        screen.say(warning, "yellow")


def _print_omitted(screen: Screen, number: int, things: str, limit: int = MAX_ROWS) -> None:
    if number > limit:
        screen.say(f"... and {number - limit} more {things}; --report FILE.md has all.")


def show_gate(screen: Screen, outcome: Gate) -> None:
    screen.show(outcome.sentence, _render_table(gate_report.verdict_table(outcome)))
    for line in gate_report.list_reasons(outcome):
        screen.show(line)
    for headline, evidence in gate_report.list_questions(outcome):
        screen.show("", headline, *(f"  {line}" for line in evidence))
    for line in filter(None, (gate_report.format_omitted(outcome), *outcome.report.warnings)):
        screen.say(line, "yellow")


def _render_table(report_table: tables.Table) -> Renderable:
    return table(report_table.rows, *report_table.head)
