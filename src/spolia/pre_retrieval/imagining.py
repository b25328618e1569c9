"""Passages that would answer a question, as a language model imagines them."""

from __future__ import annotations

from typing import ClassVar

from spolia.bounds import times
from spolia.errors import WiringError
from spolia.models.role import Role
from spolia.pre_retrieval.asking import NOTHING, AsksOfQuery
from spolia.pre_retrieval.parsers import OneText
from spolia.types import Failure, Query
from spolia.wiring import refuse_counts

IMAGINED: Role[str] = Role("spolia:pre_retrieval/prompts/hyde.txt", OneText(), default=NOTHING)


class Imagines(AsksOfQuery[Query]):
    """Base of what searches by passages that a model imagines instead of finding them.

    Fields:
        passages: draws; the same prompt each time, so that more than one needs a temperature above 0.
    """

    passages: int
    least: ClassVar[int] = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_counts(self, "passages", least=self.least)
        if self.passages > 1 and not self.temperature > 0:
            raise WiringError(
                f"{self.short}: {self.passages} passages at temperature {self.temperature} are one passage as many "
                "times. Write temperature=0.7, or passages=1."
            )

    def imagined(self, query: Query) -> tuple[str, ...]:
        """The passages that could be read, in the order of the draws."""
        brief = self.brief(query)
        first = query.sample * self.passages
        drawn = self.ask.batch([brief.but(sample=first + number) for number in range(self.passages)])
        for passage in drawn:
            if isinstance(passage, Failure):
                raise passage.raised()
        return tuple(filter(None, drawn))

    def calls(self, rows: int | None = None, /) -> int | None:
        return times(self.passages, self.ask.calls())
