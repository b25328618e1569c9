"""Answers and passages reach clients without live images, HTML or scripts; citations keep the document's words."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("uvicorn", reason="the extra `server` is not installed")

import httpx

from spolia.core.markdown import disarm
from spolia.flow_files.built_in_flows import bm25
from spolia.generation import Extract, Reader
from spolia.indexing.sync.texts import add_texts
from spolia.models.http.chat import ChatModel
from spolia.server.app import application
from spolia.server.keys import ApiKeys
from spolia.server.service import ServedFlow, Service
from spolia.stores.corpus import Corpus
from spolia.testing import OpenAIServer, ServedReply

pytestmark = pytest.mark.slow
PLAN = "![plan](https://evil.example/?q=1) <img src=x> [go](javascript:alert)"
TEXT = f"The wiring of the lamp is drawn here: {PLAN}."
ASKED = "How is the wiring of the lamp drawn?"
HEADERS = {"Authorization": "Bearer k"}


@pytest.fixture
def served(tmp_path: Path) -> Any:
    corpus = Corpus(str(tmp_path / "n.spolia"))
    add_texts(corpus, {"lamp": TEXT})
    found = bm25(corpus.group(), None)
    with OpenAIServer(ServedReply(f"See {PLAN} [1].")) as server:
        flows = [
            ServedFlow("extract", found >> Extract(live_markdown=True), found),
            ServedFlow("reader", found >> Reader(ChatModel("m", server.url, api_key_env="")), found),
        ]
        yield lambda live: Service(corpus, flows, flows[0], live_markdown=live)


def texts(service: Service) -> list[str]:
    """What a client shows: of each flow the chat, the answer, their streams; and of the search."""

    async def asked() -> list[str]:
        transport = httpx.ASGITransport(application(service, ApiKeys.of_token("k")))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", headers=HEADERS) as client:
            found: list[str] = []
            for flow in service.flows:
                chat = {"model": flow, "messages": [{"role": "user", "content": ASKED}]}
                whole = (await client.post("/v1/chat/completions", json=chat)).json()
                found += [whole["choices"][0]["message"]["content"], whole["spolia"]["answer"]]
                events = (await client.post("/v1/chat/completions", json={**chat, "stream": True})).text
                chunks = [json.loads(row[6:]) for row in events.splitlines() if row.startswith("data: {")]
                found.append("".join(one["choices"][0]["delta"].get("content", "") for one in chunks))
                answer = {"question": ASKED, "flow": flow}
                found.append((await client.post("/v1/answer", json=answer)).json()["answer"])
                streamed = (await client.post("/v1/answer", json={**answer, "stream": True})).text.split("\n")
                found.append("".join(json.loads(row[6:]) for row in streamed if row.startswith('data: "')))
                (citation,) = whole["spolia"]["citations"]
                assert citation["quote"] in TEXT
            return found

    return asyncio.run(asked())


def test_every_way_of_answering_is_inert_unless_live_markdown_is_wanted(served: Any) -> None:
    inert, live = texts(served(False)), texts(served(True))
    assert len(inert) == len(live) == 10
    assert [PLAN in one for one in live] == [True] * 10
    for one in inert:
        assert disarm(PLAN) in one
        assert disarm(one) == one
