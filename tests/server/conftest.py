"""One server in a process of its own for all tests here, before a scripted model."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

import httpx
import pytest

from spolia import BM25, Corpus, Reader, sync
from spolia.flow_files import dump
from spolia.models import ChatModel
from spolia.server.keys import DailyQuota, KeyHolder, Quota, add_key
from spolia.testing.server import OpenAIServer, ReceivedRequest, ServedReply
from tests.stores.servers import Server

SECRET = "Ann earns the most of all captains."
STANDALONE = "Who earns the most of all captains?"
SLOTS = 6


class Scripted(OpenAIServer):
    """A model whose words depend on the question: scripted."""

    def next_reply(self, request: ReceivedRequest) -> ServedReply:
        super().next_reply(request)
        if "messages" not in request.body:  # vectors, or scores
            return ServedReply()
        prompt = request.body["messages"][-1]["content"]
        if "You rewrite the last question" in request.body["messages"][0]["content"]:
            return ServedReply(STANDALONE)
        if "hanging tide" in prompt:
            return ServedReply(fault="hang")
        if "stalling tide" in prompt:
            return ServedReply("The moon pulls the water here and there [1].", fault="stall")
        if "failing tide" in prompt:
            return ServedReply(status=503, headers=(("Retry-After", "7"),))
        return ServedReply("The moon causes it [1].")


class Collector:
    """A collector of OpenTelemetry: keeps the requests that it gets."""

    def __init__(self) -> None:
        received = self.received = list[tuple[str, bytes]]()

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                received.append((self.path, gzip.decompress(body) if body[:2] == b"\x1f\x8b" else body))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *said: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def __enter__(self) -> Self:
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *raised: object) -> None:
        self.server.shutdown()
        self.server.server_close()


@dataclass(frozen=True)
class Served:
    """A running server: its address, a key for each user, the model that it asks, what it logs, where spans go."""

    url: str
    keys: dict[str, str]
    model: OpenAIServer
    log: Path
    store: Path
    collector: Collector

    def client(self, user: str) -> httpx.Client:
        return httpx.Client(base_url=self.url, headers={"Authorization": f"Bearer {self.keys[user]}"}, timeout=600)


@pytest.fixture(scope="session")
def served() -> Iterator[Served]:
    with serving("n.spolia") as running:
        yield running


@pytest.fixture(scope="session")
def served_in_postgres(server: Server) -> Iterator[Served]:
    """The same server over a store in PostgreSQL."""
    with serving(server.address()) as results:
        yield results


@pytest.fixture(scope="session", params=["served", "served_in_postgres"])
def any_served(request: pytest.FixtureRequest) -> Served:
    """The server of each kind of store."""
    fixture: Served = request.getfixturevalue(request.param)
    return fixture


USERS = {"ann": ("staff",), "bob": (), "hasty": (), "poor": (), "rare": (), "eve": ()}
WRITERS = ("ann", "eve")
DAILY = {"poor": DailyQuota(tokens=1), "rare": DailyQuota(requests=2)}


@contextmanager
def serving(store: str) -> Iterator[Served]:
    """A server over notes in this store."""
    with tempfile.TemporaryDirectory(prefix="spolia-") as temporary, Scripted() as model, Collector() as collector:
        folder = Path(temporary)
        (folder / "notes").mkdir()
        (folder / "notes" / "tides.md").write_text("The tide is caused by the pull of the moon.")
        (folder / "notes" / "salaries.md").write_text(SECRET)
        address = store if "://" in store else str(folder / store)
        corpus = sync_notes(folder / "n.spolia", ["staff"], address)
        llm = ChatModel("scripted", model.url, api_key_env="", retries=0)
        (folder / "grounded.yaml").write_text(dump(BM25(corpus.group(), top_k=5) >> Reader(llm)))

        def key(name: str) -> str:
            quota, daily = Quota(2 if name == "hasty" else 0), DAILY.get(name, DailyQuota())
            holder = KeyHolder(name, name, USERS[name], quota, daily, writes=name in WRITERS)
            return add_key(folder / "keys.toml", holder)

        keys = {name: key(name) for name in USERS}
        command = [
            sys.executable, "-m", "spolia", "serve", "naive", "grounded.yaml", "--store", store, "--keys",
            "keys.toml", "--port", "0", "--max-concurrent", str(SLOTS), "--json", "--embedder", model.url,
            "--embed-model", "vectors", "--reranker", model.url, "--rerank-model", "scores",
            "--documents", "--folder", "notes", "--shadow", "1", "--otel", collector.url,
        ]  # fmt: skip
        log = folder / "log"
        with log.open("w") as err, subprocess.Popen(
            command, cwd=folder, stdout=subprocess.PIPE, stderr=err, text=True
        ) as process:  # fmt: skip
            assert process.stdout is not None
            first = json.loads(process.stdout.readline() or log.read_text())
            assert first["token"] is None
            running = Served(first["url"], keys, model, log, folder / "n.spolia", collector)
            until(lambda: httpx.get(f"{running.url}/ready").status_code == 200)
            yield running
            process.terminate()
            assert process.wait(600) == 0


def sync_notes(store: Path, readers: list[str], address: str = "") -> Corpus:
    """Bring the store up to date; salaries are for these readers only."""
    corpus = Corpus(address or str(store))
    sync(str(store.parent / "notes"), corpus, access=lambda uri: readers if uri == "salaries.md" else [])
    return corpus


def until(holds: Any) -> None:
    """Wait until something holds; a test that waits for nothing ends by its limit of time."""
    while not holds():
        time.sleep(0.02)
