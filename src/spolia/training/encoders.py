"""Trainers of MiniLM as a bi-encoder with its own vectors, and as the judge of the sentences that a reader gets."""

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
from spolia.post_retrieval.compression import Extractive, SentenceSpan, find_sentences, keep_sentences
from spolia.retrieval.dense import Dense, DenseInMemory
from spolia.run import Run
from spolia.stores.corpus import NodeGroup
from spolia.training.fine_tuning import Contrast, MiniLMTrainer, RerankerTrainer, TorchRecipe, draw_batch, pad_rows
from spolia.training.flow_classifiers import try_answer
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
    """Trainer of the layers by which `TunedMiniLM` reads questions and passages; both get new vectors.

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
        texts = list(dict.fromkeys(text for example in batch for text in (example.positive, *example.negatives)))
        scores = self.embed_texts([example.question for example in batch]) @ self.embed_texts(texts).T
        excluded = torch.tensor(
            [[text != example.positive and not example.is_negative(text) for text in texts] for example in batch]
        )
        targets = torch.tensor([texts.index(example.positive) for example in batch])
        return functional.cross_entropy(scores.masked_fill(excluded, -torch.inf) / self.temperature, targets)

    def untrained(self) -> Operator[Query, Ranking]:
        return Dense(self.group, MiniLM(self.base))

    def trained(self, weights: TrainedWeights) -> Operator[Query, Ranking]:
        return Dense(self.group, TunedMiniLM(self.base, tuned=weights, part=BI_ENCODER))

    def scored_flow(self, weights: TrainedWeights) -> Operator[Query, Ranking]:
        """Return the flow for a group without such vectors; it embeds the passages in memory."""
        return DenseInMemory(self.group, TunedMiniLM(self.base, tuned=weights, part=BI_ENCODER))


class ReadPassages(NamedTuple):
    """A question with its ranking, the sentences of the passages, and the sentences that hold an accepted answer."""

    item: Item
    ranking: Ranking
    spans: tuple[SentenceSpan, ...]
    holding: tuple[int, ...]


class ContextTrainer(MiniLMTrainer[list[ReadPassages]]):
    """Trainer of the `MiniLMScorer` by which `Extractive` chooses the sentences that a reader gets.

    In the first steps, sentences that hold an accepted answer become likelier than the others. Then the reader's score
    is the reward: `max_sentences` sentences are drawn one after the other by p(s) ∝ e^f(s), the reader answers from
    them, and the draw becomes likelier by how much better that is than its answer from the best `max_sentences`
    (REINFORCE with a greedy baseline):

        loss = -(F1(drawn) - F1(best)) · Σ ln p(s | those drawn before)

    Args:
        llm: the reader, of which only the replies are needed.
        search: the retriever of the flow.
        max_sentences: sentences that it is shown.
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
        max_sentences: int = 3,
        first: float = 0.5,
        recipe: TorchRecipe = OF_SENTENCES,
        base: str = "",
    ) -> None:
        super().__init__(recipe, base)
        self.llm, self.search, self.max_sentences, self.first, self.share = llm, search, max_sentences, first, 0.0
        self._rewards: dict[tuple[str, tuple[int, ...]], float] = {}

    def settings(self) -> dict[str, Any]:
        return super().settings() | {"most": self.max_sentences, "first": self.first, "model": self.llm.name}

    def prepare(self, items: Sequence[Item], validation: Sequence[Item], seed: int) -> None:
        self.rows, self.validation = self._read_passages(items), self._read_passages(validation)[:VALIDATED]
        if not any(row.holding for row in self.rows):
            raise DataError(
                f"Nothing can be learned from {several(len(items), 'question')}: no passage found holds an accepted "
                f"answer in one of more than {self.max_sentences} sentences. Check that answers occur in the passages."
            )
        holding = sum(bool(row.holding) for row in self.rows)
        self.notes = [f"{several(len(self.rows), 'question')}; for {holding} a sentence found holds the answer."]
        self.load_tensors(seed)

    def _read_passages(self, items: Sequence[Item]) -> list[ReadPassages]:
        rows = []
        for item in filter(F1().applies, items):
            check_cancelled()
            ranking = self.search(Query(item.question))
            spans = tuple(find_sentences(ranking)[:SENTENCES])
            holding = [
                number
                for number, span in enumerate(spans)
                if any(occurs_in(answer, span.text_in(ranking)) for answer in item.answers)
            ]
            if len(spans) > self.max_sentences:
                rows.append(ReadPassages(item, ranking, spans, tuple(holding)))
        return rows

    def step(self, done: float) -> float:
        self.share = done
        return super().step(done)

    def batch(self) -> list[ReadPassages]:
        return [self.rows[number] for number in draw_batch(len(self.rows), self.recipe.batch, self.done, self.seed)]

    def loss(self, batch: Sequence[ReadPassages]) -> Tensor:
        row_loss = self._likelihood_loss if self.share < self.first else self._reward_loss
        return torch.stack(
            [row_loss(row, scores) for row, scores in zip(batch, self.scores(batch), strict=True)]
        ).mean()

    def scores(self, batch: Sequence[ReadPassages]) -> Sequence[Tensor]:
        """Return the logits of the sentences of each question."""
        ids = [
            join_pair(self.read(row.item.question).ids, self.read(span.text_in(row.ranking)).ids, self.recipe.window)
            for row in batch
            for span in row.spans
        ]
        logits: Sequence[Tensor] = self.logits(*pad_rows(ids))[:, 0, 0].split([len(row.spans) for row in batch])
        return logits

    def _likelihood_loss(self, row: ReadPassages, scores: Tensor) -> Tensor:
        """Return -ln p(a sentence that holds the answer); 0 if no sentence does."""
        # 0, but torch can compute a gradient from it.
        return scores.logsumexp(0) - scores[list(row.holding)].logsumexp(0) if row.holding else scores.sum() * 0

    def _reward_loss(self, row: ReadPassages, scores: Tensor) -> Tensor:
        """Return minus the reward of a draw, with the gradient of REINFORCE."""
        # Gumbel noise: the highest sums are a draw without replacement by softmax. The clamp avoids ln 0.
        noise = torch.rand_like(scores.detach()).clamp(1e-9, 1 - 1e-7).log().neg().log().neg()
        sample = (scores.detach() + noise).topk(self.max_sentences).indices.tolist()
        left, chance = torch.ones_like(scores, dtype=torch.bool), scores.new_zeros(())
        for sentence in sample:
            chance = chance + scores[sentence] - scores[left].logsumexp(0)
            left = left.clone()  # a copy: the backward pass needs the mask as it was
            left[sentence] = False
        reward = self.reward(row, sample)
        loss = -(reward - self.reward(row, self.best_sentences(scores))) * chance
        return loss - loss.detach() - reward  # the value is minus the reward, the gradient that of REINFORCE

    def best_sentences(self, scores: Tensor) -> list[int]:
        """Return the sentences that `Extractive` keeps."""
        values = scores.tolist()
        return sorted(range(len(values)), key=lambda sentence: -values[sentence])[: self.max_sentences]

    def reward(self, row: ReadPassages, sentences: Sequence[int]) -> float:
        """Return F1 of the reader's answer from these sentences; the reader answers each choice once."""
        key = row.item.id, tuple(sorted(sentences))  # the same sentences, in whatever order they were drawn
        if key not in self._rewards:
            with Run.current() or Run(share=True):
                answer = try_answer(
                    Reader(self.llm), keep_sentences(row.ranking, [row.spans[sentence] for sentence in key[1]])
                )
            self._rewards[key] = (F1().score(answer, row.item) or 0.0) if answer else 0.0
        return self._rewards[key]

    def validate(self) -> float | None:
        """Return minus the mean reward of the best sentences."""
        with torch.no_grad():
            rewards = [self.reward(row, self.best_sentences(self.scores([row])[0])) for row in self.validation]
        return -sum(rewards) / len(rewards) if rewards else None

    def untrained(self) -> Operator[Query, Answer]:
        """Build the flow that keeps as many sentences, by the words that they share with the question."""
        return self.search >> Extractive(at_least=-1.0, most=self.max_sentences) >> Reader(self.llm)

    def trained(self, weights: TrainedWeights) -> Operator[Query, Answer]:
        scorer = MiniLMScorer(weights, CONTEXT, self.base, self.recipe.window)
        return self.search >> Extractive(at_least=-1.0, most=self.max_sentences, scorer=scorer) >> Reader(self.llm)
