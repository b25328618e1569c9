"""Rerankers by their published forms of request and reply."""

from __future__ import annotations

from typing import Any

import pytest

from spolia.errors import ModelError, ModelRejected
from spolia.models.http.embeddings import EmbeddingModel
from spolia.models.http.replies import smaller_batch
from spolia.models.http.reranking import FORMS, RerankModel, choose_form
from spolia.models.protocols import ImageScorer
from tests.cli.model_servers import RERANKERS, ModelServer, tei_rerank
from tests.stores.test_pictures import png

TEXTS = ["a blue sea", "red stones", "a red sea"]


@pytest.mark.slow
@pytest.mark.parametrize("form", RERANKERS)
def test_each_form_is_understood_by_its_server(form: Any) -> None:
    with ModelServer(form) as server:
        scores = RerankModel("m", server.url, form=form, api_key_env="").scores("red stones", TEXTS)
    assert scores == (0.0, 1.0, 0.5)
    assert [path for path, _ in server.asked] == [RERANKERS[form][1]]


@pytest.mark.slow
def test_tei_is_sent_no_more_texts_than_it_takes() -> None:
    with ModelServer("tei") as server:
        scores = RerankModel("", server.url, form="tei", api_key_env="").scores("red", ["red"] * 70)
    assert scores == (1.0,) * 70
    assert [len(body["texts"]) for _, body in server.asked] == [32, 32, 6]


def rerank_at_most_16(asked: Any) -> tuple[int, Any]:
    if (count := len(asked["texts"])) > 16:
        return 413, {"error": f"batch size {count} > maximum allowed batch size 16", "error_type": "Validation"}
    return tei_rerank(asked)


@pytest.mark.slow
def test_how_many_texts_a_server_takes_is_learnt_once_from_its_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    with ModelServer("TEI") as server, ModelServer("tei") as reranks:
        model = EmbeddingModel("m", server.url, dimension=12, api_key_env="", retries=0)
        texts = [f"text {number}" for number in range(70)]
        vectors = model.embed(texts, kind="passage")
        assert (vectors == [model.embed([text], kind="passage")[0] for text in texts]).all()
        scorer = RerankModel("m", reranks.url, form="tei", api_key_env="", retries=0)
        monkeypatch.setattr(reranks, "rerank", (*RERANKERS["tei"][:2], rerank_at_most_16))
        assert scorer.scores("red", ["red"] * 40) == (1.0,) * 40
    assert [len(body["input"]) for _, body in server.asked[:4]] == [70, 32, 32, 6]
    assert [len(body["texts"]) for _, body in reranks.asked] == [32, 16, 16, 8]


@pytest.mark.parametrize(
    "said",
    [
        "batch size is invalid, it should not be larger than 10.: input.contents",
        "* BatchEmbedContentsRequest.requests: at most 10 requests can be in one batch",
        "Too many inputs in request, split into more batches.",
    ],
)
def test_a_refusal_of_many_texts_is_read_in_the_words_of_each_host(said: str) -> None:
    assert smaller_batch(said, 70) == (35 if "Too many" in said else 10)
    assert smaller_batch(said, 1) == 0
    assert (
        smaller_batch("input is too large to process. increase the physical batch size (current batch size: 8)", 9) == 0
    )


@pytest.mark.slow
@pytest.mark.parametrize(("product", "form"), [("tei", "vllm"), ("voyage", "cohere"), ("cohere", "voyage")])
def test_another_form_than_the_servers_is_an_error(product: str, form: Any) -> None:
    with ModelServer(product) as server, pytest.raises(ModelRejected, match="m at http"):
        RerankModel("m", server.url, form=form, api_key_env="").scores("red", TEXTS)


def test_a_known_host_has_its_form_and_a_form_that_is_none_is_refused() -> None:
    assert choose_form("https://api.cohere.com/v2", "") is FORMS["cohere"]
    assert choose_form("https://api.jina.ai/v1", "") is FORMS["jina"]
    assert choose_form("http://127.0.0.1:8000/v1", "") is FORMS[""]
    with pytest.raises(ModelError, match="Write one of: cohere, jina, voyage, vllm, tei"):
        RerankModel("m", "http://127.0.0.1:1", form="TEI")  # type: ignore[arg-type]


@pytest.mark.slow
def test_pictures_beside_texts_are_sent_in_base64_as_jina_publishes_it() -> None:
    with ModelServer("jina") as server:
        model = RerankModel("jina-reranker-m0", server.url, form="jina", api_key_env="")
        scores = model.scores_of("red stones", [png("blue"), "red stones", png("red")])
        assert isinstance(model, ImageScorer)
    assert scores == (0.0, 1.0, 0.5)
    ((_, body),) = server.asked
    assert [sorted(document) for document in body["documents"]] == [["image"], ["text"], ["image"]]


@pytest.mark.parametrize("form", ["", "cohere", "voyage", "vllm", "tei"])
def test_a_form_without_pictures_refuses_them_before_anything_is_sent(form: Any) -> None:
    with pytest.raises(ModelError, match="in a form without pictures"):
        RerankModel("m", "http://127.0.0.1:1", form=form).scores_of("red", [b"picture"])
