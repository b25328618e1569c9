"""`spolia plan`: what `spolia index` would do, and then does."""

from __future__ import annotations

from pathlib import Path

import pytest

from spolia.stores.corpus import Corpus

from .conftest import Spolia


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
        "group": "chunk", "change": "new", "why": [], "nodes": 2, "texts": 0, "known": 0, "calls": 0,
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


def test_a_rebuild_is_explained(spolia: Spolia, notes: Path, store: Path) -> None:
    spolia("groups", "build", "sentence", "--store", store)
    refused = spolia("index", notes, "--store", store, "--vectors")
    assert refused.code == 3
    assert "spolia plan" in refused.err
    ran = spolia("plan", notes, "--store", store, "--vectors", "--fast")
    assert ran.code == 0
    assert "group chunk  rebuilt" in ran.out
    assert "since embeddings: none there" in ran.out
    assert "group sentence  dropped" in ran.out
    assert "--rebuild" in ran.err
    assert set(Corpus(str(store)).latest().groups()) == {"chunk", "sentence"}


def test_a_plan_for_no_folder_is_refused(spolia: Spolia, store: Path, tmp_path: Path) -> None:
    assert spolia("plan", tmp_path / "nope", "--store", store, "--json").code == 2
