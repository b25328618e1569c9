"""Databases of the user are read and never written, whatever a statement says: by its syntax, and by the engine."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest

from spolia.databases import read_only_check, sqlite_file
from spolia.databases.database import QueryableDatabase, QueryLimits, QueryRows
from spolia.databases.postgres_database import PostgresDatabase
from spolia.databases.read_only_check import refuse_writes
from spolia.databases.sqlite_file import SQLiteFile
from spolia.errors import Cancelled, StatementError, StoreError
from tests.cases import check_each
from tests.stores.servers import Server

MADE = (
    "CREATE TABLE person (id INTEGER PRIMARY KEY, name TEXT, born INTEGER)",
    "CREATE TABLE work (person INTEGER, employer TEXT)",
    "CREATE TABLE secret (word TEXT)",
    "INSERT INTO person VALUES (1, 'Ann', 1968), (2, 'Bo', 1970), (3, 'Cai', NULL)",
    "INSERT INTO work VALUES (1, 'Nokia'), (2, 'Salo | Oy')",
    "INSERT INTO secret VALUES ('plum')",
)
TABLES = {"person": ("id", "name", "born"), "work": ("person", "employer")}


@pytest.fixture(scope="module")
def asked(server: Server) -> str:
    """The address of a database of its own on the server."""
    server.fetch_rows("CREATE DATABASE asked")
    uri = server.uri.replace("/postgres?", "/asked?")
    with psycopg.connect(uri, autocommit=True) as connection:
        for statement in MADE:
            connection.execute(statement.encode())
    return uri


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> QueryableDatabase:
    if request.param == "postgres":
        return PostgresDatabase(request.getfixturevalue("asked"), tables=("person", "work"))
    return SQLiteFile(filled(tmp_path / "people.db"), tables=("person", "work"))


def filled(path: Path) -> str:
    with sqlite3.connect(path) as connection:
        for statement in MADE:
            connection.execute(statement)
    return str(path)


@contextlib.contextmanager
def in_this_process(limits: QueryLimits, serves: object = None) -> Iterator[Any]:
    """A worker that is none: what a test patches is not patched in another process."""
    yield SimpleNamespace(call=lambda function, *arguments, **_: function(*arguments))


READS = [
    ("SELECT name FROM person WHERE born = 1968", (("Ann",),)),
    ("SELECT count(*) AS n FROM person", ((3,),)),
    (
        "select p.name, w.employer from person p join work w on w.person = p.id order by 1",
        (("Ann", "Nokia"), ("Bo", "Salo | Oy")),
    ),
    ("WITH old AS (SELECT * FROM person WHERE born < 1970) SELECT name FROM old", (("Ann",),)),
    ("WITH c(n) AS (SELECT born FROM person) SELECT max(n) AS m FROM c", ((1970,),)),
    ("SELECT name FROM person UNION SELECT employer FROM work ORDER BY 1 LIMIT 1", (("Ann",),)),
    ("SELECT name FROM person WHERE id IN (SELECT person FROM work WHERE employer LIKE 'N%')", (("Ann",),)),
    ("SELECT name FROM person WHERE name = 'DROP TABLE person; --'", ()),
    ("SELECT upper(name) AS u FROM person WHERE born IS NULL", (("CAI",),)),
    ("SELECT name -- ; DELETE FROM person\nFROM person WHERE id = 2", (("Bo",),)),
    ("SELECT q.x FROM (SELECT name AS x FROM person WHERE id = 1) AS q", (("Ann",),)),
    ("WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < 3) SELECT n FROM c", ((1,), (2,), (3,))),
]


@check_each(("statement", "expected"), READS)
def test_what_reads_is_answered(database: QueryableDatabase, statement: str, expected: tuple[Any, ...]) -> None:
    rows = database.ask(statement, QueryLimits())
    assert (rows.rows, rows.cut, rows.statement) == (expected, False, statement)


WRITES = [
    "DROP TABLE person",
    "INSERT INTO person VALUES (9, 'X', 1)",
    "UPDATE person SET name = 'X'",
    "DELETE FROM person",
    "CREATE TABLE x (a INT)",
    "ALTER TABLE person ADD COLUMN x INT",
    "TRUNCATE TABLE person",
    "REPLACE INTO person VALUES (1, 'X', 1)",
    "SELECT 1; DROP TABLE person",
    "SELECT 1; SELECT 2",
    "WITH gone AS (DELETE FROM person RETURNING *) SELECT * FROM gone",
    "WITH new AS (INSERT INTO person VALUES (9, 'X', 1) RETURNING *) SELECT * FROM new",
    "SELECT * FROM person WHERE id IN (WITH d AS (DELETE FROM work RETURNING person) SELECT person FROM d)",
    "SELECT * INTO copied FROM person",
    "SELECT * FROM person FOR UPDATE",
    "PRAGMA writable_schema = 1",
    "ATTACH DATABASE 'x.db' AS x",
    "DETACH DATABASE main",
    "VACUUM INTO 'copied.db'",
    "COPY person TO '/tmp/copied'",
    "COPY person FROM PROGRAM 'id'",
    "CALL clear()",
    "DO $$ BEGIN DELETE FROM person; END $$",
    "BEGIN; DELETE FROM person; COMMIT",
    "SET search_path = x",
    "EXPLAIN DELETE FROM person",
    "GRANT ALL ON person TO public",
    "LOCK TABLE person",
    "SELECT load_extension('x')",
    "SELECT writefile('x', 'y')",
    "SELECT readfile('/etc/passwd')",
    "SELECT pg_read_file('/etc/passwd')",
    "SELECT pg_sleep(60)",
    "SELECT lo_import('/etc/passwd')",
    "SELECT setval('s', 1)",
    "SELECT set_config('default_transaction_read_only', 'off', false)",
    "SELECT dblink('host=x', 'DELETE FROM person')",
    "SELECT query_to_xml('DELETE FROM person', true, true, '')",
    "SELECT * FROM pragma_table_info('person')",
    "SELECT sql FROM sqlite_schema",
    "SELECT sql FROM sqlite_master",
    "SELECT * FROM pg_catalog.pg_shadow",
    "SELECT * FROM information_schema.tables",
    "SELECT name FROM other.person",
    "SELECT * FROM elsewhere.public.person",
    "SELECT * FROM read_csv('/etc/passwd')",
    "SELECT * FROM ROWS FROM (pg_sleep(1)) AS x(a)",
    "SELECT name FROM person ORDER BY pg_catalog.pg_sleep(1)",
    "SELECT name FROM person, LATERAL pg_sleep(1) AS z",
    "SELECT array(SELECT word FROM secret)",
    "SELECT * FROM (TABLE secret) AS q",
    "EXECUTE foo",
    "PREPARE x AS DELETE FROM person",
    "SELECT randomblob(1000000000)",
    "SELECT word FROM secret",
    "SELECT * FROM (SELECT * FROM secret) AS q",
    "SELECT name FROM person WHERE EXISTS (SELECT 1 FROM secret WHERE word LIKE 'p%')",
    "SELECT word FROM secret WHERE 1 IN (WITH secret AS (SELECT 1 AS word) SELECT word FROM secret)",
    "WITH person AS (SELECT * FROM secret) SELECT * FROM person",
    "SELECT * FROM person WHERE id = ?",
    'SELECT "passwort" FROM person',
    "SELECT nme FROM person",
    "",
    ";",
    "--",
    "SELECT " * 2000,
    "SELECT " + "(" * 3000 + "1" + ")" * 3000,
    "SELECT name FROM person WHERE",
    "DELETE\x00 FROM person",
    "ＤＲＯＰ TABLE person",
    "选择 所有 人",
]


@check_each("statement", WRITES)
def test_what_is_no_single_query_of_known_tables_is_refused(database: QueryableDatabase, statement: str) -> None:
    with pytest.raises(StatementError):
        database.ask(statement, QueryLimits())
    assert database.ask("SELECT count(*) AS n FROM person", QueryLimits()).rows == ((3,),)


@pytest.mark.slow
@check_each("statement", WRITES[:24])
def test_the_engine_refuses_writes_that_the_syntax_did_not(
    database: QueryableDatabase, statement: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spolia.databases.postgres_database.refuse_writes", lambda *_: None)
    monkeypatch.setattr("spolia.databases.sqlite_file.refuse_writes", lambda *_: None)
    monkeypatch.setattr("spolia.databases.database.statement_worker", in_this_process)
    with contextlib.suppress(StatementError):
        database.ask(statement, QueryLimits())
    assert database.ask("SELECT count(*) AS n FROM person", QueryLimits()).rows == ((3,),)
    assert database.ask("SELECT count(*) AS n FROM work", QueryLimits()).rows == ((2,),)


@pytest.mark.parametrize("statement", ["SELECT word FROM secret", "SELECT count(*) FROM secret", "SELECT v FROM seen"])
def test_sqlite_reads_no_other_table_whatever_the_syntax_let_through(
    statement: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spolia.databases.sqlite_file.refuse_writes", lambda *_: None)
    monkeypatch.setattr("spolia.databases.database.statement_worker", in_this_process)
    path = filled(tmp_path / "people.db")
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE VIEW seen AS SELECT word AS v FROM secret")
    with pytest.raises(StatementError, match=r"prohibited|not authorized"):
        SQLiteFile(path, tables=("person",)).ask(statement, QueryLimits())
    assert SQLiteFile(path, tables=("seen",)).ask("SELECT v FROM seen", QueryLimits()).rows == (("plum",),)


def test_what_is_wrong_says_what_there_is() -> None:
    for statement, message in [
        ("SELECT nme FROM person", r"no column 'nme'. There are: person\(id, name, born\); work"),
        ("SELECT * FROM people", r"no table 'people'. There are: person"),
        ("SELECT name FROM other.person", r"no table 'other\.person'"),
        ("SELECT * FROM read_csv('/etc/passwd')", "function ReadCSV may not"),
        ("DELETE FROM person", "is Delete, and may only read"),
        ("SELECT 1; SELECT 2", "There are 2 statements"),
        ("SELECT f(1)", "function f may not"),
        ("SELECT FROM WHERE", "cannot be read"),
    ]:
        with pytest.raises(StatementError, match=message):
            refuse_writes(statement, "sqlite", TABLES)


ENDLESS = "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c) SELECT count(*) AS n FROM c"
MILLION = "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < 1000000) SELECT n FROM c"


@pytest.mark.slow
def test_a_statement_that_takes_too_long_is_broken_off(database: QueryableDatabase) -> None:
    with pytest.raises(StatementError, match=r"took longer than 0\.2 s"):
        database.ask(ENDLESS, QueryLimits(timeout_s=0.2))
    assert database.ask("SELECT count(*) AS n FROM person", QueryLimits()).rows == ((3,),)


def test_of_a_million_rows_no_more_are_taken_than_are_wanted(database: QueryableDatabase) -> None:
    rows = database.ask(MILLION, QueryLimits(rows=7))
    assert (len(rows), rows.cut) == (7, True)
    assert database.ask("SELECT name FROM person", QueryLimits(rows=3)).cut is False


def test_long_values_are_cut_and_too_many_characters_end_the_rows(database: QueryableDatabase) -> None:
    long = "SELECT replace('" + "x" * 100 + "', 'x', '" + "y" * 100 + "') AS t FROM person"
    rows = database.ask(long, QueryLimits(characters=5000))
    assert [len(str(value)) for row in rows.rows for value in row] == [2001, 2001]
    assert rows.cut


def test_a_value_of_a_gigabyte_is_refused_by_the_engine(tmp_path: Path) -> None:
    database = SQLiteFile(filled(tmp_path / "people.db"))
    text = "'yyyyyyyyyy'"
    for _ in range(3):
        text = f"replace({text}, 'y', '{'y' * 100}')"
    with pytest.raises(StatementError, match="too big"):
        database.ask(f"SELECT {text} AS t FROM person", QueryLimits())


def test_what_is_shown_of_the_tables(database: QueryableDatabase) -> None:
    text = database.described()
    assert "CREATE TABLE person (" in text
    assert "| 1 | Ann | 1968 |" in text
    assert "Salo \\| Oy" in text
    assert "plum" not in text
    assert "secret" not in text


@pytest.mark.slow
def test_a_cancelled_run_breaks_a_statement_off(tmp_path: Path) -> None:
    from spolia import Run
    from spolia.core.function import step

    database = SQLiteFile(filled(tmp_path / "people.db"))

    @step
    def asked(seconds: float) -> QueryRows:
        return database.ask(ENDLESS, QueryLimits(timeout_s=seconds))

    with Run() as run:
        threading.Timer(0.2, run.cancel).start()
        with pytest.raises((Cancelled, StatementError)):
            run(asked, 60.0)


def test_a_file_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "x.db").write_text("no database at all, but long enough to be looked at" * 50)
    for path in ("none.db", "x.db"):
        with pytest.raises(StoreError, match="cannot be read as a database"):
            SQLiteFile(str(tmp_path / path)).described()
    assert not (tmp_path / "none.db").exists()
    with pytest.raises(StoreError, match="no table 'nobody'"):
        SQLiteFile(filled(tmp_path / "y.db"), tables=("nobody",)).described()


def test_a_table_with_an_odd_name(tmp_path: Path) -> None:
    path = filled(tmp_path / "y.db")
    with sqlite3.connect(path) as connection:
        connection.execute('CREATE TABLE "or""der; DROP" (a INT)')
    assert 'or""der; DROP' in SQLiteFile(path).described()


def test_every_kind_of_value_becomes_plain(tmp_path: Path) -> None:
    path = filled(tmp_path / "y.db")
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE odd (a, b, c, d)")
        connection.execute("INSERT INTO odd VALUES (x'00ff', 9e999, NULL, 'a|b\nc')")
    (row,) = SQLiteFile(path).ask("SELECT a, b, c, d FROM odd", QueryLimits()).rows
    assert row == ("(2 bytes)", "inf", None, "a|b\nc")


def test_a_postgres_address_holds_no_password_and_an_absent_server_is_told(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="holds a password"):
        PostgresDatabase("postgresql://ann:secret@db.example/shop")
    from spolia.errors import StoreUnavailable

    with pytest.raises(StoreUnavailable, match="could not be asked"):
        PostgresDatabase(f"postgresql:///shop?host={tmp_path}").described()


def test_without_the_parser_nothing_is_run(monkeypatch: pytest.MonkeyPatch) -> None:
    from spolia.errors import MissingExtra

    monkeypatch.setitem(__import__("sys").modules, "sqlglot", None)
    with pytest.raises(MissingExtra, match=r"spolia\[text-to-sql\]"):
        refuse_writes("SELECT 1", "sqlite", TABLES)
    assert read_only_check.LONGEST == 10_000
    assert sqlite_file._LARGEST == 1_000_000


@pytest.mark.slow
@pytest.mark.parametrize("function", ["printf", "format", "PRINTF"])
def test_what_sqlite_cannot_break_off_is_killed(tmp_path: Path, function: str) -> None:
    database = SQLiteFile(filled(tmp_path / "people.db"))
    statement = f"SELECT length({function}('%.*c', 900000000, 'x')) AS n FROM person"
    with pytest.raises(StatementError, match=r"took longer than 0\.3 s.*Write one that reads less"):
        database.ask(statement, QueryLimits(timeout_s=0.3))
    assert database.ask(f"SELECT {function}('%.1f', 2.25) AS n", QueryLimits()).rows == (("2.3",),)


@pytest.mark.slow
def test_a_value_of_postgres_that_is_larger_than_the_memory_allowed_is_an_error(asked: str) -> None:
    database = PostgresDatabase(asked, tables=("person",))
    with pytest.raises(StatementError, match=r"needed more than 100 MB of memory|died|need more memory"):
        database.ask("SELECT repeat('x', 150000000) AS t", QueryLimits(timeout_s=30, memory_mb=100))
    assert database.ask("SELECT name FROM person WHERE id = 1", QueryLimits()).rows == (("Ann",),)
