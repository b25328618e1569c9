"""Options that several commands take alike: the fields of a dataclass, declared once, and written out again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields
from inspect import Parameter, Signature, signature
from typing import Any, get_type_hints

from typer.models import ArgumentInfo, OptionInfo

from spolia.cli.exits import Exit


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
