"""A class as plain data: its fields by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass
from typing import Any

from spolia.core.codec.shape import DecodeContext, EncodeContext, Plain, Shape, nearest, wanted
from spolia.core.operator import Operator
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
    def of(cls, declared: Field[Any], shape: Shape) -> FieldPlace:
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
            return self._made({self.variadic: self.place(self.variadic).shape.decode(plain, reading)})
        if not isinstance(plain, dict):
            raise wanted(f"the fields of {self.id} by name ({self._names()})", plain, self._example())
        for name in plain:
            self.place(name)
        return self._made(self._decoded(plain, reading))

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
                return plan._made(held | plan._decoded(plain, reading))
        return shape.decode(plain, reading)

    def place(self, name: str) -> FieldPlace:
        """The field of this name, or an error that says which there are."""
        if name in self.by_name:
            return self.by_name[name]
        near = nearest(name, tuple(self.by_name))
        advice = f"The nearest is {near}; write that." if near else "Take it out."
        raise CodecError(f"{self.id} has no field {name!r}. It has: {self._names()}. {advice}", (name,))

    def _made(self, fields: dict[str, Any]) -> Any:
        if not fields.keys() >= self.required:
            missing = [name for name in self.by_name if name in self.required and name not in fields]
            raise CodecError(f"{self.id} needs {', '.join(missing)}. {self._example()}")
        try:
            return self.cls.made(fields) if issubclass(self.cls, Operator) else self.cls(**fields)
        except (SpoliaError, ValueError, TypeError) as error:
            raise CodecError(f"{self.id}: {error}") from error

    def _names(self) -> str:
        return ", ".join(place.name for place in self.places) or "none"

    def _example(self) -> str:
        if not self.places:
            return f"Write {self.id}."
        shown = [p for p in self.places if p.default is REQUIRED] or self.places[:1]
        return f"Write {{{self.id}: {{{', '.join(f'{place.name}: ...' for place in shown)}}}}}."
