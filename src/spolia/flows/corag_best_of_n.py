"""CoRAG, best of n: of several chains the one that is least likely to find nothing.

As in the published code, a chain is scored by the prompt that answers a sub-question: the question in its place, and
the pairs of the chain in that of the documents. The mean is over the tokens of the sentence, without the end of the
turn, which servers do not state; the sentence is that of our prompt, with a full stop.
"""

from math import fsum

from spolia.core.combinators import Best, Each, Loop, Samples, Stopped
from spolia.core.function import step
from spolia.core.operator import Operator, Retriever
from spolia.flows.catalogue import published
from spolia.flows.corag import NOTHING, REPLY, SOURCE, Judge, Searched, begin, build_conclusion, build_hop
from spolia.models.prompting.likelihood import Continuation, Likelihood
from spolia.models.prompting.role import Role
from spolia.models.protocols import ScoresContinuations
from spolia.types import Answer, Query, Token


@step(calls={"likelihood": 1}, version=3)
def promise(
    chain: Searched, *, likelihood: Operator[Continuation, tuple[Token, ...]], role: Role[str] = REPLY
) -> float:
    """Return how unlikely it is that the chain finds nothing: −mean ln p(`NOTHING` | question, pairs as documents)."""
    pairs = tuple(f"Q: {question}\nA: {answer}" for question, answer in chain.pairs)
    tokens = likelihood(Continuation(role.prompt_for({"question": chain.query.question, "passages": pairs}), NOTHING))
    return -fsum(token.logprob for token in tokens) / max(1, len(tokens))  # a model may state no token


def build_best_of_n(
    llm: ScoresContinuations, search: Retriever, until: Judge, steps: int, n: int, form: str
) -> Operator[Query, Answer]:
    """Build a flow that takes the most promising of n chains, of which the first is greedy."""
    chains = begin.but(form=form) >> Samples(n) >> Each(Loop(build_hop(llm, search, steps), until, steps))
    return chains >> Best(promise.but(likelihood=Likelihood(llm))) >> build_conclusion(llm, search)


@published(SOURCE, "abstained", "cap", "repeated")
def corag_best_of_n(
    llm: ScoresContinuations, search: Retriever, steps: int = 6, n: int = 4, form: str = "plain"
) -> Operator[Query, Answer]:
    return build_best_of_n(llm, search, Stopped(), steps, n, form)
