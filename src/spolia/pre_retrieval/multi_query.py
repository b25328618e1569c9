"""One question in several wordings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from spolia.errors import WiringError
from spolia.models.delimiters import Setting
from spolia.models.protocols import LanguageModel
from spolia.models.role import Role
from spolia.pre_retrieval.asking import NOTHING, AsksOfQuery
from spolia.pre_retrieval.parsers import Searches, alike
from spolia.types import Queries, Query

REWORDED: Role[tuple[str, ...]] = Role("spolia:pre_retrieval/prompts/multi_query.txt", Searches(), default=NOTHING)


@dataclass(frozen=True)
class MultiQuery(AsksOfQuery[Queries]):
    """The query, and the same question in other words: q → (q, q_1 … q_n).

    Each is searched and the rankings are fused; the hits of a rewording count `weight` times those of the query (with
    `ReciprocalRankFusion`, which has the number of hits that remain). Rewordings that repeat the query or each other
    but for case and punctuation are left out. A reply that cannot be read leaves the query alone.

    Args:
        llm: the language model.
        queries: rewordings, at most; the model is told the number (`{{queries}}`).
        weight: of a rewording, where the query has 1.
        role: prompt, reader and default (`AsksOfQuery`).
        max_tokens: longest reply.
        temperature: 0 for the most probable reply; above, samples of a query differ.

    Raises:
        WiringError: for a weight below 0.

    Source: Gao et al., "Modular RAG: Transforming RAG Systems into LEGO-like Reconfigurable Frameworks", 2024.

    >>> from spolia.models.scripted import ScriptedModel
    >>> model = ScriptedModel(("1. author of Emma\\n2. Who wrote Emma?\\n3. Emma novelist",))
    >>> [(query.text, query.weight) for query in MultiQuery(model)(Query("Who wrote Emma?"))]
    [('Who wrote Emma?', 1.0), ('author of Emma', 0.5), ('Emma novelist', 0.5)]
    """

    llm: LanguageModel
    queries: int = 3
    weight: float = 0.5
    role: Role[tuple[str, ...]] = REWORDED
    max_tokens: int = 256
    temperature: float = 0.0

    counts: ClassVar[tuple[str, ...]] = ("queries", "max_tokens")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.weight < float("inf"):
            raise WiringError(f"{self.short}: weight is {self.weight}. Write a number of at least 0.")

    def apply(self, value: Query, /) -> Queries:
        found = self.said(value, queries=Setting(self.queries))
        new = [text for text in found if alike(text) != alike(value.text)][: self.queries]
        return (value, *(value.rewritten(text).but(weight=self.weight * value.weight) for text in new))

    def fanout(self, rows: int | None = None, /) -> int | None:
        return 1 + self.queries
