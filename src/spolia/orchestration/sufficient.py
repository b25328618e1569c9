"""Whether what was found answers the question, as a language model says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from spolia.models.ask import Ask, Brief
from spolia.models.parsers import OneOf
from spolia.models.protocols import CHAT, LanguageModel
from spolia.models.role import Role
from spolia.operator import Operator
from spolia.types import Ranking, Verdict
from spolia.wiring import refuse_counts

ENOUGH: Role[str] = Role(
    "spolia:orchestration/prompts/sufficient.txt", OneOf(("sufficient", "insufficient")), default="insufficient"
)


@dataclass(frozen=True)
class Sufficient(Operator[Ranking, Verdict]):
    """Ask a language model whether the passages are enough to answer the question.

    Of nothing nobody is asked: it is not enough. A reply that is none of the labels is sent back once; then the role's
    default holds (`insufficient`), and the result is counted as degraded.

    Args:
        llm: the language model.
        passages: the best so many are shown.
        characters: of each passage that are shown, at most.
        role: the prompt file, with the places `{{question}}` and `{{passages}}`; labels, of which `sufficient` stops.
        max_tokens: longest reply.

    Source: Gao et al., "Modular RAG: Transforming RAG Systems into LEGO-like Reconfigurable Frameworks", 2024,
    LLM judge.

    >>> from spolia.models.scripted import ScriptedModel
    >>> from spolia.types import Hit, Node, Query
    >>> found = Ranking(Query("Who employed Olsen?"), (Hit(Node("a", "Olsen was at Nokia."), 1.0),))
    >>> Sufficient(ScriptedModel(("Verdict: sufficient.",)))(found)
    Verdict(stop=True, reason='sufficient')
    """

    llm: LanguageModel
    passages: int = 10
    characters: int = 2_000
    role: Role[str] = ENOUGH
    max_tokens: int = 256

    waits: ClassVar[bool] = True
    needs: ClassVar[Mapping[str, frozenset[str]]] = {"llm": frozenset((CHAT,))}

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_counts(self, "passages", "characters", "max_tokens")

    def apply(self, value: Ranking, /) -> Verdict:
        if not value.hits:
            return Verdict(False, "sufficient")
        shown = tuple(node.shown_text[: self.characters] for node in value.cut(self.passages).nodes)
        label = self._ask(Brief.of(value.query.sample, question=value.query.question, passages=shown))
        return Verdict(label == "sufficient", "sufficient")

    @property
    def _ask(self) -> Ask:
        return Ask(self.llm, self.role, self.max_tokens)

    def calls(self, rows: int | None = None, /) -> int | None:
        return self._ask.calls()
