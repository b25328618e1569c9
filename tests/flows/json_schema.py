"""As much of JSON schema (draft 2020-12) as the schema of flow files uses."""

from __future__ import annotations

from typing import Any

TYPES: dict[str, Any] = {
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "null": type(None),
    "array": list,
    "object": dict,
}
USED = {
    "$schema",
    "$defs",
    "$ref",
    "title",
    "description",
    "default",
    "type",
    "enum",
    "anyOf",
    "items",
    "prefixItems",
    "minItems",
    "maxItems",
    "properties",
    "required",
    "additionalProperties",
}


def valid(plain: Any, schema: Any, root: Any) -> bool:
    """Whether plain data follow a schema."""
    assert set(schema) <= USED, set(schema) - USED
    if "$ref" in schema and not valid(plain, _resolve(schema["$ref"], root), root):
        return False
    if "type" in schema and not any(_is(plain, name) for name in _as_list(schema["type"])):
        return False
    if "enum" in schema and not any(
        type(plain) is type(allowed_value) and plain == allowed_value for allowed_value in schema["enum"]
    ):
        return False
    if "anyOf" in schema and not any(valid(plain, option, root) for option in schema["anyOf"]):
        return False
    if isinstance(plain, list):
        return _list(plain, schema, root)
    return _object(plain, schema, root) if isinstance(plain, dict) else True


def _list(plain: list[Any], schema: Any, root: Any) -> bool:
    if not schema.get("minItems", 0) <= len(plain) <= schema.get("maxItems", len(plain)):
        return False
    first = schema.get("prefixItems", [])
    rest = schema.get("items", {})
    return all(valid(item, first[i] if i < len(first) else rest, root) for i, item in enumerate(plain))


def _object(plain: dict[str, Any], schema: Any, root: Any) -> bool:
    properties, others_allowed = schema.get("properties", {}), schema.get("additionalProperties", {})
    if not set(schema.get("required", ())) <= set(plain):
        return False
    if others_allowed is False and not set(plain) <= set(properties):
        return False
    return all(valid(item, properties.get(name, others_allowed or {}), root) for name, item in plain.items())


def _is(plain: Any, name: str) -> bool:
    if isinstance(plain, bool):
        return name == "boolean"
    return isinstance(plain, TYPES[name])


def _as_list(names: Any) -> list[str]:
    return [names] if isinstance(names, str) else names


def _resolve(reference: str, root: Any) -> Any:
    part_schema = root
    for part in reference.removeprefix("#/").split("/"):
        part_schema = part_schema[part]
    return part_schema
