"""What all values share: they are frozen, are compared, and know a hash of their content.

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
    """Something outside the flow (a store, a model) that a value names without holding it.

    `fingerprint()` tells its present content apart from another; `None` means that nothing that uses it may be cached.
    `scoped` says that what it returns depends on who asks. `waits = False`, which it may have, says that it is on this
    machine, so that steps that use it need no thread of their own.
    """

    @property
    def scoped(self) -> bool: ...

    def fingerprint(self) -> str | None: ...


@cache
def identity_fields(cls: Any) -> tuple[str, ...]:
    """Names of the fields of a dataclass that make up its identity."""
    return tuple(f.name for f in fields(cls) if f.compare and "later" not in f.metadata)


def later(default: Any) -> Any:
    """A field that came to a class later: its default leaves the digest, and what is stored under it, as they were."""
    return field(default=default, metadata={"later": True})


def indifferent(default: Any, before: Any = None) -> Any:
    """A field that makes no other results, such as a time limit: in the digest it always has its default, or that of
    `before`. What is stored under the digest stays valid whatever the field holds.
    """
    return field(default=default, metadata={"digested": default if before is None else before})


def explaining(default: Any) -> Any:
    """A field that explains a value: it is written, kept and traced with it, and neither compared nor hashed."""
    return field(default=default, compare=False, metadata={"written": True})


@cache
def _digested(cls: Any) -> tuple[bytes, tuple[str, ...], Mapping[str, Any], Mapping[str, Any]]:
    """How a digest begins, the names of its fields, the defaults of `later` ones, and what `indifferent` ones give."""
    late = {f.name: f.default for f in fields(cls) if "later" in f.metadata}
    indifferent = {f.name: f.metadata["digested"] for f in fields(cls) if "digested" in f.metadata}
    return b"%b|" % qualified(cls).encode(), identity_fields(cls), late, indifferent


def digest_of(value: object) -> bytes:
    """16 bytes that equal values share and different values do not: a Merkle hash (BLAKE2b).

    >>> digest_of((1, "a")) == digest_of((1, "a")), digest_of(1) == digest_of(True)
    (True, False)
    """
    return hashlib.blake2b(_encoded(value), digest_size=16).digest()


def _encoded(value: object) -> bytes:
    kind = type(value)
    if kind is tuple and not value:  # most often
        return b"()"
    if isinstance(value, str):
        raw = value.encode("utf-8", "surrogatepass")
        return b"s%d:%b" % (len(raw), raw)
    if value is None or kind is bool or kind is int:
        return b"%c%r;" % (kind.__name__[0].encode(), value)
    if isinstance(value, float):
        return b"f" + struct.pack("<d", value)
    if isinstance(value, bytes):
        return b"y%d:" % len(value) + value
    if isinstance(value, (tuple, list)):
        return b"(%s)" % b"".join(map(_encoded, value))
    if isinstance(value, frozenset):
        return b"<%s>" % b"".join(sorted(map(_encoded, value)))
    digest = getattr(value, "digest", None)
    if isinstance(digest, bytes):
        return b"v" + digest
    if isinstance(value, Mapping):  # last: it takes longest to tell
        return b"{%s}" % b"".join(_encoded(key) + _encoded(value[key]) for key in sorted(value))
    raise TypeError(
        f"{value!r} of type {kind.__name__} has no content hash. "
        "Use scalars, tuples, mappings, values, operators and addresses."
    )


class kept(Generic[T]):
    """A property computed once and kept in the instance's `__dict__`: `functools.cached_property` without its lock."""

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
        found: T = self.compute(instance)
        instance.__dict__[self.name] = found
        return found


@cache
def qualified(cls: Any) -> str:
    """What tells a class apart in hashes: its name, outside Spolia with its module."""
    name: str = cls.__qualname__
    return name if cls.__module__.startswith("spolia.") else f"{cls.__module__}:{name}"


def refuse_unknown_names(cls: Any, given: Iterable[str]) -> None:
    """Raise `WiringError` for a name that the constructor of a class does not take, and say which is meant."""
    known = _names_of(cls.__init__)
    if known is None:
        return
    _refuse_others(cls.__name__, known, given)


def _refuse_others(whose: str, known: Collection[str], given: Iterable[str]) -> None:
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            advice = f"Write {near[0]}=." if near else f"It takes: {', '.join(known) or 'nothing'}."
            raise WiringError(f"{whose} takes no {name!r}. {advice}")


@cache
def _names_of(constructor: Any) -> dict[str, None] | None:
    """Names that it takes, in their order; None where it takes any."""
    if constructor is object.__init__:
        return {}
    code = getattr(unwrap(constructor), "__code__", None)
    if code is None or code.co_flags & CO_VARKEYWORDS:
        return None
    return dict.fromkeys(code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount])


@cache
def _required(constructor: Any) -> tuple[tuple[str, ...], int]:
    """Names without a default, and how many arguments it takes without a name."""
    function = unwrap(constructor)
    if (code := getattr(function, "__code__", None)) is None:
        return (), 0 if constructor is object.__init__ else 10**6
    placed = code.co_varnames[1 : code.co_argcount]
    named = code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]
    must = placed[: len(placed) - len(function.__defaults__ or ())]
    must += tuple(name for name in named if name not in (function.__kwdefaults__ or {}))
    return must, 10**6 if code.co_flags & CO_VARARGS else len(placed)


def refuse_arguments(cls: Any, args: Sequence[Any], given: Mapping[str, Any]) -> None:
    """Raise `WiringError` for arguments that a constructor does not take or that are missing; say what to write."""
    if given:
        refuse_unknown_names(cls, given)
    must, most = _required(cls.__init__)
    if len(args) > most:
        known = ", ".join(_names_of(cls.__init__) or ())
        raise WiringError(
            f"{cls.__name__} takes {most or 'no'} argument{'s' if most > 1 else ''} without a name, and was given "
            f"{args[most]!r:.80} ({type(args[most]).__name__}). Write its name before it; it takes: {known}."
        )
    if len(args) + len(given) < len(must) or (given and len(args) < len(must)):
        placed = tuple(_names_of(cls.__init__) or ())[: len(args)]
        if missing := [name for name in must if name not in given and name not in placed]:
            written = ", ".join(f"{name}=…" for name in must)
            raise WiringError(f"{cls.__name__} needs {' and '.join(missing)}. Write {cls.__name__}({written}).")


def bare(cls: type[T]) -> T:
    """An instance of a class as pickle makes it, whose fields are set afterwards."""
    return object.__new__(cls)


def reduced(value: Any, protocol: int) -> Any:
    """`__reduce_ex__` of a class whose constructor refuses missing arguments, so that pickle does not call it."""
    if any("__reduce__" in vars(cls) for cls in type(value).__mro__[:-1]):
        return value.__reduce__()
    return bare, (type(value),), value.__getstate__()


def names_checked(function: Callable[P, T]) -> Callable[P, T]:
    """A function that is called by hand, which suggests the name that you meant for one that it does not take.

    >>> @names_checked
    ... def cut(text: str, width: int = 80) -> str:
    ...     return text[:width]
    >>> cut("stones", widht=3)
    Traceback (most recent call last):
    spolia.errors.WiringError: cut takes no 'widht'. Write width=.
    """
    code: Any = function.__code__
    known = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]

    @wraps(function)
    def called(*args: P.args, **given: P.kwargs) -> T:
        _refuse_others(function.__name__, known, given)
        return function(*args, **given)

    return called


def refuse_type(value: object, name: str, advice: str) -> None:
    """Raise `WiringError` for what a field holds, and say what to write."""
    given = getattr(value, name)
    said = f"{type(value).__name__} has {name}={given!r:.80} ({type(given).__name__})"
    raise WiringError(f"{said}. Write {advice}.")


def maker(cls: type[T]) -> Callable[..., T]:
    """A function that makes a value of its fields, in their order and unchecked: for values by the thousand."""
    given = {f.name: f.default for f in fields(cls)}  # type: ignore[arg-type]
    taken = ", ".join(name if default is MISSING else f"{name}=given['{name}']" for name, default in given.items())
    each = ", ".join(f"{name}={name}" for name in given)
    code = f"def made({taken}):\n self = _new(_cls)\n self.__dict__.update({each})\n return self"
    scope: dict[str, Any] = {"_new": object.__new__, "_cls": cls, "given": given}
    exec(code, scope)
    made: Callable[..., T] = scope["made"]
    return made


_taken: set[tuple[Any, ...]] = set()
"""Classes, each with a number of arguments and names that its constructor takes."""


@cache
def _set_by_name(cls: Any) -> Mapping[str, None] | None:
    """Fields of a dataclass whose constructor, as `dataclass` wrote it, does nothing but set them; else None."""
    names = dict.fromkeys(f.name for f in fields(cls))
    code = cls.__init__.__code__
    taken = code.co_varnames[1 : code.co_argcount + code.co_kwonlyargcount]
    is_written = code.co_filename == "<string>" and cls.__new__ is Value.__new__ and set(taken) == set(names)
    return names if is_written and "__dataclass_fields__" in vars(cls) else None


class Value:
    """Base of all values. Subclasses are frozen dataclasses without slots, so that the digest is kept on them.

    Their constructors refuse names that they do not take, and say what is missing, as those of operators do.
    """

    if not TYPE_CHECKING:  # a checker sees the names themselves

        def __new__(cls, *args: Any, **given: Any) -> Self:
            if (shape := (cls, len(args), *given)) not in _taken:
                refuse_arguments(cls, args, given)
                _taken.add(shape)
            return object.__new__(cls)

        __reduce_ex__ = reduced

    @kept
    def digest(self) -> bytes:
        """Content hash over the identity, computed once."""
        return self.digest_with()

    def digest_with(self, **changes: Any) -> bytes:
        """The digest of the same value with some fields changed."""
        cls: Any = type(self)
        head, names, late, indifferent = _digested(cls)
        given = {**changes, **indifferent}
        parts = head + b"".join([_encoded(given[name] if name in given else getattr(self, name)) for name in names])
        for name, default in late.items():
            parts += b"" if (found := given.get(name, getattr(self, name))) == default else _encoded((name, found))
        return hashlib.blake2b(parts, digest_size=16).digest()

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def but(self, **changes: Any) -> Self:
        """The same value with some fields changed."""
        cls: Any = type(self)
        names = _set_by_name(cls)
        if names is None or not changes.keys() <= names.keys():
            refuse_unknown_names(cls, changes)
            return replace(self, **changes)  # type: ignore[type-var]
        made: Self = object.__new__(cls)
        state = {**self.__dict__, **changes}
        made.__dict__.update(state if len(state) == len(names) else {name: state[name] for name in names})
        if (check := getattr(made, "__post_init__", None)) is not None:
            check()
        return made
