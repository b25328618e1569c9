"""SQLite files beside a store's database (jobs, quotas, traces): private, with a digest of each row, damage named."""

import os
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from hashlib import blake2b
from pathlib import Path
from struct import unpack
from threading import Lock
from typing import Any
from urllib.parse import quote
from weakref import WeakSet

from spolia.errors import StoreCorrupt
from spolia.private_files import touch

DIGEST = "digest"
"""The column with the digest of the others."""
_LONG = 1 << 14
"""Bytes of a value that are hashed on their own: `repr` of more takes longer."""
_MAGIC = b"SQLite format 3\0"
_WORDS = ("malformed", "Could not decode", "user-defined function")
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_SCHEMA = "schema_digest"
_TABLES = f"""SELECT name FROM sqlite_master
    WHERE type = 'table' AND name NOT LIKE 'sqlite%' AND name <> '{_SCHEMA}' ORDER BY name"""


def connect(path: Path, remedy: str, *, timeout_s: float, **options: Any) -> sqlite3.Connection:
    """Open a file of records, which is made if it is missing.

    Raises:
        StoreCorrupt: it is damaged; `remedy` says what to do.
    """
    with suppress(OSError):  # SQLite says what is wrong
        touch(path)
    with translate_damage(path, remedy):
        connection = _open(path, remedy, timeout=timeout_s, check_same_thread=False, **options)
        try:
            connection.create_function("row_digest", -1, _digest, deterministic=True)
            connection.execute("PRAGMA trusted_schema = ON")  # else triggers may not call the function
            connection.execute("BEGIN")  # another process may be making the tables
            cause = _schema_damage(connection)
            connection.execute("ROLLBACK")
            if cause:
                raise StoreCorrupt(f"{path} is damaged: {cause}. {remedy}")
        except BaseException:
            connection.close()
            raise
    return connection


def _open(path: Path, remedy: str, **options: Any) -> sqlite3.Connection:
    # No other thread may connect between the check, which reads the file, and the connection: see `_CONNECTIONS`.
    with _OPENING:
        connections = _CONNECTIONS.setdefault(os.path.realpath(path), WeakSet())
        if not connections and (cause := truncation_damage(path)):
            raise StoreCorrupt(f"{path} is damaged: {cause}. {remedy}")
        connection = sqlite3.connect(path, factory=_Connection, **options)
        connections.add(connection)
    return connection


class _Connection(sqlite3.Connection):
    """A connection that can be weakly referenced."""


# POSIX drops all locks of a process on a file as soon as the process closes any descriptor of it. So a database that
# this process has open is not read beside SQLite: another process would take it for unused and remove its log.
# Source: https://www.sqlite.org/howtocorrupt.html, "Posix advisory locks canceled by a separate thread".
_CONNECTIONS: dict[str, WeakSet[sqlite3.Connection]] = {}
_OPENING = Lock()


def guard(connection: sqlite3.Connection) -> None:
    """Have triggers keep a digest of each row of all tables, and write down that of the tables' definitions.

    Call it in the transaction that makes the tables. Rows of earlier versions have no digest until they change.
    """
    for (table,) in connection.execute(_TABLES).fetchall():
        columns, keys = _columns(connection, table)
        if DIGEST not in columns:
            connection.execute(f"ALTER TABLE {table} ADD COLUMN {DIGEST} BLOB")
        values = [name for name in columns if name != DIGEST]
        new = _as_bytes(f"NEW.{name}" for name in values)
        row_condition = " AND ".join(f"{name} = NEW.{name}" for name in keys)
        for event, kind in (("INSERT", "insert"), (f"UPDATE OF {', '.join(values)}", "update")):
            connection.execute(
                f"CREATE TRIGGER IF NOT EXISTS {table}_{kind}_digest AFTER {event} ON {table} BEGIN "
                f"UPDATE {table} SET {DIGEST} = row_digest({new}) WHERE {row_condition}; END"
            )
    connection.execute(f"CREATE TABLE IF NOT EXISTS {_SCHEMA} (digest BLOB NOT NULL)")
    if _schema_damage(connection):
        connection.execute(f"DELETE FROM {_SCHEMA}")
        connection.execute(f"INSERT INTO {_SCHEMA} VALUES (?)", (_schema_digest(connection),))


def is_guarded(connection: sqlite3.Connection) -> bool:
    return bool(connection.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (_SCHEMA,)).fetchone())


def _columns(connection: sqlite3.Connection, table: str) -> tuple[list[str], list[str]]:
    """Return the columns of a table, and those that name a row."""
    rows = connection.execute(f"PRAGMA table_info({table})").fetchall()
    return [row[1] for row in rows], [row[1] for row in rows if row[5]] or ["rowid"]


def _as_bytes(names: Iterable[str]) -> str:
    """Columns as SQL; a damaged text may be no UTF-8."""
    return ", ".join(
        f"CASE typeof({name}) WHEN 'text' THEN CAST('t' || {name} AS BLOB) ELSE {name} END" for name in names
    )


def _digest(*values: Any) -> bytes:
    plain = repr(
        [blake2b(value).digest() if isinstance(value, bytes) and len(value) > _LONG else value for value in values]
    )
    return blake2b(plain.encode(), digest_size=8).digest()


def _schema_damage(connection: sqlite3.Connection) -> str:
    """Return how the definitions of tables differ from what was written, in words."""
    if not is_guarded(connection):
        guarded = connection.execute("SELECT 1 FROM sqlite_master WHERE name LIKE '%\\_digest' ESCAPE '\\'").fetchone()
        return "its tables changed since they were written" if guarded else ""  # else of an earlier version
    is_same = connection.execute(f"SELECT digest FROM {_SCHEMA}").fetchall() == [(_schema_digest(connection),)]
    return "" if is_same else "its tables changed since they were written"


def _schema_digest(connection: sqlite3.Connection) -> bytes:
    rows = connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY type, name").fetchall()
    settings = [connection.execute(f"PRAGMA {name}").fetchone() for name in ("application_id", "user_version")]
    return _digest(*rows, *settings)


@contextmanager
def translate_damage(path: Path, remedy: str) -> Iterator[None]:
    """Turn what SQLite raises for a damaged file into `StoreCorrupt`; the rest stays as it is."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        if not is_damage(error):
            raise
        raise StoreCorrupt(f"{path} is damaged: {error}. {remedy}") from error


def is_damage(error: sqlite3.Error) -> bool:
    code = getattr(error, "sqlite_errorcode", None) or 0
    return code & 0xFF in _DAMAGED or any(words in str(error) for words in _WORDS)


def truncation_damage(path: Path) -> str:
    """Return how a database is shorter than it was, in words; empty if it is not, or a log stands ahead of it."""
    size = path.stat().st_size if path.exists() else 0
    if not size:
        return ""
    with path.open("rb") as file:
        header = file.read(100)
    if header[:16] != _MAGIC or len(header) < 100:
        return f"it begins with {header[:16]!r}, which no database does"
    if _log_of(path):
        return ""
    (page,) = unpack(">H", header[16:18])
    changes, pages = unpack(">2I", header[24:32])
    (changes_at_count,) = unpack(">I", header[92:96])  # the changes at which the number of pages was written
    written_size = pages * (65536 if page == 1 else page)
    return (
        f"it has {size} bytes, {written_size} were written"
        if changes == changes_at_count and size < written_size
        else ""
    )


def damage(path: Path) -> str:
    """Return what is wrong with a file of records, in words; empty if nothing is. All of it is read, and nothing
    written."""
    if not path.is_file():
        return f"{path} is not a file"
    try:
        is_open = bool(_CONNECTIONS.get(os.path.realpath(path)))
        if cause := ("" if is_open else truncation_damage(path)) or log_damage(path):
            return f"{path} is damaged: {cause}"
        if not path.stat().st_size and not _log_of(path):
            return ""  # a process was killed before it made the tables
        options = "mode=ro" if Path(f"{path}-wal").exists() else "mode=ro&immutable=1"  # without it SQLite makes files
        with closing(sqlite3.connect(f"file:{quote(str(path))}?{options}", uri=True, timeout=10)) as connection:
            for (text,) in connection.execute("PRAGMA integrity_check(1)"):  # the first fault says enough
                if text != "ok":
                    return f"{path} is damaged: {text.removeprefix('*** in database main ***').strip()}"
            if cause := _schema_damage(connection):
                return f"{path} is damaged: {cause}"
            if rows := list(_changed_rows(connection)):
                return f"{path} is damaged: {', '.join(rows)} changed since they were written"
    except (sqlite3.Error, OSError, ValueError) as error:
        return f"{path} cannot be read: {error}"
    return ""


def _changed_rows(connection: sqlite3.Connection) -> Iterator[str]:
    for (table,) in connection.execute(_TABLES).fetchall():
        columns, _ = _columns(connection, table)
        if DIGEST in columns:  # else a file of an earlier version
            values = _as_bytes(name for name in columns if name != DIGEST)
            rows = connection.execute(f"SELECT {DIGEST}, {values} FROM {table}")
            if count := sum(digest is not None and digest != _digest(*row) for digest, *row in rows):
                yield f"{count} rows of {table}"


def _log_of(path: Path) -> int:
    """Bytes of the log ahead of a database."""
    try:
        return Path(f"{path}-wal").stat().st_size
    except FileNotFoundError:
        return 0


# Damage to the write-ahead log, which SQLite takes for a transaction that was not finished. It has a header of 32 bytes
# (magic, version, page size, count, two salts, two checksums), then frames of 24 bytes (page, size of the database
# after a commit, the salts, two checksums) and a page each. Checksums go on from frame to frame.
# Source: https://www.sqlite.org/fileformat2.html#walformat

_HEADER, _FRAME = 32, 24
_LOG = 0x377F0682
_WORD = 0xFFFFFFFF
Sums = tuple[int, int]


def log_damage(database: Path) -> str:
    """Return what is wrong with a write-ahead log, in words: what was committed behind a damaged frame is lost."""
    path = Path(f"{database}-wal")
    if path.exists() and not path.is_file():  # a device has no end
        return f"{path.name} is not a file, but a folder, a device or a pipe"
    log = path.read_bytes() if path.exists() else b""
    if len(log) < _HEADER + _FRAME:
        return ""
    magic, _, page = unpack(">3I", log[:12])
    order = ">" if magic & 1 else "<"
    sums = _add_checksums((0, 0), log[:24], order)
    if magic & ~1 != _LOG or sums != unpack(">2I", log[24:_HEADER]):
        return f"{path.name}: its header is damaged, so that what was committed last is lost"
    damaged = 0
    for number, offset in enumerate(range(_HEADER, len(log) - _FRAME - page + 1, _FRAME + page), 1):
        frame = log[offset : offset + _FRAME]
        if not damaged:
            sums = _add_checksums(
                _add_checksums(sums, frame[:8], order), log[offset + _FRAME : offset + _FRAME + page], order
            )
            damaged = number if sums != unpack(">2I", frame[16:]) or frame[8:16] != log[16:24] else 0
        # An earlier, longer log leaves frames behind, with other salts.
        is_of_this = frame[8:12] == log[16:20] or frame[12:16] == log[20:24]
        # Only a commit states the size of the database; frames behind the last one were never finished.
        if damaged and is_of_this and frame[4:8] != bytes(4):
            return f"{path.name}: frame {damaged} is damaged, so that what was committed from there on is lost"
    return ""


def _add_checksums(sums: Sums, data: bytes, order: str) -> Sums:
    first_sum, second_sum = sums
    words = unpack(f"{order}{len(data) // 4}I", data)
    for first, second in zip(words[::2], words[1::2], strict=True):
        first_sum = first_sum + first + second_sum & _WORD
        second_sum = second_sum + second + first_sum & _WORD
    return first_sum, second_sum
