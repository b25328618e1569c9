"""A language model of which it is written down how much each word surprises it, and after which words less."""

from __future__ import annotations

import re
from dataclasses import dataclass

from spolia.errors import ModelRejected
from spolia.models.prompting.stand_in_models import ScriptedModel
from spolia.models.protocols import SCORES, Capabilities
from spolia.types import Prompt, Token


@dataclass(frozen=True)
class Scorer(ScriptedModel):
    """-ln p of a word: what `nats` says of it, else `otherwise`; half of it where the prompt has a word of `hints`.

    A token is a word with the blanks before it. A text longer than `window` words does not fit.
    """

    replies: tuple[str, ...] = ()
    capabilities: frozenset[str] = Capabilities((SCORES,))
    nats: tuple[tuple[str, float], ...] = ()
    otherwise: float = 1.0
    hints: tuple[tuple[str, str], ...] = ()
    window: int = 10_000

    def continuation(self, prompt: Prompt, text: str) -> tuple[Token, ...]:
        words = re.findall(r"\s*\S+", text)
        if len(words) + len(prompt.text.split()) > self.window:
            raise ModelRejected("the text is longer than the window. Send less.")
        return tuple(Token(word, -self._nats(word.strip(" .,\n"), prompt.text)) for word in words)

    def _nats(self, word: str, before: str) -> float:
        nats = dict(self.nats).get(word, self.otherwise)
        hinted = any(hinted_word == word and re.search(rf"\b{hint}\b", before) for hinted_word, hint in self.hints)
        return nats / 2 if hinted else nats
