"""What a question says of metadata, as a filter."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, ClassVar

from spolia.bounds import times
from spolia.filters import Condition, Schema, narrowed
from spolia.models.delimiters import Setting
from spolia.models.parsers import JsonObject
from spolia.models.protocols import LanguageModel
from spolia.models.role import Role
from spolia.pre_retrieval.asking import AsksOfQuery
from spolia.pre_retrieval.conditions import condition_of
from spolia.stores.corpus import NodeGroup, refuse_no_group
from spolia.surrounding import degrade
from spolia.types import Query
from spolia.wiring import refuse_counts

NO_FILTER = '{"search": "", "conditions": []}'
FILTERED: Role[dict[str, Any]] = Role(
    "spolia:pre_retrieval/prompts/construct_filter.txt", JsonObject(("search", "conditions")), default=NO_FILTER
)


@dataclass(frozen=True)
class ConstructFilter(AsksOfQuery[Query]):
    """Split a question into what is searched and what its documents must be: q → (q′, filter).

    The model sees the metadata fields that the store declares, and replies with conditions on them, all of which have
    to hold. Each is checked against these fields; what is wrong is shown to the model `tries` times, and what is wrong
    then is dropped, which is counted: it would find nothing. A condition can only narrow what the query's own filter
    lets be found. What is answered stays the question.

    Args:
        llm: the language model.
        group: the node group that is searched; its store declares the fields.
        described: what a field means, by field, for the model.
        tries: further replies after one with conditions that are wrong.
        role: prompt, with the places `{{fields}}` and `{{failed}}` too, reader and default (`AsksOfQuery`).
        max_tokens: longest reply.
        temperature: 0 for the most probable reply.

    Source: Gao et al., "Modular RAG: Transforming RAG Systems into LEGO-like Reconfigurable Frameworks", 2024, query
    construction.

    >>> import tempfile
    >>> from spolia.filters import Field
    >>> from spolia.indexing.texts import add_texts
    >>> from spolia.models.scripted import ScriptedModel
    >>> from spolia.stores.corpus import Corpus
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
        refuse_counts(self, "tries", least=0)

    def apply(self, value: Query, /) -> Query:
        schema = self.group.snapshot().schema
        failed: list[str] = []
        for _ in range(1 + self.tries):
            reply = self.said(value, fields=self._fields(schema), failed=tuple(failed))
            conditions, problems = _read(reply["conditions"], schema)
            if not problems:
                break
            failed.append(f"{json.dumps(reply, ensure_ascii=False, default=str)[:2000]}\n\n" + "\n".join(problems))
        for problem in problems:
            degrade(f"A condition is dropped: {problem}")
        text = " ".join(str(reply["search"] or "").split())
        found = value.rewritten(text) if 0 < len(text) <= 4 * len(value.text) else value
        return found.but(filter=narrowed(value.filter, *conditions), origin=value) if conditions else found

    def calls(self, rows: int | None = None, /) -> int | None:
        return times(1 + self.tries, self.ask.calls())

    def _fields(self, schema: Schema) -> Setting:
        notes = dict(self.described)
        lines = (
            f"- {field.name} ({field.kind}){f': {notes[field.name]}' if field.name in notes else ''}"
            for field in schema.by_name.values()
        )
        return Setting("\n".join(lines))


def _read(written: Any, schema: Schema) -> tuple[list[Condition], list[str]]:
    """The conditions that are right, and what is wrong with the others."""
    conditions: list[Condition] = []
    problems: list[str] = []
    for one in written if isinstance(written, list) else [written] if written else []:
        try:
            conditions.append(condition_of(one, schema))
        except ValueError as error:  # also of filters
            problems.append(str(error))
    return conditions, problems
