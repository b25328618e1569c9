"""Stores of earlier schemas are brought up to date when they are opened: whole or not at all, once, nothing lost."""

from __future__ import annotations

import signal
import sqlite3
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from spolia import Corpus, add_texts, sync
from spolia.errors import StoreError
from spolia.filters import Field
from spolia.indexing.readers.reader import versioned_name
from spolia.indexing.readers.registry import by_suffix
from spolia.indexing.sync.repair import repair
from spolia.stores import files
from spolia.stores.backends import sql
from spolia.stores.backends.sqlite import connection as migrations
from spolia.stores.corpus import POSTGRES
from spolia.stores.portable import export_store, import_store
from spolia.testing.hash_embedder import HashingEmbedder
from tests.stores.kills import start_child, wait_for_child
from tests.stores.stored import HERE, stored

pytestmark = pytest.mark.slow

BACKENDS = ("folder", "postgres")
SCHEMAS = sorted(migrations.STEPS)
ANN = frozenset({"ann"})
READERS = {
    "bridges.md": "markdown 4",
    "broken.pdf": "pdf 2",
    "old.zip": "zip 1",
    "old.zip/list.csv": "csv 1",
    "old.zip/salt.txt": "text 1",
    "page.html": "html 3",
    "secret/treasure.txt": "text 1",
    "temples.txt": "text 1",
    "text:faq.md": "markdown 4",
    "text:plain": "text 1",
}
UNREAD = ("broken.pdf", "text:faq.md", "text:plain")
"""Sources that are no files, or that failed."""
HOW: dict[str, Any] = {
    "embedder": HashingEmbedder(16),
    "fields": (Field("year", "int"),),
    "metadata": lambda uri: {"year": 1805},
    "access": lambda uri: ("ann",) if uri.startswith("secret/") else (),
}


@pytest.fixture(params=SCHEMAS)
def earlier_corpus(request: pytest.FixtureRequest, tmp_path: Path, address: str) -> Corpus:
    """A store of each earlier schema."""
    return stored(request.param, tmp_path, address)


def version(corpus: Corpus) -> int:
    """The schema of a store, asked of the database itself."""
    if corpus.path.startswith(POSTGRES):
        from spolia.stores.backends.postgres.address import parse_address
        from spolia.stores.backends.postgres.session import connect

        address = parse_address(corpus.path)
        with connect(address, 5) as connection:
            number: int = connection.execute(f"SELECT version FROM {address.schema}.spolia").fetchone()[0]  # type: ignore[index]
            return number
    with closing(sqlite3.connect(Path(corpus.path) / "corpus.db")) as connection:
        return int(connection.execute("PRAGMA user_version").fetchone()[0])


def search_uris(corpus: Corpus, text: str, access: frozenset[str] = frozenset()) -> list[str]:
    snapshot = corpus.latest()
    return [node.uri for node in snapshot.nodes([key for key, _ in snapshot.search("chunk", text, 9, access)], access)]


def test_everything_is_there(earlier_corpus: Corpus) -> None:
    snapshot = earlier_corpus.latest()
    assert version(earlier_corpus) == sql.SCHEMA_VERSION
    stats = snapshot.stats()
    assert (snapshot.generation, stats.documents, dict(stats.nodes)) == (4, 9, {"chunk": 8, "sentence": 12})
    assert {uri: row.reader for uri, row in snapshot.sources().items()} == READERS
    assert search_uris(earlier_corpus, "newer walls") == ["temples.txt"]
    assert search_uris(earlier_corpus, "questions stones") == ["text:faq.md", "temples.txt"]
    assert (search_uris(earlier_corpus, "treasure"), search_uris(earlier_corpus, "treasure", ANN)) == (
        [],
        ["secret/treasure.txt"],
    )
    (vector,) = HashingEmbedder(16).embed(["The moon causes the tides."], kind="passage")
    ((key, score), *_) = snapshot.nearest("chunk", "hashing-16", vector, 1, frozenset())
    assert (snapshot.nodes([key])[0].uri, round(score, 1)) == ("page.html", 0.9)
    assert snapshot.schema == (Field("year", "int"),)
    assert snapshot.check(deep=True) == []


def test_only_readers_that_changed_read_again_nothing_is_embedded_and_texts_without_files_stay(
    earlier_corpus: Corpus, tmp_path: Path
) -> None:
    previous_texts = texts(earlier_corpus)
    today = {reader.name: versioned_name(reader) for reader in by_suffix().values()}
    reread_count = sum(
        today.get(name.partition(" ")[0], name) != name for uri, name in READERS.items() if uri not in UNREAD
    )
    report = sync(tmp_path / "notes", earlier_corpus, **HOW)
    assert (report.added, report.changed, report.removed, report.unchanged) == (0, reread_count, 0, 7 - reread_count)
    assert report.embedded == 0
    assert texts(earlier_corpus) == previous_texts
    add_texts(earlier_corpus, {"plain": "A text without a file."}, **HOW)
    assert search_uris(earlier_corpus, "text without file") == ["text:plain"]
    assert earlier_corpus.latest().check() == []


def texts(corpus: Corpus) -> set[tuple[str, str]]:
    snapshot = corpus.latest()
    return {(node.uri, node.text) for group in ("chunk", "sentence") for node in snapshot.all_nodes(group, ANN)}


def test_a_store_that_was_brought_up_to_date_has_the_tables_of_a_new_one(
    earlier_corpus: Corpus, tmp_path: Path
) -> None:
    if earlier_corpus.path.startswith(POSTGRES):
        pytest.skip("the same statements, translated")
    earlier_corpus.latest()
    new = Corpus(str(tmp_path / "new.spolia")).create()
    tables = []
    for corpus in (earlier_corpus, new):
        with closing(sqlite3.connect(Path(corpus.path) / "corpus.db")) as connection:
            names = [row[0] for row in connection.execute("SELECT name FROM sqlite_schema ORDER BY name")]
            tables.append({name: connection.execute(f"PRAGMA table_xinfo({name})").fetchall() for name in names})
    assert tables[0] == tables[1]


def test_a_repair_brings_it_up_to_date_and_finds_nothing_damaged(earlier_corpus: Corpus) -> None:
    assert repair(earlier_corpus).repaired == ()
    test_everything_is_there(earlier_corpus)


def test_a_migration_that_fails_changes_nothing(earlier_corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    was = version(earlier_corpus)
    step = migrations.STEPS[was]

    def fail(connection: Any) -> None:
        step(connection)
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(migrations, "STEPS", {**migrations.STEPS, was: fail})
        for use in (earlier_corpus.latest, earlier_corpus.writer().__enter__):
            with pytest.raises((StoreError, OSError)):
                use()
    assert version(earlier_corpus) == was
    assert earlier_corpus.latest().check() == []


@pytest.mark.parametrize("point", [name for name in files.FAIL_POINTS if name.startswith("migrate.")])
def test_killed_while_it_is_brought_up_to_date_it_is_as_it_was(earlier_corpus: Corpus, point: str) -> None:
    was = version(earlier_corpus)

    def killed() -> None:
        files.arm(point)
        earlier_corpus.latest()

    assert wait_for_child(start_child(killed)) == -signal.SIGKILL
    assert version(earlier_corpus) == was
    assert earlier_corpus.latest().check() == []
    assert version(earlier_corpus) == sql.SCHEMA_VERSION


def test_two_that_open_it_at_once_bring_it_up_to_date_once(
    earlier_corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    was, steps, met = version(earlier_corpus), [], threading.Barrier(2)

    def count_step(connection: Any) -> None:
        steps.append(threading.get_ident())
        step(connection)

    step = migrations.STEPS[was]
    monkeypatch.setattr(migrations, "STEPS", {**migrations.STEPS, was: count_step})

    def open_it() -> None:
        met.wait()
        earlier_corpus.backend.connect_for_reading().close()

    threads = [threading.Thread(target=open_it) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(steps) == 1
    assert earlier_corpus.latest().check() == []


@pytest.mark.parametrize("address", ["folder"], indirect=True)
def test_it_may_be_brought_up_to_date_while_another_opens_it(
    earlier_corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    was, has_tables = version(earlier_corpus), migrations.has_tables_of_today

    def check_late(session: migrations.SqliteSession) -> bool:
        monkeypatch.setattr(migrations, "has_tables_of_today", has_tables)
        assert earlier_corpus.latest().check() == []
        return has_tables(session)

    monkeypatch.setattr(migrations, "has_tables_of_today", check_late)
    earlier_corpus.backend.connect_for_reading().close()
    assert was < version(earlier_corpus) == sql.SCHEMA_VERSION


@pytest.mark.parametrize("address", ["folder"], indirect=True)
def test_two_processes_that_open_it_at_once_bring_it_up_to_date_once(earlier_corpus: Corpus) -> None:
    def open_it() -> None:
        assert earlier_corpus.latest().generation == 4

    assert [wait_for_child(child) for child in [start_child(open_it) for _ in range(4)]] == [0, 0, 0, 0]
    assert earlier_corpus.latest().check() == []


@pytest.mark.parametrize("address", ["folder"], indirect=True)
def test_one_that_may_only_be_read_says_what_to_do(earlier_corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.access", lambda path, mode: False)
    with pytest.raises(StoreError, match=r"earlier version of Spolia.* may only be read\. Open it once as a user who"):
        earlier_corpus.latest()


def test_an_export_of_before_names_the_readers_of_its_sources(tmp_path: Path, fast_folder: Path) -> None:
    corpus = Corpus(str(fast_folder / "imported.spolia"))
    import_store(HERE / "export_2.zip", corpus)
    assert {uri: row.reader for uri, row in corpus.latest().sources().items()} == READERS
    assert corpus.latest().manifest("chunk").reader == ""
    export_store(corpus, tmp_path / "again.zip")
    second_corpus = Corpus(str(fast_folder / "again.spolia"))
    import_store(tmp_path / "again.zip", second_corpus)
    assert {uri: row.reader for uri, row in second_corpus.latest().sources().items()} == READERS
