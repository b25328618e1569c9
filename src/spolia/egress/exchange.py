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
LARGER = "Write a larger largest_bytes if it has an end."


@dataclass(frozen=True)
class RequestLimits:
    """How long one request may take: to connect, without a byte, and until when on the clock of `time.monotonic`."""

    connect_s: float
    read_s: float
    until: float

    @property
    def left_s(self) -> float:
        return self.until - time.monotonic()


@contextmanager
def exchanged(
    method: str,
    url: str,
    limits: RequestLimits,
    *,
    body: bytes | None = None,
    headers: Mapping[str, str] | None = None,
    kept: int = 4,
    public: bool = False,
) -> Iterator[Response]:
    """Send a request and give the response, whose content is still to be read; a cancelled run cuts the socket."""
    refuse_offline()
    parts, line = urlsplit(url), RequestSocket()
    response: Response | None = None
    with on_cancel(lambda: line.cut("cancel")), clocks.clock.at(limits.until, lambda: line.cut("clock")):
        try:
            check_cancelled()
            under_way.line = line
            response = pool(parts.scheme, parts.hostname or "", parts.port, kept, public=public).urlopen(
                method,
                (parts.path or "/") + (f"?{parts.query}" if parts.query else ""),
                body=body,
                headers={"Accept-Encoding": "identity", **(headers or {})},
                timeout=Timeout(connect=min(limits.connect_s, max(limits.left_s, 0.001)), read=limits.read_s),
                retries=False,
                redirect=False,
                preload_content=False,
                decode_content=False,
            )
            yield response
        except Exception as error:
            _raise_if_cut(line, error)
            if isinstance(error, HTTPError):
                raise _translated(error, limits) from error
            raise
        else:
            _raise_if_cut(line, None)  # a cut looks like the end of a reply that states no length
        finally:
            if response is not None:
                response.close()  # a connection whose reply was read to its end is back in the pool before


def pieces(response: Response, largest: int, advice: str = LARGER) -> Iterator[bytes]:
    """The content as it comes; EgressRefused, with what to write, if it has more than `largest` bytes."""
    size = 0
    while found := response.read1(_PIECE):
        size += len(found)
        if size > largest:
            raise EgressRefused(f"the reply is longer than {largest} bytes. {advice}")
        yield found


def release(response: Response, within_s: float = RELEASE_S) -> None:
    """Read the end of a reply that has said all, so that its connection serves the next request.

    A server that does not end it within `within_s` seconds loses the connection, and nobody waits longer.
    """
    line = under_way.line

    def cut() -> None:
        if response.connection is not None:  # it may serve another request already
            line.cut(ENDED)

    with suppress(HTTPError), clocks.clock.at(time.monotonic() + within_s, cut):
        while response.read1(_PIECE):
            pass


def _raise_if_cut(line: RequestSocket, error: Exception | None) -> None:
    if line.cut_by == "cancel":
        raise Cancelled("The run was cancelled while a server was answering.") from error
    if line.cut_by not in ("", ENDED):
        raise EgressLate("no complete reply before the deadline. Write a larger deadline_s.") from error


def _translated(error: HTTPError, limits: RequestLimits) -> EgressFailed | EgressRefused:
    if isinstance(error, SSLError):
        said = f"its certificate or TLS is not accepted ({error}). Write the https address that it is for."
        return EgressRefused(said, was_sent=False)
    if isinstance(error, NameResolutionError):
        return EgressFailed("its host name is not known. Check the address.", was_sent=False)
    if isinstance(error, ConnectTimeoutError) and not isinstance(error, NewConnectionError):
        said = f"it took no connection within {limits.connect_s:g} s. Is the server running there?"
        return EgressFailed(said, was_sent=False)
    if isinstance(error, NewConnectionError):
        why = str(error).rpartition(": ")[2]
        return EgressFailed(f"no connection ({why}). Start the server, or check the address.", was_sent=False)
    if isinstance(error, ReadTimeoutError):
        return EgressFailed(f"it sent nothing for {limits.read_s:g} s. Write a larger timeout_s if it is only slow.")
    return EgressFailed(f"the connection broke before the reply was complete ({type(error).__name__}).")
