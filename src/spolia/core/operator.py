"""The one idea: a step of a flow is a frozen dataclass whose fields are its hyper-parameters and resources."""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, is_dataclass
from functools import cache, partial, wraps
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Never, NoReturn, Self, TypeAlias, TypeVar, final

from spolia.core.call_bounds import most, total
from spolia.core.fingerprint.digest import code_digest
from spolia.core.fingerprint.packages import IN_STEP, place_of
from spolia.core.fingerprint.references import Reference, asks_no_model, is_constant, references
from spolia.core.fingerprint.source_text import functions_of
from spolia.core.run_context import Event, RunContext, attempt, called_late, current_context, gather
from spolia.core.type_compatibility import Bindings, filled, fits, name_of, parameters_of
from spolia.core.validation import classes_of, freeze, needed, validate, with_validation
from spolia.errors import SpoliaError, UndecidedError, WiringError
from spolia.types import Addressed, Answer, Failure, Query, Ranking, State, Value, digest_of, kept, qualified
from spolia.types.value import reduced, refuse_arguments

In = TypeVar("In", contravariant=True)
Out = TypeVar("Out", covariant=True)
A = TypeVar("A")
B = TypeVar("B")


_NOTHING: Any = object()
"""Stands for a value that was not given, so that the error can say what to write."""


class _Needs:
    def __get__(self, op: object, cls: Any) -> Mapping[str, frozenset[str]]:
        return needed(cls)


class _Classes:
    """A class attribute that is computed, and replaced by its value, on first use."""

    def __get__(self, op: object, cls: Any) -> tuple[type, ...]:
        cls.classes = found = (() if cls.composes else classes_of(cls._declared()[1])) or (object,)
        return found


class Operator(ABC, Generic[In, Out]):
    """A step of a flow: a frozen dataclass, from one value to another.

    Class attributes:
        version: enters the cache key; count it up when the result for the same fields and value changes.
        cached: the result costs enough to be kept (models, embedding, reranking); never for cheap steps.
        waits: it waits for a server or a disk, so that running several together helps. An operator with a model or a
            server among its fields need not say so (`waiting`).
        composes: it only composes its inner operators, so that `Run(share=True)` shares these and not its own result.
        optional: what it spends may leave room for one forced answer (loops).
        variadic: name of the field that positional arguments fill.
        classes: what its results are instances of, by what it declares; of anything where it composes or does not say.
        takes_late: it may get rankings whose hits are not fetched yet, and fetches only the hits that it needs.
        needs: capabilities that the model in a field must have, as the protocol says that the field declares:
            `llm: LanguageModel` needs `chat`, `llm: StatesLogprobs` needs `logprobs` too.
    """

    version: ClassVar[int] = 1
    cached: ClassVar[bool] = False
    waits: ClassVar[bool] = False
    composes: ClassVar[bool] = False
    optional: ClassVar[bool] = False
    variadic: ClassVar[str] = ""
    takes_late: ClassVar[bool] = False
    classes: ClassVar[tuple[type, ...]] = _Classes()  # type: ignore[assignment]
    needs: ClassVar[Mapping[str, frozenset[str]]] = _Needs()  # type: ignore[assignment]
    _reaches: ClassVar[list[Reference]] = []
    _is_silent: ClassVar[bool] = False

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        cls.classes = _Classes()  # type: ignore[assignment]
        if own := cls.__dict__.get("__post_init__"):
            cls.__post_init__ = with_validation(own, _refuse_undeclared)  # type: ignore[method-assign]
        if own := cls.__dict__.get("__init__"):
            cls.__init__ = _freezing(own)  # type: ignore[method-assign]
        stated = next(base for base in cls.__mro__ if "calls" in base.__dict__)
        if not _is_ours(cls) and _is_ours(stated) and (any(functions_of(cls)) or "function" in cls.__dict__):
            cls.calls = _calls_of_users  # type: ignore[method-assign]

    def __post_init__(self) -> None:
        """Refuse fields that hold what they do not declare; a list in a field becomes a tuple."""
        validate(self)
        if type(self).__post_init__ is Operator.__post_init__:
            _refuse_undeclared(self)

    # What most operators write.

    @abstractmethod
    def apply(self, value: In, /) -> Out:
        """Run on one value: same fields, same value, same result."""

    def apply_batch(self, values: Sequence[In], /) -> Sequence[Out | Failure]:
        """Run on many values; override where many at once are faster."""
        return gather([_Call(self, value) for value in values], waits=self.waiting)

    def reads(self, value: Any, /) -> object:
        """What the result depends on; a narrower answer than the whole value makes more cache hits.

        All of the value that comes back in the result belongs to it, but for what `attach` puts there.
        """
        return value

    def attach(self, out: Any, value: Any, /) -> Any:
        """Give a cached result the provenance of the value that it is used for.

        A result is kept only where this gives back what was put.
        """
        if isinstance(out, tuple):
            return tuple(self.attach(item, value) for item in out) if type(out) is tuple else out
        if isinstance(out, Answer):
            return out.but(evidence=value) if isinstance(value, Ranking) else out
        asked = _asked(value)
        if asked is None:
            return out
        if isinstance(out, Ranking):
            return out.but(query=asked)
        if isinstance(out, Query):
            return asked if out == asked else out.but(origin=asked)
        return out

    # Running.

    @final
    def __call__(self, value: In = _NOTHING, /, **settings: Never) -> Out:
        if settings or value is _NOTHING:
            _refuse_settings(self, settings)
        if isinstance(value, str) and not self._takes_text:
            raise _refusal(self, value)
        context = current_context.get()
        if context is not None:
            result: Out = context.step(self, value)
            return result
        try:
            found = self.apply(value)
        except Exception as error:
            if (said := explained(error, self, value)) is not error:
                raise said from error
            raise
        return found if isinstance(found, self.classes) else self.refused(found)

    @final
    def batch(self, values: Sequence[In], /, *, rows: Sequence[int] | None = None) -> list[Out | Failure]:
        """Run on many values; a failed one becomes a `Failure` and the others go on.

        Args:
            rows: inside `apply_batch`, which rows of the surrounding batch these are; their cost is charged to them.
        """
        if isinstance(values, str) or not hasattr(values, "__getitem__"):
            raise WiringError(f"{self.short}.batch takes a list, and was given {_given(values)}. Write batch([…]).")
        if len(values) == 0:
            return []
        if isinstance(first := values[0], str) and not self._takes_text:
            raise _refusal(self, first)
        context = current_context.get()
        if context is not None:
            return context.batch(self, values, rows)
        try:
            return self.results(values)
        except Exception as error:
            said = explained(error, self, *values)
            return [Failure.of(said, self.short) for _ in values]

    @final
    def stream(self, value: In, /) -> Iterator[Event]:
        """Run and yield what happens; ends with `Done`. Closing the iterator stops the work."""
        return self._run_context("stream", value).stream(self, value)

    @final
    async def acall(self, value: In, /) -> Out:
        """Run in a thread of the current run, while the event loop goes on. Cancelling the task stops the work.

        >>> import asyncio
        >>> from spolia import Run, step
        >>> @step
        ... def double(n: int) -> int:
        ...     return 2 * n
        >>> async def main() -> list[int]:
        ...     with Run():
        ...         return await asyncio.gather(*(double.acall(n) for n in range(3)))
        >>> asyncio.run(main())
        [0, 2, 4]
        """
        result: Out = await self._run_context("acall", value).acall(self, value)
        return result

    @final
    async def abatch(self, values: Sequence[In], /) -> list[Out | Failure]:
        """Run on many values in a thread of the current run, as `batch` does."""
        return await self._run_context("abatch", *values[:1]).abatch(self, values)

    @final
    def astream(self, value: In, /) -> AsyncIterator[Event]:
        """Run in a thread and yield what happens: `async for event in flow.astream(value)`.

        A slow reader slows the flow. Ending the loop early, or cancelling the task, stops the work.
        """
        return self._run_context("astream", value).astream(self, value)

    def _run_context(self, method: str, *values: object) -> RunContext:
        """The current run, which this way of running needs."""
        for value in values:
            if isinstance(value, str) and not self._takes_text:
                raise _refusal(self, value)
        if (context := current_context.get()) is None:
            raise SpoliaError(f"{self.short}.{method} needs a run. Write: with Run(): ... {method}(value)")
        return context

    # Composing.

    def __rshift__(self, then: Operator[Out, B], /) -> Operator[In, B]:
        """`self`, then the other one."""
        return Then(self, checked_operator(then, f"the step after {self.short}"))

    if not TYPE_CHECKING:  # a checker refuses it

        def __rrshift__(self, before, /):
            """Say what to write for what is no operator: a class, a function, a value."""
            return checked_operator(before, f"the step before {self.short}") >> self

    def inner(self) -> tuple[tuple[str, Operator[Any, Any]], ...]:
        """Operators among the fields, with their places: `arms.0`, `body`."""
        return self._inner

    def tail(self) -> tuple[Operator[Any, Any], ...]:
        """Inner operators whose output is this one's output."""
        return ()

    def but(self, **changes: Any) -> Self:
        """The same operator with some fields changed; raises for an unknown field."""
        known = {f.name: getattr(self, f.name) for f in fields(self) if f.init}  # type: ignore[arg-type]
        for name in changes:
            if name not in known:
                raise WiringError(f"{type(self).__name__} has no field {name!r}. It has: {', '.join(known) or 'none'}.")
        return self.made(known | changes)

    @classmethod
    def made(cls, values: Mapping[str, Any]) -> Self:
        """An operator from its fields by name, also where the constructor takes `*args`."""
        named = dict(values)
        return cls(*named.pop(cls.variadic, ()), **named) if cls.variadic else cls(**named)

    def vary(self, name: str = "", /, **ranges: Sequence[Any]) -> Vary[In, Out]:
        """This operator with candidates for some of its fields, for the optimizer to decide between.

        Args:
            name: of the place; ranges and choices of one name are one decision, wherever they stand. Of several ranges
                the places are called `name.field`.
        """
        for field, values in ranges.items():
            if isinstance(values, str) or not isinstance(values, Iterable):
                raise WiringError(
                    f"{field}={values!r:.60} is one value, not candidates. Write {field}=({values!r:.60}, …)."
                )
        named = tuple((field, name if len(ranges) == 1 else f"{name}.{field}") for field in ranges) if name else ()
        return Vary(self, tuple((field, tuple(values)) for field, values in ranges.items()), named)

    def late(self) -> tuple[Operator[Any, Any], ...]:
        """The searches that its result is made of, itself or inside it, which can leave their hits to be fetched."""
        return ()

    # Cost.

    def calls(self, rows: int | None = None, /) -> int | None:
        """Calls to language models for one value at most, None when no bound is known; an upper bound for `check`.

        An operator with your own code has no known bound, unless it overrides this, or its code names nothing that
        could be a model. In Spolia's own operators each model in a field counts once, unless they override this.
        Repairs of replies count; attempts after a request that failed do not.

        Args:
            rows: how many values the value has at most, when it has several.
        """
        if any(map(_asks, (*(op for _, op in self._inner), *self._builders()))):
            return None
        return sum(hasattr(getattr(self, f.name), "capabilities") for f in fields(self))  # type: ignore[arg-type]

    def fanout(self, rows: int | None = None, /) -> int | None:
        """How many values the result has at most, when it has several; None when no bound is known."""
        return None

    # Types.

    def takes(self) -> Any:
        """The type of value that it takes."""
        return self._declared()[0]

    def gives(self, taken: Any, /) -> Any:
        """The type that it gives for values of type `taken`; raises `WiringError` when it does not take them."""
        wanted, out = self._declared()
        bound: Bindings = {}
        if not fits(wanted, taken, bound):
            raise WiringError(f"{self.short} takes {name_of(wanted)}, not {name_of(taken)}")
        return filled(out, bound)

    # Identity.

    @classmethod
    def type_id(cls) -> str:
        """How flow files and cache keys call it: the class name, prefixed by its package outside Spolia."""
        package = cls.__module__.partition(".")[0]
        return cls.__qualname__ if package == "spolia" else f"{package}:{cls.__qualname__}"

    @kept
    def digest(self) -> bytes:
        """Content hash: id, version and fields."""
        values = tuple(getattr(self, f.name) for f in fields(self) if f.compare)  # type: ignore[arg-type]
        return digest_of((qualified(type(self)), self.version, values))

    @kept
    def user_code(self) -> bytes:
        """Hashes of your classes in it, for the keys of caches; empty if all are Spolia's."""
        kinds = dict.fromkeys(type(one) for one in inside(self))
        return b"".join(_code_of(kind) for kind in kinds if not (_is_ours(kind) or hasattr(kind, "function")))

    @kept
    def resources(self) -> tuple[Addressed, ...]:
        """Stores and models that it or its inner operators name, each once."""
        found: dict[object, Addressed] = {}
        for f in fields(self):  # type: ignore[arg-type]
            _addresses(getattr(self, f.name), found)
        return tuple(found.values())

    @kept
    def declared(self) -> frozenset[bytes]:
        """Digests of its resources, and of the addresses in these: the corpus of a group."""
        found: set[bytes] = set()
        waiting: list[Addressed] = list(self.resources)
        while waiting:
            address = waiting.pop()
            if (digest := digest_of(address)) not in found:
                found.add(digest)
                waiting += parts_of(address)
        return frozenset(found)

    def declares(self, address: Any) -> bool:
        """Whether an address is among its resources: itself, all that it consists of, or one with the same content. Of
        a model without an address: whether it is in a field.
        """
        if not isinstance(address, Addressed):
            return any(address is held for held in vars(self).values())
        with suppress(TypeError):  # of an object that is compared by identity there is none
            if digest_of(address) in self.declared:
                return True
        if parts := parts_of(address):
            return all(map(self.declares, parts))
        known = None if address.scoped else address.fingerprint()
        return known is not None and any(known == one.fingerprint() for one in self.resources if not one.scoped)

    @classmethod
    def _declared(cls) -> tuple[Any, Any]:
        """What it takes and gives; anything where it does not say."""
        taken, given = parameters_of(cls, Operator) or (Any, Any)
        return taken, given

    def refused(self, found: object) -> NoReturn:
        """Refuse a result that is not what it declares."""
        raise WiringError(
            f"{self.short} gives {found!r:.60} ({type(found).__name__}), and declares {name_of(self._declared()[1])}. "
            f"Correct what it returns, or what it declares{_place(self)}."
        )

    def results(self, values: Sequence[Any]) -> list[Any]:
        """What `apply_batch` gives: a result or a failure for each value, or `WiringError`."""
        given: Any = self.apply_batch(values)
        found = [self.checked(one) for one in given] if isinstance(given, Iterable) else None
        if found is None or len(found) != len(values):
            said = f"{given!r:.60}" if found is None else f"{len(found)} results"
            raise WiringError(
                f"{self.short}.apply_batch gave {said} for {len(values)} values; one for each is due{_place(self)}."
            )
        return found

    def checked(self, found: Any) -> Any:
        """One result of a batch; a failure where it is not what the operator declares."""
        if isinstance(found, (*self.classes, Failure)):
            return found
        return attempt(partial(self.refused, found))

    @kept
    def waiting(self) -> bool:
        """Whether it, an inner operator, or an address in its fields waits, unless that has `waits = False`."""
        return self.waits or any(_waits(getattr(self, f.name)) for f in fields(self))  # type: ignore[arg-type]

    @kept
    def _takes_text(self) -> bool:
        return fits(self.takes(), str, {})

    def _builders(self) -> list[Operator[Any, Any]]:
        """Operators in the values and addresses among its fields: what a node group is built by when it is searched."""
        found: list[tuple[str, Operator[Any, Any]]] = []
        waiting = [getattr(self, f.name) for f in fields(self)]  # type: ignore[arg-type]
        for value in waiting:  # which grows meanwhile
            if isinstance(value, tuple):
                waiting += value
            elif isinstance(value, Value):
                own = [getattr(value, f.name) for f in fields(value)]  # type: ignore[arg-type]
                for one in own:
                    _operators(one, "", found)
                waiting += own
        return [op for _, op in found]

    @kept
    def _inner(self) -> tuple[tuple[str, Operator[Any, Any]], ...]:
        found: list[tuple[str, Operator[Any, Any]]] = []
        for f in fields(self):  # type: ignore[arg-type]
            _operators(getattr(self, f.name), f.name, found)
        return tuple(found)

    def __repr__(self) -> str:
        """What rebuilds it, also where the constructor takes `*args`."""
        shown = [repr(item) for item in getattr(self, self.variadic)] if self.variadic else []
        for f in fields(self):  # type: ignore[arg-type]
            value = getattr(self, f.name)
            if f.init and f.name != self.variadic and value != f.default:
                shown.append(f"{f.name}={value!r}")
        return f"{type(self).__name__}({', '.join(shown)})"

    def _repr_html_(self) -> str:
        """The flow as a picture, which a notebook shows in place of its `repr`."""
        from spolia.core.draw_svg import svg

        return svg(self)

    @property
    def short(self) -> str:
        """The operator with its scalar fields, for messages and drawings."""
        shown = [f.name for f in fields(self) if f.repr]  # type: ignore[arg-type]
        plain = [(name, getattr(self, name)) for name in shown]
        scalars = [f"{name}={value!r}" for name, value in plain if isinstance(value, (str, int, float, bool))]
        return f"{type(self).__name__}({', '.join(scalars)})"


@cache
def _is_frozen_dataclass(cls: Any) -> bool:
    """A class that inherits from one is none if it declares fields of its own, which nothing would set or compare."""
    declared = {name for name, kind in vars(cls).get("__annotations__", {}).items() if "ClassVar" not in str(kind)}
    is_frozen: bool = getattr(getattr(cls, "__dataclass_params__", None), "frozen", False)
    return is_frozen and declared <= cls.__dataclass_fields__.keys()


def _new(cls: Any, *args: Any, **given: Any) -> Any:
    if not _is_frozen_dataclass(cls):
        raise WiringError(f"{cls.__name__} is not a frozen dataclass. Write @dataclass(frozen=True) above its class.")
    refuse_arguments(cls, args, given)
    return object.__new__(cls)


Operator.__new__ = _new  # type: ignore[method-assign]  # type checkers see the fields instead
Operator.__reduce_ex__ = reduced  # type: ignore[method-assign,assignment]

Retriever: TypeAlias = Operator[Query, Ranking]
"""What finds: from a query to a ranking."""


def _refuse_settings(op: Operator[Any, Any], settings: Mapping[str, Any]) -> NoReturn:
    """Settings in the place of a value: steps get them before they are called."""
    name, given = type(op).__name__, ", ".join(f"{name}={value!r:.40}" for name, value in settings.items())
    advice = f"To change settings, write {name}.but({given})." if settings else f"Write {name}(value)."
    raise WiringError(f"{name} is called with one value, a {name_of(op.takes())}. {advice}")


def _refusal(op: Operator[Any, Any], value: object) -> WiringError:
    """A bare text is the commonest slip: a question is a `Query`, since steps rewrite it and filters belong to it."""
    taken = op.takes()
    meant = f"Query({value!r:.60})" if isinstance(value, str) and fits(taken, Query, {}) else f"a {name_of(taken)}"
    return WiringError(f"{op.short} takes {name_of(taken)}, and was given {_given(value)}. Write {meant}.")


def _given(value: object) -> str:
    return f"the text {value!r:.60}" if isinstance(value, str) else f"{value!r:.60} ({type(value).__name__})"


def _asked(value: object) -> Query | None:
    if isinstance(value, (tuple, list)) and value:
        return _asked(value[0])
    return value.query if isinstance(value, Ranking) else value if isinstance(value, Query) else None


class _Call:
    """One row of a batch as a call; slimmer than `functools.partial` over a bound method."""

    __slots__ = ("op", "value")

    def __init__(self, op: Operator[Any, Any], value: Any) -> None:
        self.op, self.value = op, value

    def __call__(self) -> Any:
        return self.op(self.value)


def _operators(value: object, place: str, found: list[tuple[str, Operator[Any, Any]]]) -> None:
    if isinstance(value, Operator):
        found.append((place, value))
    elif isinstance(value, Mapping):
        for name, item in value.items():
            _operators(item, f"{place}.{name}", found)
    elif isinstance(value, tuple):
        for index, item in enumerate(value):
            if isinstance(item, tuple) and len(item) == 2 and isinstance(item[0], str):
                _operators(item[1], f"{place}.{item[0]}", found)
            else:
                _operators(item, f"{place}.{index}", found)


_SCALARS = frozenset((str, int, float, bool, bytes, type(None)))
ALIKE: Mapping[str, bool] = {"alike": True}
"""Metadata of a field that holds thousands of values of one kind, without operators or models."""


def inside(value: object) -> Iterator[Any]:
    """A value and all values, operators, stores and models among its fields; of a field with `metadata=ALIKE` only the
    first item."""
    if type(value) in _SCALARS:
        return
    if isinstance(value, (Value, Operator)):
        yield value
        own: Any = fields(value) if is_dataclass(value) else ()
        value = tuple([getattr(value, f.name)[:1] if "alike" in f.metadata else getattr(value, f.name) for f in own])
    if isinstance(value, (tuple, frozenset, Mapping)):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from inside(item)
    elif isinstance(value, Addressed):  # the check of a protocol takes long
        yield value


def _outermost(value: object) -> Iterator[Any]:
    """The operators, stores and models in a value, without those inside of them."""
    if type(value) in _SCALARS:
        return
    if isinstance(value, Operator):
        yield value
    elif isinstance(value, (tuple, list, frozenset, Mapping)):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from _outermost(item)
    elif isinstance(value, Addressed):
        yield value
    elif isinstance(value, Value):
        for f in fields(value):  # type: ignore[arg-type]
            yield from _outermost(getattr(value, f.name))


def _waits(value: object) -> bool:
    found = _outermost(value)
    return any(one.waiting if isinstance(one, Operator) else getattr(one, "waits", True) for one in found)


def _addresses(value: object, found: dict[object, Addressed]) -> None:
    for one in _outermost(value):
        for address in one.resources if isinstance(one, Operator) else (one,):
            found.setdefault(digest_of(address), address)


def parts_of(address: Addressed) -> list[Addressed]:
    """The addresses in the fields of one: the corpus of a group, and the models that its definition names."""
    found: dict[object, Addressed] = {}
    for name in getattr(address, "__dataclass_fields__", ()):
        _addresses(getattr(address, name), found)
    return list(found.values())


def explained(error: Exception, op: Operator[Any, Any], *values: object) -> Exception:
    """The error of a step, or that a value is none of those that the step takes, if that may be the cause.

    An error of a user's code has a note, once, of the innermost step around it and its place in the user's file.
    """
    if isinstance(error, (AttributeError, TypeError)):
        for value in values:
            if not fits(op.takes(), type(value), {}):
                return _refusal(op, value)
    said: list[str] = getattr(error, "__notes__", [])
    if not any(note.startswith(IN_STEP) for note in said) and (place := place_of(error)):
        error.add_note(f"{IN_STEP}{op.short}: {place}.")
    return error


def _place(op: Operator[Any, Any]) -> str:
    """Where the user has written an operator; empty for one of Spolia's."""
    code = getattr(getattr(type(op), "function", type(op).apply), "__code__", None)
    return "" if _is_ours(type(op)) or code is None else f": {code.co_filename}, line {code.co_firstlineno}"


_code_of: Callable[[Any], bytes] = cache(code_digest)


def _is_ours(cls: type) -> bool:
    return cls.__module__.startswith("spolia.")


def _calls_of_users(self: Operator[Any, Any], rows: int | None = None, /) -> int | None:
    """The calls of an operator with the user's own code: 0, or None if unknown."""
    cls = type(self)
    if "_is_silent" not in cls.__dict__:
        cls._is_silent = asks_no_model(cls, self.takes(), next(base for base in cls.__mro__ if _is_ours(base)))
    held = [value for name, value in vars(self).items() if not hasattr(Operator, name)]
    is_silent = cls._is_silent and all(map(_is_mute, held)) and not any(map(_asks, self._builders()))
    return 0 if is_silent else None


def _is_mute(value: object) -> bool:
    """Whether a field holds nothing that calls language models."""
    if isinstance(value, Operator):
        return not _asks(value)
    if isinstance(value, tuple):
        return all(map(_is_mute, value))
    return is_constant(value) or (_is_ours(type(value)) and not hasattr(value, "capabilities"))


def _asks(op: Operator[Any, Any]) -> bool:
    return op.calls() != 0


def _freezing(own: Callable[..., None]) -> Callable[..., None]:
    """A constructor that is written by hand, with what those of dataclasses do after it."""

    @wraps(own)
    def made(self: Operator[Any, Any], *args: Any, **more: Any) -> None:
        own(self, *args, **more)
        if type(self).__init__ is made and hasattr(self, "__dataclass_fields__"):
            freeze(self)
            _refuse_undeclared(self)

    return made


def _refuse_undeclared(op: Operator[Any, Any]) -> None:
    """Refuse a cached operator whose code reaches a store or model that none of its fields holds."""
    if not op.cached:
        return
    for name, address in _references(op):
        if not op.declares(address):
            own = name.rpartition(".")[2].lower()
            own = own if own.isidentifier() else type(address).__name__.lower()
            raise WiringError(
                f"{op.short} is cached and reaches {name}, {address!r:.80}, which is in none of its fields: the cache "
                "could not see who asks there, or what it holds now. Make it a keyword argument of the @step "
                f"(*, {own}: ...) and give it with .but({own}={name}), or make it a field of the class; or leave out "
                "cached=True."
            )


def _references(op: Operator[Any, Any]) -> Iterator[Reference]:
    """What user code in an operator and in those inside it reaches beside its fields."""
    cls = type(op)
    if "_reaches" not in cls.__dict__:
        cls._reaches = [] if cls.__module__.startswith("spolia.") else references(cls)
    yield from cls._reaches
    for _, inner in op.inner():
        yield from _references(inner)


@dataclass(frozen=True, init=False)
class Then(Operator[In, Out]):
    """Steps one after the other: what `>>` makes. Chains are flat: `(a >> b) >> c == a >> (b >> c)`.

    An answer that a chain makes of a loop's state tells in `stop_reason` why the loop ended, unless a step has written
    another reason there than `answered`. So do several: those of a `Branch` after the loop, and of `Each(read)` after
    `Each(loop)` each by its own.
    """

    steps: tuple[Operator[Any, Any], ...]
    variadic: ClassVar[str] = "steps"
    composes: ClassVar[bool] = True

    def __init__(self, *steps: Operator[Any, Any]) -> None:
        flat: list[Operator[Any, Any]] = []
        for step in steps:
            flat.extend(step.steps if isinstance(step, Then) else (checked_operator(step, "a chain"),))
        if not flat:
            raise WiringError(
                "A chain needs at least one step; got none. Write Identity() for a step that does nothing."
            )
        last = flat.pop()  # text is streamed from the last step alone, so it must be told from the same step before it
        object.__setattr__(self, "steps", (*(_twin(step) if step is last else step for step in flat), last))
        self.gives(self.takes())

    def apply(self, value: In, /) -> Out:
        found: Any = value
        ended: _Stop = ""
        for step, late in zip(self.steps, self._late, strict=True):
            ended = _stop(found, ended)
            found = called_late(step, found, late) if late else step(found)
        return _ended(found, ended)  # type: ignore[no-any-return]

    @kept
    def _late(self) -> tuple[tuple[Operator[Any, Any], ...], ...]:
        """For each step, those in it whose hits the step after it fetches."""
        after = [then.takes_late for then in self.steps[1:]]
        return (*(step.late() if takes else () for step, takes in zip(self.steps, after, strict=False)), ())

    def apply_batch(self, values: Sequence[In], /) -> list[Out | Failure]:
        results: list[Any] = list(values)
        alive = list(range(len(results)))
        ended: dict[int, _Stop] = {}
        for step in self.steps:
            ended.update((row, _stop(results[row], ended.get(row, ""))) for row in alive)
            for row, result in zip(alive, step.batch([results[row] for row in alive], rows=alive), strict=True):
                results[row] = result
            alive = [row for row in alive if not isinstance(results[row], Failure)]
        return [_ended(result, ended.get(row, "")) for row, result in enumerate(results)]

    def takes(self) -> Any:
        return self.steps[0].takes()

    def gives(self, taken: Any, /) -> Any:
        before: Operator[Any, Any] | None = None
        for step in self.steps:
            try:
                taken, before = step.gives(taken), step
            except WiringError as error:
                if before is None or type(step).gives is not Operator.gives:
                    raise
                raise WiringError(
                    f"{before.short} gives {name_of(taken)}, but {step.short} takes {name_of(step.takes())}. "
                    + _advice(taken, step)
                ) from error
        return taken

    def tail(self) -> tuple[Operator[Any, Any], ...]:
        return self.steps[-1:]

    def late(self) -> tuple[Operator[Any, Any], ...]:
        return self.steps[-1].late()

    def calls(self, rows: int | None = None, /) -> int | None:
        found: list[int | None] = []
        for step in self.steps:
            found.append(step.calls(rows))
            rows = step.fanout(rows)
        return total(found)

    def fanout(self, rows: int | None = None, /) -> int | None:
        for step in self.steps:
            rows = step.fanout(rows)
        return rows

    def __repr__(self) -> str:
        return " >> ".join(map(repr, self.steps)) if len(self.steps) > 1 else f"Then({self.steps[0]!r})"


_Stop: TypeAlias = str | tuple[str, ...]
"""Why a loop ended, or why each of several did."""


def _stop(found: Any, before: _Stop) -> _Stop:
    """Why the loops ended whose states these are; the reason from before where there is no state."""
    if isinstance(found, State):
        return found.stop
    if type(found) is tuple and found and all(isinstance(one, State) for one in found):
        return tuple(one.stop for one in found)
    return before


def _ended(found: Any, reason: _Stop) -> Any:
    """An answer with the reason for which the loop before it ended; several, each with its own where there is one."""
    if not reason:
        return found
    if isinstance(found, Answer):
        return found.but(stop_reason=reason) if found.stop_reason == "answered" and isinstance(reason, str) else found
    if type(found) is tuple and found and all(isinstance(one, Answer) for one in found):
        reasons = (reason,) * len(found) if isinstance(reason, str) else reason
        return tuple(map(_ended, found, reasons)) if len(reasons) == len(found) else found
    return found


def _twin(step: Operator[Any, Any]) -> Operator[Any, Any]:
    """An equal operator that is not the same object."""
    twin = object.__new__(type(step))
    twin.__dict__.update(step.__dict__)
    return twin


def _advice(given: Any, step: Operator[Any, Any]) -> str:
    from_many = fits(Sequence[Any], given, {}) and not fits(Sequence[Any], step.takes(), {})
    to_many = fits(Sequence[Any], step.takes(), {}) and not fits(Sequence[Any], given, {})
    if from_many:
        return f"Write Each({type(step).__name__}(...)) to run it on every one of them, or fuse them first."
    if to_many:
        return "Write Branch(...) around the operators before it to give it several, or take the step out."
    return f"Put an operator from {name_of(given)} to {name_of(step.takes())} between them."


def checked_operator(found: object, place: str) -> Operator[Any, Any]:
    """`found`, if it is an operator; else an error that says what to write."""
    if isinstance(found, Operator):
        return found
    if isinstance(found, type) and issubclass(found, Operator):
        raise WiringError(f"{found.__name__} is a class, not an operator, as {place}. Write {found.__name__}(...).")
    if callable(found):
        name = getattr(found, "__name__", repr(found))
        raise WiringError(
            f"{name} is a plain function, not an operator, as {place}. Write @step above its definition, "
            "with its argument and result annotated."
        )
    advice = (
        "each of its items by itself: Branch(a, b)" if isinstance(found, list | tuple) else "an instance of Operator"
    )
    raise WiringError(f"{found!r:.80} is not an operator, as {place}. Write {advice}.")


@dataclass(frozen=True)
class Vary(Operator[In, Out]):
    """A valid operator and candidates for some of its fields: what `op.vary(top_k=(5, 10))` makes.

    Ranges are kept apart from the operator's fields, so every field keeps its type and its checks.
    """

    body: Operator[In, Out]
    ranges: tuple[tuple[str, tuple[Any, ...]], ...]
    names: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        for name, values in self.ranges:
            if not values:
                raise WiringError(
                    f"The range of {name!r} is empty. Give at least one candidate, as in vary({name}=(1, 2))."
                )
            for value in values:
                self.body.but(**{name: value})

    def apply(self, value: In, /) -> Out:
        raise UndecidedError(
            f"{self.body.short} has undecided fields: {', '.join(name for name, _ in self.ranges)}. "
            "Write decide(flow, point), or settle(flow) to get every decided flow."
        )

    def takes(self) -> Any:
        return self.body.takes()

    def gives(self, taken: Any, /) -> Any:
        return self.body.gives(taken)

    def tail(self) -> tuple[Operator[Any, Any], ...]:
        return (self.body,)

    def calls(self, rows: int | None = None, /) -> int | None:
        return most(op.calls(rows) for op in self.decided()) if self._few() else None

    def fanout(self, rows: int | None = None, /) -> int | None:
        return most(op.fanout(rows) for op in self.decided()) if self._few() else None

    def _few(self) -> bool:
        """Whether there are few enough combinations to look at each."""
        return math.prod(len(values) for _, values in self.ranges) <= 1000

    def vary(self, name: str = "", /, **ranges: Sequence[Any]) -> Vary[In, Out]:
        """The same operator with candidates for further fields."""
        more = self.body.vary(name, **ranges)
        return Vary(self.body, (*self.ranges, *more.ranges), (*self.names, *more.names))

    def decided(self) -> Iterator[Operator[In, Out]]:
        """The operator under every combination of candidates that it accepts."""
        names = [name for name, _ in self.ranges]
        for values in itertools.product(*(values for _, values in self.ranges)):
            try:
                found = self.body.but(**dict(zip(names, values, strict=True)))
            except WiringError:
                continue
            yield found

    def __repr__(self) -> str:
        body = f"({self.body!r})" if isinstance(self.body, Then) else repr(self.body)
        named, calls = dict(self.names), list[list[str]]()
        for field, values in self.ranges:
            if field in named or not calls or calls[-1][0][0] in "'\"":
                calls.append([repr(named[field])] if field in named else [])
            calls[-1].append(f"{field}={values!r}")
        return body + "".join(f".vary({', '.join(call)})" for call in calls)
