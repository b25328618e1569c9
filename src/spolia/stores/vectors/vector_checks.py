"""What vectors a store takes: rows of one length, of finite numbers."""

from __future__ import annotations

from collections.abc import Sequence, Sized

import numpy as np

from spolia.errors import StoreError
from spolia.stores.vectors.dense import Vectors

_UNIT = 1e-3


def accepted(embedder: str, count: int, vectors: Vectors | Sequence[Vectors], known: int | None, unit: bool) -> Vectors:
    """The vectors as float32[count, d].

    Args:
        embedder: that gave them.
        count: how many there should be.
        known: numbers in a vector, if that is known.
        unit: insist on the length 1, or 0 for a text that the embedder does not know at all.

    Raises:
        StoreError: another number of rows, a row of another dimension, with NaN or infinity, or with another length
            than 1; naming the row.
    """
    if not hasattr(vectors, "__len__") or (isinstance(vectors, np.ndarray) and not vectors.ndim):
        raise StoreError(
            f"{embedder!r} gave {vectors!r:.40} for {count} texts, which is no vectors. Correct the embedder: "
            "float32[n, d], one row for each."
        )
    if len(vectors) != count:
        raise StoreError(
            f"{embedder!r} gave {len(vectors)} vectors for {count} texts. Correct the embedder: one row for each."
        )
    for row, vector in enumerate(vectors):
        if np.ndim(vector) != 1 or (known := known or len(vector)) != len(vector):
            raise StoreError(
                f"Vector {row} by {embedder!r} has shape {np.shape(vector)}, where {known or 'some'} numbers in a "
                "vector were expected. Write vectors by the embedder that the group was built with."
            )
    rows = np.asarray(vectors, dtype=np.float32)
    if not count:
        return rows
    if len(wrong := np.flatnonzero(~np.isfinite(rows).all(axis=1))):
        raise StoreError(f"Vector {wrong[0]} by {embedder!r} holds NaN or infinity. Check what the embedder returned.")
    lengths = np.linalg.norm(rows, axis=1)
    if unit and len(wrong := np.flatnonzero((np.abs(lengths - 1) >= _UNIT) & (lengths > 0))):
        raise StoreError(
            f"Vector {wrong[0]} by {embedder!r} has length {lengths[wrong[0]]}, not 1. "
            "Normalise before: vectors / norms."
        )
    return rows


def refuse_other_kind(embedder: str, known: int | None, *, sparse: bool) -> None:
    """Raise `StoreError` for dense vectors of an embedder that gave sparse ones before, and the other way round.

    Args:
        known: numbers in its vectors, 0 for sparse ones; None while it has none.
    """
    if known is not None and (known == 0) is not sparse:
        there, came = ("dense", "sparse") if sparse else ("sparse", "dense")
        raise StoreError(
            f"{embedder!r} gave {came} vectors, where it has {there} ones in the store. Give embedders of "
            "different vectors different names."
        )


def refuse_other_count(hashes: Sequence[bytes], rows: Sized) -> None:
    """Raise `StoreError` unless there are as many sparse vectors as hashes."""
    if len(rows) != len(hashes):
        raise StoreError(f"{len(hashes)} hashes came with {len(rows)} sparse vectors. Write one row for each hash.")
