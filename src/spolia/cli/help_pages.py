"""Help in two lengths: `--help` fits on a screen, `--help-all` says everything."""

import click

from spolia.deferred import textwrap

HELP = ["-h", "--help"]
LINES = 36
"""Options of a command that `--help` describes, required ones, its own, shared ones. It only names the others."""
_COLUMN = 30
"""Characters at most for an option or command in front of what it does."""
_FULL_HELP = "spolia.help_all"


def _show_full_help(ctx: click.Context, param: click.Parameter, is_requested: bool) -> None:
    if is_requested:
        ctx.meta[_FULL_HELP] = True
        click.echo(ctx.get_help())
        ctx.exit()


_HELP_ALL = click.Option(
    ["--help-all"], is_flag=True, expose_value=False, is_eager=True, callback=_show_full_help,
    help="Describe every option in full.",
)  # fmt: skip


class TwoHelps(click.Command):
    """Command or group of commands with a short help and a full one."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        return [*super().get_params(ctx), _HELP_ALL]

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        write_help(self, ctx, formatter, bool(ctx.meta.get(_FULL_HELP)))


class HelpCommand(TwoHelps):
    """A command of the command line."""


class HelpGroup(TwoHelps, click.Group):
    """A group of commands, in the order of their declaration."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def help_rows(self, ctx: click.Context) -> list[tuple[str, str]]:
        """List the commands with their texts."""
        return [(name, inner.help or "") for name, inner in self.commands.items() if not inner.hidden]


def missing_parameter(param: click.Parameter) -> str:
    """Say how to write an argument or option that a command needs, and what it is."""
    return f"Write {_usage(param)}: {(getattr(param, 'help', '') or '').partition('. ')[0].removesuffix('.')}."


def write_help(command: click.Command, ctx: click.Context, formatter: click.HelpFormatter, is_full: bool) -> None:
    """Write a row for each command, argument and option.

    Short help has one line for each, and the names alone of options beyond `LINES`.
    """
    command.format_usage(ctx, formatter)
    for paragraph in (command.help or "").split("\n\n")[: None if is_full else 1]:
        _write_paragraph(formatter, " ".join(paragraph.split()))
    if isinstance(command, HelpGroup):
        _write_rows(formatter, "Commands", command.help_rows(ctx), is_full)
    arguments = [(_usage(param), param.help or "") for param in command.params if isinstance(param, click.Argument)]
    options = [param for param in command.params if isinstance(param, click.Option)]
    options.sort(key=lambda param: not param.required)
    _write_rows(formatter, "Arguments", arguments, is_full)
    listed_options = options if is_full else [*options[:LINES], _HELP_ALL]
    rows = [(_usage(param), _purpose(param)) for param in listed_options]
    _write_rows(formatter, "Options", rows, is_full)
    if not is_full and (further := ", ".join(param.opts[0] for param in options[LINES:])):
        _write_paragraph(formatter, f"Further options, which --help-all describes: {further}")
    if command.epilog:
        _write_paragraph(formatter, command.epilog)


def default_text(param: click.Parameter) -> str:
    """Return the default that help shows: none for switches and for values that mean nothing by themselves."""
    has_none = param.required or not param.default or getattr(param, "is_flag", False)
    return "" if has_none else str(param.default)


def _write_paragraph(formatter: click.HelpFormatter, text: str) -> None:
    formatter.write("\n" + textwrap.fill(text, formatter.width, break_on_hyphens=False) + "\n")


def _usage(param: click.Parameter) -> str:
    if not isinstance(param, click.Option):
        return param.human_readable_name
    value = f" {param.metavar}" if param.metavar and not param.is_flag else ""
    return "/".join([*param.opts, *param.secondary_opts]) + value


def _purpose(param: click.Option) -> str:
    default = default_text(param)
    return (
        ("(required) " if param.required else "") + (param.help or "") + (f" [default: {default}]" if default else "")
    )


def _write_rows(formatter: click.HelpFormatter, title: str, rows: list[tuple[str, str]], is_full: bool) -> None:
    if not rows:
        return
    column = min(_COLUMN, max(len(usage) for usage, _ in rows))
    margin = "\n" + " " * (column + 4)
    with formatter.section(title):
        for usage, text in rows:
            start = f"  {usage:<{column}}  "
            width = max(20, formatter.width - len(start))
            lines = textwrap.wrap(text, width) if is_full else [textwrap.shorten(text, width, placeholder=" …")]
            formatter.write(f"{start}{margin.join(lines)}\n")
