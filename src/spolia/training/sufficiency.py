"""Trainer of the classifier that ends a chain of CoRAG: logistic regression or a few hidden units."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from math import ceil, fsum, log
from random import Random
from typing import Any, ClassVar, NamedTuple, TypeGuard

import numpy as np

from spolia.core.operator import Operator, Retriever
from spolia.core.run_context import check_cancelled
from spolia.core.validation import capabilities_of
from spolia.evaluation.measures.answers.string_match import F1, ExactMatch
from spolia.flows.corag import Searched, begin, build_conclusion, build_hop, corag
from spolia.flows.corag_classifier import corag_classifier
from spolia.models.prompting.likelihood import Continuation, Likelihood
from spolia.models.protocols import Embedder, LanguageModel, ScoresContinuations
from spolia.models.text_classifier import Part, TrainedClassifier
from spolia.models.trained_weights import TrainedWeights
from spolia.run import Run
from spolia.training.classifier import FOLDS, NEVER, ClassifierTrainer, LabelledText, lower_bound
from spolia.types import Answer, Chain, Item, Query, Value

CHARACTERS = 2_000
"""A question and its chain that a classifier reads, as `Classified` shows them."""


@dataclass(frozen=True)
class SampledChain(Value):
    """A chain that was sampled to its end, with the answer after each of its pairs.

    Args:
        item: the question's id.
        chain: the question and all pairs.
        exact: EM of the answer after the first pair, the first two, …
        f1: its F1.
        tokens: what the model has read and written until then, the answer counted in.
        promise: ln P(accepted answer | question, chain) by the model; 0 where it cannot score.
    """

    item: str
    chain: Chain
    exact: tuple[float, ...]
    f1: tuple[float, ...]
    tokens: tuple[int, ...]
    promise: float = 0.0

    @property
    def pairs_needed(self) -> int:
        """Return how many pairs suffice; 0 if none do."""
        return next((number for number, score in enumerate(self.exact, 1) if score == 1), 0)

    def prefix(self, pairs: int) -> Chain:
        return self.chain.but(pairs=self.chain.pairs[:pairs])


class SufficiencyRow(NamedTuple):
    """A question with a prefix of a chain, and whether it suffices."""

    item: str
    question: str
    text: str
    sufficient: bool


def sample_chains(
    llm: LanguageModel, search: Retriever, items: Sequence[Item], *, steps: int = 6, n: int = 4
) -> Iterator[SampledChain]:
    """Sample `n` chains of each question that has accepted answers, of at most `steps` pairs, each with an answer after
    every pair.

    The first chain of a question is greedy, the others are drawn. A chain ends before `steps` where the model only
    repeats itself. With the cache of the run a second call asks the model nothing again.
    """
    grow, end = build_hop(llm, search, steps), build_conclusion(llm, search)
    for item in filter(ExactMatch().applies, items):
        check_cancelled()
        with Run.current() or Run(share=True) as run:
            chains = [
                _grow_chain(run, begin(Query(item.question, sample=sample)), grow, end, item, steps)
                for sample in range(n)
            ]
            sampled = [candidate for candidate in chains if candidate.chain.pairs]
            if scores_texts(llm):
                sampled = [chain.but(promise=answer_logprob(llm, item, chain.chain)) for chain in sampled]
        yield from sampled


def scores_texts(llm: LanguageModel) -> TypeGuard[ScoresContinuations]:
    """Return whether a model states the log-probabilities of given texts."""
    return isinstance(llm, ScoresContinuations) and capabilities_of(ScoresContinuations) <= llm.capabilities


def answer_logprob(llm: ScoresContinuations, item: Item, chain: Chain) -> float:
    """Return ln P(A | Q, C): how likely the model makes the accepted answer of a question after a chain.

    Source: Yeom et al., "Chain of retrieval with an external sufficiency classifier", 2025, equation 4.
    """
    pairs = (f"{question}\n{answer}" for question, answer in chain.pairs)
    tokens = Likelihood(llm)(Continuation.from_texts(item.answers[0], item.question, *pairs))
    return fsum(token.logprob for token in tokens)


def _grow_chain(
    run: Run,
    chain: Searched,
    grow: Operator[Searched, Searched],
    end: Operator[Searched, Answer],
    item: Item,
    steps: int,
) -> SampledChain:
    exact, f1, tokens = list[float](), list[float](), list[int]()
    spent_tokens = 0
    for _ in range(steps):
        with run.lane() as lane:
            chain = grow(chain)
        if chain.stop:
            break
        spent_tokens += lane.usage.input_tokens + lane.usage.output_tokens
        with run.lane() as lane:
            answer = end(chain)
        # The answer's tokens are not added up: they are paid only if the chain ends here.
        tokens.append(spent_tokens + lane.usage.input_tokens + lane.usage.output_tokens)
        exact.append(ExactMatch().score(answer, item) or 0.0)
        f1.append(F1().score(answer, item) or 0.0)
    return SampledChain(item.id, Chain(chain.query, chain.pairs), tuple(exact), tuple(f1), tuple(tokens))


def sufficiency_rows(
    chains: Sequence[SampledChain], *, whole: bool = False, best_only: bool = False, singles: float = 1.0, seed: int = 0
) -> list[SufficiencyRow]:
    """Build a row of each prefix of each chain, up to the first that suffices.

    Args:
        whole: also those after it, as a chain has them that was not ended there.
        best_only: of the chains of a question, only C = argmax ln P(A | Q, C), the one with the highest `promise`.
        singles: of the chains that end after one pair, at most this many times those that end after two; the others
            are left out by lot. The paper keeps 4,077 beside 2,325: 1.75.
        seed: of the lot.

    Source: Yeom et al., "Chain of retrieval with an external sufficiency classifier", 2025.
    """
    if best_only:
        best: dict[str, SampledChain] = {}
        for chain in chains:
            if chain.item not in best or chain.promise > best[chain.item].promise:
                best[chain.item] = chain
        chains = list(best.values())
    short = [chain for chain in chains if chain.pairs_needed == 1]
    limit = max(1, round(singles * sum(chain.pairs_needed == 2 for chain in chains)))
    kept_ids = {id(chain) for chain in (Random(seed).sample(short, limit) if len(short) > limit else short)}
    return [
        SufficiencyRow(chain.item, chain.chain.query.question, chain.prefix(pairs).format_text(CHARACTERS), score == 1)
        for chain in chains
        if chain.pairs_needed != 1 or id(chain) in kept_ids
        for pairs, score in enumerate(
            chain.exact if whole or not chain.pairs_needed else chain.exact[: chain.pairs_needed], 1
        )
    ]


class StoppingResult(NamedTuple):
    """Change of EM and tokens when chains end at a threshold, compared with letting them go on.

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

    def describe(self, most_lost: float) -> str:
        """Describe the result for the card."""
        if self.threshold >= NEVER:
            return (
                "No chain ends early: no threshold is shown to save tokens and lose at most "
                f"{100 * most_lost:g} points of EM. About {questions_needed(most_lost)} questions with "
                "chains can show that."
            )
        return (
            f"Threshold {self.threshold:.3f}: on questions that the classifier had not seen, {self.saved:.1%} of the "
            f"tokens are saved and EM changes by {100 * self.change:+.1f} points (at least {100 * self.lower:+.1f} "
            "with 95 % confidence)."
        )


def find_stop(chain: SampledChain, scores: Sequence[float], threshold: float) -> int:
    """Return after how many pairs a chain ends.

    >>> chain = SampledChain("q", Query("?"), (0.0, 1.0, 1.0), (0.0, 1.0, 1.0), (10, 20, 30))  # type: ignore[arg-type]
    >>> find_stop(chain, (0.1, 0.8, 0.9), 0.5), find_stop(chain, (0.1, 0.2, 0.3), 0.5)
    (2, 3)
    """
    return next((number for number, score in enumerate(scores, 1) if score >= threshold), len(chain.exact))


def measure_stopping(chains: Sequence[SampledChain], ends: Sequence[int], threshold: float = 0.0) -> StoppingResult:
    """Measure the change when each chain ends after a number of pairs."""
    by_item: dict[str, list[float]] = {}
    for chain, end in zip(chains, ends, strict=True):
        by_item.setdefault(chain.item, []).append(chain.exact[end - 1] - chain.exact[-1])
    # By question: chains of one question depend on each other.
    change = np.array([sum(changes) / len(changes) for changes in by_item.values()])
    spent_tokens = sum(chain.tokens[end - 1] for chain, end in zip(chains, ends, strict=True))
    saved = 1 - spent_tokens / sum(chain.tokens[-1] for chain in chains)
    return StoppingResult(threshold, float(change.mean()), lower_bound(change), saved)


def questions_needed(most_lost: float) -> int:
    """Return how many questions, none of which loses, show with 95 % confidence that at most this share does.

    >>> questions_needed(0.015)
    199
    """
    return ceil(log(0.05) / log(1 - most_lost)) if 0 < most_lost < 1 else 2


def choose_threshold(
    chains: Sequence[SampledChain], scores: Sequence[Sequence[float]], most_lost: float, tried: int = 200
) -> StoppingResult:
    """Choose the threshold that saves most, of those that lose at most this much EM with 95 % confidence.

    Thresholds are tested from the highest, which ends the fewest chains, down to the first that fails (fixed-sequence
    testing): however many are tried, the chance to choose one that loses more is 5 %.

    Source: Angelopoulos et al., "Learn then test", 2021, section 3.
    """
    chosen = StoppingResult(NEVER, 0.0, 0.0, 0.0)
    if not chains:
        return chosen
    quantiles = np.quantile(
        np.concatenate([np.array(chain_scores) for chain_scores in scores]), np.linspace(0, 1, tried)
    )
    for threshold in map(float, np.unique(quantiles)[::-1]):
        ends = [
            find_stop(chain, scores_of_chain, threshold) for chain, scores_of_chain in zip(chains, scores, strict=True)
        ]
        result = measure_stopping(chains, ends, threshold)
        if result.lower < -most_lost:
            break
        chosen = result
    return chosen


class SufficiencyTrainer(ClassifierTrainer):
    """Trainer of a classifier of chains for `corag_classifier`, on chains of the flow's own model.

    Of each question `n` chains are sampled to their end, with an answer after each pair; that with the gold answer is
    sufficient (`sample_chains`). The threshold is the one that saves most tokens while EM loses at most
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
        best_only: learn of C = argmax ln P(A | Q, C) alone, of the chains of a question (equation 4 of the paper). By
            default where the model can score texts; else of all chains.
        singles: of chains that suffice after one pair, this many times those after two, at most.
        most_lost: EM, as a share, that the threshold may cost.
        penalty: of the weights, squared.
        rate: of Adam.
        chains: chains that were sampled before, in place of new ones.
    """

    part: ClassVar[Part] = "sufficiency"
    version = 3
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
        best_only: bool | None = None,
        singles: float = 1.75,
        most_lost: float = 0.015,
        penalty: float = 0.01,
        rate: float = 0.02,
        chains: Iterable[SampledChain] | None = None,
    ) -> None:
        super().__init__(embedder, hidden=hidden, penalty=penalty, rate=rate)
        self.llm, self.search, self.chain_steps, self.n, self.whole = llm, search, chain_steps, n, whole
        self.best_only = scores_texts(llm) if best_only is None else best_only
        self.singles, self.most_lost = singles, most_lost
        self.sampled = None if chains is None else list(chains)
        self.chains: list[SampledChain] = []

    def settings(self) -> dict[str, Any]:
        names = ("chain_steps", "n", "whole", "best_only", "singles", "most_lost")
        return {name: getattr(self, name) for name in names} | super().settings() | {"model": self.llm.name}

    def prepare(self, items: Sequence[Item], validation: Sequence[Item], seed: int) -> None:
        self.chains = []
        super().prepare(items, validation, seed)
        self.notes.append(f"{len(self.chains)} chains; answered by {self.llm.name}.")

    def label_items(self, items: Sequence[Item], seed: int) -> list[LabelledText]:
        chains = self.sampled_chains(items)
        self.chains = self.chains or chains  # the questions to train on come first
        rows = sufficiency_rows(chains, whole=self.whole, best_only=self.best_only, singles=self.singles, seed=seed)
        return [LabelledText(row.item, row.question, row.text, int(row.sufficient)) for row in rows]

    def sampled_chains(self, items: Sequence[Item]) -> list[SampledChain]:
        """Return the chains of the questions: newly sampled, or from `chains`."""
        if self.sampled is None:
            return list(sample_chains(self.llm, self.search, items, steps=self.chain_steps, n=self.n))
        ids = {item.id for item in items}
        return [chain for chain in self.sampled if chain.item in ids]

    def unseen_scores(self) -> list[list[float]]:
        """Return for each chain the probabilities of its prefixes, by the model not trained on its question."""
        scores_by_chain: list[list[float]] = [[]] * len(self.chains)  # each list is replaced, none is changed
        for model in range(FOLDS):
            numbers = [number for number, chain in enumerate(self.chains) if self.fold[chain.item] == model]
            rows = [LabelledText("", *row, 0) for number in numbers for row in prefixes_of(self.chains[number])]
            scores = iter(self.probabilities(rows, model)[:, 1].tolist() if rows else [])
            for number in numbers:
                scores_by_chain[number] = list(islice(scores, len(self.chains[number].exact)))
        return scores_by_chain

    def weights(self) -> dict[str, Any]:
        plain = super().weights()
        chosen = choose_threshold(self.chains, self.unseen_scores(), self.most_lost)
        self.notes.append(chosen.describe(self.most_lost))
        return plain | {"threshold": chosen.threshold}

    def untrained(self) -> Operator[Query, Answer]:
        return corag(self.llm, self.search, steps=self.chain_steps)

    def trained(self, weights: TrainedWeights) -> Operator[Query, Answer]:
        threshold = float(weights.plain(self.part)["threshold"])
        scorer = TrainedClassifier(self.part, weights, self.embedder)
        return corag_classifier(self.llm, self.search, scorer, steps=self.chain_steps, threshold=threshold)


def prefixes_of(chain: SampledChain) -> list[tuple[str, str]]:
    """Return the question with each prefix of a chain, as the classifier reads them."""
    question = chain.chain.query.question
    return [(question, chain.prefix(pairs).format_text(CHARACTERS)) for pairs in range(1, len(chain.exact) + 1)]
