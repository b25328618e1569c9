"""`spolia prompts`: list, show for a case, override; and prompts of one's own for the other commands."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from spolia.testing import OpenAIServer, ServedReply

from .conftest import Spolia


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes/tides.txt").write_text("The moon pulls the sea.")
    (tmp_path / "notes/ships.txt").write_text("Ships wait for the tide.")
    return tmp_path


@pytest.mark.slow
def test_all_prompts_are_listed_with_who_asks(spolia: Spolia) -> None:
    assert "indexing/summary                        en zh ko ja  Summary" in spolia("prompts", "list").out
    listed = spolia("prompts", "list", "--json").json["prompts"]
    assert listed["evaluation/measures/judged/fluency"]["asked_by"] == ["GEval"]
    assert listed["generation/answer"]["places"] == ["abstention", "passages", "question"]


@pytest.mark.slow
def test_a_prompt_is_shown_in_all_languages(spolia: Spolia) -> None:
    prompt = spolia("prompts", "show", "summary", "--json").json
    assert list(prompt["texts"]) == ["en", "zh", "ko", "ja"]
    assert spolia("prompts", "show", "indexing/summary").out.count("[system]") == 4
    ran = spolia("prompts", "show", "summary", "--question", "Who?")
    assert ran.code == 2
    assert "spolia prompts show Summary" in ran.err


def test_the_messages_for_a_question_and_passages(spolia: Spolia, place: Path) -> None:
    ran = spolia(
        "prompts", "show", "Reader", "--question", "What pulls?", "--document", "notes/tides.txt",
        "--document", "notes/ships.txt", "--json",
    )  # fmt: skip
    (call,) = ran.json["calls"]
    system, user = call["messages"]
    assert system["role"] == "system"
    assert user["content"] == (
        '<passages number="1">\n[1] notes/tides.txt\nThe moon pulls the sea.\n</passages>\n'
        '<passages number="2">\n[2] notes/ships.txt\nShips wait for the tide.\n</passages>\n\n'
        "<question>What pulls?</question>"
    )


@pytest.mark.slow
def test_they_are_what_a_server_gets(spolia: Spolia, place: Path) -> None:
    spolia("index", "notes", "--store", "n.spolia", "--no-vectors")
    with OpenAIServer(ServedReply("The moon [1].")) as server:
        spolia("ask", "What pulls the sea?", "--store", "n.spolia", "--llm", server.url, "--model", "m")
        (request,) = server.requests
    result = spolia("prompts", "show", "naive", "--question", "What pulls the sea?", "--store", "n.spolia", "--json")
    assert result.json["calls"][0]["messages"] == request.body["messages"]


def test_a_flow_over_the_texts_of_the_case(spolia: Spolia, place: Path) -> None:
    ran = spolia("prompts", "show", "naive", "--question", "What pulls the sea?", "--document", "notes/tides.txt")
    assert ran.code == 0
    assert "The moon pulls the sea." in ran.out
    assert ran.out.endswith("<question>What pulls the sea?</question>\n")
    without = spolia("prompts", "show", "naive", "--question", "What pulls?")
    assert without.code == 2
    assert "--store STORE, or --document FILE" in without.err


def test_a_flow_that_asks_nobody(spolia: Spolia, place: Path) -> None:
    ran = spolia("prompts", "show", "naive", "--question", "Quoi?", "--document", "notes/tides.txt")
    assert (ran.code, ran.err) == (6, "No language model is asked: the flow asks none, or finds nothing in the case.\n")


def test_a_line_of_a_data_set_with_its_gold(spolia: Spolia, place: Path) -> None:
    passages = [
        {"id": f"p{n}", "title": "", "text": text} for n, text in enumerate(("The moon pulls.", "Salt is dug."))
    ]
    questions = [{"id": f"q{n}", "question": f"Question {n}?", "gold_ids": [f"p{n}"]} for n in range(2)]
    (place / "data").mkdir()
    (place / "data/corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in passages))
    (place / "data/questions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in questions))
    ran = spolia("prompts", "show", "Reader", "--data", "data", "--line", "2", "--json")
    assert ran.json["question"] == "Question 1?"
    assert "Salt is dug." in ran.json["calls"][0]["messages"][1]["content"]
    assert "The moon" not in ran.out
    assert "has no question 3" in spolia("prompts", "show", "Reader", "--data", "data", "--line", "3").err


def test_what_follows_a_reply(spolia: Spolia, place: Path) -> None:
    ran = spolia("prompts", "show", "Summary", "--document", "notes/tides.txt", "--reply", " ", "--json")
    assert len(ran.json["calls"]) == 2


def test_an_unknown_name_is_told_what_there_is(spolia: Spolia) -> None:
    ran = spolia("prompts", "show", "sumary")
    assert ran.code == 2
    assert "no prompt, operator or flow 'sumary'" in ran.err


@pytest.mark.slow
def test_a_prompt_of_ones_own_is_begun_changed_and_used(spolia: Spolia, place: Path) -> None:
    ran = spolia("prompts", "override", "answer", "--into", "mine", "--json")
    assert ran.json["files"][:2] == ["mine/generation/answer.txt", "mine/generation/answer.zh.txt"]
    (place / "mine/generation/answer.txt").write_text("Answer: {{question}} {{passages}}")
    spolia("index", "notes", "--store", "n.spolia", "--no-vectors")
    with OpenAIServer(ServedReply("The moon [1].")) as server:
        command = ("ask", "What pulls the sea?", "--store", "n.spolia", "--llm", server.url, "--model", "m")
        for more in ((), ("--prompts", "mine"), ("--prompts", "mine")):
            assert spolia(*command, *more).code == 0
        first, second = (request.body["messages"] for request in server.requests)
    assert first[0]["role"] == "system"
    assert second[0]["content"].startswith("Answer: What pulls the sea?")
    second_result = spolia("prompts", "override", "answer", "--into", "mine")
    assert second_result.code == 2
    assert "is there already" in second_result.err


def a_data_set(place: Path) -> None:
    """One passage, and a question about it."""
    (place / "data").mkdir()
    (place / "data/corpus.jsonl").write_text(json.dumps({"id": "p", "title": "", "text": "The moon pulls the sea."}))
    item = {"id": "q", "question": "What pulls the sea?", "gold_ids": ["p"], "answers": ["The moon"]}
    (place / "data/questions.jsonl").write_text(json.dumps(item))


@pytest.mark.slow
def test_prompts_of_ones_own_are_measured_and_a_change_is_asked_anew(
    spolia: Spolia, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPOLIA_CACHE", str(place / "cache"))
    a_data_set(place)
    spolia("prompts", "override", "answer", "--into", "mine")
    with OpenAIServer(ServedReply("The moon [1].")) as server:
        command = ("eval", "naive", "--data", "data", "--measures", "EM", "--llm", server.url, "--model", "m")
        for text in (
            "One: {{question}} {{passages}}",
            "Two: {{question}} {{passages}}",
            "Two: {{question}} {{passages}}",
        ):
            (place / "mine/generation/answer.txt").write_text(text)
            assert spolia(*command, "--prompts", "mine").code == 0
        beginnings = [request.body["messages"][0]["content"][:4] for request in server.requests]
    assert beginnings == ["One:", "Two:"]


@pytest.mark.slow
def test_a_judges_prompt_of_ones_own_is_a_part_of_its_measure(
    spolia: Spolia, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPOLIA_CACHE", str(place / "cache"))
    a_data_set(place)
    ran = spolia("prompts", "override", "correct", "--into", "mine")
    file = "mine/evaluation/measures/judged/correct.txt"
    measure = f'Correctness(role="{file}")'
    assert f"write it as a part of the measure: --measures '{measure}'." in ran.err
    assert """'GEval(aspect="fluency", prompt="mine""" in spolia("prompts", "override", "fluency", "--into", "mine").err
    (place / file).write_text("Strict: {{question}} {{answers}} {{answer}}")
    (place / "flow.yaml").write_text("- BM25: {group: {use: chunks}, top_k: 3}\n- Extract: {words: 20}\n")
    with OpenAIServer(ServedReply("yes")) as server:
        judged = ("--data", "data", "--llm", server.url, "--model", "m")
        ran = spolia("eval", "flow.yaml", *judged, "--measures", f"{measure},EM", "--json")
        assert list(ran.json["measures"]) == [f'Correctness(llm="m", role="{file}")', "EM"]
        (request,) = server.requests
        assert request.body["messages"][0]["content"].startswith("Strict: What pulls the sea?")
        gate = ("gate", "flow.yaml", *judged, "--baseline", "b.json")
        assert spolia(*gate, "--measures", measure, "--write").code == 0
        assert spolia(*gate).code == 0
        (place / file).write_text("Lax: {{question}} {{answers}} {{answer}}")
        assert "is computed otherwise than then" in spolia(*gate).err
        ran = spolia("eval", "flow.yaml", *judged, "--measures", "Correctness", "--prompts", "mine")
        assert "mine/evaluation is not used: a judge's prompt is a part of its measure." in ran.err
    ran = spolia("eval", "flow.yaml", *judged, "--measures", 'Correctness(role="no.txt")')
    assert (ran.code, "no.txt" in ran.err) == (2, True)


@pytest.mark.slow
def test_a_gate_asks_with_them_and_its_baseline_says_which(
    spolia: Spolia, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPOLIA_CACHE", str(place / "cache"))
    a_data_set(place)
    (place / "ci").mkdir()
    spolia("prompts", "override", "answer", "--into", "mine")
    with OpenAIServer(ServedReply("The moon")) as server:
        command = ("gate", "--baseline", "ci/baseline.json", "--llm", server.url, "--model", "m")
        first = ("naive", "--data", "data", "--measures", "EM", "--prompts", "mine", "--write")
        for text, more in (("One", first), ("Two", ())):
            (place / "mine/generation/answer.txt").write_text(text + ": {{question}} {{passages}}")
            ran = spolia(*command, *more)
            assert ran.code == 0, ran.err
        beginnings = [request.body["messages"][0]["content"][:4] for request in server.requests]
    assert beginnings == ["One:", "Two:"]
    assert json.loads((place / "ci/baseline.json").read_text())["command"]["prompts"] == "../mine"


@pytest.mark.slow
def test_a_flow_is_looked_at_with_them(spolia: Spolia, place: Path) -> None:
    (place / "flow.yaml").write_text("[BM25: {group: {use: chunks}}, Reader: {llm: {use: llm}}]")
    spolia("prompts", "override", "answer", "--into", "mine")
    assert spolia("show", "flow.yaml", "--yaml", "--prompts", "mine").out.rstrip().endswith("answer.txt")
    assert spolia("check", "flow.yaml", "--prompts", "mine").code == 0
    (place / "mine/generation/answer.txt").write_text("{{pasages}}")
    ran = spolia("check", "flow.yaml", "--prompts", "mine")
    assert ran.code == 2
    assert "has a place {{pasages}}, which is never filled" in ran.err
    ran = spolia("show", "flow.yaml", "--prompts", "nowhere")
    assert (ran.code, ran.err.startswith("error: There is no folder 'nowhere'.")) == (2, True)
