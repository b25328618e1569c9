"""Plain functions as operators."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar, get_type_hints, overload

from spolia.errors import WiringError
from spolia.operator import In, Operator, Out
from spolia.types import digest_of, kept
from spolia.wiring import Bindings, filled, fits, name_of

A = TypeVar("A")
B = TypeVar("B")


@dataclass(frozen=True, repr=False)
class Function(Operator[In, Out]):
    """A plain function as an operator; made by the decorator `step`.

    The function belongs to the class, not to the fields: the operator is as plain as any other.
    """

    function: ClassVar[Callable[[Any], Any]]
    types: ClassVar[tuple[Any, Any]] = (Any, Any)
    name: ClassVar[str] = ""

    def apply(self, value: In, /) -> Out:
        return type(self).function(value)  # type: ignore[no-any-return]

    @kept
    def digest(self) -> bytes:
        """Content hash: where the function stands, and its version."""
        return digest_of((self.function.__module__, self.function.__qualname__, self.version))

    def __reduce__(self) -> str:
        """Another process finds it under its name, as it finds a function."""
        return self.name

    def takes(self) -> Any:
        return self.types[0]

    def gives(self, taken: Any, /) -> Any:
        bound: Bindings = {}
        if not fits(self.types[0], taken, bound):
            raise WiringError(f"{self.short} takes {name_of(self.types[0])}, not {name_of(taken)}")
        return filled(self.types[1], bound)

    def __repr__(self) -> str:
        return self.name

    @property
    def short(self) -> str:
        return self.name


@overload
def step(function: Callable[[A], B], /) -> Operator[A, B]: ...
@overload
def step(
    *, version: int = 1, cached: bool = False, waits: bool = False
) -> Callable[[Callable[[A], B]], Operator[A, B]]: ...
def step(
    function: Callable[[Any], Any] | None = None, /, *, version: int = 1, cached: bool = False, waits: bool = False
) -> Any:
    """Make a plain function of one value an operator that has a name and a version.

    Args:
        version: count it up when the function's result changes; it is part of the cache key.
        cached: keep its results.
        waits: it waits for a server or a disk.

    >>> from spolia.types import Query
    >>> @step
    ... def shouted(query: Query) -> Query:
    ...     return query.rewritten(query.text.upper())
    >>> (shouted >> shouted)(Query("why?")).text
    'WHY?'
    """

    def made(function: Callable[[Any], Any]) -> Operator[Any, Any]:
        name = getattr(function, "__qualname__", "<lambda>").rpartition("<locals>.")[2]
        if cached and name == "<lambda>":
            raise WiringError(
                "A lambda cannot be cached: it has no name. Write def name(value): ... with @step above it."
            )
        if cached and getattr(function, "__closure__", None):
            outer = ", ".join(function.__code__.co_freevars)
            raise WiringError(
                f"{name} cannot be cached: its result depends on {outer} of the function around it. "
                f"Write an operator with fields for it: @dataclass(frozen=True) class {name.title()}(Operator[...])."
            )
        try:
            hints = get_type_hints(function)
        except NameError:
            hints = {}
        names = [p.name for p in inspect.signature(function).parameters.values() if p.default is p.empty]
        if len(names) != 1:
            raise WiringError(f"{name} takes {len(names)} values; an operator takes one. Write def {name}(value): ...")
        cls = type(
            name,
            (Function,),
            {
                "function": staticmethod(function),
                "types": (hints.get(names[0], Any), hints.get("return", Any)),
                "name": name,
                "version": version,
                "cached": cached,
                "waits": waits,
                "__module__": function.__module__,
                "__doc__": function.__doc__,
                "__qualname__": name,
            },
        )
        return cls()  # type: ignore[no-any-return]

    return made if function is None else made(function)
