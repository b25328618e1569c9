"""Which arm a question belongs to, by what a language model would say next: labels, or control tokens."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from spolia.errors import ModelError, WiringError
from spolia.models.delimiters import Setting
from spolia.models.prompted import Prompted
from spolia.models.protocols import NEXT_TOKENS, ForetellsTokens, LanguageModel
from spolia.models.template import chosen
from spolia.operator import Operator
from spolia.orchestration.by_keywords import Arms, refuse_no_arm
from spolia.surrounding import degrade
from spolia.types import ArmScores, Prompt, Query, Token
from spolia.wiring import refuse_counts


@dataclass(frozen=True)
class ByNextToken(Prompted, Operator[Query, ArmScores]):
    """Score arms by the probability of their tokens as the model's next one: P(F_j) = p(T_j) / Σ_i p(T_i).

    p(T_j) is the sum of the probabilities of an arm's tokens, computed from probabilities, never from their logarithms.
    The tokens are labels that the prompt offers, or control tokens that a model was trained to write, as Self-RAG's:
    `ByNextToken(model, (("retrieve", ("[Retrieval]",)), ("recall", ("[No Retrieval]",))))`, and `Exceeds("retrieve",
    "recall", 0.2)` behind it. A token that is the beginning of one arm's label counts for it. Where none of
    the most probable tokens is of any arm, all scores are 0, and the result is counted as degraded.

    Args:
        llm: a language model that states the most probable next tokens.
        arms: tokens by arm, whatever their case and blanks around them.
        prompt: file with the place `{{question}}`, and `{{options}}` if it names them.
        top: how many of the most probable tokens are looked at.

    Raises:
        WiringError: for no arm, or one without a token.
        ModelError: when it runs: the prompt cannot be read, or the model cannot foretell tokens.
        ModelRejected: the server states none, where it was said to.

    Source: Asai et al., "Self-RAG: learning to retrieve, generate, and critique through self-reflection", ICLR 2024
    (whose code divides log-probabilities, which turns the decision round).

    >>> from spolia.models.completions import CompletionModel
    >>> from spolia.testing import OpenAIServer, Served
    >>> arms = (("retrieve", ("true",)), ("recall", ("false",)))
    >>> with OpenAIServer(Served("true false", logprob=-0.5)) as server:
    ...     scores = ByNextToken(CompletionModel("any", server.url), arms)(Query("Who employed Olsen?")).by_arm
    >>> round(scores["retrieve"], 3)  # of log-probabilities -0.5 and -1.0
    0.622
    """

    llm: LanguageModel
    arms: Arms
    prompt: str = "spolia:orchestration/prompts/next_token.txt"
    top: int = 20

    cached: ClassVar[bool] = True
    waits: ClassVar[bool] = True
    needs: ClassVar[Mapping[str, frozenset[str]]] = {"llm": frozenset((NEXT_TOKENS,))}

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_no_arm(self.arms, self.short)
        refuse_counts(self, "top")
        if empty := [arm for arm, tokens in self.arms if not any(map(_plain, tokens))]:
            raise WiringError(f"{self.short}: the arm {empty[0]!r} has no token. Write what the model says for it.")

    def reads(self, value: Query, /) -> object:
        return self._prompt(value)

    def apply(self, value: Query, /) -> ArmScores:
        if not isinstance(self.llm, ForetellsTokens):
            raise ModelError(f"{self.llm.name} cannot foretell tokens. Take a model with the capability 'next_tokens'.")
        mass = self._mass(self.llm.next_tokens(self._prompt(value), top=self.top))
        whole = math.fsum(mass.values())
        if not whole:
            degrade(f"None of the {self.top} most probable next tokens is of an arm.")
        return ArmScores.of({arm: found / whole if whole else 0.0 for arm, found in mass.items()})

    def _mass(self, tokens: Iterable[Token]) -> dict[str, float]:
        mass = {arm: 0.0 for arm, _ in self.arms}
        for token in tokens:
            arm = self._arm(_plain(token.text))
            if arm is None:
                continue
            if token.logprob <= 0:
                mass[arm] += math.exp(token.logprob)
            else:  # also NaN
                degrade(f"The token {token.text!r} has the log-probability {token.logprob}; it is not counted.")
        return mass

    def _arm(self, token: str) -> str | None:
        """The arm that has a token, or the only one of whose tokens it is the beginning."""
        labels = [(arm, _plain(label)) for arm, labels in self.arms for label in labels]
        if exact := [arm for arm, label in labels if label == token]:
            return exact[0]
        begun = {arm for arm, label in labels if token and label.startswith(token)}
        return begun.pop() if len(begun) == 1 else None

    def _prompt(self, query: Query) -> Prompt:
        options = Setting("\n".join(f"- {tokens[0]}" for _, tokens in self.arms))
        return Prompt(
            chosen(self.prompt, {"question": query.text, "options": options}).filled(
                {"question": query.text, "options": options}
            )
        )

    def calls(self, rows: int | None = None, /) -> int | None:
        return 1


def _plain(token: str) -> str:
    return token.strip(" \t\n▁Ġ").casefold()
