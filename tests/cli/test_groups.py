"""`spolia groups`: the tree, building, adding by a file, dropping."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from spolia.stores.corpus import Corpus
from spolia.testing.server import OpenAIServer, ServedReply

from .conftest import Spolia


@pytest.fixture
def store(spolia: Spolia, tmp_path: Path) -> Path:
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "tides.md").write_text("# Tides\n\nThe moon pulls.\n\nShips wait for it.\n")
    (folder / "salt.txt").write_text("Salt is dug in mines. It is sold.")
    path = tmp_path / "n.spolia"
    assert spolia("index", folder, "--store", path, "--no-vectors").code == 0
    return path


def built(store: Path) -> set[str]:
    return set(Corpus(str(store)).latest().groups())


@pytest.mark.slow
def test_groups_are_drawn_as_a_tree(spolia: Spolia, store: Path, tmp_path: Path) -> None:
    (tmp_path / "g.yaml").write_text("transform: Sentences\nparent: chunk\n")
    assert spolia("groups", "add", "small", "--from", tmp_path / "g.yaml", "--store", store).code == 0
    ran = spolia("groups", "list", "--store", store)
    assert "document  the whole documents\n└── chunk  2 nodes" in ran.out
    assert "    └── small  5 nodes  Sentences(" in ran.out
    assert "fine" in ran.err
    listed = spolia("groups", "list", "--store", store, "--json").json
    assert listed["groups"]["small"]["parent"] == "chunk"
    assert "sentence" in listed["unbuilt"]
    assert "small" not in listed["unbuilt"]


@pytest.mark.slow
def test_built_in_groups_are_built_once(spolia: Spolia, store: Path) -> None:
    first, second = (spolia("groups", "build", "sentence", "page", "--store", store, "--json").json for _ in range(2))
    assert (first["built"], second["built"]) == (["page", "sentence"], [])
    assert first["nodes"] == second["nodes"] == {"page": 2, "sentence": 5}


def test_an_unknown_group_is_refused(spolia: Spolia, store: Path) -> None:
    ran = spolia("groups", "build", "nope", "--store", store)
    assert ran.code == 3
    assert "none is built in by this name" in ran.err


@pytest.mark.parametrize(
    "command",
    [("groups", "build"), ("groups", "show"), ("groups", "drop"), ("docs", "chunks", "tides.md", "--group"),
     ("search", "moon", "--group"), ("ask", "What pulls?", "--group")],
)  # fmt: skip
def test_of_a_misspelt_group_the_nearest_is_told(spolia: Spolia, store: Path, command: tuple[str, ...]) -> None:
    ran = spolia(*command, "sentnce", "--store", store)
    assert (ran.code, "Did you mean sentence?" in ran.err) == (3, True), ran.err
    assert "spolia groups" in ran.err
    assert built(store) == {"chunk"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "Give the path of a file with groups by name"),
        ("small: {transform: {Summary: {llm: {use: llm}}}}", "needs --llm URL --model NAME"),
        ("small: {transform: 'mine:Cut'}", "write --known FILE.py"),
        ("small: {transform: Sentenses}", "Did you mean Sentences"),
        ("chunk: {transform: Sentences, embeddings: [{embedder: MiniLM, metric: dot}]}", "define a further group"),
    ],
)
def test_what_is_wrong_with_a_file_of_groups_is_said(
    spolia: Spolia, store: Path, tmp_path: Path, text: str | None, said: str
) -> None:
    if text is not None:
        (tmp_path / "groups.yaml").write_text(text)
    for command in ("plan", "sync"):
        ran = spolia(command, tmp_path / "notes", "--store", store, "--groups", tmp_path / "groups.yaml")
        assert (ran.code, said in ran.err) == (2, True), ran.err


@pytest.mark.slow
def test_a_misspelt_group_of_a_flow_is_a_problem_of_check(spolia: Spolia, store: Path, tmp_path: Path) -> None:
    flow = tmp_path / "flow.yaml"
    for name, code in (("chunk", 0), ("sentence", 0), ("sentnce", 2)):
        flow.write_text(f"BM25: {{group: {{NodeGroup: {{corpus: {{use: corpus}}, name: {name}}}}}}}")
        ran = spolia("check", flow, "--store", store)
        assert (ran.code, "Did you mean sentence?" in ran.out) == (code, bool(code)), ran.out + ran.err


@pytest.mark.slow
def test_a_parent_that_is_misspelt_is_told_with_the_groups_of_the_store(
    spolia: Spolia, store: Path, tmp_path: Path
) -> None:
    (tmp_path / "g.yaml").write_text("{transform: Sentences, parent: chnk}")
    ran = spolia("groups", "add", "small", "--from", tmp_path / "g.yaml", "--store", store)
    assert (ran.code, "Did you mean chunk? There are chunk, coarse" in ran.err) == (3, True), ran.err
    assert "spolia groups add chnk --from FILE" in ran.err


@pytest.mark.slow
def test_a_group_that_is_not_built_yet_is_told_how(spolia: Spolia, store: Path) -> None:
    ran = spolia("docs", "chunks", "tides.md", "--group", "sentence", "--store", store)
    assert (ran.code, f"spolia groups build sentence --store {store}" in ran.err) == (3, True)


@pytest.mark.slow
def test_a_group_is_dropped_after_those_below_it(spolia: Spolia, store: Path, tmp_path: Path) -> None:
    (tmp_path / "g.yaml").write_text("{transform: Sentences, parent: page}")
    spolia("groups", "add", "small", "--from", tmp_path / "g.yaml", "--store", store)
    assert built(store) == {"chunk", "page", "small"}
    ran = spolia("groups", "drop", "page", "--store", store)
    assert ran.code == 3
    assert "Drop these first" in ran.err
    assert spolia("groups", "drop", "small", "--store", store).code == 0
    assert spolia("groups", "drop", "page", "--store", store).code == 0
    assert built(store) == {"chunk"}
    assert Corpus(str(store)).latest().check() == []
    for unbuilt in ("document", "page"):
        ran = spolia("groups", "drop", unbuilt, "--store", store)
        assert (ran.code, "so it cannot be dropped" in ran.err) == (3, True), ran.err
    assert spolia("groups", "build", "page", "--store", store).code == 0


@pytest.mark.slow
def test_what_is_shown_can_be_added_again(spolia: Spolia, store: Path, tmp_path: Path) -> None:
    (tmp_path / "g.yaml").write_text("transform:\n  SlidingWindow: {size: 8, overlap: 2}\nparent: page\n")
    spolia("groups", "add", "small", "--from", tmp_path / "g.yaml", "--store", store)
    output = spolia("groups", "show", "small", "--store", store).out
    (tmp_path / "h.yaml").write_text(output)
    second_result = spolia("groups", "add", "small", "--from", tmp_path / "h.yaml", "--store", store, "--json")
    assert (second_result.code, second_result.json["built"]) == (0, [])


@pytest.mark.slow
def test_how_documents_are_cut_is_said_once(spolia: Spolia, store: Path, tmp_path: Path) -> None:
    (tmp_path / "g.yaml").write_text("chunk: {transform: Sentences}\n")
    notes = tmp_path / "notes"
    cut = spolia("sync", notes, "--store", store, "--groups", tmp_path / "g.yaml", "--rebuild", "--no-vectors")
    assert (cut.code, "2 unchanged, cut again; 5 passages made" in cut.out) == (0, True), cut.out
    (notes / "new.txt").write_text("Clay is wet. It is fired.")
    assert spolia("plan", notes, "--store", store, "--json").json["groups"][0]["nodes"] == 2
    assert spolia("sync", notes, "--store", store, "--json").json["chunks"] == 2
    assert Corpus(str(store)).latest().manifests["chunk"].transform.startswith("Sentences(")
    dropped = spolia("groups", "drop", "chunk", "--store", store)
    assert "covered=0.95), without vectors, as --no-vectors says." in " ".join(dropped.err.split())


@pytest.mark.slow
def test_a_file_of_several_groups_will_do(spolia: Spolia, store: Path, tmp_path: Path) -> None:
    (tmp_path / "g.yaml").write_text("small: {transform: Sentences}\nlarge: {transform: Paragraphs}\n")
    assert spolia("groups", "add", "large", "--from", tmp_path / "g.yaml", "--store", store).code == 0
    assert built(store) == {"chunk", "large"}
    ran = spolia("groups", "add", "huge", "--from", tmp_path / "g.yaml", "--store", store)
    assert (ran.code, "defines small, large, not huge" in ran.err) == (2, True), ran.err


@pytest.mark.slow
def test_another_definition_needs_to_be_meant(spolia: Spolia, store: Path, tmp_path: Path) -> None:
    (tmp_path / "g.yaml").write_text("{transform: Sentences, parent: page}")
    (tmp_path / "h.yaml").write_text("{transform: {SlidingWindow: {size: 8, overlap: 0}}, parent: page}")
    spolia("groups", "add", "small", "--from", tmp_path / "g.yaml", "--store", store)
    command = ("groups", "add", "small", "--from", tmp_path / "h.yaml", "--store", store, "--json")
    refused = spolia(*command)
    assert (refused.code, refused.json["error"]["kind"]) == (3, "ManifestMismatch")
    assert refused.json["error"]["message"].endswith("the same command with --rebuild.")
    assert spolia(*command, "--rebuild").json["built"] == ["small"]


@pytest.mark.slow
def test_a_rebuild_keeps_further_groups(spolia: Spolia, store: Path, tmp_path: Path) -> None:
    spolia("groups", "build", "sentence", "--store", store)
    assert spolia("index", tmp_path / "notes", "--store", store, "--rebuild", "--no-vectors").code == 0
    assert built(store) == {"chunk", "sentence"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty"),
        ("{transform: Sentence}", "Sentence"),
        ("{parent: chunk}", "transform"),
        ("{transform: Sentences, parent: nope}", "no node group 'nope'"),
        ("{transform: Sentences, embeddings: [{embedder: {use: nope}}]}", "nope"),
    ],
)
def test_a_file_that_defines_no_group_is_refused(
    spolia: Spolia, store: Path, tmp_path: Path, text: str, said: str
) -> None:
    (tmp_path / "g.yaml").write_text(text)
    ran = spolia("groups", "add", "small", "--from", tmp_path / "g.yaml", "--store", store)
    assert ran.code in (2, 3)
    assert said in ran.err
    assert built(store) == {"chunk"}


@pytest.mark.slow
def test_a_group_made_by_a_model_says_where_texts_go(spolia: Spolia, store: Path, tmp_path: Path) -> None:
    (tmp_path / "g.yaml").write_text("transform:\n  Summary: {llm: {use: llm}}\n")
    with OpenAIServer(ServedReply("It is about the sea.")) as server:
        options = ("--llm", server.url, "--model", "m")
        ran = spolia("groups", "add", "short", "--from", tmp_path / "g.yaml", "--store", store, *options)
    assert ran.code == 0, ran.err
    assert f"go to {server.url} (m)" in ran.err
    nodes = spolia("docs", "chunks", "salt.txt", "--group", "short", "--store", store, "--json").json["nodes"]
    assert [node["text"] for node in nodes] == ["It is about the sea."]


@pytest.mark.slow
def test_where_texts_go_is_said_of_groups_that_the_store_holds(
    spolia: Spolia, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "g.yaml").write_text("transform: {Summary: {llm: {use: llm}}}\n")
    with OpenAIServer(ServedReply("It is about the sea.")) as server:
        options = ("--llm", server.url, "--model", "m")
        assert spolia("groups", "add", "short", "--from", tmp_path / "g.yaml", "--store", store, *options).code == 0
        (tmp_path / "notes" / "krill.txt").write_text("Krill glows.")
        monkeypatch.setenv("OPENAI_API_KEY", "sk-x")
        message = f"Questions and passages go to {server.url} (m), with the key in OPENAI_API_KEY."
        store_options = ("--store", store)
        asked_before = len(server.requests)
        refused = spolia("sync", tmp_path / "notes", *store_options, "--no-vectors")
        assert (refused.code, len(server.requests)) == (3, asked_before)
        assert "Group 'short' of the store: ChatModel reads the environment variable OPENAI_API_KEY" in refused.err
        assert "--allow-env OPENAI_API_KEY" in refused.err
        allowed = ("--allow-env", "OPENAI_API_KEY")
        for command in ("plan", "sync", "index"):
            ran = spolia(command, tmp_path / "notes", *store_options, "--no-vectors", *allowed)
            assert (ran.code, message in ran.err) == (0, True), ran.err
        for names in (("short",), ("short", "--rebuild")):
            assert message in spolia("groups", "build", *names, *store_options, *allowed).err
        assert message not in spolia("groups", "build", "page", *store_options).err
        assert "go to" not in spolia("docs", "list", *store_options).err


@pytest.mark.slow
def test_a_server_that_is_away_is_said_and_keeps_nothing_from_being_found(
    spolia: Spolia, store: Path, tmp_path: Path
) -> None:
    reply = ServedReply("It is about the sea.")
    with OpenAIServer(reply, reply, ServedReply(status=503)) as server:
        model = f"{{model: m, base_url: '{server.url}', retries: 0}}"
        (tmp_path / "g.yaml").write_text(f"transform: {{Summary: {{llm: {{ChatModel: {model}}}}}}}\n")
        assert spolia("groups", "add", "short", "--from", tmp_path / "g.yaml", "--store", store).code == 0
        (tmp_path / "notes" / "krill.txt").write_text("Krill glows.")
        ran = spolia("sync", tmp_path / "notes", "--store", store, "--no-vectors")
    assert (ran.code, f"go to {server.url} (m)" in ran.err) == (5, True), ran.err
    assert "1 not kept in step:\n  group short" in ran.out
    assert "krill.txt" in spolia("search", "krill", "--store", store).out


@pytest.mark.slow
def test_where_texts_go_is_said_of_embedders_too(spolia: Spolia, store: Path, tmp_path: Path) -> None:
    with OpenAIServer() as server:
        (tmp_path / "g.yaml").write_text(
            "near:\n  transform: Sentences\n  embeddings:\n"
            f"  - embedder: {{EmbeddingModel: {{model: e, base_url: '{server.url}', dimension: 8}}}}\n"
        )
        message = f"go to {server.url} (e)"
        options = ("--store", store, "--no-vectors")
        ran = spolia("sync", tmp_path / "notes", *options, "--groups", tmp_path / "g.yaml")
        assert (ran.code, message in ran.err) == (0, True), ran.err
        (tmp_path / "notes" / "krill.txt").write_text("Krill glows.")
        for command in ("plan", "sync"):
            ran = spolia(command, tmp_path / "notes", *options)
            assert (ran.code, message in ran.err) == (0, True), ran.err


@pytest.mark.slow
def test_a_document_that_a_group_cannot_be_made_of_is_told(spolia: Spolia, store: Path, tmp_path: Path) -> None:
    (tmp_path / "g.yaml").write_text(
        "transform: {Summary: {llm: {ScriptedModel: {replies: [[dug in mines, About salt.]]}}}}\n"
    )
    ran = spolia("groups", "add", "about", "--from", tmp_path / "g.yaml", "--store", store, "--json")
    assert (ran.code, ran.json["nodes"]) == (5, {"about": 1})
    assert [(lack["uri"], lack["group"]) for lack in ran.json["unmade"]] == [("tides.md", "about")]
    assert "not in about: tides.md" in spolia("groups", "build", "about", "--store", store).out
    for name in ("index", "sync"):
        second_result = spolia(name, tmp_path / "notes", "--store", store, "--json")
        assert (second_result.code, second_result.json["failed"]) == (5, [])
        assert [lack["uri"] for lack in second_result.json["unmade"]] == ["tides.md"]
    assert "1 not in a group:" in spolia("sync", tmp_path / "notes", "--store", store).out
    result = spolia("docs", "report", "--store", store)
    assert result.code == 5
    assert "It is not in group about: " in result.out


@pytest.mark.slow
def test_sync_is_a_command_with_all_that_index_takes(spolia: Spolia) -> None:
    listed = spolia("--help").out
    assert "Keep a store in step with a folder" in listed
    assert (
        spolia("sync", "--help").out.partition("Arguments")[2]
        == spolia("index", "--help").out.partition("Arguments")[2]
    )


@pytest.mark.slow
def test_another_writer_is_waited_for_as_long_as_is_said(spolia: Spolia, store: Path, tmp_path: Path) -> None:
    with Corpus(str(store)).writer():
        for command in (("sync", tmp_path / "notes"), ("groups", "build", "sentence")):
            ran = spolia(*command, "--store", store, "--wait", "0.1", "--json")
            assert (ran.code, ran.json["error"]["kind"]) == (3, "StoreBusy")
            assert "within 0.1 s" in ran.json["error"]["message"]
            assert "--wait 600 on the command line" in ran.json["error"]["message"]


@pytest.mark.slow
def test_a_search_while_the_first_index_runs_says_who_writes(
    spolia: Spolia, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Corpus.__init__, "__defaults__", (0.1,))
    store = tmp_path / "first.spolia"
    with Corpus(str(store)).create().writer():
        for command in (("search", "moon"), ("ask", "What pulls?")):
            ran = spolia(*command, "--store", store, "--json")
            assert (ran.code, ran.json["error"]["kind"]) == (3, "StoreBusy")
            message = f"{store} is being indexed, by this process, pid {os.getpid()}. Published so far: 0 documents"
            assert message in ran.json["error"]["message"]
    ran = spolia("search", "moon", "--store", store)
    assert (ran.code, f"Write: spolia index FOLDER --store {store}" in ran.err) == (3, True), ran.err
