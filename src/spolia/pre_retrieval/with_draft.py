"""A search by the question and a draft of its answer."""

from __future__ import annotations

from dataclasses import dataclass

from spolia.operator import Operator
from spolia.types import Answer, Query


@dataclass(frozen=True)
class WithDraft(Operator[Query, Query]):
    """Search for the question together with a draft of its answer: q → q ⊕ draft(q).

    With `ChainOfVerification` as the draft, what is searched by is verified first: fewer hits for what the model made
    up. An abstention leaves the query as it is.

    Args:
        draft: answers the question.
        beside: keep the question above the draft.

    Source: Dhuliawala et al., "Chain-of-verification reduces hallucination in large language models", Findings of ACL
    2024; Wang, Yang, Wei, "Query2doc: query expansion with large language models", EMNLP 2023.

    >>> from spolia.function import step
    >>> @step
    ... def known(query: Query) -> Answer:
    ...     return Answer("Jane Austen.")
    >>> WithDraft(known)(Query("Who wrote Emma?")).text
    'Who wrote Emma?\\nJane Austen.'
    """

    draft: Operator[Query, Answer]
    beside: bool = True

    def apply(self, value: Query, /) -> Query:
        said = self.draft(value)
        if said.abstained or not said.text.strip():
            return value
        return value.rewritten(f"{value.text}\n{said.text}" if self.beside else said.text)

    def calls(self, rows: int | None = None, /) -> int | None:
        return self.draft.calls()
