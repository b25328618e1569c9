"""The commands, gathered."""

import sys
from collections.abc import Iterable
from importlib import import_module
from typing import Annotated, Any

import typer

from spolia.cli.exit_codes import MEANING, Exit, guarded, refusal
from spolia.cli.help_pages import HELP, HELP_ALL, HelpCommand, HelpGroup, missing_parameter
from spolia.cli.options import WRONG_USAGE, spread
from spolia.cli.screen import Screen

CODES = "Exit codes: " + "; ".join(f"{int(code)} {meaning}" for code, meaning in MEANING.items()) + "."


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        sys.stdout.write(f"spolia {version('spolia')}\n")
        raise typer.Exit


IN_QUOTES = 'Write the question in quotes: spolia {} "What is it about?"'

COMMANDS = {
    "init": "init:init", "index": "index:index", "sync": "index:index", "plan": "index:plan", "docs": "docs:docs",
    "groups": "groups:groups", "export": "export:export", "import": "export:import_", "search": "ask:search",
    "ask": "ask:ask", "serve": "serve:serve", "keys": "serve:keys", "worker": "serve:worker",
    "monitor": "monitor:monitor", "eval": "eval:evaluate", "gate": "gate:gate", "promote": "gate:promote",
    "tune": "tune:tune", "train": "train:train", "rows": "rows:rows", "calibrate": "calibrate:calibrate",
    "data": "data:data", "questions": "questions:questions", "world": "data:world", "flows": "show:flows",
    "check": "check:check", "show": "show:show", "prompts": "prompts:prompts", "trace": "trace:trace",
    "doctor": "doctor:doctor", "repair": "doctor:repair",
}  # fmt: skip
"""By name, the module in `commands` and the function; as help lists them: how a store is made, then how it is used."""
HIDDEN = {"fail-points": "doctor:fail_points"}


class Commands(HelpGroup):
    """Wrong usage too is one JSON object where `--json` is written."""

    def list_commands(self, ctx: Any) -> list[str]:
        return [*(name for name in COMMANDS if name in self.commands), *(self.commands.keys() - COMMANDS)]

    def invoke(self, ctx: Any) -> Any:
        asked = list(ctx.args)
        try:
            return super().invoke(ctx)
        except WRONG_USAGE as error:
            name = getattr(getattr(error, "ctx", None), "info_name", "")
            if (param := getattr(error, "param", None)) and not getattr(error, "message", ""):
                error.message = missing_parameter(param)  # type: ignore[attr-defined]
            if name in ("search", "ask") and "unexpected extra argument" in str(error):
                error.message += f". {IN_QUOTES.format(name)}"  # type: ignore[attr-defined]
            message = getattr(error, "format_message", error.__str__)()
            Screen(json="--json" in asked).give(
                error={"kind": "UsageError", "message": message}, exit_code=int(Exit.USAGE)
            )
            raise


def _common(
    version: Annotated[
        bool, typer.Option("--version", metavar="", help="Print the version.", callback=_version, is_eager=True)
    ] = False,
) -> None: ...


def app_of(names: Iterable[str] = (*COMMANDS, *HIDDEN)) -> typer.Typer:
    """Build the command line with these commands; each costs 2 ms to import, and as much to build."""
    app = typer.Typer(
        name="spolia",
        cls=Commands,
        help="Ask a folder of documents and get answers with citations; measure how good they are.",
        epilog=CODES,
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": [*HELP, HELP_ALL]},
        callback=_common,
    )
    for name in names:
        module, _, function = (COMMANDS | HIDDEN)[name].partition(":")
        body = getattr(import_module(f"spolia.cli.commands.{module}"), function)
        if isinstance(body, typer.Typer):
            app.add_typer(body, name=name, cls=HelpGroup)
        else:
            text = import_module("spolia.cli.commands.index").SYNC if name == "sync" else None
            app.command(name, cls=HelpCommand, help=text, hidden=name in HIDDEN)(guarded(spread(body)))
    return app


def run() -> None:
    """Run what the command line says; of a named command, no other one is imported."""
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    try:
        app_of([name])() if name in COMMANDS else app_of()()
    except KeyboardInterrupt:
        sys.exit(int(Exit.INTERRUPTED))
    except OSError as error:  # help, or a result in JSON, that cannot be printed
        sys.stderr.write(f"error: {refusal(error)}\n")
        sys.exit(int(Exit.USAGE))
