"""Opening of `corpus.db`, and its errors in words."""

import errno
import glob
import json
import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

from spolia.errors import NotAStore, StoreBusy, StoreCorrupt, StoreError, StoreTooNew, StoreUnavailable, pip_install
from spolia.private_files import make_folder, touch
from spolia.stores.backends import sql
from spolia.stores.backends.backend import Connection
from spolia.stores.backends.rows import StoreVersion, in_batches, reader_versions, row_digest, store_digest, with_digest
from spolia.stores.files import DATABASE, LEXICAL, PINS, VECTORS, fail_point, fsync, lacks_files

WAIT_S = 10.0
MAGIC = b"SQLite format 3\0"
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_DENIED = (errno.EACCES, errno.EPERM, errno.EROFS)
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN)
_UNWRITTEN = (  # SQLite's codes for a write that failed, which it does not tell from a full disk
    sqlite3.SQLITE_IOERR_WRITE,
    sqlite3.SQLITE_IOERR_FSYNC,
    sqlite3.SQLITE_IOERR_DIR_FSYNC,
    sqlite3.SQLITE_IOERR_TRUNCATE,
    sqlite3.SQLITE_IOERR_SHMSIZE,
    sqlite3.SQLITE_IOERR_SHMMAP,
)


def is_full(error: BaseException | None) -> bool:
    """Return whether something could not be written because the disk is full, or a quota or limit is reached."""
    code = getattr(error, "sqlite_errorcode", None) or 0
    is_in_database = code & 0xFF == sqlite3.SQLITE_FULL or code in _UNWRITTEN
    return is_in_database or (isinstance(error, OSError) and error.errno in _FULL)


def connect(store: Path, *, writing: bool) -> "SqliteSession":
    with sqlite_errors(store, "opened"):
        refuse_non_store(store)
        writable = os.access(store, os.W_OK)
        try:
            connection = _connect_with(store, writing, "mode=rw" if writing or writable else "mode=ro")
        except sqlite3.OperationalError:
            if writing or has_pending_log(store):
                raise
            # To read what is written ahead, SQLite makes two files beside the database. Where it may not, or where the
            # disk is full, it can still read a database that has nothing ahead and is promised not to change.
            connection = _connect_with(store, writing, "mode=ro&immutable=1")
        try:
            state = os.stat(store / DATABASE)
            connection.file = state.st_dev, state.st_ino
            if is_earlier_store(connection, store):
                _migrate_store(store, is_writable=writable and not isinstance(connection, ImmutableSession))
        except BaseException:
            connection.close()
            raise
        return connection


def _connect_with(store: Path, writing: bool, options: str) -> "SqliteSession":
    connection: SqliteSession = sqlite3.connect(
        f"file:{quote(str(store / DATABASE))}?{options}",
        uri=True,
        timeout=WAIT_S,
        # The store's own statements begin and end transactions.
        isolation_level=None,
        check_same_thread=False,
        cached_statements=256,  # the store has more than the 128 that Python keeps
        factory=ImmutableSession if "immutable" in options else SqliteSession,
    )
    try:
        application = connection.execute(sql.APPLICATION).fetchone()[0]
        if application != sql.APPLICATION_ID:
            raise NotAStore(
                f"{store / DATABASE} is another application's SQLite database (application id {application:#x}, "
                f"a store has {sql.APPLICATION_ID:#x}); it was not touched. Name another path for the store."
            )
        for pragma in (sql.DURABLE, sql.WITH_FOREIGN_KEYS) if writing else (sql.QUERY_ONLY,):
            connection.execute(pragma)
    except BaseException:
        connection.close()
        raise
    return connection


class SqliteSession(sqlite3.Connection):
    """A connection to the database of a store; `file` is the device and inode of that."""

    file: tuple[int, int] = 0, 0

    def stream_rows(self, statement: str, values: Any = (), /) -> Iterator[Any]:
        return self.execute(statement, values)


class ImmutableSession(SqliteSession):
    """Connection that sees no changes: its holder checks whether the file has changed, and opens it again."""


def has_pending_log(store: Path) -> bool:
    """Return whether the write-ahead log holds anything: a writer is at work, or was killed."""
    try:
        return (store / f"{DATABASE}-wal").stat().st_size > 0
    except FileNotFoundError:
        return False


def refuse_non_store(store: Path) -> None:
    if (store / DATABASE).is_file():
        _refuse_empty(store)
        return
    advice = f"Make one: spolia index FOLDER --store {store}, or in Python sync(FOLDER, Corpus({str(store)!r}))."
    if not store.exists():
        raise NotAStore(f"Store not found: {store} does not exist. {advice}")
    if store.is_dir() and not any(store.iterdir()):
        raise NotAStore(f"Store not found: {store} is an empty folder. {advice}")
    if (store / PINS).is_dir():
        raise NotAStore(
            f"{store / DATABASE} is missing; the rest of the store was not touched. Restore it from a backup, or "
            "move the store away and index its documents again."
        )
    kind = "a folder without corpus.db" if store.is_dir() else _kind_of(store)
    indexed = f" Documents are indexed first: spolia index {store} --store {store}.spolia." if store.is_dir() else ""
    raise NotAStore(f"Not a store: {store} is {kind}; it was not touched. Name another path.{indexed}")


def _refuse_empty(store: Path) -> None:
    """Refuse a `corpus.db` of no bytes, unless what belongs into it is still ahead of it."""
    path = store / DATABASE
    if path.stat().st_size or has_pending_log(store):
        return
    if any((store / name).is_dir() for name in (PINS, LEXICAL, VECTORS)):
        raise StoreCorrupt(
            f"{path} is empty: the store has lost its content. Restore a backup, or make it again: rm -r {store}, "
            f"then spolia index FOLDER --store {store}"
        )
    raise NotAStore(
        f"Not a store: {path} is an empty file; it was not touched. Remove it: rm {path}, or name another path."
    )


def _kind_of(path: Path) -> str:
    try:
        with path.open("rb") as file:
            is_database = file.read(16) == MAGIC
    except OSError as error:
        return f"a file that cannot be read ({error.strerror})"
    return "another application's SQLite database" if is_database else "a file, and a store is a folder"


def is_earlier_store(connection: SqliteSession, store: Path) -> bool:
    if _read_version(connection) == sql.SCHEMA_VERSION:
        return False
    # The tables before the version: another process may bring the store up to date between the two.
    has_todays, version = has_tables_of_today(connection), _read_version(connection)
    if has_todays and version != sql.SCHEMA_VERSION:
        raise StoreCorrupt(
            f"{store} is damaged: corpus.db says that it has schema {version}, and its tables are those of schema "
            f"{sql.SCHEMA_VERSION}. Write: spolia repair --store {store}"
        )
    return is_earlier_schema(store, version, f"rm -r {store}, then spolia index FOLDER --store {store}")


def _read_version(connection: SqliteSession) -> int:
    version: int = connection.execute(sql.VERSION).fetchone()[0]
    return version


def has_tables_of_today(connection: SqliteSession) -> bool:
    """Return whether a database has the tables, indexes and columns of this version, and no others."""
    return frozenset(connection.execute(sql.COLUMNS)) == _current_columns()


@cache
def _current_columns() -> frozenset[tuple[str, str]]:
    with closing(sqlite3.connect(":memory:", isolation_level=None, factory=SqliteSession)) as connection:
        for statement in sql.SCHEMA:
            connection.execute(statement)
        return frozenset(connection.execute(sql.COLUMNS))


def is_earlier_schema(store: object, version: int, rebuild: str) -> bool:
    """Return whether a store has an earlier schema that can be migrated; raise for a newer or a too old one."""
    if version > sql.SCHEMA_VERSION:
        raise StoreTooNew(
            f"{store} has schema {version}, written by a newer version of Spolia; this one knows up to "
            f"{sql.SCHEMA_VERSION}. Write: {pip_install('', '-U')}"
        )
    if version < min(STEPS):
        raise StoreError(
            f"{store} has schema {version}, written by an early version of Spolia; this one reads {min(STEPS)} to "
            f"{sql.SCHEMA_VERSION}. Make it again: {rebuild}"
        )
    return version < sql.SCHEMA_VERSION


def migrate(connection: Connection, version: int) -> None:
    for step in range(version, sql.SCHEMA_VERSION):
        fail_point("migrate.step")
        STEPS[step](connection)
    fail_point("migrate.commit")


def _from_5(connection: Connection) -> None:
    """Give publications ids. Move versions of readers from the manifest of the main group to the sources."""
    for statement in sql.FROM_5:
        connection.execute(statement)
    for generation, _ in connection.execute(sql.GENERATIONS).fetchall():
        connection.execute(sql.ADD_PUBLICATION_5, StoreVersion.next_version(generation - 1))
    for (stored,) in connection.execute(sql.MANIFESTS).fetchall():
        manifest = json.loads(stored)
        if manifest["definition"] and manifest["reader"]:  # one that was written by hand says what it wants there
            for name, reader in reader_versions(manifest["reader"]).items():
                start = json.dumps({"reader": name}, ensure_ascii=False, separators=(",", ":"))[:-1]
                connection.execute(sql.NAME_READER, (reader, start, start))
            text = json.dumps(manifest | {"reader": ""}, ensure_ascii=False, sort_keys=True)
            connection.execute(sql.SET_MANIFEST, (text, manifest["group"]))


def _from_6(connection: Connection) -> None:
    """Give every row a digest of its values."""
    for statement in sql.FROM_6:
        connection.execute(statement)
    for table in sql.GUARDED_6:
        width = sql.GUARDED[table][0].count(",") + 1
        for batch in in_batches(connection.stream_rows(sql.ROWS_6[table]), _AT_ONCE):
            rows = [(row_digest(row[width:-1]), *row[:width]) for row in batch]
            connection.executemany(sql.GUARD[table], rows)
    (uuid,) = connection.execute(sql.UUID).fetchone()
    connection.execute(sql.SET_UUID, (uuid, store_digest(connection, uuid)))


def _from_7(connection: Connection) -> None:
    """Give nodes times."""
    _change_tables(connection, sql.FROM_7)


def _from_8(connection: Connection) -> None:
    """Note up to which node all texts have vectors; the next writer looks at all of them once."""
    _change_tables(connection, sql.FROM_8)


def _change_tables(connection: Connection, statement: str) -> None:
    """Run a statement and renew the digest of the tables, unless they were damaged before."""
    uuid, digest = connection.execute(sql.STORE).fetchone()
    is_whole = digest == store_digest(connection, uuid)
    connection.execute(statement)
    if is_whole:
        connection.execute(sql.SET_UUID, (uuid, store_digest(connection, uuid)))


_AT_ONCE = 1_000
STEPS: Mapping[int, Callable[[Connection], None]] = {5: _from_5, 6: _from_6, 7: _from_7, 8: _from_8}
"""By the schema that each starts from."""


def _migrate_store(store: Path, *, is_writable: bool) -> None:
    """Migrate the store; other processes wait meanwhile, and a kill or failure changes nothing."""
    if not is_writable:
        raise StoreError(
            f"{store} was written by an earlier version of Spolia, and is brought up to date when it is opened; it may "
            f"only be read. Open it once as a user who may write to it, or open a copy: cp -r {store} OTHER"
        )
    with closing(_connect_with(store, True, "mode=rw")) as connection:  # closing takes back what was not committed
        connection.execute(sql.BEGIN)
        # Checked again under the lock: another process may have migrated the store.
        if is_earlier_store(connection, store):
            migrate(connection, connection.execute(sql.VERSION).fetchone()[0])
            connection.execute(sql.SET_VERSION)
        connection.execute(sql.COMMIT)


@contextmanager
def sqlite_errors(store: Path, doing: str) -> Iterator[None]:
    """Turn what SQLite, the file system and tantivy raise into a `StoreError`; `doing` is a participle, as `opened`."""
    try:
        yield
    except ERRORS as error:
        raise translate_sqlite_error(store, doing, error) from error


ERRORS = (sqlite3.Error, OSError, UnicodeError)  # SQLite quotes what it cannot read


def translate_sqlite_error(store: Path, doing: str, error: Exception) -> StoreError:
    failure, text = f"{store} could not be {doing}", str(error)
    if isinstance(error, UnicodeEncodeError):
        return encoding_error(failure, error)
    code = getattr(error, "sqlite_errorcode", None) or 0
    number = getattr(error, "errno", None)
    if is_full(error) or _names_error(text, *_FULL):
        return StoreError(
            f"{failure}: the disk is full, or a quota or limit is reached ({text}). Published data is complete. "
            "Free some space and repeat."
        )
    if lacks_files(error):
        return StoreUnavailable(f"{failure}: too many files are open ({text}). Allow more (ulimit -n), and repeat.")
    if code & 0xFF == sqlite3.SQLITE_READONLY or number in _DENIED or _names_error(text, *_DENIED):
        return _permission_error(store, failure, doing, text)
    if not os.path.exists(store / DATABASE) and doing != "made":
        return NotAStore(
            f"{failure}: it was deleted while it was open ({text}). Write: spolia index FOLDER --store {store}"
        )
    if code & 0xFF == sqlite3.SQLITE_NOTADB:
        return NotAStore(f"{failure}: corpus.db is not a database ({text}). Name another path for the store.")
    if code & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return StoreBusy(f"{failure}: another program has locked corpus.db ({text}). End it, then repeat.")
    if code == sqlite3.SQLITE_CONSTRAINT_UNIQUE and "nodes.id" in text:
        return StoreError(f"{failure}: two nodes have one id ({text}). Give every node of a corpus an id of its own.")
    if doing == "made" and isinstance(error, OSError) and not os.path.exists(store / DATABASE):
        return StoreError(f"{failure}: {text}. Name another path for the store.")
    if code & 0xFF in _DAMAGED or isinstance(error, (ValueError, OSError)):
        return StoreCorrupt(
            f"{failure}: {text}. To see what is damaged write: spolia doctor --deep --store {store}; to mend "
            f"what can be mended: spolia repair --store {store}; the rest has to come from a backup."
        )
    return StoreError(f"{failure}: {text}. Published data is complete.")


def encoding_error(failure: str, error: UnicodeEncodeError) -> StoreError:
    return StoreError(
        f"{failure}: a text holds {error.object[error.start : error.end]!r}, which no encoding of Unicode has. "
        "Write text.encode('utf-8', 'replace').decode() before."
    )


def _permission_error(store: Path, failure: str, doing: str, text: str) -> StoreError:
    if doing in ("opened", "read"):
        return StoreError(
            f"{failure}: it may not be read ({text}). Ask its owner: spolia repair --shared-group GROUP --store {store}"
        )
    if doing == "made":
        return StoreError(f"{failure}: there may not be written ({text}). Name a path in a folder of your own.")
    return StoreError(
        f"{failure}: it may only be read ({text}). Searching works. To write, get the permission to write in the "
        f"folder, or write to a copy: cp -r {store} OTHER"
    )


def _names_error(text: str, *numbers: int) -> bool:
    """Return whether a message names one of these errors: tantivy writes the number of the system's error into its
    text."""
    return any(f"code: {number}," in text or f"os error {number})" in text for number in numbers)


def create(path: Path) -> None:
    """Make an empty store at `path`, an empty folder or nothing; a store that is there is left as it is."""
    path = path.absolute()
    with sqlite_errors(path, "made"):
        is_free = not path.exists() or (path.is_dir() and not any(path.iterdir()))
    if not is_free:
        connect(path, writing=False).close()
        return
    # Another name until it is complete: a killed process leaves no half-made store at `path`.
    folder = path.with_name(f"{path.name}.tmp{os.getpid()}")
    with sqlite_errors(path, "made"):
        make_folder(path.parent)
        _sweep(path)
        make_folder(folder / PINS)
        try:
            _fill(folder)
            _move_into_place(folder, path)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _sweep(path: Path) -> None:
    """Remove what processes have left that were killed while making this store."""
    for folder in path.parent.glob(f"{glob.escape(path.name)}.tmp*"):
        pid = folder.name.removeprefix(f"{path.name}.tmp")
        # Another process that still runs may be making the store.
        if pid == str(os.getpid()) or (pid.isdecimal() and not os.path.exists(f"/proc/{pid}")):
            shutil.rmtree(folder, ignore_errors=True)


def _fill(folder: Path) -> None:
    touch(folder / PINS / "0")
    touch(folder / DATABASE)
    with closing(sqlite3.connect(folder / DATABASE, isolation_level=None, factory=SqliteSession)) as connection:
        make_tables(connection)
        write_first_generation(connection)
        connection.execute(sql.COMMIT)
    fail_point("create.fsync")
    # Before the folder gets its name: a store that has one is on the disk.
    fsync(folder / DATABASE)
    fsync(folder)


def make_tables(connection: Connection) -> None:
    """Create the empty tables of a store, in a transaction that stays open."""
    connection.execute(sql.IN_LARGE_PAGES)
    connection.execute(sql.WRITE_AHEAD)
    connection.execute(sql.BEGIN)
    fail_point("create.write")
    for statement in sql.SCHEMA:
        connection.execute(statement)


def write_first_generation(connection: Connection) -> None:
    uuid = os.urandom(16).hex()
    connection.execute(sql.NEW_STORE, (uuid, store_digest(connection, uuid)))
    connection.execute(sql.PUBLISH, with_digest(0, "{}", ""))
    connection.execute(sql.ADD_PUBLICATION, with_digest(*StoreVersion.next_version(-1)))


def _move_into_place(folder: Path, path: Path) -> None:
    fail_point("create.rename")
    try:
        os.rename(folder, path)
    except OSError as error:
        if not (path / DATABASE).exists():  # else another process has made it at the same time
            raise NotAStore(
                f"No store could be made at {path}: {error.strerror}. Name a path that does not exist."
            ) from error
    fail_point("create.fsync_folder")
    fsync(path.parent)
