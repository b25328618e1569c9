"""Every route with every kind of key, and what its replies look like."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import pytest

pytest.importorskip("uvicorn", reason="the extra `server` is not installed")
pytest.importorskip("openai", reason="the client whose requests are sent is not installed")

import httpx2
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from pydantic import TypeAdapter

from spolia.evaluation import DataSet
from spolia.server.chat import ChatReply
from spolia.server.reply_schemas import AnswerReply, SearchReply
from tests.cli.conftest import Spolia, spolia  # noqa: F401
from tests.server.conftest import SECRET, Served, sync_notes, until
from tests.server.test_documents import OF_A_DOCUMENT

pytestmark = pytest.mark.slow

QUESTION = "Who earns the most?"
CHAT = {"model": "naive", "messages": [{"role": "user", "content": QUESTION}]}
ROWS: dict[tuple[str, str], tuple[Any, bool]] = {
    ("get", "/v1/models"): (None, False),
    ("get", "/v1/models/{name}"): (None, False),
    ("get", "/v1/flows"): (None, False),
    ("post", "/v1/search"): ({"question": QUESTION, "stages": True}, True),
    ("post", "/v1/answer"): ({"question": QUESTION, "flow": "naive"}, True),
    ("post", "/v1/chat/completions"): (CHAT, True),
    ("post", "/v1/embeddings"): ({"input": QUESTION}, False),
    ("post", "/v1/rerank"): ({"query": QUESTION, "documents": ["Bob earns less."]}, False),
    ("get", "/metrics"): (None, False),
    ("get", "/v1/runs"): (None, False),
    ("get", "/v1/documents"): (None, False),
    ("get", "/v1/tasks"): (None, False),
    ("get", "/v1/bases"): (None, False),
}
"""By route: a body, and whether it gives what only some may read."""
OF_A_RUN = {("get", "/v1/runs/{name}"), ("post", "/v1/feedback")}
"""Routes for a run that the user has asked."""
OPEN = {("get", "/live"), ("get", "/ready")}


@pytest.fixture(scope="module")
def api(served: Served) -> Any:
    with served.client("ann") as ann:
        return ann.get("/openapi.json").json()


def test_every_route_has_a_row(api: Any) -> None:
    routes = {(method, path) for path, methods in api["paths"].items() for method in methods}
    assert routes == ROWS.keys() | OPEN | OF_A_RUN | OF_A_DOCUMENT.keys()


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[1])
def test_a_route_gives_each_user_what_he_may_read(any_served: Served, row: tuple[str, str]) -> None:
    (method, path), (body, finds) = row, ROWS[row]
    url = any_served.url + path.replace("{name}", "naive")
    bodies = [body, body | {"stream": True}] if finds and path != "/v1/search" else [body]
    for request_body in bodies:
        for wrong in ("", "Bearer", "Bearer sk-spolia-forged", f"Basic {any_served.keys['ann']}"):
            refused = httpx.request(method, url, json=request_body, headers={"Authorization": wrong} if wrong else {})
            assert (refused.status_code, refused.json()["error"]["code"]) == (401, "invalid_api_key")
            assert "forged" not in refused.text
        for user in ("ann", "bob", "ann", "bob"):  # the second time from the cache
            with any_served.client(user) as client:
                response = client.request(method, url, json=request_body)
            assert response.status_code == 200, response.text
            assert (SECRET in response.text) == (finds and user == "ann")


def test_a_run_is_seen_by_the_user_who_asked_and_feedback_becomes_a_question(
    served: Served,
    spolia: Spolia,  # noqa: F811
    tmp_path: Path,
) -> None:
    request = {"question": QUESTION, "flow": "naive"}
    command = ("questions", "--store", served.store, "--feedback", "--json", "-o")
    questions_before = spolia(*command, tmp_path / "before").json.get("questions", 0)  # other tests give feedback, too
    with served.client("ann") as ann, served.client("bob") as bob:
        run = ann.post("/v1/answer", json=request).json()["run"]
        feedback = {"run": run, "thumb": "down", "question": QUESTION, "answer": "Ann", "reason": "Too long."}
        for client, status in ((bob, 404), (httpx.Client(base_url=served.url), 401), (ann, 200)):
            assert client.get(f"/v1/runs/{run}").status_code == status
            assert client.post("/v1/feedback", json=feedback).status_code == status
        assert ann.get("/v1/runs").json()["runs"][0]["run"] == run
        assert run not in bob.get("/v1/runs").text
        trace = ann.get(f"/v1/runs/{run}").json()
        assert (trace["hidden"], SECRET in json.dumps(trace), trace["steps"][0]["parent"]) == (False, True, 0)
        assert ann.post("/v1/feedback", json=feedback).status_code == 200  # the same again
        assert ann.post("/v1/feedback", json=feedback | {"run": "0" * 12}).status_code == 404
        sync_notes(served.store, ["others"])
        hidden = ann.get(f"/v1/runs/{run}").json()
        sync_notes(served.store, ["staff"])
        assert spolia(*command, tmp_path / "public").json["questions"] == questions_before
        assert spolia(*command, tmp_path / "data", "--access", "staff").json["questions"] == questions_before + 1
    (item,) = (entry for entry in DataSet(str(tmp_path / "data")).items() if entry.question == QUESTION)
    assert (item.question, item.answers, str(item.gold[0][0])) == (QUESTION, ("Ann",), "salaries.md[0:3]")
    assert (hidden["hidden"], SECRET in json.dumps(hidden)) == (True, False)


TOOLS: dict[str, bool] = {"search": True, "answer": True}
DOCUMENT_TOOLS = {"list_documents", "add_document"}
"""By tool of `/mcp`: whether it gives what only some may read."""


@pytest.mark.parametrize("user", ["ann", "bob"])
def test_a_tool_gives_each_agent_what_its_user_may_read(any_served: Served, user: str) -> None:
    async def call_tool() -> None:
        async with (
            httpx2.AsyncClient(headers={"Authorization": f"Bearer {any_served.keys[user]}"}) as http,
            Client(streamable_http_client(f"{any_served.url}/mcp", http_client=http)) as client,
        ):
            assert {tool.name for tool in (await client.list_tools()).tools} == TOOLS.keys() | DOCUMENT_TOOLS
            for name, finds in TOOLS.items():
                result = await client.call_tool(name, {"question": QUESTION})
                assert not result.is_error
                assert (SECRET in json.dumps(result.structured_content)) == (finds and user == "ann")
            listed = await client.call_tool("list_documents", {})
            assert listed.structured_content == {"documents": []}
            if user == "bob":
                assert (await client.call_tool("add_document", {"name": "a.md", "text": "x"})).is_error
            refused = await client.call_tool("answer", {"question": "tide", "flow": "nothing"})
            assert refused.is_error

    asyncio.run(call_tool())


def test_routes_that_are_not_there_need_a_key_too(served: Served) -> None:
    assert [httpx.post(served.url + path).status_code for path in ("/v1/nothing", "/mcp")] == [401, 401]
    assert [httpx.get(served.url + path).status_code for _, path in sorted(OPEN)] == [200, 200]
    page = httpx.get(f"{served.url}/docs")
    assert (page.status_code, "/openapi.json" in page.text) == (404, True)
    with served.client("bob") as bob:
        assert bob.get("/v1/nothing").json()["error"]["code"] == "not_found"
        assert bob.get("/v1/answer").json()["error"]["code"] == "method_not_allowed"


def test_examples_of_the_description_are_answered(served: Served, api: Any) -> None:
    for name, schema in api["components"]["schemas"].items():
        for example in schema.get("examples", ()):
            ((method, path),) = (
                (method, route_path)
                for route_path, methods in api["paths"].items()
                for method, operation in methods.items()
                if f'/{name}"' in json.dumps(operation)
            )
            if (method, path) not in OF_A_DOCUMENT:
                with served.client("bob") as bob:
                    assert bob.request(method, path, json=example).status_code == 200


def test_replies_are_those_of_the_command_line(served: Served, spolia: Spolia) -> None:  # noqa: F811
    question = "What causes the tide?"
    with served.client("bob") as bob:
        answer = bob.post("/v1/answer", json={"question": question}).json()
        search = bob.post("/v1/search", json={"question": question, "stages": True}).json()
        chat = bob.post("/v1/chat/completions", json=CHAT).json()
    answered = spolia("ask", question, "--store", served.store, "--json").json
    reranked = ("--reranker", served.model.url, "--rerank-model", "scores")
    searched = spolia("search", question, "--store", served.store, *reranked, "--json").json
    for kind, here, printed in ((AnswerReply, answer, answered), (SearchReply, search, searched)):
        assert here.keys() <= kind.__annotations__.keys()
        TypeAdapter(kind).validate_python(here)
        TypeAdapter(kind).validate_python(printed)
    TypeAdapter(ChatReply).validate_python(chat)
    assert [answer[name] for name in ("answer", "citations")] == [answered[name] for name in ("answer", "citations")]
    assert search["hits"] == searched["hits"]
    assert [hit[0] for hit in search["stages"][-1]["hits"]] == [hit["node"] for hit in search["hits"]]


def test_a_stream_sends_the_text_of_a_cached_answer_too(served: Served) -> None:
    request = {"question": "What causes the tide, and when?", "flow": "grounded", "stream": True}
    with served.client("bob") as bob:
        fresh, cached = (events(bob.post("/v1/answer", json=request).text) for _ in range(2))
    for stream in (fresh, cached):
        assert "".join(data for name, data in stream if name == "text") == stream[-1][1]["answer"] != ""
        assert (stream[-1][0], stream[-1][1]["citations"]) == ("done", fresh[-1][1]["citations"])
    assert [name for name, _ in cached] == ["text", "done"]


def events(body: str) -> list[tuple[str, Any]]:
    """Names and data of server-sent events."""
    lines = (event.split("\n") for event in body.strip().split("\n\n") if not event.startswith(":"))
    return [(name.removeprefix("event: "), json.loads(data.removeprefix("data: "))) for name, data in lines]


def test_conditions_and_counts_narrow_a_search(served: Served) -> None:
    with served.client("ann") as ann:

        def places(**more: Any) -> list[str]:
            reply = ann.post("/v1/search", json={"question": "the moon, the tide, the most", **more}).json()
            return [hit["uri"] for hit in reply["hits"]]

        assert set(places()) == {"salaries.md", "tides.md"}
        assert len(places(top_k=1)) == 1
        assert places(where=["file_name=salaries.md"]) == ["salaries.md"]
        form = ann.post("/v1/search", data={"question": "tide"})
        refused = ann.post("/v1/search", json={"question": "tide", "where": ["colour=red"]})
    assert "Send the header Content-Type: application/json." in form.json()["error"]["message"]
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "invalid_filter")


def test_a_collector_gets_a_span_of_each_step_without_texts(served: Served) -> None:
    trace = "0af7651916cd43dd8448eb211c80319c"
    with served.client("ann") as ann:
        headers = {"traceparent": f"00-{trace}-b7ad6b7169203331-01"}
        asked_request = {"question": QUESTION, "flow": "grounded"}
        assert ann.post("/v1/answer", json=asked_request, headers=headers).status_code == 200
    received = served.collector.received
    until(lambda: any(bytes.fromhex(trace) in body for _, body in received))
    request = ExportTraceServiceRequest()
    for path, body in list(received):
        assert path == "/v1/traces"
        request.MergeFromString(body)
    all_spans = [
        span for resource_span in request.resource_spans for scope in resource_span.scope_spans for span in scope.spans
    ]
    spans = {span.name: span for span in all_spans if span.trace_id.hex() == trace}
    assert {"Then", "BM25", "chat scripted"} <= spans.keys()
    assert spans["Then"].parent_span_id.hex() == "b7ad6b7169203331"
    assert spans["BM25"].parent_span_id == spans["Then"].span_id
    assert not any(SECRET.encode() in body or QUESTION.encode() in body for _, body in received)
