"""A search by the text of an imagined passage."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from spolia.models.protocols import LanguageModel
from spolia.models.role import Role
from spolia.pre_retrieval.imagining import IMAGINED, Imagines
from spolia.types import Query


@dataclass(frozen=True)
class HyDE(Imagines):
    """Search for a passage that would answer the question, as the model imagines it: q → d̂.

    What is wrong in it does not matter much: it is in the words of an answer, and only what the store has is found.
    What is answered stays the question. `AveragedHyDE` does the same with vectors. Reverse HyDE, questions that a text
    would answer, is a node group: `HypotheticalQuestions`.

    Args:
        llm: the language model.
        passages: draws, one below the other; more than one need a temperature.
        beside: keep the query above the passage: for a search by words, which would miss the query's own.
        role: prompt, reader and default (`AsksOfQuery`); without a passage the query goes on as it was.
        max_tokens: longest passage.
        temperature: 0 for the most probable passage.

    Raises:
        WiringError: for several passages at temperature 0.

    Source: Gao, Ma, Lin, Callan, "Precise zero-shot dense retrieval without relevance labels", ACL 2023.

    >>> from spolia.models.scripted import ScriptedModel
    >>> model = ScriptedModel(("Tides are caused by the pull of the moon.",))
    >>> HyDE(model)(Query("Why tides?")).text, HyDE(model, beside=True)(Query("Why tides?")).text
    ('Tides are caused by the pull of the moon.', 'Why tides?\\nTides are caused by the pull of the moon.')
    """

    llm: LanguageModel
    passages: int = 1
    beside: bool = False
    role: Role[str] = IMAGINED
    max_tokens: int = 128
    temperature: float = 0.0

    version: ClassVar[int] = 2

    def apply(self, value: Query, /) -> Query:
        passages = self.imagined(value)
        return value.rewritten("\n".join((value.text, *passages) if self.beside else passages)) if passages else value
