"""Decomposition of a question into a plan of smaller ones."""

from dataclasses import dataclass
from typing import ClassVar

from spolia.core.call_bounds import times
from spolia.core.operator import Operator
from spolia.core.run_context import degrade, note
from spolia.core.type_compatibility import refuse_counts
from spolia.errors import BudgetSpent
from spolia.models.parsers import NOTHING
from spolia.models.parsers.parser import MARKER
from spolia.models.prompting.role import Role
from spolia.models.prompting.template import Setting
from spolia.models.protocols import LanguageModel
from spolia.pre_retrieval.query_llm import QueryLLM, Steps, normalize_text
from spolia.types import Answer, Failure, Plan, Queries, Query

DECOMPOSED: Role[tuple[str, ...]] = Role("spolia:pre_retrieval/prompts/decompose.txt", Steps(), default=NOTHING)


@dataclass(frozen=True)
class Decompose(QueryLLM[Plan]):
    """The sub-questions of a question, from the least to the most: q → (q_1, …, q_n), with `#i` for the answer of q_i.

    A question that needs none, or whose steps cannot be read, has no steps. Steps need steps before them alone, so that
    no plan goes round in a circle. `LeastToMost` takes the steps.

    Args:
        steps: at most; the prompt has the number (`{{steps}}`), and the rest is left out.
        llm, role, max_tokens, temperature: as for every `QueryLLM`.

    Source: Zhou et al., "Least-to-most prompting enables complex reasoning in large language models", ICLR 2023.

    >>> from spolia.models.prompting.stand_in_models import ScriptedModel
    >>> model = ScriptedModel(("1. Who employs Olsen?\\n2. Where is #1?",))
    >>> Decompose(model)(Query("Where is the employer of Olsen?")).levels
    ((1,), (2,))
    """

    llm: LanguageModel
    steps: int = 5
    role: Role[tuple[str, ...]] = DECOMPOSED
    max_tokens: int = 512
    temperature: float = 0.0

    version: ClassVar[int] = 5  # 3: a refusal is no step; 4: steps are read whole; 5: a thought is no part of a reply
    counts: ClassVar[tuple[str, ...]] = ("steps", "max_tokens")

    def apply(self, value: Query, /) -> Plan:
        steps = self.read_reply(value, steps=Setting(self.steps))[: self.steps]
        is_same = len(steps) == 1 and normalize_text(steps[0]) == normalize_text(value.text)
        return Plan(value, () if is_same else steps)


_MAX_ANSWER_CHARACTERS = 200  # characters of an answer that stand in a later step


@dataclass(frozen=True)
class LeastToMost(Operator[Plan, Queries]):
    """The question, and the steps of its plan as queries: each with the answers that it needs.

    Steps that need no other one are ready immediately; steps whose answer others need are answered, those of one level
    together. So `Decompose(llm) >> LeastToMost(BM25(chunks) >> Reader(llm)) >> Each(BM25(chunks)) >>
    ReciprocalRankFusion()` finds what all steps need. A step whose answer fails or is an abstention leaves those that
    need it out, which is counted: no `#1` is ever searched for.

    Args:
        answer: answers a step, as a question of its own.
        steps: taken at most; the rest is left out and recorded.

    Source: Zhou et al., "Least-to-most prompting enables complex reasoning in large language models", ICLR 2023.

    >>> from spolia.core.function import step
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
        needed = {number for step in plan.steps for number in plan.needed_steps(step)}
        texts: dict[int, str] = {}
        answers: dict[int, str] = {}
        for level in plan.levels:
            texts |= self._fill_steps(plan, level, answers)
            numbers = [number for number in level if number in texts and number in needed]
            results = self.answer.batch([plan.query.asking(texts[number]) for number in numbers])
            for number, result in zip(numbers, results, strict=True):
                if (answer := _plain_answer(result, texts[number])) is not None:
                    answers[number] = answer
        # Levels mix the numbers; a reader sees the steps in the plan's order.
        return (plan.query, *(plan.query.rewritten(texts[number]) for number in sorted(texts)))

    def _fill_steps(self, plan: Plan, level: tuple[int, ...], answers: dict[int, str]) -> dict[int, str]:
        """Return the steps of a level that have all needed answers, filled with them."""
        filled = {}
        for number in level:
            step = plan.steps[number - 1]
            if lacking := [needed for needed in plan.needed_steps(step) if needed not in answers]:
                message = f"Step {number} is left out: it needs the answer of step {lacking[0]}, which has none."
                degrade(message, partly=True)
            else:
                filled[number] = plan.fill_step(step, answers)
        return filled

    def calls(self, rows: int | None = None, /) -> int | None:
        return times(self.steps, self.answer.calls())

    def fanout(self, rows: int | None = None, /) -> int | None:
        return 1 + self.steps


def _plain_answer(result: Answer | Failure, step: str) -> str | None:
    """Return an answer on one line, without markers; None without an answer."""
    if isinstance(result, Failure):
        # A spent budget is the caller's decision; any other failure costs one step only.
        if isinstance(result.error, BudgetSpent):
            raise result.error
        degrade(f"A step could not be answered: {step!r:.80}: {result.kind}: {result.message}", partly=True)
        return None
    # It is put into the middle of a question, where its full stop would end the sentence.
    text = " ".join(MARKER.sub("", result.text).split()).rstrip(".。")[:_MAX_ANSWER_CHARACTERS]
    return None if result.abstained or not text else text
