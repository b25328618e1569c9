"""Fine-tuning in torch: resumable steps, MiniLM's layers, and the trainers that use them."""

from __future__ import annotations

import math
import shutil
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache, cached_property
from importlib.metadata import version
from pathlib import Path
from random import Random
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import numpy as np

from spolia.core.operator import Operator, Retriever
from spolia.core.plurals import several
from spolia.errors import DataError, WeightsError, require_extra
from spolia.flow_files.built_in_flows import bm25, hybrid
from spolia.flows.corag_classifier import corag_classifier
from spolia.models.local.address import (
    CHECKPOINT,
    content_of,
    folder_of,
    load_tokenizer,
    replace_surrogates,
    transformers,
)
from spolia.models.local.embedders import LocalCrossEncoder
from spolia.models.onnx import safetensors
from spolia.models.onnx.minilm import MiniLM
from spolia.models.onnx.tokenizer import WordPiece
from spolia.models.onnx.tuned_minilm import HEAD_OF_SCORE, THRESHOLD, MiniLMScorer, TunedMiniLM, join_pair
from spolia.models.onnx.weights import SHA256, find
from spolia.models.protocols import Embedder, Scorer
from spolia.models.trained_weights import EMBEDDER, RERANKER, SUFFICIENCY, TrainedWeights
from spolia.post_retrieval.rerankers import CrossEncoder
from spolia.retrieval.dense import Dense
from spolia.stores.corpus import NodeGroup
from spolia.training.classifier import LabelledText
from spolia.training.flow_classifiers import search_with_gold
from spolia.training.query_adapter import AdapterRows, Teacher, gold_nodes, holds_answer, may_answer, require_rows
from spolia.training.sufficiency import SufficiencyTrainer, choose_threshold, prefixes_of
from spolia.types import Answer, Item, Query, Ranking, Value

with require_extra("local", "torch", "Fine-tuning"):
    import torch
    from torch import Tensor
    from torch.nn import functional

WIDTH = MiniLM.dimension
HEADS = 12
EPSILON = 1e-12
MOMENTS = ("exp_avg", "exp_avg_sq")
VALIDATED = 64
"""Examples of the validation curve, at most."""
B = TypeVar("B")


@dataclass(frozen=True)
class TorchRecipe(Value):
    """Hyperparameters of a fine-tuning.

    Args:
        window: tokens that it reads together.
        batch: examples of a step.
        rate: AdamW's, which rises for `warm_up` steps and then falls to 0: on a line, or along a `cosine`.
        head_rate: that of the new last layer.
        warm_up: steps; below 1, a share of all steps.
        clip: largest norm of a step's gradient.
        cosine: how the rate falls.
        low_precision: matrix products in bfloat16, about 1.5 times as fast where the processor has it.
    """

    window: int = 128
    batch: int = 16
    rate: float = 1e-4
    head_rate: float = 1e-3
    warm_up: float = 60
    clip: float = 1.0
    cosine: bool = False
    low_precision: bool = True


class FineTuning(ABC, Generic[B]):
    """Base of trainers whose step is one of AdamW on a loss of torch.

    A subclass prepares its examples, calls `start` with the tensors, and writes `batch` and `loss`.
    """

    converged: ClassVar[bool] = False
    steps: int

    def __init__(self, recipe: TorchRecipe) -> None:
        self.recipe = recipe
        self.notes: list[str] = []

    def start(self, learned: Mapping[str, Tensor], head: str, seed: int) -> None:
        """Begin with these tensors; those of the new layer, whose names begin with `head`, learn faster."""
        self.learned, self.seed, self.done = dict(learned), seed, 0
        groups = [
            {"params": [entry for name, entry in self.learned.items() if self._is_new(name, head) is new], "lr": 0.0}
            for new in (True, False)
        ]
        self.optimizer = torch.optim.AdamW([entry for entry in groups if entry["params"]], weight_decay=0.01)
        self.rates = [
            rate
            for rate, entry in zip((self.recipe.head_rate, self.recipe.rate), groups, strict=True)
            if entry["params"]
        ]

    @staticmethod
    def _is_new(name: str, head: str) -> bool:
        return bool(head) and name.startswith(head)

    @abstractmethod
    def batch(self) -> B:
        """Return the examples of step number `done`."""

    @abstractmethod
    def loss(self, batch: B) -> Tensor:
        """Return the mean loss of a batch."""

    def validation_batches(self) -> Sequence[B]:
        """Return the validation questions in batches."""
        return ()

    def step(self, done: float) -> float:
        torch.set_num_threads(1)  # the order of additions, and so the weights, do not depend on the machine's cores
        torch.manual_seed(self.seed * 1_000_003 + self.done)  # dropout, the same after a kill
        recipe = self.recipe
        rising = recipe.warm_up if recipe.warm_up >= 1 else recipe.warm_up * self.steps
        falling = (1 + math.cos(math.pi * done)) / 2 if recipe.cosine else 1 - done
        for group, rate in zip(self.optimizer.param_groups, self.rates, strict=True):
            group["lr"] = rate * min(1.0, (self.done + 1) / max(1.0, rising)) * falling
        loss = self.loss(self.batch())
        self.optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.learned.values(), recipe.clip)
        self.optimizer.step()
        self.done += 1
        return float(loss.detach())

    def validate(self) -> float | None:
        batches = self.validation_batches()
        with torch.no_grad():
            total = sum(float(self.loss(batch)) * len(batch) for batch in batches)  # type: ignore[arg-type]
        return total / sum(map(len, batches)) if batches else None  # type: ignore[arg-type]

    def state(self) -> dict[str, Any]:
        """Return the learned tensors with AdamW's two moments of each."""
        state: dict[str, Any] = {"done": np.array(self.done)}
        for name, tensor in self.learned.items():
            moments = self.optimizer.state.get(tensor, {})  # empty before the first step
            parts = {"": tensor, **{f"{key}/": moments[key] for key in MOMENTS if key in moments}}
            state.update({f"{key}{name}": part.detach().cpu().numpy() for key, part in parts.items()})
        return state

    def restore(self, state: Mapping[str, Any]) -> None:
        self.done = int(state["done"])
        self.optimizer.state.clear()
        for name, tensor in self.learned.items():
            with torch.no_grad():
                tensor.copy_(torch.tensor(state[name]))
            if f"{MOMENTS[0]}/{name}" in state:
                moments = {key: torch.tensor(state[f"{key}/{name}"], device=tensor.device) for key in MOMENTS}
                # AdamW corrects the moments by the number of steps.
                self.optimizer.state[tensor] = {"step": torch.tensor(float(self.done)), **moments}

    def weights(self) -> dict[str, Any]:
        return {name: tensor.detach().cpu().numpy() for name, tensor in self.learned.items()}


class MiniLMTrainer(FineTuning[B]):
    """Base of trainers of MiniLM's layers, with a linear layer `head` on top; the embeddings of words stay."""

    head: ClassVar[str] = ""
    outputs: ClassVar[int] = 0

    def __init__(self, recipe: TorchRecipe, base: str = "") -> None:
        super().__init__(recipe)
        self.base = base

    def settings(self) -> dict[str, Any]:
        return {**asdict(self.recipe), "base": SHA256, "torch": version("torch")}

    @cached_property
    def read(self) -> Any:
        return cache(WordPiece(self.base).read)  # each epoch reads the same texts

    def load_tensors(self, seed: int) -> None:
        self.weights_by_name = copy_trainable(safetensors.read(find(self.base).tensors))
        if self.head:
            draw = torch.Generator().manual_seed(seed)
            # BERT begins with this deviation, too.
            new_layer = (torch.randn(self.outputs, WIDTH, generator=draw) * 0.02).requires_grad_()
            self.weights_by_name[f"{self.head}.weight"] = new_layer
            self.weights_by_name[f"{self.head}.bias"] = torch.zeros(self.outputs, requires_grad=True)
        learned = {name: tensor for name, tensor in self.weights_by_name.items() if tensor.requires_grad}
        self.start(learned, self.head, seed)

    def vectors(self, ids: Tensor, real: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16, enabled=self.recipe.low_precision):
            tokens = token_vectors(self.weights_by_name, ids, real)
        return tokens.float()  # bfloat16 has three digits: too few for a loss

    def logits(self, ids: Tensor, real: Tensor) -> Tensor:
        """Return the outputs of the linear layer for each token."""
        return linear(self.weights_by_name, self.head, self.vectors(ids, real))

    def embed_texts(self, texts: Sequence[str]) -> Tensor:
        """Return the mean over the tokens of each text, normalised to length 1, as `MiniLM` does."""
        words = WordPiece(self.base)
        ids, real = pad_rows([words.ids(text, self.recipe.window) for text in texts])
        mean = (self.vectors(ids, real) * real[:, :, None]).sum(dim=1) / real.sum(dim=1, keepdim=True)
        return functional.normalize(mean, dim=1)


def draw_batch(count: int, size: int, done: int, seed: int) -> list[int]:
    """Return the numbers below `count` of the examples of step number `done`; each epoch has its own order.

    >>> sorted(draw_batch(5, 2, 0, 7) + draw_batch(5, 2, 1, 7) + draw_batch(5, 2, 2, 7))
    [0, 1, 2, 3, 4]
    """
    epoch, number = divmod(done, max(1, math.ceil(count / size)))
    order = list(range(count))
    Random(f"{seed}/{epoch}").shuffle(order)  # by seed and epoch alone: the same order after a kill
    return order[number * size : (number + 1) * size]


def pad_rows(rows: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
    """Pad rows of token numbers to one length; return them with a mask of the real tokens."""
    longest = max(map(len, rows))
    ids = torch.tensor([[*row, *[0] * (longest - len(row))] for row in rows])
    return ids, torch.tensor([[True] * len(row) + [False] * (longest - len(row)) for row in rows])


# MiniLM in torch: the same weights by the same names as its graph for onnxruntime.


def token_vectors(weights: Mapping[str, Tensor], ids: Tensor, mask: Tensor) -> Tensor:
    """Return one vector for each token: (batch, tokens, width). `mask` is True for tokens and False for padding.

    x_0 = LayerNorm(word[t] + position + type[0]); a = LayerNorm(x + Attention(x)); x' = LayerNorm(a + W_2 GELU(W_1 a)).

    Source: Devlin et al., "BERT", NAACL 2019.
    """
    rows = weights["embeddings.position_embeddings.weight"][: ids.shape[1]]
    kind = weights["embeddings.token_type_embeddings.weight"][0]
    x = layer_norm(weights, "embeddings.LayerNorm", weights["embeddings.word_embeddings.weight"][ids] + rows + kind)
    shift = torch.zeros(mask.shape).masked_fill(~mask, -1e4)[:, None, None, :]
    number = 0
    while f"encoder.layer.{number}.output.dense.weight" in weights:
        x = _layer(weights, f"encoder.layer.{number}", x, shift)
        number += 1
    return x


def linear(weights: Mapping[str, Tensor], name: str, x: Tensor) -> Tensor:
    return functional.linear(x, weights[f"{name}.weight"], weights[f"{name}.bias"])


def layer_norm(weights: Mapping[str, Tensor], name: str, x: Tensor) -> Tensor:
    return functional.layer_norm(x, x.shape[-1:], weights[f"{name}.weight"], weights[f"{name}.bias"], EPSILON)


def _layer(weights: Mapping[str, Tensor], name: str, x: Tensor, shift: Tensor) -> Tensor:
    """Compute one layer; `shift` is 0 for tokens and hides padding.

    Attention is written out: in bfloat16 on a CPU, the backward pass of torch's fused one takes six times as long.
    """
    q, k, v = (
        linear(weights, f"{name}.attention.self.{part}", x).unflatten(-1, (HEADS, -1)).transpose(1, 2)
        for part in ("query", "key", "value")
    )
    scores = (q * (WIDTH // HEADS) ** -0.5) @ k.transpose(-1, -2)
    mixed = ((scores + shift.to(scores.dtype)).softmax(-1) @ v).transpose(1, 2).flatten(2)
    a = layer_norm(
        weights, f"{name}.attention.output.LayerNorm", x + linear(weights, f"{name}.attention.output.dense", mixed)
    )
    wide = functional.gelu(linear(weights, f"{name}.intermediate.dense", a))
    return layer_norm(weights, f"{name}.output.LayerNorm", a + linear(weights, f"{name}.output.dense", wide))


def copy_trainable(tensors: Mapping[str, object]) -> dict[str, Tensor]:
    """Return copies of the tensors; the encoder's layers learn, the embeddings are frozen."""
    # The mean over tokens needs no pooler.
    weights = {name: torch.tensor(array) for name, array in tensors.items() if not name.startswith("pooler.")}
    for name, tensor in weights.items():
        tensor.requires_grad_(not name.startswith("embeddings."))
    return weights


# What is trained with them.


class EmbedderTrainer(MiniLMTrainer[list[int]]):
    """Trainer of the layers by which `TunedMiniLM` reads questions; the vectors of passages stay as they are.

        loss = -ln(e^(s+/τ) / (e^(s+/τ) + Σ e^(s-/τ)))

    With `gold` and `aar`, the passages of the other questions of a batch are negatives too, except those that may be
    false ones (`AdapterRows.false_negatives`).

    Args:
        teacher: which passages questions are moved to; its embedder is `MiniLM`.
        temperature: τ.
        recipe: how to train.

    Source: Karpukhin et al., "Dense passage retrieval for open-domain question answering", EMNLP 2020; see `Teacher`.
    """

    part, version, steps, measure = EMBEDDER, 3, 200, "R@5"

    def __init__(
        self,
        teacher: Teacher,
        *,
        temperature: float = 0.05,
        recipe: TorchRecipe = TorchRecipe(window=64, rate=2e-5, warm_up=0.1),
        base: str = "",
    ) -> None:
        super().__init__(recipe, base)
        self.teacher, self.temperature = teacher, temperature

    def settings(self) -> dict[str, Any]:
        return super().settings() | {"temperature": self.temperature} | self.teacher.settings()

    def prepare(self, items: Sequence[Item], validation: Sequence[Item], seed: int) -> None:
        self.rows, self.validation = require_rows(self.teacher, items), self.teacher.build_rows(validation)
        self.notes = [f"{len(self.rows.texts)} rows of {several(len(items), 'question')}."]
        self.load_tensors(seed)

    def batch(self) -> list[int]:
        return draw_batch(len(self.rows.texts), self.recipe.batch, self.done, self.seed)

    def loss(self, batch: Sequence[int]) -> Tensor:
        return self._loss(self.rows, batch)

    def validate(self) -> float | None:
        if self.validation is None:
            return None
        with torch.no_grad():
            return float(self._loss(self.validation, range(min(VALIDATED, len(self.validation.texts)))))

    def _loss(self, rows: AdapterRows, batch: Sequence[int]) -> Tensor:
        numbers, texts = list(batch), [rows.texts[number] for number in batch]
        candidates, target = (
            torch.tensor(array[numbers], dtype=torch.float32) for array in (rows.candidates, rows.target)
        )
        vectors = self.embed_texts(texts)
        scores = torch.einsum("ncd,nd->nc", candidates, vectors).masked_fill(
            ~torch.tensor(rows.is_real[numbers]), -torch.inf
        )
        if self.teacher.method in ("gold", "aar"):
            excluded = torch.tensor(rows.false_negatives(numbers))
            scores = torch.cat([scores, (vectors @ candidates[:, 0].T).masked_fill(excluded, -torch.inf)], dim=1)
            target = torch.cat([target, torch.zeros(len(numbers), len(numbers))], dim=1)
        log_chances = functional.log_softmax(scores / self.temperature, dim=1)
        if self.teacher.method != "reward":
            # For padding, 0 · -inf would be NaN.
            return functional.kl_div(log_chances.clamp(min=-1e30), target, reduction="batchmean")
        chance = log_chances.detach().exp()
        expected = (chance * target).sum(dim=1, keepdim=True)
        choice = torch.multinomial(chance, 1)
        draw_loss = -((target.gather(1, choice) - expected) * log_chances.gather(1, choice)).mean()
        return (
            draw_loss - draw_loss.detach() - expected.mean()
        )  # the value of the expected reward, the gradient of the draw

    def untrained(self) -> Operator[Query, Ranking]:
        return Dense(self.teacher.group, self.teacher.embedder)

    def trained(self, weights: TrainedWeights) -> Operator[Query, Ranking]:
        return Dense(self.teacher.group, TunedMiniLM(self.base, tuned=weights))


class Contrast(NamedTuple):
    """A question, a passage that answers it, found ones that do not, all that do, and its accepted answers."""

    question: str
    positive: str
    negatives: tuple[str, ...]
    gold: frozenset[str]
    answers: tuple[str, ...] = ()

    def is_negative(self, text: str) -> bool:
        """Return whether a passage of the batch, from any question, counts against this question."""
        return text not in self.gold and not holds_answer(self.answers, text)


class RerankerTrainer(MiniLMTrainer[list[Contrast]]):
    """Trainer of the cross-encoder `MiniLMScorer`, which ranks gold above the other passages of a search.

        loss = -ln(e^(f+) / (e^(f+) + Σ e^(f-)))     over a passage and `negatives` others, drawn from the best `depth`

    Args:
        group: with the passages.
        embedder: one that the group was built with; None to search by words alone.
        negatives: passages beside each positive one.
        depth: best passages of a question that are reranked, and that negatives are drawn from.
        recipe: how to train; a batch counts passages.
        base: folder with the weights of `MiniLM`; empty to look them up.

    A found passage that holds an accepted answer is no negative.

    Source: Nogueira and Cho, "Passage re-ranking with BERT", 2019; Gao et al., "Rethink training of BERT rerankers in
    multi-stage retrieval pipeline", ECIR 2021 (localised contrastive estimation).
    """

    part, version, steps, measure = RERANKER, 2, 300, "R@5"
    head, outputs = HEAD_OF_SCORE, 1

    def __init__(
        self,
        group: NodeGroup,
        embedder: Embedder | None = None,
        *,
        negatives: int = 3,
        depth: int = 20,
        recipe: TorchRecipe = TorchRecipe(window=192, rate=5e-5, warm_up=0.1),
        base: str = "",
    ) -> None:
        super().__init__(recipe, base)
        self.group, self.embedder, self.negatives, self.depth = group, embedder, negatives, depth

    def settings(self) -> dict[str, Any]:
        options = {"negatives": self.negatives, "depth": self.depth}
        return super().settings() | options | {"embedder": self.embedder.name if self.embedder else ""}

    def prepare(self, items: Sequence[Item], validation: Sequence[Item], seed: int) -> None:
        self.rows, self.validation = self._build_contrasts(items), self._build_contrasts(validation)[:VALIDATED]
        if not self.rows:
            raise DataError(
                f"Nothing can be learned from {several(len(items), 'question')}: none has gold and other passages "
                "beside it. Check that gold_ids name passages of this store, or give more questions."
            )
        self.notes = [f"{several(len(self.rows), 'positive passage')} of {several(len(items), 'question')}."]
        self.load_tensors(seed)

    def _build_contrasts(self, items: Sequence[Item]) -> list[Contrast]:
        contrasts = []
        for item, ranking, gold_flags in search_with_gold(items, self._search):
            gold_texts = dict.fromkeys(node.shown_text for node in gold_nodes(self.group, item))
            negatives = tuple(
                text
                for text, is_gold_hit in zip(ranking.texts, gold_flags, strict=True)
                if not is_gold_hit and text not in gold_texts and not may_answer(item, text)
            )
            contrasts += [
                Contrast(item.question, text, negatives, frozenset(gold_texts), item.answers)
                for text in gold_texts
                if negatives
            ]
        return contrasts

    def batch(self) -> list[Contrast]:
        draw = Random(f"{self.seed}/{self.done}")
        size = max(1, self.recipe.batch // (1 + self.negatives))  # a batch counts pairs of question and passage
        rows = [self.rows[number] for number in draw_batch(len(self.rows), size, self.done, self.seed)]
        return [contrast._replace(negatives=tuple(self._draw_negatives(contrast, draw))) for contrast in rows]

    def _draw_negatives(self, contrast: Contrast, draw: Random) -> list[str]:
        return draw.sample(contrast.negatives, min(self.negatives, len(contrast.negatives)))

    def validation_batches(self) -> list[list[Contrast]]:
        # The first ones, not drawn: the points of the curve must compare.
        return [[contrast._replace(negatives=contrast.negatives[: self.negatives])] for contrast in self.validation]

    def loss(self, batch: Sequence[Contrast]) -> Tensor:
        rows = [(contrast.question, text) for contrast in batch for text in (contrast.positive, *contrast.negatives)]
        sizes = [1 + len(contrast.negatives) for contrast in batch]
        parts = self.scores(rows).split(sizes)
        return -torch.stack([functional.log_softmax(part, dim=0)[0] for part in parts]).mean()

    def scores(self, rows: Sequence[tuple[str, str]]) -> Tensor:
        """Return the logit of each pair of question and text."""
        ids = [join_pair(self.read(question).ids, self.read(text).ids, self.recipe.window) for question, text in rows]
        return self.logits(*pad_rows(ids))[:, 0, 0]

    def untrained(self) -> Operator[Query, Ranking]:
        return self._search

    def trained(self, weights: TrainedWeights) -> Operator[Query, Ranking]:
        return self._search >> CrossEncoder(MiniLMScorer(weights, RERANKER, self.base, self.recipe.window), top_k=10)

    @property
    def _search(self) -> Retriever:
        if self.embedder is None:
            return bm25(self.group, top_k=self.depth)
        return hybrid(self.group, self.embedder, top_k=self.depth)


PAPER = TorchRecipe(window=512, batch=8, rate=5e-5, head_rate=5e-5, warm_up=0.05, cosine=True, low_precision=False)
"""That of the CoRAG classifier: AdamW at 5e-5 along a cosine, warm-up 0.05, batches of 8, 512 tokens."""


class SufficiencyTuning(FineTuning[list[LabelledText]]):
    """Base of trainers that fine-tune a model on the rows of `SufficiencyTrainer`: question, chain so far, label.

    The threshold is chosen on the chains of the validation questions, which the model does not learn from.

    Args:
        chains: makes the chains and their rows.
        epochs: how often each row is learned from.
        recipe: how to train.

    Source: Yeom et al., "Chain of retrieval with an external sufficiency classifier", 2025: FLAN-T5-large, three epochs
    of 10,000 rows.
    """

    part, version, measure, steps = SUFFICIENCY, 5, "EM", 1

    def __init__(
        self, chains: SufficiencyTrainer, *, epochs: int = 3, recipe: TorchRecipe = PAPER, **more: Any
    ) -> None:
        super().__init__(recipe, **more)
        self.chains, self.epochs = chains, epochs

    def settings(self) -> dict[str, Any]:
        classifier_options = ("hidden", "penalty", "rate", "embedder")
        sampled = {name: value for name, value in self.chains.settings().items() if name not in classifier_options}
        return {**asdict(self.recipe), **sampled, "epochs": self.epochs, "torch": version("torch")}

    @abstractmethod
    def load_tensors(self, seed: int) -> None:
        """Load the model's tensors and start with them."""

    @abstractmethod
    def scores(self, rows: Sequence[tuple[str, str]]) -> Tensor:
        """Return the logit of "sufficient" for each question and beginning of a chain."""

    def prepare(self, items: Sequence[Item], validation: Sequence[Item], seed: int) -> None:
        self.rows, self.validation = self.chains.label_items(items, seed), self.chains.label_items(validation, seed)
        self.validation_chains = self.chains.sampled_chains(validation)
        if len({row.label for row in self.rows}) < 2:
            raise DataError(
                f"{several(len(self.rows), 'row')} of {several(len(items), 'question')} are not of both labels, so "
                "nothing can be learned. Give more questions with accepted answers."
            )
        self.steps = math.ceil(self.epochs * len(self.rows) / self.recipe.batch)
        sufficient = sum(row.label for row in self.rows)
        self.notes = [f"{several(len(self.rows), 'row')}, {sufficient} of them sufficient."]
        self.load_tensors(seed)

    def batch(self) -> list[LabelledText]:
        return [self.rows[number] for number in draw_batch(len(self.rows), self.recipe.batch, self.done, self.seed)]

    def validation_batches(self) -> list[list[LabelledText]]:
        return [
            self.validation[start : start + self.recipe.batch]
            for start in range(0, len(self.validation), self.recipe.batch)
        ]

    def loss(self, batch: Sequence[LabelledText]) -> Tensor:
        logits = self.scores([(row.question, row.text) for row in batch])
        truth = torch.tensor([float(row.label) for row in batch])
        return functional.binary_cross_entropy_with_logits(logits, truth)

    def probabilities(self, rows: Sequence[tuple[str, str]]) -> list[float]:
        """Return the probability that each chain suffices, by the present weights."""
        with torch.no_grad():
            logits = [
                self.scores(rows[start : start + self.recipe.batch]) for start in range(0, len(rows), self.recipe.batch)
            ]
        return torch.cat(logits).double().sigmoid().tolist() if logits else []

    def weights(self) -> dict[str, Any]:
        chances = [self.probabilities(prefixes_of(chain)) for chain in self.validation_chains]
        chosen = choose_threshold(self.validation_chains, chances, self.chains.most_lost)
        self.notes.append(chosen.describe(self.chains.most_lost))
        # Safetensors hold arrays alone.
        return super().weights() | {THRESHOLD: np.array([chosen.threshold], np.float32)}

    def untrained(self) -> Operator[Query, Answer]:
        return self.chains.untrained()

    def _classifier_flow(self, scorer: Scorer, threshold: float) -> Operator[Query, Answer]:
        chains = self.chains
        return corag_classifier(chains.llm, chains.search, scorer, steps=chains.chain_steps, threshold=threshold)


class MiniLMSufficiency(SufficiencyTuning, MiniLMTrainer[list[LabelledText]]):
    """Trainer of MiniLM as the classifier that ends chains: `MiniLMScorer`."""

    head, outputs = HEAD_OF_SCORE, 1

    def settings(self) -> dict[str, Any]:
        return SufficiencyTuning.settings(self) | {"base": SHA256}

    def load_tensors(self, seed: int) -> None:
        MiniLMTrainer.load_tensors(self, seed)

    def scores(self, rows: Sequence[tuple[str, str]]) -> Tensor:
        ids = [join_pair(self.read(question).ids, self.read(text).ids, self.recipe.window) for question, text in rows]
        return self.logits(*pad_rows(ids))[:, 0, 0]

    def trained(self, weights: TrainedWeights) -> Operator[Query, Answer]:
        threshold = float(weights.tensors(self.part)[THRESHOLD][0])
        return self._classifier_flow(MiniLMScorer(weights, self.part, self.base, self.recipe.window), threshold)


class CheckpointSufficiency(SufficiencyTuning):
    """Trainer of a checkpoint of transformers, an encoder or a T5, as the classifier that ends chains.

    A graphics card is used if torch finds one. The model has two classes. The folder opens as `LocalCrossEncoder`,
    whose score is ln p(sufficient).

    Args:
        model: folder of the checkpoint, such as FLAN-T5-large.
    """

    def __init__(self, chains: SufficiencyTrainer, model: str, **more: Any) -> None:
        super().__init__(chains, **more)
        folder_of(model, "")  # before a model is asked for chains
        self.model = model

    def settings(self) -> dict[str, Any]:
        return super().settings() | {"base": content_of(self.model, "") or ""}

    def load_tensors(self, seed: int) -> None:
        torch.manual_seed(seed)  # the weights of the new layer
        folder = folder_of(self.model, "")
        try:
            self.network = transformers().AutoModelForSequenceClassification.from_pretrained(
                # No code of the checkpoint runs, and nothing is downloaded.
                folder, num_labels=2, use_safetensors=True, trust_remote_code=False, local_files_only=True,
                dtype=torch.float32,
            )  # fmt: skip
        except Exception as error:  # it raises its own, torch's, safetensors' and the system's
            raise WeightsError(
                f"{folder} cannot be opened as a model of sequences ({str(error).strip().splitlines()[0]:.200}). Write "
                "a folder with config.json and *.safetensors of an encoder or a T5."
            ) from error
        self.network.to("cuda" if torch.cuda.is_available() else "cpu")
        self.tokenizer = load_tokenizer(folder)
        self.start({name: tensor for name, tensor in self.network.named_parameters() if tensor.requires_grad}, "", seed)

    def scores(self, rows: Sequence[tuple[str, str]]) -> Tensor:
        self.network.train(torch.is_grad_enabled())  # dropout only while it learns
        questions, texts = ([replace_surrogates(text) for text in column] for column in zip(*rows, strict=True))
        encoded = self.tokenizer(
            questions, texts, truncation="longest_first", max_length=self.recipe.window, padding=True,
            split_special_tokens=True, return_tensors="pt",  # text of a document cannot forge a separator
        )  # fmt: skip
        logits: Tensor = self.network(**encoded.to(self.network.device)).logits
        return (logits[:, 1] - logits[:, 0]).cpu()

    def write_extra_files(self, folder: Path, weights: Path) -> None:
        """Write the other files that transformers needs to open the folder."""
        self.network.config.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)
        checkpoint = folder / CHECKPOINT
        checkpoint.unlink(missing_ok=True)
        try:
            checkpoint.hardlink_to(weights)
        except OSError:  # a file system without links
            shutil.copyfile(weights, checkpoint)

    def trained(self, weights: TrainedWeights) -> Operator[Query, Answer]:
        threshold = float(weights.tensors(self.part)[THRESHOLD][0])
        return self._classifier_flow(
            LocalCrossEncoder(str(weights.place), window=self.recipe.window), math.log(threshold)
        )
