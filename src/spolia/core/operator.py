"""Operators, the one idea: a step of a flow is a frozen dataclass with its hyper-parameters and resources as fields."""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, is_dataclass
from functools import cache, partial, wraps
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Never, NoReturn, Self, TypeAlias, TypeVar, final

from spolia.core.call_bounds import largest, total
from spolia.core.fingerprint.digest import code_digest
from spolia.core.fingerprint.packages import IN_STEP, place_of
from spolia.core.fingerprint.references import CodeReference, calls_no_model, is_constant, references
from spolia.core.fingerprint.source_text import functions_of
from spolia.core.run_context import Event, RunContext, attempt, call_late, current_context, gather
from spolia.core.type_compatibility import Bindings, fill_type, fits, name_of, parameters_of
from spolia.core.validation import classes_of, freeze, needed_capabilities, validate, with_validation
from spolia.core.views import render_view
from spolia.errors import SpoliaError, UndecidedError, WiringError
from spolia.types import (
    Addressed,
    Answer,
    Failure,
    Query,
    Ranking,
    State,
    Value,
    digest_of,
    lazy_property,
    qualified_name,
)
from spolia.types.value import reduce_value, refuse_arguments

In = TypeVar("In", contravariant=True)
Out = TypeVar("Out", covariant=True)
A = TypeVar("A")
B = TypeVar("B")


_NOTHING: Any = object()
"""Stands for a value that was not given, so that the error can say what to write."""


class _Needs:
    def __get__(self, op: object, cls: Any) -> Mapping[str, frozenset[str]]:
        return needed_capabilities(cls)


class _Classes:
    """Class attribute that is computed, and replaced by its value, on first use."""

    def __get__(self, op: object, cls: Any) -> tuple[type, ...]:
        # The steps inside of one that composes check their results themselves.
        cls.classes = classes = (() if cls.composes else classes_of(cls._declared()[1])) or (object,)
        return classes


class Operator(ABC, Generic[In, Out]):
    """Step of a flow: a frozen dataclass, from one value to another.

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
    _reaches: ClassVar[list[CodeReference]] = []
    _is_silent: ClassVar[bool] = False

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        cls.classes = _Classes()  # type: ignore[assignment]
        if own := cls.__dict__.get("__post_init__"):
            cls.__post_init__ = with_validation(own, _refuse_undeclared)  # type: ignore[method-assign]
        if own := cls.__dict__.get("__init__"):
            cls.__init__ = _with_freeze(own)  # type: ignore[method-assign]
        stated = next(base for base in cls.__mro__ if "calls" in base.__dict__)
        if not _is_ours(cls) and _is_ours(stated) and (any(functions_of(cls)) or "function" in cls.__dict__):
            cls.calls = _calls_of_users  # type: ignore[method-assign]

    def __post_init__(self) -> None:
        """Refuse fields whose values do not have the declared types; a list in a field becomes a tuple."""
        validate(self)
        if type(self).__post_init__ is Operator.__post_init__:  # else `with_validation` does it, last of all
            _refuse_undeclared(self)

    # What most operators write.

    @abstractmethod
    def apply(self, value: In, /) -> Out:
        """Run on one value: same fields, same value, same result."""

    def apply_batch(self, values: Sequence[In], /) -> Sequence[Out | Failure]:
        """Run on many values; override where many at once are faster."""
        return gather([_Call(self, value) for value in values], waits=self.waiting)

    def reads(self, value: Any, /) -> object:
        """Return what the result depends on; a narrower answer than the whole value makes more cache hits.

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
        query = _query_of(value)
        if query is None:
            return out
        if isinstance(out, Ranking):
            return out.but(query=query)
        if isinstance(out, Query):
            return query if out == query else out.but(origin=query)
        return out

    # Running.

    @final
    def __call__(self, value: In = _NOTHING, /, **settings: Never) -> Out:
        if settings or value is _NOTHING:
            _refuse_settings(self, settings)
        if isinstance(value, str) and not self._takes_text:
            raise _input_error(self, value)
        context = current_context.get()
        if context is not None:
            result: Out = context.step(self, value)
            return result
        try:
            out = self.apply(value)
        except Exception as error:
            if (explanation := explain_error(error, self, value)) is not error:
                raise explanation from error
            raise
        return out if isinstance(out, self.classes) else self.refuse_result(out)

    @final
    def batch(self, values: Sequence[In], /, *, rows: Sequence[int] | None = None) -> list[Out | Failure]:
        """Run on many values; a failed one becomes a `Failure` and the others go on.

        Args:
            rows: inside `apply_batch`, which rows of the surrounding batch these are; their cost is charged to them.
        """
        if isinstance(values, str) or not hasattr(values, "__getitem__"):
            raise WiringError(
                f"{self.short}.batch takes a list, and was given {_describe_value(values)}. Write batch([…])."
            )
        if len(values) == 0:
            return []
        if isinstance(first := values[0], str) and not self._takes_text:
            raise _input_error(self, first)
        context = current_context.get()
        if context is not None:
            return context.batch(self, values, rows)
        try:
            return self.checked_results(values)
        except Exception as error:
            explanation = explain_error(error, self, *values)
            return [Failure.from_error(explanation, self.short) for _ in values]

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
        """Return the current run, which this way of running needs."""
        for value in values:
            if isinstance(value, str) and not self._takes_text:
                raise _input_error(self, value)
        if (context := current_context.get()) is None:
            raise SpoliaError(f"{self.short}.{method} needs a run. Write: with Run(): ... {method}(value)")
        return context

    # Composing.

    def __rshift__(self, then: Operator[Out, B], /) -> Operator[In, B]:
        """Chain `self` and the other operator."""
        return Then(self, checked_operator(then, f"the step after {self.short}"))

    if not TYPE_CHECKING:  # a checker refuses it

        def __rrshift__(self, previous, /):
            """Raise an error that says what to write instead of a class, a function or a value."""
            return checked_operator(previous, f"the step before {self.short}") >> self

    def inner(self) -> tuple[tuple[str, Operator[Any, Any]], ...]:
        """Return the operators among the fields, with their places: `arms.0`, `body`."""
        return self._inner

    def tail(self) -> tuple[Operator[Any, Any], ...]:
        """Return the inner operators whose output is this one's output."""
        return ()

    def but(self, **changes: Any) -> Self:
        """Return the same operator with some fields changed; raise for an unknown field."""
        values = {f.name: getattr(self, f.name) for f in fields(self) if f.init}  # type: ignore[arg-type]
        for name in changes:
            if name not in values:
                raise WiringError(
                    f"{type(self).__name__} has no field {name!r}. It has: {', '.join(values) or 'none'}."
                )
        return self.from_fields(values | changes)

    @classmethod
    def from_fields(cls, values: Mapping[str, Any]) -> Self:
        """Build an operator from its fields by name, also where the constructor takes `*args`."""
        arguments = dict(values)
        return cls(*arguments.pop(cls.variadic, ()), **arguments) if cls.variadic else cls(**arguments)

    def vary(self, name: str = "", /, **ranges: Sequence[Any]) -> Vary[In, Out]:
        """Add candidates for some of its fields, for the optimizer to decide between.

        Args:
            name: of the place; ranges and choices of one name are one decision, wherever they stand. Of several ranges
                the places are called `name.field`.
        """
        for field, values in ranges.items():
            if isinstance(values, str) or not isinstance(values, Iterable):
                raise WiringError(
                    f"{field}={values!r:.60} is one value, not candidates. Write {field}=({values!r:.60}, …)."
                )
        names = tuple((field, name if len(ranges) == 1 else f"{name}.{field}") for field in ranges) if name else ()
        return Vary(self, tuple((field, tuple(values)) for field, values in ranges.items()), names)

    def late_searches(self) -> tuple[Operator[Any, Any], ...]:
        """Return the searches, itself or inner ones, that make its result and can defer fetching their hits."""
        return ()

    # Cost.

    def calls(self, rows: int | None = None, /) -> int | None:
        """Return the upper bound of calls to language models for one value, None if unknown; for `check`.

        An operator with your own code has no known bound, unless it overrides this, or its code names nothing that
        could be a model. In Spolia's own operators each model in a field counts once, unless they override this.
        Repairs of replies count; attempts after a request that failed do not.

        Args:
            rows: how many values the value has at most, when it has several.
        """
        if any(map(_calls_models, (*(op for _, op in self._inner), *self._builders()))):
            return None
        return sum(hasattr(getattr(self, f.name), "capabilities") for f in fields(self))  # type: ignore[arg-type]

    def fanout(self, rows: int | None = None, /) -> int | None:
        """Return the upper bound of values in a result that has several; None if unknown."""
        return None

    # Types.

    def takes(self) -> Any:
        """Return the type of value that it takes."""
        return self._declared()[0]

    def gives(self, input_type: Any, /) -> Any:
        """Return the type that it gives for this input type; raise `WiringError` if it does not take that."""
        expected, out = self._declared()
        bound: Bindings = {}
        if not fits(expected, input_type, bound):
            raise WiringError(f"{self.short} takes {name_of(expected)}, not {name_of(input_type)}")
        return fill_type(out, bound)

    # Identity.

    @classmethod
    def type_id(cls) -> str:
        """Return its id in flow files and cache keys: the class name, prefixed by its package outside Spolia."""
        package = cls.__module__.partition(".")[0]
        return cls.__qualname__ if package == "spolia" else f"{package}:{cls.__qualname__}"

    @lazy_property
    def digest(self) -> bytes:
        """Hash its id, version and fields."""
        values = tuple(getattr(self, f.name) for f in fields(self) if f.compare)  # type: ignore[arg-type]
        return digest_of((qualified_name(type(self)), self.version, values))

    @lazy_property
    def user_code(self) -> bytes:
        """Hash your classes in it, for the keys of caches; empty if all are Spolia's."""
        kinds = dict.fromkeys(type(part) for part in walk_values(self))
        return b"".join(_code_of(kind) for kind in kinds if not (_is_ours(kind) or hasattr(kind, "function")))

    @lazy_property
    def resources(self) -> tuple[Addressed, ...]:
        """Return stores and models that it or its inner operators name, each once."""
        addresses: dict[object, Addressed] = {}
        for f in fields(self):  # type: ignore[arg-type]
            _collect_addresses(getattr(self, f.name), addresses)
        return tuple(addresses.values())

    @lazy_property
    def resource_digests(self) -> frozenset[bytes]:
        """Return digests of its resources, and of the addresses in these: the corpus of a group."""
        digests: set[bytes] = set()
        waiting: list[Addressed] = list(self.resources)
        while waiting:
            address = waiting.pop()
            if (digest := digest_of(address)) not in digests:
                digests.add(digest)
                waiting += parts_of(address)
        return frozenset(digests)

    def declares(self, address: Any) -> bool:
        """Return whether an address is among its resources: itself, all its parts, or one with the same content. For a
        model without an address: whether it is in a field."""
        if not isinstance(address, Addressed):
            return any(address is value for value in vars(self).values())
        with suppress(TypeError):  # of an object that is compared by identity there is none
            if digest_of(address) in self.resource_digests:
                return True
        if parts := parts_of(address):
            return all(map(self.declares, parts))
        fingerprint = None if address.scoped else address.fingerprint()
        return fingerprint is not None and any(
            fingerprint == resource.fingerprint() for resource in self.resources if not resource.scoped
        )

    @classmethod
    def _declared(cls) -> tuple[Any, Any]:
        """Return its input and output types; Any where it declares none."""
        input_type, output_type = parameters_of(cls, Operator) or (Any, Any)
        return input_type, output_type

    def refuse_result(self, result: object) -> NoReturn:
        """Refuse a result that does not have the declared type."""
        raise WiringError(
            f"{self.short} gives {result!r:.60} ({type(result).__name__}), and declares "
            f"{name_of(self._declared()[1])}. Correct what it returns, or what it declares{_place(self)}."
        )

    def checked_results(self, values: Sequence[Any]) -> list[Any]:
        """Run `apply_batch`; return a result or failure for each value, raise `WiringError` for a wrong number."""
        outputs: Any = self.apply_batch(values)
        results = [self.checked_result(output) for output in outputs] if isinstance(outputs, Iterable) else None
        if results is None or len(results) != len(values):
            description = f"{outputs!r:.60}" if results is None else f"{len(results)} results"
            raise WiringError(
                f"{self.short}.apply_batch gave {description} for {len(values)} values; one for each is due"
                f"{_place(self)}."
            )
        return results

    def checked_result(self, result: Any) -> Any:
        """Return a result of a batch, or a failure if it does not have the declared type."""
        if isinstance(result, (*self.classes, Failure)):
            return result
        return attempt(partial(self.refuse_result, result))

    @lazy_property
    def waiting(self) -> bool:
        """Return whether it, an inner operator, or an address in its fields waits, unless that has `waits = False`."""
        return self.waits or any(_is_waiting(getattr(self, f.name)) for f in fields(self))  # type: ignore[arg-type]

    @lazy_property
    def _takes_text(self) -> bool:
        return fits(self.takes(), str, {})

    def _builders(self) -> list[Operator[Any, Any]]:
        """Return operators in the values and addresses among its fields: those that build a node group on search."""
        operators: list[tuple[str, Operator[Any, Any]]] = []
        waiting = [getattr(self, f.name) for f in fields(self)]  # type: ignore[arg-type]
        for value in waiting:  # which grows meanwhile
            if isinstance(value, tuple):
                waiting += value
            elif isinstance(value, Value):
                own = [getattr(value, f.name) for f in fields(value)]  # type: ignore[arg-type]
                for item in own:
                    _collect_operators(item, "", operators)
                waiting += own
        return [op for _, op in operators]

    @lazy_property
    def _inner(self) -> tuple[tuple[str, Operator[Any, Any]], ...]:
        operators: list[tuple[str, Operator[Any, Any]]] = []
        for f in fields(self):  # type: ignore[arg-type]
            _collect_operators(getattr(self, f.name), f.name, operators)
        return tuple(operators)

    def __repr__(self) -> str:
        """Return the code that rebuilds it, also where the constructor takes `*args`."""
        arguments = [repr(item) for item in getattr(self, self.variadic)] if self.variadic else []
        for f in fields(self):  # type: ignore[arg-type]
            value = getattr(self, f.name)
            if f.init and f.name != self.variadic and value != f.default:
                arguments.append(f"{f.name}={value!r}")
        return f"{type(self).__name__}({', '.join(arguments)})"

    def _repr_html_(self) -> str:
        """Draw the flow as a picture, which a notebook shows in place of its `repr`."""
        return render_view(self, "html")

    @property
    def short(self) -> str:
        """Return the operator with its scalar fields, for messages and drawings."""
        names = [f.name for f in fields(self) if f.repr]  # type: ignore[arg-type]
        plain = [(name, getattr(self, name)) for name in names]
        scalars = [f"{name}={value!r}" for name, value in plain if isinstance(value, (str, int, float, bool))]
        return f"{type(self).__name__}({', '.join(scalars)})"


@cache
def _is_frozen_dataclass(cls: Any) -> bool:
    """Return whether a class is a frozen dataclass that adds no fields which nothing would set or compare."""
    declared = {name for name, kind in vars(cls).get("__annotations__", {}).items() if "ClassVar" not in str(kind)}
    is_frozen: bool = getattr(getattr(cls, "__dataclass_params__", None), "frozen", False)
    return is_frozen and declared <= cls.__dataclass_fields__.keys()


def _new(cls: Any, *args: Any, **arguments: Any) -> Any:
    if not _is_frozen_dataclass(cls):
        raise WiringError(f"{cls.__name__} is not a frozen dataclass. Write @dataclass(frozen=True) above its class.")
    refuse_arguments(cls, args, arguments)
    return object.__new__(cls)


Operator.__new__ = _new  # type: ignore[method-assign]  # type checkers see the fields instead
Operator.__reduce_ex__ = reduce_value  # type: ignore[method-assign,assignment]

Retriever: TypeAlias = Operator[Query, Ranking]
"""What finds: from a query to a ranking."""


def _refuse_settings(op: Operator[Any, Any], settings: Mapping[str, Any]) -> NoReturn:
    """Refuse settings in a call: steps get them before they are called."""
    name, assignments = type(op).__name__, ", ".join(f"{name}={value!r:.40}" for name, value in settings.items())
    advice = f"To change settings, write {name}.but({assignments})." if settings else f"Write {name}(value)."
    raise WiringError(f"{name} is called with one value, a {name_of(op.takes())}. {advice}")


def _input_error(op: Operator[Any, Any], value: object) -> WiringError:
    """Return the error for a wrong input. Most often a bare text: a question is a `Query`, since steps rewrite it and
    filters belong to it."""
    input_type = op.takes()
    example = (
        f"Query({value!r:.60})"
        if isinstance(value, str) and fits(input_type, Query, {})
        else f"a {name_of(input_type)}"
    )
    return WiringError(
        f"{op.short} takes {name_of(input_type)}, and was given {_describe_value(value)}. Write {example}."
    )


def _describe_value(value: object) -> str:
    return f"the text {value!r:.60}" if isinstance(value, str) else f"{value!r:.60} ({type(value).__name__})"


def _query_of(value: object) -> Query | None:
    if isinstance(value, (tuple, list)) and value:
        return _query_of(value[0])
    return value.query if isinstance(value, Ranking) else value if isinstance(value, Query) else None


class _Call:
    """Row of a batch as a call; slimmer than `functools.partial` over a bound method."""

    __slots__ = ("op", "value")

    def __init__(self, op: Operator[Any, Any], value: Any) -> None:
        self.op, self.value = op, value

    def __call__(self) -> Any:
        return self.op(self.value)


def _collect_operators(value: object, place: str, operators: list[tuple[str, Operator[Any, Any]]]) -> None:
    if isinstance(value, Operator):
        operators.append((place, value))
    elif isinstance(value, Mapping):
        for name, item in value.items():
            _collect_operators(item, f"{place}.{name}", operators)
    elif isinstance(value, tuple):
        for index, item in enumerate(value):
            if isinstance(item, tuple) and len(item) == 2 and isinstance(item[0], str):
                _collect_operators(item[1], f"{place}.{item[0]}", operators)
            else:
                _collect_operators(item, f"{place}.{index}", operators)


_SCALARS = frozenset((str, int, float, bool, bytes, type(None)))
UNIFORM_ITEMS: Mapping[str, bool] = {"alike": True}
"""Metadata of a field that holds thousands of values of one kind, without operators or models."""


def walk_values(value: object) -> Iterator[Any]:
    """Yield a value and all values, operators, stores and models in its fields; of a field with
    `metadata=UNIFORM_ITEMS` only the first item."""
    if type(value) in _SCALARS:
        return
    if isinstance(value, (Value, Operator)):
        yield value
        own: Any = fields(value) if is_dataclass(value) else ()
        value = tuple([getattr(value, f.name)[:1] if "alike" in f.metadata else getattr(value, f.name) for f in own])
    if isinstance(value, (tuple, frozenset, Mapping)):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from walk_values(item)
    elif isinstance(value, Addressed):  # the check of a protocol takes long
        yield value


def _outermost_parts(value: object) -> Iterator[Any]:
    """Yield the operators, stores and models in a value, without those inside of them."""
    if type(value) in _SCALARS:
        return
    if isinstance(value, Operator):
        yield value
    elif isinstance(value, (tuple, list, frozenset, Mapping)):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from _outermost_parts(item)
    elif isinstance(value, Addressed):
        yield value
    elif isinstance(value, Value):
        for f in fields(value):  # type: ignore[arg-type]
            yield from _outermost_parts(getattr(value, f.name))


def _is_waiting(value: object) -> bool:
    parts = _outermost_parts(value)
    return any(part.waiting if isinstance(part, Operator) else getattr(part, "waits", True) for part in parts)


def _collect_addresses(value: object, addresses: dict[object, Addressed]) -> None:
    for part in _outermost_parts(value):
        for address in part.resources if isinstance(part, Operator) else (part,):
            addresses.setdefault(digest_of(address), address)  # by content: two equal addresses are one resource


def parts_of(address: Addressed) -> list[Addressed]:
    """Return the addresses in an address's fields: the corpus of a group, the models of its definition."""
    addresses: dict[object, Addressed] = {}
    for name in getattr(address, "__dataclass_fields__", ()):
        _collect_addresses(getattr(address, name), addresses)
    return list(addresses.values())


def explain_error(error: Exception, op: Operator[Any, Any], *values: object) -> Exception:
    """Return the error of a step, or a clearer one if the step does not take one of the values.

    An error of a user's code has a note, once, of the innermost step around it and its place in the user's file.
    """
    if isinstance(error, (AttributeError, TypeError)):
        for value in values:
            if not fits(op.takes(), type(value), {}):
                return _input_error(op, value)
    notes: list[str] = getattr(error, "__notes__", [])
    if not any(note.startswith(IN_STEP) for note in notes) and (place := place_of(error)):
        error.add_note(f"{IN_STEP}{op.short}: {place}.")
    return error


def _place(op: Operator[Any, Any]) -> str:
    """Return file and line of a user's operator, for messages; empty for one of Spolia's."""
    code = getattr(getattr(type(op), "function", type(op).apply), "__code__", None)
    return "" if _is_ours(type(op)) or code is None else f": {code.co_filename}, line {code.co_firstlineno}"


_code_of: Callable[[Any], bytes] = cache(code_digest)


def _is_ours(cls: type) -> bool:
    return cls.__module__.startswith("spolia.")


def _calls_of_users(self: Operator[Any, Any], rows: int | None = None, /) -> int | None:
    """Return the bound on calls of an operator with the user's own code: 0, or None if unknown."""
    cls = type(self)
    if "_is_silent" not in cls.__dict__:
        # Once for a class, since the proof reads all its code.
        cls._is_silent = calls_no_model(cls, self.takes(), next(base for base in cls.__mro__ if _is_ours(base)))
    values = [value for name, value in vars(self).items() if not hasattr(Operator, name)]
    is_silent = cls._is_silent and all(map(_is_mute, values)) and not any(map(_calls_models, self._builders()))
    return 0 if is_silent else None


def _is_mute(value: object) -> bool:
    """Return whether a field holds nothing that calls language models."""
    if isinstance(value, Operator):
        return not _calls_models(value)
    if isinstance(value, tuple):
        return all(map(_is_mute, value))
    return is_constant(value) or (_is_ours(type(value)) and not hasattr(value, "capabilities"))


def _calls_models(op: Operator[Any, Any]) -> bool:
    return op.calls() != 0


def _with_freeze(own: Callable[..., None]) -> Callable[..., None]:
    """Wrap a handwritten constructor, so that fields are frozen and checked as after one of dataclasses."""

    @wraps(own)
    def construct(self: Operator[Any, Any], *args: Any, **more: Any) -> None:
        own(self, *args, **more)
        if type(self).__init__ is construct and hasattr(self, "__dataclass_fields__"):
            freeze(self)
            _refuse_undeclared(self)

    return construct


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


def _references(op: Operator[Any, Any]) -> Iterator[CodeReference]:
    """Yield what user code in an operator and in those inside it reaches without a field."""
    cls = type(op)
    if "_reaches" not in cls.__dict__:
        cls._reaches = [] if cls.__module__.startswith("spolia.") else references(cls)
    yield from cls._reaches
    for _, inner in op.inner():
        yield from _references(inner)


@dataclass(frozen=True, init=False)
class Then(Operator[In, Out]):
    """Chain of steps: what `>>` makes. Chains are flat: `(a >> b) >> c == a >> (b >> c)`.

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
        result: Any = value
        stop_reason: _StopReason = ""
        for step, late_steps in zip(self.steps, self._late_searches, strict=True):
            stop_reason = _stop_reason(result, stop_reason)
            result = call_late(step, result, late_steps) if late_steps else step(result)
        return _with_stop_reason(result, stop_reason)  # type: ignore[no-any-return]

    @lazy_property
    def _late_searches(self) -> tuple[tuple[Operator[Any, Any], ...], ...]:
        """Return for each step the searches in it whose hits the next step fetches."""
        takes_late = [then.takes_late for then in self.steps[1:]]
        return (
            *(step.late_searches() if takes else () for step, takes in zip(self.steps, takes_late, strict=False)),
            (),
        )

    def apply_batch(self, values: Sequence[In], /) -> list[Out | Failure]:
        results: list[Any] = list(values)
        alive = list(range(len(results)))
        stop_reasons: dict[int, _StopReason] = {}
        for step in self.steps:
            stop_reasons.update((row, _stop_reason(results[row], stop_reasons.get(row, ""))) for row in alive)
            for row, result in zip(alive, step.batch([results[row] for row in alive], rows=alive), strict=True):
                results[row] = result
            alive = [row for row in alive if not isinstance(results[row], Failure)]
        return [_with_stop_reason(result, stop_reasons.get(row, "")) for row, result in enumerate(results)]

    def takes(self) -> Any:
        return self.steps[0].takes()

    def gives(self, value_type: Any, /) -> Any:
        previous: Operator[Any, Any] | None = None
        for step in self.steps:
            try:
                value_type, previous = step.gives(value_type), step
            except WiringError as error:
                # a step with its own `gives` has said it better
                if previous is None or type(step).gives is not Operator.gives:
                    raise
                raise WiringError(
                    f"{previous.short} gives {name_of(value_type)}, but {step.short} takes {name_of(step.takes())}. "
                    + _advice(value_type, step)
                ) from error
        return value_type

    def tail(self) -> tuple[Operator[Any, Any], ...]:
        return self.steps[-1:]

    def late_searches(self) -> tuple[Operator[Any, Any], ...]:
        return self.steps[-1].late_searches()

    def calls(self, rows: int | None = None, /) -> int | None:
        bounds: list[int | None] = []
        for step in self.steps:
            bounds.append(step.calls(rows))
            rows = step.fanout(rows)
        return total(bounds)

    def fanout(self, rows: int | None = None, /) -> int | None:
        for step in self.steps:
            rows = step.fanout(rows)
        return rows

    def __repr__(self) -> str:
        return " >> ".join(map(repr, self.steps)) if len(self.steps) > 1 else f"Then({self.steps[0]!r})"


_StopReason: TypeAlias = str | tuple[str, ...]
"""Why a loop ended, or why each of several did."""


def _stop_reason(value: Any, previous: _StopReason) -> _StopReason:
    """Return why the loops of these states ended; the previous reason for a value that is not a state."""
    if isinstance(value, State):
        return value.stop
    if type(value) is tuple and value and all(isinstance(state, State) for state in value):
        return tuple(state.stop for state in value)
    return previous


def _with_stop_reason(result: Any, reason: _StopReason) -> Any:
    """Put the reason for which a loop ended into its answer; into several answers each its own reason."""
    if not reason:
        return result
    if isinstance(result, Answer):
        return (
            result.but(stop_reason=reason) if result.stop_reason == "answered" and isinstance(reason, str) else result
        )
    if type(result) is tuple and result and all(isinstance(answer, Answer) for answer in result):
        reasons = (reason,) * len(result) if isinstance(reason, str) else reason
        return tuple(map(_with_stop_reason, result, reasons)) if len(reasons) == len(result) else result
    return result


def _twin(step: Operator[Any, Any]) -> Operator[Any, Any]:
    """Copy an operator, so that it is equal and not the same object."""
    twin = object.__new__(type(step))
    twin.__dict__.update(step.__dict__)
    return twin


def _advice(output_type: Any, step: Operator[Any, Any]) -> str:
    from_many = fits(Sequence[Any], output_type, {}) and not fits(Sequence[Any], step.takes(), {})
    to_many = fits(Sequence[Any], step.takes(), {}) and not fits(Sequence[Any], output_type, {})
    if from_many:
        return f"Write Each({type(step).__name__}(...)) to run it on every one of them, or fuse them first."
    if to_many:
        return "Write Branch(...) around the operators before it to give it several, or take the step out."
    return f"Put an operator from {name_of(output_type)} to {name_of(step.takes())} between them."


def checked_operator(value: object, place: str) -> Operator[Any, Any]:
    """Return a value that is an operator; raise an error with advice for any other."""
    if isinstance(value, Operator):
        return value
    if isinstance(value, type) and issubclass(value, Operator):
        raise WiringError(f"{value.__name__} is a class, not an operator, as {place}. Write {value.__name__}(...).")
    if callable(value):
        name = getattr(value, "__name__", repr(value))
        raise WiringError(
            f"{name} is a plain function, not an operator, as {place}. Write @step above its definition, "
            "with its argument and result annotated."
        )
    advice = (
        "each of its items by itself: Branch(a, b)" if isinstance(value, list | tuple) else "an instance of Operator"
    )
    raise WiringError(f"{value!r:.80} is not an operator, as {place}. Write {advice}.")


@dataclass(frozen=True)
class Vary(Operator[In, Out]):
    """Valid operator and candidates for some of its fields: what `op.vary(top_k=(5, 10))` makes.

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

    def gives(self, input_type: Any, /) -> Any:
        return self.body.gives(input_type)

    def tail(self) -> tuple[Operator[Any, Any], ...]:
        return (self.body,)

    def calls(self, rows: int | None = None, /) -> int | None:
        return largest(op.calls(rows) for op in self.decided()) if self._few() else None

    def fanout(self, rows: int | None = None, /) -> int | None:
        return largest(op.fanout(rows) for op in self.decided()) if self._few() else None

    def _few(self) -> bool:
        """Return whether there are few enough combinations to look at each."""
        return math.prod(len(values) for _, values in self.ranges) <= 1000  # as many as `MAX_DECIDED_FORMS` of `check`

    def vary(self, name: str = "", /, **ranges: Sequence[Any]) -> Vary[In, Out]:
        """Add candidates for further fields."""
        more = self.body.vary(name, **ranges)
        return Vary(self.body, (*self.ranges, *more.ranges), (*self.names, *more.names))

    def decided(self) -> Iterator[Operator[In, Out]]:
        """Yield the operator under every combination of candidates that it accepts."""
        names = [name for name, _ in self.ranges]
        for values in itertools.product(*(values for _, values in self.ranges)):
            try:
                operator = self.body.but(**dict(zip(names, values, strict=True)))
            except WiringError:
                continue
            yield operator

    def __repr__(self) -> str:
        body = f"({self.body!r})" if isinstance(self.body, Then) else repr(self.body)
        names, calls = dict(self.names), list[list[str]]()
        for field, values in self.ranges:
            if field in names or not calls or calls[-1][0][0] in "'\"":
                calls.append([repr(names[field])] if field in names else [])
            calls[-1].append(f"{field}={values!r}")
        return body + "".join(f".vary({', '.join(call)})" for call in calls)
