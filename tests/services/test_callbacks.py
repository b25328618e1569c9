"""Callbacks of tasks: posted once, signed, and to no address inside."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from spolia import Corpus
from spolia.errors import QueryError
from spolia.services import callbacks
from spolia.services.callbacks import Callbacks
from spolia.services.documents import Documents, run_publisher
from spolia.services.jobs import CALLBACK, MOST_CLAIMS
from spolia.services.postgres_jobs import PostgresTable

pytestmark = pytest.mark.slow


class Receiver(ThreadingHTTPServer):
    """Notes what it is told, and answers with these statuses, then with 204."""

    def __init__(self, *statuses: int) -> None:
        super().__init__(("127.0.0.1", 0), Told)
        self.statuses, self.told = list(statuses), list[tuple[dict[str, str], bytes]]()
        self.all_came = threading.Event()

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.server_port}"

    def __enter__(self) -> Receiver:
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *error: Any) -> None:
        self.shutdown()
        self.server_close()


class Told(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.told.append(({name.lower(): value for name, value in self.headers.items()}, body))
        status = self.server.statuses.pop(0) if self.server.statuses else 204
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.send_header("Location", "http://127.0.0.1:1/")
        self.end_headers()
        if status == 204:
            self.server.all_came.set()

    def log_message(self, *said: Any) -> None:
        pass


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    monkeypatch.setattr(callbacks, "WAITS_S", (0.0,) * len(callbacks.WAITS_S))
    with Receiver() as new_receiver:
        yield new_receiver


@pytest.fixture(params=["sqlite", "postgres"])
def documents(request: pytest.FixtureRequest, fast_folder: Path, receiver: Receiver) -> Iterator[Documents]:
    in_file = request.param == "sqlite"
    address = str(fast_folder / "n.spolia") if in_file else request.getfixturevalue("server").address()
    new_documents = Documents(Corpus(address), callback_hosts=[receiver.host])
    yield new_documents
    if isinstance(new_documents.queue.table, PostgresTable):
        new_documents.queue.table.close()


def test_a_receiver_is_told_once_what_became_of_each_task(documents: Documents, receiver: Receiver) -> None:
    webhooks = pytest.importorskip("standardwebhooks", reason="the library of receivers is not installed")
    callback: dict[str, Any] = {"callback": f"http://{receiver.host}/tasks"}
    task = documents.add("a.md", b"The moon causes the tides.", **callback)
    bad = documents.add("b.pdf", b"No PDF.", **callback)
    gone = documents.add("c.md", b"Never published.", **callback)
    documents.add("d.md", b"Nobody is told.")
    documents.cancel(gone)
    documents.publish()
    while documents.callbacks.deliver():
        pass
    calls = {}
    for headers, body in receiver.told:
        event = webhooks.Webhook(documents.callbacks.secret).verify(body, headers)
        calls[headers["webhook-id"]] = (event["type"], event["data"]["document"], bool(event["data"]["reason"]))
        with pytest.raises(webhooks.WebhookVerificationError):
            webhooks.Webhook(documents.callbacks.secret).verify(body + b" ", headers)
    assert calls == {
        f"task_{task}": ("task.done", "a.md", False),
        f"task_{bad}": ("task.failed", "b.pdf", True),
        f"task_{gone}": ("task.cancelled", "c.md", False),
    }
    assert len(receiver.told) == 3
    patched = documents.patch("a.md", {"year": 2026})  # whoever asks for it names the callback of it
    documents.publish()
    assert (documents.callbacks.deliver(), documents.queue.jobs()[0].id) == (0, patched)


def test_a_receiver_that_is_away_is_told_again_with_the_same_id(documents: Documents, receiver: Receiver) -> None:
    receiver.statuses = [503, 429]
    task = documents.add("a.md", b"The moon causes the tides.", callback=f"http://{receiver.host}")
    with run_publisher(documents):
        assert receiver.all_came.wait(600)
    assert [headers["webhook-id"] for headers, _ in receiver.told][:3] == [f"task_{task}"] * 3


def test_a_receiver_that_never_takes_it_is_left_alone(documents: Documents, receiver: Receiver) -> None:
    most_attempts = len(callbacks.WAITS_S) + 1
    for statuses, attempts in (
        ([500] * 19, most_attempts),
        ([404] * 19, most_attempts),
        ([302] * 19, most_attempts),
        ([410], 1),
    ):
        receiver.told.clear()
        receiver.statuses = statuses
        task = documents.add("a.md", b"The moon.", callback=f"http://{receiver.host}")
        documents.publish()
        for _ in range(most_attempts + 2):
            documents.callbacks.deliver()
        assert len(receiver.told) == attempts
        ended = documents.queue.deliveries(documents.queue.find_jobs([task]))[task]
        assert (ended.state, ended.attempts, bool(ended.reason)) == ("failed", attempts, True)


def test_attempts_follow_standard_webhooks_for_three_days_and_the_task_tells_of_them(
    fast_folder: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock of the table is the test's."""
    monkeypatch.undo()
    now, due = [1e9], list[float]()
    monkeypatch.setattr("spolia.services.jobs.time.time", lambda: now[0])
    monkeypatch.setattr("spolia.services.jobs.LOOK_S", 0.0)  # a wait of hours is no clock that was set back
    monkeypatch.setattr(callbacks, "uniform", lambda low, high: (low + high) / 2)
    documents = Documents(Corpus(str(fast_folder / "n.spolia")), callback_hosts=[receiver.host])
    task = documents.add("a.md", b"The moon.", callback=f"http://{receiver.host}")

    def delivery() -> tuple[str, int]:
        new_delivery = documents.queue.deliveries(documents.queue.find_jobs([task]))[task]
        return new_delivery.state, new_delivery.attempts

    assert delivery() == ("waiting", 0)
    documents.publish()
    receiver.statuses = [503] * 9
    began = now[0]
    for attempt, wait in enumerate((0.0, *callbacks.WAITS_S), 1):
        now[0] += wait - 1
        assert documents.callbacks.deliver() == (attempt == 1 and wait > 1)
        now[0] += 1
        assert documents.callbacks.deliver() == 1
        due.append(now[0] - began)
        assert delivery() == ("done" if attempt == 10 else "waiting", attempt)
    assert due[1:4] == [5, 305, 2_105]
    assert due[-1] / 86_400 > 3


def test_a_task_that_kills_the_service_is_told_and_a_kill_loses_no_callback(
    documents: Documents, receiver: Receiver
) -> None:
    documents.add("a.md", b"The moon.", callback=f"http://{receiver.host}")
    for _ in range(MOST_CLAIMS + 1):
        documents.queue.claim("killed", lease_s=-1.0)
    assert len(documents.queue.claim("killed in the middle of telling", lease_s=-1.0, queue=CALLBACK)) == 1
    assert documents.callbacks.deliver() == 1
    assert json.loads(receiver.told[0][1])["type"] == "task.failed"


INSIDE = (
    "https://127.0.0.1:{port}/", "https://localhost:{port}/", "https://[::1]:{port}/", "https://2130706433:{port}/",
    "https://0x7f.1:{port}/", "https://169.254.169.254/latest/", "https://[::ffff:127.0.0.1]:{port}/",
    "https://0.0.0.0:{port}/",
)  # fmt: skip


@pytest.mark.parametrize("documents", ["sqlite"], indirect=True)
def test_addresses_inside_are_never_reached(documents: Documents, receiver: Receiver) -> None:
    with Receiver() as inside:
        for number, address in enumerate(INSIDE):
            url = address.format(port=inside.server_port)
            documents.add(f"{number}.md", b"The moon.", callback=url)
        documents.publish()
        while documents.callbacks.deliver():
            pass
        assert inside.told == []
    assert documents.queue.claim("nobody", queue=CALLBACK) == []  # they are not tried again


NO_ADDRESSES = ("http://e.org/", "ftp://e.org/", "https://", "https://u:p@e.org/", "https://[x/", "xxx")


@pytest.mark.parametrize("documents", ["sqlite"], indirect=True)
@pytest.mark.parametrize("url", [*NO_ADDRESSES, "https://e.org/" + "x" * 2_000])
def test_what_is_no_address_is_refused_with_the_request(documents: Documents, url: str) -> None:
    with pytest.raises(QueryError, match="Write https://HOST/PATH"):
        documents.add("a.md", b"The moon.", callback=url)
    assert documents.queue.counts() == {}


def test_the_secret_is_made_once_and_may_be_given(
    tmp_path: Path, documents: Documents, monkeypatch: pytest.MonkeyPatch
) -> None:
    secrets = {Callbacks(documents.queue, tmp_path).secret for _ in range(3)}
    assert len(secrets) == 1
    assert (tmp_path / callbacks.FILE).stat().st_mode & 0o077 == 0
    monkeypatch.setenv(callbacks.VARIABLE, "whsec_c2VjcmV0")
    assert Callbacks(documents.queue, tmp_path).secret == "whsec_c2VjcmV0"
    monkeypatch.setenv(callbacks.VARIABLE, "secret")
    with pytest.raises(QueryError, match="whsec_"):
        _ = Callbacks(documents.queue, tmp_path).secret
