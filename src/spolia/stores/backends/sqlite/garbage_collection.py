"""Removing files that no published generation names: what a killed writer left, and what has grown old."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

from spolia.errors import StoreCorrupt
from spolia.stores.backends import sql
from spolia.stores.backends.backend import Connection
from spolia.stores.files import LEXICAL, PINS, VECTORS, fail_point, lexical_folder, segment_path
from spolia.stores.vectors.segments import content_of, dimension_of, open_any


def sweep(store: Path, connection: Connection) -> list[str]:
    """Remove unneeded files and take over vectors that a killed writer had made durable; what was damaged, in words."""
    generations = connection.execute(sql.GENERATIONS).fetchall()
    _sweep_indexes(store, [json.loads(indexes) for _, indexes in generations])
    _sweep_pins(store, {str(generation) for generation, _ in generations})
    return _sweep_segments(store, connection)


def _sweep_indexes(store: Path, published: list[dict[str, tuple[int, int]]]) -> None:
    needed = {lexical_folder(store, group, at) for indexes in published for group, (at, _) in indexes.items()}
    for folder in sorted((store / LEXICAL).glob("*/*")):
        if folder not in needed:
            fail_point("sweep.lexical")
            shutil.rmtree(folder)


def _sweep_pins(store: Path, needed: set[str]) -> None:
    (store / PINS).mkdir(exist_ok=True)  # of a database that was put back alone it is not there
    for path in sorted((store / PINS).iterdir()):
        if path.name not in needed:
            fail_point("sweep.pin")
            path.unlink()


def _sweep_segments(store: Path, connection: Connection) -> list[str]:
    """Segments are opened only when one is there that the truth does not know: numpy is not imported for nothing."""
    there = {path: path.stat().st_size for path in sorted((store / VECTORS).glob("*/*"))}
    known = {segment_path(store, name, number): size for name, number, _, _, size in connection.execute(sql.SEGMENTS)}
    if there == known:
        return []

    lost = {path: f"it should have {size} bytes" for path, size in known.items() if there.get(path) != size}
    said = forget(store, connection, lost) if lost else []
    return said + adopt(connection, [path for path in there if path not in known or path in lost])


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
