"""OpenSearch: k-NN indexes on a server.

https://docs.opensearch.org/latest/vector-search/
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from spolia.deferred import opensearchpy
from spolia.errors import StoreError, StoreUnavailable
from spolia.stores.adapters.engine import Collection, NearestKeys, Served
from spolia.stores.indexes import Vectors

_TRANSIENT = {429, 500, 502, 503, 504}


@dataclass(frozen=True)
class OpenSearch(Served["OpenSearchIndex"]):
    """Vectors in an OpenSearch index. There is no embedded one.

    Args:
        url: of the server.
        user_env: name of the environment variable with the user; nothing is sent where it is not set.
        password_env: name of the environment variable with the password.
        library: what searches: `faiss` or `lucene`.
        shards: into how many parts an index is cut.
        replicas: how many further copies it has.
        certificates: file with the authorities that are believed; empty for those of the machine.

    >>> OpenSearch("https://search.example:9200").location
    'OpenSearch at https://search.example:9200'
    """

    url: str = "http://127.0.0.1:9200"
    user_env: str = "OPENSEARCH_USER"
    password_env: str = "OPENSEARCH_PASSWORD"
    library: Literal["faiss", "lucene"] = "faiss"
    shards: int = 1
    replicas: int = 1
    certificates: str = ""

    extra: ClassVar[str] = "opensearch"
    module: ClassVar[str] = "opensearchpy"

    def _make_collection(self, dimension: int, metric: str) -> "OpenSearchIndex":
        return OpenSearchIndex(self, dimension, metric)

    def _drop(self, folder: Path, name: str) -> None:
        with closing(self.client()) as client:
            client.indices.delete(index=name, ignore_unavailable=True)

    def error_type(self, error: Exception) -> type[StoreError]:
        if isinstance(error, opensearchpy.exceptions.ConnectionError):
            return StoreError if isinstance(error, opensearchpy.exceptions.SSLError) else StoreUnavailable
        passing = isinstance(error, opensearchpy.exceptions.TransportError) and error.status_code in _TRANSIENT
        return StoreUnavailable if passing else StoreError

    def client(self) -> Any:
        user = self.secret("user_env")
        options: dict[str, Any] = {"ca_certs": self.certificates} if self.certificates else {}
        return opensearchpy.OpenSearch(
            hosts=[self.url],
            http_auth=(user, self.secret("password_env")) if user else None,
            timeout=self.timeout_s,
            max_retries=0,
            http_compress=True,
            **options,
        )


class OpenSearchIndex(Collection):
    """Documents of `key`, which is the `_id` too, and the vector, which is named after the metric."""

    most_rows = 5_000
    most_numbers = 400_000  # as text in a request, some 9 MB
    engine: OpenSearch

    def open(self, folder: Path, name: str) -> None:
        self.client, self.name = (client := self.engine.client()), name
        if not client.indices.exists(index=name):
            client.indices.create(index=name, body=self._body(), params={"wait_for_active_shards": 1})
        (index_info,) = client.indices.get_mapping(index=name).values()
        fields: Mapping[str, Any] = index_info["mappings"]["properties"]
        metric = next(field for field in fields if field != "key")
        self.refuse_other(name, fields[metric].get("dimension", 0), metric)

    def _body(self) -> dict[str, Any]:
        method = {
            "name": "hnsw",
            "engine": self.engine.library,
            "space_type": "l2" if self.metric == "euclidean" else "innerproduct",
            "parameters": {"m": self.engine.connectivity, "ef_construction": self.engine.expansion_add},
        }
        vector = {"type": "knn_vector", "dimension": self.dimension, "method": method}
        settings = {"knn": True, "number_of_shards": self.engine.shards, "number_of_replicas": self.engine.replicas}
        return {
            "settings": {"index": settings},
            "mappings": {"dynamic": "strict", "properties": {"key": {"type": "long"}, self.metric: vector}},
        }

    def _upsert(self, keys: Sequence[int], vectors: Vectors) -> None:
        lines: list[Any] = []
        for key, vector in zip(keys, vectors.tolist(), strict=True):
            lines += [{"index": {"_id": str(key)}}, {"key": key, self.metric: vector}]
        self._write_bulk(lines)

    def _delete(self, keys: Sequence[int]) -> None:
        self._write_bulk([{"delete": {"_id": str(key)}} for key in keys])

    def _write_bulk(self, lines: list[Any]) -> None:
        """Write; visible to searches when it returns. A bulk may fail for some of its documents."""
        response = self.client.bulk(body=lines, index=self.name, params={"refresh": "true"})
        for item in response["items"] if response["errors"] else ():
            ((_, outcome),) = item.items()
            self._raise_error(outcome.get("status", 200), outcome.get("error"))

    def _query(self, queries: Vectors, top_k: int) -> list[NearestKeys]:
        parameters = {"ef_search": max(top_k, self.engine.expansion_search)}
        lines: list[Any] = []
        for query in queries.tolist():
            knn = {self.metric: {"vector": query, "k": top_k, "method_parameters": parameters}}
            lines += [{}, {"size": top_k, "_source": False, "query": {"knn": knn}}]
        answers = self.client.msearch(body=lines, index=self.name)["responses"]
        for answer in answers:
            self._raise_error(answer.get("status", 200), answer.get("error"))
        return [
            [(int(hit["_id"]), self._closeness(hit["_score"])) for hit in response["hits"]["hits"]]
            for response in answers
        ]

    def _closeness(self, score: float) -> float:
        """Invert the database's positive scores: 1 / (1 + d²); 1 + p for a product p ≥ 0, below that 1 / (1 - p)."""
        if self.metric == "euclidean":
            return 1.0 / score - 1.0
        return score - 1.0 if score >= 1.0 else 1.0 - 1.0 / score

    def _raise_error(self, status: int, error: Any) -> None:
        if error:
            kind = StoreUnavailable if status in _TRANSIENT else StoreError
            raise kind(f"{self.engine.location} answered {status}: {str(error)[:300]}")

    def _key_pages(self) -> Iterator[Sequence[int]]:
        # Pages go on after the last key: with an offset, OpenSearch ends at 10,000 results.
        body: dict[str, Any] = {"size": self.most_rows, "_source": False, "sort": [{"key": "asc"}]}
        while page := self.client.search(index=self.name, body=body)["hits"]["hits"]:
            yield [int(hit["_id"]) for hit in page]
            body["search_after"] = page[-1]["sort"]

    def close(self) -> None:
        self.client.close()
