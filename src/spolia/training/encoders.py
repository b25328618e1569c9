"""Trains MiniLM as a bi-encoder with vectors of its own, and as the judge of which sentences a reader is shown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from spolia.core.operator import Operator, Retriever
from spolia.core.plurals import several
from spolia.core.run_context import check_cancelled
from spolia.errors import DataError, require_extra
from spolia.evaluation.measures.answers.string_match import F1
from spolia.generation.reader import Reader
from spolia.models.onnx.minilm import MiniLM
from spolia.models.onnx.tuned_minilm import HEAD_OF_SCORE, MiniLMScorer, TunedMiniLM, join_pair
from spolia.models.protocols import LanguageModel
from spolia.models.text_classifier import occurs_in
from spolia.models.trained_weights import BI_ENCODER, CONTEXT, TrainedWeights
from spolia.post_retrieval.compression import Extractive, SentenceSpan, extract, sentence_spans
from spolia.retrieval.dense import Dense, DenseInMemory
from spolia.run import Run
from spolia.stores.corpus import NodeGroup
from spolia.training.fine_tuning import Contrast, MiniLMTrainer, RerankerTrainer, TorchRecipe, padded, shuffled
from spolia.training.flow_classifiers import answered
from spolia.types import Answer, Item, Query, Ranking

with require_extra("local", "torch", "Fine-tuning"):
    import torch
    from torch import Tensor
    from torch.nn import functional

SENTENCES = 32
"""Sentences of a question that are judged, the first ones of the best passages."""
VALIDATED = 16
"""Questions of the validation curve, at most."""
OF_PASSAGES = TorchRecipe(window=128, batch=32, rate=2e-5, warm_up=0.1)
OF_SENTENCES = TorchRecipe(window=128, batch=4, rate=5e-5, warm_up=0.1)


class BiEncoderTrainer(RerankerTrainer):
    """Trains the layers by which `TunedMiniLM` reads questions and passages, which then have vectors of their own.

        loss = -ln(e^(q·p+/τ) / Σ e^(q·p/τ))     over all passages of the batch

    Hard negatives are mined with hybrid search. A passage does not count against a question if it is gold, has the text
    of one that is, or holds an accepted answer. The store stays as it is: for the score, its passages are embedded in
    memory. To use the weights, index with them.

    Args:
        group: with the vectors of MiniLM.
        embedder: where training begins.
        temperature: τ.
        negatives, depth, recipe: as for `RerankerTrainer`.

    Source: Karpukhin et al., "Dense passage retrieval for open-domain question answering", EMNLP 2020.
    """

    part, version, steps, measure = BI_ENCODER, 3, 200, "R@5"
    head, outputs = "", 0

    def __init__(
        self,
        group: NodeGroup,
        embedder: MiniLM,
        *,
        temperature: float = 0.05,
        negatives: int = 3,
        depth: int = 20,
        recipe: TorchRecipe = OF_PASSAGES,
    ) -> None:
        super().__init__(group, embedder, negatives=negatives, depth=depth, recipe=recipe, base=embedder.weights)
        self.temperature = temperature

    def settings(self) -> dict[str, Any]:
        return super().settings() | {"temperature": self.temperature}

    def prepare(self, items: Sequence[Item], validation: Sequence[Item], seed: int) -> None:
        super().prepare(items, validation, seed)
        self.notes.append(
            "Index a store with it before you use its flow: spolia index FOLDER --embedder, and its folder."
        )

    def loss(self, batch: Sequence[Contrast]) -> Tensor:
        texts = list(dict.fromkeys(text for one in batch for text in (one.positive, *one.negatives)))
        scores = self.embedded([one.question for one in batch]) @ self.embedded(texts).T
        barred = torch.tensor([[text != one.positive and not one.is_negative(text) for text in texts] for one in batch])
        wanted = torch.tensor([texts.index(one.positive) for one in batch])
        return functional.cross_entropy(scores.masked_fill(barred, -torch.inf) / self.temperature, wanted)

    def untrained(self) -> Operator[Query, Ranking]:
        return Dense(self.group, MiniLM(self.base))

    def trained(self, weights: TrainedWeights) -> Operator[Query, Ranking]:
        return Dense(self.group, TunedMiniLM(self.base, tuned=weights, part=BI_ENCODER))

    def scored(self, weights: TrainedWeights) -> Operator[Query, Ranking]:
        """As `trained`, for a group without such vectors."""
        return DenseInMemory(self.group, TunedMiniLM(self.base, tuned=weights, part=BI_ENCODER))


class ReadPassages(NamedTuple):
    """A question with the passages found, their sentences, and which of these hold an accepted answer."""

    item: Item
    found: Ranking
    spans: tuple[SentenceSpan, ...]
    holding: tuple[int, ...]


class ContextTrainer(MiniLMTrainer[list[ReadPassages]]):
    """Trains the `MiniLMScorer` by which `Extractive` chooses the sentences that a reader is shown.

    In the first steps, sentences that hold an accepted answer become likelier than the others. Then the reader's score
    is the reward: `most` sentences are drawn one after the other by p(s) ∝ e^f(s), the reader answers from them, and
    the draw becomes likelier by how much better that is than its answer from the best `most` (REINFORCE with a greedy
    baseline):

        loss = -(F1(drawn) - F1(best)) · Σ ln p(s | those drawn before)

    Args:
        llm: the reader, of which only the replies are needed.
        search: the retriever of the flow.
        most: sentences that it is shown.
        first: share of the steps before the reward.
        recipe: how to train; a batch counts questions.
        base: folder with the weights of `MiniLM`; empty to look them up.

    Source: Yang et al., "PRCA: Fitting black-box large language models for retrieval question answering via pluggable
    reward-driven contextual adapter", EMNLP 2023, whose adapter is a BART trained in the same two stages by PPO; the
    baseline as in Rennie et al., "Self-critical sequence training", CVPR 2017.
    """

    part, version, steps, measure = CONTEXT, 2, 200, "F1"
    head, outputs = HEAD_OF_SCORE, 1

    def __init__(
        self,
        llm: LanguageModel,
        search: Retriever,
        *,
        most: int = 3,
        first: float = 0.5,
        recipe: TorchRecipe = OF_SENTENCES,
        base: str = "",
    ) -> None:
        super().__init__(recipe, base)
        self.llm, self.search, self.most, self.first, self.share = llm, search, most, first, 0.0
        self._rewards: dict[tuple[str, tuple[int, ...]], float] = {}

    def settings(self) -> dict[str, Any]:
        return super().settings() | {"most": self.most, "first": self.first, "model": self.llm.name}

    def prepare(self, items: Sequence[Item], validation: Sequence[Item], seed: int) -> None:
        self.rows, self.others = self._read(items), self._read(validation)[:VALIDATED]
        if not any(one.holding for one in self.rows):
            raise DataError(
                f"Nothing can be learned from {several(len(items), 'question')}: no passage found holds an accepted "
                f"answer in one of more than {self.most} sentences. Check that answers occur in the passages."
            )
        holding = sum(bool(one.holding) for one in self.rows)
        self.notes = [f"{several(len(self.rows), 'question')}; for {holding} a sentence found holds the answer."]
        self.begin(seed)

    def _read(self, items: Sequence[Item]) -> list[ReadPassages]:
        rows = []
        for item in filter(F1().applies, items):
            check_cancelled()
            found = self.search(Query(item.question))
            spans = tuple(sentence_spans(found)[:SENTENCES])
            holding = [
                at for at, one in enumerate(spans) if any(occurs_in(said, one.of(found)) for said in item.answers)
            ]
            if len(spans) > self.most:
                rows.append(ReadPassages(item, found, spans, tuple(holding)))
        return rows

    def step(self, done: float) -> float:
        self.share = done
        return super().step(done)

    def batch(self) -> list[ReadPassages]:
        return [self.rows[at] for at in shuffled(len(self.rows), self.recipe.batch, self.done, self.seed)]

    def loss(self, batch: Sequence[ReadPassages]) -> Tensor:
        of = self._held if self.share < self.first else self._rewarded
        return torch.stack([of(one, scores) for one, scores in zip(batch, self.scores(batch), strict=True)]).mean()

    def scores(self, batch: Sequence[ReadPassages]) -> Sequence[Tensor]:
        """The logit of each sentence of each question."""
        ids = [
            join_pair(self.read(one.item.question).ids, self.read(span.of(one.found)).ids, self.recipe.window)
            for one in batch
            for span in one.spans
        ]
        found: Sequence[Tensor] = self.logits(*padded(ids))[:, 0, 0].split([len(one.spans) for one in batch])
        return found

    def _held(self, one: ReadPassages, scores: Tensor) -> Tensor:
        """-ln p(a sentence that holds the answer); 0 without any."""
        return scores.logsumexp(0) - scores[list(one.holding)].logsumexp(0) if one.holding else scores.sum() * 0

    def _rewarded(self, one: ReadPassages, scores: Tensor) -> Tensor:
        """Minus the reward of a draw; its gradient is that of REINFORCE."""
        noise = torch.rand_like(scores.detach()).clamp(1e-9, 1 - 1e-7).log().neg().log().neg()
        drawn = (scores.detach() + noise).topk(self.most).indices.tolist()
        left, chance = torch.ones_like(scores, dtype=torch.bool), scores.new_zeros(())
        for at in drawn:
            chance = chance + scores[at] - scores[left].logsumexp(0)
            left = left.clone()
            left[at] = False
        reward = self.reward(one, drawn)
        loss = -(reward - self.reward(one, self.best(scores))) * chance
        return loss - loss.detach() - reward

    def best(self, scores: Tensor) -> list[int]:
        """The sentences that `Extractive` keeps."""
        known = scores.tolist()
        return sorted(range(len(known)), key=lambda at: -known[at])[: self.most]

    def reward(self, one: ReadPassages, kept: Sequence[int]) -> float:
        """F1 of the reader's answer from these sentences; asked once for each choice."""
        key = one.item.id, tuple(sorted(kept))
        if key not in self._rewards:
            with Run.current() or Run(share=True):
                found = answered(Reader(self.llm), extract(one.found, [one.spans[at] for at in key[1]]))
            self._rewards[key] = (F1().score(found, one.item) or 0.0) if found else 0.0
        return self._rewards[key]

    def validate(self) -> float | None:
        """Minus the mean reward of the best sentences."""
        with torch.no_grad():
            rewards = [self.reward(one, self.best(self.scores([one])[0])) for one in self.others]
        return -sum(rewards) / len(rewards) if rewards else None

    def untrained(self) -> Operator[Query, Answer]:
        """As many sentences, by the words that they share with the question."""
        return self.search >> Extractive(at_least=-1.0, most=self.most) >> Reader(self.llm)

    def trained(self, weights: TrainedWeights) -> Operator[Query, Answer]:
        scorer = MiniLMScorer(weights, CONTEXT, self.base, self.recipe.window)
        return self.search >> Extractive(at_least=-1.0, most=self.most, scorer=scorer) >> Reader(self.llm)
