"""`spolia doctor --deep` and `spolia repair` on a store in which a byte has changed."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from .conftest import Spolia

pytestmark = pytest.mark.slow


@pytest.fixture
def store(spolia: Spolia, tmp_path: Path) -> Path:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "owls.md").write_text("Owls hunt mice by night.\n")
    (tmp_path / "docs" / "salt.txt").write_text("Salt is dug in mines.\n")
    assert spolia("index", tmp_path / "docs", "--store", tmp_path / "d.spolia", "--no-vectors").code == 0
    with closing(sqlite3.connect(tmp_path / "d.spolia" / "corpus.db")) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return tmp_path / "d.spolia"


def change_database(store: Path) -> None:
    """Wherever the database says owls, it says awls."""
    path = store / "corpus.db"
    content = path.read_bytes()
    assert b"Owls hunt" in content
    path.write_bytes(content.replace(b"Owls hunt", b"Awls hunt"))


def test_a_changed_byte_is_found_by_the_doctor_and_mended(spolia: Spolia, store: Path) -> None:
    assert spolia("doctor", "--deep", "--store", store, "--json").json["sound"] is True
    change_database(store)
    ran = spolia("doctor", "--deep", "--store", store, "--json")
    assert (ran.code, ran.json["sound"]) == (3, False)
    assert ["rows of documents" in message or "rows of nodes" in message for message in ran.json["damaged"]] == [
        True,
        True,
    ]
    ran = spolia("repair", "--store", store, "--json")
    assert (ran.code, ran.json["left"]) == (0, [])
    assert len(ran.json["repaired"]) == 2
    ran = spolia("doctor", "--deep", "--store", store, "--json")
    assert (ran.code, ran.json["sound"], ran.json["damaged"]) == (0, True, [])
    assert "Owls hunt mice" in spolia("search", "mice", "--store", store).out


def test_what_cannot_be_read_again_is_named(spolia: Spolia, store: Path, tmp_path: Path) -> None:
    change_database(store)
    (tmp_path / "docs").rename(tmp_path / "elsewhere")
    ran = spolia("repair", "--store", store)
    assert ran.code == 3
    assert "'owls.md' was damaged and could not be read again" in ran.out
    ran = spolia("doctor", "--store", store)
    assert (ran.code, "1 damaged document not read again: owls.md" in " ".join(ran.out.split())) == (3, True)
    assert "hunt mice" not in spolia("search", "mice salt", "--store", store).out
    assert spolia("index", tmp_path / "elsewhere", "--store", store, "--no-vectors").code == 0
    assert spolia("doctor", "--deep", "--store", store).code == 0


def test_a_sound_store_stays_as_it_is(spolia: Spolia, store: Path) -> None:
    ran = spolia("repair", "--store", store, "--json")
    assert (ran.code, ran.json["repaired"], ran.json["left"]) == (0, [], [])
    assert spolia("doctor", "--deep").code == 2


def test_no_command_shows_a_password_that_stands_in_a_wrong_address(spolia: Spolia) -> None:
    for store in ("postgresql:ann:hunter2@db/texts", "host=db password=hunter2"):
        for command in (("doctor",), ("repair",), ("search", "owls"), ("groups", "list")):
            ran = spolia(*command, "--store", store)
            assert (ran.code, "hunter2" in ran.out + ran.err) == (3, False), command
            assert "holds a password" in ran.out + ran.err


def test_of_many_lines_the_first_ones_and_their_number_are_shown(
    spolia: Spolia, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spolia.cli.commands.doctor.SHOWN", 1)
    change_database(store)
    ran = spolia("repair", "--store", store)
    assert [line.partition(":")[0] for line in ran.out.splitlines()] == ["mended", "mended"]
    assert "mended: 1 more. To list all: spolia repair --json" in ran.out
