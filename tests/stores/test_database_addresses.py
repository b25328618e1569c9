"""Addresses of databases: none holds a password, and what is wrong with one for good is not called temporary."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg import pq

from spolia.databases.database import QueryLimits
from spolia.databases.postgres_database import PostgresDatabase
from spolia.errors import SourceError, SourceUnavailable, StoreError, StoreUnavailable
from spolia.indexing.sources.sql import SQLRows, _make_engine, connect_read_only
from spolia.stores.backends import sql
from spolia.stores.backends.postgres.address import parse_address
from spolia.stores.backends.postgres.dialect import translate_error
from spolia.stores.backends.publication import Transaction
from spolia.stores.corpus import Corpus
from tests.cases import check_each

PLACES: list[Callable[[str], object]] = [Corpus, PostgresDatabase, lambda url: SQLRows("a", url, "r", "k", "t")]


@check_each("place", PLACES)
@check_each(
    "address",
    [
        "postgresql://ann:hunter2@db/texts", "postgresql://ann:hun/ter2@db/texts", "postgresql://ann:hun#ter2@db/texts",
        "postgresql://ann:hun?ter2@db/texts", "postgresql://ann:hun[ter2@db/texts", "postgresql://ann:5/?a=ter2@db/texts",
        "postgresql://ann@db/texts?sslpassword=hunter2", "postgresql://ann@db/texts?sslpass%77ord=hunter2",
        "postgres://ann:1/hunter2@db/texts", "postgresql:ann:hunter2@db/texts", "Postgres:/ann:hunter2@db/texts",
        " postgresql://ann:hunter2@db/texts", "host=db user=ann password=hunter2", "password='hunter2' host=db",
        "postgresql://ann%3Ahunter2@db/texts", "postgresql://ann@db/texts?scram_client_key=hunter2",
        "postgresql://db/texts?pwd=hunter2", "postgresql://db/texts?options=-c app.token=hunter2",
        "'postgresql://ann:hunter2@db/texts'", "store=postgresql://ann:hunter2@db/texts",
        "jdbc:postgresql://db/texts?password=hunter2", "postgresql//ann:hunter2@db/texts", "mysql://ann:hunter2@db/texts",
        "postgreslq://ann:hunter2@db/texts", "host=db user=ann pass=hunter2",
        "postgresql://db/texts?options=-c password=hunter2", "postgresql://db/texts?options=-c%20app.secret%20%3Dhunter2",
    ],
)  # fmt: skip
def test_a_password_in_an_address_is_refused_and_not_shown(place: Callable[[str], object], address: str) -> None:
    with pytest.raises((StoreError, SourceError), match="holds a password") as refused:
        place(address)
    assert "ter2" not in str(refused.value)


def test_a_folder_may_have_a_name_like_an_address() -> None:
    for path in ("./postgresql:notes", "/srv/password=1.spolia", "postgres", "postgres.spolia", "a=b"):
        assert Corpus(path).path == path


@given(st.text(min_size=1))
def test_no_password_passes_whatever_it_holds(password: str) -> None:
    with pytest.raises(StoreError, match="holds a password"):
        parse_address(f"postgresql://ann:{password}@db/texts")


@pytest.mark.parametrize(
    "address",
    [
        "postgresql:///texts?host=%2Ftmp&schema=notes", "postgresql://ann@[::1]:5432,other:5433/texts",
        "postgresql://ann:@db/texts?password_env=NOTES", "postgresql://ann%40corp@db/texts?options=-c%20work_mem%3D1MB",
    ],
)  # fmt: skip
def test_an_address_without_a_password_is_taken_as_libpq_reads_it(address: str) -> None:
    values_by_keyword = {
        part.keyword: part.val for part in pq.Conninfo.parse(parse_address(address).server.encode()) if part.val
    }
    assert values_by_keyword[b"dbname"] == b"texts"


def test_the_rows_of_a_database_may_name_a_variable_for_the_password() -> None:
    assert SQLRows("a", "postgresql://ann:${DB_PASSWORD}@db/texts", "r", "k", "t").env_names == {"DB_PASSWORD": True}
    assert SQLRows("a", "sqlite:///C:/my@notes#1.db", "r", "k", "t").id == "sql://a/"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("address", "error"),
    [
        ("127.0.0.1:1/texts?sslmode=bogus", SourceError), ("127.0.0.1:1,127.0.0.1:2/texts", SourceError),
        ("127.0.0.1:1/texts", SourceUnavailable),
    ],
)  # fmt: skip
def test_rows_of_a_database_are_looked_for_later_only_where_that_may_help(
    address: str, error: type[SourceError]
) -> None:
    with (
        pytest.raises(SourceError) as found_error,
        connect_read_only(SQLRows("a", f"postgresql://ann@{address}", "r", "k", "t")),
    ):
        pass
    assert type(found_error.value) is error


@pytest.mark.slow
def test_a_password_in_a_variable_may_hold_any_character_and_is_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DB_PASSWORD", "hun@t/e#r?2[]:%zz")
    rows = SQLRows("a", "postgresql://ann:${DB_PASSWORD}@127.0.0.1:1/texts", "r", "k", "t")
    with pytest.raises(SourceUnavailable, match=r'at "127\.0\.0\.1", port 1') as error, connect_read_only(rows):
        pass
    assert "hun" not in str(error.value)
    assert _make_engine(rows).url.password == "hun@t/e#r?2[]:%zz"


@pytest.mark.parametrize("parameter", ["sslmode=bogus", "bogus=1", "port=99999", "options=-c&hostaddr=no"])
def test_a_wrong_parameter_is_no_server_that_may_come_back(parameter: str) -> None:
    with pytest.raises(StoreError, match="address") as error:
        Corpus(f"postgresql://ann@127.0.0.1:1/texts?{parameter}").exists()
    assert not isinstance(error.value, StoreUnavailable)
    with pytest.raises(StoreError, match="address") as error:
        PostgresDatabase(f"postgresql://ann@127.0.0.1:1/texts?{parameter}").ask("SELECT 1", QueryLimits())
    assert not isinstance(error.value, StoreUnavailable)


@check_each(
    ("said", "passes"),
    [
        ('connection to server at "db", port 5432 failed: fe_sendauth: no password supplied', False),
        ('connection to server at "db" failed: server does not support SSL, but SSL was required', False),
        ('connection to server at "db" failed: SSL error: certificate verify failed', False),
        ('connection to server at "db" failed: FATAL: password authentication failed for user "ann"', False),
        ('connection to server at "db" failed: FATAL: the database system is starting up', True),
        ('connection to server at "invalid certificate.example" failed: Connection refused', True),
        ("connection failed: channel binding required, but SSL not in use", False),
        ('connection is bad: definition of service "nosuch" not found', False),
        ("server closed the connection unexpectedly", True), ("SSL SYSCALL error: EOF detected", True),
        ("failed to resolve host 'db': [Errno -3] Temporary failure in name resolution", True),
    ],
)  # fmt: skip
def test_only_what_may_pass_is_called_so(said: str, passes: bool) -> None:
    error = translate_error(parse_address("postgresql://ann@db/texts"), "opened", psycopg.OperationalError(said))
    assert isinstance(error, StoreUnavailable) is passes


class Lost:
    """A connection whose server goes with the first change."""

    in_transaction = True

    def execute(self, statement: str, values: Any = ()) -> None:
        if statement in (sql.UNDO, sql.ROLLBACK):
            raise psycopg.OperationalError("consuming input failed: server closed the connection unexpectedly")


def test_a_rollback_on_a_lost_server_does_not_hide_what_was_wrong() -> None:
    transaction = Transaction(Corpus("postgresql://ann@db/texts").backend, Lost())  # type: ignore[arg-type]
    with pytest.raises(StoreUnavailable, match="could not be written"), transaction.change():
        raise psycopg.OperationalError("server closed the connection unexpectedly")
    assert transaction.ended
    second_transaction = Transaction(Corpus("postgresql://ann@db/texts").backend, Lost())  # type: ignore[arg-type]
    with pytest.raises(ZeroDivisionError), second_transaction.end_on_error("written"):
        _ = 1 // 0
    assert second_transaction.ended
