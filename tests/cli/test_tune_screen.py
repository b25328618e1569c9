"""What `spolia tune` says before and while it runs."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from spolia.testing import OpenAIServer, ServedReply

from .conftest import Spolia, lights_with_reader

pytestmark = pytest.mark.slow
SEARCHING = "- Vary: {body: {BM25: {group: {use: chunks}}}, ranges: {top_k: [1, 2, 5]}, names: {top_k: depth}}\n"


@pytest.fixture
def server() -> Iterator[OpenAIServer]:
    with OpenAIServer(ServedReply("3")) as new_server:
        yield new_server


@pytest.fixture
def data(tmp_path: Path, server: OpenAIServer) -> Path:
    (tmp_path / "searching.yaml").write_text(SEARCHING)
    return lights_with_reader(tmp_path / "small", 12, server, 1, 5, 6)


def in_terminal(*command: object) -> tuple[int, str, str]:
    """Exit code, stdout, and what a terminal shows that stderr is."""
    screen, end = pty.openpty()
    words = [sys.executable, "-m", "spolia", *map(str, command)]
    ran = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=end, env=os.environ | {"COLUMNS": "200"})
    os.close(end)
    printed = b""
    while True:
        try:
            piece = os.read(screen, 65536)
        except OSError:
            break
        if not piece:
            break
        printed += piece
    assert ran.stdout is not None
    out = ran.stdout.read().decode()
    os.close(screen)
    return ran.wait(600), out, printed.decode()


def test_an_estimate_of_the_whole_study_asks_no_model_and_holds_what_it_takes(
    spolia: Spolia, data: Path, server: OpenAIServer
) -> None:
    command = ("tune", data.parent / "reading.yaml", "--data", data, "--objective", "F1", "-o", data.parent / "read")
    estimate = spolia(*command, "--budget", "100%", "--estimate", "--json").json
    assert server.requests == []
    study = estimate["study"]
    assert (study["choosing"], study["reporting"], estimate["n"]) == (36, 0, 36)
    ran = spolia(*command, "--budget", "100%", "--json")
    assert ran.code == 0, ran.err
    spending = ran.json["spent"]
    assert study["calls"][0] <= spending["calls"] <= study["calls"][2] == 36
    assert study["calls"][0] < study["calls"][2]  # flows share contexts
    assert 0 < spending["usd"] <= study["usd"][2]
    assert study["tokens"][0] < study["tokens"][1] < study["tokens"][2]
    assert study["seconds"][0] > 0
    printed = spolia(*command, "--budget", "100%", "--estimate").out
    assert "Estimate for 36 scores to choose and 0 to report; nothing was sent to a server." in printed
    free = spolia("tune", data.parent / "searching.yaml", *command[2:4], "-o", data.parent / "free", "--estimate")
    assert "measured on a few flows" in free.out
    assert not (data.parent / "free").exists()


def test_a_budget_in_usd_needs_a_price_and_is_kept(spolia: Spolia, data: Path, server: OpenAIServer) -> None:
    space = data.parent / "reading.yaml"
    command = ("tune", space, "--data", data, "--objective", "F1", "-o", data.parent / "read")
    small = spolia(*command, "--budget", "0.0001 USD")
    assert small.code == 2
    assert "Write at least '" in small.err
    minimum = small.err.split("Write at least '")[1].split("'")[0]
    assert minimum.endswith(" USD")
    enough = spolia(*command, "--budget", "0.3 USD", "--json")
    assert enough.code == 0, enough.err
    assert enough.json["spent"]["usd"] <= 0.3
    space.write_text(space.read_text().replace(", usd_per_million: [1.0, 2.0]", ""))
    asked_before = len(server.requests)
    for more in (("--budget", "2 USD"), ("--objective", "F1,USD", "--budget", "100%")):
        unpriced = spolia(*command[:4], "-o", data.parent / "other", *(("--objective", "F1", *more)[-4:]))
        assert unpriced.code == 2
        assert "The price of m is not known, so USD cannot be counted. Write usd_per_million" in unpriced.err
    assert len(server.requests) == asked_before


def test_a_pipe_gets_a_line_now_and_then_and_one_json_object(
    spolia: Spolia, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spolia.cli.tuning_screen.EVERY_S", 0.0)
    command = ("tune", data.parent / "reading.yaml", "--data", data, "--objective", "F1", "-o", data.parent / "read")
    ran = spolia(*command, "--budget", "40 calls", "--json")
    assert ran.json["spent"]["calls"] <= 40
    lines = [line for line in ran.err.splitlines() if line.startswith("tuning: ")]
    assert len(lines) > 5
    assert " scores, " in lines[-1]
    assert "budget 40 calls" in lines[-1]
    assert "leads with F1" in lines[-1]
    assert "Estimate" not in ran.err


def test_a_terminal_shows_the_estimate_and_the_leaders(data: Path) -> None:
    command = ("tune", data.parent / "reading.yaml", "--data", data, "--objective", "F1", "-o", data.parent / "read")
    code, out, printed = in_terminal(*command, "--budget", "100%", "--json")
    assert code == 0, printed
    assert json.loads(out)["spent"]["calls"] > 0
    assert "Estimate: 36 scores to choose, 0 to report; calls " in printed
