"""Errors in the form of OpenAI's API: a status, and an object that says what happened and what to write."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from typing import Any

from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Scope

from spolia import errors
from spolia.errors import SpoliaError, StoreError, StoreUnavailable
from spolia.server.json_reply import JsonReply
from spolia.server.service import ClientLeft
from spolia.stores.backends.sqlite.connection import is_full
from spolia.stores.files import lacks_files

CODES = {
    400: "invalid_request", 401: "invalid_api_key", 403: "forbidden", 404: "not_found", 405: "method_not_allowed",
    408: "timeout", 413: "request_too_large", 421: "misdirected_request", 429: "rate_limit_exceeded",
    500: "internal_error", 502: "model_error", 503: "unavailable",
}  # fmt: skip
STATUS: tuple[tuple[type[SpoliaError], int, str], ...] = (
    (errors.UnknownFlow, 404, "model_not_found"),
    (errors.UnknownRun, 404, "run_not_found"),
    (errors.NotFound, 404, "not_found"),
    (errors.NotAllowed, 403, "forbidden"),
    (errors.KeyReused, 409, "key_reused"),
    (errors.UnsupportedParameter, 400, "unsupported_parameter"),
    (errors.ServerBusy, 429, "server_busy"),
    (errors.ServerStopping, 503, "server_stopping"),
    (errors.StoreBusy, 503, "store_busy"),
    (errors.StoreUnavailable, 503, "store_unavailable"),
    (errors.ModelUnavailable, 503, "model_unavailable"),
    (errors.EgressFailed, 503, "source_unavailable"),
    (errors.BudgetSpent, 429, "budget_spent"),
    (errors.NotAStore, 503, "store_empty"),
    (errors.GroupError, 503, "store_empty"),
    (errors.StoreError, 500, "store_error"),
    (errors.ModelError, 502, "model_error"),
    (errors.QueryError, 400, "invalid_request"),
    (errors.FilterError, 400, "invalid_filter"),
)
"""The first kind that an error is; all others are faults of the flow, 500."""


def error_object(status: int, message: str, code: str = "", param: str | None = None) -> dict[str, Any]:
    kind = (
        # `requests` is OpenAI's type for a rate limit.
        "invalid_request_error" if status < 500 and status != 429 else "server_error" if status >= 500 else "requests"
    )
    return {"error": {"message": message, "type": kind, "param": param, "code": code or CODES.get(status, "error")}}


def error_response(
    status: int, message: str, code: str = "", *, param: str | None = None, after_s: float = 0.0,
    headers: Mapping[str, str] | None = None,
) -> Response:  # fmt: skip
    """Return an error; for 429 and 503 with the seconds after which another attempt may succeed."""
    reply_headers = dict(headers or {})
    if status in (429, 503):
        # With 0, clients would ask again without a pause.
        reply_headers["Retry-After"] = str(max(1, math.ceil(after_s)))
    return JsonReply(error_object(status, message, code, param), status, reply_headers)


def cause_of(error: Exception) -> Exception:
    """Return the error that clients see: the first transient one among its causes, such as a model that every arm of a
    branch needs; else the error itself."""
    cause: BaseException | None = error
    while cause is not None and not getattr(cause, "transient", False):
        cause = cause.__cause__
    return cause if isinstance(cause, Exception) else error


def classify_error(error: Exception) -> tuple[int, str, str]:
    """Return the status, message and code of a flow's error. Details of a server-side error stay in the trace."""
    error = cause_of(error)
    if isinstance(error, StoreError) and lacks_files(error):  # whatever the store made of it
        error = StoreUnavailable("Too many open files.")
    for kind, status, code in STATUS:
        if isinstance(error, kind):
            return status, str(error) if status < 500 else f"{kind.__name__}: {SERVER_MESSAGES[code]}", code
    return 500, "The flow failed. Its trace says where: spolia trace last.", "flow_failed"


SERVER_MESSAGES = {
    "server_stopping": "the server is stopping. Ask again.",
    "store_busy": "another process is writing to the store. Ask again.",
    "store_unavailable": "the store cannot be reached or written. Ask again.",
    "model_unavailable": "a model cannot be reached. Search goes on without a language model.",
    "source_unavailable": "a source cannot be reached. Ask again.",
    "store_empty": "the store or its node group is not built yet. Add a document, and ask again.",
    "store_error": "the store cannot be used. See the server's log.",
    "model_error": "the language model refused the request. See the server's log.",
}


async def reply_to_flow_error(request: Request, error: Exception) -> Response:
    return flow_error_response(error)


def flow_error_response(error: Exception) -> Response:
    """Return the response to an error of a flow; log it if the server is at fault."""
    status, message, code = classify_error(error)
    if status >= 500:
        logging.getLogger("spolia.server").warning("%s: %s", type(error).__name__, error)
    param, after_s = getattr(error, "param", None), getattr(cause_of(error), "after_s", 0.0)
    return error_response(status, message, code, param=param, after_s=after_s)


async def reply_to_invalid_request(request: Request, error: Exception) -> Response:
    """Return the first problem of an invalid request by its field; of a union, that of the kind that fits best."""
    assert isinstance(error, RequestValidationError)
    first = max(error.errors(), key=lambda item: len(item["loc"]))
    kind = request.headers.get("content-type", "")
    if first["loc"] == ("body",) and "json" not in kind:
        return error_response(
            400, f"The body is {kind or 'of no type'}, not JSON. Send the header Content-Type: application/json."
        )
    param = ".".join(str(item) for item in first["loc"][1:])
    return error_response(400, f"{param}: {first['msg']}." if param else f"{first['msg']}.", param=param or None)


async def reply_to_http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if is_full(error.__cause__):  # of a form that is written down as it comes
        return flow_error_response(StoreUnavailable("The disk is full."))
    return error_response(
        error.status_code, f"{request.method} {request.url.path}: {error.detail.rstrip('.')}.", headers=error.headers
    )


async def reply_to_fault(request: Request, error: Exception) -> Response:
    logging.getLogger("spolia.server").error("%s %s", request.method, request.url.path, exc_info=error)
    return error_response(500, "A fault of the server. See its log.")


async def reply_to_os_error(request: Request, error: Exception) -> Response:
    if is_full(error) or lacks_files(error):
        return flow_error_response(StoreUnavailable(str(error)))
    raise error


async def reply_to_client_left(request: Request, error: Exception) -> Response:
    return Response(status_code=499)  # nobody reads it: a code for the counts, after nginx


HANDLERS: dict[type, Any] = {
    SpoliaError: reply_to_flow_error,
    RequestValidationError: reply_to_invalid_request,
    HTTPException: reply_to_http_error,
    ClientLeft: reply_to_client_left,
    ClientDisconnect: reply_to_client_left,
    OSError: reply_to_os_error,
    Exception: reply_to_fault,
}


async def reply_to(scope: Scope, error: Exception) -> Response:
    """Return the response to an exception of a request."""
    handler = next(HANDLERS[kind] for kind in type(error).__mro__ if kind in HANDLERS)
    response: Response = await handler(Request(scope), error)
    return response
