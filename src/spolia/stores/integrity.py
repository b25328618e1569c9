"""What is wrong with a store, in words: its rows, its lexical indexes, its vector segments."""

import sqlite3
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from spolia.errors import StoreCorrupt
from spolia.stores import vectors
from spolia.stores.backends import sql
from spolia.stores.backends.backend import Connection
from spolia.stores.backends.rows import some_of
from spolia.stores.files import damaged, segment_path, translated

if TYPE_CHECKING:
    from spolia.stores.snapshot.snapshot import Snapshot


def problems(snapshot: "Snapshot", *, deep: bool = False) -> list[str]:
    opened = snapshot.opened
    with translated(opened.store, "read"):
        found = [*opened.store.problems(opened.connection), *(opened.store.row_problems() if deep else ())]
    groups = (problem for group in snapshot.groups() for problem in _group_problems(snapshot, group))
    return [*found, *_lacks(snapshot), *groups]


def backend_problems(connection: Connection) -> Iterator[str]:
    try:
        for (said,) in connection.execute(sql.INTEGRITY):
            if said != "ok":
                yield f"corpus.db: {said}"
        for table, row, other, _ in connection.execute(sql.FOREIGN_KEYS):
            yield f"corpus.db: row {row} of {table} names a row of {other} that is not there"
        yield from rows_problems(connection, "corpus.db")
    except sqlite3.DatabaseError as error:
        yield f"corpus.db: {error}"


def rows_problems(connection: Connection, name: str) -> Iterator[str]:
    for statement, said in (
        (sql.ORPHANS, "documents that no source holds"),
        (sql.UNHOUSED, "live nodes of deleted documents"),
    ):
        if found := [str(row[0]) for row in connection.execute(statement)]:
            yield f"{name}: {len(found)} {said}: {some_of(found)}"


def refuse_damaged(snapshot: "Snapshot") -> None:
    if found := "; ".join(snapshot.opened.store.row_problems()):
        store = snapshot.opened.store
        raise StoreCorrupt(f"{store} is damaged: {found}. Write: spolia repair --store {store}")


def _lacks(snapshot: "Snapshot") -> Iterator[str]:
    """Which groups are not made of documents, though nothing is wrong with these."""
    untried: dict[str, list[str]] = {}
    for lack in snapshot.unmade():
        if lack.is_untried:
            untried.setdefault(lack.group, []).append(lack.uri or lack.document)
    for group, documents in untried.items():
        yield (
            f"group {group!r}: {len(documents)} documents were not made yet: {some_of(documents)}. The next run makes "
            "them: spolia index FOLDER, or in Python sync(...)"
        )


def _group_problems(snapshot: "Snapshot", group: str) -> Iterator[str]:
    values = {"grp": group, "at": snapshot.generation}
    folder = snapshot.opened.store.lexical(snapshot, group)
    if said := damaged(folder):
        yield said
        return
    try:
        indexed = Counter(snapshot.open.lexical(group).keys())
    except StoreCorrupt as error:
        yield str(error)
        return
    live = {key for (key,) in snapshot.opened.rows(sql.LIVE_KEYS, values)}
    for said, keys in (
        ("are live and not in the lexical index", live - set(indexed)),
        ("are in the lexical index and not live", set(indexed) - live),
        ("are in the lexical index more than once", {key for key, count in indexed.items() if count > 1}),
    ):
        if keys:
            yield f"group {group!r}: {len(keys)} nodes {said}: {some_of(sorted(keys))}"
    for embedder in (embedding.embedder for embedding in snapshot.manifest(group).embeddings):
        if lacking := snapshot.opened.row(sql.LACKING, {**values, "embedder": embedder, "key": 0})[0]:
            yield f"group {group!r}: {lacking} nodes have no vector by {embedder!r}"


def damaged_segments(store: Path, connection: Connection) -> dict[Path, str]:
    found: dict[Path, str] = {}
    for embedder, number, *said_of in connection.execute(sql.SEGMENTS).fetchall():
        path = segment_path(store, embedder, number)
        if said := _segment_problem(connection, path, embedder, number, said_of):
            found[path] = said
    return found


def _segment_problem(connection: Connection, path: Path, embedder: str, number: int, said: list[int]) -> str:
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
    if sizes != said:
        return f"The vector segment {path} has dimension, rows and bytes {sizes}; corpus.db says {said}"
    rows = connection.execute(sql.VECTOR_ROWS, (embedder, number))
    wrong = [row for hash, row in rows if row >= len(segment.hashes) or segment.hashes[row] != hash]
    return f"The vector segment {path} holds other texts than corpus.db says, in rows {some_of(wrong)}" if wrong else ""
