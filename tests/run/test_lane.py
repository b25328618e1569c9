"""The account of a question: what it took, and what each call of a retriever found."""

from __future__ import annotations

import copy
import gc
import pickle
import warnings
from collections.abc import Iterator

import pytest

from spolia.core.combinators import Branch, Guard, Loop
from spolia.core.function import step
from spolia.core.operator import Operator, walk_values
from spolia.core.run_context import charge, collect_degradations, degrade
from spolia.errors import BudgetSpent, DegradedWarning, ModelUnavailable, QueryError
from spolia.journal import Cache, Runs
from spolia.orchestration.rank_fusion import ReciprocalRankFusion
from spolia.run import Run
from spolia.run import lane as lane_module
from spolia.run.lane import count_reasons, numbered_step_names
from spolia.types import Answer, Chain, Hit, Node, Query, Ranking, Usage
from tests.cases import check_each


def ranking_of(query: Query, source: str, *ids: str) -> Ranking:
    return Ranking(query, tuple(Hit(Node(id, ""), 1.0 / rank) for rank, id in enumerate(ids, start=1)), source)


@step
def local(query: Query) -> Ranking:
    charge(Usage(embedded=1))
    return ranking_of(query, "local", "a", "b")


@step(waits=True)
def web(query: Query) -> Ranking:
    return ranking_of(query, "web", "w")


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
def away(query: Query) -> Ranking:
    raise ModelUnavailable("away")


@step
def read(ranking: Ranking) -> Answer:
    charge(Usage(calls=1, input_tokens=10))
    return Answer("so", evidence=ranking)


@step(cached=True)
def kept(query: Query) -> Ranking:
    charge(Usage(calls=1))
    return ranking_of(query, "kept", "k")


FUSED = Branch(local, web) >> ReciprocalRankFusion()
ASKED = Query("why?")


@check_each(
    ("flow", "sources"),
    [
        (local, ["local"]),
        (shout >> local >> read, ["local"]),
        (FUSED >> read, ["local", "web"]),
        (calls_local, ["local"]),
        (Guard(broken, fallback=web, on=("QueryError",)), ["web"]),
        (Guard(Branch(local, local) >> ReciprocalRankFusion()), ["local", "local"]),
    ],
)
@check_each("threads", [1, 4])
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
        with run.lane() as second_lane:
            kept(ASKED)
    assert (first.cached, second_lane.cached) == (False, True)
    assert (second_lane.usage, second_lane.spent) == (Usage(calls=1), Usage())
    assert [ranking.source for ranking in second_lane.retrievals] == ["kept"]


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

        with reserve(Usage(calls=1)) as reservation:
            reservation.settle(Usage(calls=1))
        return query

    with Run(per_question=Budget(calls=2)) as run:
        for _ in range(3):
            with run.lane() as lane:
                (asks >> asks)(ASKED)
            assert lane.usage.calls == 2


@step
def gives_up(query: Query) -> Query:
    degrade("nothing came")
    return query


@step
def asks_twice(query: Query) -> Query:
    gives_up(query)
    return shout(query)


@step
def asks_in_vain(query: Query) -> Query:
    return gives_up(gives_up(query))


@check_each(
    ("flow", "failed", "reasons"),
    [
        (gives_up >> local, {"gives_up": 1}, {"gives_up": {"nothing came": 1}}),
        (asks_twice >> local, {}, {"asks_twice": {"nothing came": 1}}),
        (asks_in_vain >> local, {"asks_in_vain": 1}, {"asks_in_vain": {"nothing came": 2}}),
        (
            Guard(shout >> broken, fallback=local, on=("QueryError",)),
            {"broken": 1},
            {"Guard": {"fell back: QueryError: broken": 1}, "broken": {"QueryError: broken": 1}},
        ),
        (
            Branch(local, shout >> away, min_arms=1),
            {"away": 1},
            {"Branch": {"arm 1 failed: ModelUnavailable: away": 1}, "away": {"ModelUnavailable: away": 1}},
        ),
    ],
)
@check_each("batched", [False, True])
def test_what_fails_is_counted_at_the_step_of_the_flow_in_which_it_fails(
    flow: Operator[Query, object], failed: dict[str, int], reasons: dict[str, dict[str, int]], batched: bool
) -> None:
    with Run() as run, run.lane() as lane:
        _ = flow.batch([ASKED]) if batched else flow(ASKED)
    steps = lane.count_calls(flow)
    assert {counted.step: counted.failed for counted in steps if counted.failed} == failed
    told_reasons = {
        counted.step: {reason.partition(". In the step")[0]: n for reason, n in counted.reasons}
        for counted in steps
        if counted.reasons
    }
    assert told_reasons == reasons
    assert all(counted.calls == 1 for counted in steps)


def test_two_steps_of_one_class_are_told_apart() -> None:
    flow = Branch(ReciprocalRankFusion(top_k=3), ReciprocalRankFusion(top_k=4), min_arms=1)
    same = Branch(shout, shout.but(), min_arms=1)
    assert list(numbered_step_names(flow).values()) == ["Branch", "ReciprocalRankFusion 1", "ReciprocalRankFusion 2"]
    assert list(numbered_step_names(same).values()) == ["Branch", "shout 1", "shout 2"]


def test_a_flow_is_walked_through_once_and_forgotten_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    walked: list[int] = []

    def noted(flow: object) -> Iterator[object]:
        walked.append(id(flow))
        return walk_values(flow)

    monkeypatch.setattr(lane_module, "walk_values", noted)
    flow, names_before = calls_local.but() >> read, len(lane_module._NAMES)
    with Run() as run, run.lane() as lane:
        flow(Query("q"))
        flow(Query("another"))
    with Run() as run, run.lane() as lane:
        flow(Query("q"))
    assert walked == [id(flow)]
    del flow, run, lane
    gc.collect()
    assert len(lane_module._NAMES) <= names_before


def test_a_copy_of_a_flow_has_steps_of_its_own() -> None:
    flow = calls_local.but() >> read
    for copied in (flow, pickle.loads(pickle.dumps(flow)), copy.copy(flow)):
        with Run() as run, run.lane() as lane:
            copied(Query("q"))
        assert [(step_of_copy.step, step_of_copy.calls) for step_of_copy in lane.count_calls(copied)] == [
            ("Then", 1),
            ("calls_local", 1),
            ("read", 1),
        ]


@step
def asks_on(chain: Chain, *, reason: str = "") -> Chain:
    return chain.but(stop=reason)


@pytest.mark.parametrize(
    ("reason", "counted"),
    [("", {}), ("forced", {}), ("exhausted", {}), ("mine", {}), ("error", {"asks_on": {"Ended by 'error'.": 1}})],
)
def test_an_end_that_a_flow_plans_is_not_out_of_order(reason: str, counted: dict[str, dict[str, int]]) -> None:
    flow = Loop(asks_on.but(reason=reason), max_steps=2)
    with Run() as run, run.lane() as lane:
        ended = flow(Chain(ASKED))
    assert (lane.ends, count_reasons(lane.count_calls(flow))) == ({ended.stop}, counted)
    assert ended.stop == (reason or "cap")


def test_a_budget_that_ends_a_loop_is_out_of_order() -> None:
    @step
    def spent(chain: Chain) -> Chain:
        raise BudgetSpent("No call is left.")

    flow = Loop(spent, max_steps=2)
    with Run() as run, run.lane() as lane:
        flow(Chain(ASKED))
    (reasons,) = count_reasons(counted for counted in lane.count_calls(flow) if counted.step == "Loop").values()
    assert lane.ends == {"budget"}
    assert reasons["Ended by 'budget'."] == 1


def test_a_warning_is_given_where_nobody_records_what_failed() -> None:
    with pytest.warns(DegradedWarning, match="Degraded result: nothing came"):
        gives_up(ASKED)
    with Run(), pytest.warns(DegradedWarning, match="nothing came"):
        gives_up(ASKED)
    with warnings.catch_warnings(), collect_degradations() as degradations:
        warnings.simplefilter("error")
        gives_up(ASKED)
        with Run() as run, run.lane():
            gives_up(ASKED)
    assert degradations == ["nothing came"] * 2
