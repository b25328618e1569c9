"""Segments of either kind: dense vectors and sparse ones, told apart by how their files begin."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np

from spolia.models.vectors import SparseRows
from spolia.stores.vectors import sparse
from spolia.stores.vectors.dense import Vectors, VectorSegment, open_segment, write_segment
from spolia.stores.vectors.sparse import SparseSegment, open_sparse, write_sparse

AnySegment: TypeAlias = VectorSegment | SparseSegment
AnyRows: TypeAlias = Vectors | SparseRows

SPARSE = 0
"""Stands where the dimension of dense vectors does."""


def open_any(path: Path, *, checked: bool = False) -> AnySegment:
    """A segment, mapped into memory; see `open_segment`."""
    with path.open("rb") as file:
        is_sparse = file.read(len(sparse.MAGIC)) == sparse.MAGIC
    return open_sparse(path, checked=checked) if is_sparse else open_segment(path, checked=checked)


def write_any(path: Path, embedder: str, hashes: Sequence[bytes], parts: Sequence[AnyRows]) -> int:
    """Make the rows of all parts durable as one segment; returns its size in bytes."""
    rows = [part for part in parts if isinstance(part, SparseRows)]
    if rows:
        return write_sparse(path, embedder, hashes, SparseRows.together(rows))
    return write_segment(path, embedder, hashes, *(part for part in parts if isinstance(part, np.ndarray)))


def content_of(segment: AnySegment) -> AnyRows:
    """The rows of a segment."""
    return segment.rows if isinstance(segment, SparseSegment) else segment.vectors


def dimension_of(rows: AnyRows) -> int:
    """Numbers in a vector; `SPARSE` for sparse ones."""
    return SPARSE if isinstance(rows, SparseRows) else int(rows.shape[1])
