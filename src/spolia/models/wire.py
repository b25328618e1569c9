"""One request to a server over HTTP: bounded in time and size, and ended at once by a cancellation.

urllib3, because it is one distribution, synchronous like the core, and bounded: timeouts for connecting and for each
read, verified TLS, and connections that are kept and checked before they are used again. Its retries and redirects are
off: `spolia.models.chat` retries, and a redirect is refused, so that a key is sent to one server only.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from urllib3 import BaseHTTPResponse, HTTPConnectionPool, HTTPSConnectionPool, Timeout
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import (
    ConnectTimeoutError,
    HTTPError,
    NameResolutionError,
    NewConnectionError,
    ReadTimeoutError,
    SSLError,
)

from spolia.errors import Cancelled, ModelRejected, ModelUnavailable
from spolia.surrounding import check_cancelled, on_cancel

MAX_REPLY_BYTES = 32 * 2**20
POLL_S = 0.05


@dataclass(frozen=True)
class Limits:
    """How long one request may take, in seconds.

    Args:
        connect_s: until the server takes the connection.
        read_s: without a byte from the server.
        until: when all must be done, on the clock of `time.monotonic`.
    """

    connect_s: float
    read_s: float
    until: float

    @property
    def left_s(self) -> float:
        return self.until - time.monotonic()


class Line:
    """The socket under one request, which another thread may cut: the thread that reads from it wakes up at once."""

    def __init__(self) -> None:
        self.cut_by = ""
        self._socket: socket.socket | None = None
        self._lock = threading.Lock()

    def use(self, found: socket.socket | None) -> None:
        with self._lock:
            self._socket = found
        if self.cut_by:
            self.cut(self.cut_by)

    def cut(self, why: str) -> None:
        with self._lock:
            self.cut_by = self.cut_by or why
            if self._socket is not None:
                with suppress(OSError):  # the server was faster
                    socket.socket.shutdown(self._socket, socket.SHUT_RDWR)  # `close` would not wake a reader


_under_way = threading.local()


class _Plain(HTTPConnection):
    def getresponse(self) -> Any:
        _under_way.line.use(self.sock)
        return super().getresponse()


class _Secure(HTTPSConnection):
    def getresponse(self) -> Any:
        _under_way.line.use(self.sock)
        return super().getresponse()


class _PlainPool(HTTPConnectionPool):
    ConnectionCls = _Plain


class _SecurePool(HTTPSConnectionPool):
    ConnectionCls = _Secure


@contextmanager
def posted(url: str, body: bytes, headers: Mapping[str, str], limits: Limits, kept: int) -> Iterator[BaseHTTPResponse]:
    """Send `body` and give the response, whose content is still to be read.

    Args:
        kept: connections that are kept open to this server.

    Raises:
        ModelUnavailable: the server cannot be reached, or it fell silent or took too long.
        ModelRejected: its certificate is not valid.
        Cancelled: the run was cancelled; the socket is cut.
    """
    parts, line = urlsplit(url), Line()
    clock = threading.Timer(max(limits.left_s, 0.0), line.cut, ("clock",))  # cuts whatever waits by then
    clock.daemon = True
    response: BaseHTTPResponse | None = None
    with on_cancel(lambda: line.cut("cancel")):
        try:
            check_cancelled()
            clock.start()
            _under_way.line = line
            response = _pool(parts.scheme, parts.hostname or "", parts.port, kept).urlopen(
                "POST",
                parts.path,
                body=body,
                headers={"Content-Type": "application/json", "Accept-Encoding": "identity", **headers},
                timeout=Timeout(connect=min(limits.connect_s, max(limits.left_s, 0.001)), read=limits.read_s),
                retries=False,
                redirect=False,
                preload_content=False,
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
            clock.cancel()
            if response is not None:
                response.close()  # a connection whose reply was read to its end is back in the pool before


def chunks(response: BaseHTTPResponse) -> Iterator[bytes]:
    """The content as it comes, up to `MAX_REPLY_BYTES`."""
    size = 0
    while found := response.read1(65536):
        size += len(found)
        if size > MAX_REPLY_BYTES:
            raise ModelRejected(f"The reply is longer than {MAX_REPLY_BYTES} bytes. Ask for fewer tokens.")
        yield found


def _raise_if_cut(line: Line, error: Exception | None) -> None:
    if line.cut_by == "cancel":
        raise Cancelled("The run was cancelled while the model was writing.") from error
    if line.cut_by:
        raise ModelUnavailable("no complete reply before the deadline. Write a larger deadline_s.") from error


def _translated(error: HTTPError, limits: Limits) -> ModelUnavailable | ModelRejected:
    if isinstance(error, SSLError):
        return ModelRejected(
            f"its certificate or TLS is not accepted ({error}). Write the https address that it is for."
        )
    if isinstance(error, NameResolutionError):
        return ModelUnavailable("its host name is not known. Check base_url.")
    if isinstance(error, ConnectTimeoutError) and not isinstance(error, NewConnectionError):
        return ModelUnavailable(f"it took no connection within {limits.connect_s:g} s. Is the server running there?")
    if isinstance(error, NewConnectionError):
        why = str(error).rpartition(": ")[2]
        return ModelUnavailable(f"no connection ({why}). Start the server, or check base_url.")
    if isinstance(error, ReadTimeoutError):
        return ModelUnavailable(
            f"it sent nothing for {limits.read_s:g} s. Write a larger timeout_s if it is only slow."
        )
    return ModelUnavailable(f"the connection broke before the reply was complete ({type(error).__name__}).")


# ------------------------------------------------------------------------------------- what one process shares

_pools: dict[tuple[str, str, int | None, int], HTTPConnectionPool] = {}
_turns: dict[tuple[str, int], threading.Semaphore] = {}
_making = threading.Lock()


def _pool(scheme: str, host: str, port: int | None, kept: int) -> HTTPConnectionPool:
    key = (scheme, host, port, kept)
    with _making:
        if key not in _pools:
            _pools[key] = (_SecurePool if scheme == "https" else _PlainPool)(host, port, maxsize=kept)
        return _pools[key]


@contextmanager
def turn(server: str, at_once: int, limits: Limits) -> Iterator[None]:
    """Wait until fewer than `at_once` requests of this process are under way to a server.

    Raises:
        ModelUnavailable: the deadline came first.
        Cancelled: the run was cancelled.
    """
    with _making:
        free = _turns.setdefault((server, at_once), threading.Semaphore(at_once))
    while not free.acquire(timeout=POLL_S):
        check_cancelled()
        if limits.left_s <= 0:
            raise ModelUnavailable(
                f"no turn before the deadline: {at_once} requests are under way. Write a larger deadline_s."
            )
    try:
        yield
    finally:
        free.release()


def pause(seconds: float) -> None:
    """Wait before another attempt; a cancellation ends the wait."""
    woken = threading.Event()
    with on_cancel(woken.set):
        check_cancelled()
        woken.wait(seconds)
    check_cancelled()


def _forget() -> None:
    """After a fork the child must not write on its parent's sockets."""
    global _making
    _pools.clear()
    _turns.clear()
    _making = threading.Lock()


os.register_at_fork(after_in_child=_forget)
