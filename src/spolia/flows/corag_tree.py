"""CoRAG as a tree: several sub-questions at each step, of which the one that leads furthest is kept.

Other than the published code: sub-questions that the chain has are left out; of two rollouts the first is greedy, and
the other drawn; equal chains keep the order in which they were drawn, where the code has that of a Python set.
"""

from collections.abc import Sequence
from math import fsum

from spolia.core.combinators import Each, Explore, Loop, Samples, Stopped
from spolia.core.function import step
from spolia.core.operator import Operator, Retriever
from spolia.flows.catalogue import published
from spolia.flows.corag import (
    NEXT,
    REPLY,
    SOURCE,
    WARM,
    Judge,
    Searched,
    answered,
    begin,
    final,
    hops,
)
from spolia.flows.corag_best_of_n import promise
from spolia.models.prompting.likelihood import Likelihood
from spolia.models.prompting.role import Ask, Brief, replies
from spolia.models.protocols import ScoresContinuations
from spolia.pre_retrieval.query_llm import alike
from spolia.types import Answer, Query


@step(calls={"ask": 6, "reply": 4, "search": 4, "until": 4})
def branch(
    chain: Searched, *, ask: Ask, reply: Ask, search: Retriever, until: Judge, width: int = 4
) -> tuple[Searched, ...]:
    """The chain with each of some different sub-questions, of six drawn; one that suffices grows no further."""
    drawn = replies(ask, [Brief.from_texts(draw, **chain.shown()) for draw in range(6)])
    known = {alike(question) for question, _ in chain.pairs}
    new = {alike(one): one for one in reversed(drawn) if isinstance(one, str) and alike(one) not in known | {""}}
    grown = [answered(chain, question, reply, search) for question in list(new.values())[::-1][:width]]
    verdicts = [until(one) for one in grown]
    return tuple(one.but(stop=said.reason) if said.stop else one for one, said in zip(grown, verdicts, strict=True))


@step
def mean(scores: Sequence[float]) -> float:
    return fsum(scores) / len(scores)


@step
def first(chains: Sequence[Searched]) -> Searched:
    return chains[0]


def tree(llm: ScoresContinuations, search: Retriever, until: Judge, steps: int, form: str) -> Operator[Query, Answer]:
    """A beam of width 1; a chain is worth the mean of two rollouts of two more steps."""
    grow = branch.but(ask=Ask(llm, NEXT, 64, WARM), reply=Ask(llm, REPLY, 128), search=search, until=until)
    ahead = Loop(hops(llm, search, steps), until, max_steps=2) >> promise.but(likelihood=Likelihood(llm))
    twice: Operator[Searched, tuple[Searched, ...]] = Samples(2)
    score = twice >> Each(ahead) >> mean
    chains = Explore(grow, steps, score=score, width=1)
    return begin.but(form=form) >> chains >> first >> final(llm, search)


@published(SOURCE, "abstained", "cap", "exhausted")
def corag_tree(
    llm: ScoresContinuations, search: Retriever, steps: int = 6, form: str = "plain"
) -> Operator[Query, Answer]:
    return tree(llm, search, Stopped(), steps, form)
