"""Types of operators, read off their type parameters, and whether two of them fit."""

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

MAX_COUNT = 2**63 - 1
"""The largest number of hits, steps or neighbours: as far as libraries and databases count."""


def refuse_counts(op: Any, *names: str, minimum: int = 1, optional: bool = False) -> None:
    """Raise `WiringError` for a field that is not a whole number of at least `minimum`, nor None if `optional`."""
    for name in names:
        value = getattr(op, name)
        if optional and value is None:
            continue
        if type(value) is not int or not minimum <= value <= MAX_COUNT:  # not isinstance: True is an int
            problem = f"{getattr(op, 'short', op)}: {name} counts from {minimum}, and is {value!r}"
            raise WiringError(f"{problem}. Write a whole number, at most 2**63 - 1.")


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


def refuse_numbers(op: Any, expected: str, *names: str) -> None:
    """Raise `WiringError` for a field outside the expected range; NaN never fits."""
    for name in names:
        if not _RANGES[expected](value := getattr(op, name)):
            raise WiringError(f"{op.short}: {name} is {value}. Write {expected}.")


def members(protocol: type) -> list[str]:
    return [name for name in dir(protocol) if not name.startswith("_")]


def missing_members(value: object, protocol: type) -> list[str]:
    """Return the members of a protocol that a value lacks, without computing any of it, as `isinstance` would."""
    if hasattr(type(value), "__getattr__"):  # it may have any member
        return []
    return [name for name in members(protocol) if getattr_static(value, name, None) is None]


def name_of(kind: Any) -> str:
    """Return a type as it is written: `tuple[int, ...]`."""
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


def literal_type(names: Iterable[str]) -> Any:
    """Return the type of a text that is one of some names, each once."""
    literal: Any = Literal
    return literal[tuple(dict.fromkeys(names))]


def fits(expected: Any, actual: Any, bound: Bindings) -> bool:
    """Return whether a value of the actual type may be passed where another is expected; bind its variables."""
    expected, actual = _strip_type(expected), _strip_type(actual, new=True)
    if expected is Any or actual is Any or expected is object or isinstance(expected, ForwardRef | str):
        return True
    if isinstance(expected, TypeVar):
        if bound.get(expected, expected) is not expected:
            return fits(bound[expected], actual, bound) or fits(actual, bound[expected], bound)
        limit = expected.__bound__
        if limit is not None and not fits(limit, actual, bound):
            return False
        bound[expected] = actual
        return True
    if isinstance(actual, ForwardRef | str):
        return True  # nothing is known of it here; the type checker knows
    if isinstance(actual, TypeVar):
        limit = actual.__bound__  # not known yet, so it fits if some type under the limit does
        return limit is None or fits(expected, limit, bound) or fits(limit, expected, {})
    if get_origin(actual) is Literal:
        values = get_args(actual)
        if get_origin(expected) is Literal:
            return set(values) <= set(get_args(expected))
        return all(fits(expected, type(value), bound) for value in values)
    if get_origin(actual) in (Union, types.UnionType):
        return all(fits(expected, arg, bound) for arg in get_args(actual))
    if get_origin(expected) in (Union, types.UnionType):
        return any(fits(arg, actual, bound) for arg in get_args(expected))
    expected_class, actual_class = get_origin(expected) or expected, get_origin(actual) or actual
    if not (isinstance(expected_class, type) and isinstance(actual_class, type)):
        return bool(expected == actual)
    if expected_class is float and actual_class is int:  # as type checkers hold it (PEP 484)
        return True
    if not _is_below(actual_class, expected_class):
        return False
    # a text is a sequence of letters, which nobody means
    if actual_class is str and expected_class in (Sequence, Mapping):
        return False
    return all(fits(w, g, bound) for w, g in zip(*_align_arguments(expected, actual), strict=False))


def _strip_type(kind: Any, *, new: bool = False) -> Any:
    """Strip from a type what does not matter to fitting: annotations, the names of aliases, `new` types."""
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


def _is_below(cls: type, base: type) -> bool:
    try:
        return issubclass(cls, base)
    except TypeError:  # a protocol that cannot be looked at while running; the type checker can
        return True


def _align_arguments(expected: Any, actual: Any) -> tuple[list[Any], list[Any]]:
    """Return the arguments of two generic types in pairs: `tuple[A, B]` and `Sequence[X]` as `A | B` and `X`."""
    expected_class, actual_class = get_origin(expected) or expected, get_origin(actual) or actual
    expected_args, actual_args = list(get_args(expected)), list(get_args(actual))
    if expected_class is not actual_class and hasattr(actual_class, "__orig_bases__"):
        names = dict(zip(getattr(actual_class, "__parameters__", ()), actual_args, strict=False))
        actual_args = [fill_type(kind, names) for kind in parameters_of(actual_class, expected_class)]
    fixed = actual_class is tuple and bool(actual_args) and Ellipsis not in actual_args
    if expected_class is tuple and Ellipsis not in expected_args and fixed and expected_args:
        # Two types that never fit stand for tuples of different lengths.
        return (expected_args, actual_args) if len(expected_args) == len(actual_args) else ([int], [str])
    expected_args, actual_args = ([arg for arg in args if arg is not Ellipsis] for args in (expected_args, actual_args))
    if fixed and len(actual_args) > 1 and len(expected_args) == 1:
        return expected_args * len(actual_args), actual_args
    return expected_args, actual_args


def fill_type(kind: Any, bound: Bindings) -> Any:
    """Replace the variables of a type by the types that they were bound to."""
    if isinstance(kind, TypeVar):
        return bound.get(kind, kind)
    args = get_args(kind)
    if not args:
        return kind
    if get_origin(kind) in (Union, types.UnionType):
        return reduce(or_, (fill_type(arg, bound) for arg in args))
    return get_origin(kind)[tuple(arg if arg is Ellipsis else fill_type(arg, bound) for arg in args)]


def join_types(kinds: Sequence[Any]) -> Any:
    """Return the narrowest type that covers all of them: one of them, or a union."""
    union: list[Any] = []
    for kind in kinds:
        if kind is Any:
            return Any
        if not any(fits(member, kind, {}) for member in union):
            union = [member for member in union if not fits(kind, member, {})] + [kind]
    return reduce(or_, union) if union else Any


def parameters_of(cls: type, base: type) -> tuple[Any, ...]:
    """Return the type arguments of `base` in a subclass, through any number of generic classes between."""
    for parent in getattr(cls, "__orig_bases__", ()):
        origin = get_origin(parent) or parent
        if origin is base:
            return tuple(_resolve_type(kind, cls) for kind in get_args(parent))
        if isinstance(origin, type) and _is_below(origin, base):
            inner = parameters_of(origin, base)
            names = getattr(origin, "__parameters__", ())
            bound = dict(zip(names, (_resolve_type(kind, cls) for kind in get_args(parent)), strict=False))
            return tuple(fill_type(kind, bound) for kind in inner)
    for parent in cls.__bases__:
        if _is_below(parent, base) and parent is not base:
            return parameters_of(parent, base)
    return ()


def _resolve_type(kind: Any, cls: type) -> Any:
    """Resolve a type written as text where the class was defined; return it unchanged if it is not found."""
    name = kind.__forward_arg__ if isinstance(kind, ForwardRef) else kind
    if not isinstance(name, str):
        return kind
    value = vars(sys.modules.get(cls.__module__, types)).get(name)
    return kind if value is None else value
