"""What the transforms that ask a language model about one text have in common."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Generic, TypeVar

from spolia.errors import ModelError, WiringError
from spolia.models.delimiters import Setting
from spolia.models.protocols import CHAT, LanguageModel
from spolia.models.role import Role
from spolia.models.shortening import shortened
from spolia.models.template import Filling
from spolia.operator import Operator
from spolia.stores.definition import Part, Piece, Pieces
from spolia.surrounding import note

T = TypeVar("T")
CHARACTERS = 24_000
"""Of a text that are shown to a model, by default: some 6,000 tokens of English, 16,000 of Chinese."""


class Asking(Operator[Part, Pieces], Generic[T]):
    """Base of the transforms that ask a language model one thing about the text of a node.

    A subclass is a frozen dataclass with these fields, and writes `pieces`, `places` and `fanout`. A blank text makes
    no nodes, and no call. A text that is too long is shortened in its middle, which the prompt shows and the trace
    notes. What is kept depends on prompt and text alone, not on ids, so that a moved or copied document costs nothing.
    A reply that cannot be read is sent back once (`Role`); then the result is counted as degraded.

    Fields:
        llm: the language model.
        role: prompt file, reader of the reply, what holds when it cannot be read. The file has a place `{{text}}`, may
            have one `{{heading}}` (title and headings above the text), and those of the class.
        characters: of a text that are shown at most.
        max_tokens: longest reply.

    Raises:
        ModelError: when it runs, for a prompt file that cannot be read, or lacks `{{text}}`.
        ModelUnavailable: when the server cannot be reached.
        ModelRejected: when the model refuses.
    """

    llm: LanguageModel
    role: Role[T]
    characters: int
    max_tokens: int

    cached: ClassVar[bool] = True
    waits: ClassVar[bool] = True
    needs: ClassVar[Mapping[str, frozenset[str]]] = {"llm": frozenset((CHAT,))}
    counts: ClassVar[tuple[str, ...]] = ("characters", "max_tokens")

    def __post_init__(self) -> None:
        for name in self.counts:
            if getattr(self, name) < 1:
                raise WiringError(f"{self.short}: {name} is {getattr(self, name)}. Write a number of at least 1.")

    @abstractmethod
    def pieces(self, reply: T, part: Part, /) -> Iterable[Piece]:
        """The pieces that a reply stands for."""

    @abstractmethod
    def places(self) -> Mapping[str, str]:
        """What stands at the prompt's places beside text and heading."""

    def apply(self, value: Part, /) -> Pieces:
        if not value.node.text.strip():
            return ()
        if len(value.node.text) > self.characters:
            place = f"node {value.node.id} of {value.document.uri or value.document.id}"
            note(
                f"The model is shown {self.characters} of the {len(value.node.text)} characters of {place}. "
                "Write a larger characters, or a parent of smaller nodes."
            )
        asked = self._asked(value)
        return tuple(self.pieces(self.role.ask(self.llm, asked, max_tokens=self.max_tokens), value))

    def reads(self, value: Part, /) -> object:
        return (self.role.prompt_for(self._asked(value)), value.node.text)

    def calls(self, rows: int | None = None, /) -> int | None:
        return self.role.calls

    def _asked(self, part: Part) -> Filling:
        check_places(self.role, "text")
        text = shortened(part.node.text, self.characters)
        settings = {name: Setting(said) for name, said in self.places().items()}
        return {"text": text, "heading": part.node.context or part.document.title, **settings}


def check_places(role: Role[Any], *names: str) -> None:
    """Refuse a prompt file that would not show the model what it is asked about."""
    if missing := [name for name in names if name not in role.places]:
        raise ModelError(
            f"The prompt {role.prompt!r} has no place {{{{{missing[0]}}}}}. Write it where that is to stand."
        )
