"""Commands made of functions: the type and declaration of each parameter make its option or argument."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields, is_dataclass
from functools import wraps
from inspect import Parameter, cleandoc, get_annotations, signature
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

import click

from spolia.cli.exit_codes import Exit, guard_command
from spolia.cli.help_pages import HelpCommand, HelpGroup

Body = Callable[..., Exit]


@dataclass(frozen=True)
class Declaration:
    """Spelling of a parameter on the command line; an argument has no names."""

    help: str
    metavar: str
    names: tuple[str, ...] = ()
    low: float | None = None
    high: float | None = None
    settings: dict[str, Any] = field(default_factory=dict)


def option(
    usage: str, help: str, *, short: str = "", min: float | None = None, max: float | None = None, **settings: Any
) -> Any:
    """Declare an option as it is written, `--save FILE`."""
    name, _, metavar = usage.partition(" ")
    return Declaration(help, metavar, (name, short) if short else (name,), min, max, settings)


def argument(metavar: str, help: str) -> Any:
    """Declare an argument."""
    return Declaration(help, metavar)


def command(name: str, body: Body, *, hidden: bool = False) -> HelpCommand:
    """Make a command of a function. A parameter that is a dataclass stands for its fields.

    >>> from typing import Annotated
    >>> @dataclass
    ... class Place:
    ...     store: Annotated[str, option("--store STORE", "The store.")]
    ...     workers: Annotated[int, option("--workers", "Processes.", min=0)] = 1
    >>> def look(place: Place, fast: Annotated[bool, option("--fast", "Be quick.")] = False) -> Exit:
    ...     print(place, fast)
    ...     return Exit.DONE
    >>> command("look", look).main(["--fast", "--store", "notes.spolia"], standalone_mode=False)
    Place(store='notes.spolia', workers=1) True
    0
    """
    hints = get_type_hints(body, include_extras=True)
    groups: dict[str, Any] = {name: kind for name, kind in hints.items() if is_dataclass(kind)}

    def run(**values: Any) -> Exit:
        # Click gives () for an option that nobody wrote.
        values = {name: (list(value) or None) if isinstance(value, tuple) else value for name, value in values.items()}
        for name, kind in groups.items():
            values[name] = kind(**{field_name: values.pop(field_name) for field_name in signature(kind).parameters})
        return body(**values)

    parameters, shared = list[click.Parameter](), set[str]()
    for parameter in signature(body).parameters.values():
        if kind := groups.get(parameter.name):
            declared = get_type_hints(kind, include_extras=True)
            shared |= declared.keys() - (get_annotations(kind) if kind.__module__ == body.__module__ else {})
            parameters += [
                _build_parameter(parameter, declared[parameter.name])
                for parameter in signature(kind).parameters.values()
            ]
        else:
            parameters.append(_build_parameter(parameter, hints[parameter.name]))
    parameters.sort(key=lambda parameter: _rank_in_help(parameter, is_own=parameter.name not in shared))
    text = cleandoc(body.__doc__ or "")
    return HelpCommand(name, params=parameters, callback=guard_command(run), help=text, hidden=hidden)


def described(body: Body, help: str) -> Body:
    """Give a command another text; what it does stays."""

    @wraps(body)
    def run(*args: Any, **values: Any) -> Exit:
        return body(*args, **values)

    run.__doc__ = help
    return run


def subcommands(name: str, help: str, **bodies: Body) -> HelpGroup:
    """Make a group of commands."""
    return HelpGroup(
        name, commands=[command(inner, body) for inner, body in bodies.items()], help=help, no_args_is_help=True
    )


def format_options(options: Any) -> list[str]:
    """Return the words of a command line that say these options, arguments first; defaults are left out."""
    hints = get_type_hints(type(options), include_extras=True)
    arguments: list[str] = []
    option_words: list[str] = []
    for option_field in fields(options):
        value = getattr(options, option_field.name)
        if value == option_field.default:
            continue
        (declared,) = (
            metadata for metadata in hints[option_field.name].__metadata__ if isinstance(metadata, Declaration)
        )
        for item in value if isinstance(value, (list, tuple)) else [value]:
            if declared.names:
                option_words += _format_option(declared.names[0], item)
            else:
                arguments.append(str(item))
    return [*arguments, *option_words]


def _format_option(name: str, value: Any) -> Iterator[str]:
    if isinstance(value, bool):
        yes, _, no = name.partition("/")
        yield yes if value else no
    else:
        yield from (name, str(value))


def _build_parameter(parameter: Parameter, hint: Any) -> click.Parameter:
    kind, declared = get_args(hint)
    if isinstance(kind, UnionType):
        (kind,) = (member for member in get_args(kind) if member is not NoneType)
    if repeats := get_origin(kind) is list:
        (kind,) = get_args(kind)
    required = parameter.default is Parameter.empty
    common: dict[str, Any] = {"type": _click_type(kind, declared), "required": required}
    if not required:
        common["default"] = parameter.default
    if declared.names:
        metavar = declared.metavar or ("NUMBER" if kind in (int, float) else "")
        common |= {"help": declared.help, "metavar": metavar, "multiple": repeats}
        common |= {"is_flag": True} if kind is bool else {}
        return click.Option([*declared.names, parameter.name], **common, **declared.settings)
    metavar = (declared.metavar if required else f"[{declared.metavar}]") + ("..." if repeats else "")
    click_argument = click.Argument([parameter.name], metavar=metavar, nargs=-1 if repeats else 1, **common)
    click_argument.help = declared.help  # click takes it from 8.5 on
    return click_argument


def _rank_in_help(parameter: click.Parameter, *, is_own: bool) -> int:
    """Rank a parameter in the help: arguments as declared, the store, own options, shared ones, --json."""
    if isinstance(parameter, click.Argument):
        return 0
    return {"store": 1, "json": 4}.get(parameter.name or "", 2 if is_own else 3)


def _click_type(kind: Any, declared: Declaration) -> Any:
    if kind is Path:
        return click.Path(path_type=Path)
    if declared.low is None and declared.high is None:
        return kind
    ranges: dict[Any, Any] = {int: click.IntRange, float: click.FloatRange}
    return ranges[kind](declared.low, declared.high)
