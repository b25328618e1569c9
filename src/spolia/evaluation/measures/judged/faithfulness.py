"""Faithfulness."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from spolia.evaluation.measures.answers.answer import said
from spolia.evaluation.measures.judged.evidence import passages
from spolia.evaluation.measures.judged.judge import JudgedMeasure, judgements
from spolia.evaluation.measures.judged.parsers import UNDETERMINED, Decisions, OrUndetermined, Statements
from spolia.evaluation.measures.measure import Result
from spolia.models.ask import Ask, Brief
from spolia.models.protocols import LanguageModel
from spolia.models.role import Role
from spolia.types import Item

STATED: Role[tuple[str, ...] | None] = Role(
    "spolia:evaluation/measures/judged/prompts/statements.txt", OrUndetermined(Statements()), default=UNDETERMINED
)
BACKED: Role[tuple[bool | None, ...] | None] = Role(
    "spolia:evaluation/measures/judged/prompts/backed.txt", OrUndetermined(Decisions()), default=UNDETERMINED
)


@dataclass(frozen=True)
class Faithfulness(JudgedMeasure):
    """Share of the answer's statements that the passages shown to the reader support; the gold does not matter.

    Two calls: what the answer states, then which statements follow from the passages. An abstention, and an answer
    that states nothing, is undetermined, and so is one with an undetermined statement; without any passage nothing is
    supported.

    Args:
        llm: the judge.
        stated: prompt file with the places `{{question}}` and `{{answer}}`; its reply is read as a list.
        backed: prompt file with the places `{{passages}}` and `{{statements}}`; its reply has a verdict for each.
        max_tokens: longest reply. Statements beyond it are not judged, which the trace notes.

    Source: Es et al. 2024 (RAGAS).

    >>> from spolia.models.scripted import ScriptedModel
    >>> from spolia.types import Answer, Hit, Node, Query, Ranking
    >>> shown = Ranking(Query("?"), (Hit(Node("n", "He worked for Nokia."), 1.0),))
    >>> model = ScriptedModel((("<statements", "1: yes\\n2: no"), ("", "He worked for Nokia.\\nHe lived in Salo.")))
    >>> Faithfulness(model).score(Answer("He worked for Nokia in Salo.", evidence=shown), Item("q", "Who is he?"))
    0.5
    """

    llm: LanguageModel
    stated: Role[tuple[str, ...] | None] = STATED
    backed: Role[tuple[bool | None, ...] | None] = BACKED
    max_tokens: int = 4096

    called: ClassVar[str] = "Faithfulness"

    def applies(self, item: Item) -> bool:
        return True

    def score(self, result: Result, item: Item) -> float | None:
        answer, shown = said(result), passages(result)
        if not answer.strip():
            return None
        (statements,) = judgements(
            Ask(self.llm, self.stated, self.max_tokens), [Brief.of(question=item.question, answer=answer)]
        )
        if not statements:
            return None
        if not shown:
            return 0.0
        (verdicts,) = judgements(
            Ask(self.llm, self.backed, self.max_tokens), [Brief.of(passages=shown, statements=statements)]
        )
        if verdicts is None or None in verdicts or len(verdicts) != len(statements):
            return None
        return float(sum(verdicts) / len(verdicts))
