"""What a request must pass before a route sees it (the name of this server, a key, its quota, the size and form of the
body), and what is counted and logged of it."""

from __future__ import annotations

import asyncio
import logging
import re
from functools import lru_cache
from ipaddress import ip_address
from time import monotonic, perf_counter
from typing import Any

from fastapi.exceptions import RequestValidationError
from fastapi.middleware.asyncexitstack import AsyncExitStackMiddleware
from fastapi.routing import APIRoute, APIRouter
from pydantic import BaseModel, ValidationError
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from spolia.errors import SpoliaError
from spolia.server.audit import AuditLog
from spolia.server.error_replies import error_response, reply_to, told
from spolia.server.keys import ApiKeys, UsageLedger, until_tomorrow
from spolia.server.service import ClientLeft, Metrics

OPEN = ("/live", "/ready")
"""Paths without a key."""
DOCS = ("/docs", "/redoc")
"""Where FastAPI has pages of an API. Their scripts are another server's, and would see the key that a user types."""
UNAUDITED = (*OPEN, "/metrics")
MOST_BYTES = 1 << 20
BODY_S = 10.0
"""Seconds for the whole body; of an upload for each piece."""
UPLOADS, MOST_UPLOAD_BYTES = "/v1/documents", 100 << 20
MOST_HOST = 300
"""Characters of a name with its port."""
CLOSE = {"Connection": "close"}
REQUESTS = logging.getLogger("spolia.server.requests")


class RequestChecks:
    """ASGI middleware: refuses a request, or hands it on with its body read and `scope["holder"]`.

    Args:
        keys: whose holders may ask.
        hosts: names of this server beside `localhost` and IP addresses. They stop a page in a browser whose own name
            points here (DNS rebinding).
        ledger: counts what keys use in a day.
    """

    def __init__(
        self, app: ASGIApp, keys: ApiKeys, hosts: frozenset[str] = frozenset(), ledger: UsageLedger | None = None
    ) -> None:
        self.app, self.keys, self.hosts, self.ledger = app, keys, hosts | {"localhost"}, ledger

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            return
        headers = Headers(scope=scope)
        refusal = await self._refused(scope, headers) or await self._with_body(scope, headers, receive, send)
        if refusal is not None:
            await refusal(scope, receive, send)

    async def _refused(self, scope: Scope, headers: Headers) -> Response | None:
        if len(headers.getlist("host")) > 1:
            return error_response(400, "Send one Host header.", headers=CLOSE)
        if not self._is_own(headers.get("host", "")):
            return error_response(421, "This server has another name. Start it with --allow-host NAME to add one.")
        if scope["path"] in OPEN:
            return None
        if scope["path"] in DOCS:
            said = "A page of the API would run scripts of another server, which see your key. Use /openapi.json."
            return error_response(404, said)
        key = headers.get("authorization", "")
        if (holder := self.keys.holder(key)) is None and await self.keys.refreshed(key):
            holder = self.keys.holder(key)
        if holder is None:
            said = "Send a key of this server: Authorization: Bearer KEY."
            return error_response(401, said, headers={"WWW-Authenticate": "Bearer", **CLOSE})
        scope["holder"] = holder
        if after_s := holder.quota.wait(monotonic()):
            said = f"The key {holder.name!r} allows {holder.quota.per_minute} requests a minute, which are spent."
            return error_response(429, said, after_s=after_s, headers=CLOSE)
        if self.ledger is not None and (limit := self.ledger.refusal(holder.name, holder.daily)):
            said = f"The key {holder.name!r} allows {limit} a day (UTC), which are spent."
            return error_response(429, said, after_s=until_tomorrow(), headers=CLOSE)
        return None

    def _is_own(self, host: str) -> bool:
        name = _name_in(host) if len(host) <= MOST_HOST else ""
        return name in self.hosts or _is_address(name)

    def _streamed(self, receive: Receive) -> Receive:
        """The body of an upload, piece by piece, within its limits of size and time."""
        size = 0

        async def limited() -> Message:
            nonlocal size
            try:
                async with asyncio.timeout(BODY_S):
                    message = await receive()
            except TimeoutError as error:
                raise HTTPException(408, "the body stopped", headers=CLOSE) from error
            size += len(message.get("body", b""))
            if size > MOST_UPLOAD_BYTES:
                raise HTTPException(413, f"an upload has at most {MOST_UPLOAD_BYTES:,} bytes", headers=CLOSE)
            return message

        return limited

    async def _with_body(self, scope: Scope, headers: Headers, receive: Receive, send: Send) -> Response | None:
        if scope["path"] == UPLOADS or (scope["method"] == "PUT" and scope["path"].startswith(UPLOADS)):
            if _declared(headers) > MOST_UPLOAD_BYTES:
                return error_response(413, f"An upload has at most {MOST_UPLOAD_BYTES:,} bytes.", headers=CLOSE)
            await self.app(scope, self._streamed(receive), send)
            return None
        try:
            async with asyncio.timeout(BODY_S):
                body = None if _declared(headers) > MOST_BYTES else await _body(receive)
        except TimeoutError:
            return error_response(408, f"The body did not come within {BODY_S:g} seconds.", headers=CLOSE)
        except ClientLeft:
            return Response(status_code=499)
        if body is None:
            return error_response(413, f"The body is longer than {MOST_BYTES:,} bytes.", headers=CLOSE)
        read = False

        async def again() -> Message:
            nonlocal read
            if read:
                return await receive()
            read = True
            return {"type": "http.request", "body": body, "more_body": False}

        await self.app(scope, again, send)
        return None


class RequestMetrics:
    """ASGI middleware: replies to what a request raised, counts requests by route and status, and writes them to the
    audit log."""

    def __init__(self, app: ASGIApp, metrics: Metrics, audit: AuditLog | None = None) -> None:
        self.app, self.metrics, self.audit = app, metrics, audit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, status = perf_counter(), 0

        async def noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self.app(scope, receive, noted)
        except Exception as error:
            if isinstance(error, SpoliaError):
                self.metrics.errors.labels(told(error)[2]).inc()
            if status:  # a reply has begun: the server closes the connection
                raise
            await (await reply_to(scope, error))(scope, receive, noted)
        finally:
            status = status or 500
            route = getattr(scope.get("route"), "path", "mcp" if status < 400 else "none")
            seconds = perf_counter() - began
            self.metrics.requests.labels(route, status).inc()
            self.metrics.seconds.labels(route).observe(seconds)
            if route not in UNAUDITED and (self.audit is not None or REQUESTS.isEnabledFor(logging.INFO)):
                holder, flow = scope.get("holder"), scope.get("flow", "")
                name = "" if holder is None else holder.name
                row = {"key": name, "method": scope["method"], "route": route, "flow": flow, "status": status}
                REQUESTS.info("request", extra={"fields": row | {"seconds": round(seconds, 4)}})
                if self.audit is not None:
                    self.audit.add(**row)


class JsonRoute(APIRoute):
    """A route. One whose parameters are the request and a body checks that by its model alone, which takes a third of
    the time that FastAPI takes for parameters of any kind."""

    is_direct = False
    """Whether it needs only the request: `FixedPaths` calls it without the router."""

    def __init__(self, path: str, endpoint: Any, **how: Any) -> None:
        super().__init__(path, endpoint, **how)
        needs = self.dependant
        others = (needs.path_params, needs.query_params, needs.header_params, needs.cookie_params, needs.dependencies)
        bodies = [one.field_info.annotation for one in needs.body_params]
        if not any(others) and len(bodies) == 1 and isinstance(bodies[0], type) and issubclass(bodies[0], BaseModel):
            self.app = _direct(endpoint, bodies[0])
            self.is_direct = True
        else:
            self.app = AsyncExitStackMiddleware(self.app)


class FixedPaths:
    """ASGI application: gives a request to its direct route by its whole path, and others to the router, which looks
    at one route after the other."""

    def __init__(self, router: APIRouter) -> None:
        self.router = router
        self.routes = {
            (method, route.path): route
            for route in router.routes
            if isinstance(route, JsonRoute) and route.is_direct
            for method in route.methods or ()
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        route = self.routes.get((scope["method"], scope["path"])) if scope["type"] == "http" else None
        if route is None:
            await self.router(scope, receive, send)
        else:
            scope["route"] = route
            await route.app(scope, receive, send)


def _direct(endpoint: Any, model: type[BaseModel]) -> ASGIApp:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        body = (await receive())["body"]  # `RequestChecks` has read all of it
        if "json" not in request.headers.get("content-type", ""):
            raise RequestValidationError([{"loc": ("body",), "msg": "It is not JSON"}])
        try:
            asked = model.model_validate_json(body)
        except ValidationError as error:
            found = error.errors(include_url=False, include_context=False, include_input=False)
            raise RequestValidationError([{**one, "loc": ("body", *one["loc"])} for one in found]) from error
        response: Response = await endpoint(request, asked)
        await response(scope, receive, send)

    return app


def _declared(headers: Headers) -> int:
    """The length of the body as its header says; 0 where it says none."""
    said = headers.get("content-length", "0")
    return int(said[:18]) if said.isdecimal() else 0


_HOST = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*)\.?)(?::[0-9]{1,5})?")
"""RFC 9110: a name or an address, and a port. Anything that libraries may read differently is no host."""


@lru_cache(1024)
def _name_in(host: str) -> str:
    """The name in a `Host` header; empty for none."""
    found = _HOST.fullmatch(host)
    return "" if found is None else (found[1] or found[2]).lower()


@lru_cache(1024)
def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


async def _body(receive: Receive) -> bytes | None:
    """The whole body; None where it is too long. Raises ClientLeft."""
    parts, size, more = [], 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientLeft
        parts.append(message.get("body", b""))
        size, more = size + len(parts[-1]), message.get("more_body", False)
        if size > MOST_BYTES:
            return None
    return b"".join(parts)
