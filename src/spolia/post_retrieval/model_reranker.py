"""What all rerankers that ask a model have in common: one contract, whatever the scores come from."""

import math
import sys
from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from spolia.core.operator import Operator
from spolia.core.run_context import degrade, note
from spolia.core.wiring import refuse_counts
from spolia.errors import ModelError, ModelRejected, ModelUnavailable, WiringError
from spolia.models.prompting import template
from spolia.models.prompting.role import Prompted
from spolia.models.protocols import LanguageModel
from spolia.types import Failure, Hit, Prompt, Ranking, Token
from spolia.types.outcomes import successes


class Judging(Operator[Ranking, Ranking]):
    """Base of what scores hits anew by a model.

    The best `judged` hits are judged by the question that was asked (`Query.question`) and what a reader would be shown
    of them; the others are left out. The best `top_k` come back with their new scores, best first, equal ones in the
    order that they had. An empty ranking asks nobody.

    A model that fails, or gives no score for any of them, leaves the hits in the order and with the scores that they
    had, and that is recorded: the result is degraded, so that it is counted and not cached. A hit whose score is NaN
    comes last; an infinite one counts as the largest number of its sign.

    A subclass is a frozen dataclass with these fields, and writes `scores`.

    Args:
        top_k: hits to return, at most.
        judged: hits that are judged, at most; the others are left out.
        strict: a model that fails is an error; else the hits keep their order, and that is recorded.

    Raises:
        ModelUnavailable: where `strict`, when the model could not be asked.
        ModelRejected: where `strict`, when it refused.
        ModelError: when it gave another number of scores than there are hits.
        BudgetSpent: when a call was refused before it was sent.
    """

    top_k: int
    judged: int
    strict: bool

    cached: ClassVar[bool] = True

    def __post_init__(self) -> None:
        refuse_counts(self, "top_k", "judged")
        if self.top_k > self.judged:
            raise WiringError(
                f"{self.short}: {self.top_k} hits are to come back of {self.judged} that are judged. "
                f"Write judged={self.top_k} or more."
            )

    @abstractmethod
    def scores(self, question: str, texts: Sequence[str], /) -> Sequence[float]:
        """A score for each text, in their order; higher is better, NaN where there is none."""

    def apply(self, value: Ranking, /) -> Ranking:
        best = value.cut(self.judged)
        if not best.hits:
            return best
        try:
            scores = self.scores(value.query.question, [node.shown_text for node in best.nodes])
        except (ModelUnavailable, ModelRejected) as error:
            if self.strict:
                raise
            degrade(f"{type(self).__name__} could not be asked ({error}); the hits keep their order.", error=error)
            return best.cut(self.top_k)
        return best.but(hits=self._ordered(best.hits, scores)).cut(self.top_k)

    def reads(self, value: Ranking, /) -> object:
        shown = tuple((hit.node, hit.found) for hit in value.cut(self.judged).hits)
        return value.query.question, value.source, shown

    def _ordered(self, hits: Sequence[Hit], scores: Sequence[float]) -> tuple[Hit, ...]:
        if len(scores) != len(hits):
            raise ModelError(
                f"{type(self).__name__} was given {len(hits)} texts and got {len(scores)} scores. Correct the model."
            )
        finite = [_finite(float(score)) for score in scores]
        known = [score for score in finite if score is not None]
        if len(known) < len(finite):
            said = f"{type(self).__name__}: {len(finite) - len(known)} of {len(finite)} texts have no score."
            degrade(said, partly=bool(known))
        if not known:
            return tuple(hits)
        least = min(known)
        order = sorted(range(len(hits)), key=lambda at: (finite[at] is None, -(finite[at] or 0.0)))
        return tuple(hits[at].but(score=least if (score := finite[at]) is None else score) for at in order)


def _finite(score: float) -> float | None:
    """A score as a finite number; None for NaN."""
    if math.isnan(score):
        return None
    return max(-sys.float_info.max, min(sys.float_info.max, score))


class AskedOfEach(Prompted, Judging):
    """Base of the rerankers that send a prompt for each hit; where they wait, several at the same time.

    One hit that cannot be judged leaves all in their order (`Judging`): scores of some and not of others would tell
    which calls failed, not which hits are good.

    A subclass is a frozen dataclass with these fields and those of `Judging`, and writes `told` and `score`.

    Args:
        llm: the language model.
        prompt: the prompt file.
        characters: of a hit that the model is shown, at most.

    Raises:
        ModelError: the prompt file cannot be read, or lacks a place.
    """

    llm: LanguageModel
    prompt: str
    characters: int

    language: ClassVar[str] = template.ENGLISH
    places: ClassVar[tuple[str, ...]] = ("passage",)

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_counts(self, "characters")

    @abstractmethod
    def told(self, prompts: Sequence[Prompt], question: str, /) -> Sequence[tuple[Token, ...] | Failure]:
        """The tokens that the model gives for each hit."""

    @abstractmethod
    def score(self, tokens: tuple[Token, ...], /) -> float:
        """The score of the hit for which a model gave these tokens; NaN where there is none."""

    def scores(self, question: str, texts: Sequence[str], /) -> Sequence[float]:
        shown = self.template(question)
        prompts = [Prompt(shown.filled({"question": question, "passage": text[: self.characters]})) for text in texts]
        if long := sum(len(text) > self.characters for text in texts):
            note(f"{type(self).__name__} is shown the first {self.characters} characters of {long} hits.")
        return [self.score(tokens) for tokens in successes(self.told(prompts, question))]

    def reads(self, value: Ranking, /) -> object:
        return super().reads(value), self.template(value.query.question).digest

    def calls(self, rows: int | None = None, /) -> int | None:
        return self.judged
