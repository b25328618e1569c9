"""Trains weights for the words of questions by how well the flow does with them."""

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
class WordsOfQuestion(Value):
    """A question with its gold as the store has it, its words, and float64[words, features]."""

    item: Item
    words: tuple[str, ...]
    features: Floats


class TermWeightsTrainer:
    """Trains `WeightedTerms` by REINFORCE: words weigh more if the flow scores higher when they do.

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
        self.questions, self.others = self._read(items), self._read(validation)[:VALIDATED]
        if not self.questions:
            needs = "accepted answers" if self.llm else "gold passages"
            raise DataError(
                f"Nothing can be learned from {several(len(items), 'question')}: none has {needs} and two words. "
                "Give other questions."
            )
        self.seed, self.done = seed, 0
        self.theta, self.moments = np.zeros(len(FEATURES)), np.zeros((2, len(FEATURES)))
        self.notes = [f"The reward is {self.measure}, of {several(len(self.questions), 'question')}."]

    def _read(self, items: Sequence[Item]) -> list[WordsOfQuestion]:
        asked = [item for item in items if self._scored.applies(item)]
        if not asked:
            return []
        places, snapshot, found = locate_gold(asked, [self.untrained()]), self.group.snapshot(), []
        for item in asked:
            words, seen = term_features(item.question, snapshot, self.group.name, access())
            if len(words) > 1:
                found.append(WordsOfQuestion(places.locate_item(item), tuple(words), np.array(seen)))
        return found

    @property
    def _scored(self) -> Measure:
        found = parse_measure(self.measure)
        assert isinstance(found, Measure)
        return found

    def step(self, done: float) -> float:
        """One step of Adam on the questions of a batch; minus their mean reward."""
        loss, slope = self.gradient(self._batch(), np.random.default_rng((self.seed, self.done)))
        slope = slope + self.decay * self.theta
        self.done += 1
        self.moments[0] += 0.1 * (slope - self.moments[0])
        self.moments[1] += 0.001 * (slope**2 - self.moments[1])
        size = self.moments[0] / (1 - 0.9**self.done)
        self.theta -= self.rate * (1 - done) * size / (np.sqrt(self.moments[1] / (1 - 0.999**self.done)) + 1e-8)
        return loss

    def _batch(self) -> list[WordsOfQuestion]:
        """The questions of this step: each epoch has an order of its own."""
        epoch, at = divmod(self.done, -(-len(self.questions) // self.batch))
        order = Random(f"{self.seed}/{epoch}").sample(self.questions, len(self.questions))
        return order[at * self.batch : (at + 1) * self.batch]

    def gradient(self, batch: Sequence[WordsOfQuestion], draw: np.random.Generator) -> tuple[float, Floats]:
        """Minus the mean reward, and an estimate of how that changes with θ."""
        total, slope = 0.0, np.zeros(len(FEATURES))
        for one in batch:
            check_cancelled()
            noise = draw.normal(size=len(one.words))
            mean = one.features @ self.theta
            up, down = (self.reward(one, mean + sign * self.spread * noise) for sign in (1, -1))
            total += (up + down) / 2
            slope -= (up - down) / (2 * self.spread) * (noise @ one.features)
        return -total / len(batch), slope / len(batch)

    def reward(self, one: WordsOfQuestion, logs: Floats) -> float:
        """The score of the flow with these weights (their logarithms), computed once for each rewriting."""
        text = repeat_words(one.words, logs.tolist()) or one.item.question
        key = one.item.id, text
        if key not in self._rewards:
            with Run.current() or Run(share=True):
                try:
                    found = self.untrained()(Query(text, one.item.question))
                    self._rewards[key] = self._scored.score(found, one.item) or 0.0
                except EmptyReply:
                    self._rewards[key] = 0.0
        return self._rewards[key]

    def validate(self) -> float | None:
        rewards = [self.reward(one, one.features @ self.theta) for one in self.others]
        return -sum(rewards) / len(rewards) if rewards else None

    def state(self) -> dict[str, Any]:
        return {"done": np.array(self.done), "theta": self.theta, "moments": self.moments}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.done = int(state["done"])
        self.theta, self.moments = (np.array(state[name], np.float64) for name in ("theta", "moments"))

    def weights(self) -> dict[str, Any]:
        if not self.theta.any():
            self.notes.append("No rewriting changed the reward, so that all words count the same.")
        return {"weights": {name: float(f"{one:.6g}") for name, one in zip(FEATURES, self.theta, strict=True)}}

    def untrained(self) -> Operator[Query, Any]:
        search = BM25(self.group, self.top_k)
        return search if self.llm is None else search >> Reader(self.llm)

    def trained(self, weights: TrainedWeights) -> Operator[Query, Any]:
        return WeightedTerms(self.group, weights) >> self.untrained()
