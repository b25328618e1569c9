"""Opening `corpus.db`, and what goes wrong there in words."""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from spolia.errors import NotAStore, StoreBusy, StoreCorrupt, StoreError, StoreTooNew
from spolia.stores import sql
from spolia.stores.layout import DATABASE

WAIT_S = 10.0
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_READ_ONLY = (errno.EACCES, errno.EPERM, errno.EROFS)


def connect(store: Path, *, writing: bool) -> sqlite3.Connection:
    """A connection to the truth of a store, refused when the path holds something else.

    Raises:
        NotAStore, StoreTooNew, StoreCorrupt, StoreError: see `problem_with`.
    """
    with translated(store, "opened"):
        _refuse_other_things(store)
        connection = _connected(store / DATABASE, writing)
        try:
            _refuse_other_databases(connection, store)
            for pragma in (sql.DURABLE, sql.WITH_FOREIGN_KEYS) if writing else (sql.QUERY_ONLY,):
                connection.execute(pragma)
        except BaseException:
            connection.close()
            raise
    return connection


def _connected(database: Path, writing: bool) -> sqlite3.Connection:
    options = "mode=rw"
    if not writing and not os.access(database.parent, os.W_OK):
        # SQLite needs its two side files to read a WAL database; where it may not make them, it may only read a
        # database that it takes for immutable, which holds as long as nobody who may write has it open.
        beside = Path(f"{database}-wal").exists() and Path(f"{database}-shm").exists()
        options = "mode=ro" if beside else "mode=ro&immutable=1"
    address = f"file:{quote(str(database))}?{options}"
    return sqlite3.connect(
        address, uri=True, timeout=WAIT_S, isolation_level=None, check_same_thread=False, cached_statements=256
    )


def _refuse_other_things(store: Path) -> None:
    if (store / DATABASE).is_file():
        return
    if store.is_dir():
        there = "an empty folder" if not any(store.iterdir()) else "a folder without corpus.db"
    elif store.exists():
        there = "a file: " + _kind_of(store)
    else:
        there = "nothing"
    raise NotAStore(
        f"There is no store at {store}: there is {there}. "
        f"Write Corpus({str(store)!r}).create(), or: spolia index FOLDER --store {store}"
    )


def _kind_of(path: Path) -> str:
    try:
        with path.open("rb") as file:
            is_database = file.read(16) == b"SQLite format 3\0"
    except OSError as error:
        return f"unreadable ({error.strerror})"
    return "another application's SQLite database" if is_database else "not a database; a store is a folder"


def _refuse_other_databases(connection: sqlite3.Connection, store: Path) -> None:
    application = connection.execute(sql.APPLICATION).fetchone()[0]
    if application != sql.APPLICATION_ID:
        raise NotAStore(
            f"{store / DATABASE} is another application's SQLite database (application id {application:#x}, "
            f"a store has {sql.APPLICATION_ID:#x}); it was not touched. Name another path for the store."
        )
    version = connection.execute(sql.VERSION).fetchone()[0]
    if version > sql.SCHEMA_VERSION:
        raise StoreTooNew(
            f"{store} has schema {version}, written by a newer version of Spolia; this one knows up to "
            f"{sql.SCHEMA_VERSION}. Write: pip install -U spolia"
        )


@contextmanager
def translated(store: Path, doing: str) -> Iterator[None]:
    """Turn what SQLite, the file system and tantivy raise into a `StoreError` that says what to do.

    Args:
        doing: what was being done to the store, as a participle: `opened`, `written`, `published`.
    """
    try:
        yield
    except (sqlite3.Error, OSError, UnicodeEncodeError) as error:
        raise problem_with(store, doing, error) from error


def problem_with(store: Path, doing: str, error: Exception) -> StoreError:
    """The `StoreError` that an exception stands for."""
    what = f"{store} could not be {doing}"
    code = getattr(error, "sqlite_errorcode", None)
    code = None if code is None else code & 0xFF
    number = getattr(error, "errno", None)
    text = str(error)
    if isinstance(error, UnicodeEncodeError):
        return StoreError(
            f"{what}: a text holds {error.object[error.start : error.end]!r}, which no encoding of Unicode has. "
            "Write text.encode('utf-8', 'replace').decode() before."
        )
    if code == sqlite3.SQLITE_FULL or number in _FULL or _says(text, "os error 28", "code: 28", "code: 27"):
        return StoreError(
            f"{what}: the disk is full or a quota is reached ({text}). What was published before is whole. "
            "Free some space and repeat."
        )
    if code == sqlite3.SQLITE_READONLY or number in _READ_ONLY or _says(text, "code: 13", "code: 30"):
        return StoreError(
            f"{what}: it may only be read ({text}). Searching works; to write, get the permission to write in the "
            f"folder, or copy it: cp -r {store} OTHER"
        )
    if code == sqlite3.SQLITE_NOTADB:
        return NotAStore(f"{what}: corpus.db is not a database ({text}). Name another path for the store.")
    if code == sqlite3.SQLITE_BUSY or code == sqlite3.SQLITE_LOCKED:
        return StoreBusy(f"{what}: another program has locked corpus.db ({text}). End it, then repeat.")
    if not (store / DATABASE).exists():
        return NotAStore(
            f"{what}: it was deleted while it was open ({text}). Write: spolia index FOLDER --store {store}"
        )
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN) or isinstance(
        error, (ValueError, FileNotFoundError)
    ):
        return StoreCorrupt(
            f"{what}: {text}. To see what is damaged write Corpus({str(store)!r}).snapshot().check(); "
            "what is derived is mended by writer.repair(), a damaged corpus.db has to come from a backup."
        )
    return StoreError(f"{what}: {text}.")


def _says(text: str, *signs: str) -> bool:
    return any(sign in text for sign in signs)
