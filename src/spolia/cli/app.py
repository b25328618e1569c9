"""The commands, gathered."""

from __future__ import annotations

import sys

import typer

from spolia.cli.doctor import doctor
from spolia.cli.exits import MEANING, Exit
from spolia.cli.guard import guarded
from spolia.cli.trace import trace

CODES = "Exit codes: " + "; ".join(f"{int(code)} {meaning}" for code, meaning in MEANING.items()) + "."

app = typer.Typer(
    name="spolia",
    help="Ask a folder of documents and get answers with citations; measure how good they are.",
    epilog=CODES,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (trace, doctor):
    app.command(command.__name__.replace("_", "-"))(guarded(command))


def run() -> None:
    """Run the command line."""
    try:
        app()
    except KeyboardInterrupt:
        sys.exit(int(Exit.INTERRUPTED))
