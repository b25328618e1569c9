"""Context precision."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from spolia.evaluation.measures.judged.evidence import passages
from spolia.evaluation.measures.judged.judge import JudgedMeasure, judgements
from spolia.evaluation.measures.judged.parsers import UNDETERMINED, OrUndetermined
from spolia.evaluation.measures.measure import Result, checked_item
from spolia.models.ask import Ask, Brief
from spolia.models.parsers import YesNo
from spolia.models.protocols import LanguageModel
from spolia.models.role import Role
from spolia.types import Item

USEFUL: Role[bool | None] = Role(
    "spolia:evaluation/measures/judged/prompts/useful.txt", OrUndetermined(YesNo()), default=UNDETERMINED
)


@dataclass(frozen=True)
class ContextPrecision(JudgedMeasure):
    """Whether useful passages stand before useless ones, as a model judges each by the accepted answers.

    Sum over k of P@k · v_k / sum of v_k, v_k = 1 if passage k is useful, P@k = useful ones in the first k / k; 0 when
    none is. It does not see what was not found. One call for each passage; one undetermined verdict makes the question
    undetermined. With the gold's ids in place of a judge: `MAP(rule="ragas")`.

    Args:
        llm: the judge.
        role: prompt file with the places `{{question}}`, `{{answers}}`, `{{passage}}`, and the reader of the reply.

    Source: Es et al. 2024 (RAGAS), as used by Kim et al. 2024 (AutoRAG).

    >>> from spolia.models.scripted import ScriptedModel
    >>> from spolia.types import Hit, Node, Query, Ranking
    >>> found = Ranking(Query("?"), tuple(Hit(Node(text, text), 1.0) for text in ("the moon", "salt", "moonlight")))
    >>> measure = ContextPrecision(ScriptedModel((("<passage>salt", "no"), ("", "yes"))))
    >>> str(measure), round(measure.score(found, Item("q", "?", answers=("moon",))), 4)  # (1 + 2/3) / 2
    ('ContextPrecision(llm="scripted")', 0.8333)
    """

    llm: LanguageModel
    role: Role[bool | None] = USEFUL

    called: ClassVar[str] = "ContextPrecision"

    def applies(self, item: Item) -> bool:
        return bool(item.answers)

    def score(self, result: Result, item: Item) -> float | None:
        checked_item(self, item)
        briefs = [
            Brief.of(question=item.question, answers=item.answers, passage=passage) for passage in passages(result)
        ]
        verdicts = judgements(Ask(self.llm, self.role), briefs)
        return None if None in verdicts else mean_precision(verdicts)


def mean_precision(useful: Sequence[bool]) -> float:
    """Precision at the rank of each useful passage, averaged over them.

    >>> mean_precision([False, True])
    0.5
    """
    ranks = [rank for rank, one in enumerate(useful, start=1) if one]
    return sum(number / rank for number, rank in enumerate(ranks, start=1)) / len(ranks) if ranks else 0.0
