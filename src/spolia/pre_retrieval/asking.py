"""What the operators that ask a language model about a query have in common."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Generic, TypeVar

from spolia.errors import ModelError
from spolia.models.ask import Ask, Brief
from spolia.models.protocols import CHAT, LanguageModel
from spolia.models.role import Role
from spolia.operator import Operator
from spolia.types import Query
from spolia.wiring import refuse_counts

Out = TypeVar("Out", covariant=True)
NOTHING = "none"
"""What a model is told to write when there is nothing to say; the default of the roles here."""


class AsksOfQuery(Operator[Query, Out], Generic[Out]):
    """Base of what asks a language model one thing about the text of a query.

    A subclass is a frozen dataclass with these fields, and writes `apply` with `self.said(query)`. The question stands
    in the user's message, between tags that it cannot close; no word of it is in the system's. A reply that cannot be
    read is sent back once (`Role`); then the query goes on as it was, and the result is counted as degraded.

    Fields:
        llm: the language model.
        role: prompt file, reader of the reply, what holds when it cannot be read. The file has a place `{{question}}`
            and may have those of the class.
        max_tokens: longest reply.
        temperature: 0 for the most probable reply; above, samples of a query differ.

    Raises:
        ModelError: when it runs, for a prompt file that cannot be read, or lacks `{{question}}`.
        ModelUnavailable: when the server cannot be reached.
        ModelRejected: when the model refuses.
    """

    llm: LanguageModel
    role: Role[Any]
    max_tokens: int
    temperature: float

    waits: ClassVar[bool] = True
    needs: ClassVar[Mapping[str, frozenset[str]]] = {"llm": frozenset((CHAT,))}
    counts: ClassVar[tuple[str, ...]] = ("max_tokens",)
    shows: ClassVar[tuple[str, ...]] = ("question",)
    """Places that no prompt of it may lack."""

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_counts(self, *self.counts)

    def said(self, query: Query, **places: str | tuple[str, ...]) -> Any:
        """What the role reads in the model's reply about the query's text.

        Args:
            places: what stands at the other places of the prompt.
        """
        return self.ask(self.brief(query, **places))

    @property
    def ask(self) -> Ask:
        """What asks the model."""
        return Ask(self.llm, self.role, self.max_tokens, self.temperature)

    def brief(self, query: Query, **places: str | tuple[str, ...]) -> Brief:
        """What the model is shown."""
        refuse_without(self.role, *self.shows)
        return Brief.of(query.sample, question=query.text, **places)

    def calls(self, rows: int | None = None, /) -> int | None:
        return self.ask.calls()


def refuse_without(role: Role[Any], *names: str) -> None:
    """Refuse a prompt file that would not show the model what it is asked about."""
    if missing := [name for name in names if name not in role.places]:
        raise ModelError(
            f"The prompt {role.prompt!r} has no place {{{{{missing[0]}}}}}. Write it where that is to stand."
        )
