"""Answers of a server: when they count as worse, and what is asked of a candidate. The traffic is simulated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("uvicorn", reason="the extra `server` is not installed")

from spolia import Answer, Operator, Query, step
from spolia.errors import DataError
from spolia.journal import Runs
from spolia.run import Run
from spolia.server.service import Shadow
from spolia.services.traffic import (
    BLOCK,
    MIN_ANSWERS,
    ServedAnswer,
    TrafficBaseline,
    TrafficLog,
    compare_traffic,
    find_alarms,
    find_topics,
    one_sided_p_value,
    read_answers,
)


def traffic(random: Any, n: int, abstained: float = 0.05, slower: float = 1.0, start: int = 0) -> list[ServedAnswer]:
    """Answers that do not depend on each other: abstentions by lot, scores normal, seconds exponential."""
    scores, seconds, tokens = random.normal(8, 2, n), slower * random.exponential(1, n), random.poisson(900, n)
    stops = np.where(random.random(n) < abstained, "abstained", "answered")
    return [
        ServedAnswer(f"{start + index:012x}", start + index, "production", "v", "", "q", str(stops[index]),
                     float(scores[index]), float(seconds[index]), False, 1, int(tokens[index]), 0.0, ())
        for index in range(n)
    ]  # fmt: skip


@pytest.mark.slow
def test_flows_that_stay_as_they_were_raise_few_alarms_and_worse_ones_do() -> None:
    random, deployments = np.random.default_rng(7), 60
    raised = 0
    for _ in range(deployments):
        previous_traffic = TrafficBaseline.from_answers(traffic(random, 300))
        raised += any(find_alarms(previous_traffic, traffic(random, 6 * BLOCK)).values())
    assert raised <= 0.05 * deployments
    random = np.random.default_rng(1)
    previous_traffic = TrafficBaseline.from_answers(traffic(random, 300))
    later = traffic(random, 3 * BLOCK) + traffic(random, BLOCK, abstained=0.35, slower=3)
    changes_by_measure = {measured.measure: measured for measured in compare_traffic(previous_traffic, later)}
    assert {name: measured.alarm for name, measured in changes_by_measure.items()} == {
        "abstained": 4, "top score": 0, "seconds": 4, "tokens": 0, "USD": 0,
    }  # fmt: skip
    assert (change := changes_by_measure["abstained"].change) is not None
    assert 0 < change.low < change.mean < change.high


def test_tests_agree_with_known_values() -> None:
    ours, theirs = np.array([1.1, 2.2, 3.3, 9.0]), np.array([0.1, 0.2, 1.0, 2.0, 3.0])
    assert one_sided_p_value(ours, theirs) == pytest.approx(
        7 / 126, abs=1e-3
    )  # of the orders, 7 have as large a sum of ranks
    tea = np.array([1.0, 1, 1, 0]), np.array([0.0, 0, 0, 1])
    assert one_sided_p_value(*tea) == pytest.approx(17 / 70)  # Fisher's lady tasting tea


def test_a_baseline_needs_answers_and_is_read_as_it_was_written(tmp_path: Path) -> None:
    served_answers = traffic(np.random.default_rng(1), MIN_ANSWERS)
    with pytest.raises(DataError, match="needs 30 answers"):
        TrafficBaseline.from_answers(served_answers[1:])
    traffic_baseline = TrafficBaseline.from_answers(
        [served_answer.but(cached=True) for served_answer in served_answers]
    )
    traffic_baseline.write(tmp_path / "base.json")
    assert TrafficBaseline.read(tmp_path / "base.json") == traffic_baseline
    assert compare_traffic(traffic_baseline, served_answers)[2].before is None  # no time is known of cached answers
    (tmp_path / "base.json").write_text("{}")
    with pytest.raises(DataError, match="--write"):
        TrafficBaseline.read(tmp_path / "base.json")


def test_topics_are_words_of_questions_without_an_answer() -> None:
    served_answers = traffic(np.random.default_rng(1), 40, abstained=0)
    served_answers = [item.but(question=f"what of tides {index}") for index, item in enumerate(served_answers)]
    served_answers[:5] = [
        item.but(question=f"what of owls {index}", stop_reason="abstained")
        for index, item in enumerate(served_answers[:5])
    ]
    assert [(item.word, item.questions, item.unanswered.mean) for item in find_topics(served_answers, str.split)] == [
        ("owls", 5, 1.0)
    ]


def test_a_candidate_is_asked_within_its_budget_and_by_the_users_rights(tmp_path: Path) -> None:
    principals: list[frozenset[str]] = []

    def found(query: Query) -> Answer:
        run = Run.current()
        assert run is not None
        principals.append(run.principals)
        if "fail" in query.text:
            raise ValueError("x")
        return Answer("Yes.")

    flow: Operator[Query, Answer] = step(found)
    with Runs(tmp_path / "runs.db") as runs, Run(principal="ann", groups=["staff"]) as run:
        (log := TrafficLog(runs.journal)).add(traffic(np.random.default_rng(1), 1)[0].but(run=run.id, question="why?"))
        log.hand_over()
        shadow = Shadow(runs.journal, 1.0, 1)
        shadow.offer(flow, "v", run, Query("why?"))
        shadow.offer(flow, "v", run, Query("fail"))
        shadow.close()
        runs.journal.flush()
        shadow_answers = [answer for answer in read_answers(runs.journal) if answer.shadow_of]
        for budget_usd, share in ((0, 1.0), (1, 0.0)):
            other_shadow = Shadow(runs.journal, share, budget_usd)
            other_shadow.offer(flow, "v", run, Query("again"))
            other_shadow.close()
    assert principals == [frozenset(("ann", "staff"))] * len(principals)
    assert {answer.question: answer.stop_reason for answer in shadow_answers}.items() >= {"why?": "answered"}.items()
    assert "again" not in {answer.question for answer in shadow_answers}
