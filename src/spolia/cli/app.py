"""The commands, gathered."""

import sys
from collections.abc import Iterable
from importlib import import_module
from typing import Any

import click

from spolia.cli.exit_codes import MEANING, Exit, refusal
from spolia.cli.help_pages import HELP, HelpGroup, missing_parameter
from spolia.cli.parameters import command
from spolia.cli.screen import Screen

CODES = "Exit codes: " + "; ".join(f"{int(code)} {meaning}" for code, meaning in MEANING.items()) + "."


def _version(ctx: click.Context, param: click.Parameter, wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        sys.stdout.write(f"spolia {version('spolia')}\n")
        ctx.exit()


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

    def invoke(self, ctx: click.Context) -> Any:
        asked = list(ctx.args)
        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            name = error.ctx.info_name if error.ctx else ""
            if isinstance(error, click.MissingParameter) and error.param and not error.message:
                error.message = missing_parameter(error.param)  # type: ignore[misc]
            if name in ("search", "ask") and "unexpected extra argument" in error.message:
                error.message += f". {IN_QUOTES.format(name)}"  # type: ignore[misc]
            Screen(json="--json" in asked).give(
                error={"kind": "UsageError", "message": error.format_message()}, exit_code=int(Exit.USAGE)
            )
            raise


def app_of(names: Iterable[str] = (*COMMANDS, *HIDDEN)) -> Commands:
    """Build the command line with these commands; each costs 2 ms to import, and as much to build."""
    version = click.Option(
        ["--version"], is_flag=True, expose_value=False, is_eager=True, callback=_version, help="Print the version."
    )
    app = Commands(
        "spolia",
        params=[version],
        help="Ask a folder of documents and get answers with citations; measure how good they are.",
        epilog=CODES,
        no_args_is_help=True,
        context_settings={"help_option_names": HELP},
    )
    for name in names:
        module, _, function = (COMMANDS | HIDDEN)[name].partition(":")
        body = getattr(import_module(f"spolia.cli.commands.{module}"), function)
        if not isinstance(body, HelpGroup):
            text = import_module("spolia.cli.commands.index").SYNC if name == "sync" else ""
            body = command(name, body, text, name in HIDDEN)
        app.add_command(body)
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
