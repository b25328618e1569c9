"""G-Eval: grades for one aspect of an answer, as an expectation over samples or over probabilities of tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, isfinite
from typing import ClassVar, Final

from spolia.errors import MeasureError
from spolia.evaluation.measures.answers.answer import said
from spolia.evaluation.measures.judged.evidence import passages
from spolia.evaluation.measures.judged.judge import JudgedMeasure, judgements
from spolia.evaluation.measures.judged.parsers import UNDETERMINED, OrUndetermined
from spolia.evaluation.measures.measure import Result
from spolia.evaluation.measures.rules import checked_rule
from spolia.models.ask import Ask, Brief
from spolia.models.first_tokens import FirstTokens
from spolia.models.parsers import Number
from spolia.models.protocols import NEXT_TOKENS, LanguageModel
from spolia.models.role import Role
from spolia.types import Item, Token

ASPECTS: Final = ("coherence", "consistency", "fluency", "relevance")
WORST, BEST = 1, 5
TOKENS: Final = "tokens"
RULES: Final = (TOKENS,)


@dataclass(frozen=True)
class GEval(JudgedMeasure):
    """The expected grade of an answer, from 1 to 5: sum over grades s of s · p(s).

    By default p is estimated from samples. Those whose grade cannot be read are left out; without any that can, the
    question is undetermined. With `rule="tokens"` p is what the model states of the first token of its reply, among the
    tokens that are a grade, divided by the sum of these: one call, and nothing is drawn by lot. Where it would more
    probably begin with something else, the question is undetermined.

    A failed question and an empty answer count 0, which is worse than the worst grade. AutoRAG's variant takes the most
    probable grade instead of the expected one, which is another number.

    Args:
        llm: the judge.
        aspect: `coherence`, `consistency` (with the passages shown), `fluency` or `relevance` (to the question).
        samples: how many are drawn, each a call; not with `rule="tokens"`.
        rule: `tokens` for probabilities of tokens, of a model with the capability `next_tokens`; empty for samples.
        prompt: prompt file of your own, with the places `{{question}}`, `{{passages}}` and `{{answer}}` or some of
            them; empty: that of the aspect.

    Source: Liu et al. 2023 (G-Eval): probabilities of tokens where a model states them, else 20 samples at temperature
    1.

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
    rule: str = ""

    called: ClassVar[str] = "GEval"
    prompts: ClassVar[tuple[str, ...]] = tuple(f"evaluation/measures/judged/{aspect}" for aspect in ASPECTS)
    range: ClassVar[tuple[float, float]] = (0.0, BEST)

    def __post_init__(self) -> None:
        checked_rule(self.called, self.aspect, ASPECTS)
        checked_rule(self.called, self.rule, RULES)
        if self.rule == TOKENS and NEXT_TOKENS not in self.llm.capabilities:
            raise MeasureError(
                f"{self.llm.name} states no probabilities of tokens, as {self} needs. Write its capabilities with "
                f"{NEXT_TOKENS!r} in it, if its server states them; else leave out the rule."
            )
        if self.samples < 1 or not self.aspect:
            raise MeasureError(f"{self} asks for nothing. Write an aspect, and samples=1 or more.")

    def applies(self, item: Item) -> bool:
        return True

    def score(self, result: Result, item: Item) -> float | None:
        answer, shown = said(result), passages(result)
        if not answer.strip():
            return 0.0
        if self.rule == TOKENS:
            (found,) = judgements(
                FirstTokens(self.llm, self._role), [Brief.of(question=item.question, passages=shown, answer=answer)]
            )
            return None if found is None else expected_grade(found)
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


def expected_grade(tokens: Sequence[Token]) -> float | None:
    """The mean of the grades among some tokens, weighted by their probability; None where these have less than half of
    the probability that is stated.

    >>> from math import log
    >>> found = [Token("5", log(0.5)), Token(" 4", log(0.3)), Token("3", log(0.1)), Token("The", log(0.05))]
    >>> round(expected_grade(found), 4)  # (5 · 0.5 + 4 · 0.3 + 3 · 0.1) / 0.9
    4.4444
    """
    grades = {str(grade): grade for grade in range(WORST, BEST + 1)}
    stated = [(grades.get(token.text.strip()), exp(token.logprob)) for token in tokens]
    read = [(grade, p) for grade, p in stated if grade is not None]
    mass = sum(p for _, p in read)
    return sum(grade * p for grade, p in read) / mass if mass > 0 and 2 * mass >= sum(p for _, p in stated) else None
