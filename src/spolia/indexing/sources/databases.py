"""Connections to databases that cannot write, and what databases say in words."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from spolia.errors import MissingExtra, SourceError, SourceUnavailable
from spolia.indexing.sources.secrets import with_secrets, without_secrets

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine

    from spolia.indexing.sources.sql import SQLRows

CONNECT_S = 10
_LIBPQ = {"connect_timeout": CONNECT_S, "keepalives_idle": 30, "keepalives_interval": 10, "keepalives_count": 3}
"""A server that is gone without a word is noticed after a minute, not never."""


@contextmanager
def connected(source: SQLRows) -> Iterator[Connection]:
    """A connection that cannot write."""
    engine = _engine(source)
    try:
        with translated(source, lambda: 0):
            connection = engine.connect()
        with connection:
            dialect = engine.dialect.name
            with translated(source, lambda: 0):
                if dialect == "sqlite":
                    connection.exec_driver_sql("PRAGMA query_only = ON")
                elif dialect == "postgresql":
                    connection = connection.execution_options(postgresql_readonly=True)
                elif dialect in ("mysql", "mariadb"):
                    connection.exec_driver_sql("SET SESSION TRANSACTION READ ONLY")
            yield connection
    finally:
        engine.dispose()


def _engine(source: SQLRows) -> Engine:
    try:
        from sqlalchemy import create_engine, make_url
        from sqlalchemy.exc import ArgumentError, NoSuchModuleError
        from sqlalchemy.pool import NullPool
    except ImportError as error:
        raise MissingExtra("sql", "sqlalchemy", "Reading the rows of a database") from error
    try:
        url = make_url(with_secrets(source.url))
        if url.drivername in ("postgresql", "postgres"):
            url = url.set(drivername="postgresql+psycopg")
        if url.get_backend_name() == "sqlite" and url.database and not os.path.exists(url.database):
            raise SourceError(f"There is no file {url.database}. Write the path of a database: sqlite:///PATH")
        given = {"connect_timeout": CONNECT_S} if url.get_backend_name() in ("mysql", "mariadb") else {}
        libpq = url.get_driver_name() in ("psycopg", "psycopg2")
        return create_engine(url, connect_args=_LIBPQ if libpq else given, poolclass=NullPool)
    except (ArgumentError, NoSuchModuleError) as error:
        raise SourceError(f"{source.url!r} is no address of a database ({error}). Write sqlite:///PATH.") from error
    except ImportError as error:
        raise SourceError(
            f"The database of {source.name!r} needs {error.name}, which is not installed. Install it, or write the "
            "driver that you have into the address: postgresql+DRIVER://…"
        ) from error


@contextmanager
def translated(source: SQLRows, read: Callable[[], int]) -> Iterator[None]:
    """What the database raises, in words; nothing of the password is in them."""
    from sqlalchemy.exc import DBAPIError, SQLAlchemyError

    try:
        yield
    except SQLAlchemyError as error:
        cause = getattr(error, "orig", None) or error
        said = without_secrets(" ".join(str(cause).split())[:400], source.url)
        lost = isinstance(error, DBAPIError) and (error.connection_invalidated or _passes(error))
        name = f"The database of {source.name!r}"
        if not lost:
            raise SourceError(f"{name} refuses: {said}. Check rows, columns and rights.") from error
        raise SourceUnavailable(
            f"{name} is not there, or broke off after {read()} rows: {said}. What was published stays; the next run "
            "goes on."
        ) from error


def _passes(error: Any) -> bool:
    """Whether it may be over at the next attempt: the server is gone, starts or stops, is busy or locked."""
    from sqlalchemy.exc import InterfaceError, OperationalError

    if "no such" in str(error.orig) or "syntax" in str(error.orig):  # SQLite calls these operational too
        return False
    return isinstance(error, (OperationalError, InterfaceError))
