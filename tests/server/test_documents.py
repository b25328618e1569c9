"""Documents sent over HTTP and by an agent: for whom they are found, and what is refused."""

from __future__ import annotations

import asyncio
import json
import resource
import socket
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

import pytest

pytest.importorskip("uvicorn", reason="the extra `server` is not installed")
pytest.importorskip("openai", reason="the client whose requests are sent is not installed")

import httpx

from spolia import BM25, Corpus, Operator, Query
from spolia.errors import NotAllowed
from spolia.server import request_checks
from spolia.server.app import build_application
from spolia.server.keys import ApiKeys, KeyHolder, hash_key
from spolia.server.service import ServedFlow, Service
from spolia.services.documents import Documents
from spolia.services.knowledge_bases import Requester
from spolia.stores import Exact
from spolia.stores.snapshot.snapshot import Snapshot
from spolia.testing.server import ServedReply
from tests.cases import check_each
from tests.indexing.sample_documents import pdf_of
from tests.server.conftest import Served, until
from tests.services.test_reembedding import Changing, definition, embedder, hits

pytestmark = pytest.mark.slow
TEXT = b"Zebras sleep standing."


def done(client: httpx.Client, task: dict[str, Any]) -> dict[str, Any]:
    """A task when it has ended."""
    state: dict[str, Any] = {}

    def has_ended() -> bool:
        state.update(client.get(f"/v1/tasks/{task['task']}").json())
        return state["state"] not in ("waiting", "working")

    until(has_ended)
    return state


def test_a_document_is_found_by_those_who_may_read_it_until_it_is_deleted(served: Served) -> None:
    with served.client("ann") as ann, served.client("bob") as bob:

        def finds(client: httpx.Client) -> bool:
            return "standing" in client.post("/v1/search", json={"question": "zebras sleep"}).text

        task = ann.put("/v1/documents/animals/zebra.md", content=TEXT, headers={"Idempotency-Key": "z"})
        assert (task.status_code, task.json()["ended"]) == (202, None)
        ended = done(ann, task.json())
        assert (ended["state"], ended["ended"] >= ended["made"]) == ("done", True)
        second_reply = ann.put("/v1/documents/animals/zebra.md", content=TEXT, headers={"Idempotency-Key": "z"})
        assert second_reply.json()["task"] == task.json()["task"]
        assert [finds(client) for client in (ann, bob)] == [True, False]
        names = [client.get("/v1/documents").json()["documents"] for client in (ann, bob)]
        assert [[row["name"] for row in listing] for listing in names] == [["animals/zebra.md"], []]
        assert bob.get(f"/v1/tasks/{task.json()['task']}").status_code == 404
        assert (bob.get("/v1/tasks").json()["tasks"], len(ann.get("/v1/tasks").json()["tasks"]) > 0) == ([], True)
        assert ann.post(f"/v1/tasks/{task.json()['task']}/cancel").json()["state"] == "done"
        assert bob.delete("/v1/documents/animals/zebra.md").status_code == 403
        assert done(ann, ann.delete("/v1/documents/animals/zebra.md").json())["state"] == "done"
        assert not finds(ann)


def test_an_upload_that_failed_is_listed_for_its_key_until_it_is_deleted(any_served: Served) -> None:
    path = "/v1/documents/lost/okapi.pdf"
    with any_served.client("ann") as ann, any_served.client("bob") as bob:
        for _ in range(2):
            done(ann, ann.put(path, content=b"%PDF-1.4 okapi", params={"metadata": '{"year": 2026}'}).json())
        status = ann.get(path).json()
        assert (status["state"], "PDF" in status["reason"], "doc://" in status["reason"]) == ("failed", True, False)
        assert (status["metadata"], status["groups"]) == ({"year": 2026}, [])
        listed = [client.get("/v1/documents", params={"after": "lost"}) for client in (ann, bob)]
        assert [item.json()["documents"][:1] for item in listed] == [
            [{k: status[k] for k in status if k != "groups"}],
            [],
        ]
        assert (
            ann.get("/v1/documents", params={"after": "lost/z"}).json()["documents"],
            bob.get(path).status_code,
        ) == (
            [],
            404,
        )
        assert "lost" not in [item["name"] for item in ann.get("/v1/bases").json()["bases"]]
        done(ann, ann.put(path, content=pdf_of([["Okapis hide."]])).json())
        assert [ann.get(path).json()[name] for name in ("state", "reason")] == ["done", ""]
        done(ann, ann.put(path, content=b"%PDF-1.4 okapi").json())
        assert [item["state"] for item in ann.get("/v1/documents").json()["documents"]] == ["failed"]
        done(ann, ann.delete(path).json())
        assert (ann.get(path).status_code, ann.get("/v1/documents").json()) == (404, {"documents": []})
        done(ann, ann.put(path, content=b"%PDF-1.4 okapi").json())
        done(ann, ann.delete(path).json())
        assert (ann.get(path).status_code, ann.get("/v1/documents").json()) == (404, {"documents": []})


@pytest.mark.parametrize(
    ("said", "status"), [('{"a": "\\ud800"}', 400), ('{"\\ud800": "a"}', 400), ('{"a": "\\u0000 \\ud83d\\ude00"}', 202)]
)
def test_half_a_character_is_no_metadata(any_served: Served, said: str, status: int) -> None:
    path = "/v1/documents/halves.md"
    with any_served.client("ann") as ann:
        response = ann.put(path, content=TEXT, params={"metadata": said})
        assert response.status_code == status, response.text
        if status == 202:
            assert done(ann, response.json())["state"] == "done"
            assert ann.get(path).json()["metadata"] == json.loads(said)
            done(ann, ann.delete(path).json())
        assert ann.get("/v1/documents").status_code == 200


FILE = {"files": [("files", ("sea/tides.pdf", pdf_of([["Zebras sleep."]])))]}
OF_A_DOCUMENT: dict[tuple[str, str], tuple[int, int, dict[str, Any]]] = {
    ("post", "/v1/documents"): (403, 202, FILE),
    ("put", "/v1/documents/{name}"): (403, 202, {"content": pdf_of([["Zebras sleep."]])}),
    ("get", "/v1/documents/{name}"): (404, 200, {}),
    ("get", "/v1/documents/{name}/nodes"): (404, 200, {}),
    ("get", "/v1/documents/{name}/original"): (404, 200, {}),
    ("get", "/v1/documents/{name}/pages/{page}"): (404, 200, {}),
    ("patch", "/v1/documents/{name}"): (403, 202, {}),
    ("post", "/v1/documents/reparse"): (403, 202, {}),
    ("put", "/v1/bases/{base}"): (403, 200, {}),
    ("post", "/v1/documents/transfer"): (403, 202, {}),
    ("get", "/v1/tasks/{task}"): (404, 200, {}),
    ("post", "/v1/tasks/{task}/cancel"): (404, 200, {}),
    ("delete", "/v1/documents/{name}"): (403, 202, {}),
    ("delete", "/v1/bases/{base}"): (403, 202, {}),
}
"""By route: what a user gets who may not read the document, what its owner gets, and what is sent; else the example of
the API's description."""


def test_routes_of_a_document_are_for_those_who_may_read_it(any_served: Served) -> None:
    with any_served.client("ann") as ann, any_served.client("bob") as bob:
        schemas = ann.get("/openapi.json").json()
        task = ann.put("/v1/documents/sea/tides.pdf", content=pdf_of([[TEXT.decode()]])).json()
        done(ann, task)
        for (method, path), (others, owners, parts) in OF_A_DOCUMENT.items():
            place = (
                path.replace("{name}", "sea/tides.pdf")
                .replace("{task}", str(task["task"]))
                .replace("{page}", "1")
                .replace("{base}", "sea")
            )
            body = json.dumps(example(schemas, method, path)).replace("notes/tides.md", "sea/tides.pdf")
            parts = parts or {"json": json.loads(body)}
            refused = httpx.request(method, any_served.url + place, **parts)
            assert (refused.status_code, refused.json()["error"]["code"]) == (401, "invalid_api_key")
            assert bob.request(method, place, **parts).status_code == others, (method, path)
            response = ann.request(method, place, **parts)
            assert response.status_code == owners, (method, path, response.text)
            for begun_task in tasks_in(response.json()) if owners == 202 else ():
                assert done(ann, begun_task)["state"] == "done", (method, path, begun_task)
        done(ann, ann.delete("/v1/documents/archive/tides.pdf").json())


def tasks_in(reply: Any) -> list[Any]:
    tasks: list[Any] = reply.get("tasks", [reply])
    return tasks


def example(api: dict[str, Any], method: str, path: str) -> Any:
    """The example of a route's body; None where it has none."""
    body = api["paths"][path][method].get("requestBody", {}).get("content", {}).get("application/json")
    return body and api["components"]["schemas"][body["schema"]["$ref"].rpartition("/")[2]]["examples"][0]


def test_a_document_is_changed_and_looked_at(served: Served) -> None:
    name = "/v1/documents/a.md"
    with served.client("ann") as ann, served.client("bob") as bob:
        done(ann, ann.put(name, content=b"Yaks are\n\nstrong.", params={"metadata": '{"year": 2025, "x": 1}'}).json())
        changes = {"metadata": {"year": 2026, "x": None}, "access": ["*"]}
        assert done(ann, ann.patch(name, json=changes).json())["state"] == "done"
        status = bob.get(name).json()
        assert (status["state"], status["groups"]) == ("done", [{"group": "chunk", "state": "done", "reason": ""}])
        assert (status["metadata"]["year"], "x" in status["metadata"]) == (2026, False)
        assert bob.get(f"{name}/original").content == b"Yaks are\n\nstrong."
        (node,) = bob.get(f"{name}/nodes").json()["nodes"]
        assert (node["number"], "strong" in node["text"]) == (1, True)
        assert [
            bob.get(f"{name}/nodes", params=page_options).json().get("nodes")
            for page_options in ({"page": 1}, {"after": 1})
        ] == [
            [],
            [],
        ]
        assert bob.get(f"{name}/nodes?group=none").status_code == 404
        for wrong in ({"metadata": {"x": [1]}}, {"access": "bob"}, {"access": [""]}, {"other": 1}):
            assert ann.patch(name, json=wrong).status_code == 400
        for body in ({"names": ["none.md"]}, {"names": ["a.md"], "how": "never"}, {"names": ["../a.md"]}):
            assert ann.post("/v1/documents/reparse", json=body).status_code in (400, 404)
        done(ann, ann.delete(name).json())
        assert ann.get(name).status_code == 404


def test_a_knowledge_base_is_for_its_members_and_goes_with_its_documents(any_served: Served) -> None:
    with any_served.client("ann") as ann, any_served.client("bob") as bob, any_served.client("eve") as eve:

        def finds(client: httpx.Client, *conditions: str) -> list[str]:
            search = client.post("/v1/search", json={"question": "okapis", "where": conditions}).json()
            return [hit["uri"] for hit in search.get("hits", ()) if hit["uri"].startswith("doc://")]

        def names(client: httpx.Client) -> dict[str, Any]:
            return {base["name"]: base for base in client.get("/v1/bases").json()["bases"]}

        body = {"description": "Animals", "access": ["staff"]}
        made = ann.put("/v1/bases/zoo", json=body).json()
        assert made == {"name": "zoo", **body, "is_own": True, "documents": 0}
        place = "/v1/documents/zoo/zebra.md"
        assert [
            eve.put(place, content=b"Okapis hide.").status_code,
            eve.put("/v1/bases/zoo", json=body).status_code,
        ] == [
            403,
            403,
        ]
        assert (
            done(ann, ann.put(place, content=b"Okapis hide.", params={"metadata": '{"legs": 4}'}).json())["state"]
            == "done"
        )
        transfer = {"names": ["zoo/zebra.md"], "to": "park", "how": "copy"}
        assert [
            eve.post("/v1/documents/transfer", json=transfer | {"to": to}).status_code for to in ("park", "zoo")
        ] == [
            404,
            400,
        ]
        for task in ann.post("/v1/documents/transfer", json=transfer).json()["tasks"]:
            assert done(ann, task)["state"] == "done"
        assert set(finds(ann)) == {"doc://zoo/zebra.md", "doc://park/zebra.md"}
        assert finds(ann, "base=zoo", "legs>3") == ["doc://zoo/zebra.md"]
        request = {"question": "okapis hide", "where": ["base=zoo"]}
        cited = ann.post("/v1/answer", json=request | {"flow": "grounded"}).json()["citations"][0]
        assert (cited["place"], cited["uri"]) == ("zoo/zebra.md, line 1", "doc://zoo/zebra.md")
        assert [finds(ann, "base=zoo", "legs>4"), finds(bob), finds(eve, "base=zoo")] == [[], [], []]
        assert (names(ann)["zoo"]["documents"], names(ann)["park"]["is_own"]) == (1, False)
        assert [names(bob).keys() & {"zoo", "park"}, names(eve).keys() & {"zoo", "park"}] == [set(), set()]
        assert eve.delete("/v1/bases/zoo").status_code == 404
        for task in ann.delete("/v1/bases/zoo").json()["tasks"]:
            assert done(ann, task)["state"] == "done"
        assert finds(ann) == ["doc://park/zebra.md"]
        assert "zoo" not in names(ann)
        done(ann, ann.delete("/v1/documents/park/zebra.md").json())
        for name in ("a%2Fb", "..", "a%00"):
            assert ann.put(f"/v1/bases/{name}", json=body).status_code in (400, 404, 405)


def test_files_of_the_server_are_added_from_its_folder_alone(served: Served) -> None:
    (served.store.parent / "notes" / "away").symlink_to("/etc")
    with served.client("ann") as ann, served.client("bob") as bob:

        def status(path: str) -> int:
            return ann.post("/v1/documents", data={"paths": path}).status_code

        outside = ("/etc/passwd", "notes/../n.spolia", "notes/away/passwd", "..", str(served.store), "notes/.env", "")
        assert [status(path) for path in outside] == [403] * 7
        assert [status("notes/none.md"), bob.post("/v1/documents", data={"paths": "notes"}).status_code] == [404, 403]
        tasks = ann.post("/v1/documents", data={"paths": [str(served.store.parent / "notes")]}).json()["tasks"]
        assert [task["document"] for task in tasks] == ["notes/salaries.md", "notes/tides.md"]
        for task in tasks:
            assert done(ann, task)["state"] == "done"
            done(ann, ann.delete(f"/v1/documents/{task['document']}").json())
    (served.store.parent / "notes" / "away").unlink()


def test_a_form_adds_many_documents(any_served: Served) -> None:
    def form(*texts: tuple[str, bytes]) -> list[Any]:
        return [("files", file) for file in texts]

    herd = form(("herds/gnu.md", b"Gnus walk far."), ("herds/emu.md", b"Emus run. " * 200_000))  # one is in a file
    with any_served.client("ann") as ann, any_served.client("bob") as bob:
        parts: dict[str, Any] = {"headers": {"Idempotency-Key": "herd"}, "params": {"access": "*"}}
        tasks = ann.post("/v1/documents", files=herd, **parts).json()["tasks"]
        assert [task["document"] for task in tasks] == ["herds/gnu.md", "herds/emu.md"]
        assert [done(ann, task)["state"] for task in tasks] == ["done", "done"]
        repeated = ann.post("/v1/documents", files=herd, **parts).json()["tasks"]
        assert [task["task"] for task in repeated] == [task["task"] for task in tasks]
        assert "Gnus" in bob.post("/v1/search", json={"question": "gnus"}).text
        for client, files, status in (
            (bob, herd, 403), (ann, form(("a.md", b"x"), ("b.unknown", b"x")), 400),
            (ann, form(("../a.md", b"x")), 400), (ann, None, 400),
        ):  # fmt: skip
            assert client.post("/v1/documents", files=files).status_code == status
        assert ann.get("/v1/documents?after=a").json()["documents"][0]["name"] == "herds/emu.md"
        for task in tasks:
            assert done(ann, ann.delete(f"/v1/documents/{task['document']}").json())["state"] == "done"


def test_bad_documents_are_refused(served: Served) -> None:
    url = f"{served.url}/v1/documents"
    assert httpx.put(f"{url}/a.md", content=TEXT).status_code == 401
    with served.client("bob") as bob:
        assert bob.put("/v1/documents/a.md", content=TEXT).status_code == 403
        assert bob.post("/v1/tasks/1/cancel").status_code == 404
    with served.client("ann") as ann:
        for name in ("..%2F..%2Fetc%2Fpasswd.md", "a%00.md", "a.unknown", "a%5Cb.md"):
            assert ann.put(f"/v1/documents/{name}", content=TEXT).status_code == 400
        for fields in ("[1]", '{"year": NaN}', '{"year": 1e999}', '{"year": 1' + "0" * 400 + "}"):
            assert ann.put("/v1/documents/a.md", params={"metadata": fields}, content=TEXT).status_code == 400


def test_a_document_of_10_gb_is_refused_before_it_comes(served: Served) -> None:
    place = urlsplit(served.url)
    head = f"PUT /v1/documents/a.md HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {served.keys['ann']}\r\n"
    with socket.create_connection((place.hostname, place.port)) as connection:
        connection.sendall(f"{head}Content-Length: {10 * 2**30}\r\n\r\n".encode())
        assert connection.recv(1000).startswith(b"HTTP/1.1 413")


USERS = ("ann", "bob", "eve", "gail")
_applications = WeakKeyDictionary[Documents, Any]()


def served_application(documents: Documents) -> Any:
    """A server whose only store is that of these documents; the key of each user is his name."""
    if documents not in _applications:
        flow: Operator[Query, Any] = BM25(documents.corpus.group())
        served_flow = ServedFlow("flow", flow, flow)
        keys = ApiKeys({hash_key(user): KeyHolder(user, user, writes=True) for user in USERS})
        _applications[documents] = build_application(
            Service(documents.corpus, [served_flow], served_flow), keys, documents=documents
        )
    return _applications[documents]


def reply(documents: Documents, method: str, path: str, user: str = "ann", **request_parts: Any) -> httpx.Response:
    """What a server answers a user."""

    async def send_request() -> httpx.Response:
        transport = httpx.ASGITransport(served_application(documents))
        headers = {"Authorization": f"Bearer {user}"}
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", headers=headers) as client:
            return await client.request(method, path, **request_parts)

    return asyncio.run(send_request())


@pytest.fixture(params=["sqlite", "postgres"])
def two(request: pytest.FixtureRequest, fast_folder: Path) -> Iterator[tuple[Documents, Documents]]:
    """The documents of one store in two services."""
    is_file = request.param == "sqlite"
    address = str(fast_folder / "n.spolia") if is_file else request.getfixturevalue("server").address()
    pair = Documents(Corpus(address)), Documents(Corpus(address))
    yield pair
    for documents in pair:
        documents.close()
        cast(Any, documents.queue.table).close()


NAME = "notes/zebra.md"
AT = f"/v1/documents/{NAME}"
CHANGES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "patch": ("PATCH", AT, {"json": {"access": ["*"]}}),
    "put": ("PUT", AT, {"content": b"Ann has it.", "params": {"access": "*"}}),
    "form": ("POST", "/v1/documents", {"files": [("files", (NAME, b"Ann has it."))], "params": {"access": "*"}}),
    "delete": ("DELETE", AT, {}),
    "reparse": ("POST", "/v1/documents/reparse", {"json": {"names": [NAME]}}),
    "embed": ("POST", "/v1/documents/reparse", {"json": {"names": [NAME], "how": "embed"}}),
    "copy": ("POST", "/v1/documents/transfer", {"json": {"names": [NAME], "to": "b"}}),
    "move": ("POST", "/v1/documents/transfer", {"json": {"names": [NAME], "to": "b", "how": "move"}}),
    "copy over": ("POST", "/v1/documents/transfer", {"json": {"names": ["own/zebra.md"], "to": "notes"}}),
    "delete base": ("DELETE", "/v1/bases/notes", {}),
}
"""What ann may ask of a name."""


def begin_with_documents(two: tuple[Documents, Documents]) -> None:
    """Ann has a document and a knowledge base."""
    assert reply(two[0], "PUT", "/v1/documents/own/zebra.md", content=b"Ann has it.").status_code == 202
    two[0].publish()
    assert reply(two[0], "PUT", "/v1/bases/notes", json={}).status_code == 200


def meanwhile(work: Callable[[], None], documents: Documents) -> threading.Thread:
    """Another user's request, by another service: when this returns, it has ended, or comes to a transaction that has
    to wait for an open one."""
    table, comes = cast(Any, documents.queue.table), threading.Event()
    transaction, ask = table.transaction, table.ask

    def begun() -> Any:
        if not table.lock_statement:
            comes.set()
        return transaction()

    def ask_meanwhile(statement: str, rows: Any) -> list[tuple[Any, ...]]:
        if statement == table.lock_statement:
            comes.set()
        return cast(list[tuple[Any, ...]], ask(statement, rows))

    if has_to_wait(table):
        table.transaction, table.ask = begun, ask_meanwhile
    thread = threading.Thread(target=work)
    thread.start()
    while thread.is_alive() and not comes.wait(0.01):
        """It has not come so far."""
    return thread


def has_to_wait(table: Any) -> bool:
    """Whether a transaction in which no other one changes documents is open."""
    if table.lock_statement:
        ((is_free,),) = table._connection.execute(table.lock_statement.replace("pg_", "pg_try_")).fetchall()
        return not is_free
    table._connection.execute("PRAGMA busy_timeout = 0")
    try:
        table._connection.execute("BEGIN IMMEDIATE")
        table._connection.execute("ROLLBACK")
        return False
    except sqlite3.OperationalError:
        return True
    finally:
        table._connection.execute("PRAGMA busy_timeout = 60000")


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_of_a_name_that_another_user_takes_meanwhile_does_not_touch_his_document(
    two: tuple[Documents, Documents], monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    begin_with_documents(two)
    ann, bob = two
    status, threads, original = list[int](), list[threading.Thread](), Snapshot.document_ids

    def add_document() -> None:
        try:
            bob.add(NAME, TEXT, access=["bob"], requester=Requester("bob", frozenset({"bob"}), "bob"))
            status.append(202)
        except NotAllowed:
            status.append(403)

    def looked(snapshot: Snapshot, names: Iterable[str]) -> dict[str, str]:
        if not threads:  # ann's request has looked at the jobs, and has put none yet
            threads.append(threading.Thread())
            threads.append(meanwhile(add_document, bob))
        return original(snapshot, names)

    monkeypatch.setattr(Snapshot, "document_ids", looked)
    method, path, parts = CHANGES[change]
    changed = reply(ann, method, path, **parts).status_code
    threads[1].join()
    monkeypatch.undo()
    while ann.publish():
        pass
    if status == [202]:
        assert reply(bob, "GET", f"{AT}/original", "bob").content == TEXT
    else:
        assert (status, changed) == ([403], 202)
    assert [reply(ann, "GET", f"{AT}/original", user).content == TEXT for user in ("ann", "eve")] == [False, False]


@pytest.mark.parametrize("change", CHANGES)
def test_a_document_that_another_user_is_adding_cannot_be_changed(
    two: tuple[Documents, Documents], monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    begin_with_documents(two)
    ann, bob = two
    status, threads, ask = list[int](), list[threading.Thread](), bob.queue.table.ask
    method, path, parts = CHANGES[change]

    def ask_and_add(statement: str, rows: Any) -> list[tuple[Any, ...]]:
        found_rows = ask(statement, rows)
        if statement.startswith("INSERT INTO jobs"):  # bob's transaction has put the job, and is open
            threads.append(meanwhile(lambda: status.append(reply(ann, method, path, **parts).status_code), ann))
        return found_rows

    monkeypatch.setattr(bob.queue.table, "ask", ask_and_add)
    assert reply(bob, "PUT", AT, "bob", content=TEXT).status_code == 202
    threads[0].join()
    assert status == [403 if change in ("put", "form", "copy over", "delete base") else 404]
    while ann.publish():
        pass
    assert reply(bob, "GET", f"{AT}/original", "bob").content == TEXT
    assert reply(ann, "GET", f"{AT}/original", "eve").status_code == 404


@pytest.mark.parametrize("change", ["patch", "reparse", "embed", "copy", "move"])
def test_a_document_that_the_administrator_has_removed_does_not_come_back(
    two: tuple[Documents, Documents], change: str
) -> None:
    ann, bob = two
    assert reply(bob, "PUT", AT, "bob", content=TEXT).status_code == 202
    bob.publish()
    with bob.corpus.writer() as writer:  # as `spolia docs remove`
        writer.remove(f"doc://{NAME}")
    method, path, parts = CHANGES[change]
    assert [reply(ann, method, path, user, **parts).status_code for user in ("ann", "bob")] == [404, 404]
    assert reply(ann, "PUT", AT, content=b"Ann has it.").status_code == 202  # the name is free
    assert reply(bob, "PUT", AT, "bob", content=TEXT).status_code == 403
    ann.publish()
    assert reply(ann, "GET", f"{AT}/original").content == b"Ann has it."


@pytest.mark.parametrize("store", ["folder", "postgres"])
def test_a_request_embeds_documents_again(store: str, fast_folder: Path, request: pytest.FixtureRequest) -> None:
    path = str(fast_folder / "n.spolia") if store == "folder" else request.getfixturevalue("server").address()
    with Changing() as model:
        documents = Documents(Corpus(path), definition=definition(model, Exact()), operators=[embedder(model)])
        for name, text in (("a.md", TEXT), ("b.md", TEXT + b" Okapis hide.")):
            assert reply(documents, "PUT", f"/v1/documents/{name}", content=text, params={"access": "*"}).is_success
        documents.publish()
        model.embedded()
        model.reply = ServedReply(weights="of another model ")
        accepted = reply(documents, "POST", "/v1/documents/reparse", json={"names": ["a.md", "b.md"], "how": "embed"})
        assert [(task["change"], task["state"]) for task in accepted.json()["tasks"]] == [("embed", "waiting")] * 2
        documents.publish()
        assert model.embedded() == ["Okapis hide.", TEXT.decode()]  # which both documents have
        for task in accepted.json()["tasks"]:
            assert reply(documents, "GET", f"/v1/tasks/{task['task']}").json()["state"] == "done"
        hit_counts = hits(documents, model, TEXT.decode())
        assert [hit_counts[f"{name} {TEXT.decode()}"] for name in ("a.md", "b.md")] == [1, 1]
        cast(Any, documents.queue.table).close()


def test_everybody_may_read_only_what_is_said_to_be_for_everybody(fast_folder: Path) -> None:
    documents = Documents(Corpus(str(fast_folder / "n.spolia")))
    reply(documents, "PUT", AT, content=TEXT)
    documents.publish()
    for method, path, parts in (
        ("PATCH", AT, {"json": {"access": []}}), ("PUT", "/v1/bases/notes", {"json": {"access": []}}),
        ("PUT", f"{AT}?access=", {"content": TEXT}),
        ("POST", "/v1/documents", CHANGES["form"][2] | {"params": {"access": ""}}),
    ):  # fmt: skip
        refused = reply(documents, method, path, **cast(Any, parts))
        assert refused.status_code == 400, (method, path)
        assert "access" in refused.text or "readers" in refused.text
    assert "for everybody" in reply(documents, "PATCH", AT, json={"access": []}).text
    assert documents.queue.counts() == {"done": 1}
    assert reply(documents, "GET", AT, "eve").status_code == 404
    base = reply(documents, "PUT", "/v1/bases/notes", json={"access": ["*"]}).json()
    assert base["access"] == ["*"]
    assert reply(documents, "PUT", "/v1/documents/notes/b.md", "eve", content=TEXT).status_code == 202
    assert reply(documents, "PATCH", AT, json={"access": ["*"]}).status_code == 202
    documents.publish()
    assert reply(documents, "GET", AT, "eve").status_code == 200


@check_each("number", [10**22, -(10**22), 2**63, 2**62 + 1])
def test_a_number_that_no_database_holds_is_no_fault_of_the_server(
    two: tuple[Documents, Documents], number: int
) -> None:
    documents = two[0]
    reply(documents, "PUT", AT, content=TEXT)
    documents.publish()
    expected = {
        ("GET", f"/v1/tasks/{number}"): (404,), ("POST", f"/v1/tasks/{number}/cancel"): (404,),
        ("GET", f"/v1/tasks?limit={number}"): (400,), ("GET", f"/v1/documents?limit={number}"): (400,),
        ("GET", f"{AT}/pages/{number}"): (400, 404), ("GET", f"{AT}/nodes?page={number}"): (400,),
        ("GET", f"{AT}/nodes?after={number}"): (400,), ("GET", f"{AT}/nodes?limit={number}"): (400,),
        ("GET", f"{AT}/pages/1?dpi={number}"): (400,),
    }  # fmt: skip
    for (method, path), status in expected.items():
        assert reply(documents, method, path).status_code in status, (method, path)
    if abs(number) >= 2**63:
        fields: dict[str, Any] = {"params": {"metadata": json.dumps({"year": number})}, "content": TEXT}
        assert reply(documents, "PUT", AT, **fields).status_code == 400
        assert reply(documents, "PATCH", AT, json={"metadata": {"year": number}}).status_code == 400
    request = {"question": "zebras", "where": [f"year>={number}"]}
    assert reply(documents, "POST", "/v1/search", json=request).status_code in (200, 400)


def test_a_search_before_the_first_document_is_to_be_asked_again(fast_folder: Path) -> None:
    response = reply(Documents(Corpus(str(fast_folder / "n.spolia"))), "POST", "/v1/search", json={"question": "why?"})
    assert (response.status_code, response.json()["error"]["code"]) == (503, "store_empty")
    assert int(response.headers["Retry-After"]) >= 1


@pytest.mark.parametrize(("pause_s", "status"), [(0.0, 413), (5.0, 408)])
def test_a_document_that_does_not_end_leaves_nothing(
    fast_folder: Path, monkeypatch: pytest.MonkeyPatch, pause_s: float, status: int
) -> None:
    monkeypatch.setattr(request_checks, "MOST_UPLOAD_BYTES", 1_000)
    monkeypatch.setattr(request_checks, "BODY_S", 0.05)
    documents = Documents(Corpus(str(fast_folder / "n.spolia")))

    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(3):
            yield bytes(500)
            await asyncio.sleep(pause_s)

    assert reply(documents, "PUT", "/v1/documents/a.md", content=pieces()).status_code == status
    assert documents.queue.counts() == {}


@contextmanager
def full_disk(left: int) -> Iterator[None]:
    """While inside, no file may become longer, as on a disk that is full then."""
    previous_limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (left, previous_limit[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, previous_limit)


@pytest.mark.parametrize(
    "left", [1 << 20, 3 << 20]
)  # the spool is full; what is received whole is more than the queue holds
def test_a_disk_that_is_full_in_mid_upload_is_503_and_leaves_nothing(fast_folder: Path, left: int) -> None:
    documents = Documents(Corpus(str(fast_folder / "n.spolia")))
    documents.add("kept.md", b"Kept.")
    with full_disk(left):
        single = reply(documents, "PUT", "/v1/documents/a.md", content=b"x" * 3_140_000)
        form = reply(documents, "POST", "/v1/documents", files=[("files", ("a.md", b"x" * 3_140_000))])
    for item in (single, form):
        assert (item.status_code, item.headers["Retry-After"].isdecimal()) == (503, True), item.text
    assert documents.queue.counts() == {"waiting": 1}
    assert reply(documents, "PUT", "/v1/documents/a.md", content=b"x" * 3_140_000).status_code == 202
    documents.publish()
    assert [item.name for item in documents.list_documents(frozenset({"ann"}))] == ["a.md", "kept.md"]
