"""Judges that stop a loop: by a field of its state, a router, a model or a classifier."""

import math
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal, get_args, get_origin

from spolia.core.operator import Operator
from spolia.core.run_context import degrade
from spolia.core.type_compatibility import fits, name_of, refuse_counts, refuse_numbers
from spolia.core.validation import declared_fields
from spolia.errors import ModelRejected, WiringError
from spolia.models.judge import ask_judge
from spolia.models.parsers import OneOf
from spolia.models.prompting.role import Ask, Brief, Role
from spolia.models.protocols import LanguageModel, Scorer
from spolia.types import Chain, Generation, Ranking, State, Verdict


@dataclass(frozen=True)
class StopWhen(Operator[State, Verdict]):
    """Stop a loop when a field of its state reaches `at_least`: a number, or the length of a tuple or a text.

    Args:
        field: of the state.
        at_least: the number.
        reason: why it stopped, for `stop`.

    Raises:
        WiringError: when it runs: the state lacks the field, or it is of another type.

    Source: Gao et al., "Modular RAG", 2024 (arXiv 2407.21059), rule judge.

    >>> from spolia.types import Chain, Query
    >>> StopWhen("pairs", 1)(Chain(Query("Who?"), (("Who is it?", "Olsen."),)))
    Verdict(stop=True, reason='sufficient')
    """

    field: str
    at_least: float
    reason: str = "sufficient"

    def gives(self, input_type: Any, /) -> Any:
        """Return the type of a verdict; raise `WiringError` if the state lacks the field or it has no amount."""
        output_type = super().gives(input_type)
        if isinstance(input_type, type) and issubclass(input_type, State) and input_type is not State:
            state: Any = input_type
            field_types = dict(declared_fields(state))
            if self.field not in (names := [f.name for f in fields(input_type)]):
                raise WiringError(f"{input_type.__name__} has no field {self.field!r}. It has: {', '.join(names)}.")
            if not any(fits(kind, field_types.get(self.field, Any), {}) for kind in (float, str, tuple)):
                type_name = name_of(field_types[self.field])
                raise WiringError(f"The field {self.field!r} holds {type_name}. Write one with a number or entries.")
        return output_type

    def beyond(self, steps: float, state: Any) -> str:
        """Explain why a loop never meets the bound, or over a `Chain` ends at its cap; empty if it may meet it."""
        if not math.isfinite(self.at_least):
            return f"StopWhen waits for {self.at_least}, which never comes. Write a number."
        is_known = isinstance(state, type) and issubclass(state, State) and state is not State
        field_type = dict(declared_fields(state)).get(self.field, Any) if is_known else Any
        if self.at_least <= 0 and not fits(float, field_type, {}):  # a number may be below 0, a number of entries not
            return (
                f"StopWhen stops after the first step: {self.field!r} has 0 entries or more. Write at_least=1 or more."
            )
        is_chain = isinstance(state, type) and issubclass(state, Chain)  # each step adds a pair
        if self.at_least <= steps or self.field != "pairs" or not is_chain:
            return ""
        return (
            f"StopWhen waits for {self.at_least:g} in {self.field!r}, and the loop takes {steps} steps: if each adds "
            f"one, it ends at its cap. Write at_least={steps} or less, or max_steps={math.ceil(self.at_least)}."
        )

    def apply(self, value: State, /) -> Verdict:
        field_names = [f.name for f in fields(value)]
        if self.field not in field_names:
            raise WiringError(f"{type(value).__name__} has no field {self.field!r}. It has: {', '.join(field_names)}.")
        field_value = getattr(value, self.field)
        amount = len(field_value) if isinstance(field_value, (tuple, str)) else field_value
        if not isinstance(amount, (int, float)):
            raise WiringError(
                f"The field {self.field!r} holds {field_value!r:.60}. Write one with a number or entries."
            )
        return Verdict(amount >= self.at_least, self.reason)


@dataclass(frozen=True)
class StopOn(Operator[str, Verdict]):
    """Stop a loop when a router names this label: any router becomes a judge.

    Args:
        label: one of the router's.
        reason: why it stopped, for `stop`; the label where it is empty.

    Raises:
        WiringError: the router before it never names the label.

    Source: Gao et al., "Modular RAG", 2024 (arXiv 2407.21059), rule judge.

    >>> from spolia.orchestration.arm_choice import Exceeds
    >>> from spolia.types import ArmScores
    >>> judge = Exceeds("enough", "search on", threshold=0.5) >> StopOn("enough")
    >>> judge(ArmScores((("enough", 0.7),))), judge(ArmScores((("enough", 0.3),))).stop
    (Verdict(stop=True, reason='enough'), False)
    """

    label: str
    reason: str = ""

    def gives(self, input_type: Any, /) -> Any:
        """Return the type of a verdict; raise `WiringError` after a router that never names the label."""
        if get_origin(input_type) is Literal and self.label not in (labels := get_args(input_type)):
            raise WiringError(f"StopOn waits for {self.label!r}; the router before it only names {', '.join(labels)}.")
        return super().gives(input_type)

    def apply(self, value: str, /) -> Verdict:
        return Verdict(value == self.label, self.reason or self.label)


@dataclass(frozen=True)
class Confident(Operator[Generation, Verdict]):
    """Accept a reply where each of its tokens has at least a probability: ∀t: p(t) ≥ τ.

    A token with exactly τ is accepted. One whose log-probability is NaN, or above 0, is not.

    Args:
        threshold: τ, from 0 to 1.

    Raises:
        WiringError: for another threshold.
        ModelRejected: when it runs: the reply has no log-probabilities.

    Source: Jiang et al., "Active retrieval augmented generation" (FLARE), EMNLP 2023, whose code retrieves at p = τ.

    >>> from spolia.types import Token
    >>> sure = Generation("Nokia in Salo", tokens=(Token("Nokia", -0.01), Token(" in Salo", math.log(0.8))))
    >>> Confident(0.8)(sure).stop, Confident(0.81)(sure).stop
    (True, False)
    """

    threshold: float = 0.8

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_numbers(self, "a probability, from 0 to 1", "threshold")

    def apply(self, value: Generation, /) -> Verdict:
        if not value.tokens:
            raise ModelRejected(
                "The reply has no log-probabilities to judge it by. Take a model with the capability 'logprobs', and "
                "ask it with logprobs=True."
            )
        lowest_logprob = math.log(self.threshold) if self.threshold else -math.inf
        return Verdict(all(lowest_logprob <= token.logprob <= 0 for token in value.tokens), "confident")


@dataclass(frozen=True)
class Classified(Operator[Chain, Verdict]):
    """Stop where a classifier gives the question and its chain at least a score.

    It reads the question and as many of the newest pairs as there is room for, and drops the oldest. A score
    that is NaN or infinite does not stop, nor does a classifier that cannot be asked; either is counted.

    Args:
        classifier: a scorer of (question, chain) that was trained for it, here or on a server.
        threshold: the least score that stops.
        characters: of question and chain that are read; some 2,000 are 512 tokens of English.

    Raises:
        WiringError: for a threshold that is not a number.

    Source: Yeom et al., "Chain of retrieval with an external sufficiency classifier", 2025.

    >>> from spolia import Query, RerankModel
    >>> from spolia.testing import OpenAIServer
    >>> chain = Chain(Query("Who employed Olsen?"), (("Who is Olsen?", "An engineer whom Nokia employed."),))
    >>> with OpenAIServer() as server:  # which scores by the words that question and chain share
    ...     judge = Classified(RerankModel("any", server.url), threshold=0.25)
    ...     judge(chain), judge.but(threshold=0.9)(chain)
    (Verdict(stop=True, reason='sufficient'), Verdict(stop=False, reason='sufficient'))
    """

    classifier: Scorer
    threshold: float = 0.5
    characters: int = 2_000

    version: ClassVar[int] = 2
    cached: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_counts(self, "characters")
        refuse_numbers(self, "a number", "threshold")

    def reads(self, value: Chain, /) -> object:
        return value.query.question, value.format_text(self.characters)

    def apply(self, value: Chain, /) -> Verdict:
        chain = [value.format_text(self.characters)]
        scores = ask_judge(lambda: self.classifier.scores(value.query.question, chain), "the chain goes on")
        if scores is None:
            return Verdict(False, "sufficient")
        (score,) = scores
        if not math.isfinite(score):
            degrade(f"{self.classifier.name} gave the score {score}; the chain goes on.")
            return Verdict(False, "sufficient")
        return Verdict(score >= self.threshold, "sufficient")

    def calls(self, rows: int | None = None, /) -> int | None:
        return 0


ENOUGH: Role[str] = Role(
    "spolia:orchestration/prompts/sufficient.txt", OneOf(("sufficient", "insufficient")), default="insufficient"
)


@dataclass(frozen=True)
class Sufficient(Operator[Ranking, Verdict]):
    """Ask a language model whether the passages are enough to answer the question.

    Without passages it asks no model: they are insufficient. A reply that is none of the labels is sent back once;
    then the role's default holds (`insufficient`), and the result is counted as degraded.

    Args:
        llm: the language model.
        passages: how many of the best are shown.
        characters: of each passage that are shown, at most.
        role: the prompt file, with the places `{{question}}` and `{{passages}}`; labels, of which `sufficient` stops.
        max_tokens: longest reply.

    Source: Gao et al., "Modular RAG", 2024 (arXiv 2407.21059), LLM judge.

    >>> from spolia import Hit, Node, Query, ScriptedModel
    >>> found = Ranking(Query("Who employed Olsen?"), (Hit(Node("a", "Olsen was at Nokia."), 1.0),))
    >>> Sufficient(ScriptedModel(("Verdict: sufficient.",)))(found)
    Verdict(stop=True, reason='sufficient')
    """

    llm: LanguageModel
    passages: int = 10
    characters: int = 2_000
    role: Role[str] = ENOUGH
    max_tokens: int = 256

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_counts(self, "passages", "characters", "max_tokens")
        # Other parsers do not tell what they may return, so they are trusted.
        labels = self.role.parser.options if isinstance(self.role.parser, OneOf) else ("sufficient",)
        if "sufficient" not in labels:
            raise WiringError(
                f"Sufficient stops at 'sufficient'; the role names {', '.join(labels)}. Write that label."
            )

    def apply(self, value: Ranking, /) -> Verdict:
        if not value.hits:
            return Verdict(False, "sufficient")
        passages = tuple(node.shown_text[: self.characters] for node in value.cut(self.passages).nodes)
        label = self._ask(Brief.from_texts(value.query.sample, question=value.query.question, passages=passages))
        return Verdict(label == "sufficient", "sufficient")

    @property
    def _ask(self) -> Ask:
        return Ask(self.llm, self.role, self.max_tokens)

    def calls(self, rows: int | None = None, /) -> int | None:
        return self._ask.calls()
