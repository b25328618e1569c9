"""Vectors on their way into segments."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from spolia.errors import StoreError
from spolia.stores import sql
from spolia.stores.failpoints import fail_point
from spolia.stores.layout import segment_path
from spolia.stores.vectors import Vectors, open_segment, write_segment

SEGMENT_ROWS = 4_096
FLUSHED_ROWS = 512
SMALL_SEGMENTS = 16
_UNIT = 1e-3


class Embedded:
    """Collects vectors and writes them in segments; what is written stays even if the transaction is taken back."""

    def __init__(self, store: Path, connection: sqlite3.Connection) -> None:
        self.store, self.connection = store, connection
        self._pending: dict[str, dict[bytes, Vectors]] = {}

    def is_pending(self, embedder: str, hash: bytes) -> bool:
        """Whether a vector was added and is not written yet."""
        return hash in self._pending.get(embedder, ())

    def add(self, embedder: str, hashes: Sequence[bytes], vectors: Vectors) -> None:
        """Take vectors; those that are there already are left as they are."""
        vectors = np.asarray(vectors, dtype=np.float32)
        self._refuse(embedder, hashes, vectors)
        pending = self._pending.setdefault(embedder, {})
        for hash, vector in zip(hashes, vectors, strict=True):
            if hash not in pending and not self.connection.execute(sql.HAS_VECTOR, (embedder, hash)).fetchone():
                pending[hash] = vector.copy()
        if len(pending) >= FLUSHED_ROWS:
            self._write(embedder)

    def flush(self) -> None:
        """Write what was collected, and join small segments where there are many."""
        for embedder in self._pending:
            self._write(embedder)
            self._merge(embedder)

    def _refuse(self, embedder: str, hashes: Sequence[bytes], vectors: Vectors) -> None:
        known = self.connection.execute(sql.SEGMENTS_OF, (embedder,)).fetchone()
        pending = next(iter(self._pending.get(embedder, {}).values()), None)
        expected = known[1] if known else len(pending) if pending is not None else None
        if vectors.ndim != 2 or len(vectors) != len(hashes) or expected not in (None, vectors.shape[1]):
            raise StoreError(
                f"{len(hashes)} hashes came with vectors of shape {vectors.shape}, where {embedder!r} has "
                f"{expected or 'some'} numbers in a vector. Write one row for each hash."
            )
        lengths = np.linalg.norm(vectors, axis=1)
        wrong = np.flatnonzero(~((np.abs(lengths - 1) < _UNIT) | (lengths == 0)))
        if len(wrong):
            raise StoreError(
                f"Vector {wrong[0]} by {embedder!r} has length {lengths[wrong[0]]}, not 1. "
                "Normalise before: vectors / norms."
            )

    def _write(self, embedder: str) -> None:
        pending = self._pending[embedder]
        if pending:
            self._register(embedder, list(pending), np.stack(list(pending.values())))
            pending.clear()

    def _register(self, embedder: str, hashes: list[bytes], vectors: Vectors) -> int:
        number = next_number(self.store, embedder)
        size = write_segment(segment_path(self.store, embedder, number), embedder, hashes, vectors)
        fail_point("vectors.register")
        self.connection.execute(sql.ADD_SEGMENT, (embedder, number, vectors.shape[1], len(hashes), size))
        rows = [(embedder, hash, number, row) for row, hash in enumerate(hashes)]
        self.connection.executemany(sql.ADD_VECTOR, rows)
        return number

    def _merge(self, embedder: str) -> None:
        """Join small segments, so that a store that grows daily has few; their files go after the commit."""
        found = self.connection.execute(sql.SEGMENTS_OF, (embedder,)).fetchall()
        small = [number for number, _, count, _ in found if count < SEGMENT_ROWS]
        if len(small) < SMALL_SEGMENTS:
            return
        fail_point("vectors.merge")
        segments = [open_segment(segment_path(self.store, embedder, number)) for number in small]
        hashes = [hash for segment in segments for hash in segment.hashes]
        merged = self._register(embedder, hashes, np.concatenate([segment.vectors for segment in segments]))
        rows = [(merged, row, embedder, hash) for row, hash in enumerate(hashes)]
        self.connection.executemany(sql.MOVE_VECTOR, rows)
        for number in small:
            self.connection.execute(sql.DROP_SEGMENT, (embedder, number))


def next_number(store: Path, embedder: str) -> int:
    """A number that no segment of the embedder has, on the disk or before."""
    folder = segment_path(store, embedder, 0).parent
    return max((int(path.stem) for path in folder.glob("*.seg")), default=0) + 1
