"""A more general question beside the one that was asked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from spolia.models.protocols import LanguageModel
from spolia.models.role import Role
from spolia.pre_retrieval.asking import NOTHING, AsksOfQuery
from spolia.pre_retrieval.parsers import OneText, alike
from spolia.types import Queries, Query

STEPPED_BACK: Role[str] = Role("spolia:pre_retrieval/prompts/step_back.txt", OneText(), default=NOTHING)


@dataclass(frozen=True)
class StepBack(AsksOfQuery[Queries]):
    """The query, and the question of principle behind it: q → (q, abstract q).

    Both are searched and the rankings are fused; what is answered is the question as it was asked. Where the model
    sees no question behind it, or says the same, the query is alone.

    Args:
        llm: the language model.
        role: prompt, reader and default (`AsksOfQuery`).
        max_tokens: longest reply.
        temperature: 0 for the most probable reply; above, samples of a query differ.

    Source: Zheng et al., "Take a step back: evoking reasoning via abstraction in large language models", ICLR 2024.

    >>> from spolia.models.scripted import ScriptedModel
    >>> asked = StepBack(ScriptedModel(("How do tides arise?",)))(Query("Why is low water at noon in Brest today?"))
    >>> [query.text for query in asked], asked[1].question
    (['Why is low water at noon in Brest today?', 'How do tides arise?'], 'Why is low water at noon in Brest today?')
    """

    llm: LanguageModel
    role: Role[str] = STEPPED_BACK
    max_tokens: int = 128
    temperature: float = 0.0

    version: ClassVar[int] = 2

    def apply(self, value: Query, /) -> Queries:
        found = self.said(value)
        return (value,) if alike(found) in ("", alike(value.text)) else (value, value.rewritten(found))

    def fanout(self, rows: int | None = None, /) -> int | None:
        return 2
