"""`spolia init`: what is written works as printed, wherever the project is moved to."""

from __future__ import annotations

import os
import shlex
import subprocess
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest
import yaml

from spolia.cli.experiments import with_profile_store
from spolia.cli.measuring_options import MeasuringOptions
from spolia.evaluation.data.dataset import DataSet
from tests.evaluation.creation import documents

from .conftest import Spolia
from .test_questions import Scripted

QUESTIONS = 'question,answer,file\n"When was lighthouse 3, the tall one, lit?",1803,3.txt\nHow old is 5?,205,5.txt\n'


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with documents and questions."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my papers").mkdir()
    for n in range(9):
        (tmp_path / "my papers" / f"{n}.txt").write_text(f"Lighthouse {n}, the tall one, was lit in {1800 + n}.")
    (tmp_path / "q.csv").write_text(QUESTIONS)
    return tmp_path


@pytest.mark.slow
def test_a_project_works_as_printed_and_after_it_was_moved(
    spolia: Spolia, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = spolia("init", "P", "--docs", "my papers", "--questions", "q.csv", "--no-vectors", "--json")
    assert result.code == 0
    for name in result.json["files"]:
        assert Path("P", name).stat().st_size > 0
    assert spolia("eval", "bm25", "--data", "q.csv", "--store", "P/store").code == 0

    Path("P").rename("moved")
    monkeypatch.chdir(place / "moved")
    commands = [line for line in Path("README.md").read_text().splitlines() if line.startswith("spolia ")]
    assert len(commands) == 5
    for line in [*result.json["next"][1:], *commands]:
        ran = spolia(*shlex.split(line)[1:])
        assert ran.code == (6 if " ask " in line else 0), (line, ran)  # the question of the README finds nothing
    assert spolia("eval", "flow.yaml", "--data", "questions.csv").code == 0, "the store of spolia.toml is asked"
    gated = spolia("gate", "--baseline", "baseline.json", "--json").json
    assert (gated["passed"], gated["flow"]) == (True, "flow.yaml")


def test_only_data_without_passages_are_asked_of_the_profiles_store(place: Path) -> None:
    Path("spolia.toml").write_text('store = "mine"\n')
    options = MeasuringOptions()
    assert with_profile_store(options, DataSet("q.csv")).store == "mine"
    assert with_profile_store(replace(options, store="theirs"), DataSet("q.csv")).store == "theirs"
    Path("corpus.jsonl").write_text('{"id": "p1", "text": "The moon pulls."}')
    Path("questions.jsonl").write_text('{"id": "1", "question": "Why?", "gold": ["p1"]}')
    assert with_profile_store(options, DataSet(".")).store is None


@pytest.mark.slow
def test_without_questions_there_is_a_file_to_fill_in(spolia: Spolia, place: Path) -> None:
    result = spolia("init", "P", "--docs", "my papers", "--no-vectors", "--llm", "http://x/v1", "--model", 'a"b')
    assert result.code == 0
    assert "write your questions into questions.csv" in result.out
    Path("P/questions.csv").write_text(QUESTIONS)
    ran = spolia("eval", "bm25", "P/flow.yaml", "--data", "P/questions.csv", "--store", "P/store")
    assert (ran.code, "MRR" in ran.out) == (0, True)
    assert 'model = "a\\"b"' in Path("P/spolia.toml").read_text()


@pytest.mark.slow
def test_a_model_writes_the_questions_where_one_is_named(
    spolia: Spolia, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SPOLIA_CACHE", str(tmp_path / "cache"))
    documents.store(tmp_path)
    with Scripted() as server:
        models = ("--no-vectors", "--llm", server.url, "--model", "m", "--n", "2")
        result = spolia("init", "P", "--docs", "docs", *models, "--json")
    assert result.code == 0, result.err
    assert {"questions.jsonl", "review.csv", "baseline.json"} <= set(result.json["files"])
    monkeypatch.chdir(tmp_path / "P")
    assert spolia("gate", "--baseline", "baseline.json").code == 0


@pytest.mark.slow
def test_the_same_command_goes_on_where_it_was_stopped(
    spolia: Spolia, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("my papers").rename("my #1: papers")
    command = ("init", "P", "--docs", "my #1: papers", "--questions", "q.csv", "--no-vectors")
    with monkeypatch.context() as stopped:
        stopped.setattr("spolia.cli.commands.init._write_flow", Mock(side_effect=KeyboardInterrupt))
        assert spolia(*command).code == 130
    assert spolia(*command).code == 0
    workflow = yaml.safe_load(Path("P/.github/workflows/retrieval.yml").read_text())
    (step,) = [
        run
        for step_of_job in workflow["jobs"]["gate"]["steps"]
        if "spolia index" in (run := step_of_job.get("run", ""))
    ]
    assert step.startswith("spolia index '../my #1: papers' --store store --no-vectors ||")
    Path("spolia").write_text("#!/bin/sh\nexit $CODE\n")
    Path("spolia").chmod(0o755)
    for code, passes, is_told in ((0, True, False), (5, True, True), (2, False, False), (3, False, False)):
        path = f"{Path.cwd()}:{os.environ['PATH']}"
        ran = subprocess.run(
            ["bash", "-e", "-c", step], env={"PATH": path, "CODE": str(code)}, capture_output=True, text=True
        )
        assert (ran.returncode == 0, "::warning::" in ran.stdout) == (passes, is_told), code
    assert "is not an empty folder" in spolia(*command).err


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("my papers", "--docs", "my papers"), "my papers exists and is not an empty folder."),
        (("P", "--docs", "nowhere"), "Folder not found: nowhere."),
        (("P", "--docs", "my papers", "--questions", "none.csv"), "none.csv does not exist."),
    ],
)
def test_bad_input_writes_nothing(spolia: Spolia, place: Path, args: tuple[str, ...], said: str) -> None:
    ran = spolia("init", *args)
    assert ran.code == 2
    assert said in ran.err
    assert not Path("P").exists()
