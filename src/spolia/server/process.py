"""A server in this process: its socket, and uvicorn on it."""

from __future__ import annotations

import asyncio
import gc
import socket
from collections.abc import Callable
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from spolia.errors import QueryError
from spolia.server.app import build_application
from spolia.server.audit import FILE, AuditLog
from spolia.server.json_logs import log_json
from spolia.server.keys import ApiKeys, KeysInFile, load_token
from spolia.server.service import Service
from spolia.services.documents import Documents

BACKLOG = 2048  # uvicorn's default, which sockets that are passed to it do not get
GRACE_S, LAST_S = 5, 2
"""Seconds for requests in progress when the server is stopped; the last ones are for telling clients that it is."""
HEAD_S = 10.0
"""Seconds for the headers of a request, from the connection or from the first byte after another request."""
MOST_HEAD_BYTES = 1 << 16
READ_S = 30.0
"""Seconds for a client to take what is ready for it, about 50 kB, before its connection is closed."""


MOST_JOINED_BYTES = 1 << 16


class JoinedWrites:
    """Transport that sends all writes of one turn of the event loop together: the head and the body of a reply cost one
    system call and one packet."""

    def __init__(self, transport: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._transport, self._loop = transport, loop
        self._parts: list[bytes] = []
        self._bytes = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        if not self._parts:
            self._loop.call_soon(self._send)
        self._parts.append(data)
        self._bytes += len(data)
        if self._bytes > MOST_JOINED_BYTES:  # a sender that never waits for the loop would fill the memory
            self._send()

    def close(self) -> None:
        self._send()
        self._transport.close()

    def _send(self) -> None:
        data = b"".join(self._parts)
        self._parts.clear()
        self._bytes = 0
        if data:
            self._transport.write(data)


class TimedConnection(HttpToolsProtocol):
    """Connection that closes if its headers come late or without end, or its client stops reading; uvicorn itself waits
    forever. `unread` is called for each client that stops reading."""

    _head_timer: asyncio.TimerHandle | None = None
    _read_timer: asyncio.TimerHandle | None = None
    _head_bytes = _size = 0
    _is_in_head = False

    def __init__(self, *args: Any, unread: Callable[[], None] = lambda: None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._on_unread = unread

    def connection_made(self, transport: Any) -> None:
        super().connection_made(JoinedWrites(transport, self.loop))  # type: ignore[arg-type]
        self._start_head_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_head_timer()
        self._stop_read_timer()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._read_timer = self._read_timer or self.loop.call_later(READ_S, self._abort_unread)

    def resume_writing(self) -> None:
        self._stop_read_timer()
        super().resume_writing()

    def _stop_read_timer(self) -> None:
        if self._read_timer is not None:
            self._read_timer.cancel()
            self._read_timer = None

    def _abort_unread(self) -> None:
        self._on_unread()
        self.transport.abort()  # `close` would wait for the client to read the rest

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._size = 0
        self._is_in_head = True

    def on_header(self, name: bytes, value: bytes) -> None:
        self._size += len(name) + len(value)
        if self._size > MOST_HEAD_BYTES:  # of headers that came in one piece
            raise ValueError("The headers are too long.")
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._is_in_head = False
        self._stop_head_timer()
        super().on_headers_complete()

    def data_received(self, data: bytes) -> None:
        self._head_bytes += len(data)
        super().data_received(data)
        if self._head_timer is not None and self._head_bytes > MOST_HEAD_BYTES:
            self.send_400_response("The headers are too long.")
        elif self._is_in_head and self._head_timer is None:  # most headers come in one piece and need no timer
            self._start_head_timer()

    def _start_head_timer(self) -> None:
        self._head_bytes = 0
        self._head_timer = self.loop.call_later(HEAD_S, self.transport.close)

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None


class StoppingServer(uvicorn.Server):
    """A server that calls `stop` shortly before it cuts what is still in progress."""

    def __init__(self, settings: uvicorn.Config, stop: Callable[[], None]) -> None:
        super().__init__(settings)
        self._stop = stop

    async def shutdown(self, sockets: Any = None) -> None:
        asyncio.get_running_loop().call_later(GRACE_S - LAST_S, self._stop)
        await super().shutdown(sockets)


def serve(
    service: Service,
    announce: Callable[[str, str], None],
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    keys: Path | None = None,
    oidc: Callable[[ApiKeys], ApiKeys] | None = None,
    access: tuple[str, ...] = (),
    hosts: tuple[str, ...] = (),
    documents: Documents | None = None,
    origins: tuple[str, ...] = (),
    root_path: str = "",
    json_logs: bool = False,
) -> None:
    """Serve until the process is stopped.

    Args:
        announce: learns the address and the token, empty with `keys`, as soon as the server listens.
        host: the address to listen on.
        port: 0 for a free one.
        keys: file with keys; without one, clients on this machine use a token.
        oidc: makes the keys of an identity provider, beside the other ones; its tokens are keys too.
        access: the users and groups that the token asks for.
        hosts: names of the server beside `localhost` and IP addresses.
        documents: takes documents from users; None for a server that only reads.
        origins: of pages whose scripts may ask.
        root_path: the path below which a proxy has this server.
        json_logs: write logs as lines of JSON, with one of each request.

    Raises:
        QueryError: the address is not this machine's alone and there are no keys; the port is taken.
    """
    if keys is None and oidc is None and not is_loopback(host):
        raise QueryError(
            f"--host {host} lets other machines ask. Give each user a key: spolia keys NAME --keys keys.toml, then "
            "spolia serve --keys keys.toml. Or listen on 127.0.0.1."
        )
    token = "" if keys is not None or oidc is not None else load_token(service.corpus.backend.folder)
    api_keys = KeysInFile(keys) if keys is not None else ApiKeys.from_token(token, access) if token else ApiKeys({})
    if oidc is not None:
        api_keys = oidc(api_keys)
    audit = AuditLog(service.corpus.backend.folder / FILE)
    app = build_application(service, api_keys, frozenset(hosts), documents, audit, origins, root_path)
    if json_logs:
        log_json()
    connection: Any = partial(TimedConnection, unread=service.metrics.unread.inc)
    logs: dict[str, Any] = {"log_config": None} if json_logs else {}
    settings = uvicorn.Config(
        app, log_level="warning", access_log=False, server_header=False, ws="none", loop="uvloop", http=connection,
        timeout_graceful_shutdown=GRACE_S, **logs,
    )  # fmt: skip
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        raise QueryError(f"{host}:{port} cannot be listened on: {error}. Write another --port, or 0.") from error
    # What the start has made stays until the end: no later collection need visit it.
    gc.collect()
    gc.freeze()
    with listener:
        address, chosen_port = listener.getsockname()[:2]
        announce(f"http://{f'[{address}]' if ':' in address else address}:{chosen_port}", token)
        try:
            StoppingServer(settings, service.stop).run([listener])
        finally:
            audit.close()


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches an address.

    >>> is_loopback("localhost"), is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("0.0.0.0")
    (True, True, True, False)
    """
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
