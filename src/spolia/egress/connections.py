"""Connections that another thread may cut, and the pools that keep them."""

import os
import socket
import threading
from contextlib import suppress
from typing import Any

from urllib3 import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import ConnectTimeoutError, NameResolutionError, NewConnectionError

from spolia.egress.addresses import connected


class RequestSocket:
    """The socket under one request, which another thread may cut: the thread that reads from it wakes up
    immediately."""

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


SMALL_BYTES = 65_536  # of a body that is copied to be written with its head
MOST_POOLS = 256  # servers to which connections are kept
under_way = threading.local()  # its `line` is that of the request that the thread makes


class _Connection:
    """Opens connections to allowed addresses only, and writes head and body of a small request in one system call."""

    public = False
    _held: list[bytes] | None = None

    def request(self, method: str, url: str, body: Any = None, *given: Any, **named: Any) -> None:
        self._held = [] if isinstance(body, bytes) and len(body) <= SMALL_BYTES else None
        try:
            super().request(method, url, body, *given, **named)  # type: ignore[misc]
            written, self._held = b"".join(self._held or ()), None
            if written:
                super().send(written)  # type: ignore[misc]
        finally:
            self._held = None

    def send(self, data: Any) -> None:
        if self._held is not None and isinstance(data, bytes):
            self._held.append(data)
        else:
            super().send(data)  # type: ignore[misc]

    def _new_conn(self: Any) -> socket.socket:
        try:
            timeout_s = self.timeout if isinstance(self.timeout, (int, float)) else None
            found = connected(self._dns_host, self.port, timeout_s, public=self.public)
        except socket.gaierror as error:
            raise NameResolutionError(self.host, self, error) from error
        except TimeoutError as error:
            raise ConnectTimeoutError(self, f"no connection to {self.host}") from error
        except OSError as error:
            raise NewConnectionError(self, f"no connection: {error}") from error
        under_way.line.use(found)
        return found

    def getresponse(self: Any) -> Any:
        under_way.line.use(self.sock)
        return super().getresponse()  # type: ignore[misc]


def _pool_class(base: type, connection: type, *, public: bool) -> Any:
    own = type(connection.__name__, (_Connection, connection), {"public": public})
    return type(base.__name__, (base,), {"ConnectionCls": own})


_POOLS: dict[tuple[str, bool], type[HTTPConnectionPool]] = {
    (scheme, public): _pool_class(base, connection, public=public)
    for scheme, base, connection in (
        ("http", HTTPConnectionPool, HTTPConnection),
        ("https", HTTPSConnectionPool, HTTPSConnection),
    )
    for public in (False, True)
}
_pools: dict[tuple[str, str, int | None, int, bool], HTTPConnectionPool] = {}
_making = threading.Lock()


def pool(scheme: str, host: str, port: int | None, kept: int, *, public: bool) -> HTTPConnectionPool:
    """The connections of this process to a server."""
    key = (scheme, host, port, kept, public)
    with _making:
        if key not in _pools:
            if len(_pools) >= MOST_POOLS:
                _pools.pop(next(iter(_pools))).close()
            _pools[key] = _POOLS[scheme, public](host, port, maxsize=kept)
        return _pools[key]


def _forget() -> None:
    """After a fork the child must not write on its parent's sockets."""
    global _making
    _pools.clear()
    _making = threading.Lock()


os.register_at_fork(after_in_child=_forget)
