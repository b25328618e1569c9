"""A real server on this machine, which answers as a test says and notes what it was asked."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = Callable[[BaseHTTPRequestHandler], None]


@dataclass
class Site:
    """A site.

    Attributes:
        pages: by path and query: content with its type, or a function that answers.
        asked: paths, in order.
        headers: of the requests, in order.
    """

    pages: dict[str, Any] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    host: str = ""

    def url(self, path: str = "/") -> str:
        return f"http://{self.host}{path}"

    def set_answer(
        self, path: str, body: str | bytes, kind: str = "text/html", status: int = 200, **headers: str
    ) -> None:
        """Answer so; with an ETag of the content, asked with which it says that nothing has changed."""
        data = body.encode() if isinstance(body, str) else body
        tag = f'"{hash(data)}"'

        def answer(request: BaseHTTPRequestHandler) -> None:
            is_same = status == 200 and request.headers.get("If-None-Match") == tag
            request.send_response(304 if is_same else status)
            request.send_header("Content-Type", kind)
            request.send_header("ETag", tag)
            for name, value in headers.items():
                request.send_header(name.replace("_", "-"), value)
            request.send_header("Content-Length", "0" if is_same else str(len(data)))
            request.end_headers()
            if not is_same:
                request.wfile.write(data)

        self.pages[path] = answer

    def take_asked_paths(self) -> list[str]:
        """What it was asked since this was called the last time, without robots.txt."""
        paths, self.asked = [path for path in self.asked if path != "/robots.txt"], []
        return sorted(paths)


@contextmanager
def serve_site() -> Iterator[Site]:
    site = Site()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            site.asked.append(self.path)
            site.headers.append(dict(self.headers))
            with suppress(ConnectionError):
                if (answer := site.pages.get(self.path)) is None:
                    self.send_response(404)
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                else:
                    answer(self)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        site.host = f"127.0.0.1:{server.server_address[1]}"
        try:
            yield site
        finally:
            server.shutdown()
            thread.join()
