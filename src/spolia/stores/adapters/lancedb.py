"""LanceDB: columnar files in a folder, or in an object store, without a server.

https://lancedb.github.io/lancedb/
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar, Literal

from spolia.core.environment import without_password
from spolia.deferred import lancedb
from spolia.deferred import pyarrow as pa
from spolia.errors import StoreError, StoreUnavailable
from spolia.stores.adapters.engine import Collection, Engine, NearestKeys
from spolia.stores.indexes import Vectors

_ADDS_BETWEEN = 32  # each add makes a file and a version; joining them costs more than some adds
_KEPT = timedelta(minutes=10)  # versions that a search which began earlier may still read

_KINDS = {"IVF_FLAT": "IvfFlat", "IVF_PQ": "IvfPq", "IVF_HNSW_SQ": "HnswSq", "IVF_HNSW_FLAT": "HnswFlat"}


@dataclass(frozen=True)
class LanceDB(Engine["LanceTable"]):
    """Vectors in a LanceDB table. Several processes may read and write it.

    Args:
        uri: a folder, or an object store such as `s3://bucket/path` with its credentials in the environment; empty for
            the folder of the store.
        index: `flat` compares with every vector; the others are approximate.
        above: vectors below which a table is searched exactly.
        probes: partitions that are searched.
        refine: this many times the requested results are compared again, with the original vectors.

    >>> LanceDB(index="flat").extra
    'lancedb'
    """

    uri: str = ""
    index: Literal["flat", "IVF_FLAT", "IVF_PQ", "IVF_HNSW_SQ", "IVF_HNSW_FLAT"] = "IVF_HNSW_SQ"
    above: int = 50_000
    probes: int = 20
    refine: int = 4

    extra: ClassVar[str] = "lancedb"
    module: ClassVar[str] = "lancedb"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.uri != without_password(self.uri) or ("://" in self.uri and "?" in self.uri):
            raise StoreError(
                "uri holds more than an address (a user, a password, a query), which would be stored with the group. "
                "Write the address alone, with its credentials in the environment."
            )

    def _make_collection(self, dimension: int, metric: str) -> "LanceTable":
        return LanceTable(self, dimension, metric)

    def _drop(self, folder: Path, name: str) -> None:
        self.connect(folder).drop_table(name, ignore_missing=True)

    def error_type(self, error: Exception) -> type[StoreError]:
        return StoreUnavailable if "conflict" in str(error).lower() else StoreError

    def connect(self, folder: Path) -> Any:
        # Without an interval a reader stays at the version that it opened, whatever is written meanwhile.
        return lancedb.connect(self.uri or str(folder / "lancedb"), read_consistency_interval=timedelta(0))


class LanceTable(Collection):
    """Columns `key` and the vector, which is named after the metric, so that the table says how it is compared."""

    engine: LanceDB
    table: Any

    def open(self, folder: Path, name: str) -> None:
        database = self.engine.connect(folder)
        vector = pa.list_(pa.float32(), self.dimension)
        schema = pa.schema([pa.field("key", pa.int64(), nullable=False), pa.field(self.metric, vector, nullable=False)])
        try:
            self.table = database.open_table(name)
        except (ValueError, FileNotFoundError):  # which of them depends on the version
            self.table = database.create_table(name, schema=schema, exist_ok=True)
        self.schema, self.adds = schema, 0
        metric = next(column for column in self.table.schema.names if column != "key")
        self.refuse_other(name, self.table.schema.field(metric).type.list_size, metric)

    def _upsert(self, keys: Sequence[int], vectors: Vectors) -> None:
        column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), self.dimension)
        rows = pa.table([pa.array(keys, pa.int64()), column], schema=self.schema)
        upsert = self.table.merge_insert("key").when_matched_update_all().when_not_matched_insert_all()
        upsert.execute(rows)
        self.adds += 1
        if self.adds % _ADDS_BETWEEN == 0:
            self.table.optimize(cleanup_older_than=_KEPT)
        self._build_index()

    def _build_index(self) -> None:
        """Build the index once there are enough vectors; later ones are compared one by one until `optimize`."""
        kind = self.engine.index
        if kind == "flat" or self._has_index() or self.table.count_rows() < self.engine.above:
            return

        options: dict[str, Any] = {"distance_type": "l2" if self.metric == "euclidean" else "dot"}
        if "HNSW" in kind:
            options |= {"m": self.engine.connectivity, "ef_construction": self.engine.expansion_add}
        self.table.create_index(self.metric, config=getattr(lancedb.index, _KINDS[kind])(**options))

    def _has_index(self) -> bool:
        return bool(self.table.list_indices())

    def _delete(self, keys: Sequence[int]) -> None:
        self.table.delete(f"key IN ({', '.join(map(str, keys))})")  # numbers: nothing to quote

    def _query(self, queries: Vectors, top_k: int) -> list[NearestKeys]:
        metric = "l2" if self.metric == "euclidean" else "dot"
        query = self.table.search(queries, vector_column_name=self.metric).distance_type(metric).limit(top_k)
        if self._has_index():
            ef = max(self.engine.expansion_search, top_k)
            query = query.nprobes(self.engine.probes).ef(ef).refine_factor(self.engine.refine)
        rows = query.select(["key", "_distance"]).to_arrow()
        results: list[NearestKeys] = [[] for _ in queries]
        # LanceDB names the query of a row only where there are several.
        numbers = rows["query_index"].to_pylist() if len(queries) > 1 else [0] * len(rows)
        for number, key, distance in zip(numbers, rows["key"].to_pylist(), rows["_distance"].to_pylist(), strict=True):
            results[number].append((key, distance if metric == "l2" else 1.0 - distance))
        return results

    def _key_pages(self) -> Iterator[Sequence[int]]:
        for batch in self.table.search().select(["key"]).to_batches(self.most_rows):
            yield batch["key"].to_pylist()

    def close(self) -> None:
        self.table = None
