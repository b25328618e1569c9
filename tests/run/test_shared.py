"""`Run(share=True)`: equal steps on equal values compute once in a run, whichever flow they stand in."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, ClassVar

import pytest
from hypothesis import given, settings

from spolia.core.combinators import Branch, Guard, Identity
from spolia.core.function import step
from spolia.core.operator import Operator
from spolia.core.run_context import charge, degrade, reserve
from spolia.errors import ModelUnavailable
from spolia.journal import Cache
from spolia.orchestration.rank_fusion import ReciprocalRankFusion
from spolia.post_retrieval.selection import Cut
from spolia.run import Budget, Run
from spolia.types import Answer, Failure, Hit, Node, Query, Ranking, Usage
from tests.run.flows import COUNTER, Ask, Model, Say, flows, outcome, queries


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    COUNTER.reset()
    Model.moves.clear()
    yield
    Model.moves.clear()


def ranking_of(query: Query, source: str, *ids: str) -> Ranking:
    return Ranking(query, tuple(Hit(Node(id, id), 1.0 / rank) for rank, id in enumerate(ids, start=1)), source)


@dataclass(frozen=True)
class Retriever(Operator[Query, Ranking]):
    """Of a user's: no store among its fields, nothing declared."""

    source: str

    def apply(self, value: Query, /) -> Ranking:
        with COUNTER.counted(self.source):
            return ranking_of(value, self.source, *"abcdef")


@dataclass(frozen=True)
class Vectorised(Retriever):
    def apply_batch(self, values: Sequence[Query], /) -> list[Ranking]:
        return [self.apply(value) for value in values]


@dataclass(frozen=True)
class Read(Operator[Ranking, Answer]):
    """One call; reads the ids alone."""

    cached: ClassVar[bool] = True

    def apply(self, value: Ranking, /) -> Answer:
        with reserve(Usage(calls=1)), COUNTER.counted("read"):
            return Answer(" ".join(node.id for node in value.nodes), evidence=value)

    def reads(self, value: Ranking, /) -> object:
        return tuple(node.id for node in value.nodes)


def grid(kind: type[Retriever]) -> list[Operator[Query, Ranking]]:
    """144 flows over 3 retrievers."""
    a, b, c = (kind(source) for source in "abc")
    arms = [Branch(a, b), Branch(a, c), Branch(b, c), Branch(a, b, c)]
    return [
        branch >> ReciprocalRankFusion(k=k) >> Cut(top_k=top_k)
        for branch, k, top_k in product(arms, (1.0, 5.0, 10.0, 30.0, 60.0, 90.0), range(1, 7))
    ]


@pytest.mark.slow
@pytest.mark.parametrize("kind", [Retriever, Vectorised])
def test_144_flows_over_three_retrievers_search_three_times(kind: type[Retriever]) -> None:
    all_flows = grid(kind)
    plain = [flow(Query("why?")) for flow in all_flows]
    COUNTER.reset()
    with Run(share=True) as run:
        shared = [flow(Query("why?")) for flow in all_flows]
        batched = [flow.batch([Query("why?")])[0] for flow in all_flows]
    assert COUNTER.calls == 3
    assert run.counts()[kind.type_id()] == 3
    assert run.counts()["ReciprocalRankFusion"] == 4 * 6
    assert shared == plain == batched
    assert [[hit.parts for hit in ranking.hits] for ranking in shared] == [
        [hit.parts for hit in ranking.hits] for ranking in plain
    ]


@pytest.mark.parametrize("kind", [Retriever, Vectorised])
def test_rows_and_threads_at_the_same_time_compute_once(kind: type[Retriever]) -> None:
    rows = [Query(text) for text in "abcabc"]
    with Run(share=True, threads=8) as run:
        flow = Branch(*(kind(source) for source in "xxyy"))

        def ask() -> None:
            with run:
                assert flow.batch(rows) == [flow.apply(row) for row in rows]

        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert COUNTER.calls == 2 * 3


@pytest.mark.slow
@settings(max_examples=60)
@given(flow=flows(), questions=queries())
def test_a_shared_run_gives_what_a_plain_one_gives(flow: Operator[Query, Query], questions: list[Query]) -> None:
    plain = [outcome(lambda q=q: flow(q)) for q in questions]  # type: ignore[misc]
    for cache in (None, Cache()):
        with Run(share=True, cache=cache, threads=3, window=2):
            for _ in range(2):
                assert [outcome(lambda q=q: flow(q)) for q in questions] == plain  # type: ignore[misc]
                rows = flow.batch(questions)
                assert [row.kind if isinstance(row, Failure) else row for row in rows] == plain


def test_a_shared_result_has_the_provenance_of_who_asks() -> None:
    ann, bob = Query("tide", origin=Query("Ann's?")), Query("tide", origin=Query("Bob's?"))
    with Run(share=True):
        ranking, other_ranking, rows = Retriever("r")(ann), Retriever("r")(bob), Vectorised("v").batch([ann, bob])
        same = Retriever("r")(Query("tide", origin=Query("Ann's?")))
    assert ranking.query is ann
    assert other_ranking.query is bob
    assert [row.query for row in rows if isinstance(row, Ranking)] == [ann, bob]
    assert [row.query.origin for row in rows if isinstance(row, Ranking)] == [ann.origin, bob.origin]
    assert same == ranking
    assert COUNTER.calls == 2


def test_a_reader_is_called_once_for_each_context_and_cites_the_ranking_that_it_was_given() -> None:
    first, second = ranking_of(Query("?"), "first", "a", "b"), ranking_of(Query("?"), "second", "a", "b")
    with Run(share=True) as run:
        answers = [Read()(first), Read()(second), *Read().batch([first, second])]
    assert COUNTER.calls == 1
    assert [answer.evidence for answer in answers if isinstance(answer, Answer)] == [first, second, first, second]
    assert (run.usage.calls, run.actual_usage.calls) == (4, 1)


@dataclass(frozen=True)
class Better(Operator[Sequence[Answer], Answer]):
    """Asks a model, without being kept itself: the evidence of what it gives is that of an answer it is given."""

    model: Model

    def apply(self, value: Sequence[Answer], /) -> Answer:
        with COUNTER.counted("better"):
            return Answer(value[0].text, evidence=value[0].evidence)


def test_what_is_shared_loses_no_evidence_that_computing_it_would_give() -> None:
    rankings = [ranking_of(Query("?"), source, "a") for source in ("first", "second")]
    fused, inputs = Better(Model("m")), [(Answer("so", evidence=ranking),) for ranking in rankings]
    with Run(share=True):
        answers = [fused(inputs[0]), fused(inputs[1]), fused(inputs[0])]
    assert [answer.evidence for answer in answers] == [*rankings, rankings[0]]
    assert COUNTER.calls == 2


def test_a_budget_is_charged_for_what_is_really_spent() -> None:
    rankings = [ranking_of(Query("?"), "r", "a")] * 5
    with Run(share=True, budget=Budget(calls=1), per_question=Budget(calls=1)) as run:
        assert all(isinstance(row, Answer) for row in Read().batch(rankings))
        assert Read()(rankings[0]) == Answer("a")
    assert run.actual_usage.calls == 1


@dataclass(frozen=True)
class Poorly(Operator[str, str]):
    how: str

    def apply(self, value: str, /) -> str:
        with COUNTER.counted():
            if self.how == "raises":
                raise ModelUnavailable("down")
            if self.how == "degrades":
                degrade("half of it")
            return value


@pytest.mark.parametrize("how", ["raises", "degrades", "drops an arm"])
def test_what_failed_or_is_degraded_is_not_shared(how: str) -> None:
    flow: Operator[str, Any] = Poorly(how) if how != "drops an arm" else Branch(Poorly("raises"), kept, min_arms=1)
    later_flow = flow >> made_of_it
    with Run(share=True) as run:
        for _ in range(2):
            later_flow.batch(["q"])
            if how != "raises":
                later_flow("q")
    assert COUNTER.calls == (2 if how == "raises" else 4)
    assert run.counts().get(made_of_it.type_id(), 0) in (0, 1)


@step
def kept(text: str) -> str:
    return text


@step
def made_of_it(value: object) -> str:
    return str(value)


def test_what_moves_is_asked_again_and_what_has_no_fingerprint_is_shared() -> None:
    with Run(share=True):
        for _ in range(2):
            Ask()(Query("q"))
        assert COUNTER.calls == 1
        Model.moves["model"] = "2"
        Ask()(Query("q"))
        assert COUNTER.calls == 2
        Model.moves["model"] = None
        for _ in range(2):
            Ask()(Query("q"))
        assert COUNTER.calls == 3


def test_nothing_is_shared_with_another_run_or_without_being_told() -> None:
    for share in (True, True, False):
        with Run(share=share):
            Retriever("r")(Query("q"))
            Retriever("r")(Query("q"))
    assert COUNTER.calls == 1 + 1 + 2


def test_what_is_shared_takes_bounded_memory_and_what_was_used_last_stays() -> None:
    @step
    def large(n: int) -> str:
        with COUNTER.counted(n):
            return "x" * 10_000

    with Run(share=100_000) as run:
        for n in range(50):
            large(n)
            large(0)
    assert run.results is not None
    assert 0 < run.results.bytes <= 100_000
    assert len(run.results._entries) == 9
    assert COUNTER.seen == list(range(50))
    assert run.results._claims == {}


@step
def inside(query: Query) -> Answer:
    charge(Usage(calls=1))
    return Answer(" ".join(node.id for node in Retriever("within")(query).nodes))


@pytest.mark.parametrize("threads", [1, 4])
def test_a_lane_has_the_retrievals_of_shared_steps_too(threads: int) -> None:
    branch = Branch(Retriever("a"), Retriever("b")) >> ReciprocalRankFusion()
    all_flows: list[Operator[Query, Any]] = [inside, branch, Guard(branch), Identity[Query]() >> inside]
    with Run(share=True, threads=threads) as run:
        inside(Query("q"))  # outside of any lane
        for flow in [*all_flows, *all_flows]:
            with run.lane() as lane:
                flow(Query("q"))
            with Run() as other_run, other_run.lane() as expected:
                flow(Query("q"))
            assert lane.retrievals == expected.retrievals
            assert lane.usage == expected.usage


def test_what_streams_once_ends_with_the_same_value_the_second_time() -> None:
    ranking = ranking_of(Query("?"), "r", "a", "b")
    with Run(share=True) as run:
        first, second = (list(run.stream(Say(), ranking))[-1].value for _ in range(2))  # type: ignore[union-attr]
    assert first == second == Answer("ab")
    assert COUNTER.calls == 1


def test_who_waits_for_an_equal_step_computes_it_if_that_one_fails() -> None:
    @step(waits=True)
    def once_down(text: str) -> str:
        with COUNTER.counted():
            first = COUNTER.calls == 1
            time.sleep(0.02)
            if first:
                raise ModelUnavailable("down")
            return text

    with Run(share=True, threads=4):
        rows = once_down.batch(["q"] * 4)
    assert sorted(isinstance(row, Failure) for row in rows) == [False, False, False, True]
    assert COUNTER.calls == 2
