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
    has_tables_of_today,
    is_earlier_store,
    make_tables,
    refuse_non_store,
    write_first_generation,
)
from spolia.stores.files import DATABASE, LEXICAL, PINS, VECTORS, fsync


def refuse_foreign(store: Path) -> None:
    """Raise NotAStore as opening does, unless it is a store with a damaged header: by its id, tables or folders."""
    refuse_non_store(store)
    path = store / DATABASE
    with path.open("rb") as file:
        header = file.read(72)
        is_ours = header[68:] == sql.APPLICATION_ID.to_bytes(4, "big")  # where SQLite keeps the application's id
        if is_ours or (header[:16] != MAGIC and any((store / name).is_dir() for name in (PINS, LEXICAL, VECTORS))):
            return
        if header:
            with mmap(file.fileno(), 0, access=ACCESS_READ) as content:
                if any(_find_statement(content, text) >= 0 for text in _TABLES):
                    return
    kind = "another application's SQLite database" if header[:16] == MAGIC else "not a database"
    raise NotAStore(f"Not a store: {path} is {kind}; it was not touched. Name another path.")


def rewrite_damaged(store: Path) -> list[str]:
    """Rewrite the database if its structure is damaged; return the damage in words.

    `spolia.stores.repair` mends rows that are damaged; the next writer takes vectors from their segments. If a node is
    lost, all groups are made again, since nothing tells its document.
    """
    path, new_path = store / DATABASE, store / f"{DATABASE}.new"
    with closing(_open_database(path)) as database:
        if _has_earlier_schema(database, store) or not (damage := _structure_damage(database)):
            return []
    try:
        with closing(_open_database(_restore_tables(path))) as damaged:
            new_path.unlink(missing_ok=True)
            touch(new_path)
            with closing(sqlite3.connect(new_path, isolation_level=None, factory=SqliteSession)) as target:
                make_tables(target)
                _copy_rows(damaged, target)
                target.execute(sql.COMMIT)
        # Durable before it takes the place of the damaged one.
        fsync(new_path)
        set_aside(path, replaced=True)  # with its log, which would be taken for that of the new one
        os.rename(new_path, path)
        fsync(store)
    finally:
        for temporary in (new_path, Path(f"{path}.old")):
            temporary.unlink(missing_ok=True)
    return [f"{path} was damaged ({damage}); it was written again from the rows that could be read."]


def _has_earlier_schema(database: SqliteSession, store: Path) -> bool:
    """Return whether the schema is an earlier one, and not damaged; raise StoreTooNew if a newer version wrote it.

    Where the number of the schema changed by damage, the tables are those of today, and no others.
    """
    with suppress(sqlite3.Error, ValueError):
        return not has_tables_of_today(database) and is_earlier_store(database, store)
    return False


def _open_database(path: Path) -> SqliteSession:
    session = sqlite3.connect(path, isolation_level=None, factory=SqliteSession)
    session.text_factory = legible
    return session


def _restore_tables(path: Path) -> Path:
    """Return the database, or a copy with the definitions of its tables restored, without which nothing can be read."""
    content = bytearray(path.read_bytes())
    original = bytes(content)
    for text in _TABLES:
        if (start := _find_statement(content, text)) >= 0:
            content[start : start + len(text)] = text.encode()
            _restore_names(content, start, text)
    # Where SQLite keeps `user_version`, and below that `application_id`.
    content[60:64] = sql.SCHEMA_VERSION.to_bytes(4, "big")
    content[68:72] = sql.APPLICATION_ID.to_bytes(4, "big")
    if content == original:
        return path
    copy = Path(f"{path}.old")
    with open(copy, "wb", opener=private) as file:
        file.write(content)
    return copy


_TABLES = [text for text in sql.SCHEMA if text.startswith("CREATE")]


def _find_statement(content: bytearray | mmap, text: str) -> int:
    """Return where a statement starts of which at least one half is there; less than 0 if none is."""
    statement, half = text.encode(), len(text) // 2
    return max(content.find(statement[:half]), content.find(statement[half:]) - half)


def _restore_names(content: bytearray, statement_start: int, statement: str) -> None:
    """Write kind and names before a statement, and before the number of its page, if all but one byte are there."""
    if match := re.match(r"CREATE (TABLE|INDEX) (\w+)(?: ON (\w+))?", statement):
        kind, name, table = match.groups()
        names = f"{kind.lower()}{name}{table or name}".encode()
        for end in (statement_start - 1, statement_start - 2):  # the page's number takes one byte or two
            start = end - len(names)
            if sum(byte != expected for byte, expected in zip(content[start:end], names, strict=True)) == 1:
                content[start:end] = names


def _structure_damage(damaged: SqliteSession) -> str:
    try:
        problems = [message for (message,) in damaged.execute(sql.INTEGRITY) if message != "ok"]
        ((uuid, digest),) = damaged.execute(sql.STORE).fetchall()
        header = [damaged.execute(statement).fetchone()[0] for statement in (sql.APPLICATION, sql.VERSION)]
        if header != [sql.APPLICATION_ID, sql.SCHEMA_VERSION]:
            return "its header says what it is not"
        return (
            problems[0]
            if problems
            else ""
            if digest == store_digest(damaged, uuid)
            else "its tables, or its id, changed"
        )
    except (sqlite3.Error, ValueError) as error:
        return str(error)


def _copy_rows(damaged: SqliteSession, target: SqliteSession) -> None:
    write_first_generation(target)
    for table in ("generations", "publications"):
        target.execute(sql.EMPTY.format(table=table))
    is_short = False
    for table in sql.GUARDED_AND_LISTS:
        errors: list[str] = []
        for row in _readable_rows(damaged, table, errors):
            if table == "nodes" and node_digest((*row[1:-3], row[-1])) != row[-2]:
                is_short = True  # what it was of may be what is damaged
            target.execute(sql.COPY.format(table=table, places=sql.places(row)), row)
        if table == "publications" and errors and target.execute(sql.LAST_PUBLISHED).fetchone()[0] is None:
            raise StoreCorrupt(
                f"corpus.db cannot be read at all ({errors[0]}), and has to be restored from a backup. Or move the "
                "store away and index the folder again."
            )
        is_short = is_short or (table == "nodes" and (bool(errors) or _lacks_nodes(damaged, target)))
    for table in ("nodes", "sources", "documents"):
        for statement in sql.ALIVE_ONLY:
            target.execute(statement.format(table=table))
    with suppress(sqlite3.Error, ValueError):
        ((uuid, _),) = damaged.execute(sql.STORE).fetchall()
        target.execute(sql.SET_UUID, (uuid, store_digest(target, uuid)))
    for statement in sql.LAST_GENERATION:
        target.execute(statement)
    if is_short:
        target.execute(sql.EMPTY.format(table="nodes"))
        for (group,) in target.execute(sql.GROUPS).fetchall():
            target.execute(sql.EXPECT, unmade_row(group, NOT_YET))


def _readable_rows(damaged: SqliteSession, table: str, errors: list[str]) -> Iterator[Any]:
    """Yield the rows that can be read; of tables with a key also the rows behind a page that cannot be read."""
    has_keys, key, step = table not in sql.WITHOUT_KEYS, -1, 1
    while step < sql.ALIVE:
        try:
            statement = sql.ROWS_AFTER if has_keys else sql.EVERY_ROW
            for row_key, *row in damaged.execute(statement.format(table=table), (key,) if has_keys else ()):
                yield tuple(row)
                key, step = (row_key, 1) if has_keys else (key, step)
            return
        except (sqlite3.Error, ValueError) as error:
            errors.append(str(error))
            # Steps double, so that a damaged stretch is passed with few statements.
            key, step = key + step, 2 * step if has_keys else sql.ALIVE


def _lacks_nodes(damaged: SqliteSession, target: sqlite3.Connection) -> bool:
    """Return whether an index of the damaged database names more nodes than were found."""
    (count,) = target.execute(sql.COUNT_ROWS.format(table="nodes")).fetchone()
    try:
        return any(damaged.execute(statement).fetchone()[0] > count for statement in sql.COUNTS_BY_INDEX)
    except (sqlite3.Error, ValueError):
        return True
