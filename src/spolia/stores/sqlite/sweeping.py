"""Removing files that no published generation names: what a killed writer left, and what has grown old."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from spolia.stores.failpoints import fail_point
from spolia.stores.layout import LEXICAL, PINS, VECTORS, lexical_folder, segment_path
from spolia.stores.tables import sql
from spolia.stores.truth import Connection


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
    from spolia.stores.sqlite.adopting import adopt, forget

    lost = {path: f"it should have {size} bytes" for path, size in known.items() if there.get(path) != size}
    said = forget(store, connection, lost) if lost else []
    return said + adopt(connection, [path for path in there if path not in known or path in lost])
