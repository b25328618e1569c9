"""Arguments and options that several commands share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any, TypeAlias, get_type_hints

import typer
from typer.models import ArgumentInfo, OptionInfo

from spolia.cli.exit_codes import Exit

FLOWS = "A built-in flow (bm25, dense, hybrid, default, naive), or a YAML file with one."
STORES = "The store: a folder that `spolia index` makes, or postgresql://USER@HOST/DATABASE?schema=NAME."

StorePath: TypeAlias = Annotated[
    str,
    typer.Option("--store", metavar="STORE", help=STORES, show_default=False),
]
MaybeStore: TypeAlias = Annotated[
    str | None,
    typer.Option("--store", metavar="STORE", help=STORES, show_default=False),
]
Question: TypeAlias = Annotated[
    str, typer.Argument(metavar="QUESTION", help="What to look for, in quotes.", show_default=False)
]
Access: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--access",
        metavar="PRINCIPAL",
        help="Who asks, a user or a group; repeat it for several. Without it only what everybody may read is found.",
        show_default=False,
    ),
]
SeenBy: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--access",
        metavar="PRINCIPAL",
        help="Show what this user or group may read, and no more; repeat it for several. Without it everything.",
        show_default=False,
    ),
]
Readers: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--readers",
        metavar="FILE",
        help="Who may read what: a text file with a line `PATTERN = PRINCIPAL, …` for each pattern of paths.",
        show_default=False,
    ),
]
Known: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--known",
        metavar="MODULE",
        help="Python file or module whose functions, operators, groups and measures may be named, and whose READERS "
        "read files, or MODULE:NAME; repeat it.",
        show_default=False,
    ),
]
OwnPrompts: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--prompts",
        metavar="DIR",
        help="Folder with prompts of your own in the place of others; `spolia prompts override` begins one.",
        show_default=False,
    ),
]
Where: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--where",
        metavar="CONDITION",
        help="Only these: year=2020, 'tag in a,b', 'year>=2020', kind!=draft, 'file_modified>2026-01-31'.",
        show_default=False,
    ),
]
Searched: TypeAlias = Annotated[
    str,
    typer.Option("--group", metavar="NAME", help="The node group to search; built now if the store does not have it."),
]
FlowName: TypeAlias = Annotated[str, typer.Option("--flow", metavar="FLOW", help=FLOWS)]
AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="One JSON object on stdout, messages on stderr.")]
Weights: TypeAlias = Annotated[
    str, typer.Option("--weights", metavar="DIR", help="Folder with the embedder's weights; looked up when not given.")
]
ModelUrl: TypeAlias = Annotated[
    str,
    typer.Option(
        "--llm",
        metavar="URL",
        help="Where an OpenAI-compatible API begins; its key is read from OPENAI_API_KEY.",
        show_default=False,
    ),
]
ModelName: TypeAlias = Annotated[
    str, typer.Option("--model", metavar="NAME", help="What that server calls the model.", show_default=False)
]
FlowArgument: TypeAlias = Annotated[str, typer.Argument(metavar="FLOW", help=FLOWS, show_default=False)]
WAIT_S = 10.0
Wait = Annotated[
    float, typer.Option("--wait", metavar="SECONDS", min=0, help="How long to wait for another process that writes.")
]


def spread(body: Callable[..., Exit]) -> Callable[..., Exit]:
    """A command that has the fields of its first parameter, a dataclass, for arguments and options, and then its own.

    >>> from dataclasses import dataclass
    >>> @dataclass
    ... class Place:
    ...     store: str
    ...     workers: int = 1
    >>> @spread
    ... def look(place: Place, fast: bool = False) -> Exit:
    ...     print(place, fast)
    ...     return Exit.DONE
    >>> _ = look(store="notes.spolia", fast=True)
    Place(store='notes.spolia', workers=1) True
    """
    hints = get_type_hints(body, include_extras=True)
    first, *own = signature(body).parameters.values()
    kind = hints[first.name]
    shared, declared = signature(kind).parameters, get_type_hints(kind, include_extras=True)

    def command(**given: Any) -> Exit:
        whole = kind(**{name: given.pop(name) for name in shared if name in given})
        return body(whole, **given)

    every = [(one, declared) for one in shared.values()] + [(one, hints) for one in own]
    taken = [one.replace(kind=Parameter.KEYWORD_ONLY, annotation=types[one.name]) for one, types in every]
    command.__signature__ = Signature(taken)  # type: ignore[attr-defined]
    command.__annotations__ = {one.name: one.annotation for one in taken}
    command.__name__, command.__doc__ = body.__name__, body.__doc__
    return command


def written(given: Any) -> list[str]:
    """The words of a command line that say this, arguments first; what has its default is left out.

    Args:
        given: a dataclass whose fields are declared as arguments and options.
    """
    hints = get_type_hints(type(given), include_extras=True)
    arguments: list[str] = []
    options: list[str] = []
    for field in fields(given):
        value = getattr(given, field.name)
        if value == field.default:
            continue
        (declared,) = (one for one in hints[field.name].__metadata__ if isinstance(one, (ArgumentInfo, OptionInfo)))
        for one in value if isinstance(value, (list, tuple)) else [value]:
            if isinstance(declared, OptionInfo):
                options += _option(str(declared.default), one)
            else:
                arguments.append(str(one))
    return [*arguments, *options]


def _option(name: str, value: Any) -> Iterator[str]:
    if isinstance(value, bool):
        yes, _, no = name.partition("/")
        yield yes if value else no
    else:
        yield from (name, str(value))
