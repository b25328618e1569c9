"""Whose documents, knowledge bases, tasks and runs are: every route of the server × every kind of key."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest

pytest.importorskip("uvicorn", reason="the extra `server` is not installed")

import httpx
from starlette.routing import Route

from spolia import BM25, Corpus, Operator, Query
from spolia.journal import Runs
from spolia.server.app import build_application
from spolia.server.keys import ApiKeys, KeyHolder, hash_key
from spolia.server.mcp_tools import build_mcp_server
from spolia.server.service import ServedFlow, Service
from spolia.services.documents import Documents
from spolia.services.knowledge_bases import OWNER, KnowledgeBase

pytestmark = pytest.mark.slow
KEYS = {
    "ann": KeyHolder("laptop", "ann", ("staff",), writes=True),
    "member": KeyHolder("member", "eve", ("staff",), writes=True),
    "stranger": KeyHolder("stranger", "bob", writes=True),
    "namesake": KeyHolder("ann", "carl", writes=True),
    "reader": KeyHolder("reader", "dan", ("staff",)),
    "admin": KeyHolder("admin", "ops", writes=True, admin=True),
}
"""Ann's key, those of members of her group and of others, and the administrator's."""
OTHERS = ("member", "stranger", "namesake", "reader")
Kind = Literal["shared", "list", "read", "change", "new"]
"""What a route gives or takes: nothing of a user; a list; a thing that its readers see; one that its owner changes; a
name to be used."""
NAME, ABSENT = "hr/salaries.md", "hr/festivals.m"
ROUTES: dict[tuple[str, str], tuple[Kind, dict[str, Any]]] = {
    ("GET", "/openapi.json"): ("shared", {}),
    ("GET", "/live"): ("shared", {}),
    ("GET", "/ready"): ("shared", {}),
    ("GET", "/metrics"): ("shared", {}),
    ("*", "/mcp"): ("shared", {}),  # its tools do what these routes do: see TOOLS
    ("GET", "/v1/flows"): ("shared", {}),
    ("GET", "/v1/models"): ("shared", {}),
    ("GET", "/v1/models/{name}"): ("shared", {}),
    ("POST", "/v1/embeddings"): ("shared", {}),
    ("POST", "/v1/rerank"): ("shared", {}),
    ("POST", "/v1/answer"): ("list", {"json": {"question": "salaries"}}),
    ("POST", "/v1/search"): ("list", {"json": {"question": "salaries"}}),
    ("POST", "/v1/chat/completions"): (
        "list",
        {"json": {"model": "flow", "messages": [{"role": "user", "content": "salaries"}]}},
    ),
    ("GET", "/v1/runs"): ("list", {}),
    ("GET", "/v1/runs/{run}"): ("change", {}),
    ("POST", "/v1/feedback"): ("change", {"json": {"run": "RUN", "thumb": "up"}}),
    ("GET", "/v1/documents"): ("list", {}),
    ("POST", "/v1/documents"): ("new", {"files": [("files", ("NAME", b"Taken."))], "params": {"access": "*"}}),
    ("PUT", "/v1/documents/{name:path}"): ("new", {"content": b"Taken.", "params": {"access": "*"}}),
    ("PATCH", "/v1/documents/{name:path}"): ("change", {"json": {"access": ["*"]}}),
    ("DELETE", "/v1/documents/{name:path}"): ("change", {}),
    ("POST", "/v1/documents/reparse"): ("change", {"json": {"names": ["NAME"]}}),
    ("POST", "/v1/documents/transfer"): ("change", {"json": {"names": ["NAME"], "to": "own", "how": "move"}}),
    ("GET", "/v1/documents/{name:path}"): ("read", {}),
    ("GET", "/v1/documents/{name:path}/nodes"): ("read", {}),
    ("GET", "/v1/documents/{name:path}/original"): ("read", {}),
    ("GET", "/v1/documents/{name:path}/pages/{page}"): ("read", {}),
    ("GET", "/v1/bases"): ("list", {}),
    ("PUT", "/v1/bases/{base}"): ("new", {"json": {"access": ["*"]}}),
    ("DELETE", "/v1/bases/{base}"): ("change", {}),
    ("GET", "/v1/tasks"): ("list", {}),
    ("GET", "/v1/tasks/{task}"): ("change", {}),
    ("POST", "/v1/tasks/{task}/cancel"): ("change", {}),
}
TOOLS = {
    "search": ("POST", "/v1/search"), "answer": ("POST", "/v1/answer"), "list_documents": ("GET", "/v1/documents"),
    "add_document": ("PUT", "/v1/documents/{name:path}"),
}  # fmt: skip


@dataclass(frozen=True)
class Things:
    """What a request names."""

    name: str
    base: str
    task: str
    run: str

    def request(self, path: str, sent: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        """The path and body of a request that names these."""
        words = {"{name:path}": self.name, "{base}": self.base, "{task}": self.task, "{run}": self.run, "{page}": "1"}
        for word, value in words.items():
            path = path.replace(word, value)
        if "files" in sent:
            return path, sent | {"files": [("files", (self.name, b"Taken."))]}
        plain = json.loads(json.dumps(sent.get("json", {})).replace("NAME", self.name).replace("RUN", self.run))
        return path, sent | ({"json": plain} if "json" in sent else {})

    def hide(self, text: str) -> str:
        """A reply without the names that were asked for."""
        for name in (self.name, self.run, f"'{self.base}'", f"task {self.task}"):
            text = text.replace(name, "NAME")
        return text


class Server:
    """A server in this process with a document, a knowledge base, a task and a run of ann's."""

    def __init__(self, folder: Path) -> None:
        (folder / "scanned").mkdir()
        self.documents = Documents(Corpus(str(folder / "n.spolia")), folders=[folder / "scanned"])
        flow: Operator[Query, Any] = BM25(self.documents.corpus.group())
        self.runs = Runs(folder / "runs.db")
        served_flow = ServedFlow("flow", flow, flow)
        self.service = Service(self.documents.corpus, [served_flow], served_flow, runs=self.runs)
        keys = ApiKeys({hash_key(name): holder for name, holder in KEYS.items()})
        self.app = build_application(self.service, keys, documents=self.documents)

    def ask(self, method: str, path: str, key: str = "ann", **sent: Any) -> httpx.Response:
        async def send_request() -> httpx.Response:
            options: dict[str, Any] = {"base_url": "http://127.0.0.1", "headers": {"Authorization": f"Bearer {key}"}}
            async with httpx.AsyncClient(transport=httpx.ASGITransport(self.app), **options) as client:
                return await client.request(method, path, **sent)

        return asyncio.run(send_request())

    def add(self, name: str, readers: list[str]) -> int:
        reply = self.ask("PUT", f"/v1/documents/{name}", content=b"Salaries are secret.", params={"access": readers})
        assert reply.status_code == 202, reply.text
        self.documents.publish()
        return int(reply.json()["task"])

    def state(self) -> list[Any]:
        """Ann's documents as they are, and all knowledge bases."""
        state = list[Any](vars(knowledge_base) for knowledge_base in self.documents.bases.all().values())
        for name in self.documents.queue.subjects("hr/"):
            last = self.documents.queue.last_job(name)
            if last is not None and self.documents.corpus.snapshot().document_ids([f"doc://{name}"]):
                data = self.documents.original(name, frozenset({"ann"}))
                state.append((name, last.kind, last.payload["access"], last.payload[OWNER], data))
        return state


@pytest.fixture
def server(fast_folder: Path) -> Iterator[Server]:
    new_server = Server(fast_folder)
    yield new_server
    new_server.documents.close()
    new_server.runs.close()


def things(server: Server, readers: list[str]) -> tuple[Things, Things]:
    """What ann has, and what is not there; the names are of one length."""
    task = server.add(NAME, readers)
    run = server.ask("POST", "/v1/search", json={"question": "salaries"}).json()["run"]
    return Things(NAME, "hr", str(task), run), Things(ABSENT, "xx", str(task + 8), "0123456789ab")


def test_every_route_says_whose_things_it_names(server: Server) -> None:
    routes = [item for item in server.app.routes if isinstance(item, Route)]
    methods_and_paths = {
        (method, item.path.replace("/v1/runs/{name}", "/v1/runs/{run}"))
        for item in routes
        for method in item.methods or ("*",)
    }
    assert {item for item in methods_and_paths if item[0] != "HEAD"} == set(ROUTES)
    tools = asyncio.run(build_mcp_server(server.service, server.documents).list_tools())
    assert {item.name: ROUTES[TOOLS[item.name]][0] for item in tools} == {
        "search": "list", "answer": "list", "list_documents": "list", "add_document": "new",
    }  # fmt: skip


@pytest.mark.parametrize("declared", [False, True])
def test_what_is_not_yours_answers_as_what_is_not_there(server: Server, declared: bool) -> None:
    existing, absent = things(server, ["ann", "staff"])
    if declared:
        assert server.ask("PUT", "/v1/bases/hr", json={"access": ["staff"]}).status_code == 200
    for (method, path), (kind, payload) in ROUTES.items():
        for key in OTHERS if kind in ("read", "change") else ():
            if kind == "read" and "staff" in KEYS[key].groups:
                continue  # who may read it sees it
            requests = [thing.request(path, payload) for thing in (existing, absent)]
            replies = [server.ask(method, address, key, **body) for address, body in requests]
            hidden = [
                (
                    response.status_code,
                    {k: v for k, v in response.headers.items() if k != "content-length"},
                    thing.hide(response.text),
                )
                for response, thing in zip(replies, (existing, absent), strict=True)
            ]
            assert hidden[0] == hidden[1], (method, path, key)
            assert hidden[0][0] in (403, 404), (method, path, key)
    for (method, path), (kind, payload) in ROUTES.items():
        if kind == "list":
            reply = server.ask(method, existing.request(path, payload)[0], "stranger", **payload)
            assert NAME not in reply.text
            assert "secret" not in reply.text, (method, path)


@pytest.mark.parametrize("declared", [False, True])
def test_nobody_changes_what_others_own(server: Server, declared: bool) -> None:
    existing, _ = things(server, ["ann", "staff"])
    if declared:
        assert server.ask("PUT", "/v1/bases/hr", json={"access": ["staff"]}).status_code == 200
    state_before = server.state()
    changes = 0
    for (method, path), (kind, payload) in ROUTES.items():
        for key in OTHERS if kind in ("new", "change") else ():
            address, body = existing.request(path, payload)
            assert server.ask(method, address, key, **body).status_code in (403, 404), (method, path, key)
            server.documents.publish()
            changes += server.state() != state_before
    assert changes == 0


def test_a_copy_of_a_document_belongs_to_those_who_made_it(server: Server) -> None:
    server.add(NAME, ["ann", "staff"])
    body = {"names": [NAME], "to": "own"}
    assert server.ask("POST", "/v1/documents/transfer", "stranger", json=body).status_code == 404
    assert server.ask("POST", "/v1/documents/transfer", "member", json=body).status_code == 202
    server.documents.publish()
    status = [server.ask("DELETE", "/v1/documents/own/salaries.md", key).status_code for key in ("ann", "member")]
    assert status == [404, 202]


def test_an_owner_who_may_no_longer_read_his_document_gives_it_back_to_himself(server: Server) -> None:
    server.add(NAME, ["others"])
    assert server.ask("GET", f"/v1/documents/{NAME}").status_code == 404
    assert server.ask("PATCH", f"/v1/documents/{NAME}", json={"access": ["ann"]}).status_code == 202
    server.documents.publish()
    assert server.ask("GET", f"/v1/documents/{NAME}").status_code == 200


def test_the_administrator_changes_all_and_the_owner_stays(server: Server) -> None:
    server.add(NAME, ["ann"])
    server.ask("PUT", "/v1/bases/hr", json={"access": ["staff"]})
    for method, path, payload in (
        ("PATCH", f"/v1/documents/{NAME}", {"json": {"metadata": {"year": 2026}}}),
        ("PUT", f"/v1/documents/{NAME}", {"content": b"Salaries.", "params": {"access": "ann"}}),
        ("PUT", "/v1/bases/hr", {"json": {"description": "Staff", "access": ["staff"]}}),
    ):
        assert server.ask(method, path, "admin", **payload).is_success, (method, path)
        server.documents.publish()
    assert server.documents.bases.all()["hr"].owner == "ann"
    assert server.state()[-1][3] == "ann"
    assert server.ask("DELETE", "/v1/bases/hr", "admin").status_code == 202
    server.documents.publish()
    assert server.state() == []


def test_names_of_scanned_folders_are_the_administrators(server: Server) -> None:
    refused = server.ask("PUT", "/v1/bases/scanned", json={"access": ["ann"]})
    assert (refused.status_code, refused.json()["error"]["message"]) == (
        403,
        "You cannot use the name 'scanned'. Write another one.",
    )
    assert server.ask("PUT", "/v1/bases/scanned", "admin", json={"access": ["staff"]}).status_code == 200


def test_a_store_of_version_0_2_0_keeps_readers_and_belongs_to_those_who_sent_it(server: Server) -> None:
    """Its jobs have no owner; some knowledge bases belong to nobody."""
    server.documents.bases.save(KnowledgeBase("old", "Old", "", ("staff",)))
    server.add("hr/a.md", ["ann", "staff"])
    server.documents.queue.table.ask("UPDATE jobs SET payload = json_remove(payload, '$.owner') RETURNING id", [{}])
    assert server.documents.bases.all()["old"].access == ("staff",)
    assert [server.ask("PUT", "/v1/bases/old", key, json={}).status_code for key in ("ann", "admin")] == [403, 200]
    patch = {"metadata": {"year": 2026}}
    status = [server.ask("PATCH", "/v1/documents/hr/a.md", key, json=patch).status_code for key in ("member", "ann")]
    assert status == [404, 202]
    server.documents.publish()
    assert server.state()[-1][1:4] == ("patch", ["ann", "staff"], "ann")


def test_a_base_of_several_owners_is_nobodys_to_claim_or_delete(server: Server) -> None:
    server.add("hr/a.md", ["ann"])
    assert server.ask("PUT", "/v1/documents/hr/b.md", "member", content=b"Mine.").status_code == 202
    assert [server.ask("PUT", "/v1/bases/hr", key, json={}).status_code for key in ("ann", "member")] == [403, 403]
    assert server.ask("DELETE", "/v1/bases/hr").status_code == 404
