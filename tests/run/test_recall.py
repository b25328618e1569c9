"""What the cache keeps and gives back: every shape of result, whoever asks, however it is asked."""

from __future__ import annotations

import importlib
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import pytest

from spolia.core.function import step
from spolia.core.operator import Operator
from spolia.core.run_context import reserve
from spolia.errors import ModelUnavailable, WiringError
from spolia.journal import Cache
from spolia.run import Budget, Run
from spolia.types import Answer, Failure, Hit, Node, Query, Ranking, Usage, Value
from tests.run.flows import COUNTER, Ask, Model


@pytest.fixture(autouse=True)
def fresh() -> None:
    COUNTER.reset()
    Model.moves.clear()


@dataclass(frozen=True)
class Costly(Operator[Any, Any]):
    """Counts; subclasses say what they make."""

    cached: ClassVar[bool] = True

    def apply(self, value: Any, /) -> Any:
        with COUNTER.counted(value):
            return self.make(value)

    def make(self, value: Any) -> Any:
        raise NotImplementedError


@dataclass(frozen=True)
class Several(Costly):
    """Several rankings of one query, from its text alone."""

    def make(self, value: Query) -> Any:
        hits = (Hit(Node(value.text, value.text), 1.0),)
        return (Ranking(value, hits, "a"), (Ranking(value, hits, "b"),))

    def reads(self, value: Query, /) -> object:
        return value.text


@pytest.mark.slow
def test_rankings_inside_tuples_belong_to_who_asks() -> None:
    ann, bob = Query("tide", question="Ann's?"), Query("tide", question="Bob's?")
    with Run(cache=Cache()):
        first, (second,) = Several()(ann)
        third, (fourth,) = Several()(bob)
        rows = Several().batch([ann, bob])
    assert COUNTER.calls == 1
    assert [ranking.query for ranking in (first, second, third, fourth)] == [ann, ann, bob, bob]
    assert [row[1][0].query for row in rows] == [ann, bob]  # type: ignore[index]


@dataclass(frozen=True)
class Elsewhere(Costly):
    """A ranking for another query than was asked."""

    def make(self, value: Query) -> Any:
        return Ranking(value.rewritten(value.text + "!"), ())


@dataclass(frozen=True)
class Fused(Costly):
    """One of several rankings, by their hits alone."""

    def make(self, value: Sequence[Ranking]) -> Any:
        return value[0]

    def reads(self, value: Sequence[Ranking], /) -> object:
        return tuple(ranking.hits for ranking in value)


@dataclass(frozen=True)
class Fresh(Costly):
    def make(self, value: Query) -> Any:
        return value.rewritten(value.text + "?")


@dataclass(frozen=True)
class Same(Costly):
    def make(self, value: Any) -> Any:
        return value


@dataclass(frozen=True)
class Listed(Costly):
    def make(self, value: Query) -> Any:
        return [value.text, {"n": 1.5}, frozenset({"a"}), None, True, (1, "x")]


def test_what_comes_from_the_cache_equals_what_was_computed() -> None:
    query = Query("q", question="What?", origin=Query("before"))
    rankings = (Ranking(query, (Hit(Node("n", "t"), 0.5),)),)
    cases: list[tuple[Operator[Any, Any], Any]] = [
        (Elsewhere(), query), (Fused(), rankings), (Fresh(), query), (Same(), query), (Same(), rankings[0]),
        (Same(), (1, "a", None)), (Same(), Answer("yes", evidence=rankings[0])), (Listed(), query),
    ]  # fmt: skip
    for op, value in cases:
        plain = op.apply(value)
        with Run(cache=Cache()):
            results = [op(value), op(value), *op.batch([value, value])]
        assert all(result == plain for result in results), op
        assert all(type(result) is type(plain) for result in results), op
    with Run(cache=Cache()):
        other_query = Query("z", question="Other?")
        Fused()(rankings)
        assert Fused()((Ranking(other_query, rankings[0].hits),)).query == other_query
        assert [Fresh()(query).origin for _ in range(2)] == [query, query]
        assert [Same()(query).origin for _ in range(2)] == [query.origin] * 2


def test_what_has_no_content_hash_is_computed_and_not_kept() -> None:
    with Run(cache=Cache()):
        for _ in range(2):
            assert Same()({1, 2}) == {1, 2}
            assert Same().batch([{1}, "a"]) == [{1}, "a"]
    assert COUNTER.calls == 2 + 2 + 1


@dataclass(frozen=True)
class Sometimes(Costly):
    """Gives a failure instead of raising it, alone or among others."""

    def make(self, value: str) -> Any:
        failed = Failure.from_error(ModelUnavailable("down"))
        return failed if value == "alone" else (1, (failed,)) if value == "inside" else value

    def apply_batch(self, values: Sequence[Any], /) -> list[Any]:
        return [self.apply(value) for value in values]


@pytest.mark.parametrize("value", ["alone", "inside"])
def test_a_failure_is_never_kept(value: str) -> None:
    with Run(cache=Cache()):
        for _ in range(2):
            Sometimes()(value)
            Sometimes().batch([value, "fine"])
    assert COUNTER.calls == 5


@dataclass(frozen=True)
class Metered(Operator[Query, Query]):
    """One call for each row, made for all at once."""

    model: Model = field(default_factory=Model)
    cached: ClassVar[bool] = True

    def apply(self, value: Query, /) -> Query:
        with reserve(Usage(calls=1)), COUNTER.counted():
            return value

    def apply_batch(self, values: Sequence[Query], /) -> list[Query | Failure]:
        results: list[Query | Failure] = []
        for row, value in enumerate(values):
            try:
                with reserve(Usage(calls=1), row=row), COUNTER.counted():
                    time.sleep(0.002)
                    results.append(value)
            except Exception as error:
                results.append(Failure.from_error(error))
        return results


def test_a_row_does_not_fail_because_the_same_question_had_no_budget_elsewhere() -> None:
    @dataclass(frozen=True)
    class Spend(Operator[Query, Query]):
        def apply(self, value: Query, /) -> Query:
            if value.question == "poor":
                with reserve(Usage(calls=1)):
                    pass
            return Query(value.text)

    queries = [Query("q", "poor"), Query("q", "rich"), Query("q", "poor")]
    with Run(cache=Cache(), per_question=Budget(calls=1)):
        rows = (Spend() >> Metered()).batch(queries)
    assert [isinstance(row, Failure) for row in rows] == [True, False, True]


def test_equal_rows_of_batches_at_the_same_time_are_computed_once() -> None:
    cache, questions = Cache(), [Query(str(n)) for n in range(20)]

    def ask(turned: bool) -> None:
        with Run(cache=cache):
            assert Metered().batch(questions[::-1] if turned else questions) == (
                questions[::-1] if turned else questions
            )

    threads = [threading.Thread(target=ask, args=(bool(n % 2),)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert COUNTER.calls == 20
    assert cache._claims == {}


@dataclass(frozen=True)
class Judge(Value):
    """A value of the user's that names a model."""

    model: Model = field(default_factory=Model)


@dataclass(frozen=True)
class Judged(Costly):
    judge: Judge = field(default_factory=Judge)

    def make(self, value: str) -> Any:
        return value


def test_a_model_inside_a_value_is_a_resource_too() -> None:
    assert Judged().resources == (Model(),)
    with Run(cache=Cache()):
        Judged()("q")
        Model.moves["model"] = "2"
        Judged()("q")
    assert COUNTER.calls == 2


def test_functions_of_one_name_do_not_share_results() -> None:
    def first() -> Operator[str, str]:
        @step(cached=True)
        def answer(text: str) -> str:
            return "first"

        return answer

    def second() -> Operator[str, str]:
        @step(cached=True)
        def answer(text: str) -> str:
            return "second"

        return answer

    with Run(cache=Cache()):
        assert [first()("q"), second()("q"), first()("q")] == ["first", "second", "first"]
    reply = "x"
    with pytest.raises(WiringError, match="depends on reply"):

        @step(cached=True)
        def closure(text: str) -> str:
            return reply


def scale_by(factor: int) -> Operator[Any, Any]:
    @dataclass(frozen=True)
    class Scaled(Costly):
        def make(self, value: int) -> int:
            return value * factor

    return Scaled()


@pytest.mark.parametrize("share", [False, True])
def test_classes_of_one_name_do_not_share_results(share: bool) -> None:
    with Run(cache=Cache(), share=share):
        assert [scale_by(number)(10) for number in (1, 2, 1)] == [10, 20, 10]
    assert COUNTER.calls == 2


@step(cached=True)
def numbers(query: Query) -> list[list[int]]:
    return [[3], [1], [2]]


@step
def changed(rows: list[list[int]]) -> tuple[int, ...]:
    rows.sort()
    rows[0].append(len(rows))
    rows.append([0])
    return tuple(number for row in rows for number in row)


@pytest.mark.parametrize("share", [False, True])
def test_a_step_that_changes_the_list_it_is_given_changes_no_kept_result(share: bool) -> None:
    flow, query = numbers >> changed, Query("?")
    plain = flow(query)
    with Run(cache=None if share else Cache(), share=share):
        assert [flow(query) for _ in range(4)] + flow.batch([query, query]) == [plain] * 6


@step(cached=True)
def endless(query: Query) -> Query:
    return endless(query)


@pytest.mark.parametrize("share", [False, True])
def test_a_step_that_calls_itself_for_ever_fails_and_does_not_wait_for_itself(share: bool) -> None:
    failures: list[Any] = []

    def work() -> None:
        with Run(cache=None if share else Cache(), share=share):
            failures.extend(endless.batch([Query("?")]))

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(600)
    assert [failure.kind for failure in failures] == ["RecursionError"]


OWN_CLASSES = """
from dataclasses import dataclass
from typing import ClassVar
from spolia import Query
from spolia.core.operator import Operator
from spolia.types import Value


@dataclass(frozen=True)
class Part(Value):
    def word(self):
        return {word!r}  # {remark}


@dataclass(frozen=True)
class Whole(Operator[Query, Query]):
    part: Part = Part()
    cached: ClassVar[bool] = True

    def apply(self, value, /):
        return value.rewritten(self.part.word())
"""


def test_a_changed_class_of_yours_is_run_again_and_a_changed_remark_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    cache, texts = Cache(), []
    for word, remark in (("old", "one"), ("old", "another remark"), ("new", "one")):
        (tmp_path / "own_classes.py").write_text(OWN_CLASSES.format(word=word, remark=remark))
        sys.modules.pop("own_classes", None)
        with Run(cache=cache):
            texts.append(importlib.import_module("own_classes").Whole()(Query("?")).text)
    sys.modules.pop("own_classes")
    assert texts == ["old", "old", "new"]
    assert len(cache._entries) == 2


@pytest.mark.slow
def test_nothing_is_left_behind_by_many_questions() -> None:
    cache = Cache(entries=100)
    with Run(cache=cache, threads=2) as run:
        for n in range(3000):
            Ask()(Query(str(n)))
        for _ in range(50):
            list(run.stream(Ask(), Query("q")))
            run.stream(Ask(), Query("q"))
    assert len(cache._entries) == 100
    assert cache._claims == run._pins == {}
    assert len(run.scope._inner) <= 1
    assert run.scope._closers == []
    assert (run.root.notes, run.root.remarks, run.root.rows) == (None, None, None)
