"""Rows of databases: real SQLite and real PostgreSQL."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from spolia.errors import SourceError
from spolia.indexing.sources import source, sql
from spolia.indexing.sources.sql import SQLRows, connect_read_only
from spolia.indexing.sync.dry_run import planned
from spolia.indexing.sync.report import Progress
from spolia.indexing.sync.sync import sync
from spolia.stores.corpus import Corpus
from tests.stores.servers import Server

COLUMNS = "id INTEGER PRIMARY KEY, title TEXT, body TEXT, tag TEXT, changed INTEGER"


class Database:
    """A file of SQLite with notes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.execute(f"CREATE TABLE notes ({COLUMNS})")

    def execute(self, statement: str, values: tuple[Any, ...] = ()) -> None:
        with closing(sqlite3.connect(self.path)) as connection, connection:
            connection.execute(statement, values)

    def put(self, id: int, body: str | bytes | None, changed: int | None = 1, title: str = "", tag: str = "") -> None:
        self.execute("INSERT OR REPLACE INTO notes VALUES (?, ?, ?, ?, ?)", (id, title, body, tag, changed))

    def rows(self, **how: Any) -> SQLRows:
        settings = {"rows": "notes", "key": "id", "text": "body", "updated": "changed", **how}
        return SQLRows("notes", f"sqlite:///{self.path}", **settings)


@pytest.fixture
def database(tmp_path: Path) -> Database:
    return Database(tmp_path / "notes.db")


def texts(corpus: Corpus) -> dict[str, str]:
    return {document.uri.removeprefix("sql://notes/"): document.text for document in corpus.latest().documents()}


@pytest.fixture
def take_read_keys(monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
    """The keys of the rows that were read since it was asked the last time."""
    keys: list[str] = []
    take = sql._RowStream._add_row

    def noting(self: Any, row: Any) -> None:
        keys.append(str(row[self.source.key]))
        take(self, row)

    def now() -> list[str]:
        keys_read = sorted(keys)
        keys.clear()
        return keys_read

    monkeypatch.setattr(sql._RowStream, "_add_row", noting)
    return now


@pytest.mark.slow
def test_rows_are_documents_with_titles_and_metadata(database: Database, corpus: Corpus) -> None:
    database.put(1, "Old *stones*.", title="On stones", tag="wall")
    source = database.rows(
        title="No. {id}: {title}", metadata=("tag", "changed"), format=".md", text="# {title}\n\n{body}"
    )
    assert sync(source, corpus).added == 1
    (document,) = corpus.latest().documents()
    assert (document.uri, document.title, document.media_type) == ("sql://notes/1", "No. 1: On stones", "text/markdown")
    assert document.text == "# On stones\n\nOld *stones*."
    assert [heading.text for heading in document.headings] == ["On stones"]
    assert document.meta == (("tag", "wall"), ("changed", 1))


@pytest.mark.slow
def test_only_rows_that_were_changed_are_read(
    database: Database, corpus: Corpus, take_read_keys: Callable[[], list[str]]
) -> None:
    for id in range(5):
        database.put(id, f"Note {id}.", changed=id)
    sync(database.rows(), corpus)
    assert take_read_keys() == ["0", "1", "2", "3", "4"]
    generation = corpus.latest().generation
    report = sync(database.rows(), corpus)
    assert take_read_keys() == ["4"]  # of the last moment, which others may share
    assert (report.added, report.changed, corpus.latest().generation) == (0, 0, generation)
    database.put(2, "Note 2, changed.", changed=9)
    assert sync(database.rows(), corpus).changed == 1
    assert take_read_keys() == ["2", "4"]
    assert texts(corpus)["2"] == "Note 2, changed."


@pytest.mark.slow
def test_rows_of_the_same_moment_are_not_lost(database: Database, corpus: Corpus) -> None:
    database.put(5, "First.", changed=7)
    sync(database.rows(), corpus)
    database.put(3, "Second.", changed=7)  # of the same moment, with a smaller key
    database.put(8, "Third.", changed=7)
    assert sync(database.rows(), corpus).added == 2
    assert texts(corpus) == {"5": "First.", "3": "Second.", "8": "Third."}


@pytest.mark.slow
def test_rows_without_a_time_are_read_each_time(database: Database, corpus: Corpus) -> None:
    database.put(1, "One.", changed=5)
    database.put(2, "Two.", changed=None)
    sync(database.rows(), corpus)
    database.put(2, "Two, changed.", changed=None)
    assert sync(database.rows(), corpus).changed == 1
    assert texts(corpus) == {"1": "One.", "2": "Two, changed."}


@pytest.mark.slow
def test_rows_that_are_gone_are_removed(database: Database, corpus: Corpus) -> None:
    for id in range(4):
        database.put(id, f"Note {id}.", changed=id)
    sync(database.rows(), corpus)
    database.execute("DELETE FROM notes WHERE id IN (0, 2)")
    assert sync(database.rows(removals=False), corpus).removed == 0
    assert sync(database.rows(), corpus).removed == 2
    assert sorted(texts(corpus)) == ["1", "3"]


@pytest.mark.slow
def test_without_a_time_all_rows_are_read_and_what_is_the_same_stays(
    database: Database, corpus: Corpus, take_read_keys: Callable[[], list[str]]
) -> None:
    database.put(1, "One.")
    database.put(2, "Two.")
    source = database.rows(updated="")
    sync(source, corpus)
    database.put(2, "Six.")  # as long as before
    database.execute("DELETE FROM notes WHERE id = 1")
    take_read_keys()
    report = sync(source, corpus)
    assert take_read_keys() == ["2"]
    assert (report.changed, report.removed, texts(corpus)) == (1, 1, {"2": "Six."})


def test_a_query_is_read_as_a_table(database: Database, corpus: Corpus) -> None:
    database.put(1, "One: 100%.", tag="a:b")
    database.put(2, "Two.", tag="c")
    query = "SELECT n.id AS number, n.body, n.changed FROM notes n WHERE n.tag <> 'x :tag' AND n.tag LIKE 'a%';"
    assert sync(database.rows(rows=query, key="number"), corpus).added == 1
    assert texts(corpus) == {"1": "One: 100%."}


@pytest.mark.slow
def test_another_definition_reads_all_rows_again(database: Database, corpus: Corpus) -> None:
    for id in range(3):
        database.put(id, f"Note {id}.", changed=id, title=f"T{id}")
    sync(database.rows(), corpus)
    assert sync(database.rows(text="{title}: {body}"), corpus).changed == 3
    assert texts(corpus)["0"] == "T0: Note 0."


def test_other_readers_apply_to_rows_that_were_not_changed(database: Database, corpus: Corpus) -> None:
    for id in range(3):
        database.put(id, f"Note {id}.", changed=id)
    sync(database.rows(), corpus, access=lambda uri: ["ann"])
    everybody = frozenset(["ann", "bob"])
    assert {document.readers for document in corpus.latest().documents(everybody)} == {("ann",)}
    sync(database.rows(), corpus, access=lambda uri: ["bob"] if uri.endswith("/0") else ["ann"])
    assert {document.uri: document.readers for document in corpus.latest().documents(everybody)} == {
        "sql://notes/0": ("bob",), "sql://notes/1": ("ann",), "sql://notes/2": ("ann",),
    }  # fmt: skip


@pytest.mark.slow
def test_rows_of_the_same_text_have_their_own_readers_whatever_is_published_together(
    database: Database, corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What holds a document may be in another lot than what is given other readers."""
    monkeypatch.setattr("spolia.indexing.sources.source.ITEMS_AT_ONCE", 1)
    for id in range(3):
        database.put(id, "The same.", changed=1)
    sync(database.rows(), corpus, access=lambda uri: ["ann"])
    for bobs_key in ("0", "2", ""):
        sync(database.rows(), corpus, access=lambda uri, asked=bobs_key: ["bob"] if uri[-1] == asked else ["ann"])  # type: ignore[misc]
        documents = {uri[-1]: row.document for uri, row in corpus.latest().sources().items()}
        lists = {document.id: document.readers for document in corpus.latest().documents(frozenset(["ann", "bob"]))}
        assert {key: lists[id] for key, id in documents.items()} == {
            key: ("bob",) if key == bobs_key else ("ann",) for key in "012"
        }


@pytest.mark.slow
def test_other_metadata_apply_to_rows_that_were_not_changed(database: Database, corpus: Corpus) -> None:
    database.put(1, "One.", changed=1)
    database.put(2, "Two.", changed=2)
    for kind in ("old", "new"):
        sync(database.rows(metadata=("changed",)), corpus, metadata=lambda uri, kind=kind: {"kind": kind})  # type: ignore[misc]
        assert {document.meta for document in corpus.latest().documents()} == {
            (("kind", kind), ("changed", 1)), (("kind", kind), ("changed", 2)),
        }  # fmt: skip


@pytest.mark.slow
def test_rebuilding_reads_all_and_keeps_others(database: Database, corpus: Corpus, tmp_path: Path) -> None:
    from spolia.indexing.splitters.text_units import Sentences

    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.txt").write_text("In a folder. Twice.")
    for id in range(3):
        database.put(id, f"Note {id}. More.", changed=id)
    sync([tmp_path / "docs", database.rows()], corpus)
    report = sync(database.rows(), corpus, splitter=Sentences(), rebuild=True)
    assert report.failed == ()
    assert len(list(corpus.latest().documents())) == 4
    assert dict(corpus.latest().stats().nodes)["chunk"] == 8
    report = sync([tmp_path / "docs", database.rows()], corpus, splitter=Sentences(), rebuild=True)
    assert (report.failed, len(list(corpus.latest().documents()))) == ((), 4)
    database.execute("DELETE FROM notes WHERE id = 0")
    sync(tmp_path / "docs", corpus, rebuild=True)  # a group of other parts, whose rows nobody reads
    assert len(list(corpus.latest().documents())) == 4
    assert sync(database.rows(), corpus).removed == 1
    assert corpus.latest().check() == []


def test_what_is_odd_in_a_row_stops_no_other(database: Database, corpus: Corpus) -> None:
    database.put(1, b"\xff\xfe", changed=1)
    database.put(2, None, changed=2)
    database.put(3, "Three.", changed=3)
    report = sync(database.rows(), corpus)
    assert [uri for uri, _ in report.failed] == ["sql://notes/1"]
    assert texts(corpus) == {"2": "", "3": "Three."}
    report = sync(database.rows(rows="SELECT NULL AS id, 'x' AS body, 9 AS changed"), corpus)
    assert "has no id" in report.skipped[0].reason


def test_a_column_that_is_no_key_is_refused(database: Database, corpus: Corpus) -> None:
    database.put(1, "One.", tag="same")
    database.put(2, "Two.", tag="same")
    assert "is not a key" in sync(database.rows(key="tag"), corpus).failed[0][1]


def test_nothing_can_be_written(database: Database, corpus: Corpus) -> None:
    database.put(1, "One.")
    evil = "SELECT 1 AS id, 'x' AS body, 1 AS changed) AS q; DELETE FROM notes; --"
    assert sync(database.rows(rows=evil), corpus).failed
    for attack in ("DELETE FROM notes RETURNING id, body, changed", "notes; DROP TABLE notes"):
        assert sync(database.rows(rows=attack), corpus).failed
    assert sync(database.rows(), corpus).added == 1


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"rows": "lost"}, "no such table"), ({"text": "lost"}, "lost"), ({"format": ".odd"}, "No reader knows"),
    ],
)  # fmt: skip
def test_a_wrong_description_is_said(database: Database, corpus: Corpus, how: dict[str, str], said: str) -> None:
    ((name, reason),) = sync(database.rows(**how), corpus).failed
    assert name == "sql://notes/"
    assert said in reason


def test_wrong_addresses_are_said(corpus: Corpus, tmp_path: Path) -> None:
    options = {"rows": "notes", "key": "id", "text": "body"}
    assert "no file" in sync(SQLRows("a", f"sqlite:///{tmp_path}/none.db", **options), corpus).failed[0][1]  # type: ignore[arg-type]
    assert not (tmp_path / "none.db").exists()
    assert "not a database address" in sync(SQLRows("a", "nonsense", **options), corpus).failed[0][1]  # type: ignore[arg-type]
    with pytest.raises(SourceError, match="holds a password"):
        SQLRows("a", "postgresql://ann:secret@host/db", **options)  # type: ignore[arg-type]
    with pytest.raises(SourceError, match="cannot be the name"):
        SQLRows("a/b", "sqlite://", **options)  # type: ignore[arg-type]


# PostgreSQL.


@pytest.fixture
def notes(server: Server) -> SQLRows:
    server.fetch_rows("DROP TABLE IF EXISTS notes")
    server.fetch_rows("CREATE TABLE notes (id BIGINT PRIMARY KEY, body TEXT, changed TIMESTAMPTZ, tags TEXT[])")
    server.fetch_rows(
        "INSERT INTO notes SELECT i, 'Note ' || i, to_timestamp(1700000000 + i), ARRAY['a', 'b'] "
        "FROM generate_series(0, 4999) i"
    )
    return SQLRows("notes", server.uri, "notes", key="id", text="body", updated="changed", metadata=("tags",))


@pytest.mark.slow
def test_rows_of_postgresql(
    server: Server, notes: SQLRows, corpus: Corpus, take_read_keys: Callable[[], list[str]]
) -> None:
    assert sync(notes, corpus).added == 5000
    assert len(take_read_keys()) == 5000
    document = next(candidate for candidate in corpus.latest().documents() if candidate.uri == "sql://notes/7")
    assert document.meta == (("tags", "a"), ("tags", "b"))
    server.fetch_rows("UPDATE notes SET body = 'Changed', changed = now() WHERE id = 7")
    server.fetch_rows("DELETE FROM notes WHERE id = 8")
    report = sync(notes, corpus)
    assert take_read_keys() == ["4999", "7"]
    assert (report.changed, report.removed) == (1, 1)
    source = corpus.latest().sources()["sql://notes/9"]
    assert source.mtime_ns // 10**9 == 1700000009


def test_postgresql_lets_nothing_be_written(server: Server, notes: SQLRows, corpus: Corpus) -> None:
    server.fetch_rows(
        "CREATE OR REPLACE FUNCTION evil() RETURNS BIGINT LANGUAGE SQL "
        "AS 'DELETE FROM notes; SELECT count(*) FROM notes'"
    )
    source = notes.but(rows="SELECT evil() AS id, 'x' AS body, now() AS changed, NULL AS tags")
    assert "read-only" in sync(source, corpus).failed[0][1]
    assert server.fetch_rows("SELECT count(*) FROM notes") == [(5000,)]


@pytest.mark.slow
def test_progress_goes_on_from_lot_to_lot(database: Database, corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source, "ITEMS_AT_ONCE", 3)
    for number in range(8):
        database.put(number, f"Stone {number}.")
    for run in (planned, sync):
        progresses: list[Progress] = []
        run(database.rows(), corpus, progress=progresses.append)
        done = [now.done for now in progresses]
        assert done == sorted(done)
        assert (progresses[-1].done, progresses[-1].total) == (8, 8)


@pytest.mark.slow
def test_a_connection_that_drops_in_the_middle_loses_nothing(
    server: Server, notes: SQLRows, corpus: Corpus, take_read_keys: Callable[[], list[str]]
) -> None:
    killed: list[object] = []
    condition = "backend_type = 'client backend' AND pid <> pg_backend_pid()"

    def kill(now: Progress) -> None:
        if not killed:
            killed.extend(
                server.fetch_rows(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {condition}")
            )

    report = sync(notes, corpus, progress=kill)
    ((name, reason),) = report.failed
    assert name == "sql://notes/"
    assert "Published documents stay; the next run goes on" in reason
    assert 1000 <= report.added < 5000
    assert len(texts(corpus)) == report.added
    take_read_keys()
    second_summary = sync(notes, corpus)
    assert (second_summary.failed, report.added + second_summary.added) == ((), 5000)
    assert len(take_read_keys()) == 5001 - report.added  # and the last row of before
    assert corpus.latest().check() == []


def test_a_server_that_is_gone_without_a_word_is_noticed(notes: SQLRows) -> None:
    with connect_read_only(notes) as connection:
        driver: Any = connection.connection.driver_connection
        parameters = driver.info.get_parameters()
    idle_s, interval_s, count = (int(parameters[f"keepalives_{name}"]) for name in ("idle", "interval", "count"))
    assert idle_s + interval_s * count <= 60
    assert int(parameters["connect_timeout"]) <= 10


def test_a_server_that_is_not_there_is_said(notes: SQLRows, corpus: Corpus) -> None:
    gone = SQLRows("notes", "postgresql://ann@127.0.0.1:1/notes", "notes", key="id", text="body")
    assert "is not there" in sync(gone, corpus).failed[0][1]


def test_a_password_comes_from_the_environment_and_into_no_message(
    corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = SQLRows("notes", "postgresql://ann:${DB_PASSWORD}@127.0.0.1:1/notes", "notes", key="id", text="body")
    assert "DB_PASSWORD is not set" in sync(source, corpus).failed[0][1]
    monkeypatch.setenv("DB_PASSWORD", "open-sesame")
    assert "open-sesame" not in sync(source, corpus).failed[0][1]
    with pytest.raises(psycopg.Error):
        psycopg.connect("postgresql://ann@127.0.0.1:1/notes")
