"""G-Eval: grades for one aspect of an answer, as an expectation over samples."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import ClassVar, Final

from spolia.errors import MeasureError
from spolia.evaluation.measures.answers.answer import said
from spolia.evaluation.measures.judged.evidence import passages
from spolia.evaluation.measures.judged.judge import JudgedMeasure, judgements
from spolia.evaluation.measures.judged.parsers import UNDETERMINED, OrUndetermined
from spolia.evaluation.measures.measure import Result
from spolia.evaluation.measures.rules import checked_rule
from spolia.models.ask import Ask, Brief
from spolia.models.parsers import Number
from spolia.models.protocols import LanguageModel
from spolia.models.role import Role
from spolia.types import Item

ASPECTS: Final = ("coherence", "consistency", "fluency", "relevance")
WORST, BEST = 1, 5


@dataclass(frozen=True)
class GEval(JudgedMeasure):
    """The expected grade of an answer, from 1 to 5: sum over grades s of s · p(s), p estimated from samples.

    Samples whose grade cannot be read are left out; without any that can, the question is undetermined. A failed
    question and an empty answer count 0, which is worse than the worst grade. AutoRAG's variant takes the most
    probable grade of the first token instead, which is another number and needs probabilities of tokens that were not
    chosen.

    Args:
        llm: the judge.
        aspect: `coherence`, `consistency` (with the passages shown), `fluency` or `relevance` (to the question).
        samples: how many are drawn, each a call.
        prompt: prompt file of your own, with the places `{{question}}`, `{{passages}}` and `{{answer}}` or some of
            them; empty: that of the aspect.

    Source: Liu et al. 2023 (G-Eval), with its 20 samples at temperature 1.

    >>> from spolia.models.scripted import ScriptedModel
    >>> from spolia.types import Answer, Query, Ranking
    >>> measure = GEval(ScriptedModel(("5", "4", "4", "I cannot say.")), "fluency", samples=3)
    >>> str(measure), round(measure.score(Answer("It was Nokia.", evidence=Ranking(Query("?"), ())), Item("q", "?")), 4)
    ('GEval(llm="scripted", aspect="fluency", samples=3)', 4.3333)
    """

    llm: LanguageModel
    aspect: str = "relevance"
    samples: int = 20
    prompt: str = ""

    called: ClassVar[str] = "GEval"
    prompts: ClassVar[tuple[str, ...]] = tuple(f"evaluation/measures/judged/{aspect}" for aspect in ASPECTS)
    range: ClassVar[tuple[float, float]] = (0.0, BEST)

    def __post_init__(self) -> None:
        checked_rule(self.called, self.aspect, ASPECTS)
        if self.samples < 1 or not self.aspect:
            raise MeasureError(f"{self} asks for nothing. Write an aspect, and samples=1 or more.")

    def applies(self, item: Item) -> bool:
        return True

    def score(self, result: Result, item: Item) -> float | None:
        answer, shown = said(result), passages(result)
        if not answer.strip():
            return 0.0
        briefs = [
            Brief.of(sample, question=item.question, passages=shown, answer=answer) for sample in range(self.samples)
        ]
        grades = judgements(Ask(self.llm, self._role, temperature=1.0), briefs)
        read = [grade for grade in grades if grade is not None and isfinite(grade)]
        return sum(read) / len(read) if read else None

    @property
    def made(self) -> tuple[Role[float | None]]:
        return (self._role,)

    @property
    def _role(self) -> Role[float | None]:
        prompt = self.prompt or f"spolia:evaluation/measures/judged/prompts/{self.aspect}.txt"
        return Role(prompt, OrUndetermined(Number(WORST, BEST)), default=UNDETERMINED)
