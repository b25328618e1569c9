"""Segments of vectors: files of rows of one length, and when they are written, opened and joined."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np

from spolia.errors import StoreError
from spolia.models.vectors import SparseRows
from spolia.stores.backends import sql
from spolia.stores.backends.backend import Connection
from spolia.stores.backends.rows import with_digest
from spolia.stores.files import fail_point, segment_path
from spolia.stores.vectors import sparse
from spolia.stores.vectors.dense import Vectors, VectorSegment, open_segment, write_segment
from spolia.stores.vectors.sparse import SparseSegment, open_sparse, write_sparse

_UNIT = 1e-3


def check_vectors(
    embedder: str, count: int, vectors: Vectors | Sequence[Vectors], dimension: int | None, unit: bool
) -> Vectors:
    """Return the vectors as float32[count, d]; raise StoreError for a row that does not fit. `unit`: they have length 1
    or 0."""
    if not hasattr(vectors, "__len__") or (isinstance(vectors, np.ndarray) and not vectors.ndim):
        raise StoreError(
            f"{embedder!r} gave {vectors!r:.40} for {count} texts, which are not vectors. Correct the embedder: "
            "float32[n, d], one row for each."
        )
    if len(vectors) != count:
        raise StoreError(
            f"{embedder!r} gave {len(vectors)} vectors for {count} texts. Correct the embedder: one row for each."
        )
    for row, vector in enumerate(vectors):
        if np.ndim(vector) != 1 or (dimension := dimension or len(vector)) != len(vector):
            raise StoreError(
                f"Vector {row} by {embedder!r} has shape {np.shape(vector)}, where {dimension or 'some'} numbers in a "
                "vector were expected. Write vectors by the embedder that the group was built with."
            )
    rows = np.asarray(vectors, dtype=np.float32)
    if not count:
        return rows
    if len(invalid := np.flatnonzero(~np.isfinite(rows).all(axis=1))):
        raise StoreError(
            f"Vector {invalid[0]} by {embedder!r} holds NaN or infinity. Check what the embedder returned."
        )
    lengths = np.linalg.norm(rows, axis=1)
    if unit and len(invalid := np.flatnonzero((np.abs(lengths - 1) >= _UNIT) & (lengths > 0))):
        raise StoreError(
            f"Vector {invalid[0]} by {embedder!r} has length {lengths[invalid[0]]}, not 1. "
            "Normalise before: vectors / norms."
        )
    return rows


def refuse_other_kind(embedder: str, dimension: int | None, *, sparse: bool) -> None:
    """Raise `StoreError` for dense vectors if an embedder gave sparse ones (`dimension` is 0), or the reverse."""
    if dimension is not None and (dimension == 0) is not sparse:
        stored_kind, new_kind = ("dense", "sparse") if sparse else ("sparse", "dense")
        raise StoreError(
            f"{embedder!r} gave {new_kind} vectors, where it has {stored_kind} ones in the store. Give embedders of "
            "different vectors different names."
        )


AnySegment: TypeAlias = VectorSegment | SparseSegment
AnyRows: TypeAlias = Vectors | SparseRows

SPARSE = 0
"""Stands where the dimension of dense vectors does."""


def open_any(path: Path) -> AnySegment:
    with path.open("rb") as file:
        is_sparse = file.read(len(sparse.MAGIC)) == sparse.MAGIC
    return open_sparse(path) if is_sparse else open_segment(path)


def write_any(path: Path, embedder: str, hashes: Sequence[bytes], parts: Sequence[AnyRows]) -> int:
    """Make the rows of all parts durable as one segment; returns its size in bytes."""
    rows = [part for part in parts if isinstance(part, SparseRows)]
    if rows:
        return write_sparse(path, embedder, hashes, SparseRows.concatenate(rows))
    return write_segment(path, embedder, hashes, *(part for part in parts if isinstance(part, np.ndarray)))


def content_of(segment: AnySegment) -> AnyRows:
    return segment.rows if isinstance(segment, SparseSegment) else segment.vectors


def dimension_of(rows: AnyRows) -> int:
    """Return how many numbers a vector has; `SPARSE` for sparse ones."""
    return SPARSE if isinstance(rows, SparseRows) else int(rows.shape[1])


SEGMENT_ROWS = 4_096
FLUSHED_ROWS = 512
SMALL_SEGMENTS = 16


class VectorWriter(ABC):
    """Writer of vectors; what is written stays even if the writer's transaction is taken back."""

    def __init__(self) -> None:
        self._pending: dict[str, dict[bytes, AnyRows]] = {}

    def is_pending(self, embedder: str, hash: bytes) -> bool:
        return hash in self._pending.get(embedder, ())

    def add(
        self, embedder: str, hashes: Sequence[bytes], vectors: Vectors, *, unit: bool = True, dimension: int = 0
    ) -> None:
        """Add vectors; vectors with a known key stay as they are. The first one has `dimension`, if not 0."""
        refuse_other_kind(embedder, self._dimension(embedder), sparse=False)
        expected = self._dimension(embedder) or dimension or None
        rows = check_vectors(embedder, len(hashes), vectors, expected, unit)
        self._collect(embedder, hashes, [row[None].copy() for row in rows])

    def add_sparse(self, embedder: str, hashes: Sequence[bytes], rows: SparseRows) -> None:
        refuse_other_kind(embedder, self._dimension(embedder), sparse=True)
        if len(rows) != len(hashes):
            raise StoreError(f"{len(hashes)} hashes came with {len(rows)} sparse vectors. Write one row for each hash.")
        self._collect(embedder, hashes, [rows.select(row) for row in range(len(rows))])

    def _collect(self, embedder: str, hashes: Sequence[bytes], rows: Sequence[AnyRows]) -> None:
        pending, stored = self._pending.setdefault(embedder, {}), self._stored_hashes(embedder, hashes)
        for hash, row in zip(hashes, rows, strict=True):
            if hash not in stored:
                pending.setdefault(hash, row)
        if len(pending) >= FLUSHED_ROWS:
            self._write(embedder)

    def replace(
        self, embedder: str, hashes: Sequence[bytes], parts: Sequence[AnyRows], generation: int, *, unit: bool = True
    ) -> None:
        """Put vectors, in several parts, in the place of those with these keys, with the writer's transaction.

        Args:
            generation: in which they are published.
        """
        expected = self._dimension(embedder)
        for part in parts:
            refuse_other_kind(embedder, expected, sparse=isinstance(part, SparseRows))
            if not isinstance(part, SparseRows):
                check_vectors(embedder, len(part), part, expected, unit)
        self._replace(embedder, hashes, parts, generation)

    def keep(self) -> None:
        """Write what was collected, before the writer ends without publishing."""
        for embedder in self._pending:
            self._write(embedder)

    def flush(self) -> None:
        self.keep()

    def _dimension(self, embedder: str) -> int | None:
        stored = self._stored_dimension(embedder)
        pending = next(iter(self._pending.get(embedder, {}).values()), None)
        return stored[0] if stored else None if pending is None else dimension_of(pending)

    def _write(self, embedder: str) -> None:
        if pending := self._pending[embedder]:
            self._store(embedder, pending)
            pending.clear()

    @abstractmethod
    def _stored_hashes(self, embedder: str, hashes: Sequence[bytes]) -> set[bytes]:
        """Return which of these hashes have vectors that were written."""

    @abstractmethod
    def _stored_dimension(self, embedder: str) -> Sequence[int] | None:
        """Return a row that begins with the numbers in a vector; None where none was written."""

    @abstractmethod
    def _store(self, embedder: str, pending: Mapping[bytes, AnyRows]) -> None: ...

    @abstractmethod
    def _replace(self, embedder: str, hashes: Sequence[bytes], parts: Sequence[AnyRows], generation: int) -> None: ...


class SegmentWriter(VectorWriter):
    def __init__(self, store: Path, connection: Connection) -> None:
        super().__init__()
        self.store, self.connection = store, connection

    def flush(self) -> None:
        """Write what was collected, and join small segments where there are many; see `Compaction` for the rest."""
        for embedder in self._pending:
            self._write(embedder)
            rows = {number: count for number, _, count, _ in self.connection.execute(sql.SEGMENTS_OF, (embedder,))}
            small = [number for number, count in rows.items() if count < SEGMENT_ROWS]
            if len(small) >= SMALL_SEGMENTS:
                self._join(embedder, small)

    def _stored_hashes(self, embedder: str, hashes: Sequence[bytes]) -> set[bytes]:
        return {hash for hash in hashes if self.connection.execute(sql.HAS_VECTOR, (embedder, hash)).fetchone()}

    def _stored_dimension(self, embedder: str) -> Sequence[int] | None:
        row = self.connection.execute(sql.SEGMENTS_OF, (embedder,)).fetchone()
        return row and row[1:]  # type: ignore[no-any-return]

    def _store(self, embedder: str, pending: Mapping[bytes, AnyRows]) -> None:
        number = self._register(embedder, list(pending), list(pending.values()))
        rows = ((embedder, hash, number, row) for row, hash in enumerate(pending))
        self.connection.executemany(sql.ADD_VECTOR, rows)

    def _replace(self, embedder: str, hashes: Sequence[bytes], parts: Sequence[AnyRows], generation: int) -> None:
        number = self._register(embedder, hashes, parts)
        values = ((embedder, hash, number, row) for row, hash in enumerate(hashes))
        self.connection.executemany(sql.REPLACE_VECTOR, values)
        for old, *_ in self.connection.execute(sql.SEGMENTS_OF, (embedder,)).fetchall():
            self.connection.execute(sql.DROP_EMPTY_SEGMENT, (embedder, old))
        cursor = self.connection.execute(sql.CURSOR, (sql.REPLACED, embedder)).fetchone()
        if cursor is None or cursor[1] != generation:
            self.connection.execute(sql.SET_CURSOR, with_digest(sql.REPLACED, embedder, str(number), generation))

    def _register(self, embedder: str, hashes: Sequence[bytes], parts: Sequence[AnyRows]) -> int:
        number = next_number(self.store, embedder)
        size = write_any(segment_path(self.store, embedder, number), embedder, hashes, parts)
        fail_point("vectors.register")
        row = (embedder, number, dimension_of(parts[0]), len(hashes), size)
        self.connection.execute(sql.ADD_SEGMENT, row)
        return number

    def _join(self, embedder: str, numbers: Sequence[int]) -> None:
        fail_point("vectors.merge")
        current = {number: current_rows(self.store, self.connection, embedder, number) for number in numbers}
        hashes = [(number, hash) for number, (segment_hashes, _) in current.items() for hash in segment_hashes]
        parts = [rows for _, rows in current.values()]
        new_number = self._register(embedder, [hash for _, hash in hashes], parts)
        values = ((new_number, row, embedder, hash, number) for row, (number, hash) in enumerate(hashes))
        self.connection.executemany(sql.MOVE_VECTOR, values)
        for number in numbers:
            self.connection.execute(sql.DROP_SEGMENT, (embedder, number))


def current_rows(store: Path, connection: Connection, embedder: str, number: int) -> tuple[Sequence[bytes], AnyRows]:
    """Return hashes and rows of a segment, without replaced ones."""
    segment = open_any(segment_path(store, embedder, number))
    current = sorted(row for _, row in connection.execute(sql.VECTOR_ROWS, (embedder, number)))
    content = content_of(segment)
    if len(current) == len(segment.hashes):
        return segment.hashes, content
    if isinstance(content, SparseRows):
        return [segment.hashes[row] for row in current], SparseRows.concatenate(content.select(row) for row in current)
    return [segment.hashes[row] for row in current], content[current]


def next_number(store: Path, embedder: str) -> int:
    """Return a number that no segment of the embedder has, on the disk or before."""
    folder = segment_path(store, embedder, 0).parent
    return max((int(path.stem) for path in folder.glob("*.seg")), default=0) + 1


FROZEN_ROWS = 262_144
"""A segment of this many rows is never joined again: a minute of one core builds its graph, in half a gigabyte."""
_GROWTH = 4


def plan_joins(rows: Mapping[int, int], graph_rows: int | None, small: int, many: int) -> list[list[int]]:
    """Plan which segments to join: their numbers for each new segment, in the order in which they were written.

    Segments that have `FROZEN_ROWS` together are joined for good. The others are joined when the rows without a graph
    are a quarter of those with one, and at least `graph_rows`, from which a segment has a graph: so a row gets into
    few of them. Else those with fewer rows than `small` are joined if there are `many`.

    >>> plan_joins({1: 300_000, 2: 200_000, 3: 70_000, 4: 10}, None, small=4096, many=16)
    [[2, 3]]
    >>> plan_joins({1: 50_000, 2: 9_000, 3: 12_000}, 20_000, small=4096, many=16)
    [[1, 2, 3]]
    """
    groups, rest = _split_full(rows)
    covered = sum(rows[number] for number in rest if graph_rows is not None and rows[number] >= graph_rows)
    loose = sum(rows[number] for number in rest) - covered
    small_segments = [number for number in rest if rows[number] < small]
    if graph_rows is not None and loose >= max(graph_rows, covered // _GROWTH) and len(rest) > 1:
        groups.append(rest)
    elif len(small_segments) >= many:
        groups.append(small_segments)
    return groups


def _split_full(rows: Mapping[int, int]) -> tuple[list[list[int]], list[int]]:
    """Split the segments into groups that are joined for good, and the rest."""
    groups: list[list[int]] = []
    gathered: list[int] = []
    for number in sorted(number for number, count in rows.items() if count < FROZEN_ROWS):
        gathered.append(number)
        if sum(rows[number] for number in gathered) >= FROZEN_ROWS:
            groups.append(gathered)
            gathered = []
    return groups, gathered
