"""Training of small text classifiers: logistic regression or a few hidden units, over features or vectors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import log
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from spolia.core.operator import Operator
from spolia.core.plurals import several
from spolia.errors import DataError
from spolia.models.protocols import Embedder
from spolia.models.text_classifier import Part, build_inputs, logits_of, probabilities, words
from spolia.models.trained_weights import TrainedWeights
from spolia.training.training import linked_groups
from spolia.types import Answer, Item, Query

if TYPE_CHECKING:
    from spolia.models.text_classifier import Floats

FOLDS = 4
"""Models that each leave out a part of the questions: thresholds are chosen on rows that are new to the model."""
ONE_SIDED = 1.645
"""95 % of the normal distribution lie below."""
TEMPERATURES = np.geomspace(0.25, 16.0, 121)
"""By which the last layer may be divided, so that probabilities are those of questions that the model has not seen."""
BINS = 10
NEVER = 2.0
"""A threshold that no probability reaches."""


class LabelledText(NamedTuple):
    """Text of a question, with the number of its label."""

    item: str
    question: str
    text: str
    label: int


class ClassifierTrainer(ABC):
    """Base of the trainers of classifiers: Adam on the cross-entropy, for the model and for `FOLDS` models that each
    leave out a part of the questions.

    The probabilities of these, each on the questions that it has not seen, calibrate the model: one temperature, by
    which its last layer is divided. An input that is the same in all rows is left out.

    A subclass has `part`, `labels`, and writes `label_items`, `untrained` and `trained`.

    Args:
        embedder: with one, the classifier also reads vectors.
        hidden: units of the hidden layer; 0 for a logistic regression.
        penalty: of the weights, squared.
        rate: of Adam.
    """

    version, steps, measure = 1, 400, "EM"
    converged = False
    part: ClassVar[Part]
    labels: ClassVar[tuple[str, ...]]

    def __init__(
        self, embedder: Embedder | None = None, *, hidden: int = 8, penalty: float = 0.01, rate: float = 0.02
    ) -> None:
        self.embedder, self.hidden, self.penalty, self.rate = embedder, hidden, penalty, rate
        self.notes: list[str] = []
        self.temperature = 1.0

    @abstractmethod
    def label_items(self, items: Sequence[Item], seed: int) -> list[LabelledText]:
        """Return the labelled rows of questions; rows of one question follow each other."""

    @abstractmethod
    def untrained(self) -> Operator[Query, Answer]: ...

    @abstractmethod
    def trained(self, weights: TrainedWeights) -> Operator[Query, Answer]: ...

    def settings(self) -> dict[str, Any]:
        names = ("hidden", "penalty", "rate")
        return {name: getattr(self, name) for name in names} | {"embedder": self.embedder.name if self.embedder else ""}

    def prepare(self, items: Sequence[Item], validation: Sequence[Item], seed: int) -> None:
        self.texts = self.label_items(items, seed)
        self.fold = folds(items, FOLDS)
        row_folds = np.array([self.fold[row.item] for row in self.texts])
        self._refuse_unlearnable(len(items), len(set(row_folds.tolist())))
        self.truth = self._one_hot_labels(self.texts)
        df = Counter(word for item in items for word in words(item.question))
        # 1 +: a word of all questions weighs 0, and nothing is divided by 0.
        self.idf = {word: round(log((1 + len(items)) / (1 + count)), 4) for word, count in sorted(df.items())}
        # A word that no training question has counts like a word of one.
        self.rare = round(log((1 + len(items)) / 2), 4)
        raw_inputs = self._build_inputs(self.texts)
        if not np.isfinite(raw_inputs).all():
            raise DataError("Some numbers of a text are not finite. Check the vectors of the embedder.")
        deviation = raw_inputs.std(axis=0)
        self.mean = raw_inputs.mean(axis=0)
        # An input that hardly varies says nothing, and would only add noise.
        self.scale = np.where(deviation > 1e-6, 1 / np.maximum(deviation, 1e-6), 0.0)
        self.rows = (raw_inputs - self.mean) * self.scale
        validation_rows = self.label_items(validation, seed)
        self.validation = (
            (self._standardise(validation_rows), self._one_hot_labels(validation_rows)) if validation_rows else None
        )
        # The last row is the model of all questions.
        seen_mask = np.array([row_folds != number for number in range(FOLDS)] + [np.ones(len(row_folds), bool)], float)
        self.share = seen_mask / np.maximum(1, seen_mask.sum(axis=1, keepdims=True))
        self.row_folds = row_folds
        draw = np.random.default_rng(seed)
        # The first label has no weights of its own: its logit is 0.
        sizes = [raw_inputs.shape[1], *([self.hidden] if self.hidden else []), len(self.labels) - 1]
        # Logistic regression is convex and begins at 0; hidden units that begin alike would stay alike.
        start = [draw.normal(0, wide**-0.5, (wide, narrow)) * (self.hidden > 0) for wide, narrow in pairwise(sizes)]
        self.layers = [
            (np.repeat(weight[None], FOLDS + 1, 0), np.zeros((FOLDS + 1, 1, weight.shape[1]))) for weight in start
        ]
        self.moments = [np.zeros_like(array) for _ in (0, 1) for layer in self.layers for array in layer]
        self.done = 0
        counts = Counter(self.labels[row.label] for row in self.texts)
        self.notes = [
            f"{several(len(self.texts), 'row')} of {several(len({row.item for row in self.texts}), 'question')}: "
            + ", ".join(f"{counts[label]} {label}" for label in self.labels)
            + "."
        ]
        if idle := int((self.scale == 0).sum()):
            self.notes.append(f"{several(idle, 'input')} did not vary in training and have no weight.")

    def _refuse_unlearnable(self, question_count: int, fold_count: int) -> None:
        if not self.texts:
            raise DataError(
                f"Nothing can be learned from {several(question_count, 'question')}: none has the gold that a "
                f"{self.part} classifier learns from. Give gold_ids that name passages of this store, and "
                "accepted answers."
            )
        if len({row.label for row in self.texts}) < 2:
            raise DataError(
                f"All {several(len(self.texts), 'row')} have the label {self.labels[self.texts[0].label]!r}, so "
                "nothing can be learned. Give more questions, of other kinds."
            )
        if fold_count < 2:
            raise DataError(
                "All rows are of one question, or of questions that share gold passages, so nothing says how the "
                "classifier does on others. Give more questions."
            )

    def _build_inputs(self, rows: Sequence[LabelledText]) -> Floats:
        return build_inputs(self.part, [row[1:3] for row in rows], self.idf, self.rare, self.embedder)

    def _standardise(self, rows: Sequence[LabelledText]) -> Floats:
        return np.asarray((self._build_inputs(rows) - self.mean) * self.scale, np.float64)

    def _one_hot_labels(self, rows: Sequence[LabelledText]) -> Floats:
        one_hot: Floats = np.eye(len(self.labels))[[row.label for row in rows]]
        return one_hot

    def step(self, done: float) -> float:
        """Make one step of Adam, for the model and for the models that each leave out a fold."""
        loss, slopes = self._compute_gradient()
        values = [array for layer in self.layers for array in layer]
        self.done += 1
        for number, (value, slope) in enumerate(zip(values, slopes, strict=True)):
            first, second = self.moments[number], self.moments[number + len(values)]
            first += 0.1 * (slope - first)  # Adam's usual decays: 1 - 0.9 and 1 - 0.999
            second += 0.001 * (slope**2 - second)
            size = (first / (1 - 0.9**self.done)) / (np.sqrt(second / (1 - 0.999**self.done)) + 1e-8)
            value -= self.rate * (1 - done) * size
        return loss

    def _compute_gradient(self) -> tuple[float, list[Floats]]:
        """Return the model's loss, and the gradients of the weights and biases of all models."""
        (last, offset), first = self.layers[-1], self.layers[:-1]
        units = (
            np.tanh(self.rows @ first[0][0] + first[0][1])
            if first
            else np.broadcast_to(self.rows, (FOLDS + 1, *self.rows.shape))
        )
        chance = probabilities(units @ last + offset)
        wrong = ((chance - self.truth) * self.share[..., None])[..., 1:]
        slopes = [units.transpose(0, 2, 1) @ wrong + self.penalty * last, wrong.sum(axis=1, keepdims=True)]
        if first:
            inner = (wrong @ last.transpose(0, 2, 1)) * (1 - units**2)
            weights = self.rows.T @ inner + self.penalty * first[0][0]
            slopes = [weights, inner.sum(axis=1, keepdims=True), *slopes]
        return cross_entropy(chance[-1], self.truth), slopes

    def validate(self) -> float | None:
        if self.validation is None:
            return None
        rows, truth = self.validation
        return cross_entropy(probabilities(self._logits(rows, FOLDS)), truth)

    def probabilities(self, rows: Sequence[LabelledText], model: int) -> Floats:
        """Return the probabilities of rows, by the model of all rows (`FOLDS`) or by one without a fold."""
        return probabilities(self._logits(self._standardise(rows), model) / self.temperature)

    def _logits(self, rows: Floats, model: int) -> Floats:
        return logits_of([(weight[model], bias[model, 0]) for weight, bias in self.layers], rows)

    def unseen_probabilities(self) -> Floats:
        """Return each row's probabilities by the model that was not trained on its question."""
        logits = np.stack([self._logits(self.rows, model) for model in range(FOLDS)])
        return probabilities(logits[self.row_folds, np.arange(len(self.rows))] / self.temperature)

    def state(self) -> dict[str, Any]:
        values = [array for layer in self.layers for array in layer]
        return {"done": np.array(self.done)} | {
            str(number): array for number, array in enumerate((*values, *self.moments))
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        self.done = int(state["done"])
        for number, array in enumerate((*(array for layer in self.layers for array in layer), *self.moments)):
            array[...] = state[str(number)]  # in place: the layers are tuples

    def weights(self) -> dict[str, Any]:
        self._calibrate()
        (*first, (last, offset)), temperature = self.layers, self.temperature
        final_layers = [
            (weight[FOLDS], bias[FOLDS, 0]) for weight, bias in (*first, (last / temperature, offset / temperature))
        ]
        return {
            "labels": list(self.labels),
            "embedder": self.embedder.name if self.embedder else "",
            "idf": self.idf,
            "rare": self.rare,
            "mean": self.mean.tolist(),
            "scale": self.scale.tolist(),
            "layers": [{"weight": weight.tolist(), "bias": bias.tolist()} for weight, bias in final_layers],
        }

    def _calibrate(self) -> None:
        self.temperature = 1.0  # `unseen_probabilities` divides by it
        logits = np.log(np.maximum(self.unseen_probabilities(), 1e-300))
        losses = []
        for temperature in TEMPERATURES:
            raised = np.exp(logits / temperature)
            losses.append(cross_entropy(raised / raised.sum(axis=1, keepdims=True), self.truth))
        self.temperature = float(TEMPERATURES[int(np.argmin(losses))])
        chances = self.unseen_probabilities()
        accuracy = (chances.argmax(axis=1) == self.truth.argmax(axis=1)).mean()
        self.notes.append(
            f"On questions that it had not seen, {accuracy:.1%} of the rows are classified rightly (by the most "
            f"frequent label {self.truth.mean(axis=0).max():.1%}), with a calibration error of "
            f"{100 * calibration_error(chances, self.truth):.1f} points."
        )


def cross_entropy(chance: Floats, truth: Floats) -> float:
    return float(-(truth * np.log(np.clip(chance, 1e-12, 1.0))).sum(axis=1).mean())


def calibration_error(chance: Floats, truth: Floats) -> float:
    """Return the expected calibration error: the mean gap between the probability of the likeliest label and the share
    of rows that have it, over `BINS` bins of equal width, weighted by their rows.

    Source: Guo et al., "On calibration of modern neural networks", ICML 2017, as is the temperature.

    >>> calibration_error(np.array([[0.2, 0.8], [0.2, 0.8]]), np.array([[0.0, 1.0], [1.0, 0.0]]))
    0.3
    """
    confidence = chance.max(axis=1)
    gaps = confidence - (chance.argmax(axis=1) == truth.argmax(axis=1))
    bins = np.minimum((confidence * BINS).astype(int), BINS - 1)  # a confidence of 1 is in the last bin
    return round(float(np.abs(np.bincount(bins, gaps, BINS)).sum() / len(confidence)), 6)


def lower_bound(changes: Sequence[float] | Floats) -> float:
    """Return the one-sided 95 % lower bound of the mean of numbers of at least -1; -inf for fewer than two numbers.

    One more number, -1, counts with them: where few questions lose anything, the normal distribution alone is too sure.
    With it, questions that lose nothing show a loss of at most 1.5 points from about 200 on, as an exact test does.
    """
    values = np.append(np.asarray(changes, np.float64), -1.0)
    if len(values) < 3:
        return float("-inf")
    return float(values.mean() - ONE_SIDED * values.std(ddof=1) / len(values) ** 0.5)


def folds(items: Sequence[Item], count: int) -> dict[str, int]:
    """Assign each question a number below `count`; questions that share an id, text or gold passage get the same.

    >>> items = [Item("a", "A?", gold=(("p",),)), Item("b", "B?"), Item("c", "C?", gold=(("q",), ("p",)))]
    >>> folds(items, 2)
    {'a': 0, 'b': 1, 'c': 0}
    """
    numbers = {item.id: number for number, group in enumerate(linked_groups(items)) for item in group}
    return {item.id: numbers[item.id] % count for item in items}
