"""What `docs/reference/operators.md` says of operators and addresses, made from their fields, types and docstrings."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from spolia.core.codec import plan_of
from spolia.core.codec.objects import Either, Instance, Maybe
from spolia.core.operator import Operator
from spolia.core.registry import Catalogue
from spolia.core.type_compatibility import name_of, parameters_of
from spolia.flow_files.schema import schema
from spolia.models import protocols
from spolia.models.http.remote import Remote
from spolia.models.local.address import Local
from spolia.models.onnx.minilm import MiniLM
from spolia.retrieval.web.engines import SearchAPI

LEFT_OUT = frozenset({"Then", "Vary"})
MODELS = (
    protocols.LanguageModel,
    protocols.Scorer,
    protocols.Embedder,
    protocols.ImageEmbedder,
    protocols.ImageScorer,
    protocols.SparseEmbedder,
    protocols.TokenEmbedder,
)
WITH_WEIGHTS: Mapping[str, str] = {"Dense": "benchmarks/first_table.py", "Extract": "benchmarks/first_table.py"}
"""Operators that were run with the weights of a published model, all-MiniLM-L6-v2, and what ran them."""
RUN_WITH: Mapping[type, str] = {
    MiniLM: "its weights",
    Local: "tiny models with random weights, made on the spot",
    Remote: "a server on this machine that keeps to the protocol",
    SearchAPI: "a server on this machine that answers as the engine does",
}
_schema = cache(schema)
_SOURCE = re.compile(r"^Source: (.*?)(?:\n\n|\Z)", re.MULTILINE | re.DOTALL)


def operators() -> Iterator[str]:
    """Every operator that a flow file may hold: what it takes and gives, its fields, what it needs, its source."""
    classes = {cls.type_id(): cls for cls in Catalogue().operators()}
    for name, summary, fields in _describe_entries("operator."):
        if name not in LEFT_OUT:
            input_type, output_type = parameters_of(classes[name], Operator) or (Any, Any)
            yield f"- **`{name}`** (`{name_of(input_type)}` → `{name_of(output_type)}`): {summary}"
            yield from fields
            yield from needs(classes[name])
            yield from (f"  - *Source*: {' '.join(source.split())}" for source in sources(classes[name]))


def addresses() -> Iterator[str]:
    """Every store and model that a flow file may name, with its fields; of models, what they were run with."""
    catalogue = Catalogue()
    for name, summary, fields in _describe_entries("value."):
        yield f"- **`{name}`**: {summary}"
        yield from fields
        yield from (
            f"  - *Run with*: {purpose}." for kind, purpose in RUN_WITH.items() if issubclass(catalogue[name], kind)
        )


def needs(cls: type[Operator[Any, Any]]) -> Iterator[str]:
    """The models that an operator asks, what they must be able to do, and which it was run with."""
    model_texts = list(_models(cls))
    if model_texts:
        ran = (
            f"run with the weights of all-MiniLM-L6-v2 (`{WITH_WEIGHTS[cls.__name__]}`)"
            if cls.__name__ in WITH_WEIGHTS
            else "contract-tested"
        )
        yield f"  - *Needs*: {'; '.join(model_texts)}. *Models*: {ran}."


def sources(cls: type[Operator[Any, Any]]) -> list[str]:
    """The publication that a docstring names, if it does."""
    return _SOURCE.findall(inspect.cleandoc(cls.__doc__ or ""))


def _models(cls: type[Operator[Any, Any]]) -> Iterator[str]:
    for place in plan_of(cls).places:
        optional = isinstance(place.shape, Maybe)
        shape = place.shape.item if isinstance(place.shape, Maybe) else place.shape
        first, *alternatives = shape.options if isinstance(shape, Either) else (shape,)
        if isinstance(first, Instance) and first.cls in MODELS:
            able = ", ".join(f"`{option}`" for option in sorted(cls.needs.get(place.name, ())))
            ability = f" with {able}" if able else ", or none" if optional else ""
            kind = first.cls.__name__
            instead = "".join(
                f", or a `{option.cls.__name__}`" for option in alternatives if isinstance(option, Instance)
            )
            yield f"`{place.name}`, {'an' if kind[0] in 'EI' else 'a'} `{kind}`{ability}{instead}"


def _describe_entries(prefix: str) -> Iterator[tuple[str, str, list[str]]]:
    """Name, summary and lines about the fields of each entry of a kind."""
    for key, definition in _schema()["$defs"].items():
        if key.startswith(prefix):
            name = key.removeprefix(prefix)
            fields = definition["properties"][name]
            fields = fields["anyOf"][-1] if "anyOf" in fields else fields
            lines = [
                f"  - `{field}`{_default(field, field_schema, fields)}: {field_schema.get('description', '')}".rstrip(
                    ": "
                )
                for field, field_schema in fields["properties"].items()
            ]
            yield name, definition["description"], lines


def _default(field: str, field_schema: dict[str, Any], fields: dict[str, Any]) -> str:
    if field in fields.get("required", ()):
        return " (required)"
    return f" = `{json.dumps(field_schema['default'], ensure_ascii=False)}`" if "default" in field_schema else ""
