"""What tests of pre-retrieval ask, and what they look at."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest

from spolia.models.protocols import CHAT, Capabilities
from spolia.types import Generation, Prompt, Value


@dataclass(frozen=True)
class Recorded(Value):
    """A model that replies by a function of the prompt's text, and keeps what it was sent."""

    reply: Callable[[str], str] = field(compare=False)
    capabilities: frozenset[str] = Capabilities((CHAT,))
    name: str = "recorded"
    sent: list[Prompt] = field(default_factory=list, compare=False, repr=False)

    @property
    def scoped(self) -> bool:
        return False

    def fingerprint(self) -> None:
        return None

    def generate(
        self,
        prompt: Prompt,
        *,
        max_tokens: int = 512,
        temperature: float = 0.0,
        stop: Sequence[str] = (),
        logprobs: bool = False,
        on_text: Callable[[str], None] | None = None,
    ) -> Generation:
        self.sent.append(prompt)
        return Generation(self.reply(prompt.text))


def tags(text: str) -> list[str]:
    """The opening and closing tags of a text, in lower case."""
    return [tag.lower() for tag in re.findall(r"</?\w+", text)]


@contextmanager
def degraded(module: str) -> Iterator[list[str]]:
    """What is counted as degraded by a module, while inside."""
    reasons: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(f"{module}.degrade", lambda reason, **how: reasons.append(reason))
        yield reasons
