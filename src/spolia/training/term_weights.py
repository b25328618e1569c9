"""Trainer of the weights of a question's words, by how well the flow does with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from spolia.core.operator import Operator
from spolia.core.plurals import several
from spolia.core.run_context import access, check_cancelled
from spolia.errors import DataError, EmptyReply
from spolia.evaluation.experiment.gold_locations import locate_gold
from spolia.evaluation.measures.measure import Measure
from spolia.evaluation.measures.registry import parse_measure
from spolia.generation.reader import Reader
from spolia.models.protocols import LanguageModel
from spolia.models.trained_weights import TrainedWeights
from spolia.retrieval.bm25 import BM25
from spolia.retrieval.learned.term_weights import FEATURES, PART, WeightedTerms, repeat_words, term_features
from spolia.run import Run
from spolia.stores.corpus import NodeGroup
from spolia.types import Item, Query, Value

Floats = npt.NDArray[np.float64]
VALIDATED = 64
"""Questions of the validation curve, at most."""


@dataclass(frozen=True, eq=False)
class QuestionWords(Value):
    """A question with its gold as the store has it, its words, and float64[words, features]."""

    item: Item
    words: tuple[str, ...]
    features: Floats


class TermWeightsTrainer:
    """Trainer of `WeightedTerms` by REINFORCE: words weigh more if the flow scores higher when they do.

    A rewriting is drawn: ln w(t) = θ · x(t) + σ ε(t), with ε normal. Its reward r is the score of the flow with it. The
    gradient is that of the expected reward, with the mirrored draw as baseline:

        ∂E[r]/∂θ ≈ (r(ε) - r(-ε)) / 2σ · Σ_t ε(t) x(t)

    λ keeps the rewriting near the question itself, as the KL penalty of the paper does.

    Args:
        group: the nodes that are searched by words.
        llm: answers from the passages found; None to reward gold passages.
        top_k: passages that are found.
        spread: σ.
        batch: questions of a step; the flow runs twice for each.
        rate: of Adam.
        decay: λ of λ/2 · |θ|².

    Source: Ma et al., "Query rewriting in retrieval-augmented large language models", EMNLP 2023 (the reader's score as
    reward; there by PPO); Williams, "Simple statistical gradient-following algorithms", 1992.
    """

    part, version, steps = PART, 1, 100
    converged: ClassVar[bool] = False

    def __init__(
        self,
        group: NodeGroup,
        llm: LanguageModel | None = None,
        *,
        top_k: int = 10,
        spread: float = 0.5,
        batch: int = 16,
        rate: float = 0.05,
        decay: float = 0.005,
    ) -> None:
        self.group, self.llm, self.top_k = group, llm, top_k
        self.spread, self.batch, self.rate, self.decay = spread, batch, rate, decay
        self.measure = "F1" if llm else "nDCG@10"
        self.notes: list[str] = []
        self._rewards: dict[tuple[str, str], float] = {}

    def settings(self) -> dict[str, Any]:
        names = ("top_k", "spread", "batch", "rate", "decay", "measure")
        return {name: getattr(self, name) for name in names} | {"model": self.llm.name if self.llm else ""}

    def prepare(self, items: Sequence[Item], validation: Sequence[Item], seed: int) -> None:
        self.questions, self.validation = self._read_questions(items), self._read_questions(validation)[:VALIDATED]
        if not self.questions:
            needs = "accepted answers" if self.llm else "gold passages"
            raise DataError(
                f"Nothing can be learned from {several(len(items), 'question')}: none has {needs} and two words. "
                "Give other questions."
            )
        self.seed, self.done = seed, 0
        self.theta, self.moments = np.zeros(len(FEATURES)), np.zeros((2, len(FEATURES)))
        self.notes = [f"The reward is {self.measure}, of {several(len(self.questions), 'question')}."]

    def _read_questions(self, items: Sequence[Item]) -> list[QuestionWords]:
        usable = [item for item in items if self._reward_measure.applies(item)]
        if not usable:
            return []
        locations, snapshot, questions = locate_gold(usable, [self.untrained()]), self.group.snapshot(), []
        for item in usable:
            words, features = term_features(item.question, snapshot, self.group.name, access())
            if len(words) > 1:
                questions.append(QuestionWords(locations.locate_item(item), tuple(words), np.array(features)))
        return questions

    @property
    def _reward_measure(self) -> Measure:
        measure = parse_measure(self.measure)
        assert isinstance(measure, Measure)
        return measure

    def step(self, done: float) -> float:
        """Make one step of Adam on the questions of a batch; return minus their mean reward."""
        # The same draws after a kill.
        loss, slope = self.estimate_gradient(self._draw_batch(), np.random.default_rng((self.seed, self.done)))
        slope = slope + self.decay * self.theta
        self.done += 1
        self.moments[0] += 0.1 * (slope - self.moments[0])  # Adam's usual decays: 1 - 0.9 and 1 - 0.999
        self.moments[1] += 0.001 * (slope**2 - self.moments[1])
        size = self.moments[0] / (1 - 0.9**self.done)
        self.theta -= self.rate * (1 - done) * size / (np.sqrt(self.moments[1] / (1 - 0.999**self.done)) + 1e-8)
        return loss

    def _draw_batch(self) -> list[QuestionWords]:
        """Return the questions of this step; each epoch has its own order."""
        epoch, number = divmod(self.done, -(-len(self.questions) // self.batch))
        order = Random(f"{self.seed}/{epoch}").sample(self.questions, len(self.questions))
        return order[number * self.batch : (number + 1) * self.batch]

    def estimate_gradient(self, batch: Sequence[QuestionWords], draw: np.random.Generator) -> tuple[float, Floats]:
        """Return minus the mean reward, and an estimate of its gradient by θ."""
        total, slope = 0.0, np.zeros(len(FEATURES))
        for question in batch:
            check_cancelled()
            noise = draw.normal(size=len(question.words))
            mean = question.features @ self.theta
            up, down = (self.reward(question, mean + sign * self.spread * noise) for sign in (1, -1))
            total += (up + down) / 2
            slope -= (up - down) / (2 * self.spread) * (noise @ question.features)
        return -total / len(batch), slope / len(batch)

    def reward(self, question: QuestionWords, logs: Floats) -> float:
        """Return the score of the flow with these weights (their logarithms), computed once for each rewriting."""
        text = repeat_words(question.words, logs.tolist()) or question.item.question  # all words can have the weight 0
        key = question.item.id, text
        if key not in self._rewards:
            with Run.current() or Run(share=True):
                try:
                    output = self.untrained()(Query(text, question.item.question))
                    self._rewards[key] = self._reward_measure.score(output, question.item) or 0.0
                except EmptyReply:
                    self._rewards[key] = 0.0
        return self._rewards[key]

    def validate(self) -> float | None:
        rewards = [self.reward(question, question.features @ self.theta) for question in self.validation]
        return -sum(rewards) / len(rewards) if rewards else None

    def state(self) -> dict[str, Any]:
        return {"done": np.array(self.done), "theta": self.theta, "moments": self.moments}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.done = int(state["done"])
        self.theta, self.moments = (np.array(state[name], np.float64) for name in ("theta", "moments"))

    def weights(self) -> dict[str, Any]:
        if not self.theta.any():
            self.notes.append("No rewriting changed the reward, so that all words count the same.")
        return {"weights": {name: float(f"{weight:.6g}") for name, weight in zip(FEATURES, self.theta, strict=True)}}

    def untrained(self) -> Operator[Query, Any]:
        search = BM25(self.group, self.top_k)
        return search if self.llm is None else search >> Reader(self.llm)

    def trained(self, weights: TrainedWeights) -> Operator[Query, Any]:
        return WeightedTerms(self.group, weights) >> self.untrained()
