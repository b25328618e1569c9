"""What a step gives is what it declares, and an error in it names the step, its file and line."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal

import pytest

from spolia.cli.exit_codes import Exit, guard_command
from spolia.core.combinators import Branch, Each, Identity
from spolia.core.function import step
from spolia.core.operator import Operator
from spolia.errors import QueryError, WiringError
from spolia.post_retrieval.selection import Cut
from spolia.run import Run
from spolia.types import Failure, Hit, Node, Query, Ranking
from tests.cases import check_each


@step
def wrong(query: Query) -> Ranking:
    return query.text  # type: ignore[return-value]


@dataclass(frozen=True)
class Wrong(Operator[Query, tuple[Query, ...]]):
    """Right for one, wrong for a row of many."""

    def apply(self, value: Query, /) -> tuple[Query, ...]:
        return (value,)

    def apply_batch(self, values: Sequence[Query], /) -> Any:
        return [(value,) if value.text == "right" else value for value in values]


@step
def number(query: Query) -> float:
    return len(query.text)


@step
def broken(query: Query) -> Query:
    return query.rewritten(shortest([]))


def shortest(texts: Sequence[str]) -> str:
    return min(texts)


@step
def shown(ranking: Ranking) -> str:
    return "shown"


QUERY = Query("why?")
LINE = inspect.getsourcelines(shortest)[1] + 1
WAYS: dict[str, Callable[[Operator[Any, Any]], Any]] = {
    "without a run": lambda op: op(QUERY),
    "in a run": lambda op: Run()(op, QUERY),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_step_that_gives_something_else_than_it_declares_is_named(way: str) -> None:
    with pytest.raises(WiringError, match=r"^wrong gives 'why\?' \(str\), and declares Ranking\.") as caught:
        WAYS[way](wrong >> shown)
    line = inspect.getsourcelines(type(wrong).function)[1]  # type: ignore[attr-defined]
    assert str(caught.value).endswith(f"{__file__}, line {line}.")
    assert WAYS[way](number) == 4


DECLARED: list[tuple[Any, Any, Any]] = [
    (tuple[Ranking, ...], (Ranking(QUERY, ()), Ranking(QUERY, ())), ("a", "b")),
    (tuple[Ranking, ...], (), (Ranking(QUERY, ()), "b")),
    (list[Ranking], [Ranking(QUERY, ())], ["a"] * 20),
    (list[Ranking], [Ranking(QUERY, ())], (Ranking(QUERY, ()),)),
    (Sequence[Ranking], (Ranking(QUERY, ()),), "ab"),
    (Sequence[str], "ab", [1]),
    (tuple[str, float], ("a", 1), ("a", 1, 2)),
    (tuple[str, float], ("a", 1.5), (1.5, "a")),
    (tuple[tuple[int, ...], ...] | None, None, (("a",),)),
    (tuple[int, *tuple[str, ...]], (1, "a", "b"), [1]),
    (Literal["yes", "no"], "no", "perhaps"),
    (Literal["yes"] | int, 3, "no"),
    (tuple[Any, ...], ("a", 1), ["a"]),
    (dict[str, int], {"a": 1}, {"a": "1"}),
    (dict[str, Any], {"a": 1}, {1: "a"}),
    (Mapping[str, tuple[int, ...]], {}, {"a": ("b",)}),
]


@check_each("way", WAYS)
@check_each(("declared", "right", "other"), DECLARED)
def test_the_items_and_values_of_what_a_step_gives_are_those_that_it_declares(
    declared: Any, right: Any, other: Any, way: str
) -> None:
    def given(query: Query) -> Any:
        return result

    given.__annotations__["return"] = declared
    op = step(given)
    result = right
    assert WAYS[way](op) == right
    assert op.batch([QUERY]) == [right]
    result = other
    with pytest.raises(WiringError, match=r"^given gives .* and declares "):
        WAYS[way](op)
    assert isinstance(op.batch([QUERY])[0], Failure)


def test_a_class_below_another_declares_for_itself() -> None:
    @dataclass(frozen=True)
    class Longer(Wrong):
        def apply(self, value: Query, /) -> Any:
            return "long"

    @dataclass(frozen=True)
    class Said(Operator[Query, str]):
        def apply(self, value: Query, /) -> Any:
            return "long"

    @dataclass(frozen=True)
    class SaidElsewhere(Said, Operator[Query, str]):
        composes: ClassVar[bool] = True

        def apply(self, value: Query, /) -> Any:
            return 3

    assert Wrong()(QUERY) == (QUERY,)
    with pytest.raises(WiringError, match="declares tuple"):
        Longer()(QUERY)
    assert Said()(QUERY) == "long"
    assert str(SaidElsewhere()(QUERY)) == "3"


@pytest.mark.parametrize("run", [False, True])
def test_rows_that_are_something_else_fail_and_the_others_go_on(run: bool) -> None:
    right, queries = Query("right"), [Query("right"), Query("wrong")]
    first, second = Run().batch(Wrong(), queries) if run else Wrong().batch(queries)
    assert first == (right,)
    assert isinstance(second, Failure)
    assert second.message.startswith("Wrong() gives Query(text='wrong'")
    assert "and declares tuple[Query, ...]." in second.message


@pytest.mark.parametrize("way", WAYS)
def test_an_error_in_a_step_names_the_innermost_step_its_file_and_line(way: str) -> None:
    with pytest.raises(ValueError, match="empty") as caught:
        WAYS[way](Branch(broken >> broken))
    assert caught.value.__notes__ == [f"In the step broken: {__file__}, line {LINE}."]


def test_a_failed_row_names_them_too() -> None:
    (row,) = Run().batch(broken, [QUERY])
    assert isinstance(row, Failure)
    assert row.message.endswith(f"In the step broken: {__file__}, line {LINE}.")
    assert [failure.step for failure in Run().batch(Each(broken), [(QUERY,)]) if isinstance(failure, Failure)]


@step
def misused(query: Query) -> Query:
    return Query(len(query.text))  # type: ignore[arg-type]


@step
def unreadable(query: Query) -> Query:
    return query.rewritten(Path("nowhere", "there.txt").read_text("utf-8"))


@pytest.mark.parametrize(("op", "kind"), [(misused, QueryError), (unreadable, OSError)])
def test_an_error_of_spolia_or_of_the_system_in_a_step_names_them_too(
    op: Operator[Query, Query], kind: type[Exception], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(kind) as caught:
        (op >> broken)(QUERY)
    line = inspect.getsourcelines(type(op).function)[1] + 2  # type: ignore[attr-defined]
    message = f"In the step {op.short}: {__file__}, line {line}."
    assert caught.value.__notes__ == [message]
    with pytest.raises(BaseException) as ended:  # noqa: PT011  of click
        guard_command(lambda: op(QUERY))()  # type: ignore[arg-type, return-value]
    assert getattr(ended.value, "exit_code", None) == Exit.USAGE
    assert message.replace(" ", "") in "".join(capsys.readouterr().err.split())


@dataclass(frozen=True)
class Short(Operator[Query, Query]):
    """Gives something else than a result for each of many values."""

    given: str

    def apply(self, value: Query, /) -> Query:
        return value

    def apply_batch(self, values: Sequence[Query], /) -> Any:
        return values[1:] if self.given == "1 results" else None


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("given", ["1 results", "None"])
def test_a_batch_that_gives_no_result_for_each_value_is_an_error_of_its_step(given: str, way: str) -> None:
    op, run = Short(given), Run()
    pattern = re.escape(f"{op.short}.apply_batch gave {given} for 2 values; one for each is due: {__file__}, line ")
    rows = op.batch([QUERY, QUERY]) if way == "without a run" else run.batch(op, [QUERY, QUERY])
    assert [isinstance(row, Failure) and re.match(pattern, row.message) is not None for row in rows] == [True, True]
    with pytest.raises(WiringError, match=pattern):
        WAYS[way](Branch(Identity(), Identity()) >> Each(op))


@step
def of_texts(query: Query) -> Ranking:
    return Ranking(query, ["a text"], "mine")  # type: ignore[arg-type]


@step
def of_a_list(query: Query) -> Ranking:
    return Ranking(query, [Hit(Node("n", "a text"), 1.0)], "mine")  # type: ignore[arg-type]


@pytest.mark.parametrize("way", WAYS)
def test_a_ranking_of_something_else_than_hits_is_an_error_of_the_step_that_makes_it(way: str) -> None:
    with pytest.raises(QueryError, match=r"holds 'a text' \(str\)\. Write Hit\(node, score\)") as caught:
        WAYS[way](of_texts >> Cut(1))
    assert caught.value.__notes__[0].startswith("In the step of_texts: ")
    assert WAYS[way](of_a_list).hits == (Hit(Node("n", "a text"), 1.0),)


def test_the_command_line_blames_the_users_code_and_itself_only_where_there_is_none(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(BaseException) as ended:  # noqa: PT011  of click
        guard_command(lambda: broken(QUERY))()  # type: ignore[arg-type, return-value]
    assert getattr(ended.value, "exit_code", None) == Exit.USAGE
    message = " ".join(capsys.readouterr().err.split())
    assert "Your code failed with ValueError" in message
    assert "In the step broken:" in message
    assert "fault of Spolia" not in message
    with pytest.raises(BaseException) as ended:  # noqa: PT011  of click
        guard_command(partial(int, "no number"))()  # type: ignore[arg-type]
    assert getattr(ended.value, "exit_code", None) == Exit.FAULT
    assert "fault of Spolia" in " ".join(capsys.readouterr().err.split())
