"""`spolia train`: a part, its folder, and what it refuses."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from spolia.evaluation.data.dataset import part_of
from spolia.evaluation.simulation.world import FictionalWorld
from spolia.retrieval.array_files import read_arrays
from tests.training.conftest import write_world

from .conftest import Spolia, lights


@pytest.mark.slow
def test_a_trained_ranker_is_a_flow_that_search_and_eval_take(spolia: Spolia, tmp_path: Path) -> None:
    data, out, store = write_world(tmp_path / "towns", 100), tmp_path / "ranker", tmp_path / "towns.spolia"
    folder = tmp_path / "texts"
    folder.mkdir()
    for line in (data / "corpus.jsonl").read_text().splitlines():
        row = json.loads(line)
        (folder / f"{row['id']}.md").write_text(f"# {row['title']}\n\n{row['text']}\n")
    questions = data / "questions.jsonl"
    questions.write_text(re.sub(r'"((?:person|town|river)\d+)"', r'"\1.md"', questions.read_text()))
    (data / "corpus.jsonl").unlink()
    assert spolia("index", folder, "--store", store, "--no-vectors").code == 0
    command = ("train", "ranker", "--data", data, "--store", store, "-o", out, "--json")
    first = spolia(*command)
    assert (first.code, "looks.jsonl which questions" in first.err) == (0, True), first.err
    assert first.json["card"]["score"]["trained"]["mean"] > first.json["card"]["score"]["untrained"]["mean"]
    assert spolia(*command).json["sha256"] == first.json["sha256"]
    search = (
        "search",
        "How long is the water in the town where Oda Balbalson was born?",
        "--store",
        store,
        "--json",
    )
    for flow in (("--flow", out / "flow.yaml"), ("--flow", "multi-hop", "--ranker", out)):
        hits = spolia(*search, *flow).json["hits"]
        assert {hit["uri"].rpartition("/")[2] for hit in hits[:3]} == {"person0.md", "town0.md", "river0.md"}
        assert hits[0]["parts"]
    traced, page, report = ("trace", "last", "--store", store), tmp_path / "run.html", tmp_path / "report.html"
    rows = [row for span in spolia(*traced, "--json").json["spans"] for row in span["after"]]
    assert dict(rows[0]["parts"]) == hits[0]["parts"]
    spolia(*traced, "--html", page)
    parts = ", ".join(f"{name} {score:.3g}" for name, score in hits[0]["parts"].items())
    assert parts in page.read_text()
    measured = ("eval", out / "flow.yaml", "--data", data, "--store", store, "--measures", "R@5")
    refused = spolia(*measured)
    assert refused.code == 2
    assert "were used to train a part of a flow" in refused.err
    for _ in ("asked", "kept from before"):
        assert spolia(*measured, "--split", "report", "--report", report).code == 0
        assert "linked_from_seed " in report.read_text()


@pytest.mark.slow
def test_a_ranker_of_a_data_set_says_that_a_store_needs_its_own(spolia: Spolia, tmp_path: Path) -> None:
    data, out, store = write_world(tmp_path / "towns", 40), tmp_path / "ranker", tmp_path / "s.spolia"
    message = " ".join(spolia("train", "ranker", "--data", data, "-o", out).err.split())
    assert f"It is for the passages of {data} alone; for a store, train with --store STORE." in message
    measured = spolia("eval", out / "flow.yaml", "--data", data, "--split", "report", "--measures", "R@5")
    assert measured.code == 0, measured.err
    options = ("--data", data, "--measures", "R@5")
    untrained = spolia("eval", "bm25", "multi-hop", *options)
    assert (untrained.code, "used to t" in untrained.err) == (0, False)
    assert "questions were used to tune" in spolia("eval", out / "flow.yaml", *options, "--split", "tune").err
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "a.md").write_text("# Oda\n\nOda was born in Lund.\n")
    assert spolia("index", tmp_path / "texts", "--store", store, "--no-vectors").code == 0
    refused = " ".join(spolia("search", "Oda?", "--store", store, "--flow", out / "flow.yaml").err.split())
    assert "group: made in another way" in refused
    assert f"Train one on this store: spolia train ranker --data DATA --store {store} -o FOLDER." in refused


@pytest.mark.slow
def test_a_sufficiency_classifier_is_trained_on_chains_of_the_model_and_the_reader_on_answers(
    spolia: Spolia, tmp_path: Path
) -> None:
    data = tmp_path / "world"
    FictionalWorld(7, people=40, questions=40).write(data)
    options = ("--data", data, "--llm", "simulated", "--retriever", "bm25")
    result = spolia("train", "sufficiency", *options, "-o", tmp_path / "sufficiency", "--steps", 20, "--json")
    assert result.code == 0
    card = result.json["card"]
    assert result.json["simulated"]
    assert (card["part"], card["score"]["measure"], card["steps"]["made"]) == ("sufficiency", "EM", 20)
    assert "20 steps of 400: it had not converged." in card["notes"]
    assert any("No chain ends early" in note for note in card["notes"])  # too few questions to choose a threshold
    assert spolia("eval", result.json["flow"], *options, "--measures", "EM", "--split", "report").code == 0
    refused = spolia("train", "sufficiency", *options, "-o", tmp_path / "sufficiency", "--steps", 21)
    assert refused.code == 2
    assert "holds another training: a sufficiency" in " ".join(refused.err.split())

    data = lights(tmp_path / "lights", 44)
    result = spolia("train", "reader", "--data", data, "--retriever", "bm25", "-o", tmp_path / "reader", "--steps", 1)
    assert result.code == 0
    assert "Trained: reader, on" in result.out
    assert "F1 on" in result.out
    assert (tmp_path / "reader" / "weights.safetensors").is_file()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("rankr",), "Did you mean ranker?"),
        (("lm",), "Write --rows FILE and --base DIR"),
        (("sufficiency",), "Name it: --llm URL --model NAME"),
        (("evaluator", "--llm", "simulated", "--retriever", "bm25"), "Name it: --web source=web"),
        (("ranker", "--budget", "5 rows"), "--budget 5 rows is not a time"),
        (("ranker", "--kept-apart", "towns"), "cannot be reported on"),
    ],
)
def test_wrong_usage_is_code_2(
    options: tuple[str, ...], said: str, spolia: Spolia, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_world(tmp_path / "towns", 3)
    ran = spolia("train", *options, "--data", "towns", "-o", "out")
    assert ran.code == 2
    assert said in " ".join(ran.err.split())


@pytest.mark.slow
def test_rows_are_of_questions_that_reports_do_not_have(spolia: Spolia, tmp_path: Path) -> None:
    data, out = tmp_path / "world", tmp_path / "rows.jsonl"
    FictionalWorld(7, people=40, questions=40).write(data)
    options = ("--data", data, "--retriever", "bm25", "-o", out, "--json")
    for kind, more in (
        ("ra-dit", ()),
        ("reward", ()),
        ("corag", ("--llm", "simulated", "--chains", 1)),
        ("self-rag", ("--llm", "simulated")),
    ):
        result = spolia("rows", kind, *options, *more)
        assert result.code == 0
        rows = [json.loads(line) for line in out.read_text().splitlines()]
        assert result.json["rows"] == len(rows) > 0
        assert {part_of(row["id"]) for row in rows} == {"tune"}
    distilled = ("rows", "distill", *options, "--llm", "simulated")
    assert 0 < spolia(*distilled).json["rows"] < spolia(*distilled, "--accept", "all").json["rows"]
    assert spolia("rows", "dual", *options).code == 2
    assert "Write one of: ra-dit" in " ".join(spolia("rows", "radit", *options).err.split())


KEEPS_EACH_STEP = """
import spolia.training.training as training
training.KEPT_EVERY_S = training.KEPT_AT_MOST = 0
from spolia.cli import main
main()
"""


@pytest.mark.slow
def test_a_training_that_is_killed_in_mid_epoch_goes_on_to_the_same_weights(spolia: Spolia, tmp_path: Path) -> None:
    data = write_world(tmp_path / "towns", 60)
    command = ("train", "rewriter", "--data", data, "--retriever", "bm25", "--steps", 60, "--json")
    whole = spolia(*command, "-o", tmp_path / "whole").json
    words = [sys.executable, "-c", KEEPS_EACH_STEP, *map(str, command), "-o", str(tmp_path / "killed")]
    killed = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    done = 0
    while done < 3 and killed.poll() is None:
        done = steps_of(tmp_path / "killed" / "checkpoint.npz")
    killed.kill()
    assert killed.wait(600) == -signal.SIGKILL
    done = steps_of(tmp_path / "killed" / "checkpoint.npz")
    assert 3 <= done < 60
    rest = spolia(*command, "-o", tmp_path / "killed").json
    assert (rest["sha256"], rest["card"]["curve"]) == (whole["sha256"], whole["card"]["curve"])
    assert not (tmp_path / "killed" / "checkpoint.npz").exists()


def steps_of(checkpoint: Path) -> int:
    """How many steps a training has kept; 0 before the first."""
    if not checkpoint.exists():
        return 0
    with read_arrays(checkpoint) as arrays:
        return int(json.loads(arrays["said"].tobytes())["done"])
