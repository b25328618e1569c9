"""Answering again until a model finds that the answer can stand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from spolia.bounds import times, total
from spolia.combinators import Identity
from spolia.generation.passages import fitting, numbered
from spolia.models.ask import Ask, Brief
from spolia.models.parsers import OneOf
from spolia.models.protocols import CHAT, LanguageModel
from spolia.models.role import Role
from spolia.operator import Operator
from spolia.types import Answer, Query, Ranking
from spolia.wiring import refuse_counts

RIGHT, WRONG_PASSAGES, WRONG_ANSWER = "right", "wrong passages", "wrong answer"
GROUNDED: Role[str] = Role(
    "spolia:generation/prompts/grounded.txt", OneOf((RIGHT, WRONG_PASSAGES, WRONG_ANSWER)), default=WRONG_ANSWER
)


@dataclass(frozen=True)
class VerifyGrounding(Operator[Query, Answer]):
    """Search and answer; where a model finds the passages wrong, search again, where the answer, answer again.

    Each round has a verdict: right, wrong passages, or wrong answer. An answer that abstains, and nothing found, count
    as wrong passages without asking. After `max_rounds` answers the last one is given with the stop reason `cap`: it
    was not verified. Round n draws sample n of the query, so give the reader a temperature above 0, or each reply is
    the same.

    Args:
        search: finds passages.
        read: answers from them.
        llm: judges.
        rewrite: what is searched after wrong passages; as it was by default, which finds the same again.
        role: prompt with the places `{{passages}}`, `{{question}}` and `{{answer}}`, reader of the verdict, what holds
            when it cannot be read.
        max_rounds: answers at most.
        max_passages: passages that the judge is shown.
        max_characters: of all of them together.

    Source: Baek et al., "Knowledge-augmented language model verification" (KALMV), EMNLP 2023.

    >>> from spolia.function import step
    >>> from spolia.generation.reader import Reader
    >>> from spolia.models.scripted import ScriptedModel
    >>> from spolia.types import Hit, Node
    >>> @step
    ... def search(query: Query) -> Ranking:
    ...     return Ranking(query, (Hit(Node("n", "Olsen worked for Nokia."), 1.0),))
    >>> verdicts = (("<answer>.*Sony", "wrong answer"), ("<answer>", "right"))
    >>> model = ScriptedModel((*verdicts, ("", "Sony [1]", "Nokia [1]")))
    >>> VerifyGrounding(search, Reader(model, temperature=0.7), model)(Query("Who employed Olsen?")).text
    'Nokia [1]'
    """

    search: Operator[Query, Ranking]
    read: Operator[Ranking, Answer]
    llm: LanguageModel
    rewrite: Operator[Query, Query] = field(default_factory=Identity[Query])
    role: Role[str] = GROUNDED
    max_rounds: int = 3
    max_passages: int = 5
    max_characters: int = 20_000

    waits: ClassVar[bool] = True
    needs: ClassVar[Mapping[str, frozenset[str]]] = {"llm": frozenset((CHAT,))}

    def __post_init__(self) -> None:
        refuse_counts(self, "max_rounds", "max_passages", "max_characters")

    def apply(self, value: Query, /) -> Answer:
        found = self.search(value)
        for number in range(self.max_rounds):
            answer = self.read(found.but(query=_drawn(found.query, value.sample + number)))
            verdict = self._verdict(found, answer)
            if verdict == RIGHT:
                return answer
            if verdict == WRONG_PASSAGES and number + 1 < self.max_rounds:
                found = self.search(self.rewrite(_drawn(value, value.sample + number + 1)))
        return answer if answer.abstained else answer.but(stop_reason="cap")

    def calls(self, rows: int | None = None, /) -> int | None:
        of_a_round = total((self.search.calls(), self.read.calls(), self.role.calls))
        return total((times(self.max_rounds, of_a_round), times(self.max_rounds - 1, self.rewrite.calls())))

    def _verdict(self, found: Ranking, answer: Answer) -> str:
        shown = fitting(found, self.max_passages, self.max_characters)
        if answer.abstained or not shown.hits:
            return WRONG_PASSAGES
        passages = tuple(numbered(at, node, self.max_characters) for at, node in enumerate(shown.nodes, 1))
        brief = Brief.of(question=found.query.question, answer=answer.text, passages=passages)
        said: str = Ask(self.llm, self.role, 64)(brief)
        return said


def _drawn(query: Query, sample: int) -> Query:
    return query.but(sample=sample)
