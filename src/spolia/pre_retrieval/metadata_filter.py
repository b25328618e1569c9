"""Conditions on metadata, written by a language model as `{"field": "year", "is": ">=", "value": 2020}`."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from spolia.core.call_bounds import times
from spolia.core.run_context import degrade
from spolia.core.type_compatibility import refuse_counts
from spolia.errors import FilterError
from spolia.filters import And, AnyOf, Between, Condition, Field, Not, Or, Schema, combine_filters
from spolia.models.parsers import JsonObject
from spolia.models.prompting.role import Role
from spolia.models.prompting.template import Setting
from spolia.models.protocols import LanguageModel
from spolia.pre_retrieval.query_llm import QueryLLM
from spolia.stores.corpus import NodeGroup, refuse_no_group
from spolia.types import Query, Scalar

_DEPTH = 5  # of conditions in conditions; bounds the recursion over what a model wrote
_EQUAL = ("=", "==", "is", "eq", "equals", "in", "one of", "contains")  # as models write it, whatever the prompt says
_UNEQUAL = ("!=", "<>", "is not", "ne", "not in", "not")
_BOUNDS = {">=": "at_least", "gte": "at_least", "<=": "at_most", "lte": "at_most", ">": "above", "gt": "above",
           "<": "below", "lt": "below"}  # fmt: skip


def parse_condition(data: Any, schema: Schema, depth: int = 0) -> Condition:
    """Parse a condition: field, is and value, or any, all or not of others; raise FilterError if it is none."""
    if not isinstance(data, Mapping) or depth > _DEPTH:
        raise FilterError(f"{data!r:.80} is not a condition. Write field, is and value.")
    for name, kind in (("any", Or), ("all", And)):
        if isinstance(parts := data.get(name), list) and parts:
            return kind(tuple(parse_condition(part, schema, depth + 1) for part in parts))
    if "not" in data and "field" not in data:
        return Not(parse_condition(data["not"], schema, depth + 1))
    condition = _parse_comparison(data, schema)
    schema.check(condition)
    return condition


def _parse_comparison(data: Mapping[str, Any], schema: Schema) -> Condition:
    name, compared = str(data.get("field")), str(data.get("is", "=")).strip().lower()
    # of an unknown name: `schema.check` then says which names there are
    field = schema.by_name.get(name) or Field(name or "?")
    raw_value = data.get("value")
    values = tuple(
        _convert_value(item, field)
        for item in (raw_value if isinstance(raw_value, list) else [raw_value])
        if item is not None
    )
    if not values:
        raise FilterError(f"The condition on {name!r:.60} has no value. Write a value, or a list of values.")
    if compared in _EQUAL:
        return AnyOf(name, values)
    if compared in _UNEQUAL:
        return Not(AnyOf(name, values))
    if compared in _BOUNDS and len(values) == 1:
        return Between(name, **{_BOUNDS[compared]: values[0]})
    raise FilterError(
        f"{name!r:.60} is compared by {compared!r:.20}. Write =, !=, <, <=, > or >= with one value, or in."
    )


def _convert_value(value: Any, field: Field) -> Scalar:
    """Convert a value to the field's type if it has the same meaning there."""
    if isinstance(value, str) and field.kind in ("int", "float"):
        try:
            return int(value) if field.kind == "int" else float(value)
        except ValueError:
            return value
    if isinstance(value, str) and field.kind == "bool" and value.lower() in ("true", "false", "yes", "no"):
        return value.lower() in ("true", "yes")
    if isinstance(value, float) and field.kind == "int" and value.is_integer():
        return int(value)
    # 2020 for "2020"; True is an int too, but says nothing there.
    if isinstance(value, int) and not isinstance(value, bool) and field.kind in ("str", "time"):
        return str(value)
    if not isinstance(value, (str, int, float)):
        raise FilterError(f"{value!r:.60} is not a value. Write a text, a number or true or false.")
    return value


NO_FILTER = '{"search": "", "conditions": []}'
FILTERED: Role[dict[str, Any]] = Role(
    "spolia:pre_retrieval/prompts/construct_filter.txt", JsonObject(("search", "conditions")), default=NO_FILTER
)


@dataclass(frozen=True)
class ConstructFilter(QueryLLM[Query]):
    """Split a question into a query and a filter on its documents: q → (q′, filter).

    The model sees the metadata fields that the store declares, and replies with conditions on them, all of which have
    to hold. Each is checked against these fields; what is wrong is shown to the model `tries` times, and what is wrong
    then is dropped, which is counted: it would find nothing. A condition can only narrow what the query's own filter
    allows. The reader still answers the original question.

    Args:
        group: the node group that is searched; its store declares the fields.
        described: what a field means, by field, for the model.
        tries: further replies after one with conditions that are wrong.
        temperature: 0 for the most probable reply.
        role: prompt, with the places `{{fields}}` and `{{failed}}` too, reader and default.
        llm, max_tokens: as for every `QueryLLM`.

    Source: Gao et al., "Modular RAG", 2024 (arXiv 2407.21059), query construction.

    >>> import tempfile
    >>> from spolia import Corpus, Field, ScriptedModel, add_texts
    >>> corpus = Corpus(tempfile.mkdtemp() + "/notes.spolia")
    >>> _ = add_texts(corpus, {"mines.txt": "Salt is dug in mines."}, fields=(Field("year", "int"),))
    >>> said = '{"search": "salt mines", "conditions": [{"field": "year", "is": ">=", "value": 2020}]}'
    >>> found = ConstructFilter(ScriptedModel((said,)), corpus.group())(Query("salt mines since 2020"))
    >>> found.text, found.question, found.filter
    ('salt mines', 'salt mines since 2020', Between(field='year', at_least=2020, at_most=None, above=None, below=None))
    """

    llm: LanguageModel
    group: NodeGroup
    described: tuple[tuple[str, str], ...] = ()
    tries: int = 1
    role: Role[dict[str, Any]] = FILTERED
    max_tokens: int = 512
    temperature: float = 0.0

    shows: ClassVar[tuple[str, ...]] = ("question", "fields", "failed")

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_no_group(self.group, "ConstructFilter")
        refuse_counts(self, "tries", minimum=0)

    def apply(self, value: Query, /) -> Query:
        schema = self.group.snapshot().schema
        failed: list[str] = []
        for _ in range(1 + self.tries):
            reply = self.read_reply(value, fields=self._fields(schema), failed=tuple(failed))
            conditions, problems = _parse_conditions(reply["conditions"], schema)
            if not problems:
                break
            # Cut, since it goes into the next prompt: a model may have repeated itself to the end.
            failed.append(f"{json.dumps(reply, ensure_ascii=False, default=str)[:2000]}\n\n" + "\n".join(problems))
        for problem in problems:
            degrade(f"A condition is dropped: {problem}", partly=bool(conditions))
        text = " ".join(str(reply["search"] or "").split())
        query = value.rewritten(text) if 0 < len(text) <= 4 * len(value.text) else value  # as `Rewrite.longest`
        return query.but(filter=combine_filters(value.filter, *conditions), origin=value) if conditions else query

    def calls(self, rows: int | None = None, /) -> int | None:
        return times(1 + self.tries, self.ask.calls())

    def _fields(self, schema: Schema) -> Setting:
        notes = dict(self.described)
        lines = (
            f"- {field.name} ({field.kind}){f': {notes[field.name]}' if field.name in notes else ''}"
            for field in schema.by_name.values()
        )
        return Setting("\n".join(lines))


def _parse_conditions(data: Any, schema: Schema) -> tuple[list[Condition], list[str]]:
    """Return the valid conditions, and the problems of the others."""
    conditions: list[Condition] = []
    problems: list[str] = []
    for item in data if isinstance(data, list) else [data] if data else []:
        try:
            conditions.append(parse_condition(item, schema))
        except ValueError as error:  # also of filters
            problems.append(str(error))
    return conditions, problems
