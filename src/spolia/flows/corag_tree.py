"""CoRAG as a tree: several sub-questions at each step, of which the most promising one is kept.

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
    begin,
    build_conclusion,
    build_hop,
    extend_chain,
)
from spolia.flows.corag_best_of_n import promise
from spolia.models.prompting.likelihood import Likelihood
from spolia.models.prompting.role import Ask, Brief, replies
from spolia.models.protocols import ScoresContinuations
from spolia.pre_retrieval.query_llm import normalize_text
from spolia.types import Answer, Query


@step(calls={"ask": 6, "reply": 4, "search": 4, "until": 4})
def branch(
    chain: Searched, *, ask: Ask, reply: Ask, search: Retriever, until: Judge, width: int = 4
) -> tuple[Searched, ...]:
    """Extend the chain by each of several different sub-questions, of six drawn; a chain that suffices stops."""
    draws = replies(ask, [Brief.from_texts(draw, **chain.prompt_places()) for draw in range(6)])
    known_questions = {normalize_text(question) for question, _ in chain.pairs}
    new = {
        normalize_text(candidate): candidate
        # backwards, and the list below backwards again: of spellings the first drawn stays
        for candidate in reversed(draws)
        if isinstance(candidate, str) and normalize_text(candidate) not in known_questions | {""}
    }
    children = [extend_chain(chain, question, reply, search) for question in list(new.values())[::-1][:width]]
    verdicts = [until(candidate) for candidate in children]
    return tuple(
        candidate.but(stop=verdict.reason) if verdict.stop else candidate
        for candidate, verdict in zip(children, verdicts, strict=True)
    )


@step
def mean(scores: Sequence[float]) -> float:
    return fsum(scores) / len(scores)


@step
def first(chains: Sequence[Searched]) -> Searched:
    return chains[0]


def build_tree(
    llm: ScoresContinuations, search: Retriever, until: Judge, steps: int, form: str
) -> Operator[Query, Answer]:
    """Build a beam search of width 1; a chain is worth the mean of two rollouts of two more steps."""
    grow = branch.but(ask=Ask(llm, NEXT, 64, WARM), reply=Ask(llm, REPLY, 128), search=search, until=until)
    ahead = Loop(build_hop(llm, search, steps), until, max_steps=2) >> promise.but(likelihood=Likelihood(llm))
    twice: Operator[Searched, tuple[Searched, ...]] = Samples(2)
    score = twice >> Each(ahead) >> mean
    chains = Explore(grow, steps, score=score, width=1)
    return begin.but(form=form) >> chains >> first >> build_conclusion(llm, search)


@published(SOURCE, "abstained", "cap", "exhausted")
def corag_tree(
    llm: ScoresContinuations, search: Retriever, steps: int = 6, form: str = "plain"
) -> Operator[Query, Answer]:
    return build_tree(llm, search, Stopped(), steps, form)
