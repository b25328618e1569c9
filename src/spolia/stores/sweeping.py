"""Removing files that no published generation names: what a killed writer left, and what has grown old."""

from __future__ import annotations

import json
import shutil
import sqlite3
from pathlib import Path

from spolia.stores import sql
from spolia.stores.failpoints import fail_point
from spolia.stores.lock import PINS
from spolia.stores.publishing import LEXICAL


def sweep(store: Path, connection: sqlite3.Connection) -> list[str]:
    """Remove unneeded files and take over vectors that a killed writer had made durable; what was damaged, in words."""
    generations = connection.execute(sql.GENERATIONS).fetchall()
    _sweep_indexes(store, [json.loads(indexes) for _, indexes in generations])
    _sweep_pins(store, {str(generation) for generation, _ in generations})
    return _sweep_vectors(store, connection)


def _sweep_indexes(store: Path, published: list[dict[str, tuple[int, int]]]) -> None:
    needed = {f"{group}/g{at}" for indexes in published for group, (at, _) in indexes.items()}
    for folder in sorted((store / LEXICAL).glob("*/*")):
        if f"{folder.parent.name}/{folder.name}" not in needed:
            fail_point("sweep.lexical")
            shutil.rmtree(folder)


def _sweep_pins(store: Path, needed: set[str]) -> None:
    for path in sorted((store / PINS).iterdir()):
        if path.name not in needed:
            fail_point("sweep.pin")
            path.unlink()


def _sweep_vectors(store: Path, connection: sqlite3.Connection) -> list[str]:
    """Segments are opened only when one is there that the truth does not know: numpy is not imported for nothing."""
    found = sorted((store / "vectors").glob("*/*"))
    known = connection.execute(sql.SEGMENT_NAMES).fetchall()
    if len(found) == len(known) and all(path.suffix == ".seg" for path in found):
        return []
    from spolia.stores.adopting import adopt

    return adopt(store, connection, found)
