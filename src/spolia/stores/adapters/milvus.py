"""Milvus: a server that speaks gRPC, or Milvus Lite, the same protocol served by a thread of this process.

https://milvus.io/docs
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from spolia.deferred import milvus_server, pymilvus
from spolia.errors import StoreBusy, StoreError, StoreUnavailable
from spolia.private_files import make_folder
from spolia.stores.adapters.engine import Collection, NearestKeys, OpenEngines, Served, Shared
from spolia.stores.indexes import Vectors

# Not refused for minutes after a server came back, because of how long it was away.
_CHANNEL_OPTIONS = {"grpc.use_local_subchannel_pool": 1, "grpc.max_reconnect_backoff_ms": 500}
_LITE = OpenEngines[str]()
_TRANSIENT = {"UNAVAILABLE", "DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED", "CANCELLED"}
# Milvus' code for a collection that is on disk, and not in memory.
_NOT_LOADED = 101
_TRANSIENT_WORDS = ("timeout", "timed out", "fail connecting", "connection refused", "server unavailable")


@dataclass(frozen=True)
class Milvus(Served["MilvusCollection"]):
    """Vectors in a Milvus collection.

    Args:
        url: of a server, for example `http://127.0.0.1:19530`; empty for Milvus Lite in the store's folder, which one
            process at a time may open, and which answers on a port of the loopback interface without a password.
        token_env: name of the environment variable with the token, or `user:password`.
        database: on the server; empty for its default.
        index: `HNSW`, or `FLAT`, which compares with every vector.

    >>> Milvus("http://127.0.0.1:19530").location
    'Milvus at http://127.0.0.1:19530'
    """

    token_env: str = "MILVUS_TOKEN"
    database: str = ""
    index: Literal["HNSW", "FLAT"] = "HNSW"

    extra: ClassVar[str] = "milvus"
    module: ClassVar[str] = "pymilvus"
    companion_modules: ClassVar[tuple[str, ...]] = ("milvus_lite",)

    def _make_collection(self, dimension: int, metric: str) -> "MilvusCollection":
        return MilvusCollection(self, dimension, metric)

    def _drop(self, folder: Path, name: str) -> None:
        if self.url:
            with closing(self.client(self.url)) as client:
                client.drop_collection(name, timeout=self.timeout_s)
        else:
            _LITE.remove(_database_path(folder, name))

    def error_type(self, error: Exception) -> type[StoreError]:
        if type(error).__name__ == "DataDirLockedError":
            return StoreBusy
        code = getattr(error, "code", None)
        status = getattr(code() if callable(code) else code, "name", "")
        is_transient = any(words in str(error).lower() for words in _TRANSIENT_WORDS) or getattr(
            error, "retriable", False
        )
        return StoreUnavailable if is_transient or status in _TRANSIENT else StoreError

    def client(self, url: str) -> Any:
        """Return a connection of its own: the package would share it, and closing it would close it for all."""
        token = self.secret("token_env") if self.url else ""
        options = {"dedicated": True, "grpc_options": _CHANNEL_OPTIONS}
        return pymilvus.MilvusClient(url, token=token, db_name=self.database, timeout=self.timeout_s, **options)


def _database_path(folder: Path, name: str) -> Path:
    return folder / "milvus" / f"{name}.db"


def _start_lite(place: Path) -> Shared[str]:
    """Start a Milvus Lite that has the folder open; return it with its address."""
    make_folder(place.parent)
    server, database, port = milvus_server.start_server_in_thread(str(place), host="127.0.0.1", port=0)

    def close() -> None:
        server.stop(grace=None).wait()
        database.close()

    return Shared(f"http://127.0.0.1:{port}", close)


class MilvusCollection(Collection):
    """Fields `id` and the vector, which is named after the metric, so that the collection says how it is compared."""

    most_rows = 5_000
    most_numbers = 2_000_000  # 8 MB; a message may have 64
    deepest = 16_384  # Milvus gives no more
    engine: Milvus
    client: Any
    place: Path | None = None

    def open(self, folder: Path, name: str) -> None:
        self.name, url = name, self.engine.url
        if not url:
            place = _database_path(folder, name)
            self.place, url = place, _LITE.take(place, lambda: _start_lite(place)).client
        try:
            self.client = self.engine.client(url)
            self._load()
        except Exception:
            self.close()
            raise

    def _load(self) -> None:
        timeout = self.engine.timeout_s
        if not self.client.has_collection(self.name, timeout=timeout):
            self._create()
        fields = self.client.describe_collection(self.name, timeout=timeout)["fields"]
        metric, dimension = next((f["name"], f["params"]["dim"]) for f in fields if "dim" in f["params"])
        self.refuse_other(self.name, int(dimension), metric)
        self.client.load_collection(self.name, timeout=timeout)

    def _create(self) -> None:
        schema = pymilvus.MilvusClient.create_schema(auto_id=False, enable_dynamic_field=False)
        schema.add_field("id", pymilvus.DataType.INT64, is_primary=True)
        schema.add_field(self.metric, pymilvus.DataType.FLOAT_VECTOR, dim=self.dimension)
        kind, graph = self.engine.index, {"M": self.engine.connectivity, "efConstruction": self.engine.expansion_add}
        index = pymilvus.MilvusClient.prepare_index_params()
        parameters = graph if kind == "HNSW" else {}
        index.add_index(self.metric, index_type=kind, metric_type=self._metric_type, params=parameters)
        options = {"schema": schema, "index_params": index, "timeout": self.engine.timeout_s}
        # Strong: a reader sees all that was written before.
        self.client.create_collection(self.name, consistency_level="Strong", **options)

    @property
    def _metric_type(self) -> str:
        return "L2" if self.metric == "euclidean" else "IP"

    def _upsert(self, keys: Sequence[int], vectors: Vectors) -> None:
        rows = [{"id": key, self.metric: vector} for key, vector in zip(keys, vectors, strict=True)]
        self.client.upsert(self.name, rows, timeout=self.engine.timeout_s)

    def _delete(self, keys: Sequence[int]) -> None:
        self.client.delete(self.name, ids=list(keys), timeout=self.engine.timeout_s)

    def _query(self, queries: Vectors, top_k: int) -> list[NearestKeys]:
        graph = {"ef": max(top_k, self.engine.expansion_search)} if self.engine.index == "HNSW" else {}
        search_parameters = {"metric_type": self._metric_type, "params": graph}
        request = {"data": list(queries), "anns_field": self.metric, "limit": top_k, "search_params": search_parameters}
        results = self._read(self.client.search, **request)
        return [[(hit["id"], hit["distance"]) for hit in hits] for hits in results]

    def _key_pages(self) -> Iterator[Sequence[int]]:
        pages = self._read(self.client.query_iterator, batch_size=self.most_rows)
        while page := pages.next():
            yield [row["id"] for row in page]
        pages.close()

    def _read(self, call: Callable[..., Any], **request: Any) -> Any:
        """Call a read operation; load the collection first if a restarted server has not done that."""
        request |= {"output_fields": ["id"], "timeout": self.engine.timeout_s}
        try:
            return call(self.name, **request)
        except pymilvus.MilvusException as error:
            if error.code != _NOT_LOADED:
                raise
            self.client.load_collection(self.name, timeout=self.engine.timeout_s)
            return call(self.name, **request)

    def close(self) -> None:
        if client := self.__dict__.pop("client", None):  # `open` may have failed before there was one
            client.close()
        if self.place is not None:
            _LITE.give_back(self.place)
            self.place = None
