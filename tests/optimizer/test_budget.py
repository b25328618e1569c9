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


def tune_reading(budget: str | None, n: int = 30, **options: Any) -> TunedFlow:
    """4 flows that ask a model once for a question."""
    return tune(reading(MODEL), questions(n), "EM", budget=budget, **options)


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
    tuning_budget = TuningBudget.parse(text)
    assert tuning_budget == TuningBudget(amount, unit)
    assert TuningBudget.parse(str(tuning_budget)) == tuning_budget


def test_what_a_score_takes_says_for_how_many_a_budget_is_enough() -> None:
    row_cost = RowCost(calls=2.0, tokens=500.0, usd=0.001, seconds=0.1)
    for text, rows in (("200 calls", 95), ("100k tokens", 190), ("1 USD", 950), ("10s", 95), ("50%", 500)):
        assert TuningBudget.parse(text).rows(1000, row_cost) == pytest.approx(rows, abs=1)
    assert TuningBudget.parse("1 USD").rows(1000, RowCost(calls=3.0)) == 1000


@pytest.mark.parametrize("text", ["1 calls", "1 tokens", "1 USD", "1s"])
def test_the_least_budget_is_enough(text: str) -> None:
    row_cost = RowCost(calls=0.7, tokens=333.0, usd=0.00123, seconds=1.7)
    budget = TuningBudget.parse(text)
    tuning_budget = TuningBudget.parse(budget.format_minimum(48, row_cost))
    assert 48 <= tuning_budget.rows(10_000, row_cost) <= 100


@pytest.mark.slow
@pytest.mark.parametrize(("budget", "calls"), [("60 calls", 60), ("9k tokens", 9000)])
def test_models_are_asked_no_more_than_the_budget_allows(budget: str, calls: int) -> None:
    whole, bounded = tune_reading(None), tune_reading(budget)
    usage = bounded.spent.calls if "calls" in budget else bounded.spent.input_tokens + bounded.spent.output_tokens
    assert 0 < usage <= calls
    assert bounded.spent.calls < whole.spent.calls
    assert bounded.score.low <= bounded.score.mean <= bounded.score.high


@pytest.mark.slow
def test_a_budget_that_is_too_small_says_the_least_in_its_unit_and_that_is_enough() -> None:
    with pytest.raises(DataError, match=r"A budget of 20 calls is too small .* Write at least '(\d+) calls'.") as error:
        tune_reading("20 calls")
    minimum = str(error.value).split("'")[1]
    assert tune_reading(minimum).spent.calls <= int(minimum.split()[0])
    with pytest.raises(DataError, match=r"A budget of 3 tokens is too small .* Write at least '\d+ tokens'"):
        tune_reading("3 tokens")
    with pytest.raises(DataError, match=r"A budget of 0.0001s is too small .* Write at least '[\d.]+(s|m)'."):
        tune(SPACE, questions(30), "MRR", budget="0.0001s")


@pytest.mark.slow
def test_of_a_budget_of_calls_enough_is_left_for_the_report_on_fresh_questions() -> None:
    tuned_flow = tune_reading("700 calls", 210)
    assert tuned_flow.spent.calls <= 700
    assert tuned_flow.fresh > 0
    assert tuned_flow.scored_on == "fresh questions"
    assert tuned_flow.regret_bound is not None


@pytest.mark.slow
def test_a_study_goes_on_within_its_budget_and_again_takes_nothing(tmp_path: Path) -> None:
    first = tune_reading("60 calls", path=tmp_path)
    second = tune_reading("60 calls", path=tmp_path)
    assert (second.rows, second.spent.calls) == (0, 0)
    assert (second.point, second.score) == (first.point, first.score)
    more = tune_reading("100 calls", path=tmp_path)
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
    tuned_flow = tune(space, questions(40), "MRR", budget="400s")
    assert tuned_flow.is_cut_short
    assert tuned_flow.share < 1.0
    assert any("The search ended early: the time of 400 s is over" in note for note in tuned_flow.notes)
