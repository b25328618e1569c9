"""The embedder and the reranker of the server, asked by OpenAI's client and by our own."""

from __future__ import annotations

import re
from base64 import b64decode

import pytest

pytest.importorskip("uvicorn", reason="the extra `server` is not installed")
pytest.importorskip("openai", reason="OpenAI's client is not installed")

import numpy as np
import openai

from spolia.models import RerankModel
from spolia.testing.server import vector
from tests.server.conftest import Served
from tests.server.test_chat import client

pytestmark = pytest.mark.slow
TEXTS = ["The moon.", "A mine."]


@pytest.mark.parametrize("form", ["float", "base64"])
def test_texts_are_embedded_as_openais_clients_want_it(served: Served, form: str) -> None:
    reply = client(served).embeddings.create(model="vectors", input=TEXTS, encoding_format=form)
    rows = [np.frombuffer(b64decode(row.embedding), "<f4") if form == "base64" else row.embedding
            for row in reply.data]  # fmt: skip
    vectors = np.array([vector(text, 8) for text in TEXTS])
    assert np.allclose(rows, vectors / np.linalg.norm(vectors, axis=1, keepdims=True), atol=1e-6)
    assert reply.usage.prompt_tokens > 0


def test_other_models_and_sizes_are_refused(served: Served) -> None:
    with pytest.raises(openai.NotFoundError, match="vectors"):
        client(served).embeddings.create(model="text-embedding-3-small", input="moon")
    with pytest.raises(openai.BadRequestError, match="8 numbers"):
        client(served).embeddings.create(model="vectors", input="moon", dimensions=2)


def test_documents_are_reranked(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPOLIA_TEST_KEY", served.keys["bob"])
    for form in ("cohere", "jina", "vllm"):
        model = RerankModel("scores", f"{served.url}/v1", form=form, api_key_env="SPOLIA_TEST_KEY")
        assert model.scores("the moon", ["A mine.", "The moon."]) == (0.0, 1.0)
    request = {
        "query": "the moon",
        "documents": [{"text": "A mine."}, "The moon."],
        "top_n": 1,
        "return_documents": True,
    }
    with served.client("bob") as bob:
        reply = bob.post("/v1/rerank", json=request).json()
    assert reply["results"] == [{"index": 1, "relevance_score": 1.0, "document": {"text": "The moon."}}]


def test_requests_and_answers_are_counted(served: Served) -> None:
    with served.client("ann") as ann:

        def count(pattern: str) -> float:
            return sum(map(float, re.findall(f"^{pattern} (.*)$", ann.get("/metrics").text, re.MULTILINE)))

        kinds = (
            'spolia_requests_total{route="/v1/answer",status="200"}',
            'spolia_answers_total{.*flow="grounded".*}',
            'spolia_tokens_total{flow="grounded",kind="input"}',
        )
        counts_before = [count(kind) for kind in kinds]
        answer = ann.post("/v1/answer", json={"question": "What causes counted tides?", "flow": "grounded"})
        assert answer.status_code == 200
        assert [count(kind) - old for kind, old in zip(kinds, counts_before, strict=True)] == [1, 1, 7]
        metrics = ann.get("/metrics").text
    assert not [name for name in ("ann", "counted tides", *served.keys.values()) if name in metrics]
