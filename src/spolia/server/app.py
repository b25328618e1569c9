"""Whole API of a server."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Any

from fastapi import FastAPI
from fastapi.responses import PlainTextResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.concurrency import run_in_threadpool
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

from spolia.server.answers import add_answer_routes
from spolia.server.audit import AuditLog
from spolia.server.chat import add_chat_routes
from spolia.server.document_routes import add_document_routes
from spolia.server.error_replies import error_response
from spolia.server.json_reply import JsonReply
from spolia.server.keys import ApiKeys
from spolia.server.mcp_tools import build_mcp_application, build_mcp_server
from spolia.server.model_routes import add_model_routes
from spolia.server.reply_schemas import ErrorReply
from spolia.server.request_checks import OPEN_PATHS, DirectRoutes, JsonRoute, RequestChecks, RequestMetrics
from spolia.server.run_routes import add_run_routes
from spolia.server.service import JobCounts, Service
from spolia.services.documents import Documents, run_publisher

DESCRIPTION = "Answers with citations from your documents. Errors have OpenAI's form."


class Application(FastAPI):
    """FastAPI application whose requests go to `entry` instead of FastAPI's middleware (telemetry, body limit, error
    handlers, exit stack), which takes an eighth of the CPU time of a request."""

    entry: ASGIApp
    prefix: str = ""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["app"] = self
        if self.prefix and scope["type"] == "http" and scope["path"].startswith(f"{self.prefix}/"):
            scope["path"] = scope["path"][len(self.prefix) :]  # of a proxy that passes it on
        await self.entry(scope, receive, send)

    def openapi(self) -> dict[str, Any]:
        """Describe the API, with the key that every path needs but the open ones."""
        if self.openapi_schema is None:  # made when it is first asked for: it takes half of the time of a start
            schema = super().openapi()
            schema["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
            schema["security"] = [{"key": []}]
            for path in OPEN_PATHS:
                schema["paths"][path]["get"]["security"] = []
        return super().openapi()


def build_application(
    service: Service,
    keys: ApiKeys,
    hosts: frozenset[str] = frozenset(),
    documents: Documents | None = None,
    audit: AuditLog | None = None,
    origins: Sequence[str] = (),
    root_path: str = "",
) -> FastAPI:
    """Build the ASGI application of a server.

    Args:
        keys: whose holders may ask; every path but `/live` and `/ready` needs one.
        hosts: names of the server beside `localhost` and IP addresses.
        documents: takes documents from users; None for a server that only reads.
        audit: gets a row for each request.
        origins: of pages whose scripts may ask, such as https://app.example.org (CORS).
        root_path: the path below which a proxy has this server, such as /spolia.
    """

    mcp = build_mcp_server(service, documents)
    tools = build_mcp_application(mcp)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        warming = asyncio.create_task(service.warm_up())
        with run_publisher(documents):
            async with mcp.session_manager.run():
                yield
        warming.cancel()

    app = Application(
        title="Spolia", version=version("spolia"), description=DESCRIPTION, lifespan=lifespan, docs_url=None,
        redoc_url=None, responses={"4XX": {"model": ErrorReply}}, servers=[{"url": root_path}] if root_path else None,
    )  # fmt: skip
    app.prefix = root_path.rstrip("/")
    app.router.route_class = JsonRoute
    add_answer_routes(app, service)
    add_chat_routes(app, service)
    add_model_routes(app, service)
    add_run_routes(app, service)
    if documents is not None:
        add_document_routes(app, documents)
        service.metrics.registry.register(JobCounts(documents.queue))

    app.router.routes.extend(tools.routes)

    def ask_store() -> None:
        service.corpus.latest().sources([])
        if documents is not None:
            documents.queue.find_jobs([1])  # any number: all that counts is that the table replies

    @app.get("/live", response_model=dict[str, bool])
    async def live() -> Response:
        """Return whether the process answers."""
        return JsonReply({"live": True})

    @app.get("/ready", response_model=dict[str, bool])
    async def ready() -> Response:
        """Return whether every flow has run once, so that no question waits for a build or a load, and the store
        answers."""
        if service.unready:
            return error_response(503, service.unready, "not_ready")
        try:
            await run_in_threadpool(ask_store)
        except Exception as error:  # a driver may raise anything; what it says is for the log alone
            logging.getLogger(__name__).warning("The store cannot be asked: %s", error)
            return error_response(503, f"The store cannot be asked: {type(error).__name__}.", "not_ready")
        return JsonReply({"ready": True})

    @app.get("/metrics", response_class=PlainTextResponse)
    async def metrics() -> Response:
        """Return counts of requests, answers, models, cached results, documents and callbacks, for Prometheus."""
        text = await run_in_threadpool(generate_latest, service.metrics.registry)
        return Response(text, media_type=CONTENT_TYPE_LATEST)

    checked = RequestChecks(DirectRoutes(app.router), keys=keys, hosts=hosts, ledger=service.ledger)
    # Outside of the checks, to count refused requests too.
    app.entry = RequestMetrics(checked, metrics=service.metrics, audit=audit)
    if origins:  # outside of the checks: a browser's preflight request has no key
        app.entry = CORSMiddleware(
            app.entry, allow_origins=origins, allow_methods=["*"], allow_headers=["*"], expose_headers=["Retry-After"]
        )
    if service.telemetry is not None:
        app.entry = service.telemetry.wrap_application(app.entry)
    return app
