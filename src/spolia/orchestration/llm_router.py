"""Routers that ask a language model which arm a question belongs to."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

from spolia.core.operator import Operator
from spolia.core.run_context import degrade
from spolia.core.type_compatibility import literal_type, refuse_counts
from spolia.errors import WiringError
from spolia.models.parsers import OneOf, Text
from spolia.models.prompting.likelihood import FirstTokens
from spolia.models.prompting.role import Ask, Brief, Prompted, Role
from spolia.models.prompting.template import Setting
from spolia.models.protocols import ForetellsTokens, LanguageModel
from spolia.orchestration.similarity_router import Arms, refuse_no_arm, scores_of
from spolia.types import ArmScores, Prompt, Query, Token

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

    >>> from spolia.models.prompting.stand_in_models import ScriptedModel
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

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_no_arm(self.arms, self.short)
        refuse_counts(self, "max_tokens")
        OneOf(tuple(name for name, _ in self.arms))  # refuses a name without a letter now, not at the first question
        if self.otherwise not in dict(self.arms):
            raise WiringError(
                f"{self.short}: {self.otherwise!r} is not an arm. Write one of: {', '.join(dict(self.arms))}."
            )

    def gives(self, input_type: Any, /) -> Any:
        super().gives(input_type)
        return literal_type(name for name, _ in self.arms)

    def apply(self, value: Query, /) -> str:
        described = Setting("\n".join(f"- {name}: {description}" for name, description in self.arms))
        label: str = self._ask(Brief.from_texts(value.sample, question=value.text, arms=described))
        return label

    @property
    def _ask(self) -> Ask:
        role = self.role.but(parser=OneOf(tuple(name for name, _ in self.arms)), default=self.otherwise)
        return Ask(self.llm, role, self.max_tokens)

    def calls(self, rows: int | None = None, /) -> int | None:
        return self._ask.calls()


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
        top: how many of the most probable tokens count.

    Raises:
        WiringError: for no arm, or one without a token.
        ModelError: when it runs, for a prompt that cannot be read.
        ModelRejected: the model does not state next tokens.

    Source: Asai et al., "Self-RAG: learning to retrieve, generate, and critique through self-reflection", ICLR 2024
    (whose code divides log-probabilities, which turns the decision round).

    >>> from spolia.models.http.completions import CompletionModel
    >>> from spolia.testing import OpenAIServer, ServedReply
    >>> arms = (("retrieve", ("true",)), ("recall", ("false",)))
    >>> with OpenAIServer(ServedReply("true false", logprob=-0.5)) as server:
    ...     scores = ByNextToken(CompletionModel("any", server.url), arms)(Query("Who employed Olsen?")).by_arm
    >>> round(scores["retrieve"], 3)  # of log-probabilities -0.5 and -1.0
    0.622
    """

    llm: ForetellsTokens
    arms: Arms
    prompt: str = "spolia:orchestration/prompts/next_token.txt"
    top: int = 20

    cached: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_no_arm(self.arms, self.short)
        refuse_counts(self, "top")
        if empty := [arm for arm, tokens in self.arms if not any(map(_normalize_token, tokens))]:
            raise WiringError(f"{self.short}: the arm {empty[0]!r} has no token. Write what the model says for it.")

    def reads(self, value: Query, /) -> Prompt:
        options = Setting("\n".join(f"- {tokens[0]}" for _, tokens in self.arms))
        return Prompt(self.template(value.text).fill({"question": value.text, "options": options}))

    def gives(self, input_type: Any, /) -> Any:
        super().gives(input_type)
        return scores_of(arm for arm, _ in self.arms)

    def apply(self, value: Query, /) -> ArmScores:
        mass = self._sum_by_arm(FirstTokens(self.llm, top=self.top)(self.reads(value)))
        total = math.fsum(mass.values())
        if not total:
            degrade(f"None of the {self.top} most probable next tokens is of an arm.")
        return ArmScores.from_scores({arm: probability / total if total else 0.0 for arm, probability in mass.items()})

    def _sum_by_arm(self, tokens: Iterable[Token]) -> dict[str, float]:
        mass = {arm: 0.0 for arm, _ in self.arms}
        for token in tokens:
            arm = self._find_arm(_normalize_token(token.text))
            if arm is None:
                continue
            if token.logprob <= 0:
                mass[arm] += math.exp(token.logprob)
            else:  # also NaN
                message = f"The token {token.text!r} has the log-probability {token.logprob}; it is not counted."
                degrade(message, partly=True)
        return mass

    def _find_arm(self, token: str) -> str | None:
        """Return the arm that has a token, or the only one of whose tokens it is the beginning."""
        labels = [(arm, _normalize_token(label)) for arm, labels in self.arms for label in labels]
        if exact := [arm for arm, label in labels if label == token]:
            return exact[0]
        begun = {arm for arm, label in labels if token and label.startswith(token)}
        return begun.pop() if len(begun) == 1 else None


def _normalize_token(token: str) -> str:
    return token.strip(" \t\n▁Ġ").casefold()  # how tokenizers write a blank: ▁ (SentencePiece), Ġ (byte-level BPE)
