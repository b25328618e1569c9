"""Budgets of a study in all units: what the search plans with, and what is never exceeded."""

from pathlib import Path
from typing import Any

import pytest

from spolia.errors import DataError
from spolia.optimizer.budget import RowCost, TuningBudget
from spolia.optimizer.tuned_flow import TunedFlow
from spolia.optimizer.tuning import tune
from tests.cases import check_each

from .finds import MODEL, Finds, questions, reading
from .test_tuning import SPACE


def tuned(budget: str | None, n: int = 30, **how: Any) -> TunedFlow:
    """4 flows that ask a model once for a question."""
    return tune(reading(MODEL), questions(n), "EM", budget=budget, **how)


@check_each(
    ("text", "amount", "unit"),
    [
        ("5%", 0.05, "%"), ("2000 rows", 2000, "rows"), ("40", 40, "rows"), ("500 calls", 500, "calls"),
        ("200k tokens", 200_000, "tokens"), ("1.5M tokens", 1_500_000, "tokens"), ("2 USD", 2, "USD"),
        ("$", None, ""), ("10m", 600, "s"), ("90s", 90, "s"), ("1.5 h", 5400, "s"), ("10M", None, ""),
        ("0 calls", None, ""), ("120%", None, ""), ("-3 USD", None, ""), ("10 days", None, ""),
    ],
)  # fmt: skip
def test_a_budget_is_written_with_its_unit(text: str, amount: float | None, unit: str) -> None:
    if amount is None:
        with pytest.raises(DataError, match="is not a budget"):
            TuningBudget.parse(text)
        return
    found = TuningBudget.parse(text)
    assert found == TuningBudget(amount, unit)
    assert TuningBudget.parse(str(found)) == found


def test_what_a_score_takes_says_for_how_many_a_budget_is_enough() -> None:
    each = RowCost(calls=2.0, tokens=500.0, usd=0.001, seconds=0.1)
    for text, rows in (("200 calls", 95), ("100k tokens", 190), ("1 USD", 950), ("10s", 95), ("50%", 500)):
        assert TuningBudget.parse(text).rows(1000, each) == pytest.approx(rows, abs=1)
    assert TuningBudget.parse("1 USD").rows(1000, RowCost(calls=3.0)) == 1000


@pytest.mark.parametrize("text", ["1 calls", "1 tokens", "1 USD", "1s"])
def test_the_least_budget_is_enough(text: str) -> None:
    each = RowCost(calls=0.7, tokens=333.0, usd=0.00123, seconds=1.7)
    budget = TuningBudget.parse(text)
    least = TuningBudget.parse(budget.format_minimum(48, each))
    assert 48 <= least.rows(10_000, each) <= 100


@pytest.mark.slow
@pytest.mark.parametrize(("budget", "calls"), [("60 calls", 60), ("9k tokens", 9000)])
def test_models_are_asked_no_more_than_the_budget_allows(budget: str, calls: int) -> None:
    whole, found = tuned(None), tuned(budget)
    taken = found.spent.calls if "calls" in budget else found.spent.input_tokens + found.spent.output_tokens
    assert 0 < taken <= calls
    assert found.spent.calls < whole.spent.calls
    assert found.score.low <= found.score.mean <= found.score.high


@pytest.mark.slow
def test_a_budget_that_is_too_small_says_the_least_in_its_unit_and_that_is_enough() -> None:
    with pytest.raises(DataError, match=r"A budget of 20 calls is too small .* Write at least '(\d+) calls'.") as error:
        tuned("20 calls")
    least = str(error.value).split("'")[1]
    assert tuned(least).spent.calls <= int(least.split()[0])
    with pytest.raises(DataError, match=r"A budget of 3 tokens is too small .* Write at least '\d+ tokens'"):
        tuned("3 tokens")
    with pytest.raises(DataError, match=r"A budget of 0.0001s is too small .* Write at least '[\d.]+(s|m)'."):
        tune(SPACE, questions(30), "MRR", budget="0.0001s")


@pytest.mark.slow
def test_of_a_budget_of_calls_enough_is_left_for_the_report_on_fresh_questions() -> None:
    found = tuned("700 calls", 210)
    assert found.spent.calls <= 700
    assert found.fresh > 0
    assert found.scored_on == "fresh questions"
    assert found.regret_bound is not None


@pytest.mark.slow
def test_a_study_goes_on_within_its_budget_and_again_takes_nothing(tmp_path: Path) -> None:
    first = tuned("60 calls", path=tmp_path)
    again = tuned("60 calls", path=tmp_path)
    assert (again.rows, again.spent.calls) == (0, 0)
    assert (again.point, again.score) == (first.point, first.score)
    more = tuned("100 calls", path=tmp_path)
    assert first.spent.calls + more.spent.calls <= 100


@pytest.mark.slow
def test_a_search_ends_when_its_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr("spolia.optimizer.progress.monotonic", lambda: clock[0])
    monkeypatch.setattr("spolia.optimizer.pilot.perf_counter", lambda: clock[0])

    class Takes(Finds):
        def apply(self, value: Any, /) -> Any:
            clock[0] += 1.0 if clock[0] < 150 else 9.0
            return super().apply(value)

    space = Takes().vary("skill", skill=[0, 1, 2, 3]).vary("luck", luck=[0, 1, 2])
    whole = tune(space, questions(40), "MRR", budget="3h")
    assert not whole.is_cut_short
    assert whole.share == 1.0
    clock[0] = 0.0
    found = tune(space, questions(40), "MRR", budget="400s")
    assert found.is_cut_short
    assert found.share < 1.0
    assert any("The search ended early: the time of 400 s is over" in note for note in found.notes)
