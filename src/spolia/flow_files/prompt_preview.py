"""Previews of the messages that a flow, or one operator, would send to its language models."""

import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import MISSING, dataclass, fields
from typing import Any, get_type_hints

from spolia.core.operator import Operator
from spolia.core.replacement import replace_parts
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
class PreviewedCall(Value):
    """A call that would go to a model, with the number of the draw where several are drawn."""

    model: str
    messages: tuple[Message, ...]
    max_tokens: int
    sample: int = 0


class CallRecorder:
    """A recorder of model calls that replies in their place; a call that gets no reply stops there."""

    def __init__(self, replies: Sequence[str] = ()) -> None:
        self.calls: list[PreviewedCall] = []
        self._replies = list(replies)
        self._lock = threading.Lock()  # arms of a branch ask at the same time

    def record_call(self, model: LanguageModel, prompt: Prompt, max_tokens: int) -> str | None:
        """Record a prompt, and return the next reply; None if none is left."""
        with self._lock:
            self.calls.append(PreviewedCall(model.name, prompt.messages, max_tokens, prompt.sample))
            return self._replies.pop(0) if self._replies else None

    def replace_model(self, value: Any) -> Any:
        """Replace a language model by this recorder; return anything else as it is."""
        return Silent(value, self.record_call) if isinstance(value, LanguageModel) else value


def preview_calls(flow: Operator[Any, Any], value: Any, replies: Sequence[str] = ()) -> list[PreviewedCall]:
    """Return the calls that a flow would make for a value if its first calls got these replies, the next one none."""
    recorder = CallRecorder(replies)
    silent_flow = replace_parts(flow, recorder.replace_model)
    with suppress(Unanswered):
        result = silent_flow(value)
        if isinstance(result, Failure) and not isinstance(result.error, Unanswered):
            raise result.raised()
    return recorder.calls


def build_case(flow: Operator[Any, Any], question: str = "", documents: dict[str, str] | None = None) -> Any:
    """Build the input of a flow or an operator from a question and documents; WiringError if they are not enough."""
    document_list = [Document(name, text, uri=name) for name, text in (documents or {}).items()]
    if fits(flow.takes(), Part, {}):
        if not document_list:
            raise WiringError(f"{type(flow).__name__} is asked of a text. Write --document FILE.")
        return Part(document_node(document_list[0]), document_list[0])
    if not question:
        raise WiringError(
            f"{type(flow).__name__} is asked with a question. Write --question TEXT, or --data and --line."
        )
    if fits(flow.takes(), Query, {}):
        return Query(question)
    if fits(flow.takes(), Ranking, {}):
        if not document_list:
            raise WiringError(f"{type(flow).__name__} is asked of passages. Write --document FILE, once for each.")
        return Ranking(
            Query(question),
            tuple(Hit(document_node(document), -float(rank)) for rank, document in enumerate(document_list)),
        )
    raise WiringError(
        f"{type(flow).__name__} takes {name_of(flow.takes())}, which is not made of a question and documents. "
        "Write a flow that has it as a step."
    )


def build_with_defaults(cls: type[Operator[Any, Any]]) -> Operator[Any, Any]:
    """Build an operator with its defaults and a stand-in model; WiringError if it needs more."""
    models = (LanguageModel, StatesLogprobs, ScoresContinuations, ForetellsTokens)
    stand_in = dict.fromkeys(models, ANY_MODEL) | {Embedder: MiniLM()}
    hints, declared = get_type_hints(cls), fields(cls)  # type: ignore[arg-type]
    needed = [f.name for f in declared if f.init and f.default is MISSING and f.default_factory is MISSING]
    if missing := [name for name in needed if hints[name] not in stand_in]:
        raise WiringError(
            f"{cls.__name__} needs {', '.join(missing)}, which has no default. Write a flow file with it, and: "
            "spolia prompts show FILE."
        )
    return cls.from_fields({name: stand_in[hints[name]] for name in needed})
