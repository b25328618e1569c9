"""G-Eval: grades for one aspect of an answer, as an expectation over samples or over probabilities of tokens."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, isfinite
from statistics import fmean
from typing import ClassVar, Final, cast

from spolia.errors import MeasureError
from spolia.evaluation.measures.answers.answer_text import extract_text
from spolia.evaluation.measures.judged.judge import JudgedMeasure, judgements, judging_role, passages
from spolia.evaluation.measures.measure import Result, check_rule
from spolia.models.parsers import Number
from spolia.models.prompting.likelihood import FirstTokens
from spolia.models.prompting.role import Ask, Brief, Role
from spolia.models.protocols import NEXT_TOKENS, ForetellsTokens, LanguageModel
from spolia.types import Item, Token

ASPECTS: Final = ("coherence", "consistency", "fluency", "relevance")
MEAN: Final = "mean"
WORST, BEST = 1, 5
_GRADES = {str(grade): grade for grade in range(WORST, BEST + 1)}
TOKENS, AUTORAG = "tokens", "autorag"
RULES: Final = (TOKENS, AUTORAG)
TOP_TOKENS: Final = 5
"""First tokens that AutoRAG looks at."""


@dataclass(frozen=True)
class GEval(JudgedMeasure):
    """The expected grade of an answer, from 1 to 5: sum over grades s of s · p(s).

    By default p is estimated from samples. Those whose grade cannot be read are left out; without any that can, the
    question is undetermined. With `rule="tokens"` p is what the model states of the first token of its reply, among the
    tokens that are a grade, divided by the sum of these: one call, and nothing is drawn by lot. Where it would more
    probably begin with something else, the question is undetermined.

    With `rule="autorag"` the number is AutoRAG's: the most probable grade among the five most probable first tokens, an
    integer, with an accepted answer in the place of the passages; the best over these answers. AutoRAG reports the
    mean of the four aspects (`aspect="mean"`); its prompts are its own, and show that place also for coherence and
    relevance (`prompt`). It does not compare with the expected grade.

    A failed question and an empty answer count 0, which is worse than the worst grade.

    Args:
        llm: the judge.
        aspect: `coherence`, `consistency` (with the passages shown), `fluency` or `relevance` (to the question); `mean`
            is the mean of these four, undetermined where one of them is.
        samples: how many are drawn for an aspect, each a call; not with a rule.
        rule: `tokens` and `autorag` for probabilities of tokens, of a model with the capability `next_tokens`; empty
            for samples.
        prompt: prompt file of your own, with the places `{{question}}`, `{{passages}}` and `{{answer}}` or some of
            them; empty: that of the aspect. Not with `mean`.

    Source: Liu et al. 2023 (G-Eval): probabilities of tokens where a model states them, else 20 samples at temperature
    1; Kim et al. 2024 (AutoRAG). Its code draws samples whose first tokens are the same each time: one call is enough.

    >>> from spolia import Answer, Query, Ranking, ScriptedModel
    >>> measure = GEval(ScriptedModel(("5", "4", "4", "I cannot say.")), "fluency", samples=3)
    >>> str(measure)
    'GEval(llm="scripted", aspect="fluency", samples=3)'
    >>> round(measure.score(Answer("It was Nokia.", evidence=Ranking(Query("?"), ())), Item("q", "?")), 4)
    4.3333
    """

    llm: LanguageModel
    aspect: str = "relevance"
    samples: int = 20
    prompt: str = ""
    rule: str = ""

    notation: ClassVar[str] = "GEval"
    prompts: ClassVar[tuple[str, ...]] = tuple(f"evaluation/measures/judged/{aspect}" for aspect in ASPECTS)
    range: ClassVar[tuple[float, float]] = (0.0, BEST)

    def __post_init__(self) -> None:
        check_rule(self.notation, self.aspect, (*ASPECTS, MEAN))
        check_rule(self.notation, self.rule, RULES)
        if self.rule and NEXT_TOKENS not in self.llm.capabilities:
            raise MeasureError(
                f"{self.llm.name} states no probabilities of tokens, as {self} needs. Write its capabilities with "
                f"{NEXT_TOKENS!r} in it, if its server states them; else leave out the rule."
            )
        if self.samples < 1 or not self.aspect:
            raise MeasureError(f"{self} asks for nothing. Write an aspect, and samples=1 or more.")
        if self.prompt and self.aspect == MEAN:
            raise MeasureError(
                f"{self} would grade four aspects with one prompt. Write one measure with a prompt for each aspect."
            )

    def applies(self, item: Item) -> bool:
        return self.rule != AUTORAG or bool(item.answers)

    def score(self, result: Result, item: Item) -> float | None:
        answer, evidence = extract_text(result), passages(result)
        if not answer.strip():
            return 0.0
        if self.aspect == MEAN:
            grades = [self.but(aspect=aspect).score(result, item) for aspect in ASPECTS]
            valid = [grade for grade in grades if grade is not None]
            return fmean(valid) if len(valid) == len(ASPECTS) else None
        if self.rule:
            references = [(gold,) for gold in item.answers] if self.rule == AUTORAG else [evidence]
            briefs = [Brief.from_texts(question=item.question, passages=texts, answer=answer) for texts in references]
            llm = cast("ForetellsTokens", self.llm)  # one that cannot is refused when it is asked
            read_grade = most_probable_grade if self.rule == AUTORAG else expected_grade
            grades = [read_grade(tokens or ()) for tokens in judgements(FirstTokens(llm, self._role), briefs)]
            valid = [grade for grade in grades if grade is not None]
            return max(valid) if len(valid) == len(briefs) else None
        briefs = [
            Brief.from_texts(sample, question=item.question, passages=evidence, answer=answer)
            for sample in range(self.samples)
        ]
        # As in G-Eval: samples of the model's own distribution.
        sampled_grades = judgements(Ask(self.llm, self._role, temperature=1.0), briefs)
        valid = [grade for grade in sampled_grades if grade is not None and isfinite(grade)]
        return sum(valid) / len(valid) if valid else None

    @property
    def dependencies(self) -> tuple[Role[float | None], ...]:
        if self.aspect == MEAN:
            return tuple(self.but(aspect=aspect)._role for aspect in ASPECTS)
        return (self._role,)

    @property
    def _role(self) -> Role[float | None]:
        role = judging_role(self.aspect, Number(WORST, BEST))
        return role.but(prompt=self.prompt) if self.prompt else role


def expected_grade(tokens: Sequence[Token]) -> float | None:
    """Return the mean of the grades among some tokens, weighted by their probability; None if they hold less than half
    of the stated probability.

    >>> from math import log
    >>> found = [Token("5", log(0.5)), Token(" 4", log(0.3)), Token("3", log(0.1)), Token("The", log(0.05))]
    >>> round(expected_grade(found), 4)  # (5 · 0.5 + 4 · 0.3 + 3 · 0.1) / 0.9
    4.4444
    """
    stated = [(_GRADES.get(token.text.strip()), exp(token.logprob)) for token in tokens]
    graded = [(grade, p) for grade, p in stated if grade is not None]
    mass = sum(p for _, p in graded)
    return sum(grade * p for grade, p in graded) / mass if mass > 0 and 2 * mass >= sum(p for _, p in stated) else None


def most_probable_grade(tokens: Sequence[Token]) -> int | None:
    """Return the first grade among the five most probable tokens; else None.

    >>> most_probable_grade([Token("The", -0.2), Token(" 4", -2.5), Token("5", -3.0)])
    4
    """
    first = sorted(tokens, key=lambda token: -token.logprob)[:TOP_TOKENS]
    return next((int(token.text) for token in first if token.text.strip() in _GRADES), None)
