"""Making a store in a schema: whole or not at all, by one process at a time."""

from __future__ import annotations

import os

from psycopg import errors

from spolia.errors import NotAStore, StoreError
from spolia.stores.backends.postgres import dialect
from spolia.stores.backends.postgres.address import Address
from spolia.stores.backends.postgres.session import WRITE_S, PostgresSession, connected
from spolia.stores.failpoints import fail_point
from spolia.stores.tables import sql
from spolia.stores.tables.rows import StoreVersion


def create(address: Address) -> None:
    """Make the schema, the extension `vector` and the tables, unless they are there.

    Raises:
        NotAStore: the schema holds something else.
        StoreError: pgvector is not installed on the server, or the database is not in UTF-8.
    """
    session = PostgresSession(connected(address, WRITE_S))
    try:
        with session.raw.transaction():
            session.ask(dialect.ONE_MAKER, (address.schema,))
            if not _is_there(session, address):
                _fill(session, address)
                fail_point("postgres.create_commit")
    finally:
        session.close()


def _is_there(session: PostgresSession, address: Address) -> bool:
    table, encoding, others = session.one(dialect.FIND, {"schema": address.schema})
    if encoding != "UTF8":
        raise StoreError(
            f"The database of {address} is encoded in {encoding}, and a store holds any text. Make one: "
            "CREATE DATABASE name ENCODING 'UTF8' TEMPLATE template0"
        )
    if table is None and others:
        raise NotAStore(
            f"There is no store at {address}: the schema holds {others}; it was not touched. Name another schema."
        )
    return table is not None


def _fill(session: PostgresSession, address: Address) -> None:
    fail_point("postgres.create")
    if session.one(dialect.THERE_IS_A_SCHEMA, (address.schema,)) is None:
        session.ask(dialect.MAKE_SCHEMA.format(schema=address.schema))
    _extend(session, address)
    session.ask(dialect.SET_PATH, {"schema": address.schema})
    for statement in dialect.TABLES:
        session.ask(statement)
    session.execute(sql.NEW_STORE, (os.urandom(16).hex(),))
    session.execute(sql.PUBLISH, (0, "{}", ""))
    session.execute(sql.ADD_PUBLICATION, StoreVersion.after(-1))


def _extend(session: PostgresSession, address: Address) -> None:
    if session.one(dialect.HAS_EXTENSION):
        return
    try:
        session.ask(dialect.EXTENSION)
    except (errors.UndefinedFile, errors.FeatureNotSupported) as error:
        raise StoreError(
            f"The server of {address} does not have pgvector, in which the vectors are kept. Install it there "
            "(https://github.com/pgvector/pgvector), then repeat."
        ) from error
    except errors.InsufficientPrivilege as error:
        raise StoreError(
            f"The user of {address} may not install pgvector in the database. Have a superuser write there: "
            "CREATE EXTENSION vector"
        ) from error
