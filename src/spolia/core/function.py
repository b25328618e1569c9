"""Plain functions as operators."""

import inspect
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Concatenate, ParamSpec, Self, TypeVar, get_type_hints, overload

from spolia.core.call_bounds import Bound, times, total
from spolia.core.fingerprint.digest import code_digest, source_of
from spolia.core.operator import In, Operator, Out
from spolia.core.type_compatibility import name_of
from spolia.core.validation import fulfils
from spolia.errors import WiringError
from spolia.types import digest_of, lazy_property

A = TypeVar("A")
B = TypeVar("B")
P = ParamSpec("P")
LAMBDA = "<lambda>"
FLOWS = "spolia.flows"


@dataclass(frozen=True, repr=False)
class Function(Operator[In, Out]):
    """Plain function as an operator; the function belongs to the class. The decorator `step` makes it."""

    arguments: tuple[tuple[str, Any], ...] = ()

    keywords: ClassVar[dict[str, Any]] = {}
    required: ClassVar[frozenset[str]] = frozenset()
    function: ClassVar[Callable[..., Any]]
    types: ClassVar[tuple[Any, Any]] = (Any, Any)
    name: ClassVar[str] = ""
    digest_extras: ClassVar[tuple[object, ...]] = ()
    plain: ClassVar[Any] = None
    source: ClassVar[str] = ""
    code: ClassVar[bytes | None] = None

    def __post_init__(self) -> None:
        names = _keywords(type(self).function) if self.arguments else ()
        for name, _ in self.arguments:
            if name not in names:
                raise WiringError(
                    f"{self.name} has no keyword argument {name!r}. It has: {', '.join(names) or 'none'}."
                )
        for name, value in self.arguments:
            if not fulfils(value, kind := self.keywords.get(name, Any)):
                raise WiringError(
                    f"{self.name} has {name}={value!r:.80} ({type(value).__name__}), not {name_of(kind)}."
                )

    @classmethod
    def from_function(cls, function: Callable[..., Any], types: tuple[Any, Any], **attributes: Any) -> Self:
        """Make a function an operator: the one instance of a class of its own, with these attributes."""
        name = getattr(function, "__qualname__", LAMBDA).rpartition("<locals>.")[2]
        if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
            raise WiringError(f"{name} is async, and its result would never be awaited. Write def {name}(...): ...")
        reason = hidden_dependency(function)
        if reason and attributes.get("cached"):
            raise WiringError(f"{name} cannot be cached: {reason}")
        # random: such a function equals no other, nor itself in another process
        digest_extras = (os.urandom(16),) if reason else _defaults(function)
        own = {"function": staticmethod(function), "types": types, "name": name, "digest_extras": digest_extras}
        own["source"] = source_of(function)  # now, since the file may be another one by the time that it is needed
        home = getattr(function, "__module__", None) or __name__
        dunders = {"__module__": home, "__qualname__": name, "__doc__": function.__doc__}
        instance: Self = type(name, (cls,), own | dunders | attributes)()
        type(instance).plain = instance
        return instance

    def but(self, **changes: Any) -> Self:
        """Return the same function with other keyword arguments, which are part of its identity as fields are."""
        arguments = dict(self.arguments) | changes
        ordered = {name: arguments[name] for name in _keywords(type(self).function) if name in arguments} | arguments
        return self.from_fields({"arguments": tuple(ordered.items())})

    def apply(self, value: In, /) -> Out:
        if self.required or self.arguments:
            return self.call_function(value)  # type: ignore[no-any-return]
        return type(self).function(value)  # type: ignore[no-any-return]

    def call_function(self, *values: Any, **more: Any) -> Any:
        self._refuse_missing()
        return type(self).function(*values, **more, **dict(self.arguments))

    def _refuse_missing(self) -> None:
        """Refuse to run while a keyword argument without a default is missing."""
        missing = self.required.difference(name for name, _ in self.arguments) if self.required else ()
        if missing:
            example = ", ".join(f"{name}=..." for name in sorted(missing))
            raise WiringError(f"{self.name} lacks {', '.join(sorted(missing))}. Write {self.name}.but({example}).")

    @lazy_property
    def digest(self) -> bytes:
        """Hash the function's place, version, defaults and code; with a `hidden_dependency` it equals no other."""
        cls = type(self)
        if cls.code is None:
            cls.code = code_digest(cls.function, cls.source)
        place = (cls.__module__, getattr(self.function, "__qualname__", self.name), self.version, cls.code)
        return digest_of((*place, *self.digest_extras, *((self.arguments,) if self.arguments else ())))

    def __reduce__(self) -> str | tuple[Any, ...]:
        """Pickle by name, as for a plain function."""
        return self.name if self is self.plain else (_restore, (self.plain, self.arguments))

    @classmethod
    def _declared(cls) -> tuple[Any, Any]:
        return cls.types

    @classmethod
    def type_id(cls) -> str:
        """Return the id of its class; for a step of a published flow with the flow's module: `corag.hop`."""
        package, _, module = cls.__module__.rpartition(".")
        return f"{module}.{cls.__qualname__}" if package == FLOWS else super().type_id()

    def gives(self, input_type: Any, /) -> Any:
        self._refuse_missing()
        return super().gives(input_type)

    def __repr__(self) -> str:
        return self._describe(object)

    @property
    def short(self) -> str:
        return self._describe(str, int, float)

    def _describe(self, *kinds: type) -> str:
        """Return its name with the arguments of some types."""
        arguments = ", ".join(f"{name}={value!r}" for name, value in self.arguments if isinstance(value, kinds))
        return f"{self.name}.but({arguments})" if arguments else self.name


def _restore(plain: Function[Any, Any], arguments: tuple[tuple[str, Any], ...]) -> Function[Any, Any]:
    return plain.but(**dict(arguments))


def _keywords(function: Callable[..., Any]) -> tuple[str, ...]:
    """Return the parameters that have a default or are keyword-only."""
    parameters = inspect.signature(function).parameters.values()
    return tuple(
        p.name
        for p in parameters
        if p.kind is p.KEYWORD_ONLY or (p.default is not p.empty and p.kind is not p.POSITIONAL_ONLY)
    )


@overload
def step(function: Callable[Concatenate[A, P], B], /) -> Operator[A, B]: ...
@overload
def step(
    *, version: int = 1, cached: bool = False, waits: bool = False, calls: int | Mapping[str, int] | None = None
) -> Callable[[Callable[Concatenate[A, P], B]], Operator[A, B]]: ...
def step(
    function: Callable[[Any], Any] | None = None,
    /,
    *,
    version: int = 1,
    cached: bool = False,
    waits: bool = False,
    calls: int | Mapping[str, int] | None = None,
) -> Any:
    """Make a plain function of one value an operator that has a name and a version.

    Its keyword arguments are what the fields of an operator are: hyper-parameters, models, retrievers, other steps.
    `but` gives them, and those without a default have to be given: `judged.but(judge=Ask(llm, role))`.

    Args:
        version: count it up when the function's result changes for a reason outside its code
            (`spolia.core.fingerprint`); both are part of the cache key.
        cached: keep its results.
        waits: it waits for a server or a disk.
        calls: calls to language models at most; or for each keyword argument that holds operators, how often these are
            called at most: `{"ask": 1, "search": 1}`. None leaves it to its code, which shows that there are no
            calls, or that the number is unknown.

    >>> from spolia.types import Query
    >>> @step
    ... def shouted(query: Query) -> Query:
    ...     return query.rewritten(query.text.upper())
    >>> (shouted >> shouted)(Query("why?")).text
    'WHY?'
    """

    def make_operator(function: Callable[[Any], Any]) -> Operator[Any, Any]:
        refuse_non_function(function, "step")
        try:
            hints = get_type_hints(function)
        except (NameError, TypeError):  # a name for the type checker alone; a partial
            hints = {}
        open_ = [p for p in inspect.signature(function).parameters.values() if p.default is p.empty]
        names = [p.name for p in open_ if p.kind is not p.KEYWORD_ONLY]
        required = frozenset(p.name for p in open_ if p.kind is p.KEYWORD_ONLY)
        if len(names) != 1:
            name = getattr(function, "__name__", LAMBDA)
            rest = f", *, {', '.join(names[1:])}" if names else ""
            takes = f"{name} takes {len(names)} values; an operator takes one, and else keyword arguments"
            raise WiringError(f"{takes}. Write def {name}({names[0] if names else 'value'}{rest}): ...")
        types = (hints.get(names[0], Any), hints.get("return", Any))
        call_bound = {} if calls is None else {"calls": _calls_method(calls)}
        keywords = {name: kind for name, kind in hints.items() if name in _keywords(function)}
        attributes = {"version": version, "cached": cached, "waits": waits, "keywords": keywords, "required": required}
        return Function.from_function(function, types, **attributes, **call_bound)

    return make_operator if function is None else make_operator(function)


def refuse_non_function(value: object, decorator: str) -> None:
    if not callable(value):
        raise WiringError(f"{value!r:.80} is not a function. Write @{decorator} above the definition of one.")


def _calls_method(calls: int | Mapping[str, int]) -> Callable[..., Bound]:
    """Build the method `calls` of a step."""

    def bound(self: Function[Any, Any], rows: int | None = None, /) -> Bound:
        if isinstance(calls, int):
            return calls
        return total(times(calls.get(place.split(".")[1]), op.calls()) for place, op in self.inner())

    return bound


def hidden_dependency(function: Callable[..., Any]) -> str:
    """Explain what a function's result depends on beyond its name, and what to write; empty if nothing."""
    name = getattr(function, "__name__", LAMBDA)
    if name == LAMBDA:
        kind = "a lambda" if inspect.isfunction(function) else type(function).__name__
        return f"{kind} has no name of its own. Write def name(...): ... with the decorator above it."
    if getattr(function, "__closure__", None):
        outer = ", ".join(function.__code__.co_freevars)
        return (
            f"its result depends on {outer} of the function around it. "
            f"With @step, make it a keyword argument (*, {outer}) and give it with .but; else write an operator with "
            "fields for it."
        )
    owner = getattr(function, "__self__", None)
    if owner is not None and not inspect.ismodule(owner) and not inspect.isclass(owner):
        return f"it is a method of {owner!r:.60}, on which its result depends. Write a function of its own."
    try:
        digest_of(_defaults(function))
    except TypeError as error:
        return f"its result depends on a default value. {error}"
    return ""


def _defaults(function: Callable[..., Any]) -> tuple[object, ...]:
    """Return the values that were bound when the function was defined."""
    by_name = getattr(function, "__kwdefaults__", None)
    return (*(getattr(function, "__defaults__", None) or ()), *((by_name,) if by_name else ()))
