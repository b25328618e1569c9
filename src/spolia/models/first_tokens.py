"""With which tokens a language model would begin its reply."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from spolia.errors import ModelRejected
from spolia.models.ask import Brief
from spolia.models.protocols import NEXT_TOKENS, ForetellsTokens, LanguageModel
from spolia.models.role import Role
from spolia.operator import Operator
from spolia.types import Prompt, Token


@dataclass(frozen=True)
class FirstTokens(Operator[Brief, tuple[Token, ...]]):
    """The most probable first tokens of the reply that a role asks for, best first, each with ln p. One call, and
    nothing is generated beyond one token.

    Args:
        llm: a model with the capability `next_tokens`.
        role: whose prompt file is asked with; its parser reads nothing.
        top: tokens, at most; many servers state no more than 20.

    Raises:
        ModelRejected: the model states no probabilities.
        ModelUnavailable: the server cannot be reached.

    >>> FirstTokens.needs
    {'llm': frozenset({'next_tokens'})}
    """

    llm: LanguageModel
    role: Role[Any]
    top: int = 20

    cached: ClassVar[bool] = True
    waits: ClassVar[bool] = True
    needs: ClassVar[Mapping[str, frozenset[str]]] = {"llm": frozenset((NEXT_TOKENS,))}

    def apply(self, value: Brief, /) -> tuple[Token, ...]:
        if not isinstance(self.llm, ForetellsTokens) or NEXT_TOKENS not in self.llm.capabilities:
            raise ModelRejected(f"{self.llm.name} has no {NEXT_TOKENS!r}. Write a model that has, as CompletionModel.")
        return self.llm.next_tokens(self.reads(value), top=self.top)

    def reads(self, value: Brief, /) -> Prompt:
        return self.role.prompt_for(dict(value.places))

    def calls(self, rows: int | None = None, /) -> int | None:
        return 1
