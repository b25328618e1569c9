"""Chains of sub-questions with what they would have answered after each step: the data of a sufficiency classifier."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

from spolia.core.operator import Operator, Retriever
from spolia.core.run_context import check_cancelled
from spolia.evaluation.measures.answers.string_match import F1, ExactMatch
from spolia.flows.corag import Searched, begin, final, hops
from spolia.flows.corag_best_of_n import promise
from spolia.models.prompting.likelihood import Likelihood
from spolia.models.protocols import LanguageModel, ScoresContinuations
from spolia.run import Run
from spolia.types import Answer, Chain, Item, Query, Value

CHARACTERS = 2_000
"""A question and its chain that a classifier reads, as `Classified` shows them."""


@dataclass(frozen=True)
class SampledChain(Value):
    """A chain that went on to its end, and the answer after each of its pairs.

    Args:
        item: the question's id.
        chain: the question and all pairs.
        exact: EM of the answer after the first pair, the first two, …
        f1: its F1.
        tokens: what the model has read and written until then, the answer counted in.
        promise: how much the model makes of the chain; the higher the better. 0 where it cannot score.
    """

    item: str
    chain: Chain
    exact: tuple[float, ...]
    f1: tuple[float, ...]
    tokens: tuple[int, ...]
    promise: float = 0.0

    @property
    def enough(self) -> int:
        """How many pairs suffice; 0 where none do."""
        return next((number for number, score in enumerate(self.exact, 1) if score == 1), 0)

    def prefix(self, pairs: int) -> Chain:
        return self.chain.but(pairs=self.chain.pairs[:pairs])


class SufficiencyRow(NamedTuple):
    """A question with a beginning of a chain, and whether that suffices."""

    item: str
    question: str
    written: str
    sufficient: bool


def sample_chains(
    llm: LanguageModel, search: Retriever, items: Sequence[Item], *, steps: int = 6, n: int = 4
) -> Iterator[SampledChain]:
    """`n` chains of each question that has accepted answers, of at most `steps` pairs, each with an answer after
    every pair.

    The first chain of a question is greedy, the others are drawn. A chain ends before `steps` where the model only
    repeats itself. With the cache of the run a second call asks the model nothing again.
    """
    grow, end = hops(llm, search, steps), final(llm, search)
    hope = promise.but(likelihood=Likelihood(llm)) if isinstance(llm, ScoresContinuations) else None
    for item in filter(ExactMatch().applies, items):
        check_cancelled()
        with Run.current() or Run(share=True) as run:
            every = [
                _grown(run, begin(Query(item.question, sample=sample)), grow, end, item, steps) for sample in range(n)
            ]
            found = [one for one in every if one.chain.pairs]
            hopes = [hope(Searched(one.chain.query, one.chain.pairs)) if hope else 0.0 for one in found]
        yield from (one.but(promise=score) for one, score in zip(found, hopes, strict=True))


def _grown(
    run: Run,
    chain: Searched,
    grow: Operator[Searched, Searched],
    end: Operator[Searched, Answer],
    item: Item,
    steps: int,
) -> SampledChain:
    exact, f1, tokens = list[float](), list[float](), list[int]()
    spent = 0
    for _ in range(steps):
        with run.lane() as lane:
            chain = grow(chain)
        if chain.stop:
            break
        spent += lane.usage.input_tokens + lane.usage.output_tokens
        with run.lane() as lane:
            answer = end(chain)
        tokens.append(spent + lane.usage.input_tokens + lane.usage.output_tokens)
        exact.append(ExactMatch().score(answer, item) or 0.0)
        f1.append(F1().score(answer, item) or 0.0)
    return SampledChain(item.id, Chain(chain.query, chain.pairs), tuple(exact), tuple(f1), tuple(tokens))


def sufficiency_rows(
    chains: Sequence[SampledChain], *, whole: bool = False, best_only: bool = False, singles: float = 1.0, seed: int = 0
) -> list[SufficiencyRow]:
    """Each beginning of each chain as a row, up to the first that suffices.

    Args:
        whole: also those after it, as a chain has them that was not ended there.
        best_only: of the chains of a question, only the one with the highest `promise`: rejection sampling.
        singles: of the chains that end after one pair, at most this many times those that end after two; the others
            are left out by lot. The paper keeps 4,077 beside 2,325: 1.75.
        seed: of the lot.

    Source: Yeom et al., "Chain of retrieval with an external sufficiency classifier", 2025.
    """
    if best_only:
        best: dict[str, SampledChain] = {}
        for one in chains:
            if one.item not in best or one.promise > best[one.item].promise:
                best[one.item] = one
        chains = list(best.values())
    short = [one for one in chains if one.enough == 1]
    most = max(1, round(singles * sum(one.enough == 2 for one in chains)))
    kept = {id(one) for one in (Random(seed).sample(short, most) if len(short) > most else short)}
    return [
        SufficiencyRow(one.item, one.chain.query.question, one.prefix(pairs).written(CHARACTERS), score == 1)
        for one in chains
        if one.enough != 1 or id(one) in kept
        for pairs, score in enumerate(one.exact if whole or not one.enough else one.exact[: one.enough], 1)
    ]
