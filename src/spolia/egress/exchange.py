"""One HTTP request through urllib3: bounded, cancellable, without retries; the caller handles redirects."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TypeAlias
from urllib.parse import urlsplit

from urllib3 import BaseHTTPResponse, Timeout
from urllib3.exceptions import (
    ConnectTimeoutError,
    HTTPError,
    NameResolutionError,
    NewConnectionError,
    ReadTimeoutError,
    SSLError,
)

from spolia.core.run_context import check_cancelled, on_cancel
from spolia.egress import clock as clocks
from spolia.egress.connections import RequestSocket, pool, under_way
from spolia.egress.offline import refuse_offline
from spolia.errors import Cancelled, EgressFailed, EgressLate, EgressRefused

Response: TypeAlias = BaseHTTPResponse
_PIECE = 65_536
RELEASE_S = 0.05
ENDED = "ended"
"""Why a connection is cut whose reply is complete."""
LARGER_ADVICE = "Write a larger largest_bytes if it has an end."


@dataclass(frozen=True)
class RequestLimits:
    """Time limits of one request: to connect, without a byte, and a deadline on the clock of `time.monotonic`."""

    connect_s: float
    read_s: float
    deadline: float

    @property
    def remaining_s(self) -> float:
        return self.deadline - time.monotonic()


@contextmanager
def send_request(
    method: str,
    url: str,
    limits: RequestLimits,
    *,
    body: bytes | None = None,
    headers: Mapping[str, str] | None = None,
    pool_size: int = 4,
    public: bool = False,
) -> Iterator[Response]:
    """Send a request and yield the response, whose content is still to be read; a cancelled run cuts the socket."""
    refuse_offline()
    parts, line = urlsplit(url), RequestSocket()
    response: Response | None = None
    with on_cancel(lambda: line.cut("cancel")), clocks.clock.schedule(limits.deadline, lambda: line.cut("clock")):
        try:
            check_cancelled()
            under_way.line = line
            response = pool(parts.scheme, parts.hostname or "", parts.port, pool_size, public=public).urlopen(
                method,
                (parts.path or "/") + (f"?{parts.query}" if parts.query else ""),
                body=body,
                headers={"Accept-Encoding": "identity", **(headers or {})},
                # urllib3 refuses a timeout of 0, so a deadline that has passed leaves a millisecond.
                timeout=Timeout(connect=min(limits.connect_s, max(limits.remaining_s, 0.001)), read=limits.read_s),
                # urllib3 would repeat a request by itself: callers count attempts and reserve their
                # cost.
                retries=False,
                redirect=False,
                preload_content=False,
                decode_content=False,
            )
            yield response
        except Exception as error:
            _raise_if_cut(line, error)
            if isinstance(error, HTTPError):
                raise _egress_error(error, limits) from error
            raise
        else:
            _raise_if_cut(line, None)  # a cut looks like the end of a reply that states no length
        finally:
            if response is not None:
                response.close()  # a connection whose reply was read to its end is back in the pool before


def read_pieces(response: Response, largest: int, advice: str = LARGER_ADVICE) -> Iterator[bytes]:
    """Yield the content as it comes; EgressRefused, with the advice, if it has more than `largest` bytes."""
    size = 0
    while piece := response.read1(_PIECE):
        size += len(piece)
        if size > largest:
            raise EgressRefused(f"the reply is longer than {largest} bytes. {advice}")
        yield piece


def release(response: Response, within_s: float = RELEASE_S) -> None:
    """Read the end of a complete reply, so that its connection serves the next request.

    A server that does not end it within `within_s` seconds loses the connection, and nobody waits longer.
    """
    line = under_way.line

    def cut() -> None:
        if response.connection is not None:  # it may serve another request already
            line.cut(ENDED)

    with suppress(HTTPError), clocks.clock.schedule(time.monotonic() + within_s, cut):
        while response.read1(_PIECE):
            pass


def _raise_if_cut(line: RequestSocket, error: Exception | None) -> None:
    if line.cut_by == "cancel":
        raise Cancelled("The run was cancelled while a server was answering.") from error
    if line.cut_by not in ("", ENDED):
        raise EgressLate("no complete reply before the deadline. Write a larger deadline_s.") from error


def _egress_error(error: HTTPError, limits: RequestLimits) -> EgressFailed | EgressRefused:
    if isinstance(error, SSLError):
        message = f"its certificate or TLS is not accepted ({error}). Write the https address that it is for."
        return EgressRefused(message, was_sent=False)
    if isinstance(error, NameResolutionError):
        return EgressFailed("its host name is not known. Check the address.", was_sent=False)
    if isinstance(error, ConnectTimeoutError) and not isinstance(error, NewConnectionError):
        message = f"it took no connection within {limits.connect_s:g} s. Is the server running there?"
        return EgressFailed(message, was_sent=False)
    if isinstance(error, NewConnectionError):
        reason = str(error).rpartition(": ")[2]
        return EgressFailed(f"no connection ({reason}). Start the server, or check the address.", was_sent=False)
    if isinstance(error, ReadTimeoutError):
        return EgressFailed(f"it sent nothing for {limits.read_s:g} s. Write a larger timeout_s if it is only slow.")
    return EgressFailed(f"the connection broke before the reply was complete ({type(error).__name__}).")
