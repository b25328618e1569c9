"""How long questions took, by hand."""

from __future__ import annotations

import random

import numpy as np

from spolia.evaluation.experiment.results import Latency
from spolia.evaluation.experiment.score_store import ANSWERS, Columns
from tests.cases import check_each


def rows(*seconds: float, opening: float = np.nan) -> Columns:
    answers = np.zeros(len(seconds), ANSWERS)
    answers["seconds"], answers["opening"] = seconds, np.nan
    answers["opening"][:1] = opening
    return answers


@check_each(
    ("seconds", "p50", "p95"),
    [
        ([0.3], 0.3, 0.3),
        ([0.1, 0.2], 0.1, 0.2),
        ([0.1, 0.2, 0.3], 0.2, 0.3),
        ([n / 100 for n in range(1, 21)], 0.10, 0.19),  # the 10th and the 19th of twenty
        ([n / 100 for n in range(1, 101)], 0.50, 0.95),
        ([n / 100 for n in range(1, 102)], 0.51, 0.96),  # 50.5 and 95.95 of 101
    ],
)
def test_half_and_95_of_100_took_at_most_so_long(seconds: list[float], p50: float, p95: float) -> None:
    shuffled = random.Random(1).sample(seconds, len(seconds))
    latency = Latency.from_answers(rows(*shuffled), 1)
    assert (latency.p50_s, latency.p95_s, latency.n) == (p50, p95, len(seconds))


def test_setting_up_and_the_cache_are_no_latency() -> None:
    answers = rows(9.0, 0.1, 0.2, 0.3, 0.0, opening=1.5)
    answers["cached"][-1] = True
    latency = Latency.from_answers(answers, 4)
    assert latency == Latency(
        setup_s=10.5, p50_s=0.2, p95_s=0.3, n=3, cached=1, at_once=4, ran_p50_s=0.0, ran_p95_s=0.0
    )
    assert Latency.from_answers(answers[:1], 1) == Latency(setup_s=10.5)
