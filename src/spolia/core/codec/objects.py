"""Values, addresses and operators: their fields by name, and their class where the type leaves it open."""

import re
from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, is_dataclass
from typing import Any, ClassVar, TypeVar, get_args

from spolia.core.codec.builtin_types import Many, Scalars
from spolia.core.codec.shape import DecodeContext, EncodeContext, Plain, Shape, nearest, type_id, wanted
from spolia.core.fingerprint.packages import place_of
from spolia.core.function import Function
from spolia.core.operator import Operator, Then
from spolia.core.type_compatibility import fits, lacking, members, name_of
from spolia.errors import CodecError, SpoliaError
from spolia.types import Value

REQUIRED: Any = object()


@dataclass(frozen=True)
class FieldPlace:
    """A field that belongs to the identity: its name, its shape and what it is when nothing is written."""

    name: str
    shape: Shape
    default: Any

    @classmethod
    def of(cls, declared: Field[Any], shape: Shape) -> "FieldPlace":
        if declared.default_factory is not MISSING:
            return cls(declared.name, shape, declared.default_factory())
        return cls(declared.name, shape, REQUIRED if declared.default is MISSING else declared.default)

    def is_default(self, value: Any) -> bool:
        """Whether the value is the default to the last bit: 1 is not True, -0.0 is not 0.0."""
        if type(value) is not type(self.default) or value != self.default:
            return False
        return type(value) in (str, int, bool) or repr(value) == repr(self.default)


class ClassPlan:
    """How one class is written and read, worked out once from its fields."""

    def __init__(self, cls: type, id: str, places: tuple[FieldPlace, ...], variadic: str) -> None:
        self.cls, self.id, self.places, self.variadic = cls, id, places, variadic
        self.by_name = {place.name: place for place in places}
        self.required = {place.name for place in places if place.default is REQUIRED}

    def shape_at(self, place: FieldPlace, fields: Mapping[str, Any]) -> Shape:
        """The shape of a field, given the fields before it."""
        return place.shape

    def encode(self, value: Any, writing: EncodeContext) -> dict[str, Plain]:
        held = value.__dict__
        fields: dict[str, Plain] = {}
        for place in self.places:
            name = place.name
            found = held[name] if name in held else getattr(value, name)
            if found is place.default or place.is_default(found):
                continue
            try:
                fields[name] = self.shape_at(place, held).encode(found, writing)
            except CodecError as error:
                error.under(name)
                raise
        return fields

    def decode(self, plain: Plain, reading: DecodeContext) -> Any:
        """The value that fields by name describe; a list stands for the field that positional arguments fill."""
        if plain is None:
            plain = {}
        if isinstance(plain, list) and self.variadic:
            return self._made({self.variadic: self.place(self.variadic).shape.decode(plain, reading)}, reading)
        if not isinstance(plain, dict):
            raise wanted(f"the fields of {self.id} by name ({self._names()})", plain, self._example())
        for name in plain:
            self.place(name)
        return self._made(self._decoded(plain, reading), reading)

    def _decoded(self, plain: Mapping[str, Plain], reading: DecodeContext) -> dict[str, Any]:
        fields: dict[str, Any] = {}
        for place in self.places:
            name = place.name
            if name not in plain:
                continue
            try:
                fields[name] = self._field(place, self.shape_at(place, fields), plain[name], reading)
            except CodecError as error:
                error.under(name)
                raise
        return fields

    def _field(self, place: FieldPlace, shape: Shape, plain: Plain, reading: DecodeContext) -> Any:
        """One field; of a value with some fields written (`role: {prompt: mine.txt}`) the rest is the default's."""
        default = place.default
        if isinstance(default, Value) and isinstance(plain, dict) and plain:
            plan: ClassPlan = reading.plan(type(default))
            if plain.keys() <= plan.by_name.keys() and not plain.keys() >= plan.required:
                held = {name: getattr(default, name) for name in plan.by_name}
                return plan._made(held | plan._decoded(plain, reading), reading)
        return shape.decode(plain, reading)

    def place(self, name: str) -> FieldPlace:
        """The field of this name, or an error that says which there are."""
        if name in self.by_name:
            return self.by_name[name]
        near = nearest(name, tuple(self.by_name))
        advice = f"Did you mean {near}?" if near else "Take it out."
        if issubclass(self.cls, Function):
            advice = f"Write {{{self.id}: {{arguments: {{{name}: ...}}}}}}."
        raise CodecError(f"{self.id} has no field {name!r}. It has: {self._names()}. {advice}", (name,))

    def _made(self, fields: dict[str, Any], reading: DecodeContext) -> Any:
        if not fields.keys() >= self.required:
            missing = [name for name in self.by_name if name in self.required and name not in fields]
            raise CodecError(f"{self.id} needs {', '.join(missing)}. {self._example()}")
        try:
            found = self.cls.made(fields) if issubclass(self.cls, Operator) else self.cls(**fields)
        except (SpoliaError, ValueError, TypeError) as error:
            where = f" (in {place})" if (place := place_of(error)) else ""
            named = "" if re.search(rf"\b{re.escape(self.cls.__name__)}\b", str(error)) else f"{self.id}: "
            raise CodecError(f"{named}{error}{where}") from error
        if reading.accept is not None:
            reading.accept(found)
        return found

    def _names(self) -> str:
        return ", ".join(place.name for place in self.places) or "none"

    def _example(self) -> str:
        if not self.places:
            return f"Write {self.id}."
        shown = [p for p in self.places if p.default is REQUIRED] or self.places[:1]
        return f"Write {{{self.id}: {{{', '.join(f'{place.name}: ...' for place in shown)}}}}}."


@dataclass(frozen=True)
class Instance:
    """A place of a value or address; `open` to classes that fit a protocol, `tagged` if other shapes may be there."""

    cls: type
    open: bool = False
    tagged: bool = False

    kind: ClassVar[str] = "value"

    def encode(self, value: Any, writing: EncodeContext) -> Plain:
        if writing.given and (name := writing.name_of(value)) is not None:
            return _used(name, value, self)
        kind = type(value)
        if kind is self.cls and not self.tagged:
            return writing.plan(kind).encode(value, writing)
        if not self.open and not issubclass(kind, self.cls):
            raise wanted(self.words, value)
        return tagged(value, writing)

    def decode(self, plain: Plain, reading: DecodeContext) -> Any:
        if self.open or self.tagged or not self._by_fields(plain, reading):
            return untagged(plain, self, reading)
        return reading.plan(self.cls).decode(plain, reading)

    def _by_fields(self, plain: Plain, reading: DecodeContext) -> bool:
        """Whether a mapping holds fields of the declared class, not one class with its fields."""
        if not isinstance(plain, dict) or not is_dataclass(self.cls):
            return False
        if len(plain) != 1:
            return True
        (key,) = plain
        if any(place.name == key for place in reading.plan(self.cls).places):
            return True
        return key != "use" and reading.named(key) is None

    def accepts(self, found: Any) -> bool:
        if not self.open:
            return isinstance(found, self.cls)
        return not getattr(self.cls, "_is_runtime_protocol", False) or not lacking(found, self.cls)

    def takes(self, known: Any) -> bool:
        """Whether values of a class may stand here."""
        if not self.open:
            return isinstance(known, type) and issubclass(known, self.cls)
        return {*members(self.cls)} <= {*dir(known), *getattr(known, "__dataclass_fields__", ())}

    names = takes

    @property
    def words(self) -> str:
        name = self.cls.__name__
        return f"{'an' if name[0] in 'AEIOU' else 'a'} {name}"


@dataclass(frozen=True)
class Step:
    """A place where an operator belongs: `{Name: {field: ...}}`, `Name` alone, or a list for a chain.

    Args:
        declared: what it has to take and give; none where the place leaves that open.
    """

    cls: type = Operator
    bare: bool = True
    declared: tuple[Any, ...] = ()

    kind: ClassVar[str] = "operator"

    def encode(self, value: Any, writing: EncodeContext) -> Plain:
        if writing.given and (name := writing.name_of(value)) is not None:
            return _used(name, value, self)
        if not isinstance(value, Operator):
            raise wanted(self.words, value)
        written = tagged(value, writing)
        if type(value) is Then and self.bare:
            return written["Then"]
        (id, fields) = next(iter(written.items()))
        return id if self.bare and fields == {} else written

    def decode(self, plain: Plain, reading: DecodeContext) -> Any:
        if isinstance(plain, list):
            return reading.plan(Then).decode(plain, reading)
        return untagged(plain, self, reading)

    def accepts(self, found: Any) -> bool:
        return isinstance(found, Operator) and isinstance(found, self.cls) and self._fits(found.takes())

    def takes(self, known: Any) -> bool:
        kind: Any = known if isinstance(known, type) else type(known)
        return issubclass(kind, self.cls) and self._fits(kind._declared()[0])

    def names(self, known: Any) -> bool:
        """Whether a class is one that is named where another stands here."""
        kind: Any = known if isinstance(known, type) else type(known)
        return bool(self.declared) and issubclass(kind, self.cls) and kind._declared() == self.declared

    def _fits(self, taken: Any) -> bool:
        return not self.declared or fits(taken, self.declared[0], {})

    @property
    def words(self) -> str:
        taken, given = map(name_of, self.declared or (Any, Any))
        if self.cls is not Operator:
            return f"the operator {self.cls.__name__}"
        if not self.declared:
            return "an operator"
        return f"{getattr(self.declared[0], 'operator', 'an operator')} from {taken} to {given}"


def is_open(kind: Any) -> bool:
    """Whether a type is not settled where it is declared."""
    return kind in (Any, object) or isinstance(kind, TypeVar) or any(map(is_open, get_args(kind)))


def _used(name: str, value: Any, place: Instance | Step) -> Plain:
    if not place.accepts(value):
        raise wanted(place.words, value)
    return {"use": name}


def tagged(value: Any, writing: EncodeContext) -> dict[str, Plain]:
    """A value with the id of its class."""
    if not is_dataclass(value) or isinstance(value, type):
        raise CodecError(
            f"{type(value).__name__} {value!r:.80} has no plain form: it is not a frozen dataclass. "
            "Give it by name: dump(flow, given={'name': it}) and load(..., given={'name': it})."
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


def untagged(plain: Plain, place: "Instance | Step | Anything", reading: DecodeContext) -> Any:
    """The value whose class the data name: `{Class: fields}`, `Class`, or `{use: name}`."""
    if isinstance(plain, str):
        key, fields = plain, None
    elif isinstance(plain, dict) and len(plain) == 1:
        ((key, fields),) = plain.items()
    else:
        raise wanted(place.words, plain, "Write {Name: {field: ...}}, with one name.")
    try:
        found = reading.used(fields) if key == "use" else _constructed(key, fields, place, reading)
        if not place.accepts(found):
            raise reading.misplaced(f"{fields!r} is of type {type(found).__name__}", place)
    except CodecError as error:
        unfit = key != "use" and (known := reading.named(key)) is not None and not place.takes(known)
        said = reading.misplaced(f"{key} is none", place) if unfit else error
        if not isinstance(plain, str):
            said.under(key)
        raise said from error.__cause__
    return found


def _constructed(key: str, fields: Plain, place: "Instance | Step | Anything", reading: DecodeContext) -> Any:
    cls: Any = getattr(place, "cls", None)
    known: Any = cls if isinstance(cls, type) and is_dataclass(cls) and type_id(cls) == key else reading.named(key)
    if isinstance(known, Operator):
        known = type(known)
    if known is None:
        raise reading.unknown(key, place)
    return reading.plan(known).decode(fields, reading)


BUILTIN: dict[str, Any] = {"list": list, "frozenset": frozenset, "dict": dict}
NUMBER = Scalars(frozenset({float}))


@dataclass(frozen=True)
class Anything:
    """A place of no declared type: everything but scalars and tuples says what it is."""

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
        if writing.given and (name := writing.name_of(value)) is not None:
            return {"use": name}
        return tagged(value, writing)

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
        return untagged(plain, self, reading)

    def accepts(self, found: Any) -> bool:
        return True

    def takes(self, known: Any) -> bool:
        return True

    names = takes

    @property
    def words(self) -> str:
        return "a value"


EACH = Many(Anything())


@dataclass(frozen=True)
class Maybe:
    """A shape, or nothing."""

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
    """One of several shapes, tried in order."""

    options: tuple[Shape, ...]

    def encode(self, value: Any, writing: EncodeContext) -> Plain:
        return self._first(value, [option.encode for option in self.options], writing)

    def decode(self, plain: Plain, reading: DecodeContext) -> Any:
        return self._first(plain, [option.decode for option in self.options], reading)

    def _first(self, found: Any, ways: list[Any], context: Any) -> Any:
        deepest = CodecError("")
        for way in ways:
            try:
                return way(found, context)
            except CodecError as error:
                if len(error.place) > len(deepest.place):
                    deepest = error
        raise deepest if deepest.place else wanted(self.words, found)

    @property
    def words(self) -> str:
        return " or ".join(option.words for option in self.options)
