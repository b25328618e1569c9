"""Opening `corpus.db`, and what goes wrong there in words."""

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
from spolia.stores.backends.rows import StoreVersion, guarded, in_batches, reader_versions, row_digest, store_digest
from spolia.stores.files import DATABASE, LEXICAL, PINS, VECTORS, fail_point, fsync, lacks_files

WAIT_S = 10.0
MAGIC = b"SQLite format 3\0"
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_DENIED = (errno.EACCES, errno.EPERM, errno.EROFS)
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN)
_UNWRITTEN = (
    sqlite3.SQLITE_IOERR_WRITE,
    sqlite3.SQLITE_IOERR_FSYNC,
    sqlite3.SQLITE_IOERR_DIR_FSYNC,
    sqlite3.SQLITE_IOERR_TRUNCATE,
    sqlite3.SQLITE_IOERR_SHMSIZE,
    sqlite3.SQLITE_IOERR_SHMMAP,
)


def is_full(error: BaseException | None) -> bool:
    """Whether something could not be written because the disk is full, or a quota or limit is reached."""
    code = getattr(error, "sqlite_errorcode", None) or 0
    is_in_database = code & 0xFF == sqlite3.SQLITE_FULL or code in _UNWRITTEN
    return is_in_database or (isinstance(error, OSError) and error.errno in _FULL)


def connect(store: Path, *, writing: bool) -> "SqliteSession":
    with translated(store, "opened"):
        refuse_other_things(store)
        writable = os.access(store, os.W_OK)
        try:
            found = _connected(store, writing, "mode=rw" if writing or writable else "mode=ro")
        except sqlite3.OperationalError:
            if writing or is_written(store):
                raise
            # To read what is written ahead, SQLite makes two files beside the database. Where it may not, or where the
            # disk is full, it can still read a database that has nothing ahead and is promised not to change.
            found = _connected(store, writing, "mode=ro&immutable=1")
        try:
            state = os.stat(store / DATABASE)
            found.file = state.st_dev, state.st_ino
            if is_earlier_store(found, store):
                _bring_up_to_date(store, is_writable=writable and not isinstance(found, Immutable))
        except BaseException:
            found.close()
            raise
        return found


def _connected(store: Path, writing: bool, options: str) -> "SqliteSession":
    connection: SqliteSession = sqlite3.connect(
        f"file:{quote(str(store / DATABASE))}?{options}",
        uri=True,
        timeout=WAIT_S,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=256,
        factory=Immutable if "immutable" in options else SqliteSession,
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

    def each(self, statement: str, values: Any = (), /) -> Iterator[Any]:
        return self.execute(statement, values)


class Immutable(SqliteSession):
    """A connection that sees no changes: its holder checks whether the file has changed, and opens it again."""


def is_written(store: Path) -> bool:
    """Whether something stands ahead of the database, so that somebody writes to it, or was killed while writing."""
    try:
        return (store / f"{DATABASE}-wal").stat().st_size > 0
    except FileNotFoundError:
        return False


def refuse_other_things(store: Path) -> None:
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
    there = "a folder without corpus.db" if store.is_dir() else _kind_of(store)
    indexed = f" Documents are indexed first: spolia index {store} --store {store}.spolia." if store.is_dir() else ""
    raise NotAStore(f"Not a store: {store} is {there}; it was not touched. Name another path.{indexed}")


def _refuse_empty(store: Path) -> None:
    """Refuse a `corpus.db` of no bytes, unless what belongs into it is still ahead of it."""
    path = store / DATABASE
    if path.stat().st_size or is_written(store):
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
    if _version(connection) == sql.SCHEMA_VERSION:
        return False
    # The tables before the version: another process may bring the store up to date between the two.
    has_todays, version = has_tables_of_today(connection), _version(connection)
    if has_todays and version != sql.SCHEMA_VERSION:
        raise StoreCorrupt(
            f"{store} is damaged: corpus.db says that it has schema {version}, and its tables are those of schema "
            f"{sql.SCHEMA_VERSION}. Write: spolia repair --store {store}"
        )
    return is_earlier(store, version, f"rm -r {store}, then spolia index FOLDER --store {store}")


def _version(connection: SqliteSession) -> int:
    found: int = connection.execute(sql.VERSION).fetchone()[0]
    return found


def has_tables_of_today(connection: SqliteSession) -> bool:
    """Whether a database has the tables, indexes and columns that this version makes, and no others."""
    return frozenset(connection.execute(sql.COLUMNS)) == _columns_of_today()


@cache
def _columns_of_today() -> frozenset[tuple[str, str]]:
    with closing(sqlite3.connect(":memory:", isolation_level=None, factory=SqliteSession)) as connection:
        for statement in sql.SCHEMA:
            connection.execute(statement)
        return frozenset(connection.execute(sql.COLUMNS))


def is_earlier(store: object, version: int, again: str) -> bool:
    """Whether a store has an earlier schema, from which it can be brought to this one."""
    if version > sql.SCHEMA_VERSION:
        raise StoreTooNew(
            f"{store} has schema {version}, written by a newer version of Spolia; this one knows up to "
            f"{sql.SCHEMA_VERSION}. Write: {pip_install('', '-U')}"
        )
    if version < min(STEPS):
        raise StoreError(
            f"{store} has schema {version}, written by an early version of Spolia; this one reads {min(STEPS)} to "
            f"{sql.SCHEMA_VERSION}. Make it again: {again}"
        )
    return version < sql.SCHEMA_VERSION


def migrate(connection: Connection, version: int) -> None:
    for step in range(version, sql.SCHEMA_VERSION):
        fail_point("migrate.step")
        STEPS[step](connection)
    fail_point("migrate.commit")


def _from_5(connection: Connection) -> None:
    """Publications get ids. Versions of readers move from the manifest of the main group to the sources."""
    for statement in sql.FROM_5:
        connection.execute(statement)
    for generation, _ in connection.execute(sql.GENERATIONS).fetchall():
        connection.execute(sql.ADD_PUBLICATION_5, StoreVersion.after(generation - 1))
    for (written,) in connection.execute(sql.MANIFESTS).fetchall():
        manifest = json.loads(written)
        if manifest["definition"] and manifest["reader"]:  # one that was written by hand says what it wants there
            for name, reader in reader_versions(manifest["reader"]).items():
                start = json.dumps({"reader": name}, ensure_ascii=False, separators=(",", ":"))[:-1]
                connection.execute(sql.NAME_READER, (reader, start, start))
            text = json.dumps(manifest | {"reader": ""}, ensure_ascii=False, sort_keys=True)
            connection.execute(sql.SET_MANIFEST, (text, manifest["group"]))


def _from_6(connection: Connection) -> None:
    """Every row gets a digest, of what it is."""
    for statement in sql.FROM_6:
        connection.execute(statement)
    for table in sql.GUARDED_6:
        width = sql.GUARDED[table][0].count(",") + 1
        for some in in_batches(connection.each(sql.ROWS_6[table]), _AT_ONCE):
            rows = [(row_digest(row[width:-1]), *row[:width]) for row in some]
            connection.executemany(sql.GUARD[table], rows)
    (uuid,) = connection.execute(sql.UUID).fetchone()
    connection.execute(sql.SET_UUID, (uuid, store_digest(connection, uuid)))


def _from_7(connection: Connection) -> None:
    """Nodes get times."""
    _change_tables(connection, sql.FROM_7)


def _from_8(connection: Connection) -> None:
    """The store notes up to which node all texts have vectors; the next writer looks at all of them once."""
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


def _bring_up_to_date(store: Path, *, is_writable: bool) -> None:
    """One process does it while others wait; one that is killed or fails changes nothing."""
    if not is_writable:
        raise StoreError(
            f"{store} was written by an earlier version of Spolia, and is brought up to date when it is opened; it may "
            f"only be read. Open it once as a user who may write to it, or open a copy: cp -r {store} OTHER"
        )
    with closing(_connected(store, True, "mode=rw")) as connection:  # closing takes back what was not committed
        connection.execute(sql.BEGIN)
        if is_earlier_store(connection, store):
            migrate(connection, connection.execute(sql.VERSION).fetchone()[0])
            connection.execute(sql.SET_VERSION)
        connection.execute(sql.COMMIT)


@contextmanager
def translated(store: Path, doing: str) -> Iterator[None]:
    """Turn what SQLite, the file system and tantivy raise into a `StoreError`; `doing` is a participle, as `opened`."""
    try:
        yield
    except ERRORS as error:
        raise problem_with(store, doing, error) from error


ERRORS = (sqlite3.Error, OSError, UnicodeError)  # SQLite quotes what it cannot read


def problem_with(store: Path, doing: str, error: Exception) -> StoreError:
    what, text = f"{store} could not be {doing}", str(error)
    if isinstance(error, UnicodeEncodeError):
        return no_text(what, error)
    code = getattr(error, "sqlite_errorcode", None) or 0
    number = getattr(error, "errno", None)
    if is_full(error) or _says(text, *_FULL):
        return StoreError(
            f"{what}: the disk is full, or a quota or limit is reached ({text}). Published data is complete. "
            "Free some space and repeat."
        )
    if lacks_files(error):
        return StoreUnavailable(f"{what}: too many files are open ({text}). Allow more (ulimit -n), and repeat.")
    if code & 0xFF == sqlite3.SQLITE_READONLY or number in _DENIED or _says(text, *_DENIED):
        return _denied(store, what, doing, text)
    if not os.path.exists(store / DATABASE) and doing != "made":
        return NotAStore(
            f"{what}: it was deleted while it was open ({text}). Write: spolia index FOLDER --store {store}"
        )
    if code & 0xFF == sqlite3.SQLITE_NOTADB:
        return NotAStore(f"{what}: corpus.db is not a database ({text}). Name another path for the store.")
    if code & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return StoreBusy(f"{what}: another program has locked corpus.db ({text}). End it, then repeat.")
    if code == sqlite3.SQLITE_CONSTRAINT_UNIQUE and "nodes.id" in text:
        return StoreError(f"{what}: two nodes have one id ({text}). Give every node of a corpus an id of its own.")
    if doing == "made" and isinstance(error, OSError) and not os.path.exists(store / DATABASE):
        return StoreError(f"{what}: {text}. Name another path for the store.")
    if code & 0xFF in _DAMAGED or isinstance(error, (ValueError, OSError)):
        return StoreCorrupt(
            f"{what}: {text}. To see what is damaged write: spolia doctor --deep --store {store}; to mend "
            f"what can be mended: spolia repair --store {store}; the rest has to come from a backup."
        )
    return StoreError(f"{what}: {text}. Published data is complete.")


def no_text(what: str, error: UnicodeEncodeError) -> StoreError:
    return StoreError(
        f"{what}: a text holds {error.object[error.start : error.end]!r}, which no encoding of Unicode has. "
        "Write text.encode('utf-8', 'replace').decode() before."
    )


def _denied(store: Path, what: str, doing: str, text: str) -> StoreError:
    if doing in ("opened", "read"):
        return StoreError(
            f"{what}: it may not be read ({text}). Ask its owner: spolia repair --shared-group GROUP --store {store}"
        )
    if doing == "made":
        return StoreError(f"{what}: there may not be written ({text}). Name a path in a folder of your own.")
    return StoreError(
        f"{what}: it may only be read ({text}). Searching works. To write, get the permission to write in the folder, "
        f"or write to a copy: cp -r {store} OTHER"
    )


def _says(text: str, *numbers: int) -> bool:
    """tantivy writes the number of the system's error into its message."""
    return any(f"code: {number}," in text or f"os error {number})" in text for number in numbers)


def create(path: Path) -> None:
    """Make an empty store at `path`, an empty folder or nothing; a store that is there is left as it is."""
    path = path.absolute()
    with translated(path, "made"):
        is_free = not path.exists() or (path.is_dir() and not any(path.iterdir()))
    if not is_free:
        connect(path, writing=False).close()
        return
    folder = path.with_name(f"{path.name}.tmp{os.getpid()}")
    with translated(path, "made"):
        make_folder(path.parent)
        _sweep(path)
        make_folder(folder / PINS)
        try:
            _fill(folder)
            _name(folder, path)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _sweep(path: Path) -> None:
    """Remove what processes have left that were killed while making this store."""
    for folder in path.parent.glob(f"{glob.escape(path.name)}.tmp*"):
        pid = folder.name.removeprefix(f"{path.name}.tmp")
        if pid == str(os.getpid()) or (pid.isdecimal() and not os.path.exists(f"/proc/{pid}")):
            shutil.rmtree(folder, ignore_errors=True)


def _fill(folder: Path) -> None:
    touch(folder / PINS / "0")
    touch(folder / DATABASE)
    with closing(sqlite3.connect(folder / DATABASE, isolation_level=None, factory=SqliteSession)) as connection:
        make_tables(connection)
        begin(connection)
        connection.execute(sql.COMMIT)
    fail_point("create.fsync")
    fsync(folder / DATABASE)
    fsync(folder)


def make_tables(connection: Connection) -> None:
    """The empty tables of a store, in a transaction that is still open."""
    connection.execute(sql.IN_LARGE_PAGES)
    connection.execute(sql.WRITE_AHEAD)
    connection.execute(sql.BEGIN)
    fail_point("create.write")
    for statement in sql.SCHEMA:
        connection.execute(statement)


def begin(connection: Connection) -> None:
    uuid = os.urandom(16).hex()
    connection.execute(sql.NEW_STORE, (uuid, store_digest(connection, uuid)))
    connection.execute(sql.PUBLISH, guarded(0, "{}", ""))
    connection.execute(sql.ADD_PUBLICATION, guarded(*StoreVersion.after(-1)))


def _name(folder: Path, path: Path) -> None:
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
