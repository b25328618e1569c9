"""Servers of the protocols of databases that do not run everywhere: real HTTP, a handful of routes, exact search.

They check what the real ones check about a request (routes, sizes, names, credentials) and answer as documented.
"""

from __future__ import annotations

import base64
import gzip
import json
import socket
import threading
from abc import abstractmethod
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from tests.stores.adapters.server_processes import Ending

Answer = tuple[int, Any]


@dataclass
class Held:
    """A collection: how it was made, and its vectors."""

    made: Any
    name: str
    dimension: int
    product: bool
    vectors: dict[int, npt.NDArray[np.float32]] = field(default_factory=dict)

    def nearest(self, query: Any, limit: int) -> list[tuple[int, float]]:
        """Ids with products or distances, nearest first."""
        if not self.vectors:
            return []
        ids, rows = list(self.vectors), np.stack(list(self.vectors.values()))
        query_vector = np.asarray(query, dtype=np.float32)
        scores = rows @ query_vector if self.product else -np.linalg.norm(rows - query_vector, axis=1)
        return [(ids[i], float(abs(scores[i]) if not self.product else scores[i])) for i in np.argsort(-scores)[:limit]]

    def fits(self, vector: Any) -> bool:
        return len(vector) == self.dimension and all(isinstance(number, float) for number in vector)


class Double(Ending):
    """Serves on a free port; collections outlive an outage.

    Attributes:
        failures: statuses with which the next requests are answered instead.
        asked: method and path of every request.
    """

    def __init__(self) -> None:
        self.collections: dict[str, Held] = {}
        self.failures: list[int] = []
        self.asked: list[str] = []
        self.lock, self.port = threading.Lock(), 0

    @abstractmethod
    def answer(self, method: str, path: list[str], body: Any, headers: dict[str, str]) -> Answer:
        """Status and body; called by one thread at a time."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self.http = ThreadingHTTPServer(("127.0.0.1", self.port), _responder(self))
        self.http.daemon_threads, self.port = True, self.http.server_address[1]
        self.open: set[Any] = set()
        threading.Thread(target=self.http.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *raised: object) -> None:
        self.http.shutdown()
        self.http.server_close()
        for connection in list(self.open):  # as the connections of a process that ended
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


def _responder(double: Double) -> type[BaseHTTPRequestHandler]:
    class Responder(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def setup(self) -> None:
            super().setup()
            double.open.add(self.connection)

        def finish(self) -> None:
            double.open.discard(self.connection)

        def handle(self) -> None:
            try:
                super().handle()
            except (OSError, ValueError):  # the outage
                return

        def respond(self) -> None:
            raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            raw = gzip.decompress(raw) if self.headers.get("Content-Encoding") == "gzip" else raw
            path = self.path.partition("?")[0]
            with double.lock:
                double.asked.append(f"{self.command} {path}")
                headers = {name.lower(): value for name, value in self.headers.items()}
                if double.failures:
                    status, body = double.failures.pop(0), {"error": "overloaded", "status": {"error": "overloaded"}}
                else:
                    status, body = double.answer(self.command, path.strip("/").split("/"), _read(path, raw), headers)
            payload = b"" if self.command == "HEAD" else json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(payload)))
            self.end_headers()
            self.wfile.write(payload)

        do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = respond

        def log_message(self, format: str, *args: object) -> None:
            pass

    return Responder


def _read(path: str, raw: bytes) -> Any:
    if path.endswith(("/_bulk", "/_msearch")):
        assert raw.endswith(b"\n"), "the last line has no end"
        return [json.loads(line) for line in raw.splitlines()]
    return json.loads(raw) if raw else None


class QdrantDouble(Double):
    """The REST routes of Qdrant that are used: https://api.qdrant.tech/"""

    key = ""

    def answer(self, method: str, path: list[str], body: Any, headers: dict[str, str]) -> Answer:
        if self.key and headers.get("api-key") != self.key:
            return 401, {"status": {"error": f"{headers.get('api-key')} is no API key"}, "time": 0.0}
        status, result = self._result(method, path[1], "/".join(path[2:]), body)
        if status != 200:
            return status, {"status": {"error": result}, "time": 0.0}
        return status, {"result": result, "status": "ok", "time": 0.0}

    def _result(self, method: str, name: str, route: str, body: Any) -> Answer:
        collection = self.collections.get(name)
        if (method, route) == ("GET", "exists"):
            return 200, {"exists": collection is not None}
        if (method, route) == ("PUT", ""):
            return (409, f"Collection `{name}` already exists!") if collection else self._make(name, body)
        if (method, route) == ("DELETE", ""):
            return 200, self.collections.pop(name, None) is not None
        if collection is None:
            return 404, f"Not found: Collection `{name}` doesn't exist!"
        routes = {
            ("GET", ""): self._info,
            ("PUT", "points"): self._upsert,
            ("POST", "points/delete"): self._delete,
            ("POST", "points/query/batch"): self._query,
            ("POST", "points/scroll"): self._scroll,
        }
        return routes[method, route](collection, body)

    def _make(self, name: str, body: Any) -> Answer:
        ((vector, vector_settings),) = body["vectors"].items()
        self.collections[name] = Held(body, vector, vector_settings["size"], vector_settings["distance"] == "Dot")
        return 200, True

    def _info(self, held: Held, body: Any) -> Answer:
        graph = {"m": 16, "ef_construct": 100, "full_scan_threshold": 10000}
        optimizers = {"deleted_threshold": 0.2, "vacuum_min_vector_number": 1000, "default_segment_number": 0}
        config = {
            "params": {"vectors": held.made["vectors"], "shard_number": 1},
            "hnsw_config": graph,
            "optimizer_config": optimizers | {"flush_interval_sec": 5},
            "wal_config": {"wal_capacity_mb": 32, "wal_segments_ahead": 0},
        }
        info = {"status": "green", "optimizer_status": "ok", "segments_count": 1, "payload_schema": {}}
        return 200, info | {"points_count": len(held.vectors), "config": config}

    def _upsert(self, held: Held, body: Any) -> Answer:
        batch = body["batch"]
        vectors = batch["vectors"].get(held.name)
        if vectors is None or len(vectors) != len(batch["ids"]) or not all(map(held.fits, vectors)):
            return 400, f"Wrong input: vector dimension or name, expected {held.name!r} of {held.dimension}"
        if not all(isinstance(id, int) and 0 <= id < 2**64 for id in batch["ids"]):
            return 400, "Wrong input: ids are unsigned 64-bit integers"
        held.vectors |= zip(batch["ids"], (np.asarray(vector, dtype=np.float32) for vector in vectors), strict=True)
        return 200, {"operation_id": 1, "status": "completed"}

    def _delete(self, held: Held, body: Any) -> Answer:
        for id in body["points"]:
            held.vectors.pop(id, None)
        return 200, {"operation_id": 2, "status": "completed"}

    def _query(self, held: Held, body: Any) -> Answer:
        if any(
            search["using"] != held.name or not held.fits(search["query"]["nearest"]) for search in body["searches"]
        ):
            return 400, "Wrong input: vector dimension or name"
        rankings = [held.nearest(search["query"]["nearest"], search["limit"]) for search in body["searches"]]
        return 200, [{"points": [{"id": id, "version": 1, "score": score} for id, score in near]} for near in rankings]

    def _scroll(self, held: Held, body: Any) -> Answer:
        ids = [id for id in sorted(held.vectors) if id >= (body.get("offset") or 0)]
        page, rest = ids[: body["limit"]], ids[body["limit"] :]
        return 200, {"points": [{"id": id} for id in page], "next_page_offset": rest[0] if rest else None}


class OpenSearchDouble(Double):
    """The routes of OpenSearch that are used: https://docs.opensearch.org/latest/api-reference/

    `refused`: statuses of the next documents of a bulk.
    """

    login: tuple[str, str] | None = None

    def __init__(self) -> None:
        super().__init__()
        self.refused: list[int] = []

    def answer(self, method: str, path: list[str], body: Any, headers: dict[str, str]) -> Answer:
        basic = "Basic " + base64.b64encode(":".join(self.login or ()).encode()).decode()
        if self.login and headers.get("authorization") != basic:
            return 401, {"error": {"reason": "Unauthorized", "root_cause": [{"reason": "no"}]}, "status": 401}
        name, route = path[0], "/".join(path[1:])
        collection = self.collections.get(name)
        if (method, route) == ("PUT", ""):
            return self._make(name, body)
        if (method, route) == ("DELETE", ""):
            self.collections.pop(name, None)
            return 200, {"acknowledged": True}
        if collection is None:
            return 404, {"error": {"type": "index_not_found_exception", "reason": f"no such index [{name}]"}}
        routes = {
            ("HEAD", ""): lambda held, body: (200, None),
            ("GET", "_mapping"): lambda held, body: (200, {name: {"mappings": held.made["mappings"]}}),
            ("POST", "_bulk"): self._bulk,
            ("POST", "_msearch"): self._several,
            ("POST", "_search"): self._page,
        }
        return routes[method, route](collection, body)

    def _make(self, name: str, body: Any) -> Answer:
        if name in self.collections:
            return 400, {"error": {"type": "resource_already_exists_exception", "reason": name}, "status": 400}
        assert body["settings"]["index"]["knn"] is True
        ((vector, vector_field),) = (
            (n, f) for n, f in body["mappings"]["properties"].items() if f["type"] == "knn_vector"
        )
        product = {"innerproduct": True, "l2": False}[vector_field["method"]["space_type"]]
        self.collections[name] = Held(body, vector, vector_field["dimension"], product)
        return 200, {"acknowledged": True, "index": name}

    def _bulk(self, held: Held, lines: list[Any]) -> Answer:
        items, queue = [], iter(lines)
        for action in queue:
            ((verb, action_body),) = action.items()
            source = next(queue) if verb == "index" else {}
            items.append(
                {verb: {"_id": action_body["_id"], **self._write(held, verb, int(action_body["_id"]), source)}}
            )
        return 200, {"errors": any("error" in next(iter(item.values())) for item in items), "items": items}

    def _write(self, held: Held, verb: str, id: int, source: Any) -> dict[str, Any]:
        if self.refused and (status := self.refused.pop(0)) != 200:
            return {"status": status, "error": {"type": "rejected_execution_exception", "reason": "queue full"}}
        if verb == "delete":
            return {"status": 200 if held.vectors.pop(id, None) is not None else 404}
        if set(source) != {"key", held.name} or source["key"] != id or not held.fits(source[held.name]):
            return {"status": 400, "error": {"type": "mapper_parsing_exception", "reason": "failed to parse"}}
        held.vectors[id] = np.asarray(source[held.name], dtype=np.float32)
        return {"status": 201}

    def _several(self, held: Held, lines: list[Any]) -> Answer:
        return 200, {"responses": [self._knn(held, query) for query in lines[1::2]]}

    def _knn(self, held: Held, body: Any) -> dict[str, Any]:
        ((vector, knn),) = body["query"]["knn"].items()
        if vector != held.name or not held.fits(knn["vector"]) or not 0 < knn["k"] <= 10_000 >= body["size"]:
            return {"status": 400, "error": {"type": "query_shard_exception", "reason": "failed to create query"}}
        near = held.nearest(knn["vector"], min(knn["k"], body["size"]))
        hits = [{"_id": str(id), "_score": float(np.float32(self._score(held, value)))} for id, value in near]
        return {"status": 200, "hits": {"hits": hits}}

    def _score(self, held: Held, value: float) -> float:
        if not held.product:
            return 1 / (1 + value**2)
        return value + 1 if value >= 0 else 1 / (1 - value)

    def _page(self, held: Held, body: Any) -> Answer:
        last_key = body.get("search_after", [-(2**63) - 1])[0]
        assert body["sort"] == [{"key": "asc"}]
        assert body["size"] <= 10_000
        ids = [id for id in sorted(held.vectors) if id > last_key][: body["size"]]
        return 200, {"hits": {"hits": [{"_id": str(id), "_score": None, "sort": [id]} for id in ids]}}
