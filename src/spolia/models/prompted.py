"""Operators that ask with a prompt file of their own, without a parser: what they do depends on what the file says."""

from __future__ import annotations

from dataclasses import dataclass

from spolia.models import template
from spolia.types import Addressed, Value, kept


@dataclass(frozen=True)
class PromptFile(Value):
    """A prompt file, as something outside the flow whose content may change.

    Args:
        place: of the file; see `spolia.models.template`.
        language: the only one that it is asked in; empty for that of what is asked.
    """

    place: str
    language: str = ""

    @property
    def scoped(self) -> bool:
        return False

    def fingerprint(self) -> str:
        """Changes with what the file says, and those beside it in other languages."""
        return "|".join(found.digest.hex() for found in template.every(self.place, self.language).values())


class Prompted:
    """Mixed into an operator whose field `prompt` names a file: the file is one of its resources, as a `Role` is."""

    prompt: str

    @property
    def prompt_file(self) -> str:
        """Where its prompt file is."""
        return self.prompt

    @kept
    def resources(self) -> tuple[Addressed, ...]:
        """Stores, models and its prompt file."""
        own = PromptFile(self.prompt_file, getattr(self, "language", ""))
        return (*super().resources, own)  # type: ignore[misc]
