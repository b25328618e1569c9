"""Trains the classifier that ends a chain of CoRAG: a logistic regression or a few units over features or vectors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice, pairwise
from math import inf, log
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from spolia.core.operator import Operator, Retriever
from spolia.core.plurals import several
from spolia.errors import DataError
from spolia.flows.corag import corag
from spolia.flows.corag_classifier import corag_classifier
from spolia.models.protocols import Embedder, LanguageModel
from spolia.models.trained_weights import TrainedWeights
from spolia.orchestration.chain_scorer import PART, ChainScorer, inputs, probabilities, words
from spolia.training.chain_samples import CHARACTERS, SampledChain, sample_chains, sufficiency_rows
from spolia.training.question_split import marks
from spolia.types import Answer, Item, Query

if TYPE_CHECKING:
    from spolia.orchestration.chain_scorer import Floats

FOLDS = 4
"""Models that each leave out a part of the questions: the threshold is chosen on chains that are new to the model."""
FEWEST = 30
"""Questions below which no threshold is certain enough: the chain never ends early."""
NEVER = 2.0
"""A threshold that no probability reaches."""
ONE_SIDED = 1.645
"""95 % of the normal distribution lie below."""


class StoppingResult(NamedTuple):
    """The change when chains end at a threshold, compared with letting them go on.

    Fields:
        threshold: the least probability that ends a chain.
        change: of EM, the mean over questions.
        lower: its one-sided 95 % lower bound.
        saved: share of all tokens.
    """

    threshold: float
    change: float
    lower: float
    saved: float


def stops(chain: SampledChain, scores: Sequence[float], threshold: float) -> int:
    """After how many pairs a chain ends.

    >>> chain = SampledChain("q", Query("?"), (0.0, 1.0, 1.0), (0.0, 1.0, 1.0), (10, 20, 30))  # type: ignore[arg-type]
    >>> stops(chain, (0.1, 0.8, 0.9), 0.5), stops(chain, (0.1, 0.2, 0.3), 0.5)
    (2, 3)
    """
    return next((number for number, score in enumerate(scores, 1) if score >= threshold), len(chain.exact))


def stopped(chains: Sequence[SampledChain], ends: Sequence[int], threshold: float = 0.0) -> StoppingResult:
    """The change when each chain ends after a number of pairs."""
    by_item: dict[str, list[float]] = {}
    for chain, end in zip(chains, ends, strict=True):
        by_item.setdefault(chain.item, []).append(chain.exact[end - 1] - chain.exact[-1])
    change = np.array([sum(each) / len(each) for each in by_item.values()])
    error = float(change.std(ddof=1) / len(change) ** 0.5) if len(change) > 1 else inf
    spent = sum(chain.tokens[end - 1] for chain, end in zip(chains, ends, strict=True))
    mean = float(change.mean())
    return StoppingResult(
        threshold, mean, mean - ONE_SIDED * error, 1 - spent / sum(chain.tokens[-1] for chain in chains)
    )


def best_threshold(
    chains: Sequence[SampledChain], scores: Sequence[Sequence[float]], most_lost: float, tried: int = 200
) -> StoppingResult:
    """The threshold that saves most, of those that lose at most this much EM with 95 % confidence."""
    never = StoppingResult(NEVER, 0.0, 0.0, 0.0)
    if len({chain.item for chain in chains}) < FEWEST:
        return never
    every = np.quantile(np.concatenate([np.array(one) for one in scores]), np.linspace(0, 1, tried))
    found = [
        stopped(chains, [stops(chain, own, float(at)) for chain, own in zip(chains, scores, strict=True)], float(at))
        for at in np.unique(every)
    ]
    return max((one for one in found if one.lower >= -most_lost), key=lambda one: one.saved, default=never)


class SufficiencyTrainer:
    """Trains a classifier of chains for `corag_classifier`, on chains that the flow's own model makes.

    Of each question `n` chains are sampled to their end, with an answer after each pair; that with the gold answer is
    sufficient (`spolia.training.chain_samples`). The threshold is the one that saves most tokens while EM loses at most
    `most_lost` with 95 % confidence, on chains of which the classifier has not seen the questions.

    Args:
        llm: the model of the flow; it is asked about `n · steps · 3` times for each question.
        search: finds passages for a sub-question.
        embedder: with one, the classifier also reads the vectors of question and chain.
        hidden: units of the hidden layer; 0 for a logistic regression.
        chain_steps: longest chain.
        n: chains of a question.
        whole: learn also of the beginnings after the first that suffices, which the paper leaves out: a chain that was
            not ended there goes on to them.
        best_only: learn of the most promising chain of a question alone (rejection sampling), not of all.
        singles: of chains that suffice after one pair, this many times those after two, at most.
        most_lost: EM, as a share, that the threshold may cost.
        penalty: of the weights, squared.
        rate: of Adam.
        chains: chains that were sampled before, in place of new ones.
    """

    part, version, steps, measure = PART, 1, 400, "EM"
    converged = False

    def __init__(
        self,
        llm: LanguageModel,
        search: Retriever,
        embedder: Embedder | None = None,
        *,
        hidden: int = 24,
        chain_steps: int = 6,
        n: int = 4,
        whole: bool = True,
        best_only: bool = False,
        singles: float = 1.75,
        most_lost: float = 0.015,
        penalty: float = 0.01,
        rate: float = 0.02,
        chains: Iterable[SampledChain] | None = None,
    ) -> None:
        self.llm, self.search, self.embedder = llm, search, embedder
        self.hidden, self.chain_steps, self.n, self.whole = hidden, chain_steps, n, whole
        self.best_only, self.singles, self.most_lost = best_only, singles, most_lost
        self.penalty, self.rate = penalty, rate
        self.sampled = None if chains is None else list(chains)
        self.notes: list[str] = []

    def settings(self) -> dict[str, Any]:
        names = ("hidden", "chain_steps", "n", "whole", "best_only", "singles", "most_lost", "penalty", "rate")
        return {name: getattr(self, name) for name in names} | {
            "model": self.llm.name,
            "embedder": self.embedder.name if self.embedder else "",
        }

    def prepare(self, items: Sequence[Item], validation: Sequence[Item], seed: int) -> None:
        self.chains = self._chains(items)
        how = {"whole": self.whole, "best_only": self.best_only, "singles": self.singles, "seed": seed}
        rows = sufficiency_rows(self.chains, **how)  # type: ignore[arg-type]
        self.labels = np.array([float(row.sufficient) for row in rows])
        if not rows:
            raise DataError(
                f"None of {several(len(items), 'question')} has accepted answers and a chain of sub-questions. Give "
                "the answers (`answers`), or a model that writes sub-questions."
            )
        if len(set(self.labels)) < 2:
            raise DataError(
                f"All {len(rows)} beginnings of chains are {'' if rows[0].sufficient else 'in'}sufficient, so "
                "the classes cannot be learned. Give more questions, or longer chains."
            )
        df = Counter(word for item in items for word in words(item.question))
        self.idf = {word: round(log((1 + len(items)) / (1 + count)), 4) for word, count in sorted(df.items())}
        self.rare = round(log((1 + len(items)) / 2), 4)
        found = self._inputs((row.question, row.written) for row in rows)
        deviation = found.std(axis=0)
        self.mean = found.mean(axis=0)
        self.scale = np.where(deviation > 1e-6, 1 / np.maximum(deviation, 1e-6), 0.0)
        self.rows = (found - self.mean) * self.scale
        self.validation = sufficiency_rows(self._chains(validation), seed=seed)
        self.fold = folds(items, FOLDS)
        own = np.array([self.fold[row.item] for row in rows])
        seen = np.array([own != number for number in range(FOLDS)] + [np.ones(len(rows), bool)], float)
        self.share = seen / np.maximum(1, seen.sum(axis=1, keepdims=True))
        draw = np.random.default_rng(seed)
        sizes = [found.shape[1], *([self.hidden] if self.hidden else []), 1]
        start = [draw.normal(0, wide**-0.5, (wide, narrow)) * (self.hidden > 0) for wide, narrow in pairwise(sizes)]
        self.layers = [
            (np.repeat(weight[None], FOLDS + 1, 0), np.zeros((FOLDS + 1, 1, weight.shape[1]))) for weight in start
        ]
        self.moments = [np.zeros_like(one) for _ in (0, 1) for layer in self.layers for one in layer]
        self.done = 0
        self.notes = [
            f"{len(self.chains)} chains of {len({one.item for one in self.chains})} questions, {len(rows)} rows, "
            f"{self.labels.mean():.0%} of them sufficient; answered by {self.llm.name}."
        ]

    def _chains(self, items: Sequence[Item]) -> list[SampledChain]:
        if self.sampled is None:
            return list(sample_chains(self.llm, self.search, items, steps=self.chain_steps, n=self.n))
        wanted = {item.id for item in items}
        return [chain for chain in self.sampled if chain.item in wanted]

    def _inputs(self, rows: Iterable[tuple[str, str]]) -> Floats:
        return inputs(list(rows), self.idf, self.rare, self.embedder)

    def step(self, done: float) -> float:
        """One step of Adam for the model and for the models that each leave out a fold."""
        loss, slopes = self._gradient()
        values = [one for layer in self.layers for one in layer]
        self.done += 1
        for number, (value, slope) in enumerate(zip(values, slopes, strict=True)):
            first, second = self.moments[number], self.moments[number + len(values)]
            first += 0.1 * (slope - first)
            second += 0.001 * (slope**2 - second)
            size = (first / (1 - 0.9**self.done)) / (np.sqrt(second / (1 - 0.999**self.done)) + 1e-8)
            value -= self.rate * (1 - done) * size
        return loss

    def _gradient(self) -> tuple[float, list[Floats]]:
        """The model's loss, and what it changes with each weight and bias, of all models."""
        (last, offset), first = self.layers[-1], self.layers[:-1]
        units = (
            np.tanh(self.rows @ first[0][0] + first[0][1])
            if first
            else np.broadcast_to(self.rows, (FOLDS + 1, *self.rows.shape))
        )
        chance = 1 / (1 + np.exp(-np.clip((units @ last + offset)[..., 0], -500, 500)))
        wrong = ((chance - self.labels) * self.share)[..., None]
        slopes = [units.transpose(0, 2, 1) @ wrong + self.penalty * last, wrong.sum(axis=1, keepdims=True)]
        if first:
            inner = (wrong @ last.transpose(0, 2, 1)) * (1 - units**2)
            weights = self.rows.T @ inner + self.penalty * first[0][0]
            slopes = [weights, inner.sum(axis=1, keepdims=True), *slopes]
        return _cross_entropy(chance[-1], self.labels), slopes

    def validate(self) -> float | None:
        if not self.validation:
            return None
        found = self._scores([(row.question, row.written) for row in self.validation], FOLDS)
        return _cross_entropy(found, np.array([float(row.sufficient) for row in self.validation]))

    def _scores(self, rows: Sequence[tuple[str, str]], model: int) -> Floats:
        own = [(weight[model], bias[model, 0]) for weight, bias in self.layers]
        return probabilities(own, (self._inputs(rows) - self.mean) * self.scale)

    def unseen_scores(self) -> list[list[float]]:
        """For each chain, the probabilities of its beginnings by the model that has not seen its question."""
        found: list[list[float]] = [[]] * len(self.chains)
        for model in range(FOLDS):
            at = [number for number, chain in enumerate(self.chains) if self.fold[chain.item] == model]
            rows = [row for number in at for row in beginnings(self.chains[number])]
            scores = iter(self._scores(rows, model).tolist() if rows else [])
            for number in at:
                found[number] = list(islice(scores, len(self.chains[number].exact)))
        return found

    def state(self) -> dict[str, Any]:
        values = [one for layer in self.layers for one in layer]
        return {"done": np.array(self.done)} | {str(at): one for at, one in enumerate((*values, *self.moments))}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.done = int(state["done"])
        for at, one in enumerate((*(one for layer in self.layers for one in layer), *self.moments)):
            one[...] = state[str(at)]

    def weights(self) -> dict[str, Any]:
        chosen = best_threshold(self.chains, self.unseen_scores(), self.most_lost)
        self.notes.append(
            f"Threshold {chosen.threshold:.3f}: on questions that the classifier had not seen, {chosen.saved:.1%} of "
            f"the tokens are saved and EM changes by {100 * chosen.change:+.1f} points (at least "
            f"{100 * chosen.lower:+.1f} with 95 % confidence)."
            if chosen.threshold < NEVER
            else f"No chain ends early: no threshold is shown to save tokens and lose at most "
            f"{100 * self.most_lost:g} points of EM. It takes at least {FEWEST} questions with chains to choose one."
        )
        layers = [{"weight": weight[FOLDS].tolist(), "bias": bias[FOLDS, 0].tolist()} for weight, bias in self.layers]
        return {
            "embedder": self.embedder.name if self.embedder else "",
            "threshold": chosen.threshold,
            "idf": self.idf,
            "rare": self.rare,
            "mean": self.mean.tolist(),
            "scale": self.scale.tolist(),
            "layers": layers,
        }

    def untrained(self) -> Operator[Query, Answer]:
        return corag(self.llm, self.search, steps=self.chain_steps)

    def trained(self, weights: TrainedWeights) -> Operator[Query, Answer]:
        threshold = float(weights.plain(PART)["threshold"])
        scorer = ChainScorer(weights, self.embedder)
        return corag_classifier(self.llm, self.search, scorer, steps=self.chain_steps, threshold=threshold)


def folds(items: Sequence[Item], count: int) -> dict[str, int]:
    """A number below `count` for each question: the same for those that share an id, a text or a gold passage.

    >>> items = [Item("a", "A?", gold=(("p",),)), Item("b", "B?"), Item("c", "C?", gold=(("q",), ("p",)))]
    >>> folds(items, 2)
    {'a': 0, 'b': 1, 'c': 0}
    """
    of_mark: dict[tuple[str, str], set[str]] = {}
    of_item: dict[str, set[str]] = {}
    for item in items:
        linked = set[str]({item.id}).union(*(of_mark.get(mark, ()) for mark in marks(item)))
        for mark in marks(item):
            of_mark[mark] = linked
        for one in linked:
            of_item[one] = linked
        of_mark.update({mark: linked for mark, before in of_mark.items() if before <= linked})
    numbers: dict[int, int] = {}
    return {item.id: numbers.setdefault(id(of_item[item.id]), len(numbers)) % count for item in items}


def beginnings(chain: SampledChain) -> list[tuple[str, str]]:
    """The question with each beginning of a chain, as the classifier reads them."""
    question = chain.chain.query.question
    return [(question, chain.prefix(pairs).written(CHARACTERS)) for pairs in range(1, len(chain.exact) + 1)]


def _cross_entropy(chance: Floats, labels: Floats) -> float:
    safe = np.clip(chance, 1e-12, 1 - 1e-12)
    return float(-(labels * np.log(safe) + (1 - labels) * np.log(1 - safe)).mean())
