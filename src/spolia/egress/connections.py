"""Connections that another thread may cut, and the pools that keep them."""

import os
import socket
import threading
from contextlib import suppress
from typing import Any

from urllib3 import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import ConnectTimeoutError, NameResolutionError, NewConnectionError

from spolia.egress.addresses import open_socket


class RequestSocket:
    """Socket under one request, which another thread may cut: the thread that reads from it wakes up immediately."""

    def __init__(self) -> None:
        # A cut may come before the connection is open: it is remembered, and `use` carries it out.
        self.cut_by = ""
        self._socket: socket.socket | None = None
        self._lock = threading.Lock()

    def use(self, connection: socket.socket | None) -> None:
        with self._lock:
            self._socket = connection
        if self.cut_by:
            self.cut(self.cut_by)

    def cut(self, reason: str) -> None:
        with self._lock:
            self.cut_by = self.cut_by or reason
            if self._socket is not None:
                with suppress(OSError):  # the server was faster
                    socket.socket.shutdown(self._socket, socket.SHUT_RDWR)  # `close` would not wake a reader


SMALL_BYTES = 65_536  # of a body that is copied to be written with its head
MOST_POOLS = 256  # servers to which connections are kept
under_way = threading.local()  # its `line` is that of the request that the thread makes


class _Connection:
    """Mixin that opens connections to allowed addresses only, and writes head and body of a small request in one system
    call."""

    public = False
    _small_request: list[bytes] | None = None

    def request(self, method: str, url: str, body: Any = None, *args: Any, **kwargs: Any) -> None:
        self._small_request = [] if isinstance(body, bytes) and len(body) <= SMALL_BYTES else None
        try:
            super().request(method, url, body, *args, **kwargs)  # type: ignore[misc]
            data, self._small_request = b"".join(self._small_request or ()), None
            if data:
                super().send(data)  # type: ignore[misc]
        finally:
            self._small_request = None

    def send(self, data: Any) -> None:
        if self._small_request is not None and isinstance(data, bytes):
            self._small_request.append(data)
        else:
            super().send(data)  # type: ignore[misc]

    def _new_conn(self: Any) -> socket.socket:
        try:
            timeout_s = self.timeout if isinstance(self.timeout, (int, float)) else None
            connection = open_socket(self._dns_host, self.port, timeout_s, public=self.public)
        except socket.gaierror as error:
            raise NameResolutionError(self.host, self, error) from error
        except TimeoutError as error:
            raise ConnectTimeoutError(self, f"no connection to {self.host}") from error
        except OSError as error:
            raise NewConnectionError(self, f"no connection: {error}") from error
        under_way.line.use(connection)
        return connection

    def getresponse(self: Any) -> Any:
        # A connection from the pool was opened for an earlier request, so `_new_conn` did not run.
        under_way.line.use(self.sock)
        return super().getresponse()  # type: ignore[misc]


def _pool_class(base: type, connection: type, *, public: bool) -> Any:
    connection_class = type(connection.__name__, (_Connection, connection), {"public": public})
    return type(base.__name__, (base,), {"ConnectionCls": connection_class})


_POOLS: dict[tuple[str, bool], type[HTTPConnectionPool]] = {
    (scheme, public): _pool_class(base, connection, public=public)
    for scheme, base, connection in (
        ("http", HTTPConnectionPool, HTTPConnection),
        ("https", HTTPSConnectionPool, HTTPSConnection),
    )
    for public in (False, True)
}
_pools: dict[tuple[str, str, int | None, int, bool], HTTPConnectionPool] = {}
_pools_lock = threading.Lock()


def pool(scheme: str, host: str, port: int | None, pool_size: int, *, public: bool) -> HTTPConnectionPool:
    """Return this process's connections to a server."""
    key = (scheme, host, port, pool_size, public)
    with _pools_lock:
        if key not in _pools:
            # Sources name any number of servers, so the oldest pool is closed.
            if len(_pools) >= MOST_POOLS:
                _pools.pop(next(iter(_pools))).close()
            _pools[key] = _POOLS[scheme, public](host, port, maxsize=pool_size)
        return _pools[key]


def _reset_after_fork() -> None:
    """Drop the pools in a forked child, which must not write on its parent's sockets."""
    global _pools_lock
    _pools.clear()
    _pools_lock = threading.Lock()


os.register_at_fork(after_in_child=_reset_after_fork)
