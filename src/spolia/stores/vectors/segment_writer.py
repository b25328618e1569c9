"""Vectors on their way into segments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from spolia.models.vectors import SparseRows
from spolia.stores.failpoints import fail_point
from spolia.stores.indexes import DEFAULT_INDEX
from spolia.stores.layout import segment_path
from spolia.stores.tables import sql
from spolia.stores.truth import Connection
from spolia.stores.vectors.dense import Vectors
from spolia.stores.vectors.segments import AnyRows, content_of, dimension_of, open_any, write_any
from spolia.stores.vectors.vector_checks import accepted, refuse_other_count, refuse_other_kind

SEGMENT_ROWS = 4_096
FLUSHED_ROWS = 512
SMALL_SEGMENTS = 16


class SegmentWriter:
    """Collects vectors and writes them in segments; what is written stays even if the transaction is taken back."""

    def __init__(self, store: Path, connection: Connection) -> None:
        self.store, self.connection = store, connection
        self._pending: dict[str, dict[bytes, AnyRows]] = {}

    def is_pending(self, embedder: str, hash: bytes) -> bool:
        """Whether a vector was added and is not written yet."""
        return hash in self._pending.get(embedder, ())

    def add(
        self, embedder: str, hashes: Sequence[bytes], vectors: Vectors, *, unit: bool = True, dimension: int = 0
    ) -> None:
        """Take vectors; those that are there already are left as they are.

        Args:
            dimension: numbers that the first vector must have; 0 for any.
            unit: insist on the length 1, or 0 for a text that the embedder does not know at all.

        Raises:
            StoreError: another number of rows than of hashes, another dimension than the vectors before, NaN, infinity,
                or another length than 1; naming the row. None of them is kept then.
        """
        refuse_other_kind(embedder, self._dimension(embedder), sparse=False)
        known = self._dimension(embedder) or dimension or None
        rows = accepted(embedder, len(hashes), vectors, known, unit)
        self._collect(embedder, hashes, [row[None] for row in rows])

    def add_sparse(self, embedder: str, hashes: Sequence[bytes], rows: SparseRows) -> None:
        """Take sparse vectors; those that are there already are left as they are.

        Raises:
            StoreError: another number of rows than of hashes, or the embedder gave dense vectors before.
        """
        refuse_other_kind(embedder, self._dimension(embedder), sparse=True)
        refuse_other_count(hashes, rows)
        self._collect(embedder, hashes, [SparseRows.of([rows.weights_of(at)]) for at in range(len(rows))])

    def _collect(self, embedder: str, hashes: Sequence[bytes], rows: Sequence[AnyRows]) -> None:
        pending = self._pending.setdefault(embedder, {})
        for hash, row in zip(hashes, rows, strict=True):
            if hash not in pending and not self.connection.execute(sql.HAS_VECTOR, (embedder, hash)).fetchone():
                pending[hash] = row if isinstance(row, SparseRows) else row.copy()
        if len(pending) >= FLUSHED_ROWS:
            self._write(embedder)

    def keep(self) -> None:
        """Write what was collected; the next writer takes the segments over."""
        for embedder in self._pending:
            self._write(embedder)

    def flush(self, above: int | None = DEFAULT_INDEX.above) -> None:
        """Write what was collected, and join segments as `joined` says.

        Args:
            above: rows from which a segment has a graph; None for no graphs.
        """
        for embedder in self._pending:
            self._write(embedder)
            self._merge(embedder, above)

    def _dimension(self, embedder: str) -> int | None:
        """Numbers in a vector of the embedder, as far as one is known."""
        known = self.connection.execute(sql.SEGMENTS_OF, (embedder,)).fetchone()
        pending = next(iter(self._pending.get(embedder, {}).values()), None)
        return known[1] if known else None if pending is None else dimension_of(pending)

    def _write(self, embedder: str) -> None:
        pending = self._pending[embedder]
        if pending:
            number = self._register(embedder, list(pending), list(pending.values()))
            rows = ((embedder, hash, number, row) for row, hash in enumerate(pending))
            self.connection.executemany(sql.ADD_VECTOR, rows)
            pending.clear()

    def _register(self, embedder: str, hashes: Sequence[bytes], parts: Sequence[AnyRows]) -> int:
        number = next_number(self.store, embedder)
        size = write_any(segment_path(self.store, embedder, number), embedder, hashes, parts)
        fail_point("vectors.register")
        row = (embedder, number, dimension_of(parts[0]), len(hashes), size)
        self.connection.execute(sql.ADD_SEGMENT, row)
        return number

    def _merge(self, embedder: str, above: int | None) -> None:
        """Join segments, so that a store that grows daily has few; their files go after the commit."""
        rows = {number: count for number, _, count, _ in self.connection.execute(sql.SEGMENTS_OF, (embedder,))}
        for numbers in joined(rows, above, SEGMENT_ROWS, SMALL_SEGMENTS):
            fail_point("vectors.merge")
            segments = [open_any(segment_path(self.store, embedder, number)) for number in numbers]
            hashes = [hash for segment in segments for hash in segment.hashes]
            merged = self._register(embedder, hashes, [content_of(segment) for segment in segments])
            moved = ((merged, row, embedder, hash) for row, hash in enumerate(hashes))
            self.connection.executemany(sql.MOVE_VECTOR, moved)
            for number in numbers:
                self.connection.execute(sql.DROP_SEGMENT, (embedder, number))


def next_number(store: Path, embedder: str) -> int:
    """A number that no segment of the embedder has, on the disk or before."""
    folder = segment_path(store, embedder, 0).parent
    return max((int(path.stem) for path in folder.glob("*.seg")), default=0) + 1


FROZEN_ROWS = 262_144
"""A segment of so many rows is never joined again: a minute of one core builds its graph, in half a gigabyte."""
_GROWTH = 4


def joined(rows: Mapping[int, int], above: int | None, small: int, many: int) -> list[list[int]]:
    """Numbers of the segments to be joined, for each new segment; in the order in which they were written.

    As soon as some have `FROZEN_ROWS` together they are joined for good. What is left is joined when the rows that no
    graph covers have grown to a quarter of those that one does, and to `above` at least: exact search over them stays
    fast, and a row gets into another graph some few times. Small segments are joined where there are many.

    Args:
        rows: for each segment, how many it has.
        above: rows from which a segment has a graph; None for no graphs.
        small: rows below which a segment is small.
        many: small segments that are too many.

    >>> joined({1: 300_000, 2: 200_000, 3: 70_000, 4: 10}, None, small=4096, many=16)
    [[2, 3]]
    >>> joined({1: 50_000, 2: 9_000, 3: 12_000}, 20_000, small=4096, many=16)
    [[1, 2, 3]]
    """
    groups, rest = _frozen(rows)
    covered = sum(rows[number] for number in rest if above is not None and rows[number] >= above)
    loose = sum(rows[number] for number in rest) - covered
    few = [number for number in rest if rows[number] < small]
    if above is not None and loose >= max(above, covered // _GROWTH) and len(rest) > 1:
        groups.append(rest)
    elif len(few) >= many:
        groups.append(few)
    return groups


def _frozen(rows: Mapping[int, int]) -> tuple[list[list[int]], list[int]]:
    """What is joined for good, and what is left."""
    groups: list[list[int]] = []
    gathered: list[int] = []
    for number in sorted(number for number, count in rows.items() if count < FROZEN_ROWS):
        gathered.append(number)
        if sum(rows[number] for number in gathered) >= FROZEN_ROWS:
            groups.append(gathered)
            gathered = []
    return groups, gathered
