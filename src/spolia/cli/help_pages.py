"""Help in two lengths: `--help` fits on a screen, `--help-all` says everything."""

from textwrap import fill, shorten
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

HELP, HELP_ALL = ("-h", "--help"), "--help-all"
LINES = 36
"""Options of a command that `--help` describes: required ones, its own, shared ones. It only names the others."""
_COLUMN = 30
"""Characters at most for an option or command in front of what it does."""
_IS_WHOLE = "spolia.help_all"
_HELP_ROW = [(HELP_ALL, "Describe every option in full.")]
_BRACES = str.maketrans("", "", "{}")


class TwoHelps:
    """A command or group of commands with a short help and a whole one."""

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        ctx.meta[_IS_WHOLE] = HELP_ALL in args
        return super().parse_args(ctx, args)  # type: ignore[misc]

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        pieces: list[str] = super().collect_usage_pieces(ctx)  # type: ignore[misc]
        return [piece.translate(_BRACES) for piece in pieces]  # typer writes {FLOW}, which readers take for a choice

    def format_help(self, ctx: Any, formatter: Any) -> None:
        if ctx.meta.get(_IS_WHOLE):
            super().format_help(ctx, formatter)  # type: ignore[misc]
        else:
            write_short_help(self, ctx, formatter)


class HelpCommand(TwoHelps, TyperCommand):
    """A command of the command line."""


class HelpGroup(TwoHelps, TyperGroup):
    """A group of commands. Without a command it prints its help; typer prints nothing where rich is installed."""

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        if not args:
            typer.echo(ctx.get_help(), err=True)
            ctx.exit(2)
        return super().parse_args(ctx, args)


def missing_parameter(param: Any) -> str:
    """Say how to write an argument or option that a command needs, and what it is."""
    return f"Write {_usage(param)}: {(param.help or '').partition('. ')[0].removesuffix('.')}."


def write_short_help(command: Any, ctx: Any, formatter: Any) -> None:
    """Write one line for each command, argument and option, and the names alone of options beyond `LINES`."""
    command.format_usage(ctx, formatter)
    purpose = (command.help or "").partition("\n\n")[0]
    _write_paragraph(formatter, " ".join(purpose.split()))
    if isinstance(command, TyperGroup):
        names = [(name, command.get_command(ctx, name)) for name in command.list_commands(ctx)]
        _write_rows(formatter, "Commands", [(name, one.help or "") for name, one in names if one and not one.hidden])
    params = [param for param in command.get_params(ctx) if not getattr(param, "hidden", False)]
    arguments = [(_usage(param), param.help or "") for param in params if param.param_type_name == "argument"]
    options = [param for param in params if param.param_type_name == "option" and HELP_ALL not in param.opts]
    options.sort(key=lambda param: not param.required)
    _write_rows(formatter, "Arguments", arguments)
    _write_rows(formatter, "Options", [(_usage(param), _purpose(param)) for param in options[:LINES]] + _HELP_ROW)
    if further := ", ".join(param.opts[0] for param in options[LINES:]):
        _write_paragraph(formatter, f"Further options, which --help-all describes: {further}")
    if command.epilog:
        _write_paragraph(formatter, command.epilog)


def _write_paragraph(formatter: Any, text: str) -> None:
    formatter.write("\n" + fill(text, formatter.width, break_on_hyphens=False) + "\n")


def _usage(param: Any) -> str:
    if param.param_type_name == "argument":
        return str(param.metavar or param.name.upper())
    value = "" if param.is_flag or param.count else f" {(param.metavar or 'NUMBER').strip('<>')}"
    return "/".join([*param.opts, *param.secondary_opts]) + value


def _purpose(param: Any) -> str:
    return f"(required) {param.help}" if param.required else param.help or ""


def _write_rows(formatter: Any, title: str, rows: list[tuple[str, str]]) -> None:
    if not rows:
        return
    column = min(_COLUMN, max(len(usage) for usage, _ in rows))
    with formatter.section(title):
        for usage, text in rows:
            start = f"  {usage:<{column}}  "
            formatter.write(start + shorten(text, max(20, formatter.width - len(start)), placeholder=" …") + "\n")
