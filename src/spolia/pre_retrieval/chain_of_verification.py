"""A draft answer that is verified by questions about it."""

from dataclasses import dataclass
from typing import ClassVar

from spolia.core.call_bounds import times, total
from spolia.core.operator import Operator
from spolia.core.run_context import degrade
from spolia.core.type_compatibility import refuse_counts
from spolia.errors import BudgetSpent
from spolia.models.parsers import NOTHING
from spolia.models.prompting.role import Ask, Brief, Role
from spolia.models.prompting.template import Setting
from spolia.models.protocols import LanguageModel
from spolia.pre_retrieval.query_llm import OneText, Searches
from spolia.types import Answer, Failure, Query

PLANNED: Role[tuple[str, ...]] = Role("spolia:pre_retrieval/prompts/verify_plan.txt", Searches(), default=NOTHING)
REVISED: Role[str] = Role("spolia:pre_retrieval/prompts/verify_revise.txt", OneText(), default=NOTHING)


@dataclass(frozen=True)
class ChainOfVerification(Operator[Query, Answer]):
    """Draft an answer, ask questions that check it, answer these without the draft, and revise it: factored.

    A draft that is an abstention, or has nothing to check, stays as it is, and so does one that the
    answers agree with. A revised answer has no citations: the draft's are of what it no longer says. A check that
    cannot be answered is left out, which is counted.

    Args:
        llm: plans and revises.
        draft: answers the question.
        answer: answers a check, as a question of its own, so that it cannot repeat the draft; with a search in it, from
            documents.
        questions: checks, at most; the prompt has the number (`{{questions}}`).
        planned: prompt, with the places `{{question}}` and `{{draft}}`, reader and default for the checks.
        revised: prompt, with the place `{{checks}}` too, reader and default for the revised answer.
        max_tokens: longest reply.

    Source: Dhuliawala et al., "Chain-of-verification reduces hallucination in large language models", Findings of ACL
    2024.

    >>> from spolia import ScriptedModel, step
    >>> @step
    ... def known(query: Query) -> Answer:
    ...     return Answer("In 1815." if "When" in query.text else "Emma is of 1816.")
    >>> model = ScriptedModel((("<checks", "Emma is of 1815."), ("", "When did Emma appear?")))
    >>> ChainOfVerification(model, draft=known, answer=known)(Query("Of which year is Emma?")).text
    'Emma is of 1815.'
    """

    llm: LanguageModel
    draft: Operator[Query, Answer]
    answer: Operator[Query, Answer]
    questions: int = 5
    planned: Role[tuple[str, ...]] = PLANNED
    revised: Role[str] = REVISED
    max_tokens: int = 512

    version: ClassVar[int] = 5  # 3: a refusal is no question; 5: a thought is no part of a reply

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_counts(self, "questions", "max_tokens")

    def apply(self, value: Query, /) -> Answer:
        draft = self.draft(value)
        if draft.abstained or not draft.text.strip():
            return draft
        self.planned.refuse_without("question", "draft")
        places = {"question": value.question, "draft": draft.text}
        plan = Ask(self.llm, self.planned, self.max_tokens)
        # Each costs a call, and a model may write more than it was told to.
        questions = plan(Brief.from_texts(value.sample, questions=Setting(self.questions), **places))[: self.questions]
        if not (checks := self._answer_checks(value, questions)):
            return draft
        self.revised.refuse_without("question", "draft", "checks")
        revise = Ask(self.llm, self.revised, self.max_tokens)
        text = revise(Brief.from_texts(value.sample, checks=checks, **places))
        return draft if text in ("", draft.text) else draft.but(text=text, citations=())

    def _answer_checks(self, query: Query, questions: tuple[str, ...]) -> tuple[str, ...]:
        """Return questions with their answers; no call sees the draft."""
        checks = []
        for question, answer in zip(questions, self.answer.batch([query.asking(q) for q in questions]), strict=True):
            if isinstance(answer, Failure):
                # A spent budget is the caller's decision; any other failure costs one check only.
                if isinstance(answer.error, BudgetSpent):
                    raise answer.error
                reason = f"A check could not be answered: {question!r:.80}: {answer.kind}: {answer.message}"
                degrade(reason, partly=True)
            else:
                checks.append(f"{question}\n{answer.text}")
        return tuple(checks)

    def calls(self, rows: int | None = None, /) -> int | None:
        own = total((Ask(self.llm, self.planned).calls(), Ask(self.llm, self.revised).calls()))
        return total((self.draft.calls(), times(self.questions, self.answer.calls()), own))
