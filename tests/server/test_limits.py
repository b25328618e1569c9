"""What the server refuses, and what it stops."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from queue import Queue
from threading import Event, get_ident
from typing import Any
from urllib.parse import urlsplit

import pytest

pytest.importorskip("uvicorn", reason="the extra `server` is not installed")

import httpx
import uvicorn
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send
from uvicorn.server import ServerState

from spolia import BM25, Answer, Branch, Corpus, Extract, Operator, Query, ReciprocalRankFusion, add_texts, errors, step
from spolia.cli.commands.doctor import store_findings
from spolia.core.run_context import emit, retract
from spolia.egress.retry import pause
from spolia.server import process, request_checks
from spolia.server.app import build_application
from spolia.server.audit import AuditLog, read_rows, verify_log
from spolia.server.error_replies import flow_error_response
from spolia.server.keys import ApiKeys
from spolia.server.request_checks import JsonRoute
from spolia.server.request_threads import RequestThreads
from spolia.server.service import ServedFlow, Service
from tests.cases import check_each
from tests.server.conftest import SLOTS, Served, until

KEY = {"Authorization": "Bearer k"}
QUESTION = {"question": "What causes the tide?"}


@pytest.mark.slow
def test_a_foreign_name_of_the_server_is_refused(served: Served) -> None:
    port = served.url.rpartition(":")[2]
    status = {}
    for host in (f"localhost:{port}", f"127.0.0.1:{port}", f"[::1]:{port}", "evil.example", "localhost.evil.example"):
        status[host.partition(":")[0]] = httpx.get(f"{served.url}/live", headers={"Host": host}).status_code
    assert status == {"localhost": 200, "127.0.0.1": 200, "[": 200, "evil.example": 421, "localhost.evil.example": 421}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b"x" * (request_checks.MOST_BYTES + 1), {}, 413),
        (b'{"question":' + b"[" * 100_000, {}, 400),
        (b'{"question": "tide", "where": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", {}, 400),
        (b'{"question":"\xff"}', {}, 400),
        (b"", {}, 400),
        (b"question=tide", {"Content-Type": "application/x-www-form-urlencoded"}, 400),
        (b'{"question": "tide", "principal": "ann"}', {}, 400),
        (b'{"question": "tide", "flow": "../../etc/passwd"}', {}, 404),
    ],
)  # fmt: skip
def test_bad_bodies_are_refused(served: Served, body: bytes, headers: dict[str, str], status: int) -> None:
    with served.client("bob") as bob:
        response = bob.post("/v1/answer", content=body, headers={"Content-Type": "application/json", **headers})
    assert response.status_code == status
    assert response.json()["error"]["message"]


@pytest.mark.slow
@pytest.mark.parametrize("length", [f"Content-Length: {10 * 2**30}", "Transfer-Encoding: chunked"])
def test_a_body_of_10_gb_is_refused_before_it_comes(served: Served, length: str) -> None:
    address = urlsplit(served.url)
    head = f"POST /v1/answer HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {served.keys['bob']}\r\n"
    with socket.create_connection((address.hostname, address.port)) as connection:
        connection.sendall(f"{head}{length}\r\n\r\n".encode())
        if "chunked" in length:  # more than is read, less than 10 GB
            connection.sendall(b"100000\r\n%s\r\n" % bytes(1 << 20) * 2)
        assert connection.recv(1000).startswith(b"HTTP/1.1 413")


@pytest.mark.slow
def test_headers_that_do_not_end_are_refused(served: Served) -> None:
    address = urlsplit(served.url)
    with socket.create_connection((address.hostname, address.port)) as connection, suppress(ConnectionError):
        connection.sendall(b"GET /live HTTP/1.1\r\n")
        for _ in range(100):
            connection.sendall(b"X-More: %s\r\n" % bytes(1 << 14).replace(b"\0", b"x"))
        assert connection.recv(1000).startswith(b"HTTP/1.1 400")


@pytest.mark.slow
@pytest.mark.parametrize(
    "more",
    [
        b"X-More: " + b"x" * 100_000 + b"\r\n",
        b"".join(b"X-%d: %s\r\n" % (at, b"x" * 1000) for at in range(70)),
        b"Host: evil.example\r\n",
        b"Host: localhost\r\n",
    ],
)
def test_headers_that_are_too_long_or_name_two_hosts_are_refused_also_in_one_piece(served: Served, more: bytes) -> None:
    address = urlsplit(served.url)
    with socket.create_connection((address.hostname, address.port)) as connection:
        connection.sendall(b"GET /live HTTP/1.1\r\nHost: localhost\r\n" + more + b"\r\n")
        assert connection.recv(1000).startswith(b"HTTP/1.1 400")


def test_headers_that_do_not_come_end_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "HEAD_S", 0.02)

    async def send_head(head: bytes) -> bytes:
        loop, state = asyncio.get_running_loop(), ServerState()
        function = partial(process.TimedConnection, uvicorn.Config(reply_here), state, {}, loop)
        async with await loop.create_server(function, "127.0.0.1") as server:
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            writer.write(head)
            async with asyncio.timeout(30):
                result = await reader.read()
            writer.close()
            return result

    assert asyncio.run(send_head(b"")) == b""
    assert asyncio.run(send_head(b"GET /live HT")) == b""
    whole = b"GET /live HTTP/1.1\r\nHost: localhost\r\n\r\n"
    assert asyncio.run(send_head(whole + b"GET /live HT")).count(b"HTTP/1.1 200") == 1


def test_a_client_that_does_not_read_loses_its_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "READ_S", 0.02)
    size = 32 << 20
    unread_marks: list[int] = []

    async def long(scope: Scope, receive: Receive, send: Send) -> None:
        await Response(bytes(size))(scope, receive, send)

    async def send_request() -> int:
        loop, state = asyncio.get_running_loop(), ServerState()
        unread = partial(unread_marks.append, 1)
        function = partial(process.TimedConnection, uvicorn.Config(long), state, {}, loop, unread=unread)
        async with await loop.create_server(function, "127.0.0.1") as server:
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            while not unread_marks:
                await asyncio.sleep(0.01)
            read = 0
            with suppress(ConnectionError):
                while part := await reader.read(1 << 20):
                    read += len(part)
            writer.close()
            return read

    assert asyncio.run(send_request()) < size
    assert unread_marks == [1]


STREAMS: dict[str, dict[str, Any]] = {
    "/v1/answer": {"question": "What?", "stream": True},
    "/v1/chat/completions": {
        "model": "waiting", "messages": [{"role": "user", "content": "What?"}], "stream": True,
    },
}  # fmt: skip


@pytest.mark.slow
def test_every_stream_ends_with_an_event_when_the_server_stops() -> None:
    def wait(query: Query) -> Answer:
        while True:
            pause(0.01)

    flow: Operator[Query, Answer] = step(wait)
    service = Service(Corpus("nowhere.spolia"), [item := ServedFlow("waiting", flow, flow)], item)
    app = build_application(service, ApiKeys.from_token("k"))
    streamed = {
        route.path
        for route in app.routes
        if isinstance(route, JsonRoute)
        if any(
            "stream" in getattr(item.field_info.annotation, "model_fields", ()) for item in route.dependant.body_params
        )
    }
    assert streamed == set(STREAMS), "write a request for each route with `stream`"

    async def last_part(path: str) -> bytes:
        messages, left = [{"type": "http.request", "body": json.dumps(STREAMS[path]).encode()}], asyncio.Event()
        parts: list[bytes] = []

        async def receive() -> Message:
            if not messages:
                await left.wait()
            return messages.pop()

        async def send(message: Message) -> None:
            if message["type"] == "http.response.body":
                parts.append(message["body"])
                service.stop()

        headers = [(b"host", b"localhost"), (b"authorization", b"Bearer k"), (b"content-type", b"application/json")]
        scope = {"type": "http", "method": "POST", "path": path, "headers": headers, "query_string": b""}
        await app(scope, receive, send)
        return parts[-1]

    async def last_parts() -> list[bytes]:
        return [await last_part(path) for path in STREAMS]

    assert [b'"code": "server_stopping"' in part for part in asyncio.run(last_parts())] == [True] * len(STREAMS)


def test_a_thread_that_is_free_works_next_and_a_second_one_starts_only_beside_it() -> None:
    threads, idents, finished, ends = RequestThreads(), Queue[int](), Queue[int](), Event()

    def work(waits: bool) -> Callable[[], None]:
        idents.put(get_ident())
        if waits:
            ends.wait()
        return lambda: finished.put(get_ident())

    for _ in range(3):
        threads.submit(partial(work, False))
        finished.get()
    assert len({idents.get() for _ in range(3)}) == 1
    threads.submit(partial(work, True))
    threads.submit(partial(work, True))
    assert len({idents.get() for _ in range(2)}) == 2
    ends.set()


def test_the_head_and_the_body_of_a_reply_are_sent_together() -> None:
    writes: list[bytes] = []

    class Transport:
        write = staticmethod(writes.append)
        close = staticmethod(lambda: writes.append(b"closed"))

    async def write() -> None:
        joined_writes = process.JoinedWrites(Transport(), asyncio.get_running_loop())
        joined_writes.write(b"head ")
        joined_writes.write(b"body")
        assert writes == []
        await asyncio.sleep(0)
        joined_writes.write(bytes(process.MOST_JOINED_BYTES + 1))
        joined_writes.write(b"last")
        joined_writes.close()

    asyncio.run(write())
    assert writes == [b"head body", bytes(process.MOST_JOINED_BYTES + 1), b"last", b"closed"]


async def reply_here(scope: Scope, receive: Receive, send: Send) -> None:
    await Response(b"here")(scope, receive, send)


@pytest.mark.slow
def test_a_spent_quota_is_429(served: Served) -> None:
    with served.client("hasty") as hasty:
        status = [hasty.get("/v1/models").status_code for _ in range(3)]
        refused = hasty.get("/v1/models")
    assert (status, 0 < int(refused.headers["Retry-After"]) <= 30) == ([200, 200, 429], True)


@pytest.mark.slow
@pytest.mark.parametrize(("user", "status"), [("poor", [429, 429]), ("rare", [200, 200, 429])])
def test_a_spent_quota_of_the_day_is_429(served: Served, user: str, status: list[int]) -> None:
    with served.client(user) as client:
        request = QUESTION | {"flow": "grounded" if user == "poor" else "naive"}
        replies = [client.post("/v1/answer", json=request) for _ in status]
    assert [response.status_code for response in replies] == status
    assert int(replies[-1].headers["Retry-After"]) > 0


@pytest.mark.slow
def test_the_audit_log_has_who_asked_and_no_content_and_a_changed_row_is_found(served: Served, tmp_path: Path) -> None:
    file = served.store / "audit.jsonl"
    with served.client("bob") as bob:
        bob.post("/v1/answer", json=QUESTION)
    httpx.post(f"{served.url}/v1/answer", json=QUESTION)
    until(lambda: [row["key"] for row in read_rows(file)][-2:] == ["bob", ""])
    row = list(read_rows(file))[-2]
    assert (row["key"], row["method"], row["route"], row["flow"], row["status"]) == (
        "bob", "POST", "/v1/answer", "naive", 200,
    )  # fmt: skip
    assert not [word for word in ("tide", *served.keys.values()) if word in file.read_text()]
    lines = file.read_text().splitlines()
    head = row["hash"]
    for changed in (
        [*lines[:-1], lines[-1].replace('"status": ', '"status": 1')],
        [*lines[:-1], lines[-1].replace('"key": ', '"key": "eve", "key": ')],  # the last of two values is read
        [*lines[:-1], '{"hash": ""}', lines[-1]],
        [*lines[:-2], lines[-1]],
        [*lines[:-2], lines[-1], lines[-2]],
    ):
        (tmp_path / "audit.jsonl").write_text("\n".join(changed) + "\n")
        with pytest.raises(errors.StoreCorrupt, match="was changed"):
            verify_log(tmp_path / "audit.jsonl")
    (tmp_path / "audit.jsonl").write_text("\n".join([*lines[:-2], "[" * 5_000, '{"at": 17']))  # cut short by a kill
    with pytest.raises(errors.StoreCorrupt, match="rows are missing"):
        verify_log(tmp_path / "audit.jsonl", head)
    log = AuditLog(tmp_path / "audit.jsonl")
    log.add(key="ann")
    log.close()
    assert verify_log(tmp_path / "audit.jsonl")[0] == len(lines) - 1
    assert [
        finding.state for finding in store_findings(str(served.store), deep=False) if finding.about == "audit log"
    ] == ["ok"]


def test_servers_of_one_store_write_one_chain(tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    audit_log, other_audit_log = AuditLog(file), AuditLog(file)
    for count, log in enumerate((audit_log, audit_log, other_audit_log, audit_log), 1):
        log.add(key="ann")
        until(lambda count=count: verify_log(file)[0] == count)
    audit_log.close()
    other_audit_log.close()


@pytest.mark.slow
def test_a_full_server_is_429_until_clients_leave_and_their_work_stops(served: Served) -> None:
    stalling = {"flow": "grounded", "stream": True}
    hanging = {"question": "What of the hanging tide?", "flow": "grounded"}
    with served.client("bob") as bob:

        def is_answered() -> bool:
            return bob.post("/v1/answer", json=QUESTION).status_code == 200

        for _ in range(SLOTS):
            with pytest.raises(httpx.ReadTimeout):  # it leaves before the first text
                bob.post("/v1/answer", json=hanging, timeout=0.2)
        until(is_answered)
        with ExitStack() as streams:
            texts = []
            for number in range(SLOTS):  # equal questions would wait for one reply
                ask = stalling | {"question": f"What of the stalling tide {number}?"}
                texts.append(streams.enter_context(bob.stream("POST", "/v1/answer", json=ask)).iter_text())
            for text in texts:
                assert next(piece for piece in text if "event: text" in piece)
            full = bob.post("/v1/answer", json=QUESTION)
            assert (full.status_code, full.headers["Retry-After"]) == (429, "1")
            assert bob.get("/ready").status_code == 200
        until(is_answered)


@pytest.mark.slow
def test_no_key_is_logged_or_traced(served: Served) -> None:
    with served.client("ann") as ann:
        ann.post("/v1/answer", json=QUESTION)
    written = served.log.read_bytes() + b"".join(
        path.read_bytes() for path in served.store.rglob("*") if path.is_file()
    )
    assert not [user for user, key in served.keys.items() if key.encode() in written]


def with_cause(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


@check_each(
    ("error", "status"),
    [
        (errors.StoreBusy("/home/x is written"), 503),
        (errors.ModelRejected("secret prompt"), 502),
        (errors.StepFailed("every arm failed"), 500),
        (with_cause(errors.StepFailed("every arm failed"), errors.ModelUnavailable("gone")), 503),
        (ValueError("x"), 500),
        (errors.QueryError("Write a text."), 400),
    ],
)
def test_what_is_wrong_on_the_servers_side_stays_there(error: Exception, status: int) -> None:
    response = flow_error_response(error)
    assert (response.status_code, "Retry-After" in response.headers) == (status, status == 503)
    assert (str(error).encode() in response.body) == (status < 500)


@dataclass(frozen=True)
class Hasty(Operator[Query, Answer]):
    """Takes back what it said first; fails on what it does not like."""

    def apply(self, value: Query, /) -> Answer:
        emit("Wrong.")
        retract()
        emit("Right.")
        if "fail" in value.text:
            raise errors.ModelUnavailable("It is gone.")
        return Answer("Right.")


def served_here(flow: Operator[Query, Answer]) -> httpx.AsyncClient:
    served_flow = ServedFlow("hasty", flow, flow)
    app = build_application(Service(Corpus("nowhere.spolia"), [served_flow], served_flow), ApiKeys.from_token("k"))
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1", headers=KEY)


def post(path: str, body: Any, flow: Operator[Query, Answer] | None = None) -> httpx.Response:
    async def send_request() -> httpx.Response:
        async with served_here(flow or Hasty()) as client:
            return await client.post(path, json=body)

    return asyncio.run(send_request())


def test_text_that_is_taken_back_is_told_in_both_forms() -> None:
    own = post("/v1/answer", {"question": "q", "stream": True}).text
    assert [line for line in own.splitlines() if line.startswith("event")] == [
        "event: text", "event: retracted", "event: text", "event: done",
    ]  # fmt: skip
    chat = post(
        "/v1/chat/completions", {"model": "hasty", "messages": [{"role": "user", "content": "q"}], "stream": True}
    )
    assert '"spolia": {"retracted": 6}' in chat.text
    assert chat.text.count("Right.") == 2  # the text, and the whole answer in `spolia`
    assert chat.text.endswith("data: [DONE]\n\n")


def test_a_stream_that_fails_in_the_middle_ends_with_an_error() -> None:
    stream_text = post("/v1/answer", {"question": "fail", "stream": True}).text
    assert '"code": "model_unavailable"' in stream_text.split("event: text")[-1]


@pytest.mark.slow
def test_a_store_that_is_written_is_503_where_a_search_has_to_write(fast_folder: Path) -> None:
    corpus = add_one_text(Corpus(str(fast_folder / "n.spolia"), wait_s=0.05))
    flow = Branch(BM25(corpus.group("sentence")), min_arms=1) >> ReciprocalRankFusion() >> Extract()
    with corpus.writer():
        response = post("/v1/answer", QUESTION, flow)
    assert (response.status_code, response.json()["error"]["code"], response.headers["Retry-After"]) == (
        503,
        "store_busy",
        "1",
    )


def add_one_text(corpus: Corpus) -> Corpus:
    add_texts(corpus, {"tides": "The moon causes the tide."})
    return corpus


def test_a_slow_body_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_checks, "BODY_S", 0.02)

    async def slow() -> Any:
        await asyncio.sleep(5)
        yield b"{"

    async def send_request() -> httpx.Response:
        async with served_here(Hasty()) as client:
            return await client.post("/v1/answer", content=slow())

    assert asyncio.run(send_request()).status_code == 408


def test_a_fault_of_a_route_is_logged_and_counted_and_tells_the_client_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(self: Service, name: str) -> ServedFlow:
        raise ZeroDivisionError("secret")

    monkeypatch.setattr(Service, "flow", broken)

    async def send_requests() -> list[httpx.Response]:
        async with served_here(Hasty()) as client:
            return [await client.post("/v1/answer", json=QUESTION), await client.get("/metrics")]

    answer, metrics = asyncio.run(send_requests())
    assert answer.status_code == 500
    assert answer.json()["error"]["code"] == "internal_error"
    assert "secret" not in answer.text
    assert "ZeroDivisionError: secret" in caplog.text
    assert 'spolia_requests_total{route="/v1/answer",status="500"} 1.0' in metrics.text


def test_a_server_whose_flow_always_fails_lives_and_is_not_ready() -> None:
    def failing(query: Query) -> Answer:
        raise ValueError("/home/secret")

    flow: Operator[Query, Answer] = step(failing)
    service = Service(Corpus("nowhere.spolia"), [item := ServedFlow("failing", flow, flow)], item)

    async def send_requests() -> list[httpx.Response]:
        transport = httpx.ASGITransport(build_application(service, ApiKeys.from_token("k")), raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", headers=KEY) as client:
            warming = asyncio.create_task(service.warm_up())
            while "failing" not in service.unready:
                await asyncio.sleep(0.01)
            result = [
                await client.get("/live"),
                await client.get("/ready"),
                await client.post("/v1/answer", json=QUESTION),
            ]
            warming.cancel()
            return result

    replies = asyncio.run(send_requests())
    assert [item.status_code for item in replies] == [200, 503, 500]
    assert not [item for item in replies if "secret" in item.text]
