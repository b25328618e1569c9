"""A study with a paid model that is killed, or whose disk is full, goes on where it was."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from spolia.testing import OpenAIServer, ServedReply

from .conftest import lights_with_reader

pytestmark = pytest.mark.slow
THREADS = 8


@pytest.fixture
def server() -> Iterator[OpenAIServer]:
    with OpenAIServer(ServedReply("3 lamps", wait_s=0.03)) as new_server:
        yield new_server


@pytest.fixture
def data(tmp_path: Path, server: OpenAIServer) -> Path:
    return lights_with_reader(tmp_path / "small", 20, server, 1, 2, 5, 8)


def command(data: Path, out: str, *more: str) -> list[str]:
    words = [sys.executable, "-m", "spolia", "tune", str(data.parent / "reading.yaml"), "--data", str(data), "--json"]
    return [*words, "--objective", "F1", "-o", str(data.parent / out), *(more or ("--budget", "100%"))]


def finish_study(data: Path, out: str, cache: str, *more: str) -> dict[str, Any]:
    environment = os.environ | {"SPOLIA_CACHE": str(data.parent / cache)}
    ran = subprocess.run(command(data, out, *more), env=environment, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stderr
    return dict(json.loads(ran.stdout))


@pytest.mark.parametrize("budget", ["100%", "90 calls"])
def test_a_killed_study_asks_a_paid_model_again_only_what_was_in_flight(
    data: Path, server: OpenAIServer, budget: str
) -> None:
    whole = finish_study(data, "whole", "first", "--budget", budget)
    asked_before = len(server.requests)
    environment = os.environ | {"SPOLIA_CACHE": str(data.parent / "second")}
    killed = subprocess.Popen(
        command(data, "killed", "--budget", budget),
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    while len(server.requests) < asked_before + 45 and killed.poll() is None:
        time.sleep(0.005)
    killed.kill()
    assert killed.wait(600) == -signal.SIGKILL
    rest = finish_study(data, "killed", "second", "--budget", budget)
    assert 0 < rest["spent"]["rows"] < whole["spent"]["rows"]
    assert (rest["best"]["point"], rest["score"]) == (whole["best"]["point"], whole["score"])
    finalists = [[{**item, "notation": ""} for item in study["finalists"]] for study in (rest, whole)]
    assert finalists[0] == finalists[1]
    body_counts = Counter(json.dumps(item.body, sort_keys=True) for item in server.requests[asked_before:])
    assert sum(body_counts.values()) - len(body_counts) <= THREADS
    assert len(body_counts) == asked_before
    second = finish_study(data, "killed", "second", "--budget", budget)
    assert second["spent"] == {"rows": 0, "calls": 0, "usd": 0.0, "share": 0.0}
    assert sum(body_counts.values()) == len(server.requests) - asked_before


def test_a_full_disk_is_an_error_and_what_was_scored_is_not_asked_again(data: Path) -> None:
    whole = finish_study(data, "whole", "first")
    size = (data.parent / "whole" / "scores.experiment").stat().st_size * 3 // 4

    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

    environment = os.environ | {"SPOLIA_CACHE": str(data.parent / "first")}
    ran = subprocess.run(
        command(data, "full"), env=environment, capture_output=True, text=True, preexec_fn=limit, timeout=300
    )
    assert ran.returncode == 2, ran.stderr
    error = json.loads(ran.stdout)["error"]
    assert "scores.experiment" in error["message"]
    assert "Free some space" in error["message"]
    kept_size = (data.parent / "full" / "scores.experiment").stat().st_size
    assert 0 < kept_size <= size
    rest = finish_study(data, "full", "first")
    assert (rest["best"]["point"], rest["score"]) == (whole["best"]["point"], whole["score"])
    assert 0 < rest["spent"]["rows"] < whole["spent"]["rows"]
    assert finish_study(data, "full", "first")["spent"]["rows"] == 0
