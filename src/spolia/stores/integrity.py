"""Damage of a store, in words: of its rows, its lexical indexes, its vector segments."""

import sqlite3
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from spolia.errors import StoreCorrupt
from spolia.stores import vectors
from spolia.stores.backends import sql
from spolia.stores.backends.backend import Connection, OpenedPlaces, PinnedSnapshot
from spolia.stores.backends.rows import Unmade, list_some
from spolia.stores.files import index_damage, segment_path, store_errors

if TYPE_CHECKING:
    from spolia.stores.lexical.index import Lexical


class CheckedIndexes(OpenedPlaces, Protocol):
    """What a snapshot keeps open, as a check sees it."""

    def lexical(self, group: str) -> "Lexical": ...


class CheckedSnapshot(PinnedSnapshot, Protocol):
    """Snapshot, as a check sees it."""

    @property
    def open(self) -> CheckedIndexes: ...
    def groups(self) -> tuple[str, ...]: ...
    def unmade(self) -> tuple[Unmade, ...]: ...


def find_problems(snapshot: CheckedSnapshot, *, deep: bool = False) -> list[str]:
    open_store = snapshot.open_store
    with store_errors(open_store.store, "read"):
        row_problems = [
            *open_store.store.problems(open_store.connection),
            *(open_store.store.row_problems() if deep else ()),
        ]
    groups = (problem for group in snapshot.groups() for problem in _group_problems(snapshot, group))
    return [*row_problems, *_find_untried(snapshot), *groups]


def find_sqlite_problems(connection: Connection) -> Iterator[str]:
    try:
        for (message,) in connection.execute(sql.INTEGRITY):
            if message != "ok":
                yield f"corpus.db: {message}"
        for table, row, parent, _ in connection.execute(sql.FOREIGN_KEYS):
            yield f"corpus.db: row {row} of {table} names a row of {parent} that is not there"
        yield from find_row_problems(connection, "corpus.db")
    except sqlite3.DatabaseError as error:
        yield f"corpus.db: {error}"


def find_row_problems(connection: Connection, name: str) -> Iterator[str]:
    for statement, problem in (
        (sql.ORPHANS, "documents that no source holds"),
        (sql.UNHOUSED, "live nodes of deleted documents"),
    ):
        if ids := [str(row[0]) for row in connection.execute(statement)]:
            yield f"{name}: {len(ids)} {problem}: {list_some(ids)}"


def refuse_damaged(snapshot: CheckedSnapshot) -> None:
    if damage := "; ".join(snapshot.open_store.store.row_problems()):
        store = snapshot.open_store.store
        raise StoreCorrupt(f"{store} is damaged: {damage}. Write: spolia repair --store {store}")


def _find_untried(snapshot: CheckedSnapshot) -> Iterator[str]:
    """Yield in words the groups that were not made of documents yet, though nothing is wrong with these."""
    untried: dict[str, list[str]] = {}
    for lack in snapshot.unmade():
        if lack.is_untried:
            untried.setdefault(lack.group, []).append(lack.uri or lack.document)
    for group, documents in untried.items():
        yield (
            f"group {group!r}: {len(documents)} documents were not made yet: {list_some(documents)}. The next run "
            "makes them: spolia index FOLDER, or in Python sync(...)"
        )


def _group_problems(snapshot: CheckedSnapshot, group: str) -> Iterator[str]:
    values = {"grp": group, "at": snapshot.generation}
    folder = snapshot.open_store.store.lexical_index(snapshot, group)
    # The keys of a damaged index would say nothing.
    if problem := index_damage(folder):
        yield problem
        return
    try:
        indexed = Counter(snapshot.open.lexical(group).keys())
    except StoreCorrupt as error:
        yield str(error)
        return
    live = {key for (key,) in snapshot.open_store.rows(sql.LIVE_KEYS, values)}
    for problem, keys in (
        ("are live and not in the lexical index", live - set(indexed)),
        ("are in the lexical index and not live", set(indexed) - live),
        ("are in the lexical index more than once", {key for key, count in indexed.items() if count > 1}),
    ):
        if keys:
            yield f"group {group!r}: {len(keys)} nodes {problem}: {list_some(sorted(keys))}"
    for embedder in (embedding.embedder for embedding in snapshot.manifest(group).embeddings):
        if lacking := snapshot.open_store.row(sql.LACKING, {**values, "embedder": embedder, "key": 0})[0]:
            yield f"group {group!r}: {lacking} nodes have no vector by {embedder!r}"


def damaged_segments(store: Path, connection: Connection) -> dict[Path, str]:
    damage: dict[Path, str] = {}
    for embedder, number, *registered in connection.execute(sql.SEGMENTS).fetchall():
        path = segment_path(store, embedder, number)
        if problem := _segment_problem(connection, path, embedder, number, registered):
            damage[path] = problem
    return damage


def _segment_problem(connection: Connection, path: Path, embedder: str, number: int, registered: list[int]) -> str:
    try:
        segment = vectors.segments.open_any(path)
    except StoreCorrupt as error:
        return error.cause
    except OSError as error:
        return f"The vector segment {path} cannot be read: {error.strerror}"
    sizes = [
        vectors.segments.dimension_of(vectors.segments.content_of(segment)),
        len(segment.hashes),
        path.stat().st_size,
    ]
    if sizes != registered:
        return f"The vector segment {path} has dimension, rows and bytes {sizes}; corpus.db says {registered}"
    rows = connection.execute(sql.VECTOR_ROWS, (embedder, number))
    wrong = [row for hash, row in rows if row >= len(segment.hashes) or segment.hashes[row] != hash]
    return (
        f"The vector segment {path} holds other texts than corpus.db says, in rows {list_some(wrong)}" if wrong else ""
    )
