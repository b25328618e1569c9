"""Which arm a question belongs to, as a language model says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from spolia.errors import WiringError
from spolia.models.ask import Ask, Brief
from spolia.models.delimiters import Setting
from spolia.models.parsers import OneOf, Text
from spolia.models.protocols import CHAT, LanguageModel
from spolia.models.role import Role
from spolia.operator import Operator
from spolia.orchestration.by_keywords import refuse_no_arm
from spolia.types import Query
from spolia.wiring import refuse_counts

ROUTED: Role[str] = Role("spolia:orchestration/prompts/label.txt", Text(), default="none")


@dataclass(frozen=True)
class ByLabel(Operator[Query, str]):
    """Have a language model name the arm that a question belongs to.

    It is asked for one of the names, and what it writes around it does not matter. A reply that names no arm, or
    several, is sent back once; then `otherwise` is the arm, and the result is counted as degraded.

    Args:
        llm: the language model.
        arms: by name, what belongs there.
        otherwise: one of the names.
        role: the prompt file, with the places `{{question}}` and `{{arms}}`; what reads the reply is made of the names.
        max_tokens: longest reply.

    Raises:
        WiringError: for no arm, or where `otherwise` is none.

    Source: Jeong et al., "Adaptive-RAG: learning to adapt retrieval-augmented large language models through question
    complexity", NAACL 2024.

    >>> from spolia.models.scripted import ScriptedModel
    >>> arms = (("law", "statutes and courts"), ("medicine", "drugs and diseases"))
    >>> router = ByLabel(ScriptedModel((("dose", "It is **Medicine**."), ("", "hard to say"))), arms, otherwise="law")
    >>> router(Query("Which dose?")), router(Query("What now?"))
    ('medicine', 'law')
    """

    llm: LanguageModel
    arms: tuple[tuple[str, str], ...]
    otherwise: str
    role: Role[str] = ROUTED
    max_tokens: int = 64

    waits: ClassVar[bool] = True
    needs: ClassVar[Mapping[str, frozenset[str]]] = {"llm": frozenset((CHAT,))}

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_no_arm(self.arms, self.short)
        refuse_counts(self, "max_tokens")
        OneOf(tuple(name for name, _ in self.arms))
        if self.otherwise not in dict(self.arms):
            raise WiringError(
                f"{self.short}: {self.otherwise!r} is no arm. Write one of: {', '.join(dict(self.arms))}."
            )

    def apply(self, value: Query, /) -> str:
        described = Setting("\n".join(f"- {name}: {what}" for name, what in self.arms))
        found: str = self._ask(Brief.of(value.sample, question=value.text, arms=described))
        return found

    @property
    def _ask(self) -> Ask:
        role = self.role.but(parser=OneOf(tuple(name for name, _ in self.arms)), default=self.otherwise)
        return Ask(self.llm, role, self.max_tokens)

    def calls(self, rows: int | None = None, /) -> int | None:
        return self._ask.calls()
