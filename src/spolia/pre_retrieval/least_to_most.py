"""The steps of a plan as queries, with the answers that they need in them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from spolia.bounds import times
from spolia.errors import BudgetSpent
from spolia.operator import Operator
from spolia.surrounding import degrade, note
from spolia.types import Answer, Failure, Plan, Queries, Query
from spolia.wiring import refuse_counts

_MARKER = re.compile(r"\s*\[\d+\]")
_LONGEST = 200
"""Characters of an answer that stand in a later step."""


@dataclass(frozen=True)
class LeastToMost(Operator[Plan, Queries]):
    """The question, and the steps of its plan as queries: each with the answers of those that it needs.

    Steps that need no other one are ready at once; steps whose answer others need are answered, those of one level
    together. So `Decompose(llm) >> LeastToMost(BM25(chunks) >> Reader(llm)) >> Each(BM25(chunks)) >>
    ReciprocalRankFusion()` finds what all steps need. A step whose answer fails or is an abstention leaves those that
    need it out, which is counted: no `#1` is ever searched for.

    Args:
        answer: answers a step, as a question of its own.
        steps: taken at most; further ones are left out, and recorded.

    Source: Zhou et al., "Least-to-most prompting enables complex reasoning in large language models", ICLR 2023.

    >>> from spolia.function import step
    >>> @step
    ... def known(query: Query) -> Answer:
    ...     return Answer("Nokia [1].")
    >>> plan = Plan(Query("Where is Olsen's employer?"), ("Who employs Olsen?", "Where is #1?"))
    >>> [query.text for query in LeastToMost(known)(plan)]
    ["Where is Olsen's employer?", 'Who employs Olsen?', 'Where is Nokia?']
    """

    answer: Operator[Query, Answer]
    steps: int = 8

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_counts(self, "steps")

    def apply(self, value: Plan, /) -> Queries:
        if len(value.steps) > self.steps:
            note(f"The plan has {len(value.steps)} steps; the first {self.steps} are taken.")
        plan = value.but(steps=value.steps[: self.steps])
        needed = {number for step in plan.steps for number in plan.needs(step)}
        texts: dict[int, str] = {}
        answers: dict[int, str] = {}
        for level in plan.levels:
            texts |= self._ready(plan, level, answers)
            asked = [number for number in level if number in texts and number in needed]
            results = self.answer.batch([plan.query.asking(texts[number]) for number in asked])
            for number, result in zip(asked, results, strict=True):
                if (said := _said(result, texts[number])) is not None:
                    answers[number] = said
        return (plan.query, *(plan.query.rewritten(texts[number]) for number in sorted(texts)))

    def _ready(self, plan: Plan, level: tuple[int, ...], answers: dict[int, str]) -> dict[int, str]:
        """The steps of a level that have the answers that they need, with these in them."""
        found = {}
        for number in level:
            step = plan.steps[number - 1]
            if lacking := [needed for needed in plan.needs(step) if needed not in answers]:
                degrade(f"Step {number} is left out: it needs the answer of step {lacking[0]}, which has none.")
            else:
                found[number] = plan.filled(step, answers)
        return found

    def calls(self, rows: int | None = None, /) -> int | None:
        return times(self.steps, self.answer.calls())

    def fanout(self, rows: int | None = None, /) -> int | None:
        return 1 + self.steps


def _said(result: Answer | Failure, step: str) -> str | None:
    """An answer on one line, without markers; None where there is none."""
    if isinstance(result, Failure):
        if isinstance(result.error, BudgetSpent):
            raise result.error
        degrade(f"A step could not be answered: {step!r:.80}: {result.kind}: {result.message}")
        return None
    text = " ".join(_MARKER.sub("", result.text).split()).rstrip(".。")[:_LONGEST]
    return None if result.abstained or not text else text
