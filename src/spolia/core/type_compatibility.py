"""What an operator takes and gives, read off its type parameters, and whether two of them fit."""

import math
import sys
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import reduce
from inspect import getattr_static
from operator import or_
from typing import Annotated, Any, ForwardRef, Literal, TypeVar, Union, get_args, get_origin

from spolia.errors import WiringError

Bindings = dict[Any, Any]

MOST = 2**63 - 1  # what a number of hits, steps or neighbours may be at most: as far as libraries and databases count


def refuse_counts(op: Any, *names: str, least: int = 1, optional: bool = False) -> None:
    """Raise `WiringError` for a field that is no whole number from `least` on, nor None where that is optional."""
    for name in names:
        value = getattr(op, name)
        if optional and value is None:
            continue
        if type(value) is not int or not least <= value <= MOST:
            said = f"{getattr(op, 'short', op)}: {name} counts from {least}, and is {value!r}"
            raise WiringError(f"{said}. Write a whole number, at most 2**63 - 1.")


_RANGES: dict[str, Callable[[float], bool]] = {
    "a number": math.isfinite,
    "a number above 0": lambda number: 0 < number < math.inf,
    "a number above 0, up to 1": lambda number: 0 < number <= 1,
    "a number from -1 to 1": lambda number: -1 <= number <= 1,
    "a number from 0 to 1": lambda number: 0 <= number <= 1,
    "a probability, from 0 to 1": lambda number: 0 <= number <= 1,
    "a number from 0 to below 1": lambda number: 0 <= number < 1,
    "a number of at least 0": lambda number: 0 <= number < math.inf,
    "a number of at least 1": lambda number: 1 <= number < math.inf,
}


def refuse_numbers(op: Any, wanted: str, *names: str) -> None:
    """Raise `WiringError` for a field that is not what is wanted; NaN never is."""
    for name in names:
        if not _RANGES[wanted](value := getattr(op, name)):
            raise WiringError(f"{op.short}: {name} is {value}. Write {wanted}.")


def members(protocol: type) -> list[str]:
    return [name for name in dir(protocol) if not name.startswith("_")]


def lacking(given: object, protocol: type) -> list[str]:
    """The members of a protocol that something does not have. Nothing of it is computed, as `isinstance` would."""
    if hasattr(type(given), "__getattr__"):
        return []
    return [name for name in members(protocol) if getattr_static(given, name, None) is None]


def name_of(kind: Any) -> str:
    """A type as it is written: `tuple[int, ...]`."""
    if get_origin(kind) is Annotated:
        return name_of(get_args(kind)[0])
    if kind is Any:
        return "anything"
    if kind is None or kind is type(None):
        return "None"
    if isinstance(kind, ForwardRef):
        return kind.__forward_arg__
    if isinstance(kind, TypeVar):
        return kind.__name__
    if get_origin(kind) in (Union, types.UnionType):
        return " | ".join(name_of(arg) for arg in get_args(kind))
    if get_origin(kind) is Literal:
        return f"Literal[{', '.join(map(repr, get_args(kind)))}]"
    if get_origin(kind) is not None:
        inner = ", ".join("..." if arg is Ellipsis else name_of(arg) for arg in get_args(kind))
        return f"{get_origin(kind).__name__}[{inner}]"
    return getattr(kind, "__name__", repr(kind))


def one_of(names: Iterable[str]) -> Any:
    """The type of a text that is one of some names, each once."""
    literal: Any = Literal
    return literal[tuple(dict.fromkeys(names))]


def fits(wanted: Any, given: Any, bound: Bindings) -> bool:
    """Whether a value of type `given` may be passed where `wanted` is declared; binds the variables of `wanted`."""
    wanted, given = _plain(wanted), _plain(given, new=True)
    if wanted is Any or given is Any or wanted is object or isinstance(wanted, ForwardRef | str):
        return True
    if isinstance(wanted, TypeVar):
        if bound.get(wanted, wanted) is not wanted:
            return fits(bound[wanted], given, bound) or fits(given, bound[wanted], bound)
        limit = wanted.__bound__
        if limit is not None and not fits(limit, given, bound):
            return False
        bound[wanted] = given
        return True
    if isinstance(given, ForwardRef | str):
        return True  # nothing is known of it here; the type checker knows
    if isinstance(given, TypeVar):
        limit = given.__bound__  # not known yet, so it fits if some type under the limit does
        return limit is None or fits(wanted, limit, bound) or fits(limit, wanted, {})
    if get_origin(given) is Literal:
        values = get_args(given)
        if get_origin(wanted) is Literal:
            return set(values) <= set(get_args(wanted))
        return all(fits(wanted, type(value), bound) for value in values)
    if get_origin(given) in (Union, types.UnionType):
        return all(fits(wanted, arg, bound) for arg in get_args(given))
    if get_origin(wanted) in (Union, types.UnionType):
        return any(fits(arg, given, bound) for arg in get_args(wanted))
    wanted_class, given_class = get_origin(wanted) or wanted, get_origin(given) or given
    if not (isinstance(wanted_class, type) and isinstance(given_class, type)):
        return bool(wanted == given)
    if wanted_class is float and given_class is int:
        return True
    if not _is_below(given_class, wanted_class):
        return False
    if given_class is str and wanted_class in (Sequence, Mapping):
        return False
    return all(fits(w, g, bound) for w, g in zip(*_aligned(wanted, given), strict=False))


def _plain(kind: Any, *, new: bool = False) -> Any:
    """A type without what does not matter to fitting: annotations, the names of aliases, `new` types."""
    while True:
        if kind is None:
            return type(None)
        if get_origin(kind) is Annotated:
            kind = get_args(kind)[0]
        elif new and hasattr(kind, "__supertype__"):
            kind = kind.__supertype__
        elif type(kind).__name__ == "TypeAliasType":
            kind = kind.__value__
        else:
            return kind


def _is_below(given: type, wanted: type) -> bool:
    try:
        return issubclass(given, wanted)
    except TypeError:  # a protocol that cannot be looked at while running; the type checker can
        return True


def _aligned(wanted: Any, given: Any) -> tuple[list[Any], list[Any]]:
    """The arguments of two generic types, `tuple[A, B]` beside `Sequence[X]` as `A | B` beside `X`."""
    wanted_class, given_class = get_origin(wanted) or wanted, get_origin(given) or given
    wants, gives = list(get_args(wanted)), list(get_args(given))
    if wanted_class is not given_class and hasattr(given_class, "__orig_bases__"):
        names = dict(zip(getattr(given_class, "__parameters__", ()), gives, strict=False))
        gives = [filled(kind, names) for kind in parameters_of(given_class, wanted_class)]
    fixed = given_class is tuple and bool(gives) and Ellipsis not in gives
    if wanted_class is tuple and Ellipsis not in wants and fixed and wants:
        return (wants, gives) if len(wants) == len(gives) else ([int], [str])
    wants, gives = ([arg for arg in args if arg is not Ellipsis] for args in (wants, gives))
    if fixed and len(gives) > 1 and len(wants) == 1:
        return wants * len(gives), gives
    return wants, gives


def filled(kind: Any, bound: Bindings) -> Any:
    """A type with its variables replaced by what they were bound to."""
    if isinstance(kind, TypeVar):
        return bound.get(kind, kind)
    args = get_args(kind)
    if not args:
        return kind
    if get_origin(kind) in (Union, types.UnionType):
        return reduce(or_, (filled(arg, bound) for arg in args))
    return get_origin(kind)[tuple(arg if arg is Ellipsis else filled(arg, bound) for arg in args)]


def joined(kinds: Sequence[Any]) -> Any:
    """The narrowest type that covers all of them: one of them, or a union."""
    found: list[Any] = []
    for kind in kinds:
        if kind is Any:
            return Any
        if not any(fits(other, kind, {}) for other in found):
            found = [other for other in found if not fits(kind, other, {})] + [kind]
    return reduce(or_, found) if found else Any


def parameters_of(cls: type, base: type) -> tuple[Any, ...]:
    """What the type parameters of `base` are in a subclass, through any number of generic classes between."""
    for parent in getattr(cls, "__orig_bases__", ()):
        origin = get_origin(parent) or parent
        if origin is base:
            return tuple(_resolved(kind, cls) for kind in get_args(parent))
        if isinstance(origin, type) and _is_below(origin, base):
            inner = parameters_of(origin, base)
            names = getattr(origin, "__parameters__", ())
            bound = dict(zip(names, (_resolved(kind, cls) for kind in get_args(parent)), strict=False))
            return tuple(filled(kind, bound) for kind in inner)
    for parent in cls.__bases__:
        if _is_below(parent, base) and parent is not base:
            return parameters_of(parent, base)
    return ()


def _resolved(kind: Any, cls: type) -> Any:
    """A type written as text, looked up where the class was defined; as it is where it cannot be found."""
    name = kind.__forward_arg__ if isinstance(kind, ForwardRef) else kind
    if not isinstance(name, str):
        return kind
    found = vars(sys.modules.get(cls.__module__, types)).get(name)
    return kind if found is None else found
