"""Rewrite a damaged `corpus.db` from its readable rows; report what its log has lost."""

import os
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any

from spolia.errors import NotAStore, StoreCorrupt
from spolia.private_files import private, set_aside, touch
from spolia.stores.backends import sql
from spolia.stores.backends.rows import NOT_YET, legible, node_digest, store_digest, unmade_row
from spolia.stores.backends.sqlite.connection import (
    MAGIC,
    SqliteSession,
    begin,
    has_tables_of_today,
    is_earlier_store,
    make_tables,
    refuse_other_things,
)
from spolia.stores.files import DATABASE, LEXICAL, PINS, VECTORS, fsync


def refuse_foreign(store: Path) -> None:
    """Refuse what opening refuses, unless it is a store with a damaged header: by its id, tables or folders."""
    refuse_other_things(store)
    path = store / DATABASE
    with path.open("rb") as file:
        header = file.read(72)
        is_ours = header[68:] == sql.APPLICATION_ID.to_bytes(4, "big")
        if is_ours or (header[:16] != MAGIC and any((store / name).is_dir() for name in (PINS, LEXICAL, VECTORS))):
            return
        if header:
            with mmap(file.fileno(), 0, access=ACCESS_READ) as content:
                if any(_place(content, text) >= 0 for text in _TABLES):
                    return
    there = "another application's SQLite database" if header[:16] == MAGIC else "not a database"
    raise NotAStore(f"Not a store: {path} is {there}; it was not touched. Name another path.")


def salvaged(store: Path) -> list[str]:
    """Rewrite the database if its structure is damaged; returns the damage in words.

    `spolia.stores.repair` mends rows that are damaged; the next writer takes vectors from their segments. If a node is
    lost, all groups are made again, since nothing tells its document.
    """
    path, fresh = store / DATABASE, store / f"{DATABASE}.new"
    with closing(_opened(path)) as found:
        if _has_earlier_schema(found, store) or not (said := _structure(found)):
            return []
    try:
        with closing(_opened(_with_tables(path))) as damaged:
            fresh.unlink(missing_ok=True)
            touch(fresh)
            with closing(sqlite3.connect(fresh, isolation_level=None, factory=SqliteSession)) as whole:
                make_tables(whole)
                _copy(damaged, whole)
                whole.execute(sql.COMMIT)
        fsync(fresh)
        set_aside(path, replaced=True)  # with its log, which would be taken for that of the new one
        os.rename(fresh, path)
        fsync(store)
    finally:
        for left in (fresh, Path(f"{path}.old")):
            left.unlink(missing_ok=True)
    return [f"{path} was damaged ({said}); it was written again from the rows that could be read."]


def _has_earlier_schema(found: SqliteSession, store: Path) -> bool:
    """Whether it is brought up to date, and not damaged; StoreTooNew if a newer version wrote it.

    Where the number of the schema changed by damage, the tables are those of today, and no others.
    """
    with suppress(sqlite3.Error, ValueError):
        return not has_tables_of_today(found) and is_earlier_store(found, store)
    return False


def _opened(path: Path) -> SqliteSession:
    found = sqlite3.connect(path, isolation_level=None, factory=SqliteSession)
    found.text_factory = legible
    return found


def _with_tables(path: Path) -> Path:
    """The database, or a copy that has its tables' definitions whole again, without which nothing can be read."""
    content = bytearray(path.read_bytes())
    before = bytes(content)
    for text in _TABLES:
        if (at := _place(content, text)) >= 0:
            content[at : at + len(text)] = text.encode()
            _name(content, at, text)
    content[60:64] = sql.SCHEMA_VERSION.to_bytes(4, "big")
    content[68:72] = sql.APPLICATION_ID.to_bytes(4, "big")
    if content == before:
        return path
    copy = Path(f"{path}.old")
    with open(copy, "wb", opener=private) as file:
        file.write(content)
    return copy


_TABLES = [text for text in sql.SCHEMA if text.startswith("CREATE")]


def _place(content: bytearray | mmap, text: str) -> int:
    """Where a statement starts of which at least one half is there; less than 0 if none is."""
    statement, half = text.encode(), len(text) // 2
    return max(content.find(statement[:half]), content.find(statement[half:]) - half)


def _name(content: bytearray, at: int, statement: str) -> None:
    """Write kind and names before a statement, and before the number of its page, if all but one byte are there."""
    if found := re.match(r"CREATE (TABLE|INDEX) (\w+)(?: ON (\w+))?", statement):
        kind, name, table = found.groups()
        names = f"{kind.lower()}{name}{table or name}".encode()
        for end in (at - 1, at - 2):
            start = end - len(names)
            if sum(one != other for one, other in zip(content[start:end], names, strict=True)) == 1:
                content[start:end] = names


def _structure(damaged: SqliteSession) -> str:
    try:
        found = [said for (said,) in damaged.execute(sql.INTEGRITY) if said != "ok"]
        ((uuid, digest),) = damaged.execute(sql.STORE).fetchall()
        header = [damaged.execute(asked).fetchone()[0] for asked in (sql.APPLICATION, sql.VERSION)]
        if header != [sql.APPLICATION_ID, sql.SCHEMA_VERSION]:
            return "its header says what it is not"
        return found[0] if found else "" if digest == store_digest(damaged, uuid) else "its tables, or its id, changed"
    except (sqlite3.Error, ValueError) as error:
        return str(error)


def _copy(damaged: SqliteSession, whole: SqliteSession) -> None:
    begin(whole)
    for table in ("generations", "publications"):
        whole.execute(sql.EMPTY.format(table=table))
    is_short = False
    for table in sql.GUARDED_AND_LISTS:
        errors: list[str] = []
        for row in _rows(damaged, table, errors):
            if table == "nodes" and node_digest((*row[1:-3], row[-1])) != row[-2]:
                is_short = True  # what it was of may be what is damaged
            whole.execute(sql.COPY.format(table=table, places=sql.places(row)), row)
        if table == "publications" and errors and whole.execute(sql.LAST_PUBLISHED).fetchone()[0] is None:
            raise StoreCorrupt(
                f"corpus.db cannot be read at all ({errors[0]}), and has to be restored from a backup. Or move the "
                "store away and index the folder again."
            )
        is_short = is_short or (table == "nodes" and (bool(errors) or _is_short(damaged, whole)))
    for table in ("nodes", "sources", "documents"):
        for statement in sql.ALIVE_ONLY:
            whole.execute(statement.format(table=table))
    with suppress(sqlite3.Error, ValueError):
        ((uuid, _),) = damaged.execute(sql.STORE).fetchall()
        whole.execute(sql.SET_UUID, (uuid, store_digest(whole, uuid)))
    for statement in sql.LAST_GENERATION:
        whole.execute(statement)
    if is_short:
        whole.execute(sql.EMPTY.format(table="nodes"))
        for (group,) in whole.execute(sql.GROUPS).fetchall():
            whole.execute(sql.EXPECT, unmade_row(group, NOT_YET))


def _rows(damaged: SqliteSession, table: str, errors: list[str]) -> Iterator[Any]:
    """The rows that can be read; of those with a key also what stands behind a page that cannot be."""
    has_keys, key, step = table not in sql.WITHOUT_KEYS, -1, 1
    while step < sql.ALIVE:
        try:
            statement = sql.ROWS_AFTER if has_keys else sql.EVERY_ROW
            for found, *row in damaged.execute(statement.format(table=table), (key,) if has_keys else ()):
                yield tuple(row)
                key, step = (found, 1) if has_keys else (key, step)
            return
        except (sqlite3.Error, ValueError) as error:
            errors.append(str(error))
            key, step = key + step, 2 * step if has_keys else sql.ALIVE


def _is_short(damaged: SqliteSession, whole: sqlite3.Connection) -> bool:
    """Whether an index of the damaged one names more nodes than were found."""
    (count,) = whole.execute(sql.COUNT_ROWS.format(table="nodes")).fetchone()
    try:
        return any(damaged.execute(asked).fetchone()[0] > count for asked in sql.COUNTS_BY_INDEX)
    except (sqlite3.Error, ValueError):
        return True
