"""A local server that answers as the published model servers do: their addresses, and their replies as recorded."""

from __future__ import annotations

import base64
import io
import json
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from PIL import Image

from spolia.testing.server import vector

TEXT = "The moon causes it [1]."
USAGE = {"prompt_tokens": 26, "completion_tokens": 8, "total_tokens": 34}


def chunk(delta: Any, finish: str | None = None, fields: Mapping[str, Any] = {}, choice: Mapping[str, Any] = {}) -> str:
    choices = [{"index": 0, "delta": delta, "finish_reason": finish, **choice}]
    return json.dumps(
        {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, **fields, "choices": choices}
    )


@dataclass(frozen=True)
class Recorded:
    """What one product's server does.

    Args:
        base: what the user writes after the address.
        chat, embeddings: the paths that it has, with their query.
        key: the header in which it wants the key; empty for none.
        events: of a chat, in the product's own form.
        row: further fields of an embedding.
        most: texts to embed in one request, at most.
    """

    base: str
    chat: str
    embeddings: str
    key: str = ""
    events: tuple[str, ...] = ()
    row: Mapping[str, Any] = field(default_factory=dict)
    model_in_reply: str = "m"
    most: int = 2_048


OPENAI = {"system_fingerprint": "fp_1", "service_tier": "default", "model": "gpt-4o-mini-2024-07-18"}
FILTER = {"hate": {"filtered": False, "severity": "safe"}}
SERVERS: Mapping[str, Recorded] = {
    "Ollama": Recorded(
        "/v1", "/v1/chat/completions", "/v1/embeddings",
        events=(
            chunk({"role": "assistant", "content": TEXT}, None, {"system_fingerprint": "fp_ollama"}),
            chunk({"role": "assistant", "content": ""}, "stop", {"system_fingerprint": "fp_ollama"}),
        ),
        row={"object": "embedding"},
    ),
    "vLLM": Recorded(
        "/v1", "/v1/chat/completions", "/v1/embeddings",
        events=(
            chunk({"role": "assistant", "content": ""}, None, {"prompt_token_ids": None}, {"logprobs": None}),
            chunk({"content": TEXT, "reasoning_content": None}, None, {}, {"token_ids": None, "stop_reason": None}),
            chunk({"content": ""}, "stop", {}, {"stop_reason": None}),
        ),
        row={"object": "embedding"},
    ),
    "llama.cpp": Recorded(
        "/v1", "/v1/chat/completions", "/v1/embeddings",
        events=(
            chunk({"role": "assistant", "content": None}, None, {"system_fingerprint": "b5000-abc"}),
            chunk({"content": TEXT}),
            chunk({}, "stop", {"timings": {"prompt_n": 26, "predicted_per_second": 30.1}}),
        ),
        row={"object": "embedding"},
    ),
    "TEI": Recorded("/v1", "", "/v1/embeddings", row={"object": "embedding"}, most=32),
    "OpenAI": Recorded(
        "/v1", "/v1/chat/completions", "/v1/embeddings", "Authorization",
        events=(
            chunk({"role": "assistant", "content": "", "refusal": None}, None, OPENAI, {"logprobs": None}),
            chunk({"content": TEXT}, None, OPENAI, {"logprobs": None}),
            chunk({}, "stop", OPENAI, {"logprobs": None}),
        ),
        row={"object": "embedding"},
    ),
    "Azure": Recorded(
        "/openai/deployments/d?api-version=2024-10-21",
        "/openai/deployments/d/chat/completions?api-version=2024-10-21",
        "/openai/deployments/d/embeddings?api-version=2024-10-21",
        "api-key",
        events=(
            json.dumps({"choices": [], "prompt_filter_results": [{"content_filter_results": FILTER}]}),
            chunk({"role": "assistant", "content": "", "refusal": None}, None, OPENAI, {"content_filter_results": {}}),
            chunk({"content": TEXT}, None, OPENAI, {"content_filter_results": FILTER}),
            chunk({}, "stop", OPENAI, {"content_filter_results": {}}),
        ),
        row={"object": "embedding"},
    ),
}  # fmt: skip


def tei_rerank(asked: Mapping[str, Any]) -> tuple[int, Any]:
    """`POST /rerank` of text-embeddings-inference: `texts`, a bare array back, at most 32 texts."""
    if "texts" not in asked:
        reason = "Failed to deserialize the JSON body into the target type: missing field `texts` at line 1 column 60"
        return 422, reason
    if len(asked["texts"]) > 32:
        reason = f"batch size {len(asked['texts'])} > maximum allowed batch size 32"
        return 422, {"error": reason, "error_type": "Validation"}
    return 200, sorted(score_texts(asked["query"], asked["texts"], "score"), key=lambda row: -row["score"])


def cohere_rerank(asked: Mapping[str, Any]) -> tuple[int, Any]:
    """`POST /v2/rerank`."""
    if odd := asked.keys() - {"model", "query", "documents", "top_n", "max_tokens_per_doc", "priority"}:
        return 400, {"message": f"unknown field: {min(odd)}"}
    rows = score_texts(asked["query"], asked["documents"], "relevance_score")[: asked["top_n"]]
    meta = {"api_version": {"version": "2"}, "billed_units": {"search_units": 1}}
    return 200, {"id": "07734bd2", "results": rows, "meta": meta}


def jina_rerank(asked: Mapping[str, Any]) -> tuple[int, Any]:
    """`POST /v1/rerank`: texts, or as of jina-reranker-m0 objects with a text or a picture in base64."""
    passages = [
        document if isinstance(document, str) else document.get("text") or colour_of(document["image"])
        for document in asked["documents"]
    ]
    rows = score_texts(asked["query"], passages, "relevance_score")[: asked["top_n"]]
    assert asked["return_documents"] is False
    return 200, {"model": asked["model"], "object": "list", "usage": {"total_tokens": 815}, "results": rows}


def colour_of(picture: str) -> str:
    """The colour of a picture's first point as a word, which is what this model reads in it."""
    point = Image.open(io.BytesIO(base64.b64decode(picture, validate=True))).convert("RGB").getpixel((0, 0))
    return {(255, 0, 0): "red", (0, 0, 255): "blue"}.get(point, "grey")  # type: ignore[arg-type]


def voyage_rerank(asked: Mapping[str, Any]) -> tuple[int, Any]:
    """`POST /v1/rerank`: `top_k`, and any other name is refused."""
    if odd := asked.keys() - {"model", "query", "documents", "top_k", "return_documents", "truncation"}:
        return 400, {"detail": f"Argument '{min(odd)}' is not supported by our API"}
    rows = score_texts(asked["query"], asked["documents"], "relevance_score")[: asked["top_k"]]
    return 200, {"object": "list", "data": rows, "model": asked["model"], "usage": {"total_tokens": 26}}


def vllm_rerank(asked: Mapping[str, Any]) -> tuple[int, Any]:
    """`POST /v1/rerank`: each row repeats its text."""
    rows = score_texts(asked["query"], asked["documents"], "relevance_score")[: asked["top_n"]]
    rows = [row | {"document": {"text": asked["documents"][row["index"]], "multi_modal": None}} for row in rows]
    return 200, {"id": "rerank-1", "model": asked["model"], "usage": {"total_tokens": 56}, "results": rows}


RERANKERS: Mapping[str, tuple[str, str, Callable[[Mapping[str, Any]], tuple[int, Any]]]] = {
    "tei": ("", "/rerank", tei_rerank),
    "cohere": ("/v2", "/v2/rerank", cohere_rerank),
    "jina": ("/v1", "/v1/rerank", jina_rerank),
    "voyage": ("/v1", "/v1/rerank", voyage_rerank),
    "vllm": ("/v1", "/v1/rerank", vllm_rerank),
}
"""By form: what the user writes after the address, the path, and how it answers."""


def score_texts(query: str, texts: list[str], name: str) -> list[dict[str, Any]]:
    """Best first, the share of the query's words that a text has."""
    words = set(query.lower().split())
    rows = [
        {"index": index, name: len(words & set(text.lower().split())) / len(words)} for index, text in enumerate(texts)
    ]
    return sorted(rows, key=lambda row: -row[name])


class ModelServer:
    """One product's server on a free port; `url` is what its user writes.

    Attributes:
        asked: path and body of each request.
        keys: the key of each request as its header says it; empty where there was none.
    """

    def __init__(self, product: str, dimension: int = 12) -> None:
        self.recorded, self.rerank = SERVERS.get(product), RERANKERS.get(product)
        self.dimension = dimension
        self.asked: list[tuple[str, Any]] = []
        self.keys: list[str] = []
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), type("One", (_Answers,), {"serving": self}))
        self._http.daemon_threads = True
        base = self.recorded.base if self.recorded is not None else RERANKERS[product][0]
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}{base}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._http.shutdown()
        self._http.server_close()

    def answer(self, path: str, asked: Any) -> tuple[int, Any]:
        """Status, and JSON or (of a chat) text."""
        if self.rerank is not None and path == self.rerank[1]:
            return self.rerank[2](asked)
        if self.recorded is not None and path == self.recorded.embeddings:
            if (count := len(asked["input"])) > self.recorded.most:
                refusal = f"batch size {count} > maximum allowed batch size {self.recorded.most}"
                return 422, {"message": refusal, "code": 422, "type": "Validation"}
            rows = [
                {"index": index, "embedding": vector(text, self.dimension), **self.recorded.row}
                for index, text in enumerate(asked["input"])
            ]
            usage = {"prompt_tokens": 5, "total_tokens": 5}
            return 200, {"object": "list", "data": rows, "model": self.recorded.model_in_reply, "usage": usage}
        if self.recorded is not None and path == self.recorded.chat and asked.get("stream"):
            return 200, "".join(f"data: {event}\n\n" for event in (*self.recorded.events, "[DONE]"))
        if self.recorded is not None and path == self.recorded.chat:
            message = {"role": "assistant", "content": TEXT}
            choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
            return 200, {"object": "chat.completion", "choices": choices, "usage": USAGE}
        return 404, {"error": {"message": f"no {path}", "code": "404"}}


class _Answers(BaseHTTPRequestHandler):
    serving: ModelServer

    def log_message(self, format: str, *args: object) -> None:
        """Tests are quiet."""

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        recorded = self.serving.recorded
        key = self.headers.get("api-key") or self.headers.get("Authorization") or ""
        self.serving.asked.append((self.path, request))
        self.serving.keys.append(key)
        if recorded is not None and recorded.key and not self.headers.get(recorded.key):
            status, reply = 401, {"error": {"message": "You didn't provide an API key.", "code": None}}
        else:
            status, reply = self.serving.answer(self.path, request)
        is_text = isinstance(reply, str)
        body = reply.encode() if isinstance(reply, str) else json.dumps(reply).encode()
        with suppress(OSError):
            self.send_response(status)
            self.send_header("Content-Type", "text/event-stream" if is_text and status == 200 else "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
