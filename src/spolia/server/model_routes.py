"""Routes of the server's embedder and reranker, in the forms of OpenAI and of Cohere and Jina."""

from __future__ import annotations

from base64 import b64encode
from typing import Annotated, Any, Literal, NotRequired, TypeVar

from fastapi import FastAPI, Request
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field

from spolia.errors import QueryError, UnknownFlow
from spolia.models.protocols import AnyModel, Embedder, Kind, Scorer, embed_checked
from spolia.run import Run
from spolia.server.json_reply import JsonReply
from spolia.server.reply_schemas import TypedDict
from spolia.server.service import Service

M = TypeVar("M", bound=AnyModel)
Texts = Annotated[list[str], Field(min_length=1, max_length=2_048)]


class EmbeddingsRequest(BaseModel):
    """Texts, as OpenAI's clients send them. Without `model`, the server's embedder."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"input": ["The moon causes the tides."]}]})

    model: str = ""
    input: str | Texts
    encoding_format: Literal["float", "base64"] | None = "float"
    dimensions: int | None = None
    kind: Kind = Field(default="passage", description="Not in OpenAI's form: whether the texts are questions.")


class DocumentText(BaseModel):
    """A document of a rerank request."""

    text: str


class RerankRequest(BaseModel):
    """A question and documents, as clients of Cohere and Jina send them. Without `model`, the server's reranker."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"query": "causes of tides", "documents": ["The moon.", "A mine."]}]}
    )

    model: str = ""
    query: str = Field(min_length=1, max_length=32_000)
    documents: list[str | DocumentText] = Field(min_length=1, max_length=1_000)
    top_n: int | None = Field(default=None, ge=1)
    return_documents: bool = False


class EmbeddingReply(TypedDict):
    """The vector of a text: numbers, or base64 of little-endian float32."""

    object: Literal["embedding"]
    index: int
    embedding: list[float] | str


class InputUsage(TypedDict):
    """Tokens of the texts."""

    prompt_tokens: int
    total_tokens: int


class EmbeddingsReply(TypedDict):
    """Vectors in the order of the texts."""

    object: Literal["list"]
    model: str
    data: list[EmbeddingReply]
    usage: InputUsage


class TextReply(TypedDict):
    """A document with its text."""

    text: str


class RerankedReply(TypedDict):
    """A document by its number in the request; a higher score is better."""

    index: int
    relevance_score: float
    document: NotRequired[TextReply]


class RerankReply(TypedDict):
    """Documents, best first."""

    id: str
    model: str
    results: list[RerankedReply]


def require_model(model: M | None, name: str, role: str) -> M:
    """Return the server's model; raise UnknownFlow if it has none, or the request names another one."""
    if model is None:
        raise UnknownFlow(f"This server has no {role}. Start it with --{role}.")
    if name not in ("", model.name):
        raise UnknownFlow(f"The {role} of this server is {model.name}, not {name!r:.80}. Write it, or no model.")
    return model


def add_model_routes(app: FastAPI, service: Service) -> None:
    @app.post("/v1/embeddings", response_model=EmbeddingsReply)
    async def embeddings(request: Request, body: EmbeddingsRequest) -> Response:
        """Embed texts by the embedder of the store."""
        embedder = require_model(service.embedder, body.model, "embedder")
        if body.dimensions not in (None, embedder.dimension):
            raise QueryError(f"{embedder.name} gives {embedder.dimension} numbers. Leave out `dimensions`.")
        with service.run(request.scope["holder"]) as run:
            return JsonReply(
                await service.run_in_thread(run, lambda: _embed_texts(run, embedder, body), request.receive)
            )

    @app.post("/v1/rerank", response_model=RerankReply)
    async def rerank(request: Request, body: RerankRequest) -> Response:
        """Order documents by the reranker of the server."""
        scorer = require_model(service.scorer, body.model, "reranker")
        with service.run(request.scope["holder"]) as run:
            return JsonReply(
                await service.run_in_thread(run, lambda: _rank_documents(run, scorer, body), request.receive)
            )


def _embed_texts(run: Run, embedder: Embedder, body: EmbeddingsRequest) -> EmbeddingsReply:
    texts = [body.input] if isinstance(body.input, str) else body.input
    with run.lane():
        vectors = embed_checked(embedder, texts, body.kind).astype("<f4")
        tokens = sum(embedder.tokens(texts))
    is_packed = body.encoding_format == "base64"
    rows: list[Any] = [b64encode(vector.tobytes()).decode() for vector in vectors] if is_packed else vectors.tolist()
    return {
        "object": "list", "model": embedder.name, "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
        "data": [{"object": "embedding", "index": index, "embedding": row} for index, row in enumerate(rows)],
    }  # fmt: skip


def _rank_documents(run: Run, scorer: Scorer, body: RerankRequest) -> RerankReply:
    texts = [item if isinstance(item, str) else item.text for item in body.documents]
    with run.lane():
        scores = scorer.scores(body.query, texts)
    best = sorted(range(len(texts)), key=lambda at: -scores[at])[: body.top_n]
    results: list[RerankedReply] = [{"index": index, "relevance_score": scores[index]} for index in best]
    if body.return_documents:
        for item in results:
            item["document"] = {"text": texts[item["index"]]}
    return {"id": run.id, "model": scorer.name, "results": results}
