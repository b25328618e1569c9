"""Shapes of declared types, and plans of classes: their fields with their shapes."""

import types
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from spolia.core.codec.builtin_types import WORDS, BytesShape, Fixed, Literals, Many, NamedPairs, Scalars
from spolia.core.codec.objects import Anything, ClassPlan, Either, FieldPlace, Instance, Maybe, Step, is_open
from spolia.core.codec.shape import DecodeContext, EncodeContext, Plain, Shape, mismatch_error, type_id
from spolia.core.function import Function
from spolia.core.operator import Operator, Vary
from spolia.core.validation import capabilities_of
from spolia.errors import CodecError

SEQUENCES: dict[Any, tuple[Any, tuple[type, ...]]] = {
    tuple: (tuple, (tuple,)),
    Sequence: (tuple, (tuple, list)),
    list: (list, (list, tuple)),
    frozenset: (frozenset, (frozenset,)),
}


@cache
def plan_of(cls: type) -> ClassPlan:
    """Build the plan of a dataclass; raise `CodecError` for other classes and unknown annotations."""
    if not is_dataclass(cls):
        raise CodecError(f"{cls.__name__} has no plain form. Write @dataclass(frozen=True) above it.")
    try:
        hints = get_type_hints(cls)
    except NameError as error:
        raise CodecError(
            f"{cls.__name__}: {error}. Import at run time, at the top of the module, what it is."
        ) from error
    try:
        plain_fields = [f for f in fields(cls) if (f.compare or "written" in f.metadata) and f.init]
        places = [FieldPlace.from_field(f, shape_of(hints[f.name])) for f in plain_fields]
    except CodecError as error:
        error.under(cls.__name__)
        raise
    kind = RangedPlan if cls is Vary else ClassPlan
    return kind(cls, type_id(cls), tuple(places), getattr(cls, "variadic", ""))


@cache
def shape_of(declared: Any) -> Shape:
    if declared is None or declared in WORDS:
        return Scalars(frozenset({type(None) if declared is None else declared}))
    if declared is bytes:
        return BytesShape()
    if isinstance(declared, TypeVar):
        return shape_of(declared.__bound__) if declared.__bound__ is not None else Anything()
    origin, args = get_origin(declared), get_args(declared)
    if origin in (Union, types.UnionType):
        return _union_shape(args)
    if origin is Literal:
        return Literals(args)
    kind = origin or declared
    if kind in SEQUENCES:
        return _sequence_shape(kind, args)
    if kind in (dict, Mapping):
        return NamedPairs(shape_of(args[1]) if args else Anything(), dict)
    if not isinstance(kind, type) or kind in (object, Any):
        return Anything()
    if issubclass(kind, Operator):
        return Step(kind, declared=() if any(map(is_open, args)) else args)
    # a model that cannot do what a field asks of it is one for `check`, which says what it lacks
    widest = next((base for base in reversed(kind.__mro__) if capabilities_of(base)), kind)
    return Instance(widest, open=bool(getattr(kind, "_is_protocol", False)))


def _sequence_shape(kind: Any, args: tuple[Any, ...]) -> Shape:
    make, takes = SEQUENCES[kind]
    if kind is tuple and args and Ellipsis not in args:
        return Fixed(tuple(map(shape_of, args)))
    if kind is tuple and args and get_origin(args[0]) is tuple:
        pair = get_args(args[0])
        if len(pair) == 2 and pair[0] is str and pair[1] is not Ellipsis:
            return NamedPairs(shape_of(pair[1]))
    return Many(shape_of(args[0]) if args else Anything(), make, takes)


def _union_shape(args: tuple[Any, ...]) -> Shape:
    """Merge scalars, then add literals, tuples and classes; classes carry their id where others are possible."""
    shapes = [shape_of(arg) for arg in args]
    if any(isinstance(shape, Anything) for shape in shapes):
        return Anything()
    kinds = frozenset().union(*(shape.kinds for shape in shapes if isinstance(shape, Scalars)))
    remaining = [shape for shape in shapes if not isinstance(shape, Scalars)]
    if kinds == {type(None)} and len(remaining) == 1:
        return Maybe(remaining[0])
    if any(isinstance(shape, Step) for shape in remaining) and any(isinstance(s, (Many, Fixed)) for s in remaining):
        raise CodecError("A field cannot take both an operator and a tuple: both would be lists. Declare one of them.")
    members = tuple(_union_member(shape, bare=str not in kinds) for shape in remaining)
    return Either(((Scalars(kinds),) if kinds else ()) + members) if members else Scalars(kinds)


def _union_member(shape: Shape, bare: bool) -> Shape:
    if isinstance(shape, Instance):
        return Instance(shape.cls, shape.open, tagged=True)
    return Step(shape.cls, bare, shape.declared) if isinstance(shape, Step) else shape


class RangedPlan(ClassPlan):
    """Plan of `Vary`: candidates have the shape of the field that they are for."""

    def shape_at(self, place: FieldPlace, fields: Mapping[str, Any]) -> Shape:
        kind: Any = type(fields.get("body"))
        return Ranges(plan_of(kind)) if place.name == "ranges" and issubclass(kind, Operator) else place.shape


class Ranges:
    """Candidates by field, each with the shape of the field."""

    def __init__(self, body: ClassPlan) -> None:
        self.body = body

    def encode(self, value: Any, writing: EncodeContext) -> Plain:
        return dict(self._convert(dict(value), "encode", writing))

    def decode(self, plain: Plain, reading: DecodeContext) -> Any:
        if not isinstance(plain, dict):
            raise mismatch_error(self.words, plain, "Write {top_k: [5, 10]}.")
        return tuple(self._convert(plain, "decode", reading))

    def _convert(self, ranges: Mapping[str, Any], way: str, context: Any) -> Iterator[tuple[str, Any]]:
        for name, candidates in ranges.items():
            is_function = issubclass(self.body.cls, Function)  # its candidates are for keyword arguments, of any type
            shape = Many(Anything() if is_function else self.body.place(name).shape)
            try:
                yield name, getattr(shape, way)(candidates, context)
            except CodecError as error:
                error.under(name)
                raise

    @property
    def words(self) -> str:
        return "a mapping from fields, each to a list of candidates"
