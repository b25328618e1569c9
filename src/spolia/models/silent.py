"""A model that is asked and says nothing, so that it can be seen what it would be asked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn, TypeAlias

from spolia.errors import SpoliaError
from spolia.models.protocols import Kind
from spolia.types import Generation, Prompt, Value

Told: TypeAlias = Callable[[Any, Prompt, int], str | None]
"""Is given the model, a prompt and the longest reply in tokens; gives a reply, or None for none."""


class Unanswered(SpoliaError):
    """A model that is not to be asked was asked."""


@dataclass(frozen=True)
class Silent(Value):
    """Stands for a model and is never it: what it is asked is told, and it does not reply. In all else it is the model.

    Args:
        model: for which it stands.
        told: learns of each prompt before it is refused, and may reply in the model's place.
    """

    model: Any
    told: Told = field(compare=False, repr=False)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name in ("model", "told"):
            raise AttributeError(name)
        return getattr(self.model, name)

    def generate(self, prompt: Prompt, *, max_tokens: int = 512, **more: Any) -> Generation:
        reply = self.told(self.model, prompt, max_tokens)
        return self._unasked() if reply is None else Generation(reply, "stop")

    def structured(self, prompt: Prompt, schema: object, *, max_tokens: int = 512, **more: Any) -> Generation:
        return self.generate(prompt, max_tokens=max_tokens)

    def continuation(self, prompt: Prompt, text: str) -> NoReturn:
        self.told(self.model, prompt, 0)
        self._unasked()

    def next_tokens(self, prompt: Prompt, *, top: int = 5) -> NoReturn:
        self.told(self.model, prompt, 1)
        self._unasked()

    def embed(self, texts: Sequence[str], *, kind: Kind) -> NoReturn:
        self._unasked()

    embed_sparse = embed

    def _unasked(self) -> NoReturn:
        raise Unanswered(f"{self.model.name} is not asked, since nothing is to be done yet.")
