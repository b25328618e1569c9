"""Checks before a route sees a request (the server's name, key, quota, size and form of the body), and the counts and
logs of requests."""

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
from spolia.server.error_replies import classify_error, error_response, reply_to
from spolia.server.keys import ApiKeys, UsageLedger, seconds_until_tomorrow
from spolia.server.service import ClientLeft, Metrics

OPEN_PATHS = ("/live", "/ready")
"""Paths without a key."""
DOCS_PATHS = ("/docs", "/redoc")
"""Where FastAPI has pages of an API. Their scripts are another server's, and would see the key that a user types."""
UNAUDITED = (*OPEN_PATHS, "/metrics")
MOST_BYTES = 1 << 20
BODY_S = 10.0
"""Seconds for the whole body; of an upload for each piece."""
UPLOAD_PATH, MOST_UPLOAD_BYTES = "/v1/documents", 100 << 20
MOST_HOST = 300
"""Characters of a name with its port."""
CLOSE_HEADER = {"Connection": "close"}  # the body was not read, so the connection cannot carry another request
REQUESTS = logging.getLogger("spolia.server.requests")


class RequestChecks:
    """Middleware (ASGI) that refuses a request, or hands it on with its body read and `scope["holder"]`.

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
        if scope["type"] != "http":  # websockets: no route has one
            return
        headers = Headers(scope=scope)
        refusal = await self._check_request(scope, headers) or await self._pass_with_body(scope, headers, receive, send)
        if refusal is not None:
            await refusal(scope, receive, send)

    async def _check_request(self, scope: Scope, headers: Headers) -> Response | None:
        if len(headers.getlist("host")) > 1:  # a proxy and this server could each read another one
            return error_response(400, "Send one Host header.", headers=CLOSE_HEADER)
        if not self._is_own(headers.get("host", "")):
            return error_response(421, "This server has another name. Start it with --allow-host NAME to add one.")
        if scope["path"] in OPEN_PATHS:
            return None
        if scope["path"] in DOCS_PATHS:
            message = "A page of the API would run scripts of another server, which see your key. Use /openapi.json."
            return error_response(404, message)
        key = headers.get("authorization", "")
        if (holder := self.keys.holder(key)) is None and await self.keys.refresh(key):
            holder = self.keys.holder(key)
        if holder is None:
            message = "Send a key of this server: Authorization: Bearer KEY."
            return error_response(401, message, headers={"WWW-Authenticate": "Bearer", **CLOSE_HEADER})
        scope["holder"] = holder
        if after_s := holder.quota.wait(monotonic()):
            message = f"The key {holder.name!r} allows {holder.quota.per_minute} requests a minute, which are spent."
            return error_response(429, message, after_s=after_s, headers=CLOSE_HEADER)
        # After the minute's limit: what that refuses does not count for the day.
        if self.ledger is not None and (limit := self.ledger.count_request(holder.name, holder.daily)):
            message = f"The key {holder.name!r} allows {limit} a day (UTC), which are spent."
            return error_response(429, message, after_s=seconds_until_tomorrow(), headers=CLOSE_HEADER)
        return None

    def _is_own(self, host: str) -> bool:
        name = _parse_host(host) if len(host) <= MOST_HOST else ""
        return name in self.hosts or _is_address(name)  # DNS rebinding needs a name, so addresses are safe

    def _limit_upload(self, receive: Receive) -> Receive:
        """Return a receiver for the body of an upload, piece by piece, that enforces the limits of size and time."""
        size = 0

        async def limited() -> Message:
            nonlocal size
            try:
                async with asyncio.timeout(BODY_S):
                    message = await receive()
            except TimeoutError as error:
                raise HTTPException(408, "the body stopped", headers=CLOSE_HEADER) from error
            size += len(message.get("body", b""))
            if size > MOST_UPLOAD_BYTES:
                raise HTTPException(413, f"an upload has at most {MOST_UPLOAD_BYTES:,} bytes", headers=CLOSE_HEADER)
            return message

        return limited

    async def _pass_with_body(self, scope: Scope, headers: Headers, receive: Receive, send: Send) -> Response | None:
        if scope["path"] == UPLOAD_PATH or (scope["method"] == "PUT" and scope["path"].startswith(UPLOAD_PATH)):
            if _declared_length(headers) > MOST_UPLOAD_BYTES:
                return error_response(413, f"An upload has at most {MOST_UPLOAD_BYTES:,} bytes.", headers=CLOSE_HEADER)
            await self.app(scope, self._limit_upload(receive), send)
            return None
        try:
            async with asyncio.timeout(BODY_S):
                body = None if _declared_length(headers) > MOST_BYTES else await _read_body(receive)
        except TimeoutError:
            return error_response(408, f"The body did not come within {BODY_S:g} seconds.", headers=CLOSE_HEADER)
        except ClientLeft:
            return Response(status_code=499)
        if body is None:
            return error_response(413, f"The body is longer than {MOST_BYTES:,} bytes.", headers=CLOSE_HEADER)
        is_read = False

        async def replay_body() -> Message:
            nonlocal is_read
            if is_read:
                return await receive()
            is_read = True
            return {"type": "http.request", "body": body, "more_body": False}

        await self.app(scope, replay_body, send)
        return None


class RequestMetrics:
    """Middleware (ASGI) that replies to exceptions, counts requests by route and status, and writes them to the audit
    log."""

    def __init__(self, app: ASGIApp, metrics: Metrics, audit: AuditLog | None = None) -> None:
        self.app, self.metrics, self.audit = app, metrics, audit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, status = perf_counter(), 0

        async def send_and_note(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self.app(scope, receive, send_and_note)
        except Exception as error:
            if isinstance(error, SpoliaError):
                self.metrics.errors.labels(classify_error(error)[2]).inc()
            if status:  # a reply has begun: the server closes the connection
                raise
            await (await reply_to(scope, error))(scope, receive, send_and_note)
        finally:
            status = status or 500
            # Unknown paths share one label: a scanner must not add a time series for each.
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
    """Route. If its parameters are only the request and a body, it checks that by its model alone, in a third of the
    time that FastAPI takes for parameters of any kind."""

    is_direct = False
    """Whether it needs only the request: `FixedPaths` calls it without the router."""

    def __init__(self, path: str, endpoint: Any, **options: Any) -> None:
        super().__init__(path, endpoint, **options)
        dependant = self.dependant
        other_parameters = (
            dependant.path_params,
            dependant.query_params,
            dependant.header_params,
            dependant.cookie_params,
            dependant.dependencies,
        )
        bodies = [parameter.field_info.annotation for parameter in dependant.body_params]
        if (
            not any(other_parameters)
            and len(bodies) == 1
            and isinstance(bodies[0], type)
            and issubclass(bodies[0], BaseModel)
        ):
            self.app = _build_direct_app(endpoint, bodies[0])
            self.is_direct = True
        else:
            # `Application` leaves out the middleware that does this for all routes.
            self.app = AsyncExitStackMiddleware(self.app)


class DirectRoutes:
    """Application (ASGI) that finds a direct route by its whole path; all other requests go to the router, which tries
    one route after the other."""

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


def _build_direct_app(endpoint: Any, model: type[BaseModel]) -> ASGIApp:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        body = (await receive())["body"]  # `RequestChecks` has read all of it
        if "json" not in request.headers.get("content-type", ""):
            raise RequestValidationError([{"loc": ("body",), "msg": "It is not JSON"}])
        try:
            parsed_body = model.model_validate_json(body)
        except ValidationError as error:
            problems = error.errors(include_url=False, include_context=False, include_input=False)
            raise RequestValidationError(
                [{**problem, "loc": ("body", *problem["loc"])} for problem in problems]
            ) from error
        response: Response = await endpoint(request, parsed_body)
        await response(scope, receive, send)

    return app


def _declared_length(headers: Headers) -> int:
    """Return the length of the body by its header; 0 if the header gives none."""
    header = headers.get("content-length", "0")
    return int(header[:18]) if header.isdecimal() else 0  # more digits say nothing new, and `int` refuses thousands


_HOST = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*)\.?)(?::[0-9]{1,5})?")
"""RFC 9110: a name or an address, and a port. Anything that libraries may read differently is no host."""


@lru_cache(1024)  # bounded: anybody can send other names
def _parse_host(host: str) -> str:
    """Return the name in a `Host` header; empty for an invalid one."""
    match = _HOST.fullmatch(host)
    return "" if match is None else (match[1] or match[2]).lower()


@lru_cache(1024)
def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


async def _read_body(receive: Receive) -> bytes | None:
    """Read the whole body; None if it is too long. Raise ClientLeft if the client leaves."""
    parts, size, more = [], 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientLeft
        parts.append(message.get("body", b""))
        size, more = size + len(parts[-1]), message.get("more_body", False)
        if size > MOST_BYTES:  # inside the loop: a body of unknown length must not fill the memory
            return None
    return b"".join(parts)
