"""What a flow, or one operator, would send to its language models: the messages themselves, without sending them."""

import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import MISSING, dataclass, fields
from typing import Any, get_type_hints

from spolia.core.operator import Operator
from spolia.core.replacement import replaced
from spolia.core.type_compatibility import fits, name_of
from spolia.errors import WiringError
from spolia.models.onnx.minilm import MiniLM
from spolia.models.prompting.stand_in_models import ScriptedModel, Silent, Unanswered
from spolia.models.protocols import (
    CHAT,
    LOGPROBS,
    NEXT_TOKENS,
    SCORES,
    STREAM,
    Capabilities,
    Embedder,
    ForetellsTokens,
    LanguageModel,
    ScoresContinuations,
    StatesLogprobs,
)
from spolia.stores.definition import Part, document_node
from spolia.types import Document, Failure, Hit, Message, Prompt, Query, Ranking, Value

ANY_MODEL = ScriptedModel(("",), Capabilities((CHAT, STREAM, LOGPROBS, SCORES, NEXT_TOKENS)), name="any model")


@dataclass(frozen=True)
class Sent(Value):
    """What one call would send to a model, with the number of the draw where several are drawn."""

    model: str
    messages: tuple[Message, ...]
    max_tokens: int
    sample: int = 0


class Desk:
    """Takes down what models are asked, and replies in turn in their place; a call that gets no reply stops there."""

    def __init__(self, replies: Sequence[str] = ()) -> None:
        self.sent: list[Sent] = []
        self._replies = list(replies)
        self._lock = threading.Lock()

    def take(self, model: LanguageModel, prompt: Prompt, max_tokens: int) -> str | None:
        """A prompt, and the reply to it if there is one left."""
        with self._lock:
            self.sent.append(Sent(model.name, prompt.messages, max_tokens, prompt.sample))
            return self._replies.pop(0) if self._replies else None

    def instead(self, value: Any) -> Any:
        """This desk, for a language model; anything else stays."""
        return Silent(value, self.take) if isinstance(value, LanguageModel) else value


def sent_for(flow: Operator[Any, Any], value: Any, replies: Sequence[str] = ()) -> list[Sent]:
    """What a flow would send for a value, if its first calls got these replies and the next one none."""
    desk = Desk(replies)
    silent = replaced(flow, desk.instead)
    with suppress(Unanswered):
        found = silent(value)
        if isinstance(found, Failure) and not isinstance(found.error, Unanswered):
            raise found.raised()
    return desk.sent


def case_for(flow: Operator[Any, Any], question: str = "", documents: dict[str, str] | None = None) -> Any:
    """What a flow or an operator takes, made of a question and documents; WiringError if they are not enough."""
    held = [Document(name, text, uri=name) for name, text in (documents or {}).items()]
    if fits(flow.takes(), Part, {}):
        if not held:
            raise WiringError(f"{type(flow).__name__} is asked of a text. Write --document FILE.")
        return Part(document_node(held[0]), held[0])
    if not question:
        raise WiringError(
            f"{type(flow).__name__} is asked with a question. Write --question TEXT, or --data and --line."
        )
    if fits(flow.takes(), Query, {}):
        return Query(question)
    if fits(flow.takes(), Ranking, {}):
        if not held:
            raise WiringError(f"{type(flow).__name__} is asked of passages. Write --document FILE, once for each.")
        return Ranking(Query(question), tuple(Hit(document_node(one), -float(at)) for at, one in enumerate(held)))
    raise WiringError(
        f"{type(flow).__name__} takes {name_of(flow.takes())}, which is not made of a question and documents. "
        "Write a flow that has it as a step."
    )


def alone(cls: type[Operator[Any, Any]]) -> Operator[Any, Any]:
    """An operator by itself, with its defaults and a model that is never asked; WiringError if it needs more."""
    models = (LanguageModel, StatesLogprobs, ScoresContinuations, ForetellsTokens)
    stand_in = dict.fromkeys(models, ANY_MODEL) | {Embedder: MiniLM()}
    hints, declared = get_type_hints(cls), fields(cls)  # type: ignore[arg-type]
    needed = [f.name for f in declared if f.init and f.default is MISSING and f.default_factory is MISSING]
    if missing := [name for name in needed if hints[name] not in stand_in]:
        raise WiringError(
            f"{cls.__name__} needs {', '.join(missing)}, which has no default. Write a flow file with it, and: "
            "spolia prompts show FILE."
        )
    return cls.made({name: stand_in[hints[name]] for name in needed})
