"""What a command may spend on models, and what it says that it would."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from spolia.testing import OpenAIServer, ServedReply
from tests.cli.conftest import COMMANDS, Spolia

pytestmark = pytest.mark.slow
QUESTIONS = [f"What pulls sea {n}?" for n in range(8)]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "seas"
    folder.mkdir()
    passages = [{"id": f"p{n}", "text": f"The moon pulls sea {n}, and the tide rises."} for n in range(8)]
    questions = [
        {"id": f"q{n}", "question": question, "answers": ["the moon"], "gold_ids": [f"p{n}"]}
        for n, question in enumerate(QUESTIONS)
    ]
    (folder / "corpus.jsonl").write_text("\n".join(map(json.dumps, passages)))
    (folder / "questions.jsonl").write_text("\n".join(map(json.dumps, questions)))
    (folder / "flow.yaml").write_text("- BM25: {group: {use: chunks}}\n- Reader: {llm: {use: llm}}\n")
    return folder


def test_an_estimate_asks_no_model_and_counts_what_a_run_takes(spolia: Spolia, data: Path) -> None:
    with OpenAIServer(ServedReply("The moon [1].")) as server:
        command = ("eval", data / "flow.yaml", "--data", data, "--llm", server.url, "--model", "m", "--measures", "F1")
        result = spolia(*command, "--estimate", "--json")
        assert (result.code, server.requests) == (0, [])
        (read,) = result.json["estimate"].values()
        ran = spolia(*command, "--json").json["flows"][0]
        assert read["calls"] == ran["usage"]["calls"] == 8
        assert read["most_calls"] >= 8
        assert read["tokens"] > ran["usage"]["input_tokens"]
        assert read["cost_usd"] is None
        words = spolia("eval", "bm25", "--data", data, "--estimate", "--json").json["estimate"]["bm25"]
        assert (words["calls"], words["most_calls"], words["tokens"]) == (0, 0, 0)
        result = spolia(*command, "--estimate")
        assert "Estimate for 8 questions; nothing was sent to a server." in result.out
        assert f"Questions and passages would go to {server.url} (m), without a key" in result.err


def test_an_estimate_refuses_what_a_run_refuses(spolia: Spolia, data: Path) -> None:
    (data / "questions.jsonl").write_text(json.dumps({"id": "q", "question": "Who?", "answers": ["Olsen"]}))
    command = ("eval", "bm25", "--data", data, "--measures", "nDCG@10")
    ran, estimated = spolia(*command), spolia(*command, "--estimate")
    assert (ran.code, ran.out, ran.err) == (estimated.code, estimated.out, estimated.err)
    assert estimated.code == 2


def test_a_budget_ends_an_experiment_and_a_larger_one_goes_on(spolia: Spolia, data: Path) -> None:
    with OpenAIServer(ServedReply("The moon [1].")) as server:
        command = ("eval", data / "flow.yaml", "--data", data, "--llm", server.url, "--model", "m", "--measures", "F1")
        ended = spolia(*command, "--budget-calls", "3")
        assert (ended.code, len(server.requests)) == (4, 3)
        assert "The budget of this run allows no more" in ended.err
        assert "3 of 3 calls are spent" in ended.err
        assert "Raise the budget and run again" in ended.err
        assert spolia(*command, "--budget-calls", "5").code == 0
        assert len(server.requests) == 8


def test_ask_takes_a_budget_and_an_estimate(spolia: Spolia, data: Path, tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "tides.txt").write_text("The moon pulls the sea.")
    with OpenAIServer(ServedReply("The moon [1].")) as server:
        command = ("ask", "What pulls the sea?", tmp_path / "docs", "--flow", data / "flow.yaml", "--llm", server.url)
        estimated = spolia(*command, "--model", "m", "--estimate", "--json")
        assert (estimated.code, estimated.json["n"], server.requests) == (0, 1, [])
        assert next(iter(estimated.json["estimate"].values()))["calls"] == 1
        assert "would go to" in estimated.err
        refused = spolia(*command, "--model", "m", "--budget-tokens", "10")
        assert (refused.code, server.requests) == (4, [])
        assert "The budget of this run allows no further call: 0 of 10 tokens are spent" in refused.err
        assert spolia(*command, "--model", "m", "--budget-tokens", "100000").code == 0


def test_a_budget_in_dollars_needs_a_price(spolia: Spolia, data: Path) -> None:
    with OpenAIServer(ServedReply("The moon [1].")) as server:
        command = (
            "eval",
            data / "flow.yaml",
            "--data",
            data,
            "--llm",
            server.url,
            "--measures",
            "F1",
            "--budget-usd",
            "1",
        )
        ran = spolia(*command, "--model", "m")
        assert (ran.code, server.requests) == (2, [])
        assert "The price of m at" in ran.err
        model = f"{{ChatModel: {{model: m, base_url: '{server.url}', usd_per_million: [1.0, 2.0]}}}}"
        (data / "flow.yaml").write_text(f"- BM25: {{group: {{use: chunks}}}}\n- Reader: {{llm: {model}}}\n")
        priced = ("eval", data / "flow.yaml", "--data", data, "--measures", "F1")
        assert next(iter(spolia(*priced, "--estimate", "--json").json["estimate"].values()))["cost_usd"] > 0
        assert spolia(*priced, "--budget-usd", "0.000001").code == 4
        assert server.requests == []
        assert spolia(*priced, "--budget-usd", "1").code == 0


SERVED = """
- Branch:
    arms:
    - BM25: {{group: {{use: chunks}}}}
    - Dense: {{group: {{use: chunks}}, embedder: {embedder}}}
- {fusion}
- CrossEncoder: {{scorer: {{RerankModel: {{model: m, base_url: '{url}', usd_per_million: [1.0, 0.0]}}}}}}
"""
SPACE = "Choice: {name: fusion, options: [ReciprocalRankFusion, HighestScore]}"
READER = "- Reader: {llm: {use: llm}}\n"
ESTIMATES = {
    "ask": ("ask", "What pulls the sea?", "--store", "{store}", "--flow", "{flow}"),
    "eval": ("eval", "{flow}", "bm25", "--data", "{data}"),
    "tune": ("tune", "{space}", "--data", "{data}", "-o", "{out}"),
    "questions": ("questions", "--store", "{store}", "-o", "{out}", "--types", "factoid=3"),
}
"""The commands with an estimate."""


def test_all_commands_with_an_estimate_are_listed() -> None:
    names = {
        name
        for name in COMMANDS.list_commands(None)
        for param in COMMANDS.get_command(None, name).params
        if "--estimate" in param.opts
    }
    assert names == set(ESTIMATES)


@pytest.mark.parametrize("reads", [False, True], ids=["searches", "reads"])
@pytest.mark.parametrize("name", ESTIMATES)
def test_an_estimate_sends_nothing_whatever_a_flow_asks(
    spolia: Spolia, data: Path, tmp_path: Path, name: str, reads: bool
) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "tides.txt").write_text("The moon pulls the sea. The tide rises twice a day.")
    assert spolia("index", tmp_path / "docs", "--store", tmp_path / "store", "--no-vectors").code == 0
    places = {name: tmp_path / name for name in ("docs", "store", "out", "data")} | {"data": data}
    with OpenAIServer() as server:
        own = f"{{EmbeddingModel: {{model: e, base_url: '{server.url}'}}}}"
        embedder = own if name == "ask" else "{use: embedder}"
        for file, fusion in (("flow", "ReciprocalRankFusion"), ("space", SPACE)):
            places[file] = data / f"{file}.yaml"
            places[file].write_text(SERVED.format(url=server.url, fusion=fusion, embedder=embedder) + READER * reads)
        words = [word.format_map(places) for word in ESTIMATES[name]]
        models = ("--llm", server.url, "--model", "m", "--embedder", server.url, "--embed-model", "e")
        model_options = models if name != "questions" else models[:4]
        ran = spolia(*words, *model_options, "--estimate", "--json")
        assert server.requests == []
    assert ran.code == 0, ran.err
    if name == "eval":
        assert ran.json["estimate"][str(places["flow"])]["cost_usd"] > 0
