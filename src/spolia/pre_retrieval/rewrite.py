"""The question as a search engine wants it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from spolia.errors import WiringError
from spolia.models.protocols import LanguageModel
from spolia.models.role import Role
from spolia.pre_retrieval.asking import NOTHING, AsksOfQuery
from spolia.pre_retrieval.parsers import OneText, alike
from spolia.surrounding import degrade
from spolia.types import Query

REWRITTEN: Role[str] = Role("spolia:pre_retrieval/prompts/rewrite.txt", OneText(), default=NOTHING)


@dataclass(frozen=True)
class Rewrite(AsksOfQuery[Query]):
    """The query in the words that a search finds best: q → q′. What is answered stays the question as it was asked.

    A rewriting that is empty, or longer than `longest` times the query, is not used: the query goes on as it was, and
    the result is counted as degraded. A model that was trained to rewrite takes the place of `llm`.

    Args:
        llm: the language model.
        longest: characters of a rewriting, as a multiple of those of the query.
        role: prompt, reader and default (`AsksOfQuery`).
        max_tokens: longest reply.
        temperature: 0 for the most probable reply; above, samples of a query differ.

    Raises:
        WiringError: where `longest` is below 1.

    Source: Ma et al., "Query rewriting in retrieval-augmented large language models", EMNLP 2023.

    >>> from spolia.models.scripted import ScriptedModel
    >>> found = Rewrite(ScriptedModel(("Emma novel author",)))(Query("hey, do you happen to know who wrote Emma?"))
    >>> found.text, found.question
    ('Emma novel author', 'hey, do you happen to know who wrote Emma?')
    """

    llm: LanguageModel
    longest: float = 4.0
    role: Role[str] = REWRITTEN
    max_tokens: int = 128
    temperature: float = 0.0

    version: ClassVar[int] = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.longest >= 1:
            raise WiringError(f"{self.short}: longest is {self.longest}. Write how many times as long, at least 1.")

    def apply(self, value: Query, /) -> Query:
        found = self.said(value)
        if not alike(found):
            degrade("There is no rewriting; the query stays as it is.")
            return value
        if len(found) > self.longest * len(value.text):
            degrade(
                f"The rewriting has {len(found)} characters, more than {self.longest} times the query's "
                f"{len(value.text)}; the query stays as it is."
            )
            return value
        return value.rewritten(found)
