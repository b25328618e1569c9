"""Asking a language model in one role, as an operator: the one way in which operators put texts before a model.

A run then caches each question, limits it and counts what it takes, and what a document says stays inside the place
that the prompt file has for it (`spolia.models.template`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from spolia.errors import ModelRejected, ModelUnavailable
from spolia.models.protocols import CHAT, LanguageModel
from spolia.models.role import Role
from spolia.operator import Operator
from spolia.surrounding import degrade
from spolia.types import Failure, Prompt, Value


@dataclass(frozen=True)
class Brief(Value):
    """What a model is shown.

    Args:
        places: by place of the prompt file: a text, or several texts.
        sample: number of the random draw.
    """

    places: tuple[tuple[str, str | tuple[str, ...]], ...]
    sample: int = 0

    @classmethod
    def of(cls, sample: int = 0, **places: str | tuple[str, ...]) -> Brief:
        """The brief with these texts."""
        return cls(tuple(places.items()), sample)


@dataclass(frozen=True)
class Ask(Operator[Brief, Any]):
    """Ask a language model in one role: what the role's parser reads in the reply.

    Args:
        llm: the language model.
        role: the prompt file, the reader of its reply, what holds when it cannot be read.
        max_tokens: longest reply.
        temperature: 0 for the most probable reply; above, samples of a brief differ.

    Raises:
        ModelError: when it runs, for a prompt file that cannot be read or has a place that the brief does not fill.
        ModelUnavailable: when the server cannot be reached.
        ModelRejected: when the model refuses.

    >>> from spolia.evaluation.measures.judged.correctness import CORRECT
    >>> from spolia.models.scripted import ScriptedModel
    >>> ask = Ask(ScriptedModel(("Yes.",)), CORRECT)
    >>> ask(Brief.of(question="Who employed him?", answers=("Nokia",), answer="Nokia, in Salo."))
    True
    """

    llm: LanguageModel
    role: Role[Any]
    max_tokens: int = 1024
    temperature: float = 0.0

    cached: ClassVar[bool] = True
    waits: ClassVar[bool] = True
    needs: ClassVar[Mapping[str, frozenset[str]]] = {"llm": frozenset((CHAT,))}

    def apply(self, value: Brief, /) -> Any:
        return self.role.ask(
            self.llm,
            dict(value.places),
            sample=self._sample(value),
            max_tokens=self.max_tokens,
            temperature=self.temperature,
        )

    def reads(self, value: Brief, /) -> Prompt:
        return self.role.prompt_for(dict(value.places), sample=self._sample(value))

    def _sample(self, value: Brief) -> int:
        return value.sample if self.temperature > 0 else 0

    def calls(self, rows: int | None = None, /) -> int | None:
        return self.role.calls


def replies(ask: Operator[Brief, Any], briefs: Sequence[Brief]) -> list[Any]:
    """What the model says to each brief, asked at the same time; a `Failure` where it could not be asked.

    That is recorded, and what is made of the others is counted as degraded. Any other error is a mistake of the caller
    or a spent budget, and is raised.
    """
    found = ask.batch(briefs)
    for result in found:
        if isinstance(result, Failure):
            if not isinstance(result.error, (ModelUnavailable, ModelRejected)):
                raise result.raised()
            degrade(f"A question to the model failed and is passed over: {result.message}")
    return list(found)
