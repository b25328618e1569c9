"""Shapes of values, addresses and operators: fields by name, and the class where the type leaves it open."""

import re
from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, is_dataclass
from typing import Any, ClassVar, TypeVar, get_args

from spolia.core.codec.builtin_types import Many, Scalars
from spolia.core.codec.shape import DecodeContext, EncodeContext, Plain, Shape, mismatch_error, nearest_name, type_id
from spolia.core.fingerprint.packages import place_of
from spolia.core.function import Function
from spolia.core.operator import Operator, Then
from spolia.core.type_compatibility import fits, members, missing_members, name_of
from spolia.errors import CodecError, SpoliaError
from spolia.types import Value

REQUIRED: Any = object()


@dataclass(frozen=True)
class FieldPlace:
    """Field that is part of the identity: its name, its shape and its default."""

    name: str
    shape: Shape
    default: Any

    @classmethod
    def from_field(cls, declared: Field[Any], shape: Shape) -> "FieldPlace":
        if declared.default_factory is not MISSING:
            return cls(declared.name, shape, declared.default_factory())
        return cls(declared.name, shape, REQUIRED if declared.default is MISSING else declared.default)

    def is_default(self, value: Any) -> bool:
        """Return whether the value is the default to the last bit: 1 is not True, -0.0 is not 0.0."""
        if type(value) is not type(self.default) or value != self.default:
            return False
        return type(value) in (str, int, bool) or repr(value) == repr(self.default)


class ClassPlan:
    """Plan by which a class is encoded and decoded, built once from its fields."""

    def __init__(self, cls: type, id: str, places: tuple[FieldPlace, ...], variadic: str) -> None:
        self.cls, self.id, self.places, self.variadic = cls, id, places, variadic
        self.by_name = {place.name: place for place in places}
        self.required = {place.name for place in places if place.default is REQUIRED}

    def shape_at(self, place: FieldPlace, fields: Mapping[str, Any]) -> Shape:
        """Return the shape of a field, given the fields before it."""
        return place.shape

    def encode(self, value: Any, writing: EncodeContext) -> dict[str, Plain]:
        values = value.__dict__
        fields: dict[str, Plain] = {}
        for place in self.places:
            name = place.name
            # not there: hits that are still to be fetched
            field_value = values[name] if name in values else getattr(value, name)
            if field_value is place.default or place.is_default(field_value):  # most fields hold the very object
                continue
            try:
                fields[name] = self.shape_at(place, values).encode(field_value, writing)
            except CodecError as error:
                error.under(name)
                raise
        return fields

    def decode(self, plain: Plain, reading: DecodeContext) -> Any:
        """Decode a value from fields by name; a list fills the field of positional arguments."""
        if plain is None:
            plain = {}
        if isinstance(plain, list) and self.variadic:
            return self._construct({self.variadic: self.place(self.variadic).shape.decode(plain, reading)}, reading)
        if not isinstance(plain, dict):
            raise mismatch_error(f"the fields of {self.id} by name ({self._names()})", plain, self._example())
        for name in plain:
            self.place(name)
        return self._construct(self._decode_fields(plain, reading), reading)

    def _decode_fields(self, plain: Mapping[str, Plain], reading: DecodeContext) -> dict[str, Any]:
        fields: dict[str, Any] = {}
        for place in self.places:
            name = place.name
            if name not in plain:
                continue
            try:
                fields[name] = self._decode_field(place, self.shape_at(place, fields), plain[name], reading)
            except CodecError as error:
                error.under(name)
                raise
        return fields

    def _decode_field(self, place: FieldPlace, shape: Shape, plain: Plain, reading: DecodeContext) -> Any:
        """Decode a field; a partial value (`role: {prompt: mine.txt}`) takes the rest from the default."""
        default = place.default
        if isinstance(default, Value) and isinstance(plain, dict) and plain:
            plan: ClassPlan = reading.plan(type(default))
            if plain.keys() <= plan.by_name.keys() and not plain.keys() >= plan.required:
                values = {name: getattr(default, name) for name in plan.by_name}
                return plan._construct(values | plan._decode_fields(plain, reading), reading)
        return shape.decode(plain, reading)

    def place(self, name: str) -> FieldPlace:
        """Return the field with this name; the error for an unknown one lists all fields."""
        if name in self.by_name:
            return self.by_name[name]
        near = nearest_name(name, tuple(self.by_name))
        advice = f"Did you mean {near}?" if near else "Take it out."
        if issubclass(self.cls, Function):
            advice = f"Write {{{self.id}: {{arguments: {{{name}: ...}}}}}}."
        raise CodecError(f"{self.id} has no field {name!r}. It has: {self._names()}. {advice}", (name,))

    def _construct(self, fields: dict[str, Any], reading: DecodeContext) -> Any:
        if not fields.keys() >= self.required:
            missing = [name for name in self.by_name if name in self.required and name not in fields]
            raise CodecError(f"{self.id} needs {', '.join(missing)}. {self._example()}")
        try:
            value = self.cls.from_fields(fields) if issubclass(self.cls, Operator) else self.cls(**fields)
        except (SpoliaError, ValueError, TypeError) as error:
            location = f" (in {place})" if (place := place_of(error)) else ""
            prefix = "" if re.search(rf"\b{re.escape(self.cls.__name__)}\b", str(error)) else f"{self.id}: "
            raise CodecError(f"{prefix}{error}{location}") from error
        if reading.accept is not None:  # before anything can open it: a file may name what the caller has not allowed
            reading.accept(value)
        return value

    def _names(self) -> str:
        return ", ".join(place.name for place in self.places) or "none"

    def _example(self) -> str:
        if not self.places:
            return f"Write {self.id}."
        places = [p for p in self.places if p.default is REQUIRED] or self.places[:1]
        return f"Write {{{self.id}: {{{', '.join(f'{place.name}: ...' for place in places)}}}}}."


@dataclass(frozen=True)
class Instance:
    """Place of a value or address; `open` to classes that fit a protocol, `tagged` if other shapes may be there."""

    cls: type
    open: bool = False
    tagged: bool = False

    kind: ClassVar[str] = "value"

    def encode(self, value: Any, writing: EncodeContext) -> Plain:
        if writing.objects and (name := writing.name_of(value)) is not None:
            return _encode_use(name, value, self)
        kind = type(value)
        if kind is self.cls and not self.tagged:
            return writing.plan(kind).encode(value, writing)
        if not self.open and not issubclass(kind, self.cls):
            raise mismatch_error(self.words, value)
        return encode_tagged(value, writing)

    def decode(self, plain: Plain, reading: DecodeContext) -> Any:
        if self.open or self.tagged or not self._by_fields(plain, reading):
            return decode_tagged(plain, self, reading)
        return reading.plan(self.cls).decode(plain, reading)

    def _by_fields(self, plain: Plain, reading: DecodeContext) -> bool:
        """Return whether a mapping holds fields of the declared class, not one class with its fields."""
        if not isinstance(plain, dict) or not is_dataclass(self.cls):
            return False
        if len(plain) != 1:
            return True
        (key,) = plain
        if any(place.name == key for place in reading.plan(self.cls).places):
            return True
        return key != "use" and reading.find_class(key) is None

    def accepts(self, value: Any) -> bool:
        if not self.open:
            return isinstance(value, self.cls)
        return not getattr(self.cls, "_is_runtime_protocol", False) or not missing_members(value, self.cls)

    def takes(self, cls: Any) -> bool:
        """Return whether values of a class fit here."""
        if not self.open:
            return isinstance(cls, type) and issubclass(cls, self.cls)
        return {*members(self.cls)} <= {*dir(cls), *getattr(cls, "__dataclass_fields__", ())}

    names = takes

    @property
    def words(self) -> str:
        name = self.cls.__name__
        return f"{'an' if name[0] in 'AEIOU' else 'a'} {name}"


@dataclass(frozen=True)
class Step:
    """Place of an operator: `{Name: {field: ...}}`, `Name` alone, or a list for a chain.

    Args:
        declared: what it has to take and give; none where the place leaves that open.
    """

    cls: type = Operator
    bare: bool = True
    declared: tuple[Any, ...] = ()

    kind: ClassVar[str] = "operator"

    def encode(self, value: Any, writing: EncodeContext) -> Plain:
        if writing.objects and (name := writing.name_of(value)) is not None:
            return _encode_use(name, value, self)
        if not isinstance(value, Operator):
            raise mismatch_error(self.words, value)
        plain = encode_tagged(value, writing)
        if type(value) is Then and self.bare:
            return plain["Then"]
        (id, fields) = next(iter(plain.items()))
        return id if self.bare and fields == {} else plain

    def decode(self, plain: Plain, reading: DecodeContext) -> Any:
        if isinstance(plain, list):
            return reading.plan(Then).decode(plain, reading)
        return decode_tagged(plain, self, reading)

    def accepts(self, value: Any) -> bool:
        return isinstance(value, Operator) and isinstance(value, self.cls) and self._fits(value.takes())

    def takes(self, cls: Any) -> bool:
        kind: Any = cls if isinstance(cls, type) else type(cls)
        return issubclass(kind, self.cls) and self._fits(kind._declared()[0])

    def names(self, cls: Any) -> bool:
        """Return whether an error should list a class among those that fit here."""
        kind: Any = cls if isinstance(cls, type) else type(cls)
        return bool(self.declared) and issubclass(kind, self.cls) and kind._declared() == self.declared

    def _fits(self, input_type: Any) -> bool:
        return not self.declared or fits(input_type, self.declared[0], {})

    @property
    def words(self) -> str:
        input_name, output_name = map(name_of, self.declared or (Any, Any))
        if self.cls is not Operator:
            return f"the operator {self.cls.__name__}"
        if not self.declared:
            return "an operator"
        return f"{getattr(self.declared[0], 'operator', 'an operator')} from {input_name} to {output_name}"


def is_open(kind: Any) -> bool:
    """Return whether a type is not settled where it is declared."""
    return kind in (Any, object) or isinstance(kind, TypeVar) or any(map(is_open, get_args(kind)))


def _encode_use(name: str, value: Any, place: Instance | Step) -> Plain:
    if not place.accepts(value):
        raise mismatch_error(place.words, value)
    return {"use": name}


def encode_tagged(value: Any, writing: EncodeContext) -> dict[str, Plain]:
    """Encode a value with the id of its class."""
    if not is_dataclass(value) or isinstance(value, type):
        raise CodecError(
            f"{type(value).__name__} {value!r:.80} has no plain form: it is not a frozen dataclass. "
            "Give it by name: dump(flow, objects={'name': it}) and load(..., objects={'name': it})."
        )
    if isinstance(value, Function) and "<lambda>" in value.name:
        raise CodecError("A lambda has no name to be written by. Write def name(value): ... with @step above it.")
    plan = writing.plan(type(value))
    try:
        fields: Plain = plan.encode(value, writing)
    except CodecError as error:
        error.under(plan.id)
        raise
    return {plan.id: fields[plan.variadic] if plan.variadic and set(fields) == {plan.variadic} else fields}


def decode_tagged(plain: Plain, place: "Instance | Step | Anything", reading: DecodeContext) -> Any:
    """Decode a value whose class the data name: `{Class: fields}`, `Class`, or `{use: name}`."""
    if isinstance(plain, str):
        key, fields = plain, None
    elif isinstance(plain, dict) and len(plain) == 1:
        ((key, fields),) = plain.items()
    else:
        raise mismatch_error(place.words, plain, "Write {Name: {field: ...}}, with one name.")
    try:
        value = reading.find_object(fields) if key == "use" else _decode_class(key, fields, place, reading)
        if not place.accepts(value):
            raise reading.misplaced_error(f"{fields!r} is of type {type(value).__name__}", place)
    except CodecError as error:
        unfit = key != "use" and (cls := reading.find_class(key)) is not None and not place.takes(cls)
        explanation = reading.misplaced_error(f"{key} is none", place) if unfit else error
        if not isinstance(plain, str):
            explanation.under(key)
        raise explanation from error.__cause__
    return value


def _decode_class(key: str, fields: Plain, place: "Instance | Step | Anything", reading: DecodeContext) -> Any:
    cls: Any = getattr(place, "cls", None)
    target: Any = (
        cls if isinstance(cls, type) and is_dataclass(cls) and type_id(cls) == key else reading.find_class(key)
    )
    if isinstance(target, Operator):
        target = type(target)
    if target is None:
        raise reading.unknown_class_error(key, place)
    return reading.plan(target).decode(fields, reading)


BUILTIN: dict[str, Any] = {"list": list, "frozenset": frozenset, "dict": dict}
NUMBER = Scalars(frozenset({float}))


@dataclass(frozen=True)
class Anything:
    """Place without a declared type: everything but scalars and tuples carries its class."""

    kind: ClassVar[str] = "value"

    def encode(self, value: Any, writing: EncodeContext) -> Plain:
        kind = type(value)
        if kind in (str, bool, int, type(None)):
            return value
        if isinstance(value, float):
            return NUMBER.encode(value, writing)
        if isinstance(value, tuple):
            return EACH.encode(value, writing)
        if kind in BUILTIN.values():
            items = value.items() if kind is dict else sorted(value, key=repr) if kind is frozenset else value
            return {kind.__name__: EACH.encode(tuple(items), writing)}
        if writing.objects and (name := writing.name_of(value)) is not None:
            return {"use": name}
        return encode_tagged(value, writing)

    def decode(self, plain: Plain, reading: DecodeContext) -> Any:
        if isinstance(plain, list):
            return EACH.decode(plain, reading)
        if isinstance(plain, float):
            return NUMBER.decode(plain, reading)
        if not isinstance(plain, dict):
            return plain
        if len(plain) == 1:
            ((key, items),) = plain.items()
            if key in BUILTIN and isinstance(items, list):
                return BUILTIN[key](self.decode(items, reading))
        return decode_tagged(plain, self, reading)

    def accepts(self, value: Any) -> bool:
        return True

    def takes(self, cls: Any) -> bool:
        return True

    names = takes

    @property
    def words(self) -> str:
        return "a value"


EACH = Many(Anything())


@dataclass(frozen=True)
class Maybe:
    """Shape that may be null."""

    item: Shape

    def encode(self, value: Any, writing: EncodeContext) -> Plain:
        return None if value is None else self.item.encode(value, writing)

    def decode(self, plain: Plain, reading: DecodeContext) -> Any:
        return None if plain is None else self.item.decode(plain, reading)

    @property
    def words(self) -> str:
        return f"{self.item.words} or null"


@dataclass(frozen=True)
class Either:
    """Several shapes, tried in order."""

    options: tuple[Shape, ...]

    def encode(self, value: Any, writing: EncodeContext) -> Plain:
        return self._try_options(value, [option.encode for option in self.options], writing)

    def decode(self, plain: Plain, reading: DecodeContext) -> Any:
        return self._try_options(plain, [option.decode for option in self.options], reading)

    def _try_options(self, value: Any, ways: list[Any], context: Any) -> Any:
        deepest = CodecError("")
        for way in ways:
            try:
                return way(value, context)
            except CodecError as error:
                if len(error.place) > len(deepest.place):  # the option that got furthest was most likely meant
                    deepest = error
        raise deepest if deepest.place else mismatch_error(self.words, value)

    @property
    def words(self) -> str:
        return " or ".join(option.words for option in self.options)
