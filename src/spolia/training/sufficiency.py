"""Trains the classifier that ends a chain of CoRAG: a logistic regression or a few units over features or vectors."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any, ClassVar, NamedTuple

import numpy as np

from spolia.core.operator import Operator, Retriever
from spolia.flows.corag import corag
from spolia.flows.corag_classifier import corag_classifier
from spolia.models.protocols import Embedder, LanguageModel
from spolia.models.text_classifier import Part, TrainedClassifier
from spolia.models.trained_weights import TrainedWeights
from spolia.training.chain_samples import CHARACTERS, SampledChain, sample_chains, sufficiency_rows
from spolia.training.classifier import FOLDS, NEVER, ClassifierTrainer, LabelledText, lower_bound
from spolia.types import Answer, Item, Query

FEWEST = 30
"""Questions below which no threshold is certain enough: the chain never ends early."""


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
    spent = sum(chain.tokens[end - 1] for chain, end in zip(chains, ends, strict=True))
    saved = 1 - spent / sum(chain.tokens[-1] for chain in chains)
    return StoppingResult(threshold, float(change.mean()), lower_bound(change), saved)


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


class SufficiencyTrainer(ClassifierTrainer):
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

    part: ClassVar[Part] = "sufficiency"
    version = 2
    labels = ("insufficient", "sufficient")

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
        super().__init__(embedder, hidden=hidden, penalty=penalty, rate=rate)
        self.llm, self.search, self.chain_steps, self.n, self.whole = llm, search, chain_steps, n, whole
        self.best_only, self.singles, self.most_lost = best_only, singles, most_lost
        self.sampled = None if chains is None else list(chains)

    def settings(self) -> dict[str, Any]:
        names = ("chain_steps", "n", "whole", "best_only", "singles", "most_lost")
        return {name: getattr(self, name) for name in names} | super().settings() | {"model": self.llm.name}

    def prepare(self, items: Sequence[Item], validation: Sequence[Item], seed: int) -> None:
        self.chains: list[SampledChain] = []
        super().prepare(items, validation, seed)
        self.notes.append(f"{len(self.chains)} chains; answered by {self.llm.name}.")

    def labelled(self, items: Sequence[Item], seed: int) -> list[LabelledText]:
        chains = self._chains(items)
        self.chains = self.chains or chains  # the questions to train on come first
        rows = sufficiency_rows(chains, whole=self.whole, best_only=self.best_only, singles=self.singles, seed=seed)
        return [LabelledText(row.item, row.question, row.written, int(row.sufficient)) for row in rows]

    def _chains(self, items: Sequence[Item]) -> list[SampledChain]:
        if self.sampled is None:
            return list(sample_chains(self.llm, self.search, items, steps=self.chain_steps, n=self.n))
        wanted = {item.id for item in items}
        return [chain for chain in self.sampled if chain.item in wanted]

    def unseen_scores(self) -> list[list[float]]:
        """For each chain, the probabilities of its beginnings by the model that has not seen its question."""
        found: list[list[float]] = [[]] * len(self.chains)
        for model in range(FOLDS):
            at = [number for number, chain in enumerate(self.chains) if self.fold[chain.item] == model]
            rows = [LabelledText("", *row, 0) for number in at for row in beginnings(self.chains[number])]
            scores = iter(self.probabilities(rows, model)[:, 1].tolist() if rows else [])
            for number in at:
                found[number] = list(islice(scores, len(self.chains[number].exact)))
        return found

    def weights(self) -> dict[str, Any]:
        found = super().weights()
        chosen = best_threshold(self.chains, self.unseen_scores(), self.most_lost)
        self.notes.append(
            f"Threshold {chosen.threshold:.3f}: on questions that the classifier had not seen, {chosen.saved:.1%} of "
            f"the tokens are saved and EM changes by {100 * chosen.change:+.1f} points (at least "
            f"{100 * chosen.lower:+.1f} with 95 % confidence)."
            if chosen.threshold < NEVER
            else f"No chain ends early: no threshold is shown to save tokens and lose at most "
            f"{100 * self.most_lost:g} points of EM. It takes at least {FEWEST} questions with chains to choose one."
        )
        return found | {"threshold": chosen.threshold}

    def untrained(self) -> Operator[Query, Answer]:
        return corag(self.llm, self.search, steps=self.chain_steps)

    def trained(self, weights: TrainedWeights) -> Operator[Query, Answer]:
        threshold = float(weights.plain(self.part)["threshold"])
        scorer = TrainedClassifier(self.part, weights, self.embedder)
        return corag_classifier(self.llm, self.search, scorer, steps=self.chain_steps, threshold=threshold)


def beginnings(chain: SampledChain) -> list[tuple[str, str]]:
    """The question with each beginning of a chain, as the classifier reads them."""
    question = chain.chain.query.question
    return [(question, chain.prefix(pairs).written(CHARACTERS)) for pairs in range(1, len(chain.exact) + 1)]
