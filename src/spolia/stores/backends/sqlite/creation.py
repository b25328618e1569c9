"""Making a store: whole under its name, or not at all."""

from __future__ import annotations

import glob
import os
import shutil
import sqlite3
from pathlib import Path

from spolia.errors import NotAStore
from spolia.stores.backends.sqlite.connection import connect, translated
from spolia.stores.failpoints import fail_point
from spolia.stores.layout import DATABASE, PINS, fsync_file, fsync_folder
from spolia.stores.tables import sql
from spolia.stores.tables.rows import StoreVersion


def create(path: Path) -> None:
    """Make an empty store at `path`, an empty folder or nothing; a store that is there is left as it is.

    Raises:
        NotAStore: something else is there.
    """
    path = path.absolute()
    if not _is_free(path):
        connect(path, writing=False).close()
        return
    folder = path.with_name(f"{path.name}.tmp{os.getpid()}")
    with translated(path, "made"):
        path.parent.mkdir(parents=True, exist_ok=True)
        _sweep(path)
        (folder / PINS).mkdir(parents=True)
        try:
            _fill(folder)
            _name(folder, path)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _is_free(path: Path) -> bool:
    with translated(path, "made"):
        return not path.exists() or (path.is_dir() and not any(path.iterdir()))


def _sweep(path: Path) -> None:
    """Remove what processes have left that were killed while making this store."""
    for folder in path.parent.glob(f"{glob.escape(path.name)}.tmp*"):
        pid = folder.name.removeprefix(f"{path.name}.tmp")
        if pid == str(os.getpid()) or (pid.isdecimal() and not os.path.exists(f"/proc/{pid}")):
            shutil.rmtree(folder, ignore_errors=True)


def _fill(folder: Path) -> None:
    (folder / PINS / "0").touch(mode=0o644)
    connection = sqlite3.connect(folder / DATABASE, isolation_level=None)
    try:
        connection.execute(sql.WRITE_AHEAD)
        connection.execute(sql.BEGIN)
        fail_point("create.write")
        for statement in sql.SCHEMA:
            connection.execute(statement)
        connection.execute(sql.NEW_STORE, (os.urandom(16).hex(),))
        connection.execute(sql.PUBLISH, (0, "{}", ""))
        connection.execute(sql.ADD_PUBLICATION, StoreVersion.after(-1))
        connection.execute(sql.COMMIT)
    finally:
        connection.close()
    fail_point("create.fsync")
    fsync_file(folder / DATABASE)
    fsync_folder(folder)


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
    fsync_folder(path.parent)
