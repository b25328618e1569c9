"""`spolia export` and `spolia import`."""

from __future__ import annotations

from pathlib import Path

import pytest

from .conftest import Spolia

pytestmark = pytest.mark.slow


@pytest.fixture
def store(spolia: Spolia, tmp_path: Path) -> Path:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "salt.txt").write_text("Salt is dug in mines. It is sold in Kalundborg.")
    assert spolia("index", tmp_path / "notes", "--store", tmp_path / "n.spolia", "--no-vectors").code == 0
    return tmp_path / "n.spolia"


def test_a_store_goes_through_a_file(spolia: Spolia, store: Path, tmp_path: Path) -> None:
    out = spolia("export", store, tmp_path / "n.zip", "--json")
    assert (out.code, out.json["documents"], out.json["groups"]) == (0, 1, {"chunk": 1})
    assert out.json["bytes"] == (tmp_path / "n.zip").stat().st_size
    back = spolia("import", tmp_path / "n.zip", tmp_path / "m.spolia")
    assert back.code == 0
    assert "1 document with 1 text, 1 node of 'chunk', 0 vectors" in back.out
    command = ("search", "Kalundborg", "--json", "--store")
    hits = [spolia(*command, tmp_path / name).json["hits"] for name in ("n.spolia", "m.spolia")]
    assert hits[0] == hits[1] != []
    assert spolia("index", tmp_path / "notes", "--store", tmp_path / "m.spolia", "--json").json["unchanged"] == 1


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("export", "nowhere.spolia", "x.zip"), "Store not found"),
        (("import", "nowhere.zip", "x.spolia"), "There is no file"),
        (("import", "notes/salt.txt", "x.spolia"), "is not a ZIP file"),
        (("import", "n.zip", "n.spolia"), "not an empty one"),
        (("export", "n.spolia", "n.zip"), "there already"),
    ],
)
def test_what_cannot_be_done_is_said(
    spolia: Spolia, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, args: tuple[str, ...], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    spolia("export", "n.spolia", "n.zip")
    ran = spolia(*args, "--json")
    assert ran.code == 3
    assert said in ran.json["error"]["message"]
    assert not Path("x.spolia").exists()


def test_servers_that_a_strangers_file_names_are_told(spolia: Spolia, store: Path, tmp_path: Path) -> None:
    from spolia.testing.server import OpenAIServer, ServedReply

    (tmp_path / "g.yaml").write_text("transform: {Summary: {llm: {use: llm}}}\n")
    with OpenAIServer(ServedReply("Salt.")) as server:
        options = ("--llm", server.url, "--model", "m")
        spolia("groups", "add", "short", "--from", tmp_path / "g.yaml", "--store", store, *options)
    spolia("export", store, tmp_path / "n.zip")
    ran = spolia("import", tmp_path / "n.zip", tmp_path / "m.spolia")
    assert ran.code == 0
    assert f"Group 'short', when documents are added: Questions and passages go to {server.url}" in ran.err
