"""`spolia calibrate` over a real server."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from spolia import Answer, Item
from spolia.evaluation.measures.answers.string_match import F1
from spolia.evaluation.measures.judged.calibration import BATCH_SIZE, LabelledAnswer, calibrated
from spolia.evaluation.measures.measure import Case
from spolia.testing import OpenAIServer, ServedReply

from .conftest import Spolia


@pytest.fixture
def labels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    row = {"question": "Who?", "answers": ["Nokia"]}
    rows = [row | {"id": f"a{n}", "answer": f"Nokia {n}", "label": int(n < 3)} for n in range(4)]
    (tmp_path / "labels.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return tmp_path / "labels.jsonl"


@pytest.mark.slow
def test_a_judge_is_laid_beside_labels_and_asked_once(spolia: Spolia, labels: Path) -> None:
    with OpenAIServer(ServedReply("yes")) as server:
        command = ("calibrate", labels, "--llm", server.url, "--model", "judge")
        ran = spolia(*command)
        assert ran.code == 0, ran.err
        assert 'Correctness(llm="judge"): kappa 0.000, 75.0% of 4 the same, 0 undetermined' in ran.out
        assert [line.split() for line in ran.out.splitlines()[1:4]] == [
            ["labelled", "judged", "0", "judged", "1"],
            ["0", "0", "1"],
            ["1", "0", "3"],
        ]
        assert "a3: labelled 0, judged 1" in ran.out
        second_output = spolia(*command, "--json").json
        assert len(server.requests) == 4
    assert (second_output["calls"], second_output["measures"][0]["same"]) == (0, 0.75)
    assert second_output["measures"][0]["confusion"] == [
        {"label": "0", "verdict": "1", "n": 1},
        {"label": "1", "verdict": "1", "n": 3},
    ]


@pytest.mark.slow
def test_a_judge_that_says_nothing_is_counted_and_wrong_usage_is_one_line(spolia: Spolia, labels: Path) -> None:
    with OpenAIServer(ServedReply("who knows")) as server:
        ran = spolia("calibrate", labels, "--llm", server.url, "--model", "judge")
    assert ran.code == 5
    assert "kappa undefined, nothing of 0 the same, 4 undetermined" in ran.out
    assert "labelled" not in ran.out  # a table without a row
    assert "why the judge could not tell, the first: its reply could not be read" in ran.err
    for args, says in (
        ((), "--llm URL"),
        (("--measures", "BLEU"), "of a single answer"),
        (("--measures", "R@5"), "R@5"),
    ):
        ran = spolia("calibrate", labels, *args)
        assert (ran.code, ran.err.count("\n")) == (2, 1)
        assert says in ran.err
    ran = spolia("calibrate", labels, "--measures", "F1", "--json")
    assert (ran.code, ran.json["measures"][0]["n"]) == (0, 4)


@pytest.mark.slow
def test_where_answers_go_and_why_a_judge_is_silent_is_said(spolia: Spolia, labels: Path) -> None:
    with OpenAIServer(ServedReply(status=401)) as server:
        ran = spolia("calibrate", labels, "--llm", server.url, "--model", "judge")
    assert ran.code == 5
    first, *_, last = ran.err.splitlines()
    assert first.startswith(
        f"To be judged, questions, answers and passages go to {server.url} (judge), with the key in"
    )
    assert "why the judge could not tell, the first: ModelRejected: judge at" in last
    assert "401" in last


def test_how_far_the_judging_is_is_told() -> None:
    labelled = [
        LabelledAnswer(Case(Item(f"q{n}", "Who?", answers=("Nokia",)), Answer("Nokia")), 1.0)
        for n in range(BATCH_SIZE + 1)
    ]
    progress: list[tuple[int, int]] = []
    calibration = calibrated(F1(), labelled, lambda done, total: progress.append((done, total)))
    assert progress == [(BATCH_SIZE, BATCH_SIZE + 1), (BATCH_SIZE + 1, BATCH_SIZE + 1)]
    assert calibration.agreement.n == BATCH_SIZE + 1
