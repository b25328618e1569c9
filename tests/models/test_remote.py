"""Embeddings, rerankers and completions against a real server that fails as real ones do."""

from __future__ import annotations

import base64
import json
import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from spolia.core.check import check
from spolia.core.codec import decode, encode
from spolia.core.function import step
from spolia.core.operator import Operator
from spolia.errors import BudgetSpent, ModelError, ModelRejected, ModelUnavailable
from spolia.models.http import retry
from spolia.models.http.chat import ChatModel
from spolia.models.http.completions import CompletionModel
from spolia.models.http.embeddings import EmbeddingModel
from spolia.models.http.remote import Remote
from spolia.models.http.reranking import RerankModel
from spolia.models.http.retry import Rate
from spolia.models.parsers import JsonObject
from spolia.models.prompting.role import Role
from spolia.models.protocols import Embedder, ForetellsTokens, KeepsSchemas, Scorer, ScoresContinuations
from spolia.run import Budget, Run
from spolia.testing import OpenAIServer, ServedReply, check_embedder, check_language_model
from spolia.testing import server as openai_server
from spolia.testing.server import vector
from spolia.types import Message, Prompt, Token, Usage

KEY = "sk-secret-0123456789"
PROMPT = Prompt((Message("user", "The capital of France is"),), sample=3)
QUICK: dict[str, Any] = {"retries": 0, "wait_s": 0.01, "timeout_s": 5.0, "deadline_s": 10.0}


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)


def embedder(url: str, **changes: Any) -> EmbeddingModel:
    return EmbeddingModel("any", url, **{"dimension": 8, **QUICK, **changes})


def embed_two(url: str) -> Any:
    return embedder(url).embed(["a", "b"], kind="passage")


def rerank_two(url: str) -> Any:
    return RerankModel("any", url, **QUICK).scores("q", ["a", "b"])


def continue_prompt(url: str) -> Any:
    return CompletionModel("any", url, **QUICK).continuation(PROMPT, " Paris.")


def foretell(url: str) -> Any:
    return CompletionModel("any", url, **QUICK).next_tokens(PROMPT)


def foretell_in_chat(url: str) -> Any:
    return ChatModel("any", url, capabilities=frozenset({"chat", "next_tokens"}), **QUICK).next_tokens(PROMPT)


def chat(url: str) -> Any:
    return ChatModel("any", url, **QUICK).generate(PROMPT, max_tokens=9)


CALLS = [embed_two, rerank_two, continue_prompt, foretell, foretell_in_chat]

# ----------------------------------------------------------------------------------------------- what every call does


@pytest.mark.slow
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize(
    ("served", "error", "expected"),
    [
        (ServedReply(fault="reset"), ModelUnavailable, "connection broke"),
        (ServedReply(fault="truncate"), ModelUnavailable, "connection broke"),
        (ServedReply(status=429, headers=(("Retry-After", "9"),)), ModelUnavailable, "status 429"),
        (ServedReply(status=500), ModelUnavailable, r"status 500 for Bearer \[key\]"),
        (ServedReply(status=401), ModelRejected, "does not accept the key"),
        (ServedReply(status=404), ModelRejected, "does not know this address or model"),
        (ServedReply(status=307, headers=(("Location", "http://other.invalid/"),)), ModelRejected, "redirects to"),
        (ServedReply(body=b"<html>busy</html>"), ModelRejected, "no valid JSON"),
        (ServedReply(body=b"[" * 100_000), ModelRejected, "no valid JSON"),
        (ServedReply(body=b"[1]"), ModelRejected, "not a JSON object"),
        (ServedReply(body=b"{}"), ModelRejected, "it (gave|states|replied)"),
        (ServedReply(body=b'{"data": 7, "results": "no", "choices": {}}'), ModelRejected, "it (gave|states|replied)"),
        (
            ServedReply(body=b'{"data": [7], "results": [[]], "choices": [7]}'),
            ModelRejected,
            "it (gave|states|replied)",
        ),
    ],
)
def test_what_a_fault_ends_in(
    call: Callable[[str], Any], served: ServedReply, error: type[ModelError], expected: str
) -> None:
    with OpenAIServer(served) as server, pytest.raises(error, match=f"^any at http://127.0.0.1.*{expected}") as caught:
        call(server.url)
    assert KEY not in str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize("call", [*CALLS, chat])
def test_a_reply_of_10_megabytes_is_not_read_to_its_end(call: Callable[[str], Any]) -> None:
    message = "longer than 4[0-9]{6} bytes. That is more than was asked for. Check that base_url is a model's server"
    with OpenAIServer(ServedReply(body=b" " * 10_000_000)) as server, pytest.raises(ModelRejected, match=message):
        call(server.url)


@pytest.mark.slow
def test_a_stream_that_never_ends_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "LEAST_REPLY_BYTES", 100_000)
    pieces: list[str] = []
    with (
        OpenAIServer(ServedReply("word " * 50_000)) as server,
        pytest.raises(ModelRejected, match="than was asked for"),
    ):
        ChatModel("any", server.url, **QUICK).generate(PROMPT, max_tokens=9, on_text=pieces.append)
    assert 10 < len(pieces) < 2_000


@pytest.mark.slow
def test_long_vectors_of_many_texts_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "LEAST_REPLY_BYTES", 100_000)
    with OpenAIServer(ServedReply(dimension=1_000)) as server:
        model = EmbeddingModel("any", server.url, dimension=1_000, batch_texts=100, **QUICK)
        assert model.embed(["a"] * 100, kind="passage").shape == (100, 1_000)


@pytest.mark.slow
@pytest.mark.parametrize("call", CALLS)
def test_a_server_that_hangs_is_left(call: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(QUICK, "timeout_s", 0.2)
    with (
        OpenAIServer(ServedReply(fault="hang")) as server,
        pytest.raises(ModelUnavailable, match=r"sent nothing for 0.2 s"),
    ):
        call(server.url)


@pytest.mark.slow
@pytest.mark.parametrize("call", CALLS)
def test_what_may_pass_is_tried_again(call: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(QUICK, "retries", 3)
    busy = ServedReply(status=429, headers=(("Retry-After", "0"),))
    with OpenAIServer(busy, ServedReply(status=503), ServedReply(fault="reset"), ServedReply("Paris.")) as server:
        assert len(call(server.url))
    assert len(server.requests) == 4
    assert {request.headers["authorization"] for request in server.requests} == {f"Bearer {KEY}"}


@pytest.mark.parametrize(
    "model",
    [
        EmbeddingModel("any", "http://127.0.0.1:1/v1", dimension=8),
        RerankModel("any", "http://127.0.0.1:1/v1"),
        CompletionModel("any", "http://127.0.0.1:1/v1"),
    ],
    ids=lambda model: type(model).__name__,
)
def test_an_address_is_plain_data(model: Remote) -> None:
    known_classes = {type(model).__name__: type(model)}
    assert decode(encode(model), classes=known_classes) == model
    assert eval(repr(model)) == model


def test_they_are_what_operators_ask_for() -> None:
    url = "http://127.0.0.1:1/v1"
    assert isinstance(EmbeddingModel("any", url), Embedder)
    assert isinstance(RerankModel("any", url), Scorer)
    assert isinstance(CompletionModel("any", url), ScoresContinuations)
    assert isinstance(CompletionModel("any", url), ForetellsTokens)
    assert isinstance(ChatModel("any", url), ForetellsTokens)
    assert isinstance(ChatModel("any", url), KeepsSchemas)


# --------------------------------------------------------------------------------------------------------- embeddings


@pytest.mark.slow
def test_embeddings_keep_the_contract_of_embedders() -> None:
    with OpenAIServer() as server:
        check_embedder(embedder(server.url, window=500))


def test_the_test_server_takes_one_text_for_a_list_of_one() -> None:
    assert openai_server.embeddings_reply({"input": "ab"}, 8) == openai_server.embeddings_reply({"input": ["ab"]}, 8)


def test_vectors_come_in_the_order_of_the_texts_and_have_length_1() -> None:
    with OpenAIServer() as server:  # it replies in another order
        vectors = embedder(server.url).embed(["one", "two", "three"], kind="passage")
    for row, text in zip(vectors, ("one", "two", "three"), strict=True):
        stated = np.array(vector(text, 8))
        assert row == pytest.approx(stated / np.linalg.norm(stated), abs=1e-6)
    (request,) = server.requests
    assert request.path == "/v1/embeddings"
    assert request.body == {"model": "any", "input": ["one", "two", "three"], "encoding_format": "float"}


@pytest.mark.slow
def test_requests_are_bounded_in_texts_and_in_tokens() -> None:
    with OpenAIServer() as server:
        embedder(server.url, batch_texts=3).embed(["a"] * 7, kind="passage")
        assert [len(request.body["input"]) for request in server.requests] == [3, 3, 1]
        server.requests.clear()
        embedder(server.url, batch_tokens=10).embed(["x" * 12, "y" * 12, "z" * 12, "w" * 300], kind="passage")
        assert [len(request.body["input"]) for request in server.requests] == [2, 1, 1]


def test_queries_and_passages_have_their_prefixes_and_odd_texts_can_be_sent() -> None:
    with OpenAIServer() as server:
        model = embedder(server.url, query_prefix="query: ", passage_prefix="passage: ", shortened=True)
        model.embed(["a"], kind="query")
        model.embed(["a"], kind="passage")
        embedder(server.url, window=4).embed(["", "\x00", "\ud800", "abcdefghijklmnop"], kind="query")
    first, second, third = (request.body for request in server.requests)
    assert (first["input"], second["input"]) == (["query: a"], ["passage: a"])
    assert first["dimensions"] == 8
    assert third["input"] == [" ", " ", "?", "abcdefghijkl"]


def embedding_reply(*vectors: Any) -> ServedReply:
    rows = [{"index": index, "embedding": vector} for index, vector in enumerate(vectors)]
    return ServedReply(body=json.dumps({"data": rows}).encode())


@pytest.mark.parametrize(
    ("served", "expected"),
    [
        (embedding_reply([1.0] * 8), "it gave 1 vectors for 2 texts"),
        (embedding_reply([1.0] * 8, [1.0] * 9), r"shape \(9,\), not \(8,\). Write dimension=9"),
        (embedding_reply([1.0] * 8, [math.nan] * 8), "NaN, infinity or nothing but zeros"),
        (embedding_reply([1.0] * 8, [math.inf] * 8), "NaN, infinity or nothing but zeros"),
        (embedding_reply([1.0] * 8, [0.0] * 8), "NaN, infinity or nothing but zeros"),
        (embedding_reply([1.0] * 8, ["a"] * 8), "a vector that is none"),
        (embedding_reply([1.0] * 8, None), "a vector that is none|shape"),
        (embedding_reply([1.0] * 8, "not base64!"), "a vector that is none"),
        (embedding_reply([1.0] * 8, [[1.0] * 4] * 2), "shape"),
    ],
)
def test_vectors_that_are_none_are_refused(served: ServedReply, expected: str) -> None:
    with OpenAIServer(served) as server, pytest.raises(ModelRejected, match=expected):
        embed_two(server.url)


def test_vectors_in_base64_are_read_too() -> None:
    packed = base64.b64encode(struct.pack("<8f", 3.0, 4.0, *[0.0] * 6)).decode()
    with OpenAIServer(embedding_reply(packed, [2.0] + [0.0] * 7)) as server:
        vectors = embed_two(server.url)
    assert vectors[0, :2] == pytest.approx([0.6, 0.8])
    assert vectors[1, 0] == 1.0


# ---------------------------------------------------------------------------------------------------------- rerankers


@pytest.mark.slow
def test_scores_come_in_the_order_of_the_texts() -> None:
    with OpenAIServer() as server:
        scores = RerankModel("any", server.url).scores("red stone", ["blue", "red stone", "red"])
        many = RerankModel("any", server.url, batch_texts=2).scores("red stone", ["blue", "red stone", "red"])
        assert RerankModel("any", server.url).scores("red stone", []) == ()
    assert scores == many == (0.0, 1.0, 0.5)
    assert [len(request.body["documents"]) for request in server.requests] == [3, 2, 1]
    assert server.requests[0].path == "/v1/rerank"
    assert server.requests[0].body["top_n"] == 3


@pytest.mark.parametrize(
    "reply",
    [
        {"results": [{"index": 1, "relevance_score": 0.9}, {"index": 0, "relevance_score": -2}]},
        {"data": [{"index": 0, "relevance_score": -2}, {"index": 1, "relevance_score": 0.9}]},
        {"results": [{"index": 0, "score": -2, "text": "a"}, {"index": 1, "score": 0.9}]},
    ],
    ids=["Jina, Cohere, vLLM", "Voyage", "TEI"],
)
def test_the_dialects_of_rerankers(reply: Any) -> None:
    with OpenAIServer(ServedReply(body=json.dumps(reply).encode())) as server:
        assert rerank_two(server.url) == (-2.0, 0.9)


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([{"index": 0, "relevance_score": 1.0}], "no score for 1 of 2"),
        ([{"index": 0, "relevance_score": 1.0}, {"index": 7, "relevance_score": 1.0}], "no score for 1 of 2"),
        ([{"index": 0, "relevance_score": 1.0}, {"index": 1, "relevance_score": math.nan}], "not a finite number"),
        ([{"index": 0, "relevance_score": 1.0}, {"index": 1, "relevance_score": math.inf}], "not a finite number"),
        ([{"index": 0, "relevance_score": 1.0}, {"index": 1, "relevance_score": "1"}], "not a finite number"),
    ],
)
def test_scores_that_are_none_are_refused(rows: Any, expected: str) -> None:
    served = ServedReply(body=json.dumps({"results": rows}).encode())
    with OpenAIServer(served) as server, pytest.raises(ModelRejected, match=expected):
        rerank_two(server.url)


# -------------------------------------------------------------------------------------------------------- completions


@pytest.mark.slow
def test_completions_keep_the_contract_of_language_models() -> None:
    with OpenAIServer(ServedReply("One, two, three.")) as server:
        check_language_model(CompletionModel("any", server.url, **QUICK))


def test_a_continuation_is_scored_and_the_prompt_and_what_is_generated_are_not() -> None:
    with OpenAIServer(ServedReply(" and so on", logprob=-0.5)) as server:
        tokens = CompletionModel("any", server.url).continuation(PROMPT, " Paris of course")
        assert CompletionModel("any", server.url).continuation(PROMPT, "") == ()
    assert tokens == (Token(" Paris", -3.0), Token(" of", -1.5), Token(" course", -3.5))  # -0.5 a character
    assert server.requests[0].path == "/v1/completions"
    assert server.requests[0].body["echo"] is True
    assert server.requests[0].body["prompt"] == "The capital of France is Paris of course"


def echo_reply(tokens: list[str], numbers: list[float | None], offsets: list[int] | None = None) -> ServedReply:
    logprobs: dict[str, Any] = {"tokens": tokens, "token_logprobs": numbers}
    if offsets is not None:
        logprobs["text_offset"] = offsets
    return ServedReply(body=json.dumps({"choices": [{"text": "".join(tokens), "logprobs": logprobs}]}).encode())


def test_a_token_over_the_border_belongs_to_the_continuation() -> None:
    tokens, numbers = ["The capital of France", " is Pa", "ris", " now"], [None, -1.0, -2.0, -3.0]
    prompt = Prompt((Message("user", "The capital of France is"),))
    for offsets in ([0, 21, 27, 30], None):
        with OpenAIServer(echo_reply(tokens, numbers, offsets)) as server:
            scored_tokens = CompletionModel("any", server.url).continuation(prompt, " Paris")
        assert scored_tokens == (Token(" is Pa", -1.0), Token("ris", -2.0))


@pytest.mark.parametrize(
    "served",
    [
        ServedReply("x", logprob=None),
        echo_reply(["x"], [-1.0]),
        echo_reply(["The capital of France is", " Paris."], [-1.0, None]),
        echo_reply(["The capital of France is", " Paris."], [-1.0, math.nan]),
        echo_reply(["The capital of France is", " Paris."], [-1.0, 2.0]),
        echo_reply(["The capital of France is", " Paris."], [-1.0]),
    ],
    ids=["none", "no echo", "null", "NaN", "above 0", "too few"],
)
def test_no_log_probabilities_where_they_are_promised(served: ServedReply) -> None:
    with (
        OpenAIServer(served) as server,
        pytest.raises(ModelRejected, match=r"no log-probabilities of a text.*'scores'"),
    ):
        continue_prompt(server.url)


def test_next_tokens_are_the_most_probable_first() -> None:
    with OpenAIServer(ServedReply("Paris or Lyon", logprob=-0.5)) as server:
        completed = CompletionModel("any", server.url).next_tokens(PROMPT, top=2)
        chatted = ChatModel("any", server.url, capabilities=frozenset({"chat", "next_tokens"}))
        assert completed == (Token("Paris", -0.5), Token(" or", -1.0))
        assert chatted.next_tokens(PROMPT, top=3) == (Token("Paris", -0.5), Token("x", -1.0), Token("xx", -1.5))
    assert server.requests[1].body["top_logprobs"] == 3
    assert server.requests[1].body["max_tokens"] == 1


@pytest.mark.parametrize("call", [foretell, foretell_in_chat])
def test_no_next_tokens_where_they_are_promised(call: Callable[[str], Any]) -> None:
    with (
        OpenAIServer(ServedReply("Paris", logprob=None)) as server,
        pytest.raises(ModelRejected, match="'next_tokens' out"),
    ):
        call(server.url)


def test_what_a_server_cannot_do_is_refused_before_it_is_asked() -> None:
    with OpenAIServer() as server:
        completing = CompletionModel("any", server.url, capabilities=frozenset({"chat"}))
        chatting = ChatModel("any", server.url)
        for call in (
            lambda: completing.continuation(PROMPT, "x"),
            lambda: completing.next_tokens(PROMPT),
            lambda: completing.generate(PROMPT, logprobs=True),
            lambda: chatting.next_tokens(PROMPT),
            lambda: chatting.structured(PROMPT, {}),
        ):
            with pytest.raises(ModelRejected, match="capabilities"):
                call()
    assert not server.requests


# ---------------------------------------------------------------------------------------------------------- structure


def test_a_role_holds_a_model_that_can_to_its_parsers_schema(tmp_path: Any) -> None:
    file = tmp_path / "ask.txt"
    file.write_text("{{question}}")
    role = Role(str(file), JsonObject(("answer",)), default='{"answer": ""}')
    with OpenAIServer(ServedReply('{"answer": "Nokia"}')) as server:
        able = ChatModel("any", server.url, capabilities=frozenset({"chat", "structured"}))
        assert role.ask(able, {"question": "?"}) == {"answer": "Nokia"}
        assert role.ask(ChatModel("any", server.url), {"question": "?"}) == {"answer": "Nokia"}
    body, free = (request.body for request in server.requests)
    assert body["response_format"]["json_schema"]["schema"]["required"] == ["answer"]
    assert "response_format" not in free


# ----------------------------------------------------------------------------------------- usage, budgets and rates


@step
def use_model(model: Any) -> object:
    if isinstance(model, EmbeddingModel):
        return model.embed(["one two", "three"], kind="passage").shape
    if isinstance(model, RerankModel):
        return model.scores("q", ["a"])
    return model.continuation(PROMPT, " Paris.")


def flow() -> Operator[Any, object]:
    return use_model


def test_usage_is_what_the_server_states() -> None:
    with OpenAIServer() as server, Run() as run:
        flow()(embedder(server.url, usd_per_million=(1000.0, 0.0)))
        assert (run.usage.calls, run.usage.embedded, run.usage.input_tokens) == (0, 2, 3)
        assert run.usage.cost_usd == pytest.approx(0.003)
        flow()(RerankModel("any", server.url, usd_per_request=0.002))
        assert run.usage.cost_usd == pytest.approx(0.005)
        flow()(CompletionModel("any", server.url))
        assert (run.usage.calls, run.usage.output_tokens) == (1, 1)


def test_a_budget_of_two_calls_sends_two_attempts() -> None:
    with OpenAIServer(ServedReply(status=500)) as server, Run(budget=Budget(calls=2)), pytest.raises(BudgetSpent):
        flow()(CompletionModel("any", server.url, retries=5, wait_s=0.01))
    assert len(server.requests) == 2


def test_a_known_host_has_its_price_and_a_server_of_ones_own_none() -> None:
    usage = Usage(input_tokens=1_000_000, output_tokens=100_000)
    assert ChatModel("gpt-4o-mini", "https://api.openai.com/v1").add_price(usage).cost_usd == pytest.approx(0.21)
    assert ChatModel("gpt-4o-mini", "http://127.0.0.1:1/v1").add_price(usage).cost_usd == 0.0
    dear = ChatModel("gpt-4o-mini", "https://api.openai.com/v1", usd_per_million=(1.0, 1.0))
    assert dear.add_price(usage).cost_usd == pytest.approx(1.1)


def test_a_rate_allows_a_minutes_worth_at_once_and_then_an_even_flow() -> None:
    rate = Rate(120)
    assert [rate.book(1, now=0.0) for _ in range(120)] == pytest.approx([0.0] * 120)
    assert [rate.book(1, now=0.0) for _ in range(3)] == pytest.approx([0.5, 1.0, 1.5])
    assert rate.wait_s(1, now=60.0) == 0.0
    assert Rate(10).book(10_000, now=5.0) == 0.0, "what is more than a minute's worth would wait for ever"


@pytest.mark.slow
def test_requests_wait_for_the_limits_of_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    monkeypatch.setattr("spolia.models.http.retry.pause", waits.append)
    monkeypatch.setattr("spolia.models.http.retry.time.monotonic", lambda: 1000.0)
    with OpenAIServer() as server:
        model = ChatModel("two a minute", server.url, requests_per_minute=2, deadline_s=1e6)
        for _ in range(4):
            model.generate(PROMPT, max_tokens=1)
        assert waits == pytest.approx([30.0, 60.0])
        waits.clear()
        model = ChatModel("tokens", server.url, tokens_per_minute=600, deadline_s=1e6)
        for _ in range(3):
            model.generate(PROMPT, max_tokens=300 - 16)  # 8 bytes a third, and 8 for the message
        assert waits == pytest.approx([30.0])


def test_a_limit_beyond_the_deadline_is_refused_and_books_nothing() -> None:
    with OpenAIServer() as server:
        model = ChatModel("one a minute", server.url, requests_per_minute=1, **{**QUICK, "retries": 3})
        model.generate(PROMPT)
        for _ in range(2):
            with pytest.raises(ModelUnavailable, match=r"1 requests.*allow the next request in (60|59) s") as refused:
                model.generate(PROMPT)
        assert "Tried" not in str(refused.value)  # no other attempt is made, and none is waited for
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    "changes",
    [
        {"requests_per_minute": -1},
        {"tokens_per_minute": math.nan},
        {"timeout_s": 0},
        {"retries": -1},
        {"wait_s": math.nan},
        {"usd_per_million": (-1.0, 0.0)},
        {"usd_per_million": (1.0,)},
    ],
)
def test_settings_that_make_no_sense_are_refused(changes: dict[str, float]) -> None:
    with pytest.raises(ModelError, match=f"RerankModel got {next(iter(changes))}"):
        RerankModel("any", "http://127.0.0.1:1/v1", **changes)  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------------------------------- checks


@dataclass(frozen=True)
class Likely(Operator[str, float]):
    """An operator that scores continuations."""

    llm: ScoresContinuations

    def apply(self, value: str, /) -> float:
        return 0.0


def test_a_flow_is_checked_for_what_its_model_cannot_do() -> None:
    url = "http://127.0.0.1:1/v1"
    assert check(Likely(CompletionModel("any", url))).ok
    (problem,) = check(Likely(ChatModel("any", url))).problems  # type: ignore[arg-type]
    assert "needs scores of this model" in problem.message
