"""`spolia plan`: what `spolia index` would do, and then does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from spolia.indexing.sync.sync import sync
from spolia.indexing.transforms.text_enrichment import Summary
from spolia.models.http.chat import ChatModel
from spolia.stores.corpus import Corpus
from spolia.stores.definition import Definition

from .conftest import Spolia

pytestmark = pytest.mark.slow


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "salt.txt").write_text("Salt is dug in mines. It is sold.")
    (folder / "tides.md").write_text("# Tides\n\nThe moon pulls.\n")
    return folder


@pytest.fixture
def store(spolia: Spolia, notes: Path, tmp_path: Path) -> Path:
    assert spolia("index", notes, "--store", tmp_path / "n.spolia", "--no-vectors").code == 0
    return tmp_path / "n.spolia"


def test_a_plan_comes_before_a_store(spolia: Spolia, notes: Path, tmp_path: Path) -> None:
    ran = spolia("plan", notes, "--store", tmp_path / "n.spolia", "--no-vectors", "--json")
    assert (ran.code, ran.json["new"]) == (0, ["salt.txt", "tides.md"])
    assert ran.json["groups"][0] | {"why": []} == {
        "group": "chunk", "change": "new", "why": [], "nodes": 2, "texts": 0, "known": 0, "calls": 0, "prompts": 0,
        "pictures": 0, "input_tokens": 0, "output_tokens": 0, "text_tokens": 0, "cost_usd": None,
    }  # fmt: skip
    assert not (tmp_path / "n.spolia").exists()


def test_people_read_what_would_change(spolia: Spolia, notes: Path, store: Path) -> None:
    spolia("groups", "build", "sentence", "--store", store)
    (notes / "new.txt").write_text("Whelks live under the pier. They are slow.")
    (notes / "salt.txt").unlink()
    ran = spolia("plan", notes, "--store", store)
    assert "1 new, 1 gone, 1 unchanged" in ran.out
    assert "  new      new.txt\n  gone     salt.txt\n" in ran.out
    assert "group chunk  kept  1 passages to cut, 0 texts to embed\n" in ran.out
    assert "group sentence  kept  2 passages to cut" in ran.out
    assert set(Corpus(str(store)).latest().sources()) == {"salt.txt", "tides.md"}


def test_a_file_that_cannot_be_read_is_listed_with_the_reason(spolia: Spolia, notes: Path, tmp_path: Path) -> None:
    (notes / "bad.json").write_bytes(bytes(range(128, 168)))
    options = (notes, "--store", tmp_path / "n.spolia", "--no-vectors")
    ran, plan = spolia("plan", *options), spolia("plan", *options, "--json").json
    assert plan["failed"] == spolia("sync", *options, "--json").json["failed"]
    assert "  failed   bad.json: its encoding is unknown: it is not UTF-8" in ran.out


def test_vectors_can_come_later(spolia: Spolia, notes: Path, store: Path) -> None:
    ran = spolia("plan", notes, "--store", store, "--vectors")
    assert "group chunk  embedded  0 passages to cut, 2 texts to embed" in ran.out
    assert "since embeddings: none there" in ran.out
    assert f"spolia sync {notes} --store {store} --vectors\n" in ran.err
    first, second = (spolia("sync", notes, "--store", store, "--vectors", "--json").json for _ in range(2))
    assert (first["unchanged"], first["chunks"], first["embedded"]) == (2, 0, 2)
    assert (second["unchanged"], second["chunks"], second["embedded"]) == (2, 0, 0)


def test_a_rebuild_is_explained(spolia: Spolia, notes: Path, store: Path, tmp_path: Path) -> None:
    spolia("groups", "build", "sentence", "--store", store)
    (file := tmp_path / "g.yaml").write_text("chunk: {transform: Paragraphs}")
    refused = spolia("index", notes, "--store", store, "--no-vectors", "--groups", file)
    assert refused.code == 3
    assert "spolia plan" in refused.err
    ran = spolia("plan", notes, "--store", store, "--groups", file, "--no-vectors", "--fast")
    assert ran.code == 0
    assert "group chunk  rebuilt" in ran.out
    assert "since transform: SlidingWindow there, Paragraphs here" in ran.out
    assert "group sentence  kept" in ran.out
    assert f"spolia sync {notes} --store {store} --groups {file} --no-vectors --rebuild;" in ran.err
    assert set(Corpus(str(store)).latest().groups()) == {"chunk", "sentence"}


def test_what_models_would_be_asked_for_and_cost_is_shown(
    spolia: Spolia, notes: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = ChatModel("small", "http://127.0.0.1:9/v1", usd_per_million=(1000.0, 5000.0))
    (notes / "salt.txt").rename(notes.parent / "salt.txt")
    (notes / "tides.md").rename(notes.parent / "tides.md")
    corpus = Corpus(str(store.parent / "empty.spolia"))
    (notes / "blank.txt").write_text(" ")
    sync(notes, corpus, groups=[corpus.group("short", Definition(Summary(model, max_tokens=100)))])
    (notes / "salt.txt").write_text("Salt is dug in mines. It is sold.")
    ran = spolia("plan", notes, "--store", corpus.path)
    assert re.search(r"1 prompts to models: about \d+ tokens, replies of at most 100, at most \$0\.\d\d", ran.out)
    assert "(2 calls at most, with retries)" in ran.out
    (group,) = [
        planned_group
        for planned_group in spolia("plan", notes, "--store", corpus.path, "--json").json["groups"]
        if planned_group["prompts"]
    ]
    assert group["cost_usd"] == pytest.approx((group["input_tokens"] * 1000 + 100 * 5000) / 1e6)


def test_groups_of_a_file_are_planned_and_then_made(spolia: Spolia, notes: Path, store: Path, tmp_path: Path) -> None:
    file = tmp_path / "groups.yaml"
    file.write_text(
        "chunk:\n  transform: Sentences\nsmall: {transform: {SlidingWindow: {size: 4, overlap: 0}}, parent: chunk}\n"
    )
    options = ("--store", store, "--groups", file, "--no-vectors")
    plan = spolia("plan", notes, *options, "--json").json
    changes = {group["group"]: (group["change"], group["nodes"]) for group in plan["groups"]}
    assert plan["rebuild"]
    assert changes["chunk"] == ("rebuilt", 4)
    assert changes["small"][0] == "new"
    assert plan["command"] == f"spolia sync {notes} --store {store} --groups {file} --no-vectors --rebuild"
    assert spolia("sync", notes, *options).code == 3
    assert spolia(*plan["command"].split()[1:]).code == 0
    assert dict(Corpus(str(store)).latest().stats().nodes) == {name: nodes for name, (_, nodes) in changes.items()}
    later_plan = spolia("plan", notes, *options, "--json").json
    assert {(group["change"], group["nodes"], *group["why"]) for group in later_plan["groups"]} == {("kept", 0)}
    file.write_text(file.read_text().replace("size: 4", "size: 5"))
    second_plan = spolia("plan", notes, *options, "--json").json
    changed = {group["group"]: group for group in second_plan["groups"]}
    assert changed["small"]["why"] == ["transform.SlidingWindow.size: 4 there, 5 here"]
    assert (changed["chunk"]["change"], changed["small"]["change"]) == ("kept", "rebuilt")
    assert spolia(*second_plan["command"].split()[1:]).code == 0
    assert "size: 5" in spolia("groups", "show", "small", "--store", store).out
    later_plan = spolia("plan", notes, *options, "--json").json
    assert {(group["change"], group["nodes"], *group["why"]) for group in later_plan["groups"]} == {("kept", 0)}
    assert spolia("sync", notes, *options).code == 0


def test_a_group_that_a_model_makes_is_planned_before_it_is_added(
    spolia: Spolia, notes: Path, store: Path, tmp_path: Path
) -> None:
    (tmp_path / "g.yaml").write_text("short: {transform: {Summary: {llm: {use: llm}}}}")
    options = ("--groups", tmp_path / "g.yaml", "--llm", "http://127.0.0.1:9/v1", "--model", "small")
    ran = spolia("plan", notes, "--store", store, *options)
    assert "group short  new" in ran.out
    assert "2 prompts to models" in ran.out
    assert "--llm http://127.0.0.1:9/v1 --model small" in ran.err


def test_sources_of_a_file_are_planned(spolia: Spolia, notes: Path, store: Path, tmp_path: Path) -> None:
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "peat.txt").write_text("Peat burns. It is slow.")
    (tmp_path / "s.yaml").write_text(f"- RemoteFiles: {{url: 'file://{tmp_path}/more'}}\n")
    options = ("--store", store, "--sources", tmp_path / "s.yaml", "--no-vectors", "--json")
    plan = spolia("plan", notes, *options).json
    assert plan["new"] == [f"file://{tmp_path}/more/peat.txt"]
    assert (plan["unchanged"], plan["groups"][0]["nodes"]) == (2, 1)
    assert spolia("plan", *options).json["new"] == plan["new"]
    assert spolia("plan", notes, *options, "--fast").json["unasked"] == [f"file://{tmp_path}/more/"]
    assert spolia(*plan["command"].split()[1:]).code == 0
    assert spolia("plan", notes, *options).json["unchanged"] == 3


@pytest.mark.parametrize(
    "option", ["--vectors", "--sources", "--groups", "--known", "--llm", "--readers", "--workers", "--file-mb"]
)
def test_a_plan_takes_what_sync_takes(spolia: Spolia, option: str) -> None:
    assert all(option in spolia(command, "--help").out for command in ("plan", "sync", "index"))


def test_a_plan_for_no_folder_is_refused(spolia: Spolia, store: Path, tmp_path: Path) -> None:
    assert spolia("plan", tmp_path / "nope", "--store", store, "--json").code == 2
