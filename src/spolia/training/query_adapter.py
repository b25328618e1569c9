"""Trains the adapter of an embedder's questions: to gold passages, or to those that help a language model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import fsum
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from spolia.core.operator import Operator
from spolia.core.plurals import several
from spolia.core.run_context import access, check_cancelled
from spolia.errors import DataError
from spolia.evaluation.experiment.gold_locations import gold_locations
from spolia.models.adapted_embedder import DOWN, PART, UP, AdaptedEmbedder
from spolia.models.prompting.likelihood import Continuation, Likelihood
from spolia.models.protocols import Embedder, ScoresContinuations
from spolia.models.trained_weights import TrainedWeights
from spolia.retrieval.dense import Dense
from spolia.stores.corpus import NodeGroup
from spolia.stores.snapshot.snapshot import Snapshot
from spolia.stores.vectors.search import unit
from spolia.types import Item, Node, Query, Ranking

Floats = npt.NDArray[np.float64]
DEPTH = 20
"""Passages of a question that are compared: D_q."""


class AdapterRows(NamedTuple):
    """Questions, the vectors of their candidates, and how the probability is to be spread over these.

    Fields:
        questions: float64[n, d].
        candidates: float64[n, c, d].
        target: float64[n, c]; each row adds up to 1.
    """

    questions: Floats
    candidates: Floats
    target: Floats


def spread(scores: Floats, temperature: float) -> Floats:
    """softmax(scores / temperature) of each row; a score of -inf has no part.

    >>> spread(np.array([[1.0, 1.0, -np.inf]]), 0.1).tolist()
    [[0.5, 0.5, 0.0]]
    """
    raised = np.exp((scores - scores.max(axis=1, keepdims=True)) / temperature)
    return np.asarray(raised / raised.sum(axis=1, keepdims=True), np.float64)


def divergence(scores: Floats, target: Floats, temperature: float) -> tuple[float, Floats]:
    """The mean over rows of KL(target || softmax(scores / temperature)), and its gradient by the scores.

    With all of a row's target on its one positive it is InfoNCE: -ln(e^(s+/τ) / (e^(s+/τ) + Σ e^(s-/τ))).

    >>> loss, gradient = divergence(np.array([[0.9, 0.1]]), np.array([[1.0, 0.0]]), 0.5)
    >>> round(loss, 6), gradient.round(6).tolist()  # ln(1 + e^-1.6)
    (0.183901, [[-0.335963, 0.335963]])
    """
    found = spread(scores, temperature)
    safe = np.where(target > 0, target / np.maximum(found, 1e-300), 1.0)
    loss = float((target * np.log(safe)).sum(axis=1).mean())
    return loss, (found - target) / (temperature * len(scores))


class AdapterTrainer:
    """Trains an `AdaptedEmbedder`, whose passages stay where they are.

    Without a language model, each gold passage is ranked above the nearest others (InfoNCE with mined negatives).
    With one, the probability of a passage moves to how well the model foretells the answer from it: P_LSR of a passage
    is the softmax of ln P(answer | passage, question) / β over the best passages of the question.

    Args:
        group: with the vectors of the embedder.
        llm: scores given texts; None to learn from gold passages.
        rank: of the adapter.
        temperature: τ of InfoNCE, or γ of LSR.
        beta: β of LSR.
        rate: of Adam.
        decay: λ of λ/2 · |weights|².

    Source: Shi et al., "REPLUG", NAACL 2024 (LSR); Lin et al., "RA-DIT", ICLR 2024 (the query encoder alone learns).
    """

    part, version, steps, measure = PART, 1, 100, "R@5"
    converged: ClassVar[bool] = False

    def __init__(
        self,
        group: NodeGroup,
        embedder: Embedder,
        llm: ScoresContinuations | None = None,
        *,
        rank: int = 16,
        temperature: float = 0.05,
        beta: float = 0.1,
        rate: float = 0.003,
        decay: float = 0.001,
    ) -> None:
        self.group, self.embedder, self.llm, self.rank = group, embedder, llm, rank
        self.temperature, self.beta, self.rate, self.decay = temperature, beta, rate, decay
        self.notes: list[str] = []

    def settings(self) -> dict[str, Any]:
        names = ("rank", "temperature", "beta", "rate", "decay")
        named = {"embedder": self.embedder.name, "model": self.llm.name if self.llm else ""}
        return {name: getattr(self, name) for name in names} | named

    def prepare(self, items: Sequence[Item], validation: Sequence[Item], seed: int) -> None:
        found, self.validation = self._rows(items), self._rows(validation)
        if found is None:
            raise DataError(
                f"Nothing can be learned from {several(len(items), 'question')}: none prefers one passage to another "
                f"of its best {DEPTH}. Check that gold_ids name passages of this store, or give more questions."
            )
        self.rows = found
        draw, width = np.random.default_rng(seed), self.embedder.dimension
        self.values = {DOWN: draw.normal(0, width**-0.5, (self.rank, width)), UP: np.zeros((width, self.rank))}
        self.moments = {f"{at}{name}": np.zeros_like(one) for at in (1, 2) for name, one in self.values.items()}
        self.done = 0
        self.notes = [f"{len(found.questions)} rows of {several(len(items), 'question')}."]

    def _rows(self, items: Sequence[Item]) -> AdapterRows | None:
        """A row for each gold passage; with a language model one for each question."""
        snapshot, who, name = Dense(self.group, self.embedder).snapshot(), access(), self.group.name
        places = gold_locations(items, [self.untrained()]) if items else None
        search = Dense(self.group, self.embedder, top_k=DEPTH)
        asked, every, targets = list[str](), list[Floats](), list[Floats]()
        for item in items:
            check_cancelled()
            assert places is not None
            found = search(Query(item.question))
            here = places.item(item)
            gold = [node for one in sorted(here.documents) for node in snapshot.numbered(one, name, 0, 1 << 30, who)]
            others = [hit.node for hit in found.hits if hit.node.document not in here.documents]
            if self.llm is not None:
                rows = [[hit.node for hit in found.hits]] if item.answers and len(found) > 1 else []
                said = [self._foretold(item, row) for row in rows]
            else:
                rows = [[node, *others] for node in gold if others]
                said = [np.eye(len(row))[0] for row in rows]
            for row, target in zip(rows, said, strict=True):
                asked.append(item.question)
                every.append(self._stored(snapshot, row))
                targets.append(target)
        return _padded(self.embedder.embed(asked, kind="query").astype(np.float64), every, targets) if asked else None

    def _stored(self, snapshot: Snapshot, nodes: Sequence[Node]) -> Floats:
        """The vectors of nodes, as the store has them."""
        ids = [node.id for node in nodes]
        keys = snapshot.keys_of(ids)
        places = np.searchsorted(snapshot.open.records(self.group.name).keys, [keys[id] for id in ids])
        stored = snapshot.open.stored(self.group.name, self.embedder.name)
        return np.asarray(unit(stored.at(places)), np.float64)

    def _foretold(self, item: Item, nodes: Sequence[Node]) -> Floats:
        """P_LSR: how well the model foretells the answer from each passage, in proportion."""
        assert self.llm is not None
        likelihood = Likelihood(self.llm)
        sums = [
            fsum(token.logprob for token in likelihood(Continuation.of(item.answers[0], node.text, item.question)))
            for node in nodes
        ]
        return np.asarray(spread(np.array([sums]), self.beta)[0], np.float64)

    def step(self, done: float) -> float:
        """One step of Adam."""
        loss, slopes = self.gradient(self.rows)
        self.done += 1
        for name, slope in slopes.items():
            slope = slope + self.decay * self.values[name]
            first, second = self.moments[f"1{name}"], self.moments[f"2{name}"]
            first += 0.1 * (slope - first)
            second += 0.001 * (slope**2 - second)
            size = (first / (1 - 0.9**self.done)) / (np.sqrt(second / (1 - 0.999**self.done)) + 1e-8)
            self.values[name] -= self.rate * (1 - done) * size
        return loss

    def gradient(self, rows: AdapterRows) -> tuple[float, dict[str, Floats]]:
        """The loss, and what it changes with each weight."""
        down, up = self.values[DOWN], self.values[UP]
        inner = rows.questions @ down.T
        moved = rows.questions + inner @ up.T
        length = np.linalg.norm(moved, axis=1, keepdims=True)
        there = moved / length
        scores = np.einsum("ncd,nd->nc", rows.candidates, there)
        scores = np.where(rows.candidates.any(axis=2), scores, -np.inf)
        loss, pull = divergence(scores, rows.target, self.temperature)
        by_vector = np.einsum("nc,ncd->nd", pull, rows.candidates)
        by_moved = (by_vector - (by_vector * there).sum(axis=1, keepdims=True) * there) / length
        return loss, {DOWN: (by_moved @ up).T @ rows.questions, UP: by_moved.T @ inner}

    def validate(self) -> float | None:
        return None if self.validation is None else self.gradient(self.validation)[0]

    def state(self) -> dict[str, Any]:
        return {"done": np.array(self.done), **self.values, **self.moments}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.done = int(state["done"])
        for kept in (self.values, self.moments):
            for name in kept:
                kept[name] = np.array(state[name], np.float64)

    def weights(self) -> dict[str, Any]:
        return {name: one.astype(np.float32) for name, one in self.values.items()}

    def untrained(self) -> Operator[Query, Ranking]:
        return Dense(self.group, self.embedder)

    def trained(self, weights: TrainedWeights) -> Operator[Query, Ranking]:
        return Dense(self.group, AdaptedEmbedder(self.embedder, weights))


def _padded(questions: Floats, every: Sequence[Floats], targets: Sequence[Floats]) -> AdapterRows:
    """Rows of one width: vectors of zeros stand where a question has fewer candidates."""
    widest = max(map(len, every))
    candidates, target = np.zeros((len(every), widest, questions.shape[1])), np.zeros((len(every), widest))
    for at, (vectors, spread_over) in enumerate(zip(every, targets, strict=True)):
        candidates[at, : len(vectors)], target[at, : len(vectors)] = vectors, spread_over
    return AdapterRows(questions, candidates, target)
