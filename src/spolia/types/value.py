"""Base of all values: they are frozen, are compared, and know a hash of their content.

A wrong name or type in what users write by hand raises immediately and says what to write.
"""

import hashlib
import struct
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import MISSING, field, fields, replace
from functools import cache, wraps
from inspect import CO_VARARGS, CO_VARKEYWORDS, unwrap
from typing import (
    TYPE_CHECKING,
    Any,
    Generic,
    ParamSpec,
    Protocol,
    Self,
    TypeAlias,
    TypeVar,
    overload,
    runtime_checkable,
)

from spolia.deferred import difflib
from spolia.errors import WiringError

Scalar: TypeAlias = str | int | float | bool | None
Meta: TypeAlias = tuple[tuple[str, Scalar], ...]
"""Names and values. A name that occurs more than once has several values."""
Record: TypeAlias = Mapping[str, Sequence[Scalar]]
"""All values of each declared metadata field."""
P = ParamSpec("P")
T = TypeVar("T")


@runtime_checkable
class Addressed(Protocol):
    """Address of something outside the flow (a store, a model) that a value names without holding it.

    `fingerprint()` tells its present content apart from another; `None` means that nothing that uses it may be cached.
    `scoped` says that what it returns depends on who asks. `waits = False`, which it may have, says that it is on this
    machine, so that steps that use it need no thread of their own.
    """

    @property
    def scoped(self) -> bool: ...

    def fingerprint(self) -> str | None: ...


@cache
def identity_fields(cls: Any) -> tuple[str, ...]:
    """Return names of the fields of a dataclass that make up its identity."""
    return tuple(f.name for f in fields(cls) if f.compare and "later" not in f.metadata)


def added_field(default: Any) -> Any:
    """Define a field added later: its default leaves the digest, and what is stored under it, as they were."""
    return field(default=default, metadata={"later": True})


def neutral_field(default: Any, previous: Any = None) -> Any:
    """Define a field that changes no results, such as a time limit: in the digest it always has its default, or
    `previous`. What is stored under the digest stays valid whatever the field holds."""
    return field(default=default, metadata={"digested": default if previous is None else previous})


def explaining_field(default: Any) -> Any:
    """Define a field that explains a value: written, kept and traced with it, neither compared nor hashed."""
    return field(default=default, compare=False, metadata={"written": True})


@cache
def _digest_parts(cls: Any) -> tuple[bytes, tuple[str, ...], Mapping[str, Any], Mapping[str, Any]]:
    """Return how a digest begins, the names of its fields, and the defaults of added and of neutral fields."""
    added = {f.name: f.default for f in fields(cls) if "later" in f.metadata}
    neutral = {f.name: f.metadata["digested"] for f in fields(cls) if "digested" in f.metadata}
    return b"%b|" % qualified_name(cls).encode(), identity_fields(cls), added, neutral


def digest_of(value: object) -> bytes:
    """Hash a value to 16 bytes that equal values share and different values do not: a Merkle hash (BLAKE2b).

    >>> digest_of((1, "a")) == digest_of((1, "a")), digest_of(1) == digest_of(True)
    (True, False)
    """
    return hashlib.blake2b(_encode(value), digest_size=16).digest()


def _encode(value: object) -> bytes:
    kind = type(value)
    if kind is tuple and not value:  # most often
        return b"()"
    if isinstance(value, str):
        raw = value.encode("utf-8", "surrogatepass")  # a damaged source may leave half a character, which must hash too
        # Each form states its length or its end, so that two values in a row never read like two others.
        return b"s%d:%b" % (len(raw), raw)
    if value is None or kind is bool or kind is int:
        return b"%c%r;" % (kind.__name__[0].encode(), value)
    if isinstance(value, float):
        return b"f" + struct.pack("<d", value)
    if isinstance(value, bytes):
        return b"y%d:" % len(value) + value
    if isinstance(value, (tuple, list)):
        return b"(%s)" % b"".join(map(_encode, value))
    if isinstance(value, frozenset):
        return b"<%s>" % b"".join(sorted(map(_encode, value)))  # a set's own order differs from process to process
    digest = getattr(value, "digest", None)
    if isinstance(digest, bytes):
        return b"v" + digest
    if isinstance(value, Mapping):  # last: it takes longest to tell
        return b"{%s}" % b"".join(_encode(key) + _encode(value[key]) for key in sorted(value))
    raise TypeError(
        f"{value!r} of type {kind.__name__} has no content hash. "
        "Use scalars, tuples, mappings, values, operators and addresses."
    )


class lazy_property(Generic[T]):
    """Property computed once and kept in the instance's `__dict__`: `functools.cached_property` without its lock."""

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self.compute = compute
        self.__doc__ = compute.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...
    @overload
    def __get__(self, instance: object, owner: type) -> T: ...
    def __get__(self, instance: object, owner: type) -> Self | T:
        if instance is None:
            return self
        value: T = self.compute(instance)
        # Found before this descriptor from now on. Two threads may compute it at once, to equal values: no lock needed.
        instance.__dict__[self.name] = value
        return value


@cache
def qualified_name(cls: Any) -> str:
    """Return the name of a class in hashes: outside Spolia with its module."""
    name: str = cls.__qualname__
    return name if cls.__module__.startswith("spolia.") else f"{cls.__module__}:{name}"


def refuse_unknown_names(cls: Any, names: Iterable[str]) -> None:
    """Raise `WiringError` for a name that the constructor of a class does not take, and say which is meant."""
    accepted = _names_of(cls.__init__)
    if accepted is None:
        return
    _refuse_unknown(cls.__name__, accepted, names)


def _refuse_unknown(owner: str, accepted: Collection[str], names: Iterable[str]) -> None:
    for name in names:
        if name not in accepted:
            matches = difflib.get_close_matches(name, accepted, 1)
            advice = f"Write {matches[0]}=." if matches else f"It takes: {', '.join(accepted) or 'nothing'}."
            raise WiringError(f"{owner} takes no {name!r}. {advice}")


@cache
def _names_of(constructor: Any) -> dict[str, None] | None:
    """Return the names that a constructor takes, in their order; None if it takes any."""
    if constructor is object.__init__:
        return {}
    code = getattr(unwrap(constructor), "__code__", None)
    if code is None or code.co_flags & CO_VARKEYWORDS:
        return None
    return dict.fromkeys(code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount])


@cache
def _required_names(constructor: Any) -> tuple[tuple[str, ...], int]:
    """Return the names without a default, and how many arguments are taken without a name."""
    function = unwrap(constructor)
    if (code := getattr(function, "__code__", None)) is None:
        return (), 0 if constructor is object.__init__ else 10**6
    positional = code.co_varnames[1 : code.co_argcount]
    keyword_only = code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]
    required = positional[: len(positional) - len(function.__defaults__ or ())]
    required += tuple(name for name in keyword_only if name not in (function.__kwdefaults__ or {}))
    return required, 10**6 if code.co_flags & CO_VARARGS else len(positional)  # a million stands for any number


def refuse_arguments(cls: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Raise `WiringError` for arguments that a constructor does not take or that are missing; say what to write."""
    if kwargs:
        refuse_unknown_names(cls, kwargs)
    required, limit = _required_names(cls.__init__)
    if len(args) > limit:
        accepted = ", ".join(_names_of(cls.__init__) or ())
        raise WiringError(
            f"{cls.__name__} takes {limit or 'no'} argument{'s' if limit > 1 else ''} without a name, and was given "
            f"{args[limit]!r:.80} ({type(args[limit]).__name__}). Write its name before it; it takes: {accepted}."
        )
    if len(args) + len(kwargs) < len(required) or (kwargs and len(args) < len(required)):
        positional = tuple(_names_of(cls.__init__) or ())[: len(args)]
        if missing := [name for name in required if name not in kwargs and name not in positional]:
            example = ", ".join(f"{name}=…" for name in required)
            raise WiringError(f"{cls.__name__} needs {' and '.join(missing)}. Write {cls.__name__}({example}).")


def make_bare(cls: type[T]) -> T:
    """Make an instance of a class as pickle does, whose fields are set afterwards."""
    return object.__new__(cls)


def reduce_value(value: Any, protocol: int) -> Any:
    """Reduce a value whose constructor refuses missing arguments, so that pickle does not call it."""
    if any("__reduce__" in vars(cls) for cls in type(value).__mro__[:-1]):  # not of `object`, which has one for all
        return value.__reduce__()
    return make_bare, (type(value),), value.__getstate__()


def check_names(function: Callable[P, T]) -> Callable[P, T]:
    """Make a function called by hand suggest the name that was meant for one that it does not take.

    >>> @check_names
    ... def cut(text: str, width: int = 80) -> str:
    ...     return text[:width]
    >>> cut("stones", widht=3)
    Traceback (most recent call last):
    spolia.errors.WiringError: cut takes no 'widht'. Write width=.
    """
    code: Any = function.__code__
    accepted = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]

    @wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> T:
        _refuse_unknown(function.__name__, accepted, kwargs)
        return function(*args, **kwargs)

    return checked


def refuse_type(value: object, name: str, advice: str) -> None:
    """Raise `WiringError` for what a field holds, and say what to write."""
    content = getattr(value, name)
    problem = f"{type(value).__name__} has {name}={content!r:.80} ({type(content).__name__})"
    raise WiringError(f"{problem}. Write {advice}.")


def unchecked_constructor(cls: type[T]) -> Callable[..., T]:
    """Return a function that makes a value of its fields, in their order and unchecked: for values by the thousand."""
    defaults = {f.name: f.default for f in fields(cls)}  # type: ignore[arg-type]
    parameters = ", ".join(
        name if default is MISSING else f"{name}=given['{name}']" for name, default in defaults.items()
    )
    assignments = ", ".join(f"{name}={name}" for name in defaults)
    # Compiled as `dataclass` does it. Only names of fields go into the code, nothing that a user or a file gave.
    code = f"def made({parameters}):\n self = _new(_cls)\n self.__dict__.update({assignments})\n return self"
    scope: dict[str, Any] = {"_new": object.__new__, "_cls": cls, "given": defaults}
    exec(code, scope)
    constructor: Callable[..., T] = scope["made"]
    return constructor


_accepted_shapes: set[tuple[Any, ...]] = set()
"""Classes, each with a number of arguments and names that its constructor takes."""


@cache
def _plain_fields(cls: Any) -> Mapping[str, None] | None:
    """Return the fields of a dataclass whose generated constructor does nothing but set them; else None."""
    names = dict.fromkeys(f.name for f in fields(cls))
    code = cls.__init__.__code__
    parameters = code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount]
    # Where `dataclass` compiles its constructors; one written by hand may do more than set fields.
    is_generated = code.co_filename == "<string>" and cls.__new__ is Value.__new__ and set(parameters) == set(names)
    return names if is_generated and "__dataclass_fields__" in vars(cls) else None


class Value:
    """Base of all values. Subclasses are frozen dataclasses without slots, so that the digest is kept on them.

    Their constructors refuse names that they do not take, and say what is missing, as those of operators do.
    """

    if not TYPE_CHECKING:  # a checker sees the names themselves

        def __new__(cls, *args: Any, **kwargs: Any) -> Self:
            if (shape := (cls, len(args), *kwargs)) not in _accepted_shapes:
                refuse_arguments(cls, args, kwargs)
                _accepted_shapes.add(shape)
            return object.__new__(cls)

        __reduce_ex__ = reduce_value

    @lazy_property
    def digest(self) -> bytes:
        """Return the content hash over the identity, computed once."""
        return self.digest_with()

    def digest_with(self, **changes: Any) -> bytes:
        """Return the digest of the same value with some fields changed."""
        cls: Any = type(self)
        head, names, added, neutral = _digest_parts(cls)
        values = {**changes, **neutral}
        parts = head + b"".join([_encode(values[name] if name in values else getattr(self, name)) for name in names])
        for name, default in added.items():
            parts += b"" if (value := values.get(name, getattr(self, name))) == default else _encode((name, value))
        return hashlib.blake2b(parts, digest_size=16).digest()

    def __deepcopy__(self, memo: object) -> Self:  # immutable, and a copy would lose its digest
        return self

    def but(self, **changes: Any) -> Self:
        """Return the same value with some fields changed."""
        cls: Any = type(self)
        names = _plain_fields(cls)
        if names is None or not changes.keys() <= names.keys():
            refuse_unknown_names(cls, changes)
            return replace(self, **changes)  # type: ignore[type-var]
        value: Self = object.__new__(cls)
        # The fast path beside `replace`, without the constructor. Cached properties are left out: they are of the old
        # value.
        state = {**self.__dict__, **changes}
        value.__dict__.update(state if len(state) == len(names) else {name: state[name] for name in names})
        if (check := getattr(value, "__post_init__", None)) is not None:
            check()
        return value
