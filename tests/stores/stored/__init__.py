"""Stores as earlier versions of Spolia left them, and their folder of documents.

`schema_5.tar.gz` holds `notes/`, and `store/` as it was after: a sync of `notes/` with vectors, a second group, fields,
metadata and a reader list; two texts given by `add_texts`; a changed file, synced. `schema_6.tar.gz` holds the same, as
the version of that schema left it when it was opened; so do `schema_7.tar.gz` and `schema_8.tar.gz`.
`schema_N.sql` makes the tables of a schema in PostgreSQL.
"""

from __future__ import annotations

import shutil
import sqlite3
import tarfile
from contextlib import closing
from pathlib import Path

from psycopg import connect
from psycopg.sql import SQL, Identifier

from spolia.stores.backends.postgres.address import parse_address
from spolia.stores.backends.postgres.vectors import register_vectors
from spolia.stores.backends.rows import row_digest
from spolia.stores.corpus import POSTGRES, Corpus
from spolia.stores.vectors.dense import open_segment

HERE = Path(__file__).parent
_IN_FILES = ("segments", "vectors")
FIRST_WITH_DIGESTS = 7


def unpacked(schema: int, place: Path) -> Path:
    """The folder with `notes` and `store`."""
    with tarfile.open(HERE / f"schema_{schema}.tar.gz") as file:
        file.extractall(place, filter="data")
    return place


def stored(schema: int, place: Path, address: str) -> Corpus:
    """The store of a schema at an address; its documents are at `place`/notes."""
    folder = unpacked(schema, place) / "store"
    if address.startswith(POSTGRES):
        _replayed(schema, folder, address)
    else:
        shutil.move(folder, address)
    return Corpus(address)


def _replayed(schema: int, folder: Path, address: str) -> None:
    """The rows of a store in a folder, in tables of PostgreSQL as they were then."""
    target_address = parse_address(address)
    with connect(target_address.server) as connection, closing(sqlite3.connect(folder / "corpus.db")) as rows:
        connection.execute("CREATE EXTENSION IF NOT EXISTS vector SCHEMA public")
        connection.execute(
            SQL("CREATE SCHEMA {0}; SET search_path = {0}, public").format(Identifier(target_address.schema))
        )
        connection.execute((HERE / f"schema_{schema}.sql").read_bytes())
        register_vectors(connection)
        for (table,) in rows.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall():
            if table not in _IN_FILES and not table.startswith("sqlite_"):
                _copy(connection, rows, table)
        if schema >= FIRST_WITH_DIGESTS:  # SQLite's counts the definitions of its tables, too
            ((uuid,),) = connection.execute("SELECT uuid FROM store").fetchall()
            connection.execute("UPDATE store SET digest = %s", (row_digest((uuid,)),))
        for path in sorted((folder / "vectors").glob("*/*.seg")):
            segment = open_segment(path)
            with connection.cursor() as cursor:
                cursor.executemany(
                    "INSERT INTO vectors VALUES (%s, %s, %s, NULL)",
                    [(segment.embedder, *pair) for pair in zip(segment.hashes, segment.vectors, strict=True)],
                )


def _copy(connection: object, rows: sqlite3.Connection, table: str) -> None:
    selection = rows.execute(f"SELECT * FROM {table}")
    names = [column[0] for column in selection.description]
    listed, places = ", ".join(names), ", ".join(["%s"] * len(names))
    with connection.cursor() as cursor:  # type: ignore[attr-defined]
        cursor.executemany(f"INSERT INTO {table} ({listed}) VALUES ({places})", selection.fetchall())
        for key in ({"key", "id"} & set(names)) if table in ("audiences", "documents", "nodes") else ():
            if key == "key" or table == "audiences":
                cursor.execute(f"SELECT setval(pg_get_serial_sequence('{table}', '{key}'), 1000)")
