"""The flow patterns of Modular RAG as templates: give them operators, and they give a flow.

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
from spolia.flows.evidence import nothing
from spolia.pre_retrieval.query_llm import alike
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
    """Algorithm 1: one step after the other. Without the two in the middle it is naive RAG, with them advanced RAG."""
    found = search if pre_retrieval is None else pre_retrieval >> search
    return (found if post_retrieval is None else found >> post_retrieval) >> read


def conditional(router: Operator[Query, str], flows: Mapping[str, Flow], default: str) -> Flow:
    """Algorithm 2: a router names the flow that answers."""
    return Route(router, flows, default)


def pre_retrieval_branching(
    expand: Operator[Query, Sequence[Query]], search: Retriever, read: Read, merge: Merge
) -> Flow:
    """Algorithm 3: each of several queries is searched for and answered; the answers are merged."""
    return expand >> Each(search >> read) >> merge


def post_retrieval_branching(search: Retriever, read: Read, merge: Merge) -> Flow:
    """Algorithm 4: one search, an answer from each passage alone; the answers are merged."""
    return search >> apart >> Each(read) >> merge


@step
def apart(found: Ranking) -> tuple[Ranking, ...]:
    """A ranking for each hit; one without hits for none."""
    return tuple(found.but(hits=(hit,)) for hit in found.hits) or (found,)


@dataclass(frozen=True)
class Rounds(State):
    """A question with the passages that were found last and the answers so far, the last one last."""

    query: Query
    found: Ranking
    answers: tuple[Answer, ...] = ()

    def wanted(self) -> Query:
        """What to search for: the question, joined with the last answer where there is one."""
        said = self.answers[-1].text if self.answers and not self.answers[-1].abstained else ""
        return self.query.rewritten(f"{self.query.question} {said}".strip())


@step
def begin(query: Query) -> Rounds:
    return Rounds(query, nothing(query), sample=query.sample)


@step(calls={"search": 1, "read": 1})
def iterate(state: Rounds, *, search: Retriever, read: Read) -> Rounds:
    """Search with the question and the last answer, and answer again."""
    found = search(state.wanted())
    return state.but(found=found, answers=(*state.answers, read(found)))


@step(calls={"search": 1, "read": 1})
def last_answer(state: Rounds, *, search: Retriever, read: Read) -> Answer:
    """The last answer; where a budget left no room for one, that of the question alone."""
    return state.answers[-1] if state.answers else read(search(state.query))


def iterative(search: Retriever, read: Read, until: Judge | None = None, max_steps: int = 3) -> Flow:
    """Algorithm 5: retrieve and answer in turn, so often or until a judge of the `Rounds` accepts."""
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
    return DerivedQuery(alike(query.text), query, sample=query.sample)


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
    """The answer of a query, and the first queries that follow from it."""
    answer = read(search(state.query))
    new = derive(answer)[:width] if state.depth < max_depth else ()
    below = (DerivedQuery(alike(query.text), query, state.depth + 1, sample=state.sample) for query in new)
    return (state.but(answer=answer, stop="answered"), *below)


@step
def every_answer(asked: Sequence[DerivedQuery]) -> tuple[Answer, ...]:
    """The answers in the order of the queries."""
    return tuple(one.answer for one in asked if one.answer is not None)


def recursive(
    search: Retriever,
    read: Read,
    derive: Operator[Answer, Sequence[Query]],
    merge: Merge,
    max_depth: int = 2,
    width: int = 3,
) -> Flow:
    """Algorithm 6: each answer leads to at most `width` queries, down to a depth from 1; no query is asked twice."""
    body = descend.but(search=search, read=read, derive=derive, max_depth=max_depth, width=width)
    queries = sum(width**level for level in range(max_depth))
    return root >> Explore(body, max_depth, max_states=2 * queries) >> every_answer >> merge


Action = Literal["retrieve", "answer"]


@step(calls={"policy": 1, "search": 1, "read": 1})
def act(state: Rounds, *, policy: Operator[Rounds, Action], search: Retriever, read: Read) -> Rounds:
    """Retrieve where the policy says so, and answer from the latest passages."""
    found = search(state.wanted()) if policy(state) == "retrieve" else state.found
    return state.but(found=found, answers=(*state.answers, read(found)))


def adaptive(policy: Operator[Rounds, Action], search: Retriever, read: Read, until: Judge, max_steps: int = 5) -> Flow:
    """Algorithm 7: a policy decides at each turn whether to retrieve; a judge of the `Rounds` ends it by accepting."""
    loop = Loop(act.but(policy=policy, search=search, read=read), until, max_steps)
    return begin >> loop >> last_answer.but(search=search, read=read)
