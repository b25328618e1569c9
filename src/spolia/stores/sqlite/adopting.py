"""Making the truth and the vector segments on the disk agree again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from spolia.errors import StoreCorrupt
from spolia.stores.failpoints import fail_point
from spolia.stores.layout import segment_path
from spolia.stores.tables import sql
from spolia.stores.truth import Connection
from spolia.stores.vectors.segments import content_of, dimension_of, open_any


def adopt(connection: Connection, unknown: Iterable[Path]) -> list[str]:
    """Take over what a killed writer had made durable, and remove what is of no use; what was damaged, in words."""
    damaged = []
    connection.execute(sql.BEGIN)
    for path in unknown:
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


def _register(connection: Connection, path: Path) -> bool:
    """Whether the segment holds a vector that the truth lacks; it is registered then."""
    segment, number = open_any(path, checked=True), int(path.stem)
    count, dimension = len(segment.hashes), dimension_of(content_of(segment))
    fail_point("adopt.write")
    connection.execute(sql.ADD_SEGMENT, (segment.embedder, number, dimension, count, path.stat().st_size))
    rows = ((segment.embedder, hash, number, row) for row, hash in enumerate(segment.hashes))
    if connection.executemany(sql.ADD_VECTOR, rows).rowcount > 0:
        return True
    connection.execute(sql.DROP_SEGMENT, (segment.embedder, number))
    return False


def forget(store: Path, connection: Connection, damaged: Mapping[Path, str]) -> list[str]:
    """Drop the vectors of damaged segments from the truth, so that their texts count as not embedded; in words."""
    said = []
    connection.execute(sql.BEGIN)
    for embedder, number, _, count, _ in connection.execute(sql.SEGMENTS).fetchall():
        path = segment_path(store, embedder, number)
        if path in damaged:
            fail_point("forget.write")
            connection.execute(sql.DROP_VECTORS, (embedder, number))
            connection.execute(sql.DROP_SEGMENT, (embedder, number))
            said.append(
                f"The vector segment {path} was damaged ({damaged[path]}); its {count} vectors have to be made again: "
                "index again."
            )
    fail_point("forget.commit")
    connection.execute(sql.COMMIT)
    return said
