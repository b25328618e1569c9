"""What is decided on: how well arms fit, which steps answer a question, what a chain of questions has found."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from spolia.errors import QueryError
from spolia.types.rankings import Query
from spolia.types.running import State
from spolia.types.value import Value, kept

_ANSWER_OF = re.compile(r"#(\d{1,3})(?!\d)")


@dataclass(frozen=True)
class ArmScores(Value):
    """How well each arm of a `Route` fits, in the order in which they are declared; a higher score is better."""

    scores: tuple[tuple[str, float], ...]

    @classmethod
    def of(cls, scores: Mapping[str, float]) -> ArmScores:
        return cls(tuple((arm, float(score)) for arm, score in scores.items()))

    @property
    def by_arm(self) -> dict[str, float]:
        return dict(self.scores)


@dataclass(frozen=True)
class Plan(Value):
    """A question, and the steps by which it is answered; `#1` in a step is the answer of the first one.

    Args:
        query: the question.
        steps: sub-questions, each after those that it needs; none where the question needs no steps.

    Raises:
        QueryError: a step needs one that is not before it.

    >>> plan = Plan(Query("Where is the employer of Olsen?"), ("Who employs Olsen?", "Where is #1?"))
    >>> [plan.needs(step) for step in plan.steps], plan.filled("Where is #1?", {1: "Nokia"})
    ([(), (1,)], 'Where is Nokia?')
    """

    query: Query
    steps: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for number, step in enumerate(self.steps, 1):
            if wrong := [needed for needed in self.needs(step) if not 1 <= needed < number]:
                raise QueryError(
                    f"Step {number} needs #{wrong[0]}, which is not before it: {step!r:.80}. Write steps in an order "
                    "in which they can be taken."
                )

    def needs(self, step: str) -> tuple[int, ...]:
        """Numbers of the steps whose answers a step has places for."""
        return tuple(dict.fromkeys(int(found) for found in _ANSWER_OF.findall(step)))

    def filled(self, step: str, answers: Mapping[int, str]) -> str:
        """The step with the answers in their places; they are never looked at again."""
        return _ANSWER_OF.sub(lambda found: answers.get(int(found[1]), found[0]), step)

    @kept
    def levels(self) -> tuple[tuple[int, ...], ...]:
        """Numbers of steps that can be taken together, one level after the other."""
        level: dict[int, int] = {}
        for number, step in enumerate(self.steps, 1):
            level[number] = 1 + max((level[needed] for needed in self.needs(step)), default=-1)
        return tuple(
            tuple(number for number in level if level[number] == depth)
            for depth in range(max(level.values(), default=-1) + 1)
        )


@dataclass(frozen=True)
class Chain(State):
    """A question, and the sub-questions that were asked for it with what was found, oldest first."""

    query: Query
    pairs: tuple[tuple[str, str], ...] = ()

    def written(self, characters: int) -> str:
        """The question and its newest pairs, as many as there is room for, in the order in which they were asked.

        >>> chain = Chain(Query("Where?"), (("Who is it?", "Olsen."), ("Whose?", "Nokia's.")))
        >>> print(chain.written(40))
        Question: Where?
        Q: Whose?
        A: Nokia's.
        """
        lines = [f"Question: {self.query.question}"]
        room = characters - len(lines[0])
        newest: list[str] = []
        for text in self._newest():
            room -= len(text) + 1
            if room < 0:
                break
            newest.append(text)
        return "\n".join(lines + newest[::-1])

    def _newest(self) -> Iterator[str]:
        for question, answer in reversed(self.pairs):
            yield f"Q: {question}\nA: {answer}"
