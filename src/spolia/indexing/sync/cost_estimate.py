"""What a transform would ask language models for, found out without asking: its prompts are made, and nobody replies.

Tokens are estimated as they are reserved before a call: one for three bytes of UTF-8, more than most tokenizers make,
and 8 for each message. A reply is counted with all that it may have. Steps that need a first reply to make a second
prompt are seen as far as the first.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from spolia.models.http.replies import estimated_tokens
from spolia.models.prompting.stand_in_models import Silent, Unanswered, replaced
from spolia.models.protocols import LanguageModel
from spolia.stores.definition import Choosing, Part, Piece, Splitter, Transform
from spolia.stores.groups.nodes import GroupBuild
from spolia.types import Prompt, Usage

MESSAGE_TOKENS = 8


@dataclass
class ModelUse:
    """What a group would ask models for; `usage` counts each prompt once, priced by the models that state a price."""

    parts: int = 0
    usage: Usage = field(default_factory=Usage)
    has_price: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    def add(self, model: LanguageModel, prompt: Prompt, max_tokens: int) -> None:
        """A prompt would be sent, and gets no reply."""
        sent = sum(estimated_tokens(message.content) + MESSAGE_TOKENS for message in prompt.messages)
        usage = Usage(calls=1, input_tokens=sent, output_tokens=max_tokens)
        priced: Callable[[Usage], Usage] | None = getattr(model, "priced", None)
        usage = priced(usage) if priced is not None else usage
        with self.lock:
            self.usage += usage
            self.has_price |= usage.cost_usd > 0


@dataclass(frozen=True)
class _CountingSplitter(Splitter):
    """Stands for a transform that asks models: it makes nothing, and counts what would be asked."""

    transform: Transform
    asked: ModelUse = field(compare=False)

    def pieces(self, part: Part, /) -> Iterator[Piece]:
        self.asked.parts += 1
        with suppress(Unanswered):
            self.transform(part)
        return iter(())


@dataclass(frozen=True)
class _CountingChoice(Choosing):
    """Leaves each document to what makes its pieces, which is not asked either where it would ask models."""

    transform: Transform
    asked: ModelUse = field(compare=False)

    def transform_for(self, uri: str, /) -> Transform:
        found = self.transform
        while isinstance(found, Choosing):
            found = found.transform_for(uri)
        return _CountingSplitter(replaced(found, self.silenced), self.asked) if _asks(found) else found

    def silenced(self, value: Any) -> Any:
        """What counts instead of replying, for a model."""
        return Silent(value, self.asked.add) if _is_model(value) else value


def without_models(build: GroupBuild, asked: dict[str, ModelUse]) -> GroupBuild:
    """How a group grows when no model is asked; `asked` counts by group what models would have been asked for."""
    if not asks(build):
        return build
    tally = asked.setdefault(build.group, ModelUse())
    return replace(build, transform=_CountingChoice(build.transform, tally))


def asks(build: GroupBuild) -> bool:
    """Whether a group's transform asks language models, or embeds."""
    return _asks(build.transform)


def _asks(transform: Transform) -> bool:
    return bool(transform.calls()) or any(map(_is_model, transform.resources))


def _is_model(value: object) -> bool:
    return any(hasattr(value, name) for name in ("generate", "embed", "embed_sparse"))
