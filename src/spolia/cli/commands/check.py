"""`spolia check`: what is wrong with a flow, before anything is spent on it."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from spolia.cli.exit_codes import Exit
from spolia.cli.options import AllowEnv, AsJson, FlowArgument, Known, MaybeStore, OwnPrompts, Web
from spolia.cli.screen import Renderable, Screen, text, visible

if TYPE_CHECKING:
    from spolia.core.check import Checked


def check(
    flow: FlowArgument,
    store: MaybeStore = None,
    known: Known = None,
    allow_env: AllowEnv = None,
    prompts: OwnPrompts = None,
    web: Web = None,
    json: AsJson = False,
) -> Exit:
    """Look for what would go wrong in a flow: wiring, arms that never run, loops without end, missing capabilities."""
    from spolia.cli.destinations import sent_by, sent_lines
    from spolia.cli.flow_parts import described, looked_at
    from spolia.core.check import check as look
    from spolia.types import Query

    screen, parts = Screen(json=json), looked_at(store, known, prompts, web)
    looked = described(flow, parts)
    found, sends = look(looked, takes=Query), list(sent_by(looked, parts.given().values()))
    screen.give(
        flow=flow,
        ok=found.ok,
        takes=found.takes,
        gives=found.gives,
        calls=found.calls,
        open=dict(found.open),
        sends=sends,
        problems=[{"place": problem.place, "message": problem.message} for problem in found.problems],
    )
    screen.show(_report(found, sent_lines(sends)))
    return Exit.DONE if found.ok else Exit.USAGE


def _report(found: "Checked", sends: Iterable[str]) -> Renderable:
    calls = "without a known bound on calls" if found.calls is None else f"at most {found.calls} calls"
    report = text(f"{found.takes} → {found.gives}, {calls} to language models")
    for place, size in found.open:
        report.append(f"\nopen     {place}: {size} candidates", "yellow")
    for line in sends:
        report.append("\nsends    ", "yellow").append(visible(line))
    for problem in found.problems:
        report.append("\nproblem  ", "bold red").append(str(problem))
    return report if found.problems else report.append("\nno problem found", "green")
