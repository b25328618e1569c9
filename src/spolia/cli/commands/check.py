"""`spolia check`: what is wrong with a flow, before anything is spent on it."""

from typing import TYPE_CHECKING

from spolia.cli.exit_codes import Exit
from spolia.cli.options import AllowEnv, AsJson, FlowArgument, Known, MaybeStore, OwnPrompts
from spolia.cli.screen import Screen, visible

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.text import Text

    from spolia.core.check import Checked


def check(
    flow: FlowArgument,
    store: MaybeStore = None,
    known: Known = None,
    allow_env: AllowEnv = None,
    prompts: OwnPrompts = None,
    json: AsJson = False,
) -> Exit:
    """Look for what would go wrong in a flow: wiring, arms that never run, loops without end, missing capabilities."""
    from spolia.cli.destinations import sent_by, sent_lines
    from spolia.cli.stand_ins import described, looked_at
    from spolia.core.check import check as look
    from spolia.types import Query

    screen, parts = Screen(json=json), looked_at(store, known, prompts)
    looked = described(flow, parts)
    found, sends = look(looked, takes=Query), list(sent_by(looked, parts))
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


def _report(found: "Checked", sends: "Iterable[str]") -> "Text":
    from rich.text import Text

    calls = "without a known bound on calls" if found.calls is None else f"at most {found.calls} calls"
    text = Text(f"{found.takes} → {found.gives}, {calls} to language models")
    for place, size in found.open:
        text.append(f"\nopen     {place}: {size} candidates", "yellow")
    for line in sends:
        text.append("\nsends    ", "yellow").append(visible(line))
    for problem in found.problems:
        text.append("\nproblem  ", "bold red").append(str(problem))
    return text if found.problems else text.append("\nno problem found", "green")
