"""Proxy to a server that can be cut off, or go silent, in the middle of what is sent through it."""

from __future__ import annotations

import selectors
import socket
import threading
from contextlib import suppress
from typing import Self, TypeAlias

Target: TypeAlias = "tuple[str, int] | str"  # host and port, or the path of a socket


class Wire:
    """Proxy on a free port that forwards bytes to a server and back; without a target it accepts and never answers."""

    def __init__(self, target: Target | None) -> None:
        self.target = target
        self._bytes_left: int | None = None
        self._closes = False
        self._sockets: list[socket.socket] = []
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port: int = self._listening.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *raised: object) -> None:
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)  # wakes the thread that waits in `accept`
        self._listening.close()
        self._close_sockets()

    def go_silent(self, byte_count: int = 0) -> None:
        """Forward `byte_count` more bytes to the server, then nothing more in either direction."""
        self._bytes_left, self._closes = byte_count, False

    def cut_off(self, byte_count: int = 0) -> None:
        """Forward `byte_count` more bytes to the server, then close every connection, and new ones."""
        self._bytes_left, self._closes = byte_count, True

    def mend(self) -> None:
        """Forward everything again; earlier connections are closed."""
        self._close_sockets()
        self._bytes_left = None

    def _close_sockets(self) -> None:
        with self._lock:
            closing, self._sockets = self._sockets, []
        for connection in closing:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)  # wakes the thread that waits for it

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            threading.Thread(target=self._serve_client, args=(client,), daemon=True).start()

    def _serve_client(self, client: socket.socket) -> None:
        with client, suppress(OSError):
            with self._lock:
                self._sockets.append(client)
            if self.target is None:
                while client.recv(65_536):
                    pass
                return
            with self._connect() as server:
                with self._lock:
                    self._sockets.append(server)
                self._forward(client, server)

    def _connect(self) -> socket.socket:
        if isinstance(self.target, str):
            server = socket.socket(socket.AF_UNIX)
            server.connect(self.target)
            return server
        assert self.target is not None
        return socket.create_connection(self.target)

    def _forward(self, client: socket.socket, server: socket.socket) -> None:
        with selectors.DefaultSelector() as ready:
            ready.register(client, selectors.EVENT_READ, server)
            ready.register(server, selectors.EVENT_READ, client)
            while True:
                for key, _ in ready.select():
                    if not (data := key.fileobj.recv(16_384)):  # type: ignore[union-attr]
                        return
                    key.data.sendall(self._take_allowed(data, upwards=key.fileobj is client))

    def _take_allowed(self, data: bytes, *, upwards: bool) -> bytes:
        with self._lock:
            if self._bytes_left is None:
                return data
            passed = data[: self._bytes_left] if upwards else data if self._bytes_left else b""
            self._bytes_left -= len(passed) if upwards else 0
            is_over = not self._bytes_left
        if is_over and self._closes:  # outside of the lock, which `_close_sockets` takes
            self._close_sockets()
        return passed
