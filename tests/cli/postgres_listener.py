"""A server that asks for the password as PostgreSQL does, keeps it, and refuses the connection."""

from __future__ import annotations

import socket
import struct
import threading
from contextlib import suppress
from typing import Self

_PLAIN = struct.pack("!cii", b"R", 8, 3)
"""AuthenticationCleartextPassword."""
_REFUSED = b"SFATAL\0C28P01\0Mno\0\0"
_STARTUP = 196608


class PostgresListener:
    """Keeps the passwords that arrive, and counts connections."""

    def __init__(self) -> None:
        self.passwords: list[str] = []
        self.connections = 0
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.place = f"127.0.0.1:{self._socket.getsockname()[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._serve, daemon=True).start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._socket.close()

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._socket.accept()
                self.connections += 1
                with connection, suppress(OSError, struct.error):
                    self._answer(connection)

    def _answer(self, connection: socket.socket) -> None:
        while True:
            size, code = struct.unpack("!ii", connection.recv(8, socket.MSG_WAITALL))
            connection.recv(size - 8, socket.MSG_WAITALL)
            if code == _STARTUP:
                break
            connection.sendall(b"N")  # neither TLS nor GSSAPI
        connection.sendall(_PLAIN)
        kind, size = struct.unpack("!ci", connection.recv(5, socket.MSG_WAITALL))
        if kind == b"p":
            self.passwords.append(connection.recv(size - 4, socket.MSG_WAITALL).rstrip(b"\0").decode())
        connection.sendall(struct.pack("!ci", b"E", 4 + len(_REFUSED)) + _REFUSED)
