"""What is not a store, or cannot be read or written, is refused in words, and nothing is lost."""

from __future__ import annotations

import grp
import json
import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing, suppress
from pathlib import Path

import pytest

from spolia.errors import NotAStore, StoreCorrupt, StoreError, StoreTooNew
from spolia.indexing.sync.repair import repair
from spolia.private_files import share
from spolia.stores.backends.sql import SCHEMA_VERSION
from spolia.stores.corpus import Corpus
from spolia.stores.writer import Writer
from tests.stores.scenario import FIRST, SECOND, add_missing_vectors, put, sync

ROOT = Path(__file__).resolve().parents[2]
NOBODY: frozenset[str] = frozenset()


def refusal_of(path: Path) -> str:
    """What is said of a path that is not a store, whatever one does with it; it is not touched."""
    previous_content = path.read_bytes() if path.is_file() else None
    messages = set()
    for use in (Corpus(str(path)).snapshot, Corpus(str(path)).create, Corpus(str(path)).writer().__enter__):
        with pytest.raises(NotAStore) as error:
            use()
        messages.add(str(error.value))
    assert previous_content == (path.read_bytes() if path.is_file() else None)
    assert not (path / "writer.lock").exists()
    assert len(messages) == 1, messages
    return messages.pop()


def other_database(path: Path) -> Path:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE bookmarks (url)")
        connection.commit()
    return path


def test_nothing_there(fast_folder: Path) -> None:
    with pytest.raises(NotAStore, match=r"Store not found: .*none does not exist\. Make one: spolia index FOLDER"):
        Corpus(str(fast_folder / "none")).snapshot()
    (fast_folder / "empty").mkdir()
    with pytest.raises(NotAStore, match=r"is an empty folder\. Make one"):
        Corpus(str(fast_folder / "empty")).snapshot()
    assert Corpus(str(fast_folder / "empty")).create().snapshot().generation == 0


def test_a_text_file(fast_folder: Path) -> None:
    (fast_folder / "text").write_text("hello")
    assert "a file, and a store is a folder" in refusal_of(fast_folder / "text")


def test_a_folder_of_something_else(fast_folder: Path) -> None:
    (fast_folder / "photos").mkdir()
    (fast_folder / "photos" / "1.jpg").write_text("")
    message = refusal_of(fast_folder / "photos")
    assert "a folder without corpus.db; it was not touched. Name another path" in message
    assert f"indexed first: spolia index {fast_folder / 'photos'} --store {fast_folder / 'photos'}.spolia." in message


@pytest.mark.slow
def test_the_database_alone_is_enough_to_go_on(fast_folder: Path) -> None:
    corpus, alone = Corpus(str(fast_folder / "made")).create(), Corpus(str(fast_folder / "alone"))
    sync(corpus, FIRST)
    (fast_folder / "alone").mkdir()
    with closing(sqlite3.connect(fast_folder / "made" / "corpus.db")) as connection:
        connection.execute("VACUUM INTO ?", (str(fast_folder / "alone" / "corpus.db"),))
    sync(alone, SECOND)
    sync(corpus, SECOND)
    assert alone.snapshot().check() == []
    hits, here = (store.snapshot().search("chunk", "temples", 9, NOBODY) for store in (corpus, alone))
    assert len(here) == len(hits) > 0


def test_a_database_of_another_application(fast_folder: Path) -> None:
    other_path = other_database(fast_folder / "places.sqlite")
    assert "another application's SQLite database" in refusal_of(other_path)
    (fast_folder / "folder").mkdir()
    shutil.copy(other_path, fast_folder / "folder" / "corpus.db")
    assert "another application's SQLite database (application id 0x0" in refusal_of(fast_folder / "folder")


def test_a_text_named_like_the_database(fast_folder: Path) -> None:
    (fast_folder / "corpus.db").write_text("hello " * 100)
    assert "corpus.db is not a database" in refusal_of(fast_folder)


def test_a_newer_schema(corpus: Corpus) -> None:
    with closing(sqlite3.connect(Path(corpus.path) / "corpus.db")) as connection:
        connection.execute("ALTER TABLE documents ADD COLUMN mood TEXT")
        connection.execute("PRAGMA user_version = 99")
    with pytest.raises(
        StoreTooNew, match=rf"schema 99.* this one knows up to {SCHEMA_VERSION}\. Write: pip install -U spolia"
    ):
        Corpus(corpus.path + "/../notes.spolia").group().corpus.writer().__enter__()
    copy = shutil.copytree(corpus.path, corpus.path + "2")
    with pytest.raises(StoreTooNew):
        Corpus(copy).snapshot()


@pytest.mark.parametrize("number", [0, SCHEMA_VERSION - 1, 99])
def test_a_number_of_a_schema_that_its_tables_are_not_of_is_damage(corpus: Corpus, number: int) -> None:
    with closing(sqlite3.connect(Path(corpus.path) / "corpus.db")) as connection:
        connection.execute(f"PRAGMA user_version = {number}")
    with pytest.raises(StoreCorrupt, match=rf"says that it has schema {number}, .* Write: spolia repair --store "):
        Corpus(shutil.copytree(corpus.path, corpus.path + "2")).snapshot()


def test_an_empty_database_is_called_empty(corpus: Corpus, fast_folder: Path) -> None:
    copy = Path(shutil.copytree(corpus.path, fast_folder / "copy"))
    for path in copy.glob("corpus.db*"):
        path.unlink()
    (copy / "corpus.db").touch()
    for use in (lambda: Corpus(copy).snapshot(), lambda: repair(Corpus(copy))):
        with pytest.raises(StoreCorrupt, match=r"is empty: the store has lost its .* rm -r .*, then spolia index"):
            use()
    (fast_folder / "other").mkdir()
    (fast_folder / "other" / "corpus.db").touch()
    for use in (lambda: Corpus(fast_folder / "other").snapshot(), lambda: repair(Corpus(fast_folder / "other"))):
        with pytest.raises(NotAStore, match=r"is an empty file; it was not touched. Remove it: rm "):
            use()


def test_a_store_deleted_while_it_is_read(corpus: Corpus) -> None:
    pinned = corpus.snapshot()
    hits = pinned.search("chunk", "temples", 1, NOBODY)
    shutil.rmtree(corpus.path)
    with pytest.raises(NotAStore, match=r"was deleted while it was open\. Write: spolia index"):
        corpus.snapshot()
    assert pinned.hits(hits, NOBODY)[0].node.uri == "b.txt"  # what was pinned is still open
    sync(corpus.create(), SECOND)
    assert corpus.snapshot().generation == 1  # another store at the same path


def test_a_store_deleted_while_it_is_written(corpus: Corpus) -> None:
    def write() -> None:
        with corpus.writer() as writer:
            put(writer, "c.txt", "A zeppelin.")
            add_missing_vectors(writer)
            shutil.rmtree(corpus.path)

    with pytest.raises(NotAStore, match="nothing could be published"):
        write()
    assert not Path(corpus.path).exists()


AS_SOMEBODY_ELSE = """
import json, mmap, os, resource, sys, tempfile
import numpy
from spolia.errors import SpoliaError
from spolia.stores.vectors import external_index, segment_search, segments
from spolia.stores.backends.sqlite import connection, folder
from spolia.stores import files, integrity, writer
from spolia.stores.lexical import index
from spolia.stores.corpus import Corpus
from spolia.indexing.sync.repair import repair
from spolia.private_files import share
from spolia.stores.backends.sql import SCHEMA_VERSION
from tests.stores.scenario import EMBEDDER, FIRST, embed, put, sync
corpus, nobody, said = Corpus(sys.argv[1]), frozenset(), {}
def tried(name, do):
    try:
        said[name] = do()
    except SpoliaError as error:
        said[name] = f"{type(error).__name__}: {error}"
if sys.argv[2] == "nobody":
    os.setgroups([]), os.setgid(65534), os.setuid(65534)
else:
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]),) * 2)
def written():
    with corpus.writer(0) as writer:
        for number in range(300):
            put(writer, f"{number}.txt", f"{number} and " + f"many long words {number} " * 200)
        missing = list(writer.unembedded("chunk", EMBEDDER))
        writer.add_vectors(EMBEDDER, [key for key, _ in missing], embed([text for _, text in missing]))
tried("write", written)
tried("search", lambda: len(corpus.snapshot().search("chunk", "temples", 3, nobody)))
tried("nearest", lambda: len(corpus.snapshot().nearest("chunk", EMBEDDER, embed(["temples"])[0], 3, nobody)))
tried("check", lambda: corpus.snapshot().check())
tried("create", lambda: repr(Corpus(sys.argv[1] + "2").create()))
print(json.dumps(said))
"""


def run_as_other_user(corpus: Corpus, user: str) -> dict[str, object]:
    command = [sys.executable, "-c", AS_SOMEBODY_ELSE, corpus.path, user]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    outcomes: dict[str, object] = json.loads(done.stdout)
    return outcomes


needs_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else")


@pytest.mark.slow
@needs_root
@pytest.mark.parametrize("is_open", [False, True])
def test_a_store_that_may_only_be_read_can_be_searched(corpus: Corpus, is_open: bool) -> None:
    if is_open:  # SQLite's side files are there, then
        corpus.snapshot()
        with corpus.writer() as writer:
            writer.touch(writer.sources()["a.txt"].but(mtime_ns=7))
    share(corpus.path, grp.getgrgid(65534).gr_name)
    outcomes = run_as_other_user(corpus, "nobody")
    assert (outcomes["search"], outcomes["nearest"], outcomes["check"]) == (1, 3, [])
    assert "StoreError" in str(outcomes["write"])
    assert "it may only be read" in str(outcomes["write"])
    assert "Searching works. To write, get the permission" in str(outcomes["write"])
    assert "Name a path in a folder of your own" in str(outcomes["create"])


@pytest.mark.slow
@needs_root
def test_a_store_that_may_not_be_read(corpus: Corpus) -> None:
    outcomes = run_as_other_user(corpus, "nobody")
    for use in ("write", "search", "nearest", "check"):
        assert "it may not be read" in str(outcomes[use])
        assert f"spolia repair --shared-group GROUP --store {corpus.path}" in str(outcomes[use])


@pytest.mark.slow
@pytest.mark.parametrize("limit", [3_000, 40_000, 200_000, 900_000, 1_300_000])
def test_a_full_disk_loses_nothing_and_can_be_read(corpus: Corpus, limit: int) -> None:
    """Files may not grow beyond a limit: each step of writing comes to it at another one."""
    outcomes = run_as_other_user(corpus, str(limit))
    assert "the disk is full, or a quota or limit is reached" in str(outcomes["write"])
    assert "Published data is complete. Free some space and repeat." in str(outcomes["write"])
    assert (outcomes["search"], outcomes["nearest"], outcomes["check"]) == (1, 3, [])
    sync(corpus, FIRST)
    assert corpus.snapshot().check() == []
    assert not list(Path(corpus.path).rglob("*.tmp"))


def test_a_full_database_loses_nothing(corpus: Corpus) -> None:
    writer = Writer(corpus.backend, 0)
    writer._connection.execute("PRAGMA max_page_count = 60")

    def fill() -> None:
        for number in range(300):
            put(writer, f"{number}.txt", f"{number} and " + f"many long words {number} " * 200)

    with pytest.raises(StoreError, match="the disk is full"):
        fill()
    with suppress(StoreError):  # SQLite takes back one change, or all of them, and the writer ends
        put(writer, "c.txt", "more")
    writer.close()
    assert sync(corpus, SECOND) > 0
    assert corpus.snapshot().check() == []


def test_a_path_where_no_store_can_be_made_asks_for_another(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match=r"could not be made.*Name another path for the store") as raised:
        Corpus(tmp_path / "file" / "store").create()
    assert "repair" not in str(raised.value)
