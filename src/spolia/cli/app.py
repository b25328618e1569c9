"""The commands, gathered."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from spolia.cli.ask import ask
from spolia.cli.check import check
from spolia.cli.doctor import doctor
from spolia.cli.eval import evaluate
from spolia.cli.exits import MEANING, Exit
from spolia.cli.fail_points import fail_points
from spolia.cli.guard import guarded
from spolia.cli.index import index
from spolia.cli.search import search
from spolia.cli.show import show
from spolia.cli.trace import trace

CODES = "Exit codes: " + "; ".join(f"{int(code)} {meaning}" for code, meaning in MEANING.items()) + "."


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        sys.stdout.write(f"spolia {version('spolia')}\n")
        raise typer.Exit


app = typer.Typer(
    name="spolia",
    help="Ask a folder of documents and get answers with citations; measure how good they are.",
    epilog=CODES,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def _common(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_version, is_eager=True)
    ] = False,
) -> None: ...


app.command("index")(guarded(index))
app.command("search")(guarded(search))
app.command("ask")(guarded(ask))
app.command("eval")(guarded(evaluate))
app.command("check")(guarded(check))
app.command("show")(guarded(show))
app.command("trace")(guarded(trace))
app.command("doctor")(guarded(doctor))
app.command("fail-points", hidden=True)(guarded(fail_points))


def run() -> None:
    """Run the command line."""
    try:
        app()
    except KeyboardInterrupt:
        sys.exit(int(Exit.INTERRUPTED))
