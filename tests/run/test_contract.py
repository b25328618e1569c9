"""Each sentence of docs/reference/run_contract.md."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spolia.core.combinators import Best, Branch, Each, Guard, Identity, Loop, Samples
from spolia.core.function import step
from spolia.core.operator import Operator
from spolia.core.run_context import Done, Emitted, Retracted, access, check_cancelled, emit, on_cancel, pin, reserve
from spolia.errors import BudgetSpent, Cancelled, ModelUnavailable
from spolia.journal import Cache, Runs
from spolia.run import Budget, Run
from spolia.types import Answer, Failure, Node, Query, Ranking, Usage
from tests.records import tamper
from tests.run.contract_tests import HELD_BY
from tests.run.flows import (
    COUNTER,
    Ask,
    Down,
    End,
    First,
    Glue,
    Grow,
    Growing,
    LongEnough,
    Model,
    Say,
    Search,
    Sleep,
    Start,
    Store,
    flows,
    outcome,
    queries,
)

CONTRACT = Path(__file__).resolve().parents[2] / "docs" / "reference" / "run_contract.md"


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    COUNTER.reset()
    Model.moves.clear()
    yield
    Model.moves.clear()


@pytest.fixture
def runs(tmp_path: Path) -> Iterator[Runs]:
    with Runs(tmp_path / "runs.db") as opened_runs:
        yield opened_runs


def test_every_sentence_of_the_contract_has_its_tests() -> None:
    numbers = [int(number) for number in re.findall(r"^(\d+)\. ", CONTRACT.read_text(), re.M)]
    assert numbers == list(HELD_BY) == list(range(1, len(numbers) + 1))
    text = "".join(path.read_text() for path in Path(__file__).parents[1].glob("*/test_*.py"))
    assert [name for names in HELD_BY.values() for name in names if f"def {name}(" not in text] == []
    assert all(HELD_BY.values())


# ---------------------------------------------------------------------------------------------------------- results


@pytest.mark.slow
@settings(max_examples=150)
@given(flow=flows(), questions=queries())
def test_every_way_of_running_gives_the_same(flow: Operator[Query, Query], questions: list[Query]) -> None:
    plain = [outcome(lambda q=q: flow(q)) for q in questions]  # type: ignore[misc]
    with Run(threads=1):
        unthreaded = [outcome(lambda q=q: flow(q)) for q in questions]  # type: ignore[misc]
    cache = Cache()
    with Run(threads=4, cache=cache):
        first = [outcome(lambda q=q: flow(q)) for q in questions]  # type: ignore[misc]
        batched = flow.batch(questions)
    with Run(threads=3, window=2, cache=cache):
        batched_again = flow.batch(questions)
    assert plain == unthreaded == first
    for rows in (batched, batched_again):
        assert [row.kind if isinstance(row, Failure) else row for row in rows] == first


def test_order_is_kept_whichever_ends_first() -> None:
    with Run(threads=4):
        arms = Branch(*(Sleep(0.02 * (4 - n)) >> Ask(str(n)) for n in range(4)))
        assert [query.text for query in arms(Query("q"))] == ["q0", "q1", "q2", "q3"]
        assert [query.text for query in Ask().batch([Query(str(n)) for n in range(20)])] == [f"{n}a" for n in range(20)]  # type: ignore[union-attr]


def test_a_failed_row_leaves_the_others_alone() -> None:
    flow = Down("x") >> Ask()
    with Run():
        rows = flow.batch([Query("a"), Query("x"), Query("b")])
    assert rows[0] == Query("aa", "a")
    assert isinstance(rows[1], Failure)
    assert (rows[1].kind, rows[1].step) == ("ModelUnavailable", "Down(when='x')")
    assert rows[2] == Query("ba", "b")


def test_best_of_n_yields_n_different_samples() -> None:
    @step
    def longest(chain: Growing) -> float:
        return float(chain.sample)

    flow = Start() >> Samples[Growing](4) >> Each(Loop(Grow(), until=LongEnough(2)))
    cache = Cache()
    with Run(cache=cache):
        first = flow(Query("q"))
    assert len({chain.text for chain in first}) == 4
    calls = COUNTER.calls
    with Run(cache=cache):
        assert flow(Query("q")) == first
    assert COUNTER.calls == calls == 8
    assert (flow >> Best(longest))(Query("q")).sample == 3


# ------------------------------------------------------------------------------------------------------------ cache


def test_only_costly_steps_are_kept(runs: Runs) -> None:
    flow = Branch(Ask("a"), Identity()) >> Glue()
    with Run(cache=runs.cache, journal=runs.journal) as run:
        flow(Query("q"))
        flow(Query("q"))
    runs.journal.flush()
    steps = [span.step for span in runs.journal.spans(run.id) if span.cached]
    assert steps == ["tests:Ask"]
    assert COUNTER.calls == 1


@pytest.mark.slow
@settings(max_examples=60)
@given(text=st.text("abc", min_size=1, max_size=3), others=st.lists(st.text("xyz", max_size=2), min_size=2, max_size=4))
def test_a_cached_result_never_carries_anothers_provenance(text: str, others: list[str]) -> None:
    asked_queries = [Query(text, question=f"{other_text}?", origin=Query(other_text)) for other_text in others]
    with Run(cache=Cache()):
        one_by_one = [(Search() >> Say())(query) for query in asked_queries]
        rankings = [Search()(query) for query in asked_queries]
    with Run(cache=Cache()):
        together = Search().batch(asked_queries)
    for query, answer, ranking, row in zip(asked_queries, one_by_one, rankings, together, strict=True):
        for kept_ranking in (ranking, row, answer.evidence):
            assert isinstance(kept_ranking, Ranking)
            assert kept_ranking.query.question == query.question
            assert kept_ranking.query.origin is query.origin


@pytest.mark.slow
def test_equal_steps_at_the_same_time_are_computed_once() -> None:
    @dataclass(frozen=True)
    class Slow(Operator[Query, Query]):
        cached: ClassVar[bool] = True
        waits: ClassVar[bool] = True

        def apply(self, value: Query, /) -> Query:
            with COUNTER.counted():
                time.sleep(0.05)
            return value.rewritten("done")

    cache = Cache()
    flow = Branch(*(Slow() for _ in range(6)))

    def ask() -> None:
        with Run(cache=cache, threads=6):
            assert {query.text for query in flow(Query("q"))} == {"done"}

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert COUNTER.calls == 1


DEGRADED: list[tuple[str, Operator[Query, Any]]] = [
    ("fallback", Guard(Down("x"), fallback=Identity())),
    ("dropped arm", Branch(Down("x"), Identity(), min_arms=1) >> Glue()),
    ("dropped row", Samples[Query](2) >> Each(Guard(Down("x"), fallback=Identity()), min_rows=1) >> Glue()),
    ("spent budget", Start() >> Loop(Grow(), max_steps=3) >> End()),
]


@dataclass(frozen=True)
class Whole(Operator[Query, Query]):
    """A costly operator with a flow inside."""

    body: Operator[Query, Query]
    cached: ClassVar[bool] = True

    def apply(self, value: Query, /) -> Query:
        COUNTER.calls += 100
        return self.body(value)

    def apply_batch(self, values: Any, /) -> Any:
        COUNTER.calls += 100 * len(values)
        return self.body.batch(values, rows=range(len(values)))


@pytest.mark.parametrize("flow", [flow for _, flow in DEGRADED], ids=[name for name, _ in DEGRADED])
@pytest.mark.parametrize("batched", [False, True])
def test_a_degraded_result_is_not_kept(flow: Operator[Query, Query], batched: bool) -> None:
    cache = Cache()
    outer = Whole(Whole(flow))
    for _ in range(2):
        with Run(cache=cache, per_question=Budget(calls=2)):
            if batched:
                outer.batch([Query("x"), Query("a")])
            else:
                outer(Query("x"))
    computed = COUNTER.calls // 100
    good_rows_kept = 2 * (2 if "Loop" not in repr(flow) else 4)
    assert computed == (4 + good_rows_kept // 2 if batched and "Loop" not in repr(flow) else 8 if batched else 4)


def test_a_moving_resource_is_not_kept() -> None:
    @dataclass(frozen=True)
    class Moves(Operator[Query, Query]):
        model: Model = field(default_factory=Model)
        cached: ClassVar[bool] = True

        def apply(self, value: Query, /) -> Query:
            with COUNTER.counted():
                Model.moves["model"] = f"moved {COUNTER.calls} times"
            return value

    with Run(cache=Cache()):
        for _ in range(3):
            Moves()(Query("q"))
    assert COUNTER.calls == 3
    COUNTER.reset()
    Model.moves["model"] = None
    with Run(cache=Cache()):
        Ask()(Query("q"))
        Ask()(Query("q"))
    assert COUNTER.calls == 2


def test_two_principals_never_share_an_entry() -> None:
    @dataclass(frozen=True)
    class Mine(Operator[Query, Query]):
        store: Model
        cached: ClassVar[bool] = True

        def apply(self, value: Query, /) -> Query:
            return value.rewritten(",".join(sorted(access())))

    cache = Cache()
    for name in ("ann", "bob", "", "ann"):
        with Run(cache=cache, principal=name):
            assert Mine(Store())(Query("q")).text == name
    with Run(cache=cache, principal="ann", groups=("staff",)):
        assert Mine(Store())(Query("q")).text == "ann,staff"
    COUNTER.reset()
    for name in ("ann", "bob"):
        with Run(cache=cache, principal=name):
            Ask()(Query("q"))
            assert Mine(Model())(Query("q")).text == name, (
                "nothing that it declares depends on who asks, so it is not kept"
            )
    assert COUNTER.calls == 1, "a model does not depend on who asks"


@pytest.mark.slow
@settings(max_examples=50)
@given(flow=flows(), questions=queries())
def test_usage_is_logical_and_spent_is_real(flow: Operator[Query, Query], questions: list[Query]) -> None:
    COUNTER.reset()
    cache = Cache()
    with Run(threads=2) as uncached:
        flow.batch(questions)
    COUNTER.reset()
    with Run(threads=2, cache=cache) as first:
        flow.batch(questions)
    assert first.actual_usage.calls == COUNTER.calls
    assert first.actual_usage.calls <= first.usage.calls
    COUNTER.reset()
    with Run(threads=2, cache=cache) as second:
        flow.batch(questions)
    assert second.actual_usage.calls == COUNTER.calls
    assert uncached.usage == first.usage == second.usage
    assert second.actual_usage.calls == 0


# ------------------------------------------------------------------------------------------------------------ costs


@pytest.mark.slow
@settings(max_examples=120)
@given(
    flow=flows(limits=True), questions=queries(), calls=st.integers(0, 5), threads=st.integers(1, 4), each=st.booleans()
)
def test_a_budget_of_n_calls_never_makes_more(
    flow: Operator[Query, Query], questions: list[Query], calls: int, threads: int, each: bool
) -> None:
    COUNTER.reset()
    budget = Budget(calls=calls)
    wide = Branch(flow, Ask("1"), Ask("2"), Ask("3")) >> Glue()
    with Run(threads=threads, **{"per_question" if each else "budget": budget}):  # type: ignore[arg-type]
        wide.batch(questions)
        batched = COUNTER.calls
        outcome(lambda: wide(questions[0]))
    if each:
        assert batched <= calls * len(questions)
        assert COUNTER.calls - batched <= calls
    else:
        assert COUNTER.calls <= calls


def test_a_spent_budget_ends_a_loop_and_leaves_one_call() -> None:
    flow = Start() >> Loop(Grow(), max_steps=10) >> End() >> Ask("!")
    with Run(per_question=Budget(calls=4)) as run:
        answer = flow(Query("q"))
    assert answer.text == "q.0.0.0/budget!"
    assert run.actual_usage.calls == 4
    with Run(per_question=Budget(calls=4)) as run:
        (row,) = flow.batch([Query("q")])
    assert row == answer
    with Run(per_question=Budget(calls=0)), pytest.raises(BudgetSpent, match="0 of 0 calls are spent"):
        flow(Query("q"))


def test_a_guard_limits_its_body_alone() -> None:
    flow = Guard(Ask("1") >> Ask("2") >> Ask("3"), fallback=Ask("f") >> Ask("g"), max_calls=2) >> Ask("4") >> Ask("5")
    with Run() as run:
        assert flow(Query("q")).text == "qfg45"
    assert run.actual_usage.calls == 6
    nested = Guard(Guard(Ask("1") >> Ask("2"), max_calls=5), fallback=Identity(), max_calls=1)
    with Run() as run:
        assert nested(Query("q")).text == "q"
        assert [row.text for row in nested.batch([Query("a"), Query("b")])] == ["a", "b"]  # type: ignore[union-attr]
    assert run.actual_usage.calls == 3


@pytest.mark.slow
@settings(max_examples=60)
@given(flow=flows(), questions=queries())
def test_lanes_add_up_to_the_run(flow: Operator[Query, Query], questions: list[Query]) -> None:
    COUNTER.reset()
    spans: list[tuple[Any, ...]] = []

    class Kept:
        def record(self, row: tuple[Any, ...]) -> None:
            spans.append(row)

        def end_run(self) -> None:
            """Nothing to hand over."""

    with Run(threads=3, journal=Kept()) as run:  # type: ignore[arg-type]
        (flow >> Search()).batch(questions)
    roots = [row for row in spans if row[2] == 0]
    assert len(roots) == len(questions)
    assert all(row[1] == row[3] for row in roots)
    assert {row[3] for row in spans} == {row[1] for row in roots}
    assert sum(row[8] for row in roots) == run.usage.calls == COUNTER.calls
    assert sum(row[11] for row in roots) == run.usage.embedded
    by_id = {row[1]: row for row in spans}
    assert all(row[2] == 0 or by_id[row[2]][3] == row[3] for row in spans)


# ---------------------------------------------------------------------------------------------------------- threads


def nest_flow(depth: int, width: int, leaf: Operator[Query, Query]) -> Operator[Query, Query]:
    inner = leaf if depth == 1 else nest_flow(depth - 1, width, leaf)
    return Branch(inner, *(leaf for _ in range(width - 1))) >> Glue()


@pytest.mark.slow
def test_nested_branches_keep_all_threads_at_work() -> None:
    """4 deep, 16 wide, 2 threads: 61 leaves, of which never more than two wait at once, and two do."""
    with Run(threads=2):
        nest_flow(4, 16, Sleep(0.01))(Query("q"))
    assert COUNTER.calls == 61
    assert COUNTER.most == 2


@pytest.mark.slow
def test_no_more_steps_at_once_than_threads() -> None:
    for threads in (1, 2, 3, 8):
        COUNTER.reset()
        with Run(threads=threads):
            nest_flow(3, 6, Sleep(0.002)).batch([Query(str(n)) for n in range(3)])
        assert COUNTER.most <= threads
        assert COUNTER.calls == 3 * 16


def test_steps_that_never_wait_stay_in_the_callers_thread() -> None:
    @step
    def here(query: Query) -> Query:
        with COUNTER.counted():
            return query

    with Run(threads=8):
        (Branch(*(here for _ in range(20))) >> Each(here)).batch([Query("q")] * 10)
    assert COUNTER.threads == {threading.get_ident()}


def test_arms_that_never_wait_stay_there_beside_arms_that_do() -> None:
    here = set[int]()

    @step
    def local(query: Query) -> Query:
        here.add(threading.get_ident())
        return query

    flow = Branch(Sleep(0.001), local, Sleep(0.001), local)
    with Run(threads=8):
        flow(Query("q"))
        flow.batch([Query("q")])
    assert here == {threading.get_ident()}


# --------------------------------------------------------------------------------------------- streaming, cancelling


@pytest.mark.slow
@settings(max_examples=40)
@given(flow=flows(), question=st.text("abxy", min_size=1, max_size=3))
def test_a_stream_ends_with_the_plain_result(flow: Operator[Query, Query], question: str) -> None:
    whole = flow >> Search() >> Guard(Say(), fallback=Say())
    with Run() as run:
        plain = whole(Query(question))
        *events, last = run.stream(whole, Query(question))
    assert last == Done(plain)
    assert "".join(event.text for event in events if isinstance(event, Emitted) and event.final) == plain.text


def test_text_of_inner_steps_is_not_final() -> None:
    @step
    def again(answer: Answer) -> Ranking:
        assert answer.evidence is not None
        return answer.evidence

    with Run() as run:
        events = list(run.stream(Search() >> Say() >> again >> Say(), Query("ab")))
        branch_events = list(run.stream(Search() >> Branch(Say(), Say()), Query("ab")))
    emitted = [event for event in events if isinstance(event, Emitted)]
    assert [event.final for event in emitted] == [False, False, True, True]
    assert not any(event.final for event in branch_events if isinstance(event, Emitted))


def test_rejected_text_is_retracted() -> None:
    @dataclass(frozen=True)
    class Breaks(Operator[Ranking, Answer]):
        def apply(self, value: Ranking, /) -> Answer:
            emit("wrong ")
            emit("words")
            raise ModelUnavailable("the connection broke")

    flow = Search() >> Guard(Guard(Breaks(), fallback=Breaks()), fallback=Say())
    text, retracted = "", 0
    with Run() as run:
        for event in run.stream(flow, Query("ab")):
            if isinstance(event, Emitted) and event.final:
                text += event.text
            if isinstance(event, Retracted):
                text, retracted = text[: -event.characters], retracted + event.characters
            if isinstance(event, Done):
                assert text == event.value.text == "aaabbb"
    assert retracted == 2 * len("wrong words")


def test_closing_a_stream_stops_the_work() -> None:
    flow = Ask("a")
    for _ in range(50):
        flow = flow >> Sleep(0.01) >> Ask("a")  # type: ignore[assignment]
    with Run() as run:
        stream = run.stream(flow, Query("q"))
        next(stream)
        stream.close()  # type: ignore[attr-defined]
        calls_then = COUNTER.calls
        time.sleep(0.05)
        assert COUNTER.calls == calls_then < 20
        assert run(Ask("b"), Query("q")).text == "qb"  # the run itself goes on


def test_cancelling_stops_everything() -> None:
    cancelled = threading.Event()

    @step(waits=True)
    def blocked(query: Query) -> Query:
        with on_cancel(cancelled.set):
            assert cancelled.wait(600)
        check_cancelled()
        return query

    with Run(threads=4) as run:
        threading.Timer(0.05, run.cancel).start()
        with pytest.raises(Cancelled):
            Branch(blocked, Sleep(0.01), *(blocked for _ in range(6)), min_arms=1)(Query("q"))
        with pytest.raises(Cancelled):
            Ask()(Query("q"))
    assert not isinstance(Cancelled(), Exception)


# ----------------------------------------------------------------------------------------------------------- access


def test_without_a_principal_one_is_anonymous() -> None:
    assert access() == frozenset()
    with Run():
        assert access() == frozenset()
    with Run(principal="ann", groups=("staff", "")):
        assert access() == {"ann", "staff"}
        with Run():
            assert access() == frozenset()
        assert access() == {"ann", "staff"}
    assert access() == frozenset()


def test_threads_carry_the_principal() -> None:
    @step(waits=True)
    def who(query: Query) -> Query:
        return Query(",".join(access()))

    with Run(principal="ann", threads=4):
        assert {query.text for query in Branch(*(who for _ in range(8)))(Query("q"))} == {"ann"}


def test_a_run_sees_one_snapshot() -> None:
    versions = iter(range(100))
    with Run(threads=4):
        versions_seen = [pin("store", lambda: next(versions)) for _ in range(3)]
        assert versions_seen == [0, 0, 0]
        assert pin("other", lambda: next(versions)) == 1
    with Run():
        assert pin("store", lambda: next(versions)) == 2
    assert [pin("store", lambda: next(versions)) for _ in range(2)] == [3, 4]  # no run, nothing pinned


# ---------------------------------------------------------------------------------------------------------- journal


def test_every_step_leaves_a_span(runs: Runs) -> None:
    flow = Branch(Ask("a"), Ask("b")) >> Glue() >> Search() >> Say()
    with Run(journal=runs.journal, threads=3) as run:
        flow(Query("q"))
        flow.batch([Query("r"), Query("s")])
    runs.journal.flush()
    spans = runs.journal.spans(run.id)
    by_id = {span.span: span for span in spans}
    assert len(spans) == 3 * 7
    for span in spans:
        assert span.parent == 0 or by_id[span.parent].lane == span.lane
        assert span.seconds >= 0
    roots = [span for span in spans if span.parent == 0]
    assert [root.step for root in roots] == ["Then"] * 3
    assert [root.usage.calls for root in roots] == [3, 3, 3]
    assert {span.step.split(":")[-1] for span in spans if by_id.get(span.parent) in roots} == {
        "Branch",
        "Glue",
        "Search",
        "Say",
    }
    assert runs.journal.runs()[0][0] == run.id
    assert runs.journal.runs()[0][2] == 3


def test_a_failed_step_says_why_in_its_span(runs: Runs) -> None:
    with Run(journal=runs.journal) as run, pytest.raises(ModelUnavailable):
        (Identity[Query]() >> Down("x"))(Query("x"))
    with Run(journal=runs.journal) as other_run:
        Guard(Down("x"), fallback=Identity())(Query("x"))
    runs.journal.flush()
    assert [span.error for span in runs.journal.spans(run.id)] == [
        "ModelUnavailable: down for x", "", "ModelUnavailable: down for x",
    ]  # fmt: skip
    assert "fell back" in runs.journal.spans(other_run.id)[0].notes[0]


def test_a_broken_journal_never_fails_an_answer(tmp_path: Path) -> None:
    runs = Runs(tmp_path / "runs.db")
    with tamper(tmp_path / "runs.db") as raw:
        raw.execute("DROP TABLE spans")
        raw.execute("DROP TABLE cache")
    with Run(journal=runs.journal, cache=runs.cache):
        assert Ask()(Query("q")).text == "qa"
    runs.journal.flush()
    assert runs.database.dropped > 0
    assert "could not be" in runs.database.problem
    runs.close()


def test_a_full_journal_drops_and_counts(tmp_path: Path) -> None:
    runs = Runs(tmp_path / "runs.db")
    runs.database.pending = 10
    with Run(journal=runs.journal):
        for _ in range(100):
            (Identity[Query]() >> Identity())(Query("q"))
    runs.journal.flush()
    total = sum(len(runs.journal.spans(run)) for run, _, _ in runs.journal.runs())
    assert total + runs.database.dropped == 300
    assert runs.database.dropped > 0
    runs.close()


def test_results_outlive_the_process_that_made_them(tmp_path: Path) -> None:
    with Runs(tmp_path / "runs.db") as runs, Run(cache=runs.cache):
        first = (Search() >> Say())(Query("ab"))
    calls = COUNTER.calls
    with Runs(tmp_path / "runs.db") as runs, Run(cache=runs.cache) as run:
        assert (Search() >> Say())(Query("ab")) == first
        assert run.actual_usage == Usage()
        assert run.usage.calls == 1
    assert COUNTER.calls == calls


def test_reserving_counts_a_call_that_failed() -> None:
    with Run(budget=Budget(calls=1)) as run:
        with pytest.raises(ModelUnavailable), reserve(Usage(calls=1, output_tokens=50)):
            raise ModelUnavailable("sent, but no reply")
        assert run.actual_usage == Usage(calls=1)
        with pytest.raises(BudgetSpent):
            Ask()(Query("q"))


def test_tokens_are_held_while_a_call_is_out() -> None:
    with Run(budget=Budget(tokens=100)):
        with reserve(Usage(calls=1, output_tokens=60)) as call:
            with pytest.raises(BudgetSpent, match="of 100 tokens"), reserve(Usage(calls=1, output_tokens=60)):
                pass
            call.settle(Usage(calls=1, output_tokens=5))
        with reserve(Usage(calls=1, output_tokens=60)) as call:
            call.settle(Usage(calls=1, output_tokens=5))


def test_a_result_without_a_plain_form_is_given_but_not_kept(runs: Runs) -> None:
    @dataclass(frozen=True)
    class Odd(Operator[Query, object]):
        cached: ClassVar[bool] = True

        def apply(self, value: Query, /) -> object:
            return float("nan")

        def apply_batch(self, values: Any, /) -> Any:
            return [self.apply(value) for value in values]

    with Run(cache=runs.cache, journal=runs.journal) as run:
        assert Odd()(Query("q")) != Odd()(Query("q"))
        assert len(Odd().batch([Query("q"), Query("q")])) == 2
    runs.journal.flush()
    assert "not kept" in runs.journal.spans(run.id)[0].notes[0]


def test_a_lists_first_hit_is_what_it_was() -> None:
    merged = First()([Ranking(Query("q"), ()), Ranking(Query("q"), ())])
    assert merged.hits == ()
    assert Node("n", "t").digest == Node("n", "t").digest
