"""Taking over vectors that were made durable by a writer which was killed before it published."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from spolia.errors import StoreCorrupt
from spolia.stores import sql
from spolia.stores.failpoints import fail_point
from spolia.stores.vectors import open_segment, segment_path


def adopt(store: Path, connection: sqlite3.Connection, found: list[Path]) -> list[str]:
    """Register the whole segments that the truth does not know, remove the rest; what was damaged, in words."""
    known = {segment_path(store, *row) for row in connection.execute(sql.SEGMENT_NAMES)}
    damaged = []
    connection.execute(sql.BEGIN)
    for path in found:
        if path in known:
            continue
        try:
            taken = path.suffix == ".seg" and _register(connection, path)
        except StoreCorrupt as error:
            taken = False
            damaged.append(str(error))
        if not taken:
            fail_point("sweep.segment")
            path.unlink()
    fail_point("adopt.commit")
    connection.execute(sql.COMMIT)
    return damaged


def _register(connection: sqlite3.Connection, path: Path) -> bool:
    """Whether the segment holds a vector that the truth lacks; it is registered then."""
    segment = open_segment(path, checked=True)
    count, dimension = segment.vectors.shape
    number = int(path.stem)
    fail_point("adopt.write")
    connection.execute(sql.ADD_SEGMENT, (segment.embedder, number, dimension, count, path.stat().st_size))
    rows = [(segment.embedder, hash, number, row) for row, hash in enumerate(segment.hashes)]
    if connection.executemany(sql.ADD_VECTOR, rows).rowcount > 0:
        return True
    connection.execute(sql.DROP_SEGMENT, (segment.embedder, number))
    return False
