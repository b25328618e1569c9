"""A question as a plan of smaller ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from spolia.models.delimiters import Setting
from spolia.models.protocols import LanguageModel
from spolia.models.role import Role
from spolia.pre_retrieval.asking import NOTHING, AsksOfQuery
from spolia.pre_retrieval.parsers import Steps, alike
from spolia.types import Plan, Query

DECOMPOSED: Role[tuple[str, ...]] = Role("spolia:pre_retrieval/prompts/decompose.txt", Steps(), default=NOTHING)


@dataclass(frozen=True)
class Decompose(AsksOfQuery[Plan]):
    """The sub-questions of a question, from the least to the most: q → (q_1, …, q_n), with `#i` for the answer of q_i.

    A question that needs none, or whose steps cannot be read, has no steps. Steps need steps before them alone, so that
    no plan goes round in a circle. `LeastToMost` takes the steps.

    Args:
        llm: the language model.
        steps: at most; the model is told the number (`{{steps}}`), and further ones are left out.
        role: prompt, reader and default (`AsksOfQuery`).
        max_tokens: longest reply.
        temperature: 0 for the most probable reply; above, samples of a query differ.

    Source: Zhou et al., "Least-to-most prompting enables complex reasoning in large language models", ICLR 2023.

    >>> from spolia.models.scripted import ScriptedModel
    >>> model = ScriptedModel(("1. Who employs Olsen?\\n2. Where is #1?",))
    >>> Decompose(model)(Query("Where is the employer of Olsen?")).levels
    ((1,), (2,))
    """

    llm: LanguageModel
    steps: int = 5
    role: Role[tuple[str, ...]] = DECOMPOSED
    max_tokens: int = 512
    temperature: float = 0.0

    version: ClassVar[int] = 2
    counts: ClassVar[tuple[str, ...]] = ("steps", "max_tokens")

    def apply(self, value: Query, /) -> Plan:
        steps = self.said(value, steps=Setting(self.steps))[: self.steps]
        is_same = len(steps) == 1 and alike(steps[0]) == alike(value.text)
        return Plan(value, () if is_same else steps)
