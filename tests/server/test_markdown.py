"""Answers and passages reach clients without live images, HTML or scripts; citations keep the document's words."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Awaitable, Callable
from contextlib import redirect_stdout
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeAlias

import pytest

pytest.importorskip("uvicorn", reason="the extra `server` is not installed")

import httpx

from spolia.cli import results
from spolia.cli.screen import Screen
from spolia.core.markdown import disarm
from spolia.flow_files.built_in_flows import bm25
from spolia.generation import Extract, Reader
from spolia.indexing.sync.texts import add_texts
from spolia.models.http.chat import ChatModel
from spolia.run import Run
from spolia.server.app import build_application
from spolia.server.keys import ApiKeys, KeyHolder
from spolia.server.mcp_tools import build_mcp_server
from spolia.server.service import ServedFlow, Service
from spolia.stores.corpus import Corpus
from spolia.testing import OpenAIServer, ServedReply
from spolia.types import Answer, Query

pytestmark = pytest.mark.slow
PLAN = "![plan](https://evil.example/?q=1) <img src=x> [go](javascript:alert)"
TEXT = f"The wiring of the lamp is drawn here: {PLAN}."
ASKED = "How is the wiring of the lamp drawn?"
HEADERS = {"Authorization": "Bearer k"}
Door: TypeAlias = Callable[[httpx.AsyncClient, Service, str], Awaitable[str]]


@pytest.fixture
def served(tmp_path: Path) -> Any:
    corpus = Corpus(str(tmp_path / "n.spolia"))
    add_texts(corpus, {"lamp": TEXT})
    search = bm25(corpus.group(), None)
    with OpenAIServer(ServedReply(f"See {PLAN} [1].")) as server:
        flows = [
            ServedFlow("extract", search >> Extract(live_markdown=True), search),
            ServedFlow("reader", search >> Reader(ChatModel("m", server.url, api_key_env="")), search),
        ]
        yield lambda live: Service(corpus, flows, flows[0], live_markdown=live)


async def chat(client: httpx.AsyncClient, service: Service, flow: str) -> str:
    request = {"model": flow, "messages": [{"role": "user", "content": ASKED}]}
    whole = (await client.post("/v1/chat/completions", json=request)).json()
    (citation,) = whole["spolia"]["citations"]
    assert citation["quote"] in TEXT
    return f"{whole['choices'][0]['message']['content']}\n{whole['spolia']['answer']}"


async def streamed_chat(client: httpx.AsyncClient, service: Service, flow: str) -> str:
    request = {"model": flow, "messages": [{"role": "user", "content": ASKED}], "stream": True}
    events = (await client.post("/v1/chat/completions", json=request)).text
    chunks = [json.loads(row[6:]) for row in events.splitlines() if row.startswith("data: {")]
    return "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks)


async def answer(client: httpx.AsyncClient, service: Service, flow: str) -> str:
    reply = await client.post("/v1/answer", json={"question": ASKED, "flow": flow})
    return str(reply.json()["answer"])


async def streamed_answer(client: httpx.AsyncClient, service: Service, flow: str) -> str:
    reply = await client.post("/v1/answer", json={"question": ASKED, "flow": flow, "stream": True})
    return "".join(json.loads(row[6:]) for row in reply.text.split("\n") if row.startswith('data: "'))


def tool(name: str) -> Door:
    async def call_tool(client: httpx.AsyncClient, service: Service, flow: str) -> str:
        holder = KeyHolder("k")
        request = SimpleNamespace(scope={"holder": holder})
        context: Any = SimpleNamespace(request_context=SimpleNamespace(request=request))
        arguments = {"question": ASKED} | ({"flow": flow} if name == "answer" else {})
        function = build_mcp_server(service)._tool_manager.get_tool(name).fn  # type: ignore[union-attr]
        reply = await function(context=context, **arguments)
        return str(reply["answer"] if name == "answer" else reply["hits"][0]["text"])

    return call_tool


def command(*, json: bool, is_terminal: bool) -> Door:
    """What `spolia ask` prints, and what it gives as JSON."""

    async def ask_command(client: httpx.AsyncClient, service: Service, flow: str) -> str:
        out = io.StringIO()
        out.isatty = lambda: is_terminal  # type: ignore[method-assign]
        with Run(), redirect_stdout(out):
            reply = results.print_answer(
                Screen(json=json), service.flows[flow].answer, Query(ASKED),
                streams=True, live_markdown=service.live_markdown,
            )  # fmt: skip
        return f"{out.getvalue()}\n{reply.text}".replace("\n", " ")

    return ask_command


DOORS: dict[str, Door] = {
    "chat": chat,
    "streamed chat": streamed_chat,
    "answer": answer,
    "streamed answer": streamed_answer,
    "MCP answer": tool("answer"),
    "MCP search": tool("search"),
    "ask": command(json=False, is_terminal=False),
    "ask in a terminal": command(json=False, is_terminal=True),
    "ask --json": command(json=True, is_terminal=False),
}
"""The ways that an answer leaves by, each as what a person or a client is shown."""


def answers_at_doors(service: Service) -> dict[str, str]:
    """What each flow gives at each door."""

    async def walked() -> dict[str, str]:
        transport = httpx.ASGITransport(build_application(service, ApiKeys.from_token("k")))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", headers=HEADERS) as client:
            return {
                f"{door}, {flow}": await ask(client, service, flow)
                for door, ask in DOORS.items()
                for flow in service.flows
            }

    return asyncio.run(walked())


def test_every_door_is_inert_unless_live_markdown_is_wanted(served: Any) -> None:
    for door, text in answers_at_doors(served(False)).items():
        assert disarm(PLAN) in text, door
        assert disarm(text) == text, door
    assert {door for door, text in answers_at_doors(served(True)).items() if PLAN not in text} == set()


def test_a_notebook_shows_an_answer_as_text() -> None:
    answer = Answer(PLAN)
    assert "<img" not in answer._repr_html_()
    assert not hasattr(answer, "_repr_markdown_")
