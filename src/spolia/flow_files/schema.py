"""A JSON schema of flow files, for editors: made of the operators' fields and docstrings."""

import inspect
import re
from dataclasses import is_dataclass
from typing import Any

from spolia.core.codec import plan_of
from spolia.core.codec.builtin_types import BytesShape, Fixed, Literals, Many, NamedPairs, Scalars
from spolia.core.codec.objects import REQUIRED, ClassPlan, Either, FieldPlace, Instance, Maybe, Step
from spolia.core.codec.shape import Shape
from spolia.core.operator import Operator, Then
from spolia.core.registry import Catalogue
from spolia.errors import CodecError
from spolia.types import Value

JsonSchema = dict[str, Any]

NAMES = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}
USE: JsonSchema = {
    "type": "object",
    "description": "Something given to load, by its name.",
    "properties": {"use": {"type": "string"}},
    "required": ["use"],
    "additionalProperties": False,
}
ANY = {"$ref": "#/$defs/anything"}
OPERATOR = {"$ref": "#/$defs/operator"}


def schema(known: Catalogue | None = None) -> JsonSchema:
    """The JSON schema (draft 2020-12) of files that hold flows of the known operators."""
    known = Catalogue() if known is None else known
    made = Definitions(known)
    operators = [cls for cls in known.operators() if not inspect.isabstract(cls)]
    options = [made.tagged(cls, "operator") for cls in operators]
    bare = [plan_of(cls).id for cls in operators if not plan_of(cls).required and cls is not Then]
    made.found["operator"] = {
        "description": "An operator: {Name: {field: ...}}, Name alone, or a list of operators, one after the other.",
        "anyOf": [{"enum": sorted(bare)}, {"type": "array", "items": OPERATOR, "minItems": 1}, USE, *options],
    }
    made.found["anything"] = {"description": "A scalar, a list, or {Name: {field: ...}}."}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A flow of Spolia",
        **OPERATOR,
        "$defs": dict(sorted(made.found.items())),
    }


class Definitions:
    """Definitions by name, each made once."""

    def __init__(self, known: Catalogue) -> None:
        self.known = dict(known)  # looked up once: to list what is installed takes milliseconds
        self.found: dict[str, JsonSchema] = {}

    def tagged(self, cls: type, kind: str) -> JsonSchema:
        """A reference to `{Name: fields}` of a class."""
        plan = plan_of(cls)
        name = f"{kind}.{plan.id}".replace(":", ".")
        if name not in self.found:
            self.found[name] = {}  # an operator may hold its own kind
            self.found[name] = {
                "type": "object",
                "description": _summary(cls),
                "properties": {plan.id: self.fields(plan)},
                "required": [plan.id],
                "additionalProperties": False,
            }
        return {"$ref": f"#/$defs/{name}"}

    def fields(self, plan: ClassPlan) -> JsonSchema:
        """The fields of a class; as a list too where positional arguments fill one."""
        described = arguments(plan.cls)
        held = {
            "type": "object" if plan.required else ["object", "null"],
            "properties": {place.name: self.field(place, described) for place in plan.places},
            "required": sorted(plan.required),
            "additionalProperties": False,
        }
        return {"anyOf": [self.of(plan.by_name[plan.variadic].shape), held]} if plan.variadic else held

    def field(self, place: FieldPlace, described: dict[str, str]) -> JsonSchema:
        found = dict(self.of(place.shape))
        kind: Any = type(place.default)
        if issubclass(kind, Value) and (held := plan_of(kind)).required:
            found = {"anyOf": [found, {**self.fields(held), "required": []}]}
        if place.name in described:
            found["description"] = described[place.name]
        if place.default is not REQUIRED and isinstance(place.default, (str, int, float, type(None))):
            found["default"] = place.default
        return found

    def of(self, shape: Shape) -> JsonSchema:
        if isinstance(shape, Scalars):
            names = sorted({NAMES[kind] for kind in shape.kinds})
            return {"type": names[0] if len(names) == 1 else names}
        if isinstance(shape, BytesShape):
            return {"type": "string", "contentEncoding": "base64"}
        if isinstance(shape, Literals):
            return {"enum": list(shape.values)}
        if isinstance(shape, Many):
            return {"type": "array", "items": self.of(shape.item)}
        if isinstance(shape, Fixed):
            size = len(shape.items)
            return {
                "type": "array",
                "prefixItems": [self.of(i) for i in shape.items],
                "minItems": size,
                "maxItems": size,
            }
        if isinstance(shape, NamedPairs):
            return {"type": "object", "additionalProperties": self.of(shape.item)}
        if isinstance(shape, Maybe):
            return {"anyOf": [self.of(shape.item), {"type": "null"}]}
        if isinstance(shape, Either):
            return {"anyOf": [self.of(option) for option in shape.options]}
        if isinstance(shape, Step):
            return dict(OPERATOR)
        if isinstance(shape, Instance):
            return self.thing(shape)
        return dict(ANY)

    def thing(self, shape: Instance) -> JsonSchema:
        """A value or an address: given by name, or written out with or without its class."""
        options: list[JsonSchema] = [USE]
        written: list[type] = []
        for cls in self.known.values():
            if isinstance(cls, type) and not issubclass(cls, Operator) and self._may_stand(cls, shape):
                options.append(self.tagged(cls, "value"))
                written.append(cls)
        if not shape.open and not shape.tagged and is_dataclass(shape.cls) and not inspect.isabstract(shape.cls):
            options.append(self.fields_of(shape.cls))
        named = [cls for cls in written if not plan_of(cls).required]
        bare = sorted({plan_of(cls).id for cls in named})
        return {"anyOf": [*options, {"enum": bare}] if bare else options}

    def fields_of(self, cls: type) -> JsonSchema:
        """A reference to the fields of a class."""
        name = f"fields.{plan_of(cls).id}".replace(":", ".")
        if name not in self.found:
            self.found[name] = {}
            self.found[name] = {"description": _summary(cls), **self.fields(plan_of(cls))}
        return {"$ref": f"#/$defs/{name}"}

    def _may_stand(self, cls: type, shape: Instance) -> bool:
        if not shape.open:
            return issubclass(cls, shape.cls)
        try:
            names = set(plan_of(cls).by_name)
        except CodecError:
            return False
        wanted = [name for name in vars(shape.cls) if not name.startswith("_")]
        return all(hasattr(cls, name) or name in names for name in wanted)


def _summary(cls: type) -> str:
    text = " ".join((inspect.getdoc(cls) or "").partition("\n\n")[0].split())
    return re.split(r"(?<=\.) ", text, maxsplit=1)[0]


def arguments(cls: type) -> dict[str, str]:
    """What the docstrings of a class and its bases say of each argument."""
    said: dict[str, str] = {}
    for each in reversed(cls.__mro__):
        said |= _arguments_in(inspect.cleandoc(each.__doc__ or ""))
    return said


def _arguments_in(text: str) -> dict[str, str]:
    found = re.search(r"^Args:\n((?:[ ]{4}.*\n?|\n)+)", text, re.MULTILINE)
    if found is None:
        return {}
    parts = re.findall(r"^ {4}(\w+): (.*(?:\n {8}.*)*)", found[1], re.MULTILINE)
    return {name: " ".join(said.split()) for name, said in parts}
