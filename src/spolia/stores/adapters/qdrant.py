"""Qdrant: HNSW on a server, or the client's own exact search in a folder.

https://qdrant.tech/documentation/
"""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from spolia.deferred import qdrant_client
from spolia.errors import StoreBusy, StoreError, StoreUnavailable
from spolia.stores.adapters.engine import Collection, NearestKeys, OpenEngines, Served, Shared
from spolia.stores.indexes import Vectors

_LOCAL = OpenEngines[Any]()
_ID_RANGE = 2**64


@dataclass(frozen=True)
class Qdrant(Served["QdrantCollection"]):
    """Vectors in a Qdrant collection.

    Args:
        url: of a server, for example `http://127.0.0.1:6333`; empty for the folder of the store, which one process at a
            time may open, and whose vectors are all in memory and compared one by one: for thousands, not more.
        api_key_env: name of the environment variable with the key; nothing is sent where it is not set.
        exact: compare with every vector on the server, too.
        timeout_s: seconds without an answer of the server, rounded up.

    >>> Qdrant("http://127.0.0.1:6333").location
    'Qdrant at http://127.0.0.1:6333'
    """

    api_key_env: str = "QDRANT_API_KEY"
    exact: bool = False

    extra: ClassVar[str] = "qdrant"
    module: ClassVar[str] = "qdrant_client"

    def _make_collection(self, dimension: int, metric: str) -> "QdrantCollection":
        return QdrantCollection(self, dimension, metric)

    def _drop(self, folder: Path, name: str) -> None:
        if self.url:
            with closing(self.client()) as client:
                client.delete_collection(name)
        else:
            _LOCAL.remove(_local_folder(folder, name))

    def error_type(self, error: Exception) -> type[StoreError]:
        if "already accessed by another instance" in str(error):
            return StoreBusy
        status = getattr(error, "status_code", None) or 0
        is_unreachable = type(error).__name__ == "ResponseHandlingException"
        return StoreUnavailable if is_unreachable or status == 429 or status >= 500 else StoreError

    def client(self) -> Any:
        # The package takes whole seconds: they are rounded up.
        key, timeout = self.secret("api_key_env") or None, max(1, round(self.timeout_s + 0.499))
        # The check would already ask the server here.
        return qdrant_client.QdrantClient(url=self.url, api_key=key, timeout=timeout, check_compatibility=False)


def _local_folder(folder: Path, name: str) -> Path:
    return folder / "qdrant" / name


def _open_local(place: Path) -> Shared[Any]:
    # Its arrays grow while it is written to: every call holds the lock, from whatever thread.
    client = qdrant_client.QdrantClient(path=str(place), force_disable_check_same_thread=True)
    return Shared(client, client.close)


class QdrantCollection(Collection):
    """Points without payload. Their vector is named after the metric, so that the collection says what it is."""

    most_numbers = 400_000  # as text in a request, some 9 MB of the 32 that it takes
    engine: Qdrant
    client: Any
    place: Path | None = None
    lock: AbstractContextManager[Any] = nullcontext()

    def open(self, folder: Path, name: str) -> None:
        self.name = name
        if self.engine.url:
            self.client = self.engine.client()
        else:
            place = _local_folder(folder, name)
            shared = _LOCAL.take(place, lambda: _open_local(place))
            self.client, self.place, self.lock = shared.client, place, shared.lock
        try:
            with self.lock:
                self._prepare()
        except Exception:
            self.close()
            raise

    def _prepare(self) -> None:
        if not self.client.collection_exists(self.name):
            graph = qdrant_client.models.HnswConfigDiff(
                m=self.engine.connectivity, ef_construct=self.engine.expansion_add
            )
            distance = (
                qdrant_client.models.Distance.EUCLID
                if self.metric == "euclidean"
                else qdrant_client.models.Distance.DOT
            )
            vector = qdrant_client.models.VectorParams(size=self.dimension, distance=distance, hnsw_config=graph)
            self.client.create_collection(self.name, vectors_config={self.metric: vector})
        ((metric, stored),) = self.client.get_collection(self.name).config.params.vectors.items()
        self.refuse_other(self.name, stored.size, metric)

    def _upsert(self, keys: Sequence[int], vectors: Vectors) -> None:
        # Ids are unsigned, and keys may be negative.
        points = qdrant_client.models.Batch(
            ids=[key % _ID_RANGE for key in keys], vectors={self.metric: vectors.tolist()}
        )
        with self.lock:
            self.client.upsert(self.name, points, wait=True)

    def _delete(self, keys: Sequence[int]) -> None:
        with self.lock:
            self.client.delete(
                self.name, qdrant_client.models.PointIdsList(points=[key % _ID_RANGE for key in keys]), wait=True
            )

    def _query(self, queries: Vectors, top_k: int) -> list[NearestKeys]:
        parameters = qdrant_client.models.SearchParams(
            hnsw_ef=max(top_k, self.engine.expansion_search), exact=self.engine.exact
        )
        requests = [
            qdrant_client.models.QueryRequest(
                query=query,
                using=self.metric,
                limit=top_k,
                params=parameters if self.engine.url else None,
                with_payload=False,
            )
            for query in queries.tolist()
        ]
        with self.lock:
            responses = self.client.query_batch_points(self.name, requests)
        is_squared = self.metric == "euclidean"
        return [
            # Qdrant gives the distance, not its square.
            [(_key_of(hit.id), hit.score**2 if is_squared else hit.score) for hit in response.points]
            for response in responses
        ]

    def _key_pages(self) -> Iterator[Sequence[int]]:
        start: Any = None
        while True:
            with self.lock:
                page, start = self.client.scroll(
                    self.name, limit=self.most_rows, offset=start, with_payload=False, with_vectors=False
                )
            yield [_key_of(point.id) for point in page]
            if start is None:
                return

    def close(self) -> None:
        if self.place is not None:
            _LOCAL.give_back(self.place)
            self.place = None
        elif client := self.__dict__.pop("client", None):
            client.close()


def _key_of(point: int) -> int:
    """Return the signed key of a point, whose id is unsigned."""
    return point - _ID_RANGE if point >= _ID_RANGE // 2 else point
