"""Chroma: HNSW beside SQLite, in a folder or on a server.

https://docs.trychroma.com/
"""

from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit

from spolia.deferred import chromadb, chromadb_collection, chromadb_fastapi
from spolia.errors import StoreError, StoreUnavailable
from spolia.stores.adapters.engine import Collection, NearestKeys, Served
from spolia.stores.indexes import Vectors

_METRIC, _DIMENSION = "spolia_metric", "spolia_dimension"


@dataclass(frozen=True)
class Chroma(Served["ChromaCollection"]):
    """Vectors in a Chroma collection, without documents, embedding functions and telemetry.

    The graph's settings are fixed when a collection is made.

    Args:
        url: of a server, for example `http://127.0.0.1:8000`; empty for the folder of the store, which one process at a
            time may write.
        token_env: name of the environment variable with the server's token; nothing is sent where it is not set.
        tenant, database: on the server.

    >>> Chroma("http://127.0.0.1:8000").location
    'Chroma at http://127.0.0.1:8000'
    """

    token_env: str = "CHROMA_TOKEN"
    tenant: str = "default_tenant"
    database: str = "default_database"

    extra: ClassVar[str] = "chroma"
    module: ClassVar[str] = "chromadb"

    def _make_collection(self, dimension: int, metric: str) -> "ChromaCollection":
        return ChromaCollection(self, dimension, metric)

    def _drop(self, folder: Path, name: str) -> None:
        with closing(self.client(folder)) as client, suppress(chromadb.errors.NotFoundError):
            client.delete_collection(name)

    def error_type(self, error: Exception) -> type[StoreError]:
        status = _status_of(error)
        is_unreachable = type(error).__module__.startswith("httpx") and not status
        return StoreUnavailable if self.url and (is_unreachable or status == 429 or status >= 500) else StoreError

    def client(self, folder: Path) -> Any:
        if self.url:
            return Client(self)
        return chromadb.PersistentClient(
            str(folder / "chroma"), settings=chromadb.config.Settings(anonymized_telemetry=False)
        )


class Client:
    """Client of a server, with a timeout; the package's own calls the server in its constructor, without a limit."""

    def __init__(self, engine: Chroma) -> None:
        parts, token = urlsplit(engine.url), engine.secret("token_env")
        self.location: dict[str, Any] = {"tenant": engine.tenant, "database": engine.database}
        self.system = chromadb.config.System(
            chromadb.config.Settings(
                anonymized_telemetry=False,
                chroma_api_impl="chromadb.api.fastapi.FastAPI",
                chroma_server_host=engine.url,
                chroma_server_http_port=parts.port or (443 if parts.scheme == "https" else 80),
                chroma_server_ssl_enabled=parts.scheme == "https",
                chroma_server_headers={"x-chroma-token": token} if token else {},
            )
        )
        self.api = self.system.instance(chromadb_fastapi.FastAPI)
        # The package's session waits without end by default.
        self.api._session.timeout = engine.timeout_s
        self.system.start()

    def get_or_create_collection(self, name: str, embedding_function: None, **settings: Any) -> Any:
        response = self.api.create_collection(name, get_or_create=True, **settings, **self.location)
        return chromadb_collection.Collection(self.api, response, embedding_function=embedding_function)

    def delete_collection(self, name: str) -> None:
        self.api.delete_collection(name, **self.location)

    def get_max_batch_size(self) -> int:
        return int(self.api.get_max_batch_size())

    def close(self) -> None:
        self.system.stop()


class ChromaCollection(Collection):
    """Ids are keys in decimal. The metadata of a collection names its metric and dimension."""

    most_numbers = 400_000  # as text in a request, some 9 MB
    engine: Chroma
    client: Any
    collection: Any

    def open(self, folder: Path, name: str) -> None:
        self.client = self.engine.client(folder)
        graph = {
            "space": "l2" if self.metric == "euclidean" else "ip",
            "max_neighbors": self.engine.connectivity,
            "ef_construction": self.engine.expansion_add,
            "ef_search": self.engine.expansion_search,
        }
        self.collection = self.client.get_or_create_collection(
            name,
            embedding_function=None,
            metadata={_METRIC: self.metric, _DIMENSION: self.dimension},
            configuration={"hnsw": graph},
        )
        # The database tells how many rows it takes in one request.
        self.most_rows = int(self.client.get_max_batch_size())  # type: ignore[misc]
        metadata = self.collection.metadata or {}
        try:
            self.refuse_other(name, metadata.get(_DIMENSION, 0), metadata.get(_METRIC, "an unknown metric"))
        except StoreError:
            self.close()
            raise

    def _upsert(self, keys: Sequence[int], vectors: Vectors) -> None:
        """Write new or changed vectors only: writing an equal vector again removes links of others in the graph."""
        ids = list(map(str, keys))
        stored = self.collection.get(ids=ids, include=["embeddings"])
        vectors_by_id = dict(zip(stored["ids"], stored["embeddings"], strict=True))
        changed_rows = [
            row for row, id in enumerate(ids) if id not in vectors_by_id or any(vectors_by_id[id] != vectors[row])
        ]
        if changed_rows:
            self.collection.upsert(ids=[ids[row] for row in changed_rows], embeddings=vectors[changed_rows])

    def _delete(self, keys: Sequence[int]) -> None:
        self.collection.delete(ids=list(map(str, keys)))

    def _query(self, queries: Vectors, top_k: int) -> list[NearestKeys]:
        response = self.collection.query(query_embeddings=queries, n_results=top_k, include=["distances"])
        is_squared = self.metric == "euclidean"
        return [
            [(int(key), distance if is_squared else 1.0 - distance) for key, distance in zip(*pair, strict=True)]
            for pair in zip(response["ids"], response["distances"], strict=True)
        ]

    def _key_pages(self) -> Iterator[Sequence[int]]:
        start = 0
        while page := self.collection.get(include=[], limit=self.most_rows, offset=start)["ids"]:
            yield list(map(int, page))
            start += len(page)

    def close(self) -> None:
        self.client.close()


def _status_of(error: Exception) -> int:
    """Return the HTTP status of an error; 0 without one. The package raises some errors without their status."""
    response = getattr(error, "response", None) or getattr(error.__context__, "response", None)
    code = getattr(error, "code", None)
    return response.status_code if response is not None else int(code()) if callable(code) else 0
