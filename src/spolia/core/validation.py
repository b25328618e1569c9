"""Validation of fields against their declared types, without computing anything of a value."""

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
MAX_CHECKED_ITEMS = 8  # of a longer tuple or list that a step gives, the first item is looked at; of a dict, so many
_NUMBERS: dict[type, type] = {int: Integral, float: Real}


def validate(value: Any, error: type[SpoliaError] = WiringError) -> None:
    """Raise an error if a field of a dataclass does not have its declared type, and say what to write."""
    freeze(value)
    cls: Any = type(value)
    for name, kind in declared_fields(cls):
        field_value = getattr(value, name, None)
        if not fulfils(field_value, kind):
            problem = f"{type(value).__name__} has {name}={field_value!r:.80} ({type(field_value).__name__})"
            raise error(f"{problem}. Write {_advice(field_value, kind)}.")


def freeze(value: Any) -> None:
    """Make tuples of the lists in a dataclass's fields, and copy its dicts, so that nothing in them changes."""
    for field in fields(value):
        field_value = getattr(value, field.name, None)
        if (frozen := _frozen(field_value)) is not field_value:
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
    """Return arguments of `isinstance` that check a value, or its first items, against a type; none if impossible."""
    origin = get_origin(kind)
    if origin is Annotated:
        return classes_of(get_args(kind)[0])
    if origin in (Union, types.UnionType):
        alternatives = [classes_of(member) for member in get_args(kind)]
        return tuple(member for classes in alternatives for member in classes) if all(alternatives) else ()
    if origin is Literal:
        return (_ValueMatcher(lambda value: fulfils(value, kind)),)
    cls = types.NoneType if kind is None else origin or kind
    if not isinstance(cls, type) or cls in (object, Any) or getattr(cls, "_is_protocol", False):
        return ()
    try:
        isinstance(None, cls)  # some of `typing` cannot be asked
    except TypeError:
        return ()
    if origin in (tuple, list, Sequence):
        return _item_classes(cls, get_args(kind))
    if origin in (dict, Mapping):
        return _entry_classes(cls, *get_args(kind))
    # the abstract class last: it takes ten times as long to ask
    return (cls, int, _NUMBERS[cls]) if cls in _NUMBERS else (cls,)


class _ValueMatcher:
    """Stand-in for a class in `isinstance`, for a type that a class alone cannot check."""

    def __init__(self, matches: Callable[[Any], bool]) -> None:
        self.matches = matches

    def __instancecheck__(self, value: object) -> bool:
        return self.matches(value)


def _item_classes(cls: type, kinds: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the check of a tuple, list or sequence whose items have one type, or one each."""
    if not kinds or any(get_origin(kind) is Unpack or getattr(kind, "__unpacked__", False) for kind in kinds):
        return (cls,)
    is_row = cls is tuple and kinds[1:] != (Ellipsis,)
    item_classes = [classes_of(kind) or (object,) for kind in (kinds if is_row else kinds[:1])]
    if not is_row and item_classes == [(object,)]:
        return (cls,)

    def matches(value: Any) -> bool:
        if not isinstance(value, cls):
            return False
        if not isinstance(value, (tuple, list, str)):  # to look at the items may be to compute them
            return True
        if is_row:
            return len(value) == len(item_classes) and all(map(isinstance, value, item_classes))
        return all(
            isinstance(item, item_classes[0]) for item in (value if len(value) <= MAX_CHECKED_ITEMS else value[:1])
        )

    return (_ValueMatcher(matches),)


def _entry_classes(cls: type, key: Any, item: Any) -> tuple[Any, ...]:
    """Return the check of a dict or mapping whose keys have one type, and whose values do."""
    keys, items = classes_of(key) or (object,), classes_of(item) or (object,)

    def matches(value: Any) -> bool:
        entries = islice(value.items(), MAX_CHECKED_ITEMS) if isinstance(value, dict) else ()
        return isinstance(value, cls) and all(isinstance(k, keys) and isinstance(v, items) for k, v in entries)

    return (_ValueMatcher(matches),)


def fulfils(value: object, kind: Any) -> bool:
    """Return whether a value fits a declared type, as far as is known without computing anything."""
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        return any(fulfils(value, member) for member in get_args(kind))
    if origin is Literal:
        return any(value == member and type(value) is type(member) for member in get_args(kind))
    if origin in (tuple, list) or kind is list:
        return isinstance(value, (tuple, list)) and _each_fulfils(value, get_args(kind), origin)
    cls = types.NoneType if kind is None else origin or kind
    if not isinstance(cls, type) or cls is object:
        return True
    if cls in _NUMBERS:
        return isinstance(value, _NUMBERS[cls]) and not isinstance(value, bool)
    if cls is set:
        return isinstance(value, (set, frozenset))
    if getattr(cls, "_is_protocol", False):
        return not isinstance(value, _PLAIN)
    if isinstance(value, str) and issubclass(cls, Sequence):
        return cls is str
    try:
        return isinstance(value, cls)
    except TypeError:
        return True


def _each_fulfils(values: Sequence[object], kinds: tuple[Any, ...], origin: Any) -> bool:
    if kinds and (origin is list or kinds[1:] == (Ellipsis,)):
        return all(fulfils(value, kinds[0]) for value in values)
    return not kinds or (len(values) == len(kinds) and all(map(fulfils, values, kinds)))


def _advice(value: object, kind: Any) -> str:
    """Return what to write in place of a value."""
    kinds = [member for member in get_args(kind) if member is not types.NoneType] if _is_union(kind) else [kind]
    or_none = ", or None" if len(kinds) < len(get_args(kind)) and _is_union(kind) else ""
    for member in kinds:
        if get_origin(member) is tuple and get_args(member)[1:] == (Ellipsis,) and fulfils(value, get_args(member)[0]):
            return f"({value!r:.80},){or_none}"
    if isinstance(value, dict) and any(fulfils(tuple(value.items()), member) for member in kinds):
        return f"tuple({value!r:.80}.items()){or_none}"
    if isinstance(value, type) and not value.__module__.startswith("builtins"):
        return f"{value.__name__}(...)"
    return " or ".join(map(_describe_type, kinds)) + or_none


def _describe_type(kind: Any) -> str:
    if get_origin(kind) is Literal:
        values = [repr(literal) for literal in get_args(kind)]
        return " or ".join(filter(None, (", ".join(values[:-1]), values[-1])))
    if get_origin(kind) is tuple:
        return f"a tuple: {name_of(kind)}"
    names = {int: "a whole number", float: "a number", str: "a text", bool: "True or False"}
    return names.get(kind) or f"{'an' if name_of(kind)[0] in 'AEIOU' else 'a'} {name_of(kind)}"


def _is_union(kind: Any) -> bool:
    return get_origin(kind) in (Union, types.UnionType)


@cache
def declared_fields(cls: Any) -> tuple[tuple[str, Any], ...]:
    """Return fields with their types; without those whose types only a type checker sees."""
    declared: list[tuple[str, Any]] = []
    for field in fields(cls):
        home = next(base for base in cls.__mro__ if field.name in vars(base).get("__annotations__", {}))
        namespace = vars(sys.modules.get(home.__module__, types))
        # One at a time: a name that only type checkers see must not cost the types of the other fields.
        holder = types.SimpleNamespace(__annotations__={field.name: field.type})
        try:
            declared.append((field.name, get_type_hints(holder, namespace)[field.name]))
        except (NameError, TypeError, AttributeError):
            continue
    return tuple(declared)


_CAPABILITIES: dict[type, frozenset[str]] = {}
P = TypeVar("P", bound=type)


def capable(*names: str) -> Callable[[P], P]:
    """Mark a protocol of models: a model in a field of that type has these `capabilities`."""

    def mark(protocol: P) -> P:
        _CAPABILITIES[protocol] = frozenset(names)
        return protocol

    return mark


def capabilities_of(protocol: type) -> frozenset[str]:
    return _CAPABILITIES.get(protocol, frozenset())


@cache
def needed_capabilities(cls: Any) -> Mapping[str, frozenset[str]]:
    """Return the capabilities that models in the fields of a dataclass must have, by field."""
    capabilities = {}
    for name, kind in declared_fields(cls):
        kinds = [member for option in (get_args(kind) or (kind,)) for member in (get_args(option) or (option,))]
        if names := frozenset().union(*(capabilities_of(member) for member in kinds if isinstance(member, type))):
            capabilities[name] = names
    return capabilities


def with_validation(check: Callable[..., None], then: Callable[[Any], None]) -> Callable[..., None]:
    """Build a `__post_init__` that calls `check`, validates the fields, then calls `then`."""

    def check_and_validate(self: Any, *initial: Any) -> None:
        if (
            type(self).__post_init__ is not check_and_validate
        ):  # that of a class above, called by one below, which goes on
            check(self, *initial)
            return
        freeze(self)
        try:
            check(self, *initial)
        except SpoliaError:
            raise
        except Exception:  # The check fell over a value of a wrong type, about which `validate` has more to say.
            validate(self)
            raise
        validate(self)
        then(self)

    return check_and_validate
