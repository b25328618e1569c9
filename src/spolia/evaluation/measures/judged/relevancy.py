"""Answer relevancy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from spolia.evaluation.measures.answers.answer import said
from spolia.evaluation.measures.judged.judge import JudgedMeasure, judgements
from spolia.evaluation.measures.judged.parsers import UNDETERMINED, OrUndetermined
from spolia.evaluation.measures.measure import Result
from spolia.indexing.transforms.parsers import Questions
from spolia.models.ask import Ask, Brief
from spolia.models.delimiters import Setting
from spolia.models.protocols import Embedder, LanguageModel
from spolia.models.role import Role
from spolia.types import Item

ASKED: Role[tuple[str, ...] | None] = Role(
    "spolia:evaluation/measures/judged/prompts/asked.txt", OrUndetermined(Questions()), default=UNDETERMINED
)


@dataclass(frozen=True)
class AnswerRelevancy(JudgedMeasure):
    """Whether the answer is one to the question that was asked, right or wrong.

    A model writes the questions that the answer would answer; the measure is their mean cosine with the question, from
    -1 to 1. An abstention, or an answer that the model calls non-committal, scores 0. One call.

    Args:
        llm: writes the questions.
        embedder: compares them; numbers of different embedders do not compare.
        questions: how many are asked for (`{{questions}}`); further ones are left out.
        role: prompt file with the places `{{answer}}` and `{{questions}}`; its reply is read as a list, `none` for a
            non-committal answer.

    Source: Es et al. 2024 (RAGAS), with its three questions.

    >>> from spolia.models.scripted import ScriptedModel
    >>> from spolia.testing import HashingEmbedder
    >>> from spolia.types import Answer
    >>> measure = AnswerRelevancy(ScriptedModel(("Who employed him?\\nWho employed him?",)), HashingEmbedder())
    >>> round(measure.score(Answer("Nokia did."), Item("q", "Who employed him?")), 4)
    1.0
    """

    llm: LanguageModel
    embedder: Embedder
    questions: int = 3
    role: Role[tuple[str, ...] | None] = ASKED

    called: ClassVar[str] = "AnswerRelevancy"
    range: ClassVar[tuple[float, float]] = (-1.0, 1.0)

    def applies(self, item: Item) -> bool:
        return True

    def score(self, result: Result, item: Item) -> float | None:
        answer = said(result)
        if not answer.strip():
            return 0.0
        brief = Brief.of(answer=answer, questions=Setting(self.questions))
        (found,) = judgements(Ask(self.llm, self.role), [brief])
        if not found:
            return None if found is None else 0.0
        own, *others = self.embedder.embed([item.question, *found[: self.questions]], kind="query")
        return float(sum(own @ other for other in others) / len(others))
