"""`spolia gate`: whether a flow has become worse than it was."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from spolia.cli.eval import DATA, MEASURES, WHAT, Limit, OverStore, Part
from spolia.cli.exits import Exit
from spolia.cli.options import FLOWS, AsJson, Known, ModelName, ModelUrl, Weights
from spolia.cli.plain import json_text
from spolia.cli.reports import refuse_other_kinds
from spolia.cli.screen import Screen
from spolia.errors import DataError

if TYPE_CHECKING:
    from spolia.cli.evaluated import Evaluated
    from spolia.evaluation.gate.baseline import Baseline
    from spolia.evaluation.gate.gating import Gate

KINDS = (".md", ".json")
RULE = (
    "What passes: `not-worse`, where every measure is shown to be not worse (no question scores otherwise, or the 95 % "
    "interval of the paired difference ends above minus the tolerance); `worse`, where none is shown to be worse."
)
Flow = Annotated[
    str | None, typer.Argument(metavar="FLOW", help=f"{FLOWS} By default that of the baseline.", show_default=False)
]
File = Annotated[
    Path, typer.Option("--baseline", metavar="FILE", help="The baseline, kept beside the code.", show_default=False)
]
Data = Annotated[
    Path | None,
    typer.Option("--data", metavar="DIR", help=f"{DATA} By default that of the baseline.", show_default=False),
]
Tolerances = Annotated[
    list[str] | None,
    typer.Option(
        "--tolerance",
        metavar="NUMBER",
        help="How much worse a measure may be, by default 0.05: 5 points of 100 where scores lie between 0 and 1, "
        "elsewhere a twentieth of what it was. MEASURE=NUMBER for one of them; repeat it.",
        show_default=False,
    ),
]
Written = Annotated[
    list[Path] | None,
    typer.Option(
        "--report", metavar="FILE", help="Write what is said as .md or .json; repeat it for both.", show_default=False
    ),
]


def gate(
    baseline: File,
    flow: Flow = None,
    data: Data = None,
    store: OverStore = None,
    write: Annotated[bool, typer.Option("--write", help="Write the baseline: what the flow makes of it now.")] = False,
    measures: Annotated[
        str, typer.Option("--measures", metavar="LIST", help=f"With --write. {WHAT}", show_default=False)
    ] = "",
    split: Part = "",
    limit: Limit = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Decides which questions are drawn.")] = 0,
    tolerance: Tolerances = None,
    rule: Annotated[str, typer.Option("--rule", metavar="NAME", help=RULE)] = "not-worse",
    report: Written = None,
    known: Known = None,
    llm: ModelUrl = "",
    model: ModelName = "",
    weights: Weights = "",
    json: AsJson = False,
) -> Exit:
    """Ask a flow the questions of a baseline again, and say whether it has become worse, on which questions, and why.

    Told apart are documents that changed, a corpus that was cut otherwise, a ranker that orders the same nodes
    otherwise, and other answers from the same passages. Exit code 0 if it passes, 1 if not, 2 if the two cannot be
    compared. With `--write` the baseline is written instead: of `--measures`, `--split`, `--limit`.
    """
    from spolia.cli.evaluated import Evaluated
    from spolia.cli.own import own

    screen = Screen(json=json)
    refuse_other_kinds(report or (), KINDS)
    before = _before(baseline, write)
    said = before.command if before is not None else {}
    flow, folder = flow or said.get("flow", ""), data or Path(said.get("data", ""))
    store = store or said.get("store") or None
    if not flow or folder == Path():
        raise DataError(f"{baseline} does not say which flow and data it is of. Write FLOW and --data DIR.")
    part = split if write else said.get("split", "")
    asked = Evaluated(screen, folder, part, limit, seed, llm, model, weights, own(known).operators, store)
    if write:
        _write(asked, flow, measures or ",".join(before.measures if before is not None else ()) or MEASURES, baseline)
        return Exit.DONE
    if before is None or measures or split or limit is not None or seed:
        raise DataError(
            "The baseline says what is measured and asked: --measures, --split, --limit and --seed go with --write."
        )
    found = _compared(asked, flow, before, tolerance or (), rule)
    for path in report or ():
        path.write_text(_text(found, path), "utf-8", errors="backslashreplace")
    screen.give(**found.json())
    _show(screen, found)
    return Exit.DONE if found.passed else Exit.WORSE


def _before(path: Path, write: bool) -> Baseline | None:
    """The baseline; where one is to be written, the one before it, if there is one that can be read."""
    from spolia.evaluation.gate.baseline import Baseline

    try:
        return Baseline.read(path)
    except DataError:
        if write:
            return None
        raise


def _write(asked: Evaluated, flow: str, measures: str, path: Path) -> None:
    """Ask the flow, and write down what it makes of the questions, and how it was asked."""
    written = asked.baseline(flow, measures)
    written.write(path)
    asked.screen.give(written=str(path), flow=written.flow, data=written.data, n=len(written.questions))
    asked.screen.show(f"{path}: {written.flow} on {written.data}, {len(written.questions)} questions")


def _compared(asked: Evaluated, flow: str, before: Baseline, tolerances: list[str] | tuple[()], rule: str) -> Gate:
    from spolia.evaluation.gate.gating import TOLERANCE

    general, each = TOLERANCE, dict[str, float]()
    for one in tolerances:
        measure, _, number = one.rpartition("=")
        try:
            value = float(number)
        except ValueError:
            raise DataError(f"--tolerance {one} is no number. Write 0.05, or R@5=0.02.") from None
        if measure:
            each[measure] = value
        else:
            general = value
    return asked.gated(flow, before, tolerance=general, tolerances=each, rule=rule.replace("-", " "))


def _text(found: Gate, path: Path) -> str:
    from spolia.evaluation.pages.gated import markdown

    return markdown(found) if path.suffix == ".md" else json_text(found.json()) + "\n"


def _show(screen: Screen, found: Gate) -> None:
    from spolia.cli.eval import as_table
    from spolia.evaluation.pages.gated import left_out, questions, verdicts, why

    screen.show(found.sentence, as_table(verdicts(found)))
    for line in why(found):
        screen.show(line)
    for headline, evidence in questions(found):
        screen.show("", headline, *(f"  {line}" for line in evidence))
    for line in filter(None, (left_out(found), *found.report.warnings)):
        screen.say(line, "yellow")
