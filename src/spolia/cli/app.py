"""Command line, built from the commands."""

import ast
import sys
from inspect import cleandoc
from pathlib import Path
from typing import Any

import click

from spolia.cli.exit_codes import MEANING, Exit, refusal
from spolia.cli.help_pages import HELP, HelpGroup, missing_parameter
from spolia.cli.parameters import command
from spolia.cli.screen import Screen
from spolia.core.public_names import load_name
from spolia.deferred import metadata

CODES = "Exit codes: " + "; ".join(f"{int(code)} {meaning}" for code, meaning in MEANING.items()) + "."


def _show_version(ctx: click.Context, param: click.Parameter, is_requested: bool) -> None:
    if is_requested:
        sys.stdout.write(f"spolia {metadata.version('spolia')}\n")
        ctx.exit()


IN_QUOTES = 'Write the question in quotes: spolia {} "What is it about?"'

COMMANDS = {
    "init": "init:init", "index": "index:index", "sync": "index:sync", "plan": "index:plan", "docs": "docs:docs",
    "groups": "groups:groups", "export": "export:export", "import": "export:import_", "search": "search:search",
    "ask": "ask:ask", "serve": "serve:serve", "keys": "keys:keys", "worker": "worker:worker",
    "monitor": "monitor:monitor", "eval": "eval:evaluate", "gate": "gate:gate", "promote": "gate:promote",
    "tune": "tune:tune", "train": "train:train", "rows": "rows:rows", "calibrate": "calibrate:calibrate",
    "data": "data:data", "questions": "questions:questions", "world": "data:world", "flows": "show:flows",
    "check": "check:check", "show": "show:show", "prompts": "prompts:prompts", "trace": "trace:trace",
    "doctor": "doctor:doctor", "repair": "doctor:repair",
}  # fmt: skip
"""By name, the module in `commands` and the function; as help lists them: how a store is made, then how it is used."""
PACKAGE = "spolia.cli.commands"
HIDDEN = {"fail-points": "doctor:fail_points"}


class Commands(HelpGroup):
    """Group of all commands. With `--json`, wrong usage too prints one JSON object."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        place = (COMMANDS | HIDDEN).get(cmd_name)
        if place is not None and cmd_name not in self.commands:
            module, _, name = place.partition(":")
            body = load_name(f"{PACKAGE}.{module}", name)
            is_group = isinstance(body, HelpGroup)
            self.commands[cmd_name] = body if is_group else command(cmd_name, body, hidden=cmd_name in HIDDEN)
        return self.commands.get(cmd_name)

    def help_rows(self, ctx: click.Context) -> list[tuple[str, str]]:
        """Read each command's text from its source: to import all commands takes a second."""
        return [(name, _text_of(*place.split(":"))) for name, place in COMMANDS.items()]

    def invoke(self, ctx: click.Context) -> Any:
        # Click clears `ctx.args` before it runs a command.
        arguments = list(ctx.args)
        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            name = error.ctx.info_name if error.ctx else ""
            if isinstance(error, click.MissingParameter) and error.param and not error.message:
                error.message = missing_parameter(error.param)  # type: ignore[misc]
            if name in ("search", "ask") and "unexpected extra argument" in error.message:
                error.message += f". {IN_QUOTES.format(name)}"  # type: ignore[misc]
            Screen(json="--json" in arguments).give(
                error={"kind": "UsageError", "message": error.format_message()}, exit_code=int(Exit.USAGE)
            )
            raise


def _text_of(module: str, name: str) -> str:
    """Return the docstring of a function, or the text that makes a command of others."""
    source = Path(__file__).with_name("commands") / f"{module}.py"
    for node in ast.parse(source.read_text("utf-8")).body:
        if isinstance(node, ast.FunctionDef) and node.name == name:
            return ast.get_docstring(node) or ""
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name and isinstance(node.value, ast.Call):
            return cleandoc(ast.literal_eval(node.value.args[1]))
    raise LookupError(f"{source} has no {name}")


def build_app() -> Commands:
    """Build the command line; each command is imported when it is called."""
    version = click.Option(
        ["--version"],
        is_flag=True,
        expose_value=False,
        is_eager=True,
        callback=_show_version,
        help="Print the version.",
    )
    return Commands(
        "spolia",
        params=[version],
        help="Ask a folder of documents and get answers with citations; measure how good they are.",
        epilog=CODES,
        no_args_is_help=True,
        context_settings={"help_option_names": HELP},
    )


def run() -> None:
    """Run what the command line says."""
    try:
        build_app()()
    except KeyboardInterrupt:
        sys.exit(int(Exit.INTERRUPTED))
    except OSError as error:  # help, or a result in JSON, that cannot be printed
        sys.stderr.write(f"error: {refusal(error)}\n")
        sys.exit(int(Exit.USAGE))
