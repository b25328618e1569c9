"""What experiments and gates say, on a screen and as files."""

from pathlib import Path

from spolia.cli.screen import Renderable, Screen, json_text, table
from spolia.evaluation.data.json_lines import whole_files
from spolia.evaluation.experiment.results import Report
from spolia.evaluation.gate.gate import Gate
from spolia.evaluation.report import gate_report, tables
from spolia.evaluation.report.html import Traces, html

TOLD, VERDICTS = 40, 10
"""How many rows of a table and how many verdicts are printed; a report has all."""


def write_report(found: Report, path: Path, traces: Traces | None) -> None:
    if path.suffix == ".json":
        text = json_text(found.json(), ascii_only=False) + "\n"
    elif path.suffix == ".md":
        text = tables.markdown(found)
    else:
        text = html(found, traces)
    with whole_files(path) as (part,):
        part.write_text(text, "utf-8", errors="backslashreplace")


def show_report(screen: Screen, found: Report) -> None:
    screen.show(f"{', '.join(one.flow for one in found.flows)} on {found.about}", _table(tables.scores(found)))
    took = tables.costs(found)
    screen.show(tables.under(found), _table(took.turned() if took.width > (screen.width or took.width) else took))
    if untimed := tables.untimed(found):
        screen.show(untimed)
    if (wrong := tables.degraded(found)).rows:
        screen.show(_table(wrong.but(rows=wrong.rows[:TOLD])))
        _more(screen, len(wrong.rows), "rows of degraded calls")
    shown = sorted(found.comparisons, key=lambda one: not one.shown)
    if shown and found.against:
        screen.show(_table(tables.verdicts(found)))
    else:
        for one in shown[:VERDICTS]:
            screen.show(one.verdict)
        _more(screen, len(shown), "verdicts", VERDICTS)
    if shown:
        screen.show(tables.corrected(found))
    if found.slices:
        made = tables.of_slices(found)
        screen.show(_table(made.but(rows=made.rows[:TOLD])), *tables.in_slices(found))
        _more(screen, len(made.rows), "rows of slices")
    for warning in found.warnings:
        screen.say(warning, "yellow")


def _more(screen: Screen, number: int, what: str, told: int = TOLD) -> None:
    if number > told:
        screen.say(f"... and {number - told} more {what}; --report FILE.md has all.")


def show_gate(screen: Screen, found: Gate) -> None:
    screen.show(found.sentence, _table(gate_report.verdicts(found)))
    for line in gate_report.why(found):
        screen.show(line)
    for headline, evidence in gate_report.questions(found):
        screen.show("", headline, *(f"  {line}" for line in evidence))
    for line in filter(None, (gate_report.left_out(found), *found.report.warnings)):
        screen.say(line, "yellow")


def _table(made: tables.Table) -> Renderable:
    return table(made.rows, *made.head)
