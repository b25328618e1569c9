"""What may be said of two flows, from an interval and a p-value that is corrected for all comparisons."""

from __future__ import annotations

import random

import pytest

from spolia.evaluation.experiment.comparison import Comparison, Estimates, compare_flows, correct_comparisons
from spolia.evaluation.measures.registry import parse_measure
from spolia.evaluation.statistics.interval import Interval
from spolia.evaluation.statistics.significance import holm

AHEAD, UNSURE = Interval(0.031, 0.012, 0.05, 100), Interval(0.031, -0.002, 0.06, 100)


def comparison_of(p: float, interval: Interval = AHEAD, lower: bool = False) -> Comparison:
    return Comparison("F1", "A", "B", interval, p, p, "none", 1, lower, True)


@pytest.mark.parametrize(
    ("interval", "p", "others", "said"),
    [
        (AHEAD, 0.02, 1, "A beats B on F1 by 3.1 [1.2, 5.0]"),
        (AHEAD, 0.06, 0, "no difference shown between A and B on F1: 3.1 [1.2, 5.0]; p = 0.06"),
        (UNSURE, 0.02, 0, "no difference shown between A and B on F1: 3.1 [-0.2, 6.0]"),
        (
            AHEAD,
            0.02,
            2,
            "no difference shown between A and B on F1: 3.1 [1.2, 5.0]; p = 0.02, corrected for 3 comparisons (Holm) "
            "0.06",
        ),
    ],
)
def test_a_difference_is_shown_by_the_interval_and_the_corrected_test(
    interval: Interval, p: float, others: int, said: str
) -> None:
    comparison, *_ = correct_comparisons([comparison_of(p, interval), *[comparison_of(0.9)] * others], "holm")
    assert comparison.verdict == said
    assert comparison.shown == said.startswith("A beats")


def test_less_is_said_to_be_better_where_it_is() -> None:
    assert comparison_of(0.01, lower=True).verdict == "A beats B on F1 by 3.1 [1.2, 5.0] (lower is better)"


@pytest.mark.slow
def test_what_one_comparison_would_show_is_not_shown_among_many() -> None:
    """Nineteen flows that differ by chance alone, beside two of which one is a little better."""
    draw = random.Random(1)
    columns = [[(draw.random(),) for _ in range(60)] for _ in range(20)]
    columns.append([(min(1.0, max(0.0, entry + draw.uniform(-0.1, 0.2))),) for (entry,) in columns[0]])
    names = [f"flow {n}" for n in range(21)]
    comparisons = compare_flows(names, [Estimates(parse_measure("MRR"), columns, 0)], "holm")
    alone = [entry for entry in comparisons if entry.p < 0.05 and entry.interval.excludes_zero]
    shown_comparisons = [entry for entry in comparisons if entry.shown]
    assert len(comparisons) == 210
    assert [entry.adjusted for entry in comparisons] == pytest.approx(holm([entry.p for entry in comparisons]))
    assert [{entry.better, entry.other} for entry in shown_comparisons] == [{"flow 0", "flow 20"}]
    assert len(alone) > 5


@pytest.mark.slow
@pytest.mark.parametrize("measure", ["MRR", "AURC"])
def test_the_seed_of_an_experiment_decides_what_is_drawn(measure: str) -> None:
    draw = random.Random(2)
    columns = [[(draw.random(), draw.random())[: 1 if measure == "MRR" else 2] for _ in range(50)] for _ in range(2)]
    ends = [Estimates(parse_measure(measure), columns, seed).interval(0) for seed in (0, 1, 0)]
    assert ends[0] != ends[1]
    assert ends[0] == ends[2]


def test_one_measure_and_one_baseline_need_no_correction_for_the_others() -> None:
    """Three flows on two measures: two comparisons with the baseline on one measure, instead of six."""
    columns = [[(float((n * step) % 7 > 2),) for n in range(30)] for step in (1, 2, 3)]
    estimates = [Estimates(parse_measure(entry), columns, 0) for entry in ("R@5", "MRR")]
    comparisons = compare_flows(["a", "b", "c"], estimates, "holm", "MRR", "b")
    assert [(entry.measure, {entry.better, entry.other}, entry.comparison_count) for entry in comparisons] == [
        ("MRR", {"a", "b"}, 2),
        ("MRR", {"b", "c"}, 2),
    ]
    assert len(compare_flows(["a", "b", "c"], estimates, "holm")) == 6
    assert len(compare_flows(["a", "b", "c"], estimates, "holm", against="a")) == 4
    assert comparison_of(0.01).of_flow("A") == AHEAD
    assert comparison_of(0.01).of_flow("B") == AHEAD.reversed
