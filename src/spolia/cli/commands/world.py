"""`spolia world`: an invented world to measure flows on."""

from pathlib import Path
from typing import Annotated

import typer

from spolia.cli.exit_codes import Exit
from spolia.cli.options import AsJson, argument, option
from spolia.cli.screen import Screen


def world(
    out: Annotated[Path, argument("FOLDER", "Where to write corpus.jsonl and questions.jsonl.")],
    seed: Annotated[int, typer.Option("--seed", help="The same seed gives the same files.")] = 0,
    people: Annotated[int, option("--people", "How many; the whole world grows with them.", min=20)] = 500,
    questions: Annotated[int, option("--questions", "How many are drawn.", min=0)] = 300,
    variant: Annotated[
        str,
        option("--variant NAME", "`split`: half of the documents are in a second source; `contradicting`: all are."),
    ] = "",
    json: AsJson = False,
) -> Exit:
    """Write a data set of invented people, towns, companies and works, with questions of one to six hops."""
    from spolia.evaluation.simulation.world import FictionalWorld

    screen = Screen(json=json)
    made = FictionalWorld(seed, people, questions, variant)  # type: ignore[arg-type]  # refused there
    digest = made.write(out, replace=False)
    screen.give(sha256=digest, path=str(out), questions=questions)
    screen.write(f"{out}: {questions} questions, sha256 {digest}")
    return Exit.DONE
