"""Every file that Spolia writes is in the table of files: its damage is found, and only its owner may read it."""

from __future__ import annotations

import ast
import gc
import grp
import os
import random
import re
import shutil
import sqlite3
import stat
from contextlib import closing
from pathlib import Path

import pytest

import spolia as package
from spolia import Corpus, sync
from spolia.cli.written_files import (
    MECHANISMS,
    OTHER_FILES,
    STORE_FILES,
    damaged_elsewhere,
    damaged_files,
    kind_elsewhere,
    kind_of,
    skip_content,
    skip_for_store_check,
)
from spolia.errors import SpoliaError
from spolia.stores.open_store import forget
from spolia.testing import HashingEmbedder
from spolia.testing.other_files import make_other_files, read_other
from spolia.testing.stores.service import READERS, content_of, damage_byte, make_service_files

from .conftest import Spolia

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that was indexed, searched and served, by a process whose umask hides nothing."""
    folder = tmp_path_factory.mktemp("served")
    (folder / "notes").mkdir()
    for number in range(6):
        (folder / "notes" / f"{number}.md").write_text(
            f"# Mill {number}\n\nThe miller built {number} mills by the river."
        )
    corpus = Corpus(folder / "notes.spolia")
    previous_mask = os.umask(0)
    try:
        sync(folder / "notes", corpus, embedder=HashingEmbedder(8), groups=[corpus.group("sentence")])
        make_service_files(corpus)
    finally:
        os.umask(previous_mask)
    forget(corpus.backend)
    gc.collect()  # closes databases
    for path in Path(corpus.path).glob("*.db"):
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return Path(corpus.path)


@pytest.fixture
def store(served: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(served, tmp_path / "notes.spolia"))


def modes(folder: Path) -> dict[str, int]:
    return {path.relative_to(folder).as_posix(): stat.S_IMODE(path.lstat().st_mode) for path in folder.rglob("*")}


def contents(folder: Path) -> dict[str, bytes]:
    """What is in all files, but for the empty log and its index that SQLite makes while a database is open."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.suffix != ".db-shm")
    return {str(path): content for path in files if (content := path.read_bytes())}


def test_every_file_is_in_the_table(served: Path) -> None:
    files = [path.relative_to(served).as_posix() for path in served.rglob("*") if path.is_file()]
    assert [name for name in files if kind_of(name) is None] == []
    never = {"graphs/*", "databases/*", "spool/*", "damaged/*"}  # of large groups, of databases, of runs and repairs
    assert {kind.pattern for kind in STORE_FILES} - {kind.pattern for name in files if (kind := kind_of(name))} <= {
        *never, "*.db-shm", "*.db-wal",
    }  # fmt: skip


def test_only_the_owner_may_read_what_is_written_whatever_the_umask(served: Path) -> None:
    assert {name: oct(mode) for name, mode in modes(served).items() if mode & 0o077} == {}


def test_a_store_shared_with_a_group_and_what_is_written_later_is_readable_by_it(
    spolia: Spolia, served: Path, store: Path
) -> None:
    group = grp.getgrgid(os.getgid()).gr_name
    assert spolia("repair", "--store", store, "--shared-group", group).code == 0
    (served.parent / "notes" / "owls.md").write_text("Owls hunt mice by night.")
    previous_mask = os.umask(0o077)
    try:
        sync(served.parent / "notes", Corpus(store), embedder=HashingEmbedder(8))
    finally:
        os.umask(previous_mask)
    unreadable = {name: oct(mode) for name, mode in modes(store).items() if not mode & 0o040 or mode & 0o007}
    assert {name for name in unreadable if not name.startswith("spool")} == set()
    assert spolia("repair", "--store", store, "--permissions").code == 0
    assert not any(mode & 0o077 for mode in modes(store).values())


CHECKED = [kind for kind in STORE_FILES if kind.check not in (skip_for_store_check, skip_content)]


@pytest.mark.parametrize("kind", CHECKED, ids=lambda kind: kind.pattern)
def test_a_changed_byte_is_found_or_changes_nothing(store: Path, kind: object) -> None:
    generator = random.Random(17)
    files = [
        path for path in store.rglob("*") if path.is_file() and kind_of(path.relative_to(store).as_posix()) is kind
    ]
    assert files
    for _ in range(25):
        file = generator.choice(files)
        whole, place = content_of(file), generator.randrange(file.stat().st_size)
        with damage_byte(file, place, generator.randrange(1, 256)):
            if not any(file_damage.path == file for file_damage in damaged_files(store)):
                assert content_of(file) == whole, (file, place)


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("damage", ["half", "empty", "zeros", "text"])
def test_a_damaged_file_gives_a_named_error_or_is_made_again(store: Path, name: str, damage: str) -> None:
    content = (store / name).read_bytes()
    (store / name).write_bytes(
        {
            "half": content[: len(content) // 2],
            "empty": b"",
            "zeros": bytes(len(content)),
            "text": b"no such file " * 99,
        }[damage]
    )
    file_damages = [file_damage for file_damage in damaged_files(store) if file_damage.path == store / name]
    words = ""
    try:
        READERS[name](store)
    except SpoliaError as error:
        words = str(error)
    assert not words or (name in words and file_damages)
    if kind_of(name).if_damaged == "restored":  # type: ignore[union-attr]
        assert (store / name).exists()
        assert not (store / "damaged").exists()


def test_the_doctor_finds_damage_beside_the_database_and_writes_nothing(spolia: Spolia, store: Path) -> None:
    for name in ("jobs.db", "runs.db"):
        content = (store / name).read_bytes()
        (store / name).write_bytes(content[: len(content) // 2])
    contents_before = contents(store)
    ran = spolia("doctor", "--deep", "--store", store, "--json")
    assert (ran.code, ran.json["sound"], len(ran.json["damaged"])) == (3, False, 2)
    quick = spolia("doctor", "--store", store, "--json")
    assert (quick.code, len(quick.json["damaged"])) == (3, 2)  # their first bytes tell
    assert contents(store) == contents_before


def test_a_repair_sets_aside_what_can_be_made_again_and_names_what_cannot(spolia: Spolia, store: Path) -> None:
    whole = {name: (store / name).read_bytes() for name in ("jobs.db", "runs.db")}
    for name, content in whole.items():
        (store / name).write_bytes(content[: len(content) // 2])
    ran = spolia("repair", "--store", store, "--json")
    assert (ran.code, len(ran.json["repaired"]), len(ran.json["left"])) == (3, 1, 1)
    assert "jobs.db is damaged" in ran.json["left"][0]
    assert (store / "jobs.db").read_bytes() == whole["jobs.db"][: len(whole["jobs.db"]) // 2]
    assert (store / "damaged" / "1" / "runs.db").stat().st_size == len(whole["runs.db"]) // 2
    (store / "jobs.db").write_bytes(whole["jobs.db"])
    assert spolia("search", "mills", "--store", store).code == 0
    assert spolia("doctor", "--deep", "--store", store).code == 0


def test_a_search_refuses_a_node_whose_text_changed(spolia: Spolia, store: Path) -> None:
    path = store / "corpus.db"
    path.write_bytes(path.read_bytes().replace(b"built 3 mills", b"built 9 mills"))
    ran = spolia("search", "3 mills", "--store", store)
    assert ran.code == 3
    assert "nodes changed since they were written" in ran.err


OPENERS = {"open", "private"}
WRITERS = {
    *("write_text", "write_bytes", "write_rows", "write_arrays", "write_table", "replace_files", "save_pretrained"),
    *("mkstemp", "copyfile", "copytree", "touch", "savez", "save", "NamedTemporaryFile", "export_store"),
}


HINTS = re.compile(
    r"""O_CREAT|connect\(|checksums\.write|["'][rb]?[wax][bt+]*["']|r\+b|\.save\(|""" + "|".join(WRITERS - {"save"})
)


IN_MEMORY_OR_DATABASE = (
    "self.writer",
    "self.staging",
    "layout",
    "self.layout",
    "replies",
    "cache",
    "self.bases",
    "documents.bases",
)
"""What has a method of the same name and writes no file itself."""


def to_a_server(call: ast.Call) -> bool:
    """Whether a connection leads to the address of a PostgreSQL server."""
    return isinstance(call.func, ast.Name) and ast.unparse(call.args[0]) in ("address", "self.address")


def writes(call: ast.Call) -> bool:
    """Whether a call writes a file, as far as its words tell."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    receiver = ast.unparse(call.func.value) if isinstance(call.func, ast.Attribute) else ""
    arguments = [*call.args, *(keyword.value for keyword in call.keywords)]
    modes = [str(argument.value) for argument in arguments if isinstance(argument, ast.Constant)]
    return (
        (name in OPENERS and (any(set(mode) <= {*"rwaxbt+"} and {*mode} & {*"wax+"} for mode in modes)))
        or (name in OPENERS and "O_CREAT" in ast.unparse(call))
        or (name == "connect" and receiver in ("", "sqlite3", "record_files") and not to_a_server(call))
        or (name == "write" and receiver == "checksums")
        or (name in WRITERS and receiver not in IN_MEMORY_OR_DATABASE)
    )


def test_every_module_that_writes_a_file_is_in_the_table() -> None:
    root = Path(package.__file__).parent
    writing = set()
    for path in root.rglob("*.py"):
        module = ".".join(path.relative_to(root).with_suffix("").parts)
        text = path.read_text("utf-8")
        if module.startswith("testing.") or not any(
            f"{word}(" in text for word in {*OPENERS, *WRITERS, "connect", "write"}
        ):
            continue  # parsing takes most of the time
        if any(writes(call) for call in ast.walk(ast.parse(text)) if isinstance(call, ast.Call)):
            writing.add(module)
    listed = {writer for kind in (*STORE_FILES, *OTHER_FILES) for writer in kind.writers}
    assert writing - listed == set(MECHANISMS)
    assert listed - writing <= {"training.training", "stores.portable"}, "writes no longer: take it out of the table"


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory, served: Path) -> Path:
    folder = tmp_path_factory.mktemp("elsewhere")
    make_other_files(folder, Corpus(served))
    return folder


def test_what_is_written_elsewhere_is_in_the_table_whole_and_known_to_the_doctor(
    spolia: Spolia, elsewhere: Path
) -> None:
    files = [path for path in elsewhere.rglob("*") if path.is_file()]
    kinds = {kind_elsewhere(path) for path in files}
    assert None not in kinds
    assert {kind for kind in OTHER_FILES if kind.check is not skip_content} - kinds == {
        kind
        for kind in OTHER_FILES
        if kind.pattern == "*.db"  # the same check as `runs.db`
    }
    assert [file_damage for path in files for file_damage in damaged_elsewhere(path)] == []
    (elsewhere / "study" / "best.yaml").write_text("flow: bm25\n")
    assert spolia("doctor", elsewhere / "study", elsewhere / "baseline.json", "--json").json["sound"] is True
    assert "cannot check this file" in spolia("doctor", elsewhere / "study" / "best.yaml").err


NAMES = [
    *(
        "file_hashes/*.json",
        "studies/*.json",
        "looks.jsonl",
        "scores.experiment",
        "study/study.json",
        "study/pilot.json",
    ),
    *("study/warm_start.json", "study/finished.json", "study/tuned.json", "ranker/checkpoint.npz", "ranker/card.json"),
    *("ranker/weights.json", "reader/weights.safetensors", "baseline.json", "traffic.json", "notes.zip"),
]


@pytest.mark.parametrize("name", NAMES)
def test_a_changed_byte_elsewhere_is_found_or_changes_nothing_and_nothing_is_lost(
    elsewhere: Path, tmp_path: Path, name: str
) -> None:
    (source,) = elsewhere.glob(name)
    folder = Path(shutil.copytree(source.parent, tmp_path / source.parent.name, ignore=shutil.ignore_patterns("study")))
    file, content, generator = folder / source.name, source.read_bytes(), random.Random(17)
    whole = read_other(file)
    ends = [b"", bytes(len(content)), content[: len(content) * 2 // 5]]
    for damaged in [*ends, *(change_byte(content, generator) for _ in range(25))]:
        file.write_bytes(damaged)
        file_damages = [file_damage for file_damage in damaged_elsewhere(file) if file_damage.path == file]
        content_now, error = outcome(file)
        assert file_damages or (content_now == whole and not error) or not damaged
        assert not error or file.name in error or str(folder) in error
        assert not damaged or any(path.read_bytes() == damaged for path in folder.rglob("*") if path.is_file())


def outcome(file: Path) -> tuple[object, str]:
    try:
        return read_other(file), ""
    except SpoliaError as error:
        return None, str(error)


def change_byte(content: bytes, generator: random.Random) -> bytes:
    mutable = bytearray(content)
    mutable[generator.randrange(len(mutable))] ^= generator.randrange(1, 256)
    return bytes(mutable)
