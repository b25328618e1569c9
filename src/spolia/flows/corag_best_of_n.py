"""CoRAG, best of n: of several chains the one that is least likely to say nothing."""

from math import fsum
from typing import Any

from spolia.core.combinators import Best, Each, Loop, Samples, Stopped
from spolia.core.function import step
from spolia.core.operator import Operator, Retriever
from spolia.flows.catalogue import published
from spolia.flows.corag import NOTHING, SOURCE, Judge, Searched, begin, final, hops
from spolia.models.prompting.likelihood import Continuation, Likelihood
from spolia.models.protocols import ScoresContinuations
from spolia.types import Answer, Query


@step(calls={"likelihood": 1})
def promise(chain: Searched, *, likelihood: Operator[Continuation, Any]) -> float:
    """How unlikely it is that the chain says nothing: −mean ln p(`NOTHING` | question, chain)."""
    tokens = likelihood(Continuation.of(NOTHING, chain.query.question, *(f"{q}\n{a}" for q, a in chain.pairs)))
    return -fsum(token.logprob for token in tokens) / max(1, len(tokens))


def best_of(llm: ScoresContinuations, search: Retriever, until: Judge, steps: int, n: int) -> Operator[Query, Answer]:
    """The most promising of n chains, of which the first is greedy."""
    chains = Each(Loop(hops(llm, search, steps), until, steps))
    return begin >> Samples(n) >> chains >> Best(promise.but(likelihood=Likelihood(llm))) >> final(llm, search)


@published(SOURCE, "abstained", "cap", "repeated")
def corag_best_of_n(llm: ScoresContinuations, search: Retriever, steps: int = 6, n: int = 4) -> Operator[Query, Answer]:
    return best_of(llm, search, Stopped(), steps, n)
