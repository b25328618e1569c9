"""`spolia gate`: whether a flow has become worse than it was."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from spolia.cli.commands.eval import DATA, MEASURES, WHAT, refuse_other_kinds
from spolia.cli.exit_codes import Exit
from spolia.cli.options import FLOWS, MeasuringOptions, argument, option
from spolia.cli.screen import Screen, json_text
from spolia.core.plurals import several
from spolia.errors import DataError

if TYPE_CHECKING:
    from spolia.evaluation.gate.baseline import Baseline

KINDS = (".md", ".json")
RULE = (
    "The rule: `not-worse` (the default) passes if every measure is shown to be not worse (no question scores "
    "otherwise, or the 95 % interval of the paired difference ends above minus the tolerance); `worse`, where none is "
    "shown to be worse."
)
Flow = Annotated[str | None, argument("FLOW", f"{FLOWS} By default that of the baseline.")]
BaselineFile = Annotated[Path, option("--baseline FILE", "The baseline, kept beside the code.")]
Data = Annotated[Path | None, option("--data DATA", f"{DATA} By default that of the baseline.")]
Tolerances = Annotated[
    list[str] | None,
    option(
        "--tolerance NUMBER",
        "How much worse a measure may be, by default 0.05: 5 points of 100 where scores lie between 0 and 1, "
        "elsewhere a twentieth of what it was. MEASURE=NUMBER for one of them; repeatable.",
    ),
]
ReportFiles = Annotated[list[Path] | None, option("--report FILE", "Write a report: .md or .json; repeatable.")]


def gate(
    given: MeasuringOptions,
    baseline: BaselineFile,
    flow: Flow = None,
    data: Data = None,
    write: Annotated[bool, option("--write", "Write the baseline from the current flow.")] = False,
    measures: Annotated[str, option("--measures LIST", f"With --write. {WHAT}")] = "",
    tolerance: Tolerances = None,
    rule: Annotated[str, option("--rule NAME", RULE)] = "",
    report: ReportFiles = None,
    overlap: Annotated[bool, option("--overlap", "With --write: allow questions that flows were selected on.")] = False,
) -> Exit:
    """Ask a flow the questions of a baseline again; report whether it got worse, on which questions, and why.

    The causes: changed documents, a corpus split differently, a ranker that orders the same nodes differently, and
    different answers from the same passages. Exit code 0 if it passes, 1 if not, 2 if the two cannot be compared, 5 if
    a step failed on every call, or if it passes with questions that failed. With `--write` the baseline is written
    instead: of `--measures`, `--split`, `--limit`. It keeps flow, data, store, part, tolerances, rule, `--known`,
    `--prompts`, `--web`, `--retriever`, `--profile` and `--llm simulated`, with paths from where it is.
    Options that you write override it.
    """
    from spolia.cli import reports
    from spolia.cli.experiments import SIMULATED, EvaluationRun, GateOptions
    from spolia.evaluation.data.json_lines import whole_files
    from spolia.evaluation.report.gate_report import markdown

    screen = Screen(json=given.json)
    refuse_other_kinds(report or (), KINDS)
    before = _before(baseline, write)
    if not write and (measures or given.split or given.limit is not None or given.seed or overlap):
        raise DataError(
            "The baseline fixes the measures and the questions: --measures, --split, --limit, --seed and --overlap "
            "go with --write."
        )
    which = given.split, str(given.limit or ""), str(given.seed or ""), tuple(tolerance or ()), rule
    how = tuple(given.known or ()), str(given.prompts or ""), tuple(given.web or ())
    simulated = given.llm if given.llm == SIMULATED else ""
    said = GateOptions(
        flow or "", str(data or ""), given.store or "", *which, *how, given.retriever, given.profile, simulated
    )
    if before is not None:
        said = said.over(GateOptions.read(before.command, baseline))
    if not said.flow or not said.data:
        raise DataError(f"{baseline} does not say which flow and data it is of. Write FLOW and --data DIR.")
    decides = _deciding(said.tolerance, said.rule)
    given = replace(
        given,
        split=said.split,
        limit=int(said.limit) if said.limit and write else None,
        seed=int(said.seed or 0),
        known=list(said.known),
        web=list(said.web),
        retriever=said.retriever,
        profile=said.profile,
        llm=given.llm or said.llm,
        store=said.store or None,
        prompts=Path(said.prompts) if said.prompts else None,
    )
    asked = EvaluationRun(screen, Path(said.data), given)
    if write:
        wanted = measures or ",".join(before.measures if before is not None else ()) or MEASURES
        measured, written = asked.baseline(said.flow, wanted, decides, overlap=overlap)
        _write(screen, written.but(command=said.kept(baseline)), baseline)
        return Exit.PARTLY if measured.is_partial(given.degraded) else Exit.DONE
    assert before is not None
    found = asked.gated(said.flow, before, baseline, **decides)
    for path in report or ():
        text = markdown(found) if path.suffix == ".md" else json_text(found.json()) + "\n"
        with whole_files(path) as (part,):
            part.write_text(text, "utf-8", errors="backslashreplace")
    screen.give(**found.json())
    reports.show_gate(screen, found)
    if found.passed or found.idle:
        return Exit.PARTLY if found.report.is_partial(given.degraded) else Exit.DONE
    return Exit.WORSE


def _before(path: Path, write: bool) -> "Baseline | None":
    """The baseline; where one is to be written, the one before it, if there is one that can be read."""
    from spolia.evaluation.gate.baseline import Baseline

    try:
        return Baseline.read(path)
    except DataError:
        if write:
            return None
        raise


def _write(screen: Screen, written: "Baseline", path: Path) -> None:
    written.write(path)
    questions = len(written.questions)
    screen.give(written=str(path), flow=written.flow, data=written.data, n=questions)
    screen.show(f"{path}: {written.flow} on {written.data}, {several(questions, 'question')}")


def _deciding(tolerances: Sequence[str], rule: str) -> dict[str, Any]:
    from spolia.evaluation.gate.gate import TOLERANCE

    general, each = TOLERANCE, dict[str, float]()
    for one in tolerances:
        measure, _, number = one.rpartition("=")
        try:
            value = float(number)
        except ValueError:
            raise DataError(f"--tolerance {one} is not a number. Write 0.05, or R@5=0.02.") from None
        if measure:
            each[measure] = value
        else:
            general = value
    return {"tolerance": general, "tolerances": each, "rule": rule or "not-worse"}
