"""Correctness, as a language model judges it by the accepted answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from spolia.evaluation.measures.answers.answer import said
from spolia.evaluation.measures.judged.judge import JudgedMeasure, judgements
from spolia.evaluation.measures.judged.parsers import UNDETERMINED, OrUndetermined
from spolia.evaluation.measures.measure import Result, checked_item
from spolia.models.ask import Ask, Brief
from spolia.models.parsers import YesNo
from spolia.models.protocols import LanguageModel
from spolia.models.role import Role
from spolia.types import Item

CORRECT: Role[bool | None] = Role(
    "spolia:evaluation/measures/judged/prompts/correct.txt", OrUndetermined(YesNo()), default=UNDETERMINED
)


@dataclass(frozen=True)
class Correctness(JudgedMeasure):
    """1 if the answer says the same as an accepted one, whatever its words, else 0. An abstention scores 0. One call.

    How far the judge can be believed: `agreement` of its verdicts with people's.

    Args:
        llm: the judge.
        role: prompt file with the places `{{question}}`, `{{answers}}` and `{{answer}}`, and the reader of the reply.

    Source: reference-guided grading, Zheng et al. 2023.

    >>> from spolia.models.scripted import ScriptedModel
    >>> from spolia.types import Answer
    >>> measure = Correctness(ScriptedModel(("Yes.",)))
    >>> measure.score(Answer("It was Nokia Oyj."), Item("q", "Who employed him?", answers=("Nokia",)))
    1.0
    """

    llm: LanguageModel
    role: Role[bool | None] = CORRECT

    called: ClassVar[str] = "Correctness"

    def applies(self, item: Item) -> bool:
        return bool(item.answers)

    def score(self, result: Result, item: Item) -> float | None:
        checked_item(self, item)
        answer = said(result)
        if not answer.strip():
            return 0.0
        brief = Brief.of(question=item.question, answers=item.answers, answer=answer)
        (correct,) = judgements(Ask(self.llm, self.role), [brief])
        return None if correct is None else float(correct)
