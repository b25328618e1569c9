"""The account of a question: what it took, and what each call of a retriever found."""

from __future__ import annotations

import pytest

from spolia.core.combinators import Branch, Guard
from spolia.core.function import step
from spolia.core.run_context import charge
from spolia.errors import QueryError
from spolia.journal import Cache, Runs
from spolia.orchestration.rank_fusion import ReciprocalRankFusion
from spolia.run import Run
from spolia.types import Answer, Hit, Node, Query, Ranking, Usage


def found(query: Query, source: str, *ids: str) -> Ranking:
    return Ranking(query, tuple(Hit(Node(id, ""), 1.0 / rank) for rank, id in enumerate(ids, start=1)), source)


@step
def local(query: Query) -> Ranking:
    charge(Usage(embedded=1))
    return found(query, "local", "a", "b")


@step(waits=True)
def web(query: Query) -> Ranking:
    return found(query, "web", "w")


@step
def shout(query: Query) -> Query:
    return query.rewritten(query.text.upper())


@step
def calls_local(query: Query) -> Ranking:
    return local(query)


@step
def broken(query: Query) -> Ranking:
    raise QueryError("broken")


@step
def read(ranking: Ranking) -> Answer:
    charge(Usage(calls=1, input_tokens=10))
    return Answer("so", evidence=ranking)


@step(cached=True)
def kept(query: Query) -> Ranking:
    charge(Usage(calls=1))
    return found(query, "kept", "k")


FUSED = Branch(local, web) >> ReciprocalRankFusion()
ASKED = Query("why?")


@pytest.mark.parametrize(
    ("flow", "sources"),
    [
        (local, ["local"]),
        (shout >> local >> read, ["local"]),
        (FUSED >> read, ["local", "web"]),
        (calls_local, ["local"]),
        (Guard(broken, fallback=web, on=("QueryError",)), ["web"]),
        (Guard(Branch(local, local) >> ReciprocalRankFusion()), ["local", "local"]),
    ],
    ids=str,
)
@pytest.mark.parametrize("threads", [1, 4])
def test_a_lane_has_what_each_retriever_found_and_nothing_that_was_made_of_it(
    flow: object, sources: list[str], threads: int
) -> None:
    with Run(threads=threads) as run, run.lane() as lane:
        flow(ASKED)  # type: ignore[operator]
    assert sorted(ranking.source for ranking in lane.retrievals) == sorted(sources)


def test_what_was_found_is_in_the_order_in_which_it_was_looked_for() -> None:
    with Run() as run, run.lane() as lane:
        (shout >> local)(ASKED)
        web(ASKED)
    assert [(ranking.source, ranking.query.text) for ranking in lane.retrievals] == [("local", "WHY?"), ("web", "why?")]


def test_rows_of_a_batch_are_on_the_account_too() -> None:
    with Run() as run, run.lane() as lane:
        (FUSED >> read).batch([ASKED, Query("how?")])
    assert sorted(ranking.source for ranking in lane.retrievals) == ["local", "local", "web", "web"]


def test_each_lane_has_its_own_cost_and_the_run_the_sum() -> None:
    with Run() as run:
        with run.lane() as one:
            (local >> read)(ASKED)
        with run.lane() as two:
            local(ASKED)
    assert (one.usage, two.usage) == (Usage(1, 10, 0, 1), Usage(embedded=1))
    assert run.usage == one.usage + two.usage


def test_a_lane_tells_what_came_from_the_cache() -> None:
    with Run(cache=Cache()) as run:
        with run.lane() as first:
            kept(ASKED)
        with run.lane() as again:
            kept(ASKED)
    assert (first.cached, again.cached) == (False, True)
    assert (again.usage, again.spent) == (Usage(calls=1), Usage())
    assert [ranking.source for ranking in again.retrievals] == ["kept"]


def test_a_lane_knows_its_spans(tmp_path) -> None:  # type: ignore[no-untyped-def]
    with Runs(tmp_path / "runs.db") as runs:
        with Run(journal=runs.journal) as run:
            lanes = []
            for _ in range(2):
                with run.lane() as lane:
                    (shout >> local)(ASKED)
                lanes.append(lane.number)
        runs.journal.flush()
        spans = runs.journal.spans(run.id)
    assert [span.step.rpartition(":")[2] for span in spans if span.lane == lanes[1]] == ["Then", "shout", "local"]
    assert {span.lane for span in spans} == set(lanes)


def test_without_a_lane_nothing_is_kept() -> None:
    with Run() as run:
        local(ASKED)
        with run.lane() as lane:
            pass
    assert (lane.retrievals, lane.usage) == ([], Usage())


def test_a_budget_of_each_question_holds_in_its_lane() -> None:
    from spolia.run import Budget

    @step
    def asks(query: Query) -> Query:
        from spolia.core.run_context import reserve

        with reserve(Usage(calls=1)) as held:
            held.settle(Usage(calls=1))
        return query

    with Run(per_question=Budget(calls=2)) as run:
        for _ in range(3):
            with run.lane() as lane:
                (asks >> asks)(ASKED)
            assert lane.usage.calls == 2
