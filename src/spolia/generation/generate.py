"""A prompt is replied to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from spolia.models.protocols import CHAT, LanguageModel
from spolia.operator import Operator
from spolia.surrounding import emit
from spolia.types import Generation, Prompt
from spolia.wiring import refuse_counts


@dataclass(frozen=True)
class Generate(Operator[Prompt, Generation]):
    """What a language model replies to a prompt; it streams. `Reader` also resolves what the reply cites.

    Args:
        llm: the language model.
        max_tokens: longest reply; one that is cut says `finish_reason="length"`.
        temperature: 0 for the most probable reply; above, samples of a prompt differ.
        stop: the reply ends before the first of these.
        logprobs: also the log-probability of every token, which needs a model with the capability `logprobs`.

    Raises:
        ModelUnavailable: when the server cannot be reached.
        ModelRejected: when the model refuses, replies with nothing, or states no log-probabilities.

    >>> from spolia.models.scripted import ScriptedModel
    >>> from spolia.types import Message
    >>> Generate(ScriptedModel(("Paris.",)))(Prompt((Message("user", "The capital?"),))).text
    'Paris.'
    """

    llm: LanguageModel
    max_tokens: int = 512
    temperature: float = 0.0
    stop: tuple[str, ...] = ()
    logprobs: bool = False

    cached: ClassVar[bool] = True
    waits: ClassVar[bool] = True
    needs: ClassVar[Mapping[str, frozenset[str]]] = {"llm": frozenset((CHAT,))}

    def __post_init__(self) -> None:
        refuse_counts(self, "max_tokens")

    def apply(self, value: Prompt, /) -> Generation:
        return self.llm.generate(
            value,
            max_tokens=self.max_tokens,
            temperature=self.temperature,
            stop=self.stop,
            logprobs=self.logprobs,
            on_text=emit,
        )

    def reads(self, value: Prompt, /) -> object:
        return value if self.temperature > 0 else value.messages
