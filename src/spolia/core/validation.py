"""Find fields that hold something else than they declare, without computing anything of a value."""

import sys
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from functools import cache
from itertools import islice
from numbers import Integral, Real
from operator import is_not
from typing import Annotated, Any, Literal, TypeVar, Union, Unpack, get_args, get_origin, get_type_hints

from spolia.core.type_compatibility import name_of
from spolia.errors import SpoliaError, WiringError

_PLAIN = (type, str, bytes, int, float, tuple, list, set, dict, types.FunctionType, types.NoneType)
"""What follows no protocol of models, stores or counters."""
MOST_ITEMS = 8  # of a longer tuple or list that a step gives, the first item is looked at; of a dict, so many
_NUMBERS: dict[type, type] = {int: Integral, float: Real}


def validate(value: Any, error: type[SpoliaError] = WiringError) -> None:
    """Raise an error if a field of a dataclass holds what it does not declare, and say what to write."""
    freeze(value)
    cls: Any = type(value)
    for name, kind in declared_fields(cls):
        given = getattr(value, name, None)
        if not fulfils(given, kind):
            said = f"{type(value).__name__} has {name}={given!r:.80} ({type(given).__name__})"
            raise error(f"{said}. Write {_advice(given, kind)}.")


def freeze(value: Any) -> None:
    """Make tuples of the lists in a dataclass's fields, and copy its dicts, so that nothing in them changes."""
    for field in fields(value):
        given = getattr(value, field.name, None)
        if (frozen := _frozen(given)) is not given:
            object.__setattr__(value, field.name, frozen)


def _frozen(value: Any) -> Any:
    if type(value) is set:
        return frozenset(value)
    if type(value) is dict:
        return {key: _frozen(item) for key, item in value.items()}
    if type(value) not in (tuple, list):
        return value
    items = tuple(map(_frozen, value))
    return items if type(value) is list or any(map(is_not, items, value)) else value


def classes_of(kind: Any) -> tuple[Any, ...]:
    """What `isinstance` takes to tell whether a value, or its first items, are of a type; nothing if it cannot."""
    origin = get_origin(kind)
    if origin is Annotated:
        return classes_of(get_args(kind)[0])
    if origin in (Union, types.UnionType):
        each = [classes_of(one) for one in get_args(kind)]
        return tuple(one for some in each for one in some) if all(each) else ()
    if origin is Literal:
        return (_Matching(lambda value: fulfils(value, kind)),)
    wanted = types.NoneType if kind is None else origin or kind
    if not isinstance(wanted, type) or wanted in (object, Any) or getattr(wanted, "_is_protocol", False):
        return ()
    try:
        isinstance(None, wanted)
    except TypeError:
        return ()
    if origin in (tuple, list, Sequence):
        return _of_items(wanted, get_args(kind))
    if origin in (dict, Mapping):
        return _of_entries(wanted, *get_args(kind))
    return (wanted, int, _NUMBERS[wanted]) if wanted in _NUMBERS else (wanted,)


class _Matching:
    """Stands beside classes in `isinstance`, for a type that a class alone does not tell."""

    def __init__(self, matches: Callable[[Any], bool]) -> None:
        self.matches = matches

    def __instancecheck__(self, value: object) -> bool:
        return self.matches(value)


def _of_items(wanted: type, kinds: tuple[Any, ...]) -> tuple[Any, ...]:
    """A tuple, list or sequence whose items are of one type, or of one each."""
    if not kinds or any(get_origin(one) is Unpack or getattr(one, "__unpacked__", False) for one in kinds):
        return (wanted,)
    is_row = wanted is tuple and kinds[1:] != (Ellipsis,)
    each = [classes_of(one) or (object,) for one in (kinds if is_row else kinds[:1])]
    if not is_row and each == [(object,)]:
        return (wanted,)

    def matches(value: Any) -> bool:
        if not isinstance(value, wanted):
            return False
        if not isinstance(value, (tuple, list, str)):  # to look at the items may be to compute them
            return True
        if is_row:
            return len(value) == len(each) and all(map(isinstance, value, each))
        return all(isinstance(item, each[0]) for item in (value if len(value) <= MOST_ITEMS else value[:1]))

    return (_Matching(matches),)


def _of_entries(wanted: type, key: Any, item: Any) -> tuple[Any, ...]:
    """A dict or mapping whose keys are of one type, and whose values are."""
    keys, items = classes_of(key) or (object,), classes_of(item) or (object,)

    def matches(value: Any) -> bool:
        entries = islice(value.items(), MOST_ITEMS) if isinstance(value, dict) else ()
        return isinstance(value, wanted) and all(isinstance(k, keys) and isinstance(v, items) for k, v in entries)

    return (_Matching(matches),)


def fulfils(value: object, kind: Any) -> bool:
    """Whether a value fits a declared type, as far as is known without computing anything."""
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        return any(fulfils(value, one) for one in get_args(kind))
    if origin is Literal:
        return any(value == one and type(value) is type(one) for one in get_args(kind))
    if origin in (tuple, list) or kind is list:
        return isinstance(value, (tuple, list)) and _each_fulfils(value, get_args(kind), origin)
    wanted = types.NoneType if kind is None else origin or kind
    if not isinstance(wanted, type) or wanted is object:
        return True
    if wanted in _NUMBERS:
        return isinstance(value, _NUMBERS[wanted]) and not isinstance(value, bool)
    if wanted is set:
        return isinstance(value, (set, frozenset))
    if getattr(wanted, "_is_protocol", False):
        return not isinstance(value, _PLAIN)
    if isinstance(value, str) and issubclass(wanted, Sequence):
        return wanted is str
    try:
        return isinstance(value, wanted)
    except TypeError:
        return True


def _each_fulfils(values: Sequence[object], kinds: tuple[Any, ...], origin: Any) -> bool:
    if kinds and (origin is list or kinds[1:] == (Ellipsis,)):
        return all(fulfils(value, kinds[0]) for value in values)
    return not kinds or (len(values) == len(kinds) and all(map(fulfils, values, kinds)))


def _advice(given: object, kind: Any) -> str:
    """What to write in place of the given value."""
    kinds = [one for one in get_args(kind) if one is not types.NoneType] if _is_union(kind) else [kind]
    or_none = ", or None" if len(kinds) < len(get_args(kind)) and _is_union(kind) else ""
    for one in kinds:
        if get_origin(one) is tuple and get_args(one)[1:] == (Ellipsis,) and fulfils(given, get_args(one)[0]):
            return f"({given!r:.80},){or_none}"
    if isinstance(given, dict) and any(fulfils(tuple(given.items()), one) for one in kinds):
        return f"tuple({given!r:.80}.items()){or_none}"
    if isinstance(given, type) and not given.__module__.startswith("builtins"):
        return f"{given.__name__}(...)"
    return " or ".join(map(_in_words, kinds)) + or_none


def _in_words(kind: Any) -> str:
    if get_origin(kind) is Literal:
        values = [repr(one) for one in get_args(kind)]
        return " or ".join(filter(None, (", ".join(values[:-1]), values[-1])))
    if get_origin(kind) is tuple:
        return f"a tuple: {name_of(kind)}"
    known = {int: "a whole number", float: "a number", str: "a text", bool: "True or False"}
    return known.get(kind) or f"{'an' if name_of(kind)[0] in 'AEIOU' else 'a'} {name_of(kind)}"


def _is_union(kind: Any) -> bool:
    return get_origin(kind) in (Union, types.UnionType)


@cache
def declared_fields(cls: Any) -> tuple[tuple[str, Any], ...]:
    """Fields with their types; without those whose types only a type checker sees."""
    found: list[tuple[str, Any]] = []
    for field in fields(cls):
        home = next(each for each in cls.__mro__ if field.name in vars(each).get("__annotations__", {}))
        around = vars(sys.modules.get(home.__module__, types))
        said = types.SimpleNamespace(__annotations__={field.name: field.type})
        try:
            found.append((field.name, get_type_hints(said, around)[field.name]))
        except (NameError, TypeError, AttributeError):
            continue
    return tuple(found)


_CAPABILITIES: dict[type, frozenset[str]] = {}
P = TypeVar("P", bound=type)


def capable(*names: str) -> Callable[[P], P]:
    """Marks a protocol of models: a model in a field of that type has these `capabilities`."""

    def mark(protocol: P) -> P:
        _CAPABILITIES[protocol] = frozenset(names)
        return protocol

    return mark


def capabilities_of(protocol: type) -> frozenset[str]:
    return _CAPABILITIES.get(protocol, frozenset())


@cache
def needed(cls: Any) -> Mapping[str, frozenset[str]]:
    """The capabilities that models in the fields of a dataclass must have, by field."""
    found = {}
    for name, kind in declared_fields(cls):
        kinds = [one for each in (get_args(kind) or (kind,)) for one in (get_args(each) or (each,))]
        if names := frozenset().union(*(capabilities_of(one) for one in kinds if isinstance(one, type))):
            found[name] = names
    return found


def with_validation(check: Callable[..., None], then: Callable[[Any], None]) -> Callable[..., None]:
    """A `__post_init__` that calls `check`, validates the fields, then calls `then`."""

    def checked(self: Any, *initial: Any) -> None:
        if type(self).__post_init__ is not checked:  # that of a class above, called by one below, which goes on
            check(self, *initial)
            return
        freeze(self)
        try:
            check(self, *initial)
        except SpoliaError:
            raise
        except Exception:
            validate(self)
            raise
        validate(self)
        then(self)

    return checked
