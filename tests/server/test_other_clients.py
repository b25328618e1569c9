"""Clients of other frameworks that speak OpenAI's API, where they are installed: together they take 340 MB."""

from __future__ import annotations

import pytest

from tests.server.conftest import Served

pytestmark = pytest.mark.slow
QUESTION, ANSWER = "What causes the tide?", "The moon causes it [1].\n\n[1] tides.md, line 1"


def test_langchains_client_asks_and_streams(served: Served) -> None:
    langchain = pytest.importorskip("langchain_openai", reason="LangChain's client is not installed")
    options = {"base_url": f"{served.url}/v1", "api_key": served.keys["bob"]}
    chat = langchain.ChatOpenAI(model="grounded", stream_usage=True, **options)
    reply = chat.invoke([("system", "Be brief."), ("human", QUESTION)])
    assert (reply.content, reply.usage_metadata["output_tokens"]) == (ANSWER, 3)
    chunks = list(chat.stream(f"{QUESTION} LangChain"))
    assert "".join(chunk.content for chunk in chunks) == ANSWER
    assert [chunk.usage_metadata["output_tokens"] for chunk in chunks if chunk.usage_metadata] == [3]
    embedder = langchain.OpenAIEmbeddings(model="vectors", check_embedding_ctx_length=False, **options)
    assert len(embedder.embed_query("moon")) == 8


def test_llama_indexs_client_asks_and_streams(served: Served) -> None:
    llama = pytest.importorskip("llama_index.llms.openai_like", reason="LlamaIndex's client is not installed")
    from llama_index.core.llms import ChatMessage  # type: ignore[import-not-found]

    model = llama.OpenAILike(
        model="grounded", api_base=f"{served.url}/v1", api_key=served.keys["bob"], is_chat_model=True
    )
    assert model.chat([ChatMessage(role="user", content=QUESTION)]).message.content == ANSWER
    deltas = [chunk.delta for chunk in model.stream_chat([ChatMessage(role="user", content=f"{QUESTION} LlamaIndex")])]
    assert "".join(filter(None, deltas)) == ANSWER
