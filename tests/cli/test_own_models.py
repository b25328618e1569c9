"""The user's own models on the command line: one line each, and a profile."""

from __future__ import annotations

from pathlib import Path

import pytest

from spolia import models
from spolia.stores.corpus import Corpus
from tests.models.local import test_colbert, tiny
from tests.models.test_onnx_cross_encoder import write_counting_encoder

from .conftest import Spolia
from .model_servers import SERVERS, TEXT, ModelServer

pytestmark = pytest.mark.slow
KEY = "sk-secret-0123456789"


@pytest.fixture(autouse=True)
def nothing_around(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SPOLIA_CACHE", str(tmp_path / "cache"))
    for name in ("OPENAI_API_KEY", "AZURE_OPENAI_API_KEY", "SPOLIA_ALLOW_ENV", "SPOLIA_WEIGHTS"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "tides.md").write_text("# Tides\n\nThe tide is caused by the pull of the moon.\n")
    (folder / "salt.txt").write_text("Salt is dug in mines near the border.")
    (folder / "owls.txt").write_text("Owls hunt by night and sleep by day.")
    return folder


def embedder_in(store: Path) -> tuple[str, int]:
    (embedding,) = Corpus(str(store)).snapshot().manifests["chunk"].embeddings
    return embedding.embedder, embedding.dimension


@pytest.mark.parametrize("product", SERVERS)
def test_one_line_indexes_by_the_servers_embedder_and_finds_its_dimension_out(
    spolia: Spolia, notes: Path, tmp_path: Path, product: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AZURE_OPENAI_API_KEY" if product == "Azure" else "OPENAI_API_KEY", KEY)
    store = tmp_path / "n.spolia"
    with ModelServer(product) as server:
        ran = spolia("index", notes, "--store", store, "--embedder", server.url, "--embed-model", "m", "--json")
        assert ran.code == 0, ran.err
        assert ran.json["embedded"] == 3
        assert f"Passages to be embedded go to {server.url} (m), with the key in " in ran.err
        assert embedder_in(store) == ("m", 12)
        assert [len(request["input"]) for _, request in server.asked][:1] == [1]  # one call finds the dimension out
        asked_before = len(server.asked)
        options = ("--embedder", server.url, "--embed-model", "m", "--flow", "dense", "--json")
        result = spolia("search", "What causes the tide?", "--store", store, *options)
        assert result.code == 0, result.err
        assert len(result.json["hits"]) == 3
        assert len(server.asked) == asked_before + 1  # the store knows the dimension: only the question is embedded
    assert KEY not in ran.out + ran.err + result.out + result.err
    assert set(server.keys) == {KEY if product == "Azure" else f"Bearer {KEY}"}


@pytest.mark.parametrize("product", [name for name, one in SERVERS.items() if one.chat])
def test_one_line_asks_the_servers_language_model(
    spolia: Spolia, notes: Path, tmp_path: Path, product: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AZURE_OPENAI_API_KEY" if product == "Azure" else "OPENAI_API_KEY", KEY)
    with ModelServer(product) as server:
        ran = spolia("ask", "What causes the tide?", notes, "--llm", server.url, "--model", "m", "--json")
    assert ran.code == 0, ran.err
    assert ran.json["answer"] == TEXT
    assert [citation["uri"] for citation in ran.json["citations"]] == ["tides.md"]
    assert KEY not in ran.out + ran.err


def test_built_in_flows_use_the_embedder_that_the_store_was_indexed_with(
    spolia: Spolia, notes: Path, tmp_path: Path
) -> None:
    store = tmp_path / "n.spolia"
    with ModelServer("Ollama") as server:
        options = ("--embedder", server.url, "--embed-model", "nomic-embed-text")
        assert spolia("index", notes, "--store", store, *options).code == 0
        server.asked.clear()
        for flow in ("dense", "hybrid", "default"):
            ran = spolia("search", "tide", "--store", store, "--flow", flow, "--json")
            assert ran.code == 0, ran.err
        assert ran.json["chosen"].startswith("hybrid: nomic-embed-text")
        assert {text for _, request in server.asked for text in request["input"]} == {"tide"}
        (notes / "bees.txt").write_text("Bees dance to tell where the flowers are.")
        second_result = spolia("sync", notes, "--store", store, "--json")
        assert (second_result.json["added"], second_result.json["embedded"]) == (1, 1)
    assert embedder_in(store) == ("nomic-embed-text", 12)


def test_a_store_may_not_send_a_key_that_was_not_allowed_and_words_still_find(
    spolia: Spolia, notes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "n.spolia"
    with ModelServer("OpenAI") as server:
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        assert spolia("index", notes, "--store", store, "--embedder", server.url, "--embed-model", "m").code == 0
        server.asked.clear()
        words = spolia("search", "tide", "--store", store, "--json")
        dense = spolia("search", "tide", "--store", store, "--flow", "dense")
        assert server.asked == []
        allowed = spolia("search", "tide", "--store", store, "--flow", "dense", "--allow-env", "OPENAI_API_KEY")
    assert words.code == 0
    assert words.json["chosen"].startswith("bm25: ")
    assert "--allow-env OPENAI_API_KEY" in words.json["chosen"]
    assert dense.code == 2
    assert "--allow-env OPENAI_API_KEY" in dense.err
    assert allowed.code == 0, allowed.err


OWN = """
from dataclasses import dataclass
import numpy as np
from spolia.indexing import Sentences
from spolia.stores.definition import Definition, Embedding
from spolia.types import Value

@dataclass(frozen=True)
class Letters(Value):
    window: int = 512
    name = "letters"
    dimension = 4
    scoped = False
    def fingerprint(self): return "letters"
    def embed(self, texts, *, kind): return np.eye(4, dtype=np.float32)[[len(text) % 4 for text in texts]]
    def tokens(self, texts): return [len(text.split()) for text in texts]
    def covers(self, text): return 1.0

chunk = Definition(Sentences(), embeddings=(Embedding(Letters()),))
"""


def test_an_embedder_that_only_the_users_module_has_goes_on_being_used(
    spolia: Spolia, notes: Path, tmp_path: Path
) -> None:
    store = tmp_path / "n.spolia"
    (tmp_path / "own_letters.py").write_text(OWN)
    options = ("--store", store, "--known", tmp_path / "own_letters.py")
    assert spolia("index", notes, *options).code == 0
    (notes / "bees.txt").write_text("Bees dance.")
    second_result = spolia("index", notes, *options, "--json")
    assert second_result.code == 0, second_result.err
    assert (second_result.json["added"], second_result.json["embedded"]) == (1, 1)
    words = spolia("search", "bees", "--store", store, "--json")
    assert words.json["chosen"].startswith("bm25: ")
    assert embedder_in(store) == ("letters", 4)


def test_another_embedder_than_the_stores_is_refused_and_a_rebuild_takes_it(
    spolia: Spolia, notes: Path, tmp_path: Path
) -> None:
    store = tmp_path / "n.spolia"
    with ModelServer("vLLM") as server:
        spolia("index", notes, "--store", store, "--embedder", server.url, "--embed-model", "one")
        other_options = ("--embedder", server.url, "--embed-model", "two")
        searched = spolia("search", "tide", "--store", store, *other_options)
        refused = spolia("index", notes, "--store", store, *other_options)
        rebuilt = spolia("index", notes, "--store", store, "--rebuild", *other_options)
    for ran in (searched, refused):
        assert ran.code == 3
        assert "embedded with one" in ran.err
        assert "--rebuild" in ran.err
    assert rebuilt.code == 0, rebuilt.err
    assert embedder_in(store) == ("two", 12)


def test_a_reranker_orders_what_a_built_in_flow_found(spolia: Spolia, notes: Path, tmp_path: Path) -> None:
    store = tmp_path / "n.spolia"
    spolia("index", notes, "--store", store, "--no-vectors")
    with ModelServer("tei") as server:
        searched = spolia(
            "search", "owls mines by night", "--store", store, "--flow", "bm25", "--reranker", server.url, "--json"
        )
        answered = spolia("ask", "What do owls do by night?", "--store", store, "--reranker", server.url, "--json")
    assert searched.code == 0, searched.err
    assert [round(hit["score"], 2) for hit in searched.json["hits"]] == [0.75, 0.25, 0.25]
    assert answered.code == 0, answered.err
    assert [path for path, _ in server.asked] == ["/rerank"] * 2
    assert set(server.asked[0][1]) == {"query", "texts", "raw_scores", "return_text", "truncate"}


def test_a_folder_with_an_onnx_file_reranks_without_torch(spolia: Spolia, notes: Path, tmp_path: Path) -> None:
    store, model = tmp_path / "n.spolia", tmp_path / "model"
    model.mkdir()
    write_counting_encoder(model)
    spolia("index", notes, "--store", store, "--no-vectors")
    result = spolia("search", "the owls", "--store", store, "--flow", "bm25", "--reranker", model, "--json")
    assert result.code == 0, result.err
    scores = [hit["score"] for hit in result.json["hits"]]
    assert scores == sorted(scores, reverse=True)
    assert min(scores) >= 2 + 3 + 3  # the numbers of [CLS] and [SEP]


@pytest.mark.skipif(not tiny.is_installed(), reason="the extra local is not installed")
@pytest.mark.parametrize(
    ("made", "scorer"),
    [("llama", "LocalLLMReranker"), ("bert", "LocalCrossEncoder"), ("colbert", "LocalColBERT")],
    ids=["language model", "encoder", "ColBERT"],
)
def test_a_folder_with_weights_reranks_as_its_config_says(
    spolia: Spolia, notes: Path, tmp_path: Path, made: str, scorer: str
) -> None:
    store, model = tmp_path / "n.spolia", tmp_path / "model"
    model.mkdir()
    if made == "llama":
        tiny.llama(model, positions=2048)
    elif made == "colbert":
        test_colbert.checkpoint(model)
    else:
        tiny.bert(model, "BertForSequenceClassification", num_labels=1)
    spolia("index", notes, "--store", store, "--no-vectors")
    result = spolia("search", "the owls", "--store", store, "--flow", "bm25", "--reranker", model, "--json")
    assert result.code == 0, result.err
    hits = [(hit["text"], hit["score"]) for hit in result.json["hits"] if hit["uri"].endswith(".txt")]  # no headings
    assert len(hits) == 2
    scores = getattr(models, scorer)(str(model)).scores("the owls", [text for text, _ in hits])
    assert [score for _, score in hits] == pytest.approx(scores, abs=1e-4)


def test_a_folder_without_a_reranker_is_an_error(spolia: Spolia, notes: Path, tmp_path: Path) -> None:
    store = tmp_path / "n.spolia"
    spolia("index", notes, "--store", store, "--no-vectors")
    result = spolia("search", "the owls", "--store", store, "--flow", "bm25", "--reranker", tmp_path)
    assert result.code != 0
    assert "is not a folder with a config.json" in result.err


def test_an_evaluation_takes_the_embedder_and_other_settings_have_other_vectors(spolia: Spolia, tmp_path: Path) -> None:
    data = tmp_path / "small"
    data.mkdir()
    (data / "corpus.jsonl").write_text('{"id": "p1", "text": "The moon pulls the sea."}\n{"id": "p2", "text": "Salt."}')
    (data / "questions.jsonl").write_text('{"id": "q", "question": "moon?", "gold_ids": ["p1"]}')
    profile = tmp_path / "p.toml"
    with ModelServer("Ollama") as server:
        options = ("--embedder", server.url, "--embed-model", "m")
        ran = spolia("eval", "dense", "--data", data, "--measures", "R@5", "--json", *options)
        assert ran.code == 0, ran.err
        assert ran.json["measures"]["R@5"]["mean"] == 1.0
        assert f"Passages to be embedded go to {server.url} (m)" in ran.err
        server.asked.clear()
        profile.write_text(f'[embedder]\nurl = "{server.url}"\nmodel = "m"\npassage_prefix = "passage: "\n')
        spolia("eval", "dense", "--data", data, "--measures", "R@5", "--profile-file", profile)
    texts = [text for _, request in server.asked for text in request["input"]]
    assert "passage: Salt." in texts


# ------------------------------------------------------------------------------------------------------------ profile


def test_a_profile_in_the_working_directory_holds_models_store_and_who_asks(
    spolia: Spolia, notes: Path, tmp_path: Path
) -> None:
    readers = tmp_path / "readers"
    readers.write_text("tides.md = ann\n* = everybody\n")
    with ModelServer("llama.cpp") as server:
        (tmp_path / "spolia.toml").write_text(
            f'store = "n.spolia"\naccess = ["ann"]\n'
            f'[llm]\nurl = "{server.url}"\nmodel = "qwen3"\napi_key_env = ""\n'
            f'[embedder]\nurl = "{server.url}"\nmodel = "e5"\nquery_prefix = "query: "\napi_key_env = ""\n'
        )
        indexed = spolia("index", notes, "--readers", readers)
        assert indexed.code == 0, indexed.err
        assert embedder_in(tmp_path / "n.spolia") == ("e5", 12)
        ran = spolia("ask", "What causes the tide?", "--json")
        assert ran.code == 0, ran.err
        assert ran.json["answer"] == TEXT
        ann = spolia("search", "tide", "--flow", "bm25", "--json")
        assert [hit["uri"] for hit in ann.json["hits"]] == ["tides.md"]
        assert ["query: What causes the tide?"] in [request.get("input") for _, request in server.asked]
        bob = spolia("search", "tide", "--access", "bob", "--flow", "bm25")  # what is written goes first
    assert bob.code == 6


def test_a_profile_names_the_store_and_who_asks_for_every_command_on_a_store(
    spolia: Spolia, notes: Path, tmp_path: Path
) -> None:
    readers = tmp_path / "readers"
    readers.write_text("tides.md = ann\nsalt.txt = bob\n* = everybody\n")
    file = tmp_path / "of_ann.toml"
    file.write_text('store = "n.spolia"\naccess = ["ann"]\n')
    options = ("--profile-file", file, "--json")
    assert spolia("index", notes, "--readers", readers, "--no-vectors", *options).code == 0

    def uris(*more: object) -> set[str]:
        return {document["uri"] for document in spolia("docs", "list", *options, *more).json["documents"]}

    assert uris() == {"tides.md", "owls.txt"}
    assert uris("--access", "bob") == {"salt.txt", "owls.txt"}  # what is written goes first
    assert spolia("docs", "show", "tides.md", *options).code == 0
    assert spolia("docs", "chunks", "salt.txt", *options).code == 2
    assert spolia("docs", "report", *options).json["documents"] == 3
    assert "chunk" in spolia("groups", "list", *options).json["groups"]
    assert spolia("groups", "show", "chunk", *options).code == 0
    assert spolia("groups", "build", "sentence", *options).code == 0
    assert spolia("groups", "drop", "sentence", *options).code == 0
    assert spolia("repair", *options).json["store"] == "n.spolia"
    assert spolia("doctor", *options).json["sound"]
    assert spolia("search", "tide", "--flow", "bm25", *options).code == 0
    assert spolia("trace", "last", *options).code == 0
    assert spolia("docs", "remove", "owls.txt", *options).json["removed"] == "owls.txt"
    assert "sound" not in spolia("doctor", "--json").json  # nothing is named, and no spolia.toml is here


def test_a_profile_names_the_model_that_judges_and_that_makes_a_group(
    spolia: Spolia, notes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("THEIR_KEY", KEY)
    labels = tmp_path / "labels.jsonl"
    labels.write_text('{"id": "a", "question": "Who?", "answers": ["Ann"], "answer": "Ann", "label": 1}\n')
    with ModelServer("OpenAI") as server:
        (tmp_path / "spolia.toml").write_text(f'[llm]\nurl = "{server.url}"\nmodel = "m"\napi_key_env = "THEIR_KEY"\n')
        refused = spolia("calibrate", labels)
        assert server.asked == []
        spolia("calibrate", labels, "--allow-env", "THEIR_KEY")
        judged = len(server.asked)
        (tmp_path / "g.yaml").write_text("transform: {Summary: {llm: {use: llm}}}\n")
        assert spolia("index", notes, "--store", "n.spolia", "--no-vectors").code == 0
        command = ("groups", "add", "short", "--from", "g.yaml", "--store", "n.spolia")
        unallowed = spolia(*command)
        asked_before = len(server.asked)
        added = spolia(*command, "--allow-env", "THEIR_KEY")
        assert added.code == 0, added.err
        summarized = len(server.asked)
    assert refused.code == 2
    assert "--allow-env THEIR_KEY" in refused.err
    assert unallowed.code == 2
    assert 1 <= judged == asked_before < summarized
    assert set(server.keys) == {f"Bearer {KEY}"}


def test_a_broken_profile_names_the_option_only_where_it_was_written(spolia: Spolia, tmp_path: Path) -> None:
    (tmp_path / "spolia.toml").write_text("store = = 1")
    unnamed, named = spolia("check", "bm25"), spolia("check", "bm25", "--profile-file", "spolia.toml")
    assert (unnamed.code, named.code) == (2, 2)
    assert "not valid TOML" in unnamed.err
    assert "it lies in the working directory" in " ".join(unnamed.err.split())
    assert "--profile-file" not in unnamed.err
    assert "'--profile-file'" in named.err


def test_a_profile_that_nobody_named_may_not_send_a_key_unless_it_is_allowed(
    spolia: Spolia, notes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("THEIR_KEY", KEY)
    with ModelServer("OpenAI") as server:
        (tmp_path / "spolia.toml").write_text(f'[llm]\nurl = "{server.url}"\nmodel = "m"\napi_key_env = "THEIR_KEY"\n')
        refused = spolia("ask", "What causes the tide?", notes)
        assert server.asked == []
        allowed = spolia("ask", "What causes the tide?", notes, "--allow-env", "THEIR_KEY")
        result = spolia("ask", "What causes the tide?", notes, "--profile-file", "spolia.toml")
    assert refused.code == 2
    assert "--allow-env THEIR_KEY" in refused.err
    assert "--profile-file spolia.toml" in refused.err
    assert (allowed.code, result.code) == (0, 0), allowed.err + result.err
    assert KEY not in refused.err + allowed.err + result.err


def test_what_only_looks_at_a_flow_reads_the_profile_and_asks_no_server(
    spolia: Spolia, notes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("THEIR_KEY", KEY)
    readers = tmp_path / "readers"
    readers.write_text("salt.txt = bob\n* = ann\n")
    with ModelServer("OpenAI") as server, ModelServer("tei") as judge:
        model = f'url = "{server.url}"\nmodel = "m"\napi_key_env = "THEIR_KEY"\n'
        reranks = f'[reranker]\nurl = "{judge.url}"\nform = "tei"\napi_key_env = ""\n'
        models = f"[llm]\n{model}[embedder]\n{model}{reranks}"
        (tmp_path / "p.toml").write_text(models)
        options = ("--profile-file", "p.toml")
        (tmp_path / "spolia.toml").write_text(models)
        trees = [spolia("show", flow, *more).out for flow in ("hybrid", "default") for more in ((), options)]
        checked = [spolia("check", "self-rag", *more, "--json") for more in ((), options)]
        monkeypatch.setenv("SPOLIA_ALLOW_ENV", "THEIR_KEY")
        assert server.asked == judge.asked == []
        (tmp_path / "spolia.toml").write_text('store = "n.spolia"\naccess = ["ann"]\n' + models)
        assert spolia("index", notes, "--readers", readers).code == 0
        indexed, ranked = len(server.asked), len(judge.asked)
        by_profile = spolia("show", "dense")
        assert (len(server.asked), len(judge.asked)) == (indexed, ranked)
        previewed = spolia("prompts", "show", "naive", "--question", "tide", "--json")
        (tmp_path / "spolia.toml").write_text('store = "n.spolia"\n[embedder]\nurl = "http://x/v1"\nmodel = "other"\n')
        unfitting = spolia("check", "dense")
    for tree in trees:
        assert "EmbeddingModel(" in tree
        assert "RerankModel(" in tree
    for ran, lacking in zip(checked, (["THEIR_KEY"], []), strict=True):
        (row,) = [row for row in ran.json["sends"] if row["to"] == server.url]
        assert (row["model"], row["keys"], row["not_allowed"]) == ("m", ["THEIR_KEY"], lacking)
    assert "n.spolia" in by_profile.out
    assert "tide" in str(previewed.json["calls"]), previewed.err
    assert f"Questions and passages go to {server.url} (m), with the key in THEIR_KEY." in previewed.err
    assert "Salt" not in str(previewed.json["calls"])
    assert unfitting.code == 3
    assert "was embedded with m" in unfitting.err


def test_a_flow_that_reranks_only_where_a_reranker_is_named_is_shown_without_one(spolia: Spolia) -> None:
    assert "CrossEncoder" not in spolia("show", "bm25").out + spolia("show", "hybrid").out


def test_settings_of_a_profile_hold_for_its_own_server_alone(
    spolia: Spolia, notes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("THEIR_KEY", KEY)
    with ModelServer("OpenAI") as theirs, ModelServer("Ollama") as other_server:
        (tmp_path / "p.toml").write_text(f'[llm]\nurl = "{theirs.url}"\nmodel = "m"\napi_key_env = "THEIR_KEY"\n')
        ran = spolia("ask", "What causes the tide?", notes, "--profile-file", "p.toml", "--llm", other_server.url)
    assert ran.code == 0, ran.err
    assert (theirs.asked, set(other_server.keys)) == ([], {""})


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (f'[llm]\nurl = "http://x/v1"\nmodel = "m"\napi_key = "{KEY}"', "api_key would be a secret"),
        (f'[llm]\nurl = "http://x/v1"\nmodel = "m"\napi_key_env = "{KEY}"', "not an environment variable"),
        (f'openai_key = "{KEY}"', "openai_key would be a secret"),
        (f'[llm]\nurl = "http://u:{KEY}@x/v1"\nmodel = "m"', "holds more than an address"),
        ('[llm]\nurl = "http://x/v1"\nmodel = "m"\ntimeout = 3', "'timeout', which is not a setting"),
        ('[llm]\nurl = "http://x/v1"\nmodel = "m"\ntimeout_s = "long"', "of another type"),
        ('[llm]\nmodel = "m"', "has no url"),
        ("llm = 3", "has no url"),
        ('access = "ann"', "access a list of texts"),
        ('stores = "n.spolia"', "'stores' is not known"),
        ("[llm", "not valid TOML"),
    ],
)
def test_a_profile_with_a_secret_or_an_odd_setting_is_refused_and_the_value_is_not_repeated(
    spolia: Spolia, notes: Path, tmp_path: Path, said: str, expected: str
) -> None:
    (tmp_path / "spolia.toml").write_text(said)
    ran = spolia("ask", "What causes the tide?", notes, "--json")
    assert ran.code == 2
    assert expected in ran.json["error"]["message"]
    assert KEY not in ran.err + ran.out


def test_a_function_of_a_file_embeds(spolia: Spolia, tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.md").write_text("Spolia are stones.")
    own, store = tmp_path / "vowels_of.py", tmp_path / "s.spolia"
    own.write_text("def vowels(texts):\n    return [[1 + text.count(one) for one in 'aeiou'] for text in texts]\n")
    ways: dict[str, tuple[object, ...]] = {
        "index": ("index", tmp_path / "docs", "--store", store),
        "search": ("search", "stones", "--store", store, "--flow", "dense"),
    }
    assert [spolia(*way, "--embedder", f"{own}:vowels").code for way in ways.values()] == [0, 0]
    assert "--embedder FILE.py:NAME" in spolia(*ways["search"]).err
    assert "no function 'vowel'" in spolia(*ways["search"], "--embedder", f"{own}:vowel").err
