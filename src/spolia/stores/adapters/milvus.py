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
from spolia.stores.adapters.engine import Collection, Near, OpenEngines, Served, Shared
from spolia.stores.indexes import Vectors

# Not refused for minutes after a server came back, because of how long it was away.
_OWN = {"grpc.use_local_subchannel_pool": 1, "grpc.max_reconnect_backoff_ms": 500}
_LITE = OpenEngines[str]()
_PASSING = {"UNAVAILABLE", "DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED", "CANCELLED"}
_NOT_LOADED = 101
_WORDS = ("timeout", "timed out", "fail connecting", "connection refused", "server unavailable")


@dataclass(frozen=True)
class Milvus(Served["MilvusCollection"]):
    """Vectors in a Milvus collection.

    Args:
        url: of a server, for example `http://127.0.0.1:19530`; empty for Milvus Lite in the store's folder, which one
            process at a time may open, and which answers on a port of the loopback interface without a password.
        token_env: name of the environment variable with the token, or `user:password`.
        database: on the server; empty for its default.
        index: `HNSW`, or `FLAT`, which compares with every vector.

    >>> Milvus("http://127.0.0.1:19530").where
    'Milvus at http://127.0.0.1:19530'
    """

    token_env: str = "MILVUS_TOKEN"
    database: str = ""
    index: Literal["HNSW", "FLAT"] = "HNSW"

    extra: ClassVar[str] = "milvus"
    module: ClassVar[str] = "pymilvus"
    beside: ClassVar[tuple[str, ...]] = ("milvus_lite",)

    def _collection(self, dimension: int, metric: str) -> "MilvusCollection":
        return MilvusCollection(self, dimension, metric)

    def _drop(self, folder: Path, name: str) -> None:
        if self.url:
            with closing(self.client(self.url)) as client:
                client.drop_collection(name, timeout=self.timeout_s)
        else:
            _LITE.remove(_place(folder, name))

    def kind_of(self, error: Exception) -> type[StoreError]:
        if type(error).__name__ == "DataDirLockedError":
            return StoreBusy
        code = getattr(error, "code", None)
        status = getattr(code() if callable(code) else code, "name", "")
        said = any(words in str(error).lower() for words in _WORDS) or getattr(error, "retriable", False)
        return StoreUnavailable if said or status in _PASSING else StoreError

    def client(self, url: str) -> Any:
        """A connection of its own; the package shares them otherwise, and one that closes it closes it for all."""
        token = self.secret("token_env") if self.url else ""
        options = {"dedicated": True, "grpc_options": _OWN}
        return pymilvus.MilvusClient(url, token=token, db_name=self.database, timeout=self.timeout_s, **options)


def _place(folder: Path, name: str) -> Path:
    return folder / "milvus" / f"{name}.db"


def _served(place: Path) -> Shared[str]:
    """A Milvus Lite that has the folder open; its address."""
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
    deepest = 16_384
    engine: Milvus
    client: Any
    place: Path | None = None

    def open(self, folder: Path, name: str) -> None:
        self.name, url = name, self.engine.url
        if not url:
            place = _place(folder, name)
            self.place, url = place, _LITE.take(place, lambda: _served(place)).client
        try:
            self.client = self.engine.client(url)
            self._load()
        except Exception:
            self.close()
            raise

    def _load(self) -> None:
        timeout = self.engine.timeout_s
        if not self.client.has_collection(self.name, timeout=timeout):
            self._make()
        made = self.client.describe_collection(self.name, timeout=timeout)["fields"]
        metric, dimension = next((f["name"], f["params"]["dim"]) for f in made if "dim" in f["params"])
        self.refuse_other(self.name, int(dimension), metric)
        self.client.load_collection(self.name, timeout=timeout)

    def _make(self) -> None:
        schema = pymilvus.MilvusClient.create_schema(auto_id=False, enable_dynamic_field=False)
        schema.add_field("id", pymilvus.DataType.INT64, is_primary=True)
        schema.add_field(self.metric, pymilvus.DataType.FLOAT_VECTOR, dim=self.dimension)
        kind, graph = self.engine.index, {"M": self.engine.connectivity, "efConstruction": self.engine.expansion_add}
        index = pymilvus.MilvusClient.prepare_index_params()
        how = graph if kind == "HNSW" else {}
        index.add_index(self.metric, index_type=kind, metric_type=self._compared, params=how)
        made = {"schema": schema, "index_params": index, "timeout": self.engine.timeout_s}
        # Strong: a reader sees all that was written before.
        self.client.create_collection(self.name, consistency_level="Strong", **made)

    @property
    def _compared(self) -> str:
        return "L2" if self.metric == "euclidean" else "IP"

    def _put(self, keys: Sequence[int], vectors: Vectors) -> None:
        rows = [{"id": key, self.metric: vector} for key, vector in zip(keys, vectors, strict=True)]
        self.client.upsert(self.name, rows, timeout=self.engine.timeout_s)

    def _take(self, keys: Sequence[int]) -> None:
        self.client.delete(self.name, ids=list(keys), timeout=self.engine.timeout_s)

    def _near(self, queries: Vectors, top_k: int) -> list[Near]:
        graph = {"ef": max(top_k, self.engine.expansion_search)} if self.engine.index == "HNSW" else {}
        how = {"metric_type": self._compared, "params": graph}
        asked = {"data": list(queries), "anns_field": self.metric, "limit": top_k, "search_params": how}
        found = self._read(self.client.search, **asked)
        return [[(hit["id"], hit["distance"]) for hit in near] for near in found]

    def _pages(self) -> Iterator[Sequence[int]]:
        pages = self._read(self.client.query_iterator, batch_size=self.most_rows)
        while page := pages.next():
            yield [row["id"] for row in page]
        pages.close()

    def _read(self, ask: Callable[..., Any], **asked: Any) -> Any:
        """Ask; a restarted server may have to load the collection first."""
        asked |= {"output_fields": ["id"], "timeout": self.engine.timeout_s}
        try:
            return ask(self.name, **asked)
        except pymilvus.MilvusException as error:
            if error.code != _NOT_LOADED:
                raise
            self.client.load_collection(self.name, timeout=self.engine.timeout_s)
            return ask(self.name, **asked)

    def close(self) -> None:
        if client := self.__dict__.pop("client", None):
            client.close()
        if self.place is not None:
            _LITE.give_back(self.place)
            self.place = None
