"""`spolia index` and `spolia ask` on real files."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from spolia.cli.runs import store_for
from spolia.testing.server import OpenAIServer, ServedReply

from .conftest import Spolia

pytestmark = pytest.mark.slow


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    folder = tmp_path / "notes"
    (folder / "sea").mkdir(parents=True)
    (folder / "sea" / "tides.md").write_text(
        "# Tides\n\nThe tide is caused by the pull of the moon.\n\nShips wait for it.\n"
    )
    (folder / "salt.txt").write_text("Salt is dug in mines near the border. It is sold in Kalundborg.")
    (folder / "page.html").write_text("<h1>Owls</h1><p>Owls hunt by night and sleep by day.</p>")
    return folder


@pytest.fixture
def store(spolia: Spolia, notes: Path, tmp_path: Path) -> Path:
    path = tmp_path / "notes.spolia"
    assert spolia("index", notes, "--store", path, "--no-vectors").code == 0
    return path


def test_a_folder_is_indexed_once(spolia: Spolia, notes: Path, tmp_path: Path) -> None:
    path = tmp_path / "notes.spolia"
    first, second = (spolia("index", notes, "--store", path, "--no-vectors", "--json").json for _ in range(2))
    assert (first["added"], first["chunks"], first["failed"]) == (3, 3, [])
    assert (second["added"], second["unchanged"], second["chunks"]) == (0, 3, 0)
    assert second["generation"] == first["generation"]


def test_people_are_told_what_happened(spolia: Spolia, notes: Path, tmp_path: Path) -> None:
    (notes / "photo.raw").write_bytes(b"\xff\xd8")
    ran = spolia("index", notes, "--store", tmp_path / "n.spolia", "--no-vectors")
    assert "3 added; 3 passages made, 0 embedded" in ran.out
    assert "not read: 1 .raw" in ran.out
    assert "without vectors: --no-vectors" in ran.err


def test_a_bad_document_does_not_stop_the_others(spolia: Spolia, notes: Path, tmp_path: Path) -> None:
    (notes / "broken.pdf").write_bytes(b"%PDF-1.7 and then nothing")
    ran = spolia("index", notes, "--store", tmp_path / "n.spolia", "--no-vectors", "--json")
    assert ran.code == 5
    assert ran.json["added"] == 3
    assert [failure["uri"] for failure in ran.json["failed"]] == ["broken.pdf"]
    people = spolia("index", notes, "--store", tmp_path / "n.spolia")
    assert people.code == 5
    assert "1 failed:" in people.out
    assert "broken.pdf" in people.out


def test_a_failure_names_its_file_once(spolia: Spolia, notes: Path, tmp_path: Path) -> None:
    (notes / "broken.pdf").write_bytes(b"%PDF-1.7 and then nothing")
    output = spolia("index", notes, "--store", tmp_path / "n.spolia", "--no-vectors").out
    assert output.count("broken.pdf") == 1


def test_documents_without_text_are_told(spolia: Spolia, notes: Path, tmp_path: Path) -> None:
    (notes / "blank.txt").write_text(" ")
    people = spolia("index", notes, "--store", tmp_path / "n.spolia", "--no-vectors")
    assert "1 read with a warning:\n  blank.txt  It has no text." in people.out
    report = spolia("index", notes, "--store", tmp_path / "m.spolia", "--no-vectors", "--json").json
    assert report["warnings"] == [{"uri": "blank.txt", "warning": "It has no text."}]


@pytest.mark.parametrize("name", ["nowhere", "empty", "notes/salt.txt"])
def test_what_is_no_folder_of_documents_is_refused(spolia: Spolia, notes: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    ran = spolia("index", tmp_path / name, "--store", tmp_path / "n.spolia", "--json")
    assert ran.code == 2
    assert name in ran.json["error"]["message"]
    assert not (tmp_path / "n.spolia").exists()


def test_other_parts_are_refused_and_the_way_out_is_told(spolia: Spolia, notes: Path, store: Path) -> None:
    groups = notes.parent / "groups.yaml"
    groups.write_text("chunk: {transform: {Sentences: {size: 40}}}")
    ran = spolia("index", notes, "--store", store, "--no-vectors", "--groups", groups, "--json")
    assert ran.code == 3
    assert ran.json["error"]["kind"] == "ManifestMismatch"
    way_out = f"spolia sync {notes} --store {store} --groups {groups} --no-vectors --rebuild"
    assert ran.json["error"]["message"].endswith(way_out)
    assert spolia(*way_out.split()[1:]).code == 0


def test_names_of_all_kinds_are_shown_safely(spolia: Spolia, notes: Path, tmp_path: Path) -> None:
    (notes / "two\nlines 🐚\u202etxt.md").write_text("Whelks live under the pier.")
    assert spolia("index", notes, "--store", tmp_path / "n.spolia", "--no-vectors").code == 0
    ran = spolia("search", "Where do whelks live?", "--store", tmp_path / "n.spolia")
    assert ran.code == 0
    assert "two lines 🐚\\u202etxt.md, line 1" in ran.out
    assert "\u202e" not in ran.out


def test_an_answer_prints_file_lines_and_the_quoted_passage(spolia: Spolia, store: Path) -> None:
    ran = spolia("ask", "What causes the tide?", "--store", store)
    assert ran.code == 0
    assert ran.out.startswith("The tide is caused by the pull of the moon. [1]")
    assert "[1] sea/tides.md, line 3" in ran.out
    assert "“The tide is caused by the pull of the moon.”" in ran.out


def test_an_answer_as_json_can_be_checked_against_the_file(spolia: Spolia, notes: Path, store: Path) -> None:
    answer = spolia("ask", "What causes the tide?", "--store", store, "--json").json
    assert answer["stop_reason"] == "answered"
    citation = answer["citations"][0]
    span = citation["span"]
    assert (notes / citation["uri"]).read_text()[span["start"] : span["end"]] == citation["quote"]
    assert citation["place"] == "sea/tides.md, line 3"


def test_to_abstain_is_an_answer_with_its_own_code(spolia: Spolia, store: Path) -> None:
    ran = spolia("ask", "Who invented the telegraph?", "--store", store, "--json")
    assert (ran.code, ran.json["stop_reason"], ran.json["citations"]) == (6, "abstained", [])


def test_a_folder_can_be_asked_at_once(spolia: Spolia, notes: Path) -> None:
    ran = spolia("ask", "Where is salt dug?", notes, "--json")
    assert ran.code == 0
    assert ran.json["store"] == str(store_for(notes))
    assert str(store_for(notes)) in ran.err
    assert ran.json["citations"][0]["uri"] == "salt.txt"
    (notes / "salt.txt").write_text("Salt is dug on the moon.")
    assert "on the moon" in spolia("ask", "Where is salt dug?", notes, "--json").json["answer"]


@pytest.mark.slow
def test_a_file_that_was_unreadable_before_fails_no_question(spolia: Spolia, notes: Path) -> None:
    bad = notes / "bad.pdf"
    bad.write_bytes(b"%PDF-1.4 garbage")
    command = ("ask", "What causes the tide?", str(notes))
    assert spolia(*command).code == 5
    second_result = spolia(*command)
    assert (second_result.code, "failed: bad.pdf" in second_result.err) == (0, True)
    bad.write_bytes(b"%PDF-1.4 other garbage")
    assert spolia(*command).code == 5


def test_to_ask_nothing_or_nowhere_is_refused(spolia: Spolia, store: Path) -> None:
    assert spolia("ask", "What?").code == 2
    assert spolia("ask", "", "--store", store).code == 2
    assert spolia("ask", "What?", "--store", store, "--llm", "http://127.0.0.1:9/v1").code == 2


def test_any_flow_can_be_asked(spolia: Spolia, store: Path) -> None:
    answer = spolia("ask", "What causes the tide?", "--store", store, "--flow", "bm25", "--json").json
    assert "moon" in answer["answer"]


def test_a_language_model_answers_from_the_passages(spolia: Spolia, store: Path) -> None:
    with OpenAIServer(ServedReply("The moon causes it [1].")) as server:
        options = ("--llm", server.url, "--model", "m")
        ran = spolia("ask", "What causes the tide?", "--store", store, *options)
    assert ran.code == 0
    assert ran.out.startswith("The moon causes it [1].")
    assert "[1] sea/tides.md, lines 1-5" in ran.out


def test_a_server_that_refuses_is_code_4(spolia: Spolia, store: Path) -> None:
    options = ("--llm", "http://127.0.0.1:9/v1", "--model", "m")
    ran = spolia("ask", "What causes the tide?", "--store", store, "--json", *options)
    assert ran.code == 4
    assert ran.json["error"]["kind"] == "ModelUnavailable"


def test_a_killed_command_leaves_what_was_published(notes: Path, store: Path, spolia: Spolia) -> None:
    for number in range(3000):
        (notes / f"{number}.txt").write_text(f"Document {number} is about whelks and the number {number}.")
    command = [sys.executable, "-m", "spolia", "index", str(notes), "--store", str(store), "--no-vectors", "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while process.poll() is None and not list((store / "lexical" / "chunk").glob("g2*")):
        time.sleep(0.005)
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=600)
    assert process.returncode in (0, 143)
    if process.returncode == 143:
        assert json.loads(out)["exit_code"] == 143
        assert "run the same command again" in err
    assert spolia("ask", "What causes the tide?", "--store", store).code == 0
    assert spolia("doctor", "--store", store, "--json").json["ok"]
    assert spolia("index", notes, "--store", store, "--no-vectors", "--json").code == 0
    assert len(spolia("search", "whelks", "--store", store, "--top-k", 9, "--json").json["hits"]) == 9


def test_a_read_only_store_can_be_asked(spolia: Spolia, store: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may write everywhere")
    for path in [store, *store.rglob("*")]:
        path.chmod(path.stat().st_mode & ~0o222)
    assert spolia("ask", "What causes the tide?", "--store", store).code == 0


def test_where_a_flow_file_sends_to_is_said_first_and_its_variables_are_allowed_by_name(
    spolia: Spolia, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("THEIR_KEY", "secret-word")
    file = tmp_path / "f.yaml"
    with OpenAIServer(ServedReply("The moon causes it [1].")) as server:
        model = f"{{ChatModel: {{model: m, base_url: '{server.url}', api_key_env: THEIR_KEY}}}}"
        file.write_text(f"- BM25: {{group: {{use: chunks}}}}\n- Reader: {{llm: {model}}}\n")
        refused = spolia("ask", "What causes the tide?", "--store", store, "--flow", file)
        assert (refused.code, server.requests) == (2, [])
        looked = spolia("check", file, "--json")
        shown = spolia("show", file)
        ran = spolia("ask", "What causes the tide?", "--store", store, "--flow", file, "--allow-env", "THEIR_KEY")
        unnamed = spolia("ask", "What causes the tide?", "--store", store, "--flow", file)
    assert "line 2" in refused.err
    assert "--allow-env THEIR_KEY" in refused.err
    (row,) = looked.json["sends"]
    assert (row["to"], row["keys"], row["not_allowed"]) == (server.url, ["THEIR_KEY"], ["THEIR_KEY"])
    assert f"go to {server.url} (m), with the key in THEIR_KEY. It runs with --allow-env THEIR_KEY only." in shown.err
    assert ran.code == 0
    assert f"Questions and passages go to {server.url} (m), with the key in THEIR_KEY." in ran.err
    assert unnamed.code == 2
    assert "secret-word" not in ran.out + ran.err + refused.err + looked.out + shown.err


def test_where_a_flow_sends_to_is_said_of_rerankers_and_of_groups_that_it_builds(
    spolia: Spolia, store: Path, tmp_path: Path
) -> None:
    with OpenAIServer(ServedReply("About tides.")) as server:
        summary = f"{{Summary: {{llm: {{ChatModel: {{model: m, base_url: '{server.url}'}}}}}}}}"
        group = f"{{corpus: {{path: '{store}'}}, name: short, definition: {{transform: {summary}, parent: chunk}}}}"
        scorer = f"{{RerankModel: {{model: r, base_url: '{server.url}'}}}}"
        (tmp_path / "f.yaml").write_text(f"- BM25: {{group: {group}}}\n- CrossEncoder: {{scorer: {scorer}}}\n")
        search = ("search", "tides", "--store", store, "--flow", tmp_path / "f.yaml")
        promote = ("promote", tmp_path / "f.yaml", "--to", "candidate", "--store", store)
        refused = [spolia(*search), spolia(*promote)]
        assert server.requests == []
        first, second = spolia(*search, "--build-groups"), spolia(*search)
        promoted = spolia(*promote)
    assert [refusal.code for refusal in refused] == [2, 2]
    for refusal in refused:
        assert f"all texts of {store} go to {server.url} (m)" in refusal.err
        assert "add --build-groups" in refusal.err
    assert (first.code, second.code, promoted.code) == (0, 0, 0), first.err + promoted.err
    message = f"Questions and passages go to {server.url}"
    assert [f"{message} (m)" in ran.err for ran in (first, second)] == [True, False]  # the group is there, then
    assert [f"{message} (r)" in ran.err for ran in (first, second)] == [True, True]
    assert first.err.index(message) < first.err.index("Group short was built")


def test_a_model_that_no_step_asks_is_told(spolia: Spolia, store: Path, tmp_path: Path) -> None:
    (tmp_path / "f.yaml").write_text("[BM25: {group: {use: chunks}}, Extract]")
    flow = ("--flow", tmp_path / "f.yaml", "--llm", "http://127.0.0.1:9/v1", "--model", "m")
    ran = spolia("ask", "What causes the tide?", "--store", store, *flow)
    assert ran.code == 0
    assert "m is not asked: no step of this flow uses it." in ran.err


def test_every_document_can_be_listed_with_what_was_read_of_it(spolia: Spolia, notes: Path, tmp_path: Path) -> None:
    command = ("index", notes, "--store", tmp_path / "n.spolia", "--no-vectors", "--report")
    listed = spolia(*command, "--json").json["documents"]
    assert set(listed) == {"sea/tides.md", "salt.txt", "page.html"}
    assert (listed["salt.txt"]["characters"], listed["salt.txt"]["chunks"], listed["salt.txt"]["pages"]) == (63, 1, 0)
    assert "salt.txt" in spolia(*command).out


def test_weights_that_were_named_are_not_passed_over(
    spolia: Spolia, notes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "weights").mkdir()
    (tmp_path / "weights" / "model.safetensors").write_bytes(b"not these")
    monkeypatch.setenv("SPOLIA_WEIGHTS", str(tmp_path / "weights"))
    ran = spolia("index", notes, "--store", tmp_path / "n.spolia")
    assert ran.code == 4
    assert "weights" in ran.err
    assert not (tmp_path / "n.spolia").exists()


def test_a_step_that_failed_is_named_beside_the_answer(spolia: Spolia, store: Path, tmp_path: Path) -> None:
    (tmp_path / "f.yaml").write_text("[BM25: {group: {use: chunks}}, Critique: {llm: {use: llm}}, Extract]")
    with OpenAIServer(ServedReply(status=400)) as server:
        options = ("What causes the tide?", "--store", store, "--flow", tmp_path / "f.yaml", "--llm", server.url)
        ran, data = spolia("ask", *options, "--model", "m"), spolia("ask", *options, "--model", "m", "--json").json
    assert ran.code == 0
    assert "Critique: A question to the model failed and is skipped" in ran.err
    assert list(data["degraded"]) == ["Critique"]
