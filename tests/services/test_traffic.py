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
    ENOUGH,
    ServedAnswer,
    TrafficBaseline,
    TrafficLog,
    alarms,
    answers,
    changes,
    more_than,
    topics,
)


def traffic(random: Any, n: int, abstained: float = 0.05, slower: float = 1.0, start: int = 0) -> list[ServedAnswer]:
    """Answers that do not depend on each other: abstentions by lot, scores normal, seconds exponential."""
    scores, seconds, tokens = random.normal(8, 2, n), slower * random.exponential(1, n), random.poisson(900, n)
    stops = np.where(random.random(n) < abstained, "abstained", "answered")
    return [
        ServedAnswer(f"{start + at:012x}", start + at, "production", "v", "", "q", str(stops[at]), float(scores[at]),
                     float(seconds[at]), False, 1, int(tokens[at]), 0.0, ())
        for at in range(n)
    ]  # fmt: skip


@pytest.mark.slow
def test_flows_that_stay_as_they_were_raise_few_alarms_and_worse_ones_do() -> None:
    random, deployments = np.random.default_rng(7), 60
    raised = 0
    for _ in range(deployments):
        before = TrafficBaseline.of(traffic(random, 300))
        raised += any(alarms(before, traffic(random, 6 * BLOCK)).values())
    assert raised <= 0.05 * deployments
    random = np.random.default_rng(1)
    before = TrafficBaseline.of(traffic(random, 300))
    later = traffic(random, 3 * BLOCK) + traffic(random, BLOCK, abstained=0.35, slower=3)
    found = {one.measure: one for one in changes(before, later)}
    assert {name: one.alarm for name, one in found.items()} == {
        "abstained": 4, "top score": 0, "seconds": 4, "tokens": 0, "USD": 0,
    }  # fmt: skip
    assert (change := found["abstained"].change) is not None
    assert 0 < change.low < change.mean < change.high


def test_tests_agree_with_known_values() -> None:
    ours, theirs = np.array([1.1, 2.2, 3.3, 9.0]), np.array([0.1, 0.2, 1.0, 2.0, 3.0])
    assert more_than(ours, theirs) == pytest.approx(7 / 126, abs=1e-3)  # of the orders, 7 have as large a sum of ranks
    tea = np.array([1.0, 1, 1, 0]), np.array([0.0, 0, 0, 1])
    assert more_than(*tea) == pytest.approx(17 / 70)  # Fisher's lady tasting tea


def test_a_baseline_needs_answers_and_is_read_as_it_was_written(tmp_path: Path) -> None:
    asked = traffic(np.random.default_rng(1), ENOUGH)
    with pytest.raises(DataError, match="needs 30 answers"):
        TrafficBaseline.of(asked[1:])
    found = TrafficBaseline.of([one.but(cached=True) for one in asked])
    found.write(tmp_path / "base.json")
    assert TrafficBaseline.read(tmp_path / "base.json") == found
    assert changes(found, asked)[2].before is None  # no time is known of cached answers
    (tmp_path / "base.json").write_text("{}")
    with pytest.raises(DataError, match="--write"):
        TrafficBaseline.read(tmp_path / "base.json")


def test_topics_are_words_of_questions_without_an_answer() -> None:
    asked = traffic(np.random.default_rng(1), 40, abstained=0)
    asked = [one.but(question=f"what of tides {at}") for at, one in enumerate(asked)]
    asked[:5] = [one.but(question=f"what of owls {at}", stop_reason="abstained") for at, one in enumerate(asked[:5])]
    assert [(one.word, one.questions, one.unanswered.mean) for one in topics(asked, str.split)] == [("owls", 5, 1.0)]


def test_a_candidate_is_asked_within_its_budget_and_by_the_users_rights(tmp_path: Path) -> None:
    seen: list[frozenset[str]] = []

    def found(query: Query) -> Answer:
        run = Run.current()
        assert run is not None
        seen.append(run.principals)
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
        kept = [one for one in answers(runs.journal) if one.shadow_of]
        for spent, share in ((0, 1.0), (1, 0.0)):
            other = Shadow(runs.journal, share, spent)
            other.offer(flow, "v", run, Query("again"))
            other.close()
    assert seen == [frozenset(("ann", "staff"))] * len(seen)
    assert {one.question: one.stop_reason for one in kept}.items() >= {"why?": "answered"}.items()
    assert "again" not in {one.question for one in kept}
