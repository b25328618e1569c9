"""Running a flow over questions: what is asked, counted, charged and reported."""

from __future__ import annotations

import json
from typing import Any

import pytest

from spolia.errors import DataError, DocumentError, WiringError
from spolia.evaluation.evaluate import Evaluation, evaluate
from spolia.evaluation.measures.parse import parse_measures
from spolia.function import step
from spolia.operator import Operator
from spolia.run import Run
from spolia.surrounding import charge
from spolia.types import Hit, Item, Node, Query, Ranking, Usage

ITEMS = [Item(f"q{i}", f"question {i}", gold=((f"p{i}",),)) for i in range(10)]
MEASURES = parse_measures("R@1,MRR")


@step
def finds_even_ones(query: Query) -> Ranking:
    number = int(query.text.split()[1])
    charge(Usage(calls=1, embedded=2))
    names = [f"p{number}", "x"] if number % 2 == 0 else ["x", f"p{number}"]
    return Ranking(query, tuple(Hit(Node(name, ""), 1.0) for name in names))


@step
def fails_on_seven(query: Query) -> Ranking:
    if query.text.endswith("7"):
        raise DocumentError("seven is broken")
    return finds_even_ones(query)


@step
def counts_words(query: Query) -> int:
    return len(query.text.split())


def test_the_report_is_plain_data_with_means_between_0_and_1() -> None:
    report = evaluate(finds_even_ones, ITEMS, MEASURES, name="even", data="ten").json()
    assert list(report)[:6] == ["flow", "data", "n", "measures", "usage", "seconds"]
    assert (report["flow"], report["data"], report["n"], report["failures"]) == ("even", "ten", 10, 0)
    assert report["measures"]["R@1"]["mean"] == 0.5
    assert report["measures"]["MRR"]["mean"] == 0.75
    assert report["measures"]["R@1"]["low"] < 0.5 < report["measures"]["R@1"]["high"]
    assert report["usage"] == {"calls": 10, "input_tokens": 0, "output_tokens": 0, "embedded": 20, "cost_usd": 0.0}
    assert json.loads(json.dumps(report)) == report


def test_a_failed_question_scores_0_and_is_counted() -> None:
    found = evaluate(fails_on_seven, ITEMS, MEASURES)
    assert found.n == 10
    assert [(id, failure.kind) for id, failure in found.failures] == [("q7", "DocumentError")]
    assert dict(found.scores)["MRR"][7] == 0.0
    assert found.json()["measures"]["MRR"]["mean"] == pytest.approx((5 * 1 + 4 * 0.5) / 10)


def test_questions_without_gold_are_left_out_and_counted() -> None:
    found = evaluate(finds_even_ones, [*ITEMS, Item("q10", "question 10")], MEASURES)
    assert (found.n, found.without_gold) == (10, 1)
    assert found.usage.calls == 10


def test_no_gold_at_all_is_refused() -> None:
    with pytest.raises(DataError, match="None of 1 questions has gold for R@1, MRR"):
        evaluate(finds_even_ones, [Item("q", "?")], MEASURES)


def test_only_rankings_and_answers_are_measured() -> None:
    flow: Operator[Any, Any] = counts_words
    with pytest.raises(WiringError, match="gives int; a Ranking or an Answer can be measured"):
        evaluate(flow, ITEMS, MEASURES)


def test_small_windows_change_nothing_but_memory() -> None:
    told: list[int] = []
    small = evaluate(finds_even_ones, ITEMS, MEASURES, run=Run(window=3), told=told.append)
    assert told == [3, 6, 9, 10]
    assert small.but(seconds=0.0) == evaluate(finds_even_ones, ITEMS, MEASURES).but(seconds=0.0)


def test_only_what_the_evaluation_itself_used_is_reported() -> None:
    run = Run()
    evaluate(finds_even_ones, ITEMS, MEASURES, run=run)
    assert evaluate(finds_even_ones, ITEMS[:2], MEASURES, run=run).usage.calls == 2


def test_two_flows_are_compared_question_by_question() -> None:
    one, two = evaluate(finds_even_ones, ITEMS, MEASURES), evaluate(fails_on_seven, ITEMS, MEASURES)
    assert one.over(two, "MRR").mean == pytest.approx(0.05)
    assert one.over(one, "MRR").low == one.over(one, "MRR").high == 0.0
    with pytest.raises(DataError, match="different questions"):
        one.over(Evaluation("other", "", ("q0",), (("MRR", (1.0,)),)), "MRR")
