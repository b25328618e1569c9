"""`--web`: which documents of a store are the second source of a flow."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from spolia.testing import OpenAIServer, ServedReply

from .conftest import Spolia

pytestmark = pytest.mark.slow
SIMULATED = ("--llm", "simulated", "--profile", "ideal", "--retriever", "bm25", "--json")


@pytest.fixture
def split(spolia: Spolia, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SPOLIA_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    world = tmp_path / "world"
    ran = spolia("world", world, "--seed", 7, "--people", 40, "--questions", 30, "--variant", "split", "--json")
    assert ran.code == 0, ran.err
    return world


@pytest.fixture
def store(spolia: Spolia, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SPOLIA_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    folder, path = tmp_path / "notes", tmp_path / "n.spolia"
    folder.mkdir()
    (folder / "here.md").write_text("---\nsource: local\n---\nThe tide is caused by the pull of the moon.\n")
    (folder / "there.md").write_text("---\nsource: web\n---\nThe tide is caused by wind, says the web.\n")
    assert spolia("index", folder, "--store", path, "--no-vectors", "--field", "source").code == 0
    return path


def test_flows_with_two_sources_find_more_than_those_with_one_of_them(spolia: Spolia, split: Path) -> None:
    flows = ("naive", "naive-web", "naive-both", "prefrag")
    ran = spolia("eval", *flows, "--data", split, "--web", "source=web", "--measures", "R@10,EM", *SIMULATED)
    assert ran.code == 0, ran.err
    report = ran.json
    recall = {flow["flow"]: flow["measures"]["R@10"]["mean"] for flow in report["flows"]}
    exact = {flow["flow"]: flow["measures"]["EM"]["mean"] for flow in report["flows"]}
    assert 0 < recall["naive"] < recall["naive-both"]
    assert 0 < recall["naive-web"] < recall["naive-both"]
    assert exact["prefrag"] > max(exact["naive"], exact["naive-web"])


def test_without_the_option_a_flow_that_needs_a_second_source_says_what_to_write(spolia: Spolia, split: Path) -> None:
    ran = spolia("eval", "prefrag", "--data", split, *SIMULATED)
    assert ran.code == 2
    assert "--web source=web" in ran.json["error"]["message"]
    odd = spolia("eval", "prefrag", "--data", split, "--web", "origin=web", *SIMULATED)
    assert odd.code == 2
    assert "'origin' in its metadata. Write one of: kind, source" in odd.json["error"]["message"]


def test_each_source_is_searched_where_the_flow_says(spolia: Spolia, store: Path) -> None:
    def print_answer(flow: str) -> str:
        with OpenAIServer(ServedReply("The moon [1].")) as server:
            model = ("--llm", server.url, "--model", "m", "--web", "source=web", "--flow", flow)
            ran = spolia("ask", "What causes the tide?", "--store", store, *model)
            assert ran.code == 0, ran.err
            return str([request.body["messages"] for request in server.requests])

    assert ("pull of the moon" in print_answer("naive"), "says the web" in print_answer("naive")) == (True, False)
    assert ("pull of the moon" in print_answer("naive-web"), "says the web" in print_answer("naive-web")) == (
        False,
        True,
    )
    assert ("pull of the moon" in print_answer("naive-both"), "says the web" in print_answer("naive-both")) == (
        True,
        True,
    )


def test_a_search_ranks_what_both_sources_find(spolia: Spolia, store: Path, tmp_path: Path) -> None:
    search = "BM25: {group: {use: chunks}, top_k: 3}"
    file = tmp_path / "both.yaml"
    file.write_text(f"- Branch: [{{use: web}}, {{{search}}}]\n- EvenSplit: {{top_k: 4}}\n")
    web = tmp_path / "web.yaml"
    web.write_text("use: web\n")

    def find_uris(flow: object, *more: object) -> set[str]:
        ran = spolia("search", "What causes the tide?", "--store", store, "--flow", flow, "--json", *more)
        assert ran.code == 0, ran.err
        return {hit["uri"] for hit in ran.json["hits"]}

    assert find_uris(file, "--web", "source=web") == {"here.md", "there.md"}
    assert find_uris(web, "--web", "source=web") == {"there.md"}
    assert find_uris("naive", "--web", "source=web") == {"here.md"}
    lacking = spolia("search", "tide", "--store", store, "--flow", web)
    assert lacking.code == 2
    assert "--web" in lacking.err


@pytest.mark.parametrize("command", [("search",), ("ask", "--flow", "hybrid")], ids=["search", "ask"])
def test_a_second_source_that_a_flow_would_not_look_at_is_refused(
    spolia: Spolia, store: Path, command: tuple[str, ...]
) -> None:
    ran = spolia(*command, "tide", "--store", store, "--web", "source=web")
    assert ran.code == 2
    assert "--web would have no effect" in ran.err
    assert "--where 'source=web'" in ran.err


@pytest.mark.parametrize(
    ("condition", "said"),
    [
        ("source=wbe", "none of the 2 documents fulfils it, so the second source would be empty"),
        ("source in local,web", "each of the 2 documents fulfils it, so the first source would be empty"),
    ],
    ids=["nobody", "everybody"],
)
@pytest.mark.parametrize(
    "command", [("search", "tide"), ("ask", "tide"), ("check",), ("show",)], ids=lambda command: command[0]
)
def test_a_condition_that_leaves_a_source_empty_is_refused_with_the_values_that_there_are(
    spolia: Spolia, store: Path, command: tuple[str, ...], condition: str, said: str
) -> None:
    flow = ("naive",) if command[0] in ("check", "show") else ("--flow", "naive")
    ran = spolia(*command, *flow, "--store", store.name, "--web", condition)
    assert ran.code == 2
    message = " ".join(ran.err.split())
    assert said in message
    assert "The field 'source' has the values local, web. Write for example --web source=local." in message


@pytest.mark.parametrize(("condition", "lacking"), [("source=wbe", "second"), ("source in local,web", "first")])
def test_no_flow_is_measured_on_an_empty_source(spolia: Spolia, split: Path, condition: str, lacking: str) -> None:
    ran = spolia("eval", "prefrag", "--data", split, "--web", condition, *SIMULATED)
    assert ran.code == 2
    assert f"so the {lacking} source would be empty" in ran.json["error"]["message"]
    gate = ("gate", "naive-both", "--data", split, "--baseline", "b.json", "--write")
    assert spolia(*gate, "--web", condition, *SIMULATED).code == 2


def test_an_empty_source_is_told_by_what_the_asker_may_read_alone(spolia: Spolia, store: Path, tmp_path: Path) -> None:
    (tmp_path / "notes" / "hidden.md").write_text("---\nsource: secret\n---\nThe tide of the plan.\n")
    (tmp_path / "readers.txt").write_text("there.md = ann\nhidden.md = boss\n* = everybody\n")
    (tmp_path / "web.yaml").write_text("use: web\n")
    second_command = (
        "index",
        "notes",
        "--store",
        store,
        "--no-vectors",
        "--readers",
        "readers.txt",
        "--field",
        "source",
    )
    assert spolia(*second_command).code == 0
    command = ("search", "tide", "--store", store, "--flow", "web.yaml", "--web")
    refused = " ".join(spolia(*command, "source=web").err.split())
    assert "each of the 1" not in refused
    assert "none of the 1 documents that you may read" in refused
    assert "has the value local." in refused
    refused_ann = " ".join(spolia(*command, "source=nothing", "--access", "ann").err.split())
    assert "none of the 2 documents that you may read" in refused_ann
    assert "secret" not in refused_ann
    assert spolia(*command, "source=web", "--access", "ann").code == 0
    assert spolia("check", "naive-both", "--store", store, "--web", "source=web").code == 0


@pytest.mark.parametrize("flow", ["prefrag", "prefrag-no-preference", "crag-grader", "react-concat", "multi-head"])
def test_a_drawn_flow_says_which_documents_each_search_finds(spolia: Spolia, store: Path, flow: str) -> None:
    web = ("--web", "source=web")
    for more in ((), ("--store", store)):
        result = spolia("show", flow, "--yaml", *web, *more)
        checked = spolia("check", flow, "--json", *web, *more)
        assert result.code == 0, result.err
        assert "source" in result.out
        assert "Not" in result.out
        assert checked.json["ok"], checked.json


def test_a_gates_baseline_keeps_the_second_source(spolia: Spolia, split: Path, tmp_path: Path) -> None:
    first = ("gate", "naive-both", "--data", split, "--baseline", tmp_path / "b.json", "--limit", 5)
    result = spolia(*first, "--write", "--measures", "R@10", "--web", "source=web", *SIMULATED)
    assert result.code == 0, result.err
    second_result = spolia("gate", "--baseline", tmp_path / "b.json", *SIMULATED)
    assert second_result.code == 0, second_result.err


def test_a_gate_asks_as_its_baseline_was_asked(spolia: Spolia, split: Path) -> None:
    options = ("--web", "source=web", "--measures", "EM", "--limit", 6)
    first = spolia("gate", "naive-both", "--baseline", "b.json", "--data", split, "--write", *SIMULATED, *options)
    assert first.code == 0, first.err
    ran = spolia("gate", "--baseline", "b.json", "--json")
    assert ran.code == 0, ran.err
    assert json.loads(ran.out)["changes"] == []
    changed = spolia("gate", "--baseline", "b.json", "--retriever", "default", "--json")
    assert any(change["kind"] == "flow" for change in json.loads(changed.out)["changes"])


def test_check_does_not_name_the_model_that_stands_in_for_one_to_be_given(spolia: Spolia) -> None:
    assert json.loads(spolia("check", "self-rag", "--json").out)["sends"] == []


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            ("--retriever", "bm52", "--llm", "simulated"),
            "Did you mean bm25? Write bm25, dense, hybrid, multi-hop,",
        ),
        (
            ("--retriever", "corag", "--llm", "simulated"),
            "no retriever. Write bm25, dense, hybrid, multi-hop,",
        ),
        (("--llm", "simulted"), "Did you mean --llm simulated?"),
    ],
    ids=["misspelt", "a flow", "a reader"],
)
def test_what_is_no_retriever_or_reader_is_answered_with_those_that_are(
    spolia: Spolia, split: Path, options: tuple[str, ...], said: str
) -> None:
    ran = spolia("eval", "naive", "--data", split, *options, "--json")
    assert ran.code == 2
    assert said in ran.json["error"]["message"]


def test_a_report_says_whether_the_simulated_reader_plans_with_gold_sub_questions(
    spolia: Spolia, split: Path, tmp_path: Path
) -> None:
    options = ("--measures", "EM", "--limit", 3, *SIMULATED)
    whole = spolia("eval", "naive", "--data", split, "--web", "source=web", *options).json
    assert (whole["planner"], "gold planner" in whole["data"]) == ("gold", True)
    rows = [json.loads(line) for line in (split / "questions.jsonl").read_text().splitlines()]
    plain = [{name: value for name, value in row.items() if name != "decomposition"} for row in rows]
    (split / "questions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in plain))
    without = spolia("eval", "naive", "--data", split, *options).json
    assert (without["planner"], "no planner" in without["data"]) == ("none", True)


@pytest.mark.parametrize(("logprob", "code"), [(-0.25, 0), (None, 4)], ids=["stated", "not stated"])
def test_self_rag_asks_a_server_for_probabilities_and_says_what_to_name_where_it_has_none(
    spolia: Spolia, store: Path, logprob: float | None, code: int
) -> None:
    with OpenAIServer(ServedReply("yes", logprob=logprob)) as server:
        model = ("--llm", server.url, "--model", "m")
        ran = spolia("ask", "What is the tide?", "--store", store, "--flow", "self-rag", *model)
    assert ran.code == code, ran.err
    message = " ".join(ran.err.split())
    assert ("Name another server, a GGUF file or a model folder (--llm), or a flow that needs none" in message) == (
        code > 0
    )
    assert "Write capabilities" not in message


def test_a_model_that_a_flow_asks_for_more_is_not_said_to_be_left_out(spolia: Spolia, store: Path) -> None:
    with OpenAIServer(ServedReply("yes")) as server:
        ran = spolia(
            "ask", "What is the tide?", "--store", store, "--flow", "self-rag", "--llm", server.url, "--model", "m"
        )
    assert "is not asked" not in ran.err
