"""The server as a platform runs it: probes, proxies, a database that is away, signals."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("uvicorn", reason="the extra `server` is not installed")

import httpx

from spolia import BM25, Corpus, Operator, Query, Reader, sync
from spolia.flow_files import dump
from spolia.journal import Runs
from spolia.models import ChatModel
from spolia.server import answers
from spolia.server.app import build_application
from spolia.server.keys import ApiKeys, KeyHolder, hash_key
from spolia.server.service import ServedFlow, Service
from spolia.services.aliases import CANDIDATE, Promotion
from spolia.services.documents import Documents
from spolia.types import Answer
from tests.server.conftest import Scripted
from tests.stores.servers import Server

pytestmark = pytest.mark.slow
QUESTION = {"question": "What causes the tide?"}


@dataclass(frozen=True)
class Says(Operator[Query, Answer]):
    """Answers with a word."""

    word: str

    def apply(self, value: Query, /) -> Answer:
        return Answer(self.word)


@asynccontextmanager
async def client_of(service: Service, documents: Documents | None = None) -> AsyncIterator[httpx.AsyncClient]:
    keys = ApiKeys({hash_key("ann"): KeyHolder("ann", "ann", writes=True)})
    transport = httpx.ASGITransport(build_application(service, keys, documents=documents))
    options: dict[str, Any] = {"base_url": "http://127.0.0.1", "headers": {"Authorization": "Bearer ann"}}
    async with httpx.AsyncClient(transport=transport, **options) as client:
        yield client


def test_a_candidate_answers_nobody_who_does_not_name_it() -> None:
    flow, candidate = Says("first"), Says("candidate")
    service = Service(Corpus("nowhere.spolia"), [item := ServedFlow("flow", flow, flow)], item)
    service.aliases = {CANDIDATE: ServedFlow(CANDIDATE, candidate, candidate, Promotion("flow"))}

    async def send_requests() -> list[Any]:
        async with client_of(service) as client:
            answers = [
                (await client.post("/v1/answer", json=QUESTION | more)).json() for more in ({}, {"flow": CANDIDATE})
            ]
            models = (await client.get("/v1/models")).json()["data"]
            return [*[item["answer"] for item in answers], *[item["id"] for item in models]]

    assert asyncio.run(send_requests()) == ["first", "candidate", "flow", CANDIDATE]


def test_a_database_that_is_away_is_not_ready_and_uploads_wait_for_it(server: Server) -> None:
    documents = Documents(Corpus(server.address()))
    flow: Operator[Query, Any] = BM25(documents.corpus.group())
    service = Service(documents.corpus, [item := ServedFlow("flow", flow, flow)], item)
    service.unready = ""

    async def send_requests() -> list[httpx.Response]:
        async with client_of(service, documents) as client:
            return [
                await client.get("/ready"),
                await client.put("/v1/documents/a.md", content=b"Zebras."),
                await client.get("/v1/tasks"),
                await client.post("/v1/search", json=QUESTION),
            ]

    before = asyncio.run(send_requests())
    assert [item.status_code for item in before[:3]] == [200, 202, 200]
    server.stop()
    try:
        away = asyncio.run(send_requests())
    finally:
        server.start()
    assert [item.status_code for item in away] == [503] * 4
    assert all("Retry-After" in item.headers for item in away)
    assert {item.json()["error"]["code"] for item in away[1:]} == {"store_unavailable"}
    assert [item.status_code for item in asyncio.run(send_requests())[:3]] == [200, 202, 200]
    documents.close()


def test_a_fresh_machine_serves_a_store_in_postgresql(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus = Corpus(server.address()).create()
    monkeypatch.setenv("SPOLIA_CACHE", str(tmp_path / "fresh"))
    with Runs(corpus.backend.folder / "runs.db") as runs:
        assert runs.journal.runs() == []


@contextmanager
def no_files_left() -> Iterator[None]:
    """While inside, this process can open nothing more."""
    descriptors, previous_limit = list[int](), resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))) + 8, previous_limit[1]))
    with suppress(OSError):
        while True:
            descriptors.append(os.open(os.devnull, os.O_RDONLY))
    try:
        yield
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, previous_limit)


def test_too_many_open_files_are_no_damaged_store(fast_folder: Path) -> None:
    (fast_folder / "notes").mkdir()
    (fast_folder / "notes" / "a.md").write_text("The moon causes the tide.")
    sync(str(fast_folder / "notes"), Corpus(str(fast_folder / "n.spolia")))

    async def send_requests() -> list[httpx.Response]:
        corpus = Corpus(str(fast_folder / "n.spolia"))
        flow: Operator[Query, Any] = BM25(corpus.group())
        async with client_of(Service(corpus, [item := ServedFlow("flow", flow, flow)], item)) as client:
            await client.get("/live")
            with no_files_left():
                short = await client.post("/v1/search", json=QUESTION)
            return [short, await client.post("/v1/search", json=QUESTION)]

    short, second_response = asyncio.run(send_requests())
    assert (short.status_code, short.json()["error"]["code"]) == (503, "store_unavailable"), short.text
    assert "Retry-After" in short.headers
    assert (second_response.status_code, len(second_response.json()["hits"])) == (200, 1)


@contextmanager
def process(folder: Path, model: Scripted) -> Iterator[tuple[subprocess.Popen[str], httpx.Client]]:
    """A server of a flow that asks this model, in a process of its own."""
    (folder / "notes").mkdir()
    (folder / "notes" / "a.md").write_text("The tide is caused by the moon.")
    sync(str(folder / "notes"), corpus := Corpus(str(folder / "n.spolia")))
    llm = ChatModel("scripted", model.url, api_key_env="", retries=0)
    (folder / "grounded.yaml").write_text(dump(BM25(corpus.group()) >> Reader(llm)))
    command = [sys.executable, "-m", "spolia", "serve", "grounded.yaml", "--store", "n.spolia", "--port", "0", "--json"]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        first = json.loads(running.stdout.readline())
        head = {"Authorization": f"Bearer {first['token']}"}
        try:
            with httpx.Client(base_url=first["url"], headers=head, timeout=600) as client:
                yield running, client
        finally:
            running.kill()


def test_a_stream_begins_immediately_beats_and_ends_with_an_event_when_the_server_stops(fast_folder: Path) -> None:
    body = {"question": "What of the hanging tide?", "stream": True}
    with Scripted() as model, process(fast_folder, model) as (running, client):
        with client.stream("POST", "/v1/answer", json=body) as stream:
            assert (stream.status_code, stream.headers["x-accel-buffering"]) == (200, "no")
            pieces = stream.iter_text()
            assert next(pieces) == answers.HEARTBEAT.decode()  # the model has said nothing yet, and never will
            running.send_signal(signal.SIGTERM)
            rest = "".join(pieces)
        assert json.loads(rest.partition("event: error\ndata: ")[2])["error"]["code"] == "server_stopping"
        assert running.wait(600) == 0
