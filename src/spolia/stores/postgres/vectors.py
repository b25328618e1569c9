"""Vectors of pgvector's as arrays and back, bit for bit, and how it compares them."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

import numpy as np
from psycopg import Connection, pq
from psycopg.adapt import Dumper, Loader
from psycopg.types import TypeInfo

from spolia.errors import StoreError
from spolia.stores.definition import Metric

OPERATORS: Mapping[Metric, tuple[str, str]] = {
    "cosine": ("<#>", "halfvec_ip_ops"),  # of vectors of length 1, where it is right for those of length 0 as well
    "dot": ("<#>", "halfvec_ip_ops"),
    "euclidean": ("<->", "halfvec_l2_ops"),
}
"""By metric: the operator, which gives less for what is nearer, and what an index is told."""

INDEXED_DIMENSIONS = 4_000
"""Vectors of more numbers can be kept and compared, but not indexed."""


class _ToVector(Dumper):
    format = pq.Format.BINARY

    def dump(self, obj: Any) -> bytes:
        return struct.pack(">HH", len(obj), 0) + np.ascontiguousarray(obj, dtype=">f4").tobytes()


class _FromVector(Loader):
    format = pq.Format.BINARY

    def load(self, data: Any) -> Any:
        return np.frombuffer(bytes(data)[4:], dtype=">f4").astype(np.float32)


def with_vectors(raw: Connection[Any]) -> None:
    """Have a connection take and give arrays for vectors."""
    if raw.adapters.types.get("vector") is not None:
        return
    info = TypeInfo.fetch(raw, "vector")
    if info is None:
        raise StoreError("pgvector is not in the database any more. Write there: CREATE EXTENSION vector")
    info.register(raw)
    dumper = type("ToVector", (_ToVector,), {"oid": info.oid})
    raw.adapters.register_dumper(np.ndarray, dumper)
    raw.adapters.register_loader(info.oid, _FromVector)
