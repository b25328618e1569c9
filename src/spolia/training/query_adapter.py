"""Trains the adapter of an embedder's questions: to gold passages, or to those that help a language model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import fsum
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from spolia.core.operator import Operator
from spolia.core.plurals import several
from spolia.core.run_context import access, check_cancelled
from spolia.errors import DataError
from spolia.evaluation.experiment.gold_locations import is_gold, locate_gold
from spolia.evaluation.measures.answers.string_match import F1
from spolia.generation.reader import Reader
from spolia.models.adapted_embedder import DOWN, PART, UP, AdaptedEmbedder
from spolia.models.prompting.likelihood import Continuation, Likelihood
from spolia.models.protocols import Embedder, LanguageModel, ScoresContinuations
from spolia.models.text_classifier import occurs_in
from spolia.models.trained_weights import TrainedWeights
from spolia.retrieval.dense import Dense
from spolia.run import Run
from spolia.stores.corpus import NodeGroup
from spolia.stores.snapshot.snapshot import Snapshot
from spolia.stores.vectors.search import unit_rows
from spolia.training.flow_classifiers import answered
from spolia.types import Hit, Item, Node, Query, Ranking, Value

Floats = npt.NDArray[np.float64]
SHORT = 3
"""Characters of an answer that occurs anywhere, as `yes`."""
DEPTH = 20
"""Passages of a question that are compared: D_q."""


class AdapterRows(NamedTuple):
    """Questions, the vectors of their candidates, and how the probability is to be spread over these.

    Fields:
        questions: float64[n, d].
        candidates: float64[n, c, d]; zeros where a question has fewer.
        target: float64[n, c]; each row adds up to 1, or holds rewards.
        texts: of the questions.
        positives: text of the first candidate, towards which the question is moved.
        good: for each question the texts of all such passages.
        answers: of each question.
    """

    questions: Floats
    candidates: Floats
    target: Floats
    texts: Sequence[str] = ()
    positives: Sequence[str] = ()
    good: Sequence[frozenset[str]] = ()
    answers: Sequence[tuple[str, ...]] = ()

    def false_negatives(self, batch: Sequence[int]) -> npt.NDArray[np.bool_]:
        """Return bool[n, n]: where the positive of one row of a batch is no negative for the question of another, since
        it may answer that too, or the embedder puts it above the question's own positive.

        Source: Solatorio, "GISTEmbed", 2024, whose guide is the embedder as it was before the training.
        """
        at = list(batch)
        own = np.einsum("nd,nd->n", self.questions[at], self.candidates[at, 0])
        barred = self.questions[at] @ self.candidates[at, 0].T > own[:, None]
        for row, number in enumerate(at):
            for column, other in enumerate(at):
                text = self.positives[other]
                barred[row, column] |= text in self.good[number] or holds_answer(self.answers[number], text)
        return np.asarray(barred)

    @property
    def real(self) -> npt.NDArray[np.bool_]:
        """Where there is a candidate."""
        return np.asarray(self.candidates.any(axis=2))


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


@dataclass(frozen=True)
class Teacher(Value):
    """Which passages a question is moved to, of the best `DEPTH` of an embedder.

    - `gold`: each gold passage, above the nearest others (InfoNCE with mined negatives).
    - `lsr`: all, in proportion to how well a language model foretells the answer from each:
      P_LSR ∝ exp(ln P(answer | passage, question) / β).
    - `aar`: each gold passage, and the `preferred` ones from which the model foretells the answer best.
    - `reward`: passages are drawn, and those become likelier from which the model answers better than from a mean one:
      REINFORCE, with F1 of its answer as the reward and the mean reward of the question as the baseline.

    Args:
        group: with the vectors of the embedder.
        llm: the model that the passages are for; `gold` needs none.
        method: one of these four.
        beta: β of `lsr`.
        preferred: passages, with `aar`.

    Source: Karpukhin et al., "Dense passage retrieval", EMNLP 2020 (gold); Shi et al., "REPLUG", NAACL 2024, and Lin et
    al., "RA-DIT", ICLR 2024 (lsr); Yu et al., "Augmentation-adapted retriever", ACL 2023 (aar; its model, an
    encoder-decoder, prefers by cross-attention); Williams, "Simple statistical gradient-following algorithms", 1992.
    """

    group: NodeGroup
    embedder: Embedder
    llm: LanguageModel | None = None
    method: str = "gold"
    beta: float = 0.1
    preferred: int = 2

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise DataError(f"There is no method {self.method!r}. Write one of: {', '.join(METHODS)}.")
        needed = METHODS[self.method]
        if needed is not None and not isinstance(self.llm, needed):
            what = "a language model that scores texts" if needed is ScoresContinuations else "a language model"
            raise DataError(f"{self.method} needs {what}. Name it: --llm URL --model NAME; {self.method} asks it.")

    def settings(self) -> dict[str, Any]:
        model = self.llm.name if self.llm is not None and METHODS[self.method] else ""
        own = {"beta": self.beta} if self.method == "lsr" else {}
        own |= {"preferred": self.preferred} if self.method == "aar" else {}
        return {"method": self.method, "embedder": self.embedder.name, "model": model, **own}

    def rows(self, items: Sequence[Item]) -> AdapterRows | None:
        """A row for each passage to move to; one for each question with `lsr` and `reward`. None without any."""
        snapshot = Dense(self.group, self.embedder).snapshot()
        search = Dense(self.group, self.embedder, top_k=DEPTH)
        places = locate_gold(items, [search]) if items else None
        asked, every, targets = list[Item](), list[Floats](), list[Floats]()
        positives, good = list[str](), list[frozenset[str]]()
        for item in items:
            check_cancelled()
            assert places is not None
            found, here = search(Query(item.question)), places.locate_item(item)
            gold = gold_nodes(self.group, here)
            taught = list(self._taught(item, found.nodes, gold))
            texts = frozenset(nodes[0].text for nodes, _ in taught) | {node.text for node in gold}
            for nodes, target in taught:
                asked.append(item)
                positives.append(nodes[0].text)
                good.append(texts)
                every.append(self._stored(snapshot, nodes))
                targets.append(target)
        if not asked:
            return None
        questions = [item.question for item in asked]
        rows = _padded(self.embedder.embed(questions, kind="query").astype(np.float64), every, targets)
        return rows._replace(texts=questions, positives=positives, good=good, answers=[item.answers for item in asked])

    def _taught(
        self, item: Item, found: Sequence[Node], gold: Sequence[Node]
    ) -> Iterator[tuple[Sequence[Node], Floats]]:
        """Candidates of a question, and the target of each."""
        if self.method in ("lsr", "reward"):
            if item.answers and len(found) > 1:
                of = self._foretold if self.method == "lsr" else self._rewards
                yield found, of(item, found)
            return
        wanted = list(gold)
        if self.method == "aar" and item.answers and len(found) > 1:
            order = np.argsort(-self._foretold(item, found), kind="stable")[: self.preferred]
            wanted += [found[at] for at in order if found[at].document not in {node.document for node in gold}]
        ids, texts = {node.document for node in wanted}, {node.text for node in wanted}
        others = [
            node
            for node in found
            if node.document not in ids and node.text not in texts and not may_answer(item, node.text)
        ]
        for node in wanted if others else ():
            yield [node, *others], np.eye(1 + len(others))[0]

    def _stored(self, snapshot: Snapshot, nodes: Sequence[Node]) -> Floats:
        """The vectors of nodes, as the store has them."""
        ids = [node.id for node in nodes]
        keys = snapshot.keys_of(ids)
        places = np.searchsorted(snapshot.open.records(self.group.name).keys, [keys[id] for id in ids])
        stored = snapshot.open.stored_vectors(self.group.name, self.embedder.name)
        return np.asarray(unit_rows(stored.vectors_at(places)), np.float64)

    def _foretold(self, item: Item, nodes: Sequence[Node]) -> Floats:
        """P_LSR: how well the model foretells the answer from each passage, in proportion."""
        assert isinstance(self.llm, ScoresContinuations)
        likelihood = Likelihood(self.llm)
        sums = [
            fsum(
                token.logprob
                for token in likelihood(Continuation.from_texts(item.answers[0], node.text, item.question))
            )
            for node in nodes
        ]
        return np.asarray(spread(np.array([sums]), self.beta)[0], np.float64)

    def _rewards(self, item: Item, nodes: Sequence[Node]) -> Floats:
        """F1 of what the model answers from each passage alone."""
        assert self.llm is not None
        read, query = Reader(self.llm, max_passages=1), Query(item.question)
        with Run.current() or Run(share=True):
            answers = [answered(read, Ranking(query, (Hit(node, 1.0),))) for node in nodes]
        return np.array([(F1().score(one, item) or 0.0) if one else 0.0 for one in answers])

    def loss(
        self, scores: Floats, target: Floats, temperature: float, draw: np.random.Generator
    ) -> tuple[float, Floats]:
        """How far the scores of candidates are from what is taught, and the gradient by the scores."""
        if self.method == "reward":
            return reinforce(scores, target, temperature, draw)
        return divergence(scores, target, temperature)


def gold_nodes(group: NodeGroup, item: Item) -> list[Node]:
    """The gold nodes of a question whose places are known (`gold_locations`).

    Of a document that is gold as a whole, those with an accepted answer; all of them if none has one.
    """
    snapshot, who, found = group.snapshot(), access(), list[Node]()
    every = [one for places in item.gold for one in places]
    for document in sorted(item.documents):
        nodes = snapshot.numbered_nodes(document, group.name, 0, 1 << 30, who)
        gold = [node for node in nodes if any(is_gold(node, one) for one in every)]
        found += [node for node in gold if may_answer(item, node.text)] or gold
    return found


def may_answer(item: Item, text: str) -> bool:
    """Whether an accepted answer of more than three characters occurs in a text, which is then no negative.

    Source: Karpukhin et al., "Dense passage retrieval", EMNLP 2020: negatives lack the answer.

    >>> item = Item("q", "Who employed Olsen?", ("Nokia", "no"))
    >>> may_answer(item, "Olsen left Nokia."), may_answer(item, "There is no such person.")
    (True, False)
    """
    return holds_answer(item.answers, text)


def holds_answer(answers: Iterable[str], text: str) -> bool:
    """Return whether an answer of more than three characters occurs in a text."""
    return any(len(answer) > SHORT and occurs_in(answer, text) for answer in answers)


METHODS: Mapping[str, type | None] = {
    "gold": None,
    "lsr": ScoresContinuations,
    "aar": ScoresContinuations,
    "reward": LanguageModel,
}
"""How a retriever is taught, and what it takes of a language model."""


def reinforce(scores: Floats, rewards: Floats, temperature: float, draw: np.random.Generator) -> tuple[float, Floats]:
    """Minus the expected reward of a passage drawn by softmax(scores / temperature), and a draw of its gradient.

    The gradient of a row is -(r(d) - b) · ∂ ln p(d) / ∂ scores: d is drawn, and the baseline b = Σ p · r changes only
    how much the draws differ.

    Source: Williams, "Simple statistical gradient-following algorithms for connectionist reinforcement learning", 1992.

    >>> both = np.array([[0.1, 0.1]]), np.array([[1.0, 0.0]])
    >>> loss, gradient = reinforce(*both, 0.5, np.random.default_rng(0))
    >>> loss, gradient.tolist()  # whichever is drawn, the first becomes likelier
    (-0.5, [[-0.5, 0.5]])
    """
    chance = spread(scores, temperature)
    expected = (chance * rewards).sum(axis=1)
    taken = (chance.cumsum(axis=1) < draw.random((len(chance), 1))).sum(axis=1).clip(max=chance.shape[1] - 1)
    rows = np.arange(len(chance))
    one = np.zeros_like(chance)
    one[rows, taken] = 1.0
    gain = (rewards[rows, taken] - expected)[:, None]
    return float(-expected.mean()), -gain * (one - chance) / (temperature * len(chance))


class AdapterTrainer:
    """Trains an `AdaptedEmbedder`: a low-rank change of the vectors of questions, whose passages stay where they are.

    Args:
        teacher: which passages questions are moved to.
        rank: of the adapter.
        temperature: τ of InfoNCE, or γ of LSR.
        rate: of Adam.
        decay: λ of λ/2 · |weights|².

    Source: query-side adaptation as in Gao et al., "Modular RAG", 2024; see `Teacher`.
    """

    part, version, steps, measure = PART, 2, 100, "R@5"
    converged: ClassVar[bool] = False

    def __init__(
        self,
        teacher: Teacher,
        *,
        rank: int = 16,
        temperature: float = 0.05,
        rate: float = 0.003,
        decay: float = 0.001,
    ) -> None:
        self.teacher, self.group, self.embedder, self.seed, self.done = teacher, teacher.group, teacher.embedder, 0, 0
        self.rank, self.temperature, self.rate, self.decay = rank, temperature, rate, decay
        self.notes: list[str] = []

    def settings(self) -> dict[str, Any]:
        names = ("rank", "temperature", "rate", "decay")
        return {name: getattr(self, name) for name in names} | self.teacher.settings()

    def prepare(self, items: Sequence[Item], validation: Sequence[Item], seed: int) -> None:
        self.rows, self.validation = taught(self.teacher, items), self.teacher.rows(validation)
        draw, width = np.random.default_rng(seed), self.embedder.dimension
        self.values = {DOWN: draw.normal(0, width**-0.5, (self.rank, width)), UP: np.zeros((width, self.rank))}
        self.moments = {f"{at}{name}": np.zeros_like(one) for at in (1, 2) for name, one in self.values.items()}
        self.done, self.seed = 0, seed
        self.notes = [f"{len(self.rows.questions)} rows of {several(len(items), 'question')}."]

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
        scores = np.where(rows.real, scores, -np.inf)
        draw = np.random.default_rng((self.seed, self.done))
        loss, pull = self.teacher.loss(scores, rows.target, self.temperature, draw)
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


def taught(teacher: Teacher, items: Sequence[Item]) -> AdapterRows:
    """The rows of questions; DataError if no row prefers one passage to another."""
    found = teacher.rows(items)
    if found is None or not any(len(set(row[real])) > 1 for row, real in zip(found.target, found.real, strict=True)):
        raise DataError(
            f"Nothing can be learned from {several(len(items), 'question')}: none prefers one passage to another "
            f"of its best {DEPTH}. Check that gold_ids name passages of this store, or give more questions."
        )
    return found


def _padded(questions: Floats, every: Sequence[Floats], targets: Sequence[Floats]) -> AdapterRows:
    """Rows of one width: vectors of zeros stand where a question has fewer candidates."""
    widest = max(map(len, every))
    candidates, target = np.zeros((len(every), widest, questions.shape[1])), np.zeros((len(every), widest))
    for at, (vectors, spread_over) in enumerate(zip(every, targets, strict=True)):
        candidates[at, : len(vectors)], target[at, : len(vectors)] = vectors, spread_over
    return AdapterRows(questions, candidates, target)
