"""Templates of the flow patterns of Modular RAG: you give operators, and they build a flow.

Source: Gao et al., "Modular RAG: Transforming RAG systems into LEGO-like reconfigurable frameworks", 2024
(arXiv 2407.21059), algorithms 1 to 7. Three are corrected: branches are merged once, after all of them (3); a loop ends
when its judge accepts the answer (5, 7); the answers of every level are merged, not those of the last one (6).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from spolia.core.combinators import Each, Explore, Loop, Route, Stopped
from spolia.core.function import step
from spolia.core.operator import Operator, Retriever
from spolia.flows.evidence import empty_ranking
from spolia.pre_retrieval.query_llm import normalize_text
from spolia.types import Answer, Query, Ranking, State, Verdict

Flow: TypeAlias = Operator[Query, Answer]
Read: TypeAlias = Operator[Ranking, Answer]
Merge: TypeAlias = Operator[Sequence[Answer], Answer]
Judge: TypeAlias = Operator[Any, Verdict | bool]


def linear(
    search: Retriever,
    read: Read,
    pre_retrieval: Operator[Query, Query] | None = None,
    post_retrieval: Operator[Ranking, Ranking] | None = None,
) -> Flow:
    """Build algorithm 1: one step after the other, naive RAG; with the two optional steps advanced RAG."""
    retrieval = search if pre_retrieval is None else pre_retrieval >> search
    return (retrieval if post_retrieval is None else retrieval >> post_retrieval) >> read


def conditional(router: Operator[Query, str], flows: Mapping[str, Flow], default: str) -> Flow:
    """Build algorithm 2: a router names the flow that answers."""
    return Route(router, flows, default)


def pre_retrieval_branching(
    expand: Operator[Query, Sequence[Query]], search: Retriever, read: Read, merge: Merge
) -> Flow:
    """Build algorithm 3: each of several queries is searched for and answered; the answers are merged."""
    return expand >> Each(search >> read) >> merge


def post_retrieval_branching(search: Retriever, read: Read, merge: Merge) -> Flow:
    """Build algorithm 4: one search, an answer from each passage alone; the answers are merged."""
    return search >> apart >> Each(read) >> merge


@step
def apart(ranking: Ranking) -> tuple[Ranking, ...]:
    """Split a ranking into one for each hit; a ranking without hits stays."""
    return tuple(ranking.but(hits=(hit,)) for hit in ranking.hits) or (ranking,)


@dataclass(frozen=True)
class Rounds(State):
    """A question with the passages of the last round and the answers so far, in order."""

    query: Query
    found: Ranking
    answers: tuple[Answer, ...] = ()

    def next_query(self) -> Query:
        """Return the next query: the question, joined with the last answer if there is one."""
        previous = self.answers[-1].text if self.answers and not self.answers[-1].abstained else ""
        return self.query.rewritten(f"{self.query.question} {previous}".strip())


@step
def begin(query: Query) -> Rounds:
    return Rounds(query, empty_ranking(query), sample=query.sample)


@step(calls={"search": 1, "read": 1})
def iterate(state: Rounds, *, search: Retriever, read: Read) -> Rounds:
    """Search with the question and the last answer, and answer again."""
    ranking = search(state.next_query())
    return state.but(found=ranking, answers=(*state.answers, read(ranking)))


@step(calls={"search": 1, "read": 1})
def last_answer(state: Rounds, *, search: Retriever, read: Read) -> Answer:
    """Return the last answer; if the budget left no room for one, answer the question alone."""
    return state.answers[-1] if state.answers else read(search(state.query))


def iterative(search: Retriever, read: Read, until: Judge | None = None, max_steps: int = 3) -> Flow:
    """Build algorithm 5: retrieve and answer in turn, `max_steps` times or until a judge of the `Rounds` accepts."""
    loop = Loop(iterate.but(search=search, read=read), until or Stopped(), max_steps)
    return begin >> loop >> last_answer.but(search=search, read=read)


@dataclass(frozen=True)
class DerivedQuery(State):
    """A query at some depth, from 1, and its answer once it has stopped. The same words are the same query."""

    words: str
    query: Query = field(compare=False)
    depth: int = field(default=1, compare=False)
    answer: Answer | None = None


@step
def root(query: Query) -> DerivedQuery:
    return DerivedQuery(normalize_text(query.text), query, sample=query.sample)


@step(calls={"search": 1, "read": 1, "derive": 1})
def descend(
    state: DerivedQuery,
    *,
    search: Retriever,
    read: Read,
    derive: Operator[Answer, Sequence[Query]],
    max_depth: int = 2,
    width: int = 3,
) -> tuple[DerivedQuery, ...]:
    """Answer a query, and derive the next queries from the answer."""
    answer = read(search(state.query))
    new = derive(answer)[:width] if state.depth < max_depth else ()
    children = (DerivedQuery(normalize_text(query.text), query, state.depth + 1, sample=state.sample) for query in new)
    return (state.but(answer=answer, stop="answered"), *children)


@step
def every_answer(queries: Sequence[DerivedQuery]) -> tuple[Answer, ...]:
    """Return the answers in the order of the queries."""
    return tuple(query.answer for query in queries if query.answer is not None)


def recursive(
    search: Retriever,
    read: Read,
    derive: Operator[Answer, Sequence[Query]],
    merge: Merge,
    max_depth: int = 2,
    width: int = 3,
) -> Flow:
    """Build algorithm 6: each answer leads to at most `width` queries, down to a depth from 1; no query runs twice."""
    body = descend.but(search=search, read=read, derive=derive, max_depth=max_depth, width=width)
    queries = sum(width**level for level in range(max_depth))
    # `descend` states each query twice, open and answered.
    return root >> Explore(body, max_depth, max_states=2 * queries) >> every_answer >> merge


Action = Literal["retrieve", "answer"]


@step(calls={"policy": 1, "search": 1, "read": 1})
def act(state: Rounds, *, policy: Operator[Rounds, Action], search: Retriever, read: Read) -> Rounds:
    """Retrieve where the policy says so, and answer from the latest passages."""
    ranking = search(state.next_query()) if policy(state) == "retrieve" else state.found
    return state.but(found=ranking, answers=(*state.answers, read(ranking)))


def adaptive(policy: Operator[Rounds, Action], search: Retriever, read: Read, until: Judge, max_steps: int = 5) -> Flow:
    """Build algorithm 7: a policy decides at each turn whether to retrieve, until a judge of the `Rounds` accepts."""
    loop = Loop(act.but(policy=policy, search=search, read=read), until, max_steps)
    return begin >> loop >> last_answer.but(search=search, read=read)
