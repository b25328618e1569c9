"""JSON schema of flow files, for editors, built from the operators' fields and docstrings."""

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


def schema(catalogue: Catalogue | None = None) -> JsonSchema:
    """Build the JSON schema (draft 2020-12) of files that hold flows of the known operators."""
    catalogue = Catalogue() if catalogue is None else catalogue
    definitions = Definitions(catalogue)
    operators = [cls for cls in catalogue.operators() if not inspect.isabstract(cls)]
    options = [definitions.tagged_schema(cls, "operator") for cls in operators]
    bare = [plan_of(cls).id for cls in operators if not plan_of(cls).required and cls is not Then]
    definitions.by_name["operator"] = {
        "description": "An operator: {Name: {field: ...}}, Name alone, or a list of operators, one after the other.",
        "anyOf": [{"enum": sorted(bare)}, {"type": "array", "items": OPERATOR, "minItems": 1}, USE, *options],
    }
    definitions.by_name["anything"] = {"description": "A scalar, a list, or {Name: {field: ...}}."}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A flow of Spolia",
        **OPERATOR,
        "$defs": dict(sorted(definitions.by_name.items())),
    }


class Definitions:
    """Definitions of the schema by name, each built once."""

    def __init__(self, catalogue: Catalogue) -> None:
        self.operators_by_name = dict(catalogue)  # looked up once: to list what is installed takes milliseconds
        self.by_name: dict[str, JsonSchema] = {}

    def tagged_schema(self, cls: type, kind: str) -> JsonSchema:
        """Return a reference to the schema of `{Name: fields}` of a class."""
        plan = plan_of(cls)
        name = f"{kind}.{plan.id}".replace(":", ".")
        if name not in self.by_name:
            self.by_name[name] = {}  # an operator may hold its own kind
            self.by_name[name] = {
                "type": "object",
                "description": _summary(cls),
                "properties": {plan.id: self.fields_schema(plan)},
                "required": [plan.id],
                "additionalProperties": False,
            }
        return {"$ref": f"#/$defs/{name}"}

    def fields_schema(self, plan: ClassPlan) -> JsonSchema:
        """Return the schema of a class's fields; a list is allowed too where positional arguments fill one."""
        descriptions = read_arguments(plan.cls)
        mapping_schema = {
            "type": "object" if plan.required else ["object", "null"],
            "properties": {place.name: self.field_schema(place, descriptions) for place in plan.places},
            "required": sorted(plan.required),
            "additionalProperties": False,
        }
        return (
            {"anyOf": [self.shape_schema(plan.by_name[plan.variadic].shape), mapping_schema]}
            if plan.variadic
            else mapping_schema
        )

    def field_schema(self, place: FieldPlace, descriptions: dict[str, str]) -> JsonSchema:
        schema_of_field = dict(self.shape_schema(place.shape))
        kind: Any = type(place.default)
        if issubclass(kind, Value) and (plan := plan_of(kind)).required:
            schema_of_field = {"anyOf": [schema_of_field, {**self.fields_schema(plan), "required": []}]}
        if place.name in descriptions:
            schema_of_field["description"] = descriptions[place.name]
        if place.default is not REQUIRED and isinstance(place.default, (str, int, float, type(None))):
            schema_of_field["default"] = place.default
        return schema_of_field

    def shape_schema(self, shape: Shape) -> JsonSchema:
        if isinstance(shape, Scalars):
            names = sorted({NAMES[kind] for kind in shape.kinds})
            return {"type": names[0] if len(names) == 1 else names}
        if isinstance(shape, BytesShape):
            return {"type": "string", "contentEncoding": "base64"}
        if isinstance(shape, Literals):
            return {"enum": list(shape.values)}
        if isinstance(shape, Many):
            return {"type": "array", "items": self.shape_schema(shape.item)}
        if isinstance(shape, Fixed):
            size = len(shape.items)
            return {
                "type": "array",
                "prefixItems": [self.shape_schema(i) for i in shape.items],
                "minItems": size,
                "maxItems": size,
            }
        if isinstance(shape, NamedPairs):
            return {"type": "object", "additionalProperties": self.shape_schema(shape.item)}
        if isinstance(shape, Maybe):
            return {"anyOf": [self.shape_schema(shape.item), {"type": "null"}]}
        if isinstance(shape, Either):
            return {"anyOf": [self.shape_schema(option) for option in shape.options]}
        if isinstance(shape, Step):
            return dict(OPERATOR)
        if isinstance(shape, Instance):
            return self.instance_schema(shape)
        return dict(ANY)

    def instance_schema(self, shape: Instance) -> JsonSchema:
        """Return the schema of a value or an address: given by name, or written out with or without its class."""
        options: list[JsonSchema] = [USE]
        classes: list[type] = []
        for cls in self.operators_by_name.values():
            if isinstance(cls, type) and not issubclass(cls, Operator) and self._fits(cls, shape):
                options.append(self.tagged_schema(cls, "value"))
                classes.append(cls)
        if not shape.open and not shape.tagged and is_dataclass(shape.cls) and not inspect.isabstract(shape.cls):
            options.append(self.fields_reference(shape.cls))
        nameable = [cls for cls in classes if not plan_of(cls).required]
        bare = sorted({plan_of(cls).id for cls in nameable})
        return {"anyOf": [*options, {"enum": bare}] if bare else options}

    def fields_reference(self, cls: type) -> JsonSchema:
        """Return a reference to the schema of a class's fields."""
        name = f"fields.{plan_of(cls).id}".replace(":", ".")
        if name not in self.by_name:
            self.by_name[name] = {}
            self.by_name[name] = {"description": _summary(cls), **self.fields_schema(plan_of(cls))}
        return {"$ref": f"#/$defs/{name}"}

    def _fits(self, cls: type, shape: Instance) -> bool:
        if not shape.open:
            return issubclass(cls, shape.cls)
        try:
            names = set(plan_of(cls).by_name)
        except CodecError:
            return False
        required_names = [name for name in vars(shape.cls) if not name.startswith("_")]
        return all(hasattr(cls, name) or name in names for name in required_names)


def _summary(cls: type) -> str:
    text = " ".join((inspect.getdoc(cls) or "").partition("\n\n")[0].split())
    return re.split(r"(?<=\.) ", text, maxsplit=1)[0]


def read_arguments(cls: type) -> dict[str, str]:
    """Return the description of each argument from the docstrings of a class and its bases."""
    descriptions: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        descriptions |= _parse_arguments(inspect.cleandoc(base.__doc__ or ""))
    return descriptions


def _parse_arguments(text: str) -> dict[str, str]:
    section = re.search(r"^Args:\n((?:[ ]{4}.*\n?|\n)+)", text, re.MULTILINE)
    if section is None:
        return {}
    parts = re.findall(r"^ {4}(\w+): (.*(?:\n {8}.*)*)", section[1], re.MULTILINE)
    return {name: " ".join(description.split()) for name, description in parts}
