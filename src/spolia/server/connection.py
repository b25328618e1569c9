"""A connection whose requests must begin in time: uvicorn itself waits for headers forever."""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD_S = 10.0
"""Seconds for the headers of a request, from the connection or from the first byte after another request."""
MOST_HEAD_BYTES = 1 << 16


class TimedConnection(HttpToolsProtocol):
    """Closes where the headers of a request do not come in time, or have no end."""

    _timer: asyncio.TimerHandle | None = None
    _head_bytes = 0

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._expect()

    def connection_lost(self, exc: Exception | None) -> None:
        self._expect_nothing()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        if self._timer is None:
            self._expect()

    def on_headers_complete(self) -> None:
        self._expect_nothing()
        super().on_headers_complete()

    def data_received(self, data: bytes) -> None:
        self._head_bytes += len(data)
        super().data_received(data)
        if self._timer is not None and self._head_bytes > MOST_HEAD_BYTES:
            self.send_400_response("The headers are too long.")

    def _expect(self) -> None:
        self._head_bytes = 0
        self._timer = self.loop.call_later(HEAD_S, self.transport.close)

    def _expect_nothing(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
