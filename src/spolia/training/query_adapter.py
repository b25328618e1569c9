"""Trainer of the adapter of an embedder's questions: to gold passages, or to those that help a language model."""

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
from spolia.training.flow_classifiers import try_answer
from spolia.types import Hit, Item, Node, Query, Ranking, Value

Floats = npt.NDArray[np.float64]
SHORT = 3
"""Characters of an answer that occurs anywhere, as `yes`."""
DEPTH = 20
"""Passages of a question that are compared: D_q."""


class AdapterRows(NamedTuple):
    """Questions, the vectors of their candidates, and the target distribution over the candidates.

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
        """Return bool[n, n]: True where the positive of one row is no negative for another row's question, because it
        may answer that too, or the embedder puts it above the question's own positive.

        Source: Solatorio, "GISTEmbed", 2024, whose guide is the embedder as it was before the training.
        """
        numbers = list(batch)
        own_scores = np.einsum("nd,nd->n", self.questions[numbers], self.candidates[numbers, 0])
        is_excluded = self.questions[numbers] @ self.candidates[numbers, 0].T > own_scores[:, None]
        for row, number in enumerate(numbers):
            for column, other_number in enumerate(numbers):
                text = self.positives[other_number]
                is_excluded[row, column] |= text in self.good[number] or holds_answer(self.answers[number], text)
        return np.asarray(is_excluded)

    @property
    def is_real(self) -> npt.NDArray[np.bool_]:
        """Return where a candidate stands, and no padding."""
        return np.asarray(self.candidates.any(axis=2))


def softmax(scores: Floats, temperature: float) -> Floats:
    """Return softmax(scores / temperature) of each row; a score of -inf gets 0.

    >>> softmax(np.array([[1.0, 1.0, -np.inf]]), 0.1).tolist()
    [[0.5, 0.5, 0.0]]
    """
    # Less the maximum, so that no power overflows.
    raised = np.exp((scores - scores.max(axis=1, keepdims=True)) / temperature)
    return np.asarray(raised / raised.sum(axis=1, keepdims=True), np.float64)


def divergence(scores: Floats, target: Floats, temperature: float) -> tuple[float, Floats]:
    """Return the mean over rows of KL(target || softmax(scores / temperature)), and its gradient by the scores.

    With all of a row's target on its one positive it is InfoNCE: -ln(e^(s+/τ) / (e^(s+/τ) + Σ e^(s-/τ))).

    >>> loss, gradient = divergence(np.array([[0.9, 0.1]]), np.array([[1.0, 0.0]]), 0.5)
    >>> round(loss, 6), gradient.round(6).tolist()  # ln(1 + e^-1.6)
    (0.183901, [[-0.335963, 0.335963]])
    """
    chances = softmax(scores, temperature)
    # 1 where the target is 0: 0 · ln 0 counts as 0.
    ratios = np.where(target > 0, target / np.maximum(chances, 1e-300), 1.0)
    loss = float((target * np.log(ratios)).sum(axis=1).mean())
    return loss, (chances - target) / (temperature * len(scores))


@dataclass(frozen=True)
class Teacher(Value):
    """Choice of the passages to move a question to, of the best `DEPTH` of an embedder.

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
        protocol = METHODS[self.method]
        if protocol is not None and not isinstance(self.llm, protocol):
            needed_model = (
                "a language model that scores texts" if protocol is ScoresContinuations else "a language model"
            )
            raise DataError(
                f"{self.method} needs {needed_model}. Name it: --llm URL --model NAME; {self.method} asks it."
            )

    def settings(self) -> dict[str, Any]:
        model = self.llm.name if self.llm is not None and METHODS[self.method] else ""
        options = {"beta": self.beta} if self.method == "lsr" else {}
        options |= {"preferred": self.preferred} if self.method == "aar" else {}
        return {"method": self.method, "embedder": self.embedder.name, "model": model, **options}

    def build_rows(self, items: Sequence[Item]) -> AdapterRows | None:
        """Build a row for each passage to move to, or one per question with `lsr` and `reward`; None without any."""
        snapshot = Dense(self.group, self.embedder).snapshot()
        search = Dense(self.group, self.embedder, top_k=DEPTH)
        locations = locate_gold(items, [search]) if items else None
        row_items, vectors, targets = list[Item](), list[Floats](), list[Floats]()
        positives, good = list[str](), list[frozenset[str]]()
        for item in items:
            check_cancelled()
            assert locations is not None
            ranking, located = search(Query(item.question)), locations.locate_item(item)
            gold = gold_nodes(self.group, located)
            lessons = list(self._find_targets(item, ranking.nodes, gold))
            texts = frozenset(nodes[0].text for nodes, _ in lessons) | {node.text for node in gold}
            for nodes, target in lessons:
                row_items.append(item)
                positives.append(nodes[0].text)
                good.append(texts)
                vectors.append(self._read_vectors(snapshot, nodes))
                targets.append(target)
        if not row_items:
            return None
        questions = [item.question for item in row_items]
        rows = _pad_candidates(self.embedder.embed(questions, kind="query").astype(np.float64), vectors, targets)
        return rows._replace(
            texts=questions, positives=positives, good=good, answers=[item.answers for item in row_items]
        )

    def _find_targets(
        self, item: Item, nodes: Sequence[Node], gold: Sequence[Node]
    ) -> Iterator[tuple[Sequence[Node], Floats]]:
        """Yield the candidates of a question with the target of each."""
        if self.method in ("lsr", "reward"):
            if item.answers and len(nodes) > 1:
                compute = self._answer_likelihoods if self.method == "lsr" else self._answer_rewards
                yield nodes, compute(item, nodes)
            return
        positives = list(gold)
        if self.method == "aar" and item.answers and len(nodes) > 1:
            order = np.argsort(-self._answer_likelihoods(item, nodes), kind="stable")[: self.preferred]
            positives += [
                nodes[number] for number in order if nodes[number].document not in {node.document for node in gold}
            ]
        ids, texts = {node.document for node in positives}, {node.text for node in positives}
        negatives = [
            node
            for node in nodes
            if node.document not in ids and node.text not in texts and not may_answer(item, node.text)
        ]
        for node in positives if negatives else ():
            yield [node, *negatives], np.eye(1 + len(negatives))[0]

    def _read_vectors(self, snapshot: Snapshot, nodes: Sequence[Node]) -> Floats:
        """Read the vectors of nodes from the store."""
        ids = [node.id for node in nodes]
        keys = snapshot.keys_of(ids)
        places = np.searchsorted(snapshot.open.records(self.group.name).keys, [keys[id] for id in ids])
        stored = snapshot.open.stored_vectors(self.group.name, self.embedder.name)
        return np.asarray(unit_rows(stored.vectors_at(places)), np.float64)

    def _answer_likelihoods(self, item: Item, nodes: Sequence[Node]) -> Floats:
        """Compute P_LSR: how well the model foretells the answer from each passage, normalised."""
        assert isinstance(self.llm, ScoresContinuations)
        likelihood = Likelihood(self.llm)
        sums = [
            fsum(
                token.logprob
                for token in likelihood(Continuation.from_texts(item.answers[0], node.text, item.question))
            )
            for node in nodes
        ]
        return np.asarray(softmax(np.array([sums]), self.beta)[0], np.float64)

    def _answer_rewards(self, item: Item, nodes: Sequence[Node]) -> Floats:
        """Return F1 of the model's answer from each passage alone."""
        assert self.llm is not None
        reader, query = Reader(self.llm, max_passages=1), Query(item.question)
        with Run.current() or Run(share=True):
            answers = [try_answer(reader, Ranking(query, (Hit(node, 1.0),))) for node in nodes]
        return np.array([(F1().score(answer, item) or 0.0) if answer else 0.0 for answer in answers])

    def loss(
        self, scores: Floats, target: Floats, temperature: float, draw: np.random.Generator
    ) -> tuple[float, Floats]:
        """Return the loss of the candidates' scores against the target, and its gradient by the scores."""
        if self.method == "reward":
            return reinforce(scores, target, temperature, draw)
        return divergence(scores, target, temperature)


def gold_nodes(group: NodeGroup, item: Item) -> list[Node]:
    """Return the gold nodes of a question whose gold was located in the store.

    Of a document that is gold as a whole, those with an accepted answer; all of them if none has one.
    """
    snapshot, principals, selected = group.snapshot(), access(), list[Node]()
    gold_places = [place for places in item.gold for place in places]
    for document in sorted(item.documents):
        nodes = snapshot.numbered_nodes(document, group.name, 0, 1 << 30, principals)  # no document has as many nodes
        gold = [node for node in nodes if any(is_gold(node, place) for place in gold_places)]
        selected += [node for node in gold if may_answer(item, node.text)] or gold
    return selected


def may_answer(item: Item, text: str) -> bool:
    """Return whether an accepted answer of more than three characters occurs in a text, which is then no negative.

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
    """Return minus the expected reward of a passage drawn by softmax(scores / temperature), and a sampled gradient.

    The gradient of a row is -(r(d) - b) · ∂ ln p(d) / ∂ scores: d is drawn, and the baseline b = Σ p · r changes only
    how much the draws differ.

    Source: Williams, "Simple statistical gradient-following algorithms for connectionist reinforcement learning", 1992.

    >>> both = np.array([[0.1, 0.1]]), np.array([[1.0, 0.0]])
    >>> loss, gradient = reinforce(*both, 0.5, np.random.default_rng(0))
    >>> loss, gradient.tolist()  # whichever is drawn, the first becomes likelier
    (-0.5, [[-0.5, 0.5]])
    """
    chances = softmax(scores, temperature)
    expected = (chances * rewards).sum(axis=1)
    # Rounding can leave the last sum below 1.
    choices = (chances.cumsum(axis=1) < draw.random((len(chances), 1))).sum(axis=1).clip(max=chances.shape[1] - 1)
    rows = np.arange(len(chances))
    one_hot = np.zeros_like(chances)
    one_hot[rows, choices] = 1.0
    gain = (rewards[rows, choices] - expected)[:, None]
    return float(-expected.mean()), -gain * (one_hot - chances) / (temperature * len(chances))


class AdapterTrainer:
    """Trainer of an `AdaptedEmbedder`: a low-rank change of question vectors; passages keep theirs.

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
        self.rows, self.validation = require_rows(self.teacher, items), self.teacher.build_rows(validation)
        draw, width = np.random.default_rng(seed), self.embedder.dimension
        # `UP` is 0: training begins with the embedder as it is.
        self.values = {DOWN: draw.normal(0, width**-0.5, (self.rank, width)), UP: np.zeros((width, self.rank))}
        self.moments = {
            f"{order}{name}": np.zeros_like(array) for order in (1, 2) for name, array in self.values.items()
        }
        self.done, self.seed = 0, seed
        self.notes = [f"{len(self.rows.questions)} rows of {several(len(items), 'question')}."]

    def step(self, done: float) -> float:
        """Make one step of Adam."""
        loss, slopes = self.compute_gradient(self.rows)
        self.done += 1
        for name, slope in slopes.items():
            slope = slope + self.decay * self.values[name]
            first, second = self.moments[f"1{name}"], self.moments[f"2{name}"]
            first += 0.1 * (slope - first)  # Adam's usual decays: 1 - 0.9 and 1 - 0.999
            second += 0.001 * (slope**2 - second)
            size = (first / (1 - 0.9**self.done)) / (np.sqrt(second / (1 - 0.999**self.done)) + 1e-8)
            self.values[name] -= self.rate * (1 - done) * size
        return loss

    def compute_gradient(self, rows: AdapterRows) -> tuple[float, dict[str, Floats]]:
        """Return the loss, and its gradient by each weight."""
        down, up = self.values[DOWN], self.values[UP]
        inner = rows.questions @ down.T
        adapted = rows.questions + inner @ up.T
        length = np.linalg.norm(adapted, axis=1, keepdims=True)
        directions = adapted / length
        scores = np.einsum("ncd,nd->nc", rows.candidates, directions)
        scores = np.where(rows.is_real, scores, -np.inf)
        draw = np.random.default_rng((self.seed, self.done))  # the same draws after a kill
        loss, pull = self.teacher.loss(scores, rows.target, self.temperature, draw)
        by_direction = np.einsum("nc,ncd->nd", pull, rows.candidates)
        by_adapted = (by_direction - (by_direction * directions).sum(axis=1, keepdims=True) * directions) / length
        return loss, {DOWN: (by_adapted @ up).T @ rows.questions, UP: by_adapted.T @ inner}

    def validate(self) -> float | None:
        return None if self.validation is None else self.compute_gradient(self.validation)[0]

    def state(self) -> dict[str, Any]:
        return {"done": np.array(self.done), **self.values, **self.moments}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.done = int(state["done"])
        for arrays in (self.values, self.moments):
            for name in arrays:
                arrays[name] = np.array(state[name], np.float64)

    def weights(self) -> dict[str, Any]:
        return {name: array.astype(np.float32) for name, array in self.values.items()}

    def untrained(self) -> Operator[Query, Ranking]:
        return Dense(self.group, self.embedder)

    def trained(self, weights: TrainedWeights) -> Operator[Query, Ranking]:
        return Dense(self.group, AdaptedEmbedder(self.embedder, weights))


def require_rows(teacher: Teacher, items: Sequence[Item]) -> AdapterRows:
    """Return the rows of questions; DataError if no row prefers one passage to another."""
    rows = teacher.build_rows(items)
    if rows is None or not any(len(set(row[real])) > 1 for row, real in zip(rows.target, rows.is_real, strict=True)):
        raise DataError(
            f"Nothing can be learned from {several(len(items), 'question')}: none prefers one passage to another "
            f"of its best {DEPTH}. Check that gold_ids name passages of this store, or give more questions."
        )
    return rows


def _pad_candidates(questions: Floats, vectors_by_row: Sequence[Floats], targets: Sequence[Floats]) -> AdapterRows:
    """Pad rows to one width; vectors of zeros stand where a question has fewer candidates."""
    widest = max(map(len, vectors_by_row))
    candidates, target = (
        np.zeros((len(vectors_by_row), widest, questions.shape[1])),
        np.zeros((len(vectors_by_row), widest)),
    )
    for number, (vectors, row_target) in enumerate(zip(vectors_by_row, targets, strict=True)):
        candidates[number, : len(vectors)], target[number, : len(vectors)] = vectors, row_target
    return AdapterRows(questions, candidates, target)
