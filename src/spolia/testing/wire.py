"""A wire to a server that can be cut, or go silent, in the middle of what is sent over it."""

from __future__ import annotations

import selectors
import socket
import threading
from contextlib import suppress
from typing import Self, TypeAlias

Target: TypeAlias = "tuple[str, int] | str"  # host and port, or the path of a socket


class Wire:
    """Passes on what comes to a server and back, over a free port; with no target it accepts and never answers."""

    def __init__(self, target: Target | None) -> None:
        self.target = target
        self._left: int | None = None
        self._cuts = False
        self._open: list[socket.socket] = []
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port: int = self._listening.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *raised: object) -> None:
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._close()

    def silent(self, after: int = 0) -> None:
        """From now on pass on `after` bytes to the server, then nothing more in either direction."""
        self._left, self._cuts = after, False

    def cut(self, after: int = 0) -> None:
        """From now on pass on `after` bytes to the server, then close every connection, and new ones."""
        self._left, self._cuts = after, True

    def mended(self) -> None:
        """Pass everything on again; connections from before are closed."""
        self._close()
        self._left = None

    def _close(self) -> None:
        with self._lock:
            closing, self._open = self._open, []
        for one in closing:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            threading.Thread(target=self._passed, args=(client,), daemon=True).start()

    def _passed(self, client: socket.socket) -> None:
        with client, suppress(OSError):
            with self._lock:
                self._open.append(client)
            if self.target is None:
                while client.recv(65_536):
                    pass
                return
            with self._connected() as server:
                with self._lock:
                    self._open.append(server)
                self._pass(client, server)

    def _connected(self) -> socket.socket:
        if isinstance(self.target, str):
            found = socket.socket(socket.AF_UNIX)
            found.connect(self.target)
            return found
        assert self.target is not None
        return socket.create_connection(self.target)

    def _pass(self, client: socket.socket, server: socket.socket) -> None:
        with selectors.DefaultSelector() as ready:
            ready.register(client, selectors.EVENT_READ, server)
            ready.register(server, selectors.EVENT_READ, client)
            while True:
                for key, _ in ready.select():
                    if not (data := key.fileobj.recv(16_384)):  # type: ignore[union-attr]
                        return
                    key.data.sendall(self._let_through(data, upwards=key.fileobj is client))

    def _let_through(self, data: bytes, *, upwards: bool) -> bytes:
        with self._lock:
            if self._left is None:
                return data
            passed = data[: self._left] if upwards else data if self._left else b""
            self._left -= len(passed) if upwards else 0
            over = not self._left
        if over and self._cuts:
            self._close()
        return passed
