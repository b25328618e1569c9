"""What a gate says of one measure, by its interval, its p-value and its tolerance."""

from __future__ import annotations

import pytest

from spolia.evaluation.experiment.comparison import Estimates
from spolia.evaluation.gate.gate import GateVerdict, judge_measures
from spolia.evaluation.measures.registry import parse_measure
from spolia.evaluation.statistics.interval import Interval
from tests.cases import check_each


@check_each(
    ("low", "high", "p", "tolerance", "lost", "outcome"),
    [
        (-0.05, 0.02, 1.0, 0.05, 0, "not worse"),  # ends at the tolerance
        (-0.051, 0.02, 1.0, 0.05, 0, "undecided"),
        (-0.051, 0.02, 1.0, 0.06, 0, "not worse"),
        (-0.03, -0.01, 0.001, 0.05, 0, "not worse"),  # it is worse, by less than matters
        (-0.09, -0.01, 0.001, 0.05, 0, "worse"),
        (-0.09, -0.01, 0.06, 0.05, 0, "undecided"),  # the test does not say so
        (-0.373, -0.064, 0.0625, 0.05, 0, "worse"),  # all of it is below the tolerance, whatever the test says
        (-0.373, -0.05, 0.0625, 0.05, 0, "undecided"),  # it may be worse by no more than is tolerated
        (-0.373, -0.064, 0.0625, 0.0, 0, "undecided"),  # without a tolerance the test decides
        (-0.373, -0.064, 0.0625, 0.05, 3, "worse"),
        (-0.09, 0.0, 0.001, 0.05, 0, "undecided"),
        (-0.09, -0.01, 0.001, 0.05, 3, "worse"),
        (-0.03, 0.03, 1.0, 0.05, 3, "undecided"),  # three were determined then, and are not now
        (0.0, 0.0, 1.0, 0.0, 0, "not worse"),
    ],
)
def test_what_is_said_follows_from_interval_test_and_tolerance(
    low: float, high: float, p: float, tolerance: float, lost: int, outcome: str
) -> None:
    change = Interval((low + high) / 2, low, high, 100)
    assert GateVerdict("R@5", None, None, change, p, tolerance, 7, lost, True).outcome == outcome


def estimates_of(measure: str, then: list[float], now: list[float]) -> Estimates:
    return Estimates(parse_measure(measure), [[(score,) for score in side] for side in (then, now)], 0)


def test_p_values_are_corrected_for_all_measures() -> None:
    """Six of forty lost, none gained: 2 / 2^6 alone, which three measures together do not show."""
    then, now = [1.0] * 40, [0.0] * 6 + [1.0] * 34
    (alone,) = judge_measures([estimates_of("R@1", then, now)], [0.0])
    assert (alone.p, alone.outcome) == (2 / 2**6, "worse")
    three = judge_measures([estimates_of(entry, then, now) for entry in ("R@1", "R@2", "R@3")], [0.0] * 3)
    assert [(entry.p, entry.outcome) for entry in three] == [(3 * 2 / 2**6, "undecided")] * 3


def test_of_what_costs_more_is_worse_and_the_tolerance_is_a_share() -> None:
    then = [100.0 + n for n in range(40)]
    (dearer,) = judge_measures([estimates_of("ATC", then, [1.2 * entry for entry in then])], [0.05])
    assert dearer.outcome == "worse"
    assert dearer.tolerance == pytest.approx(0.05 * 119.5)
    assert dearer.change is not None
    assert dearer.change.mean == pytest.approx(-0.2 * 119.5)
    assert [
        entry.outcome for entry in judge_measures([estimates_of("ATC", then, [1.01 * entry for entry in then])], [0.05])
    ] == ["not worse"]
