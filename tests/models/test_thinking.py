"""Chat models that think, and servers that take other settings than before: what they refuse is learnt from them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from spolia.core.codec import decode, encode
from spolia.core.run_context import Done, Emitted, Retracted
from spolia.errors import DegradedWarning, ModelError, ModelRejected, ThoughtCut
from spolia.generation.prompt import Generate
from spolia.generation.reader import Reader
from spolia.journal import Runs
from spolia.models import CompletionModel, EmbeddingModel, RerankModel, ScriptedModel, Text
from spolia.models.http import retry
from spolia.models.http.chat import ChatModel
from spolia.models.http.replies import Reply
from spolia.models.http.transcriber import Transcriber
from spolia.models.marks import CHANNELS, FINAL
from spolia.models.prompting import role, thought_budget
from spolia.models.prompting.role import Ask, Role, generate_answer
from spolia.models.prompting.thought_budget import LEARNT
from spolia.run import Run
from spolia.testing import OpenAIServer, ServedReply
from spolia.types import Generation, Hit, Message, Node, Prompt, Query, Ranking

PROMPT = Prompt((Message("user", "Who employed Carsten Olsen?"),))
FOUND = Ranking(Query("Who employed Olsen?"), (Hit(Node("n", "Nokia employed Olsen.", "d"), 1.0),))
IN_JSON = "<|channel|>final <|constrain|>json<|message|>"
OF_TODAY = ("max_tokens", "temperature", "seed")
"""What models that think refuse at OpenAI."""


@pytest.fixture(autouse=True)
def nothing_learnt(monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers of earlier tests had the same port."""
    monkeypatch.setattr(retry, "_refused", {})
    monkeypatch.setattr(thought_budget, "_learnt_room", {})


def request_body(served: ServedReply, **settings: Any) -> dict[str, Any]:
    """The body of one request."""
    with OpenAIServer(served) as server:
        ChatModel("any", server.url, retries=0, **settings).generate(PROMPT, max_tokens=9)
    body: dict[str, Any] = server.requests[-1].body
    return body


@pytest.mark.slow
@pytest.mark.parametrize("streams", [False, True])
def test_what_a_server_refuses_is_learnt_once_and_said_in_each_trace(streams: bool, tmp_path: Path) -> None:
    runs = Runs(tmp_path / "runs.db")
    with OpenAIServer(ServedReply("Nokia.", refuses=OF_TODAY)) as server:
        step = Generate(ChatModel("o9", server.url, retries=0), max_tokens=9)
        for first in (True, False):
            with Run(journal=runs.journal) as run:
                *_, done = step.stream(PROMPT) if streams else (Done(step(PROMPT)),)
            assert isinstance(done, Done)
            assert done.value.text == "Nokia."
            assert len(server.requests) == (4 if first else 5)
            runs.journal.flush()
            notes = " ".join(remark for span in runs.journal.spans(run.id) for remark in span.notes)
            assert "o9 at http" in notes
            assert "refuses temperature; the request was sent without it" in notes
            assert "refuses max_tokens; the request was sent as max_completion_tokens" in notes
    runs.close()
    body = server.requests[-1].body
    assert body["max_completion_tokens"] == 9
    assert not body.keys() & set(OF_TODAY)


@pytest.mark.slow
def test_a_server_that_refuses_to_stream_is_asked_for_the_whole_reply() -> None:
    with OpenAIServer(ServedReply("Nokia.", refuses=("stream",))) as server, Run():
        *_, done = Generate(ChatModel("o9", server.url, retries=0)).stream(PROMPT)
    assert isinstance(done, Done)
    assert done.value.text == "Nokia."
    assert [request.body.keys() & {"stream", "stream_options"} for request in server.requests[1:]] == [set()]


@pytest.mark.slow
def test_another_model_at_the_same_address_is_asked_as_before() -> None:
    with OpenAIServer(ServedReply("Nokia.", refuses=("temperature",)), ServedReply()) as server:
        ChatModel("o9", server.url, retries=0).generate(PROMPT)
        ChatModel("gpt", server.url, retries=0).generate(PROMPT)
    assert ["temperature" in request.body for request in server.requests] == [True, False, True]


@pytest.mark.slow
@pytest.mark.parametrize(
    "message",
    ["max_tokens is too large: 9999.", "The prompt says that temperature is unsupported.", "Unknown setting: stop"],
)
def test_an_error_that_refuses_nothing_that_can_be_left_out_is_an_error(message: str) -> None:
    body = b'{"error": {"message": "%s", "param": "messages"}}' % message.encode()
    with OpenAIServer(ServedReply(status=400, body=body)) as server, pytest.raises(ModelRejected):
        ChatModel("any", server.url, retries=0).generate(PROMPT)
    assert len(server.requests) == 1


@pytest.mark.slow
def test_settings_of_thinking_are_sent_where_they_are_given() -> None:
    plain = request_body(ServedReply())
    assert plain["max_tokens"] == 9
    assert not plain.keys() & {"top_p", "reasoning_effort", "chat_template_kwargs"}
    settings = {"reasoning_effort": "low", "top_p": 0.9, "thinking": False, "extra": '{"top_k": 20}'}
    body = request_body(ServedReply(), thought_tokens=1000, **settings)
    assert (body["max_tokens"], body["reasoning_effort"], body["top_p"], body["top_k"]) == (1009, "low", 0.9, 20)
    assert body["chat_template_kwargs"] == {"enable_thinking": False}


@pytest.mark.parametrize("wrong", [{"extra": "[1]"}, {"extra": "{"}, {"top_p": 0.0}, {"thought_tokens": -1}])
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ModelError, match="ChatModel got"):
        ChatModel("any", "http://127.0.0.1:1/v1", **wrong)


def test_new_settings_leave_the_hash_of_a_model_without_them_as_it_was_and_change_it_where_they_are_given() -> None:
    plain = ChatModel("qwen3", "http://127.0.0.1:8000/v1")
    assert plain.digest.hex() == "54310c997f3a83bae91092e6bec032c9"
    variants = [
        plain.but(**variant) for variant in ({"top_p": 0.5}, {"thinking": True}, {"extra": "{}"}, {"thought_tokens": 1})
    ]
    assert len({plain.digest, *(variant.digest for variant in variants)}) == 5
    assert len({plain.fingerprint(), *(variant.fingerprint() for variant in variants)}) == 5
    assert plain.fingerprint() == "http://127.0.0.1:8000/v1|qwen3"
    assert decode(encode(variants[1])) == variants[1]


def test_a_step_does_not_take_a_model_with_other_settings_for_its_own() -> None:
    mine = ChatModel("m", "http://h/v1", top_p=0.5)
    step = Ask(mine, Role("Who?\n{{question}}", Text()))
    assert step.declares(mine.but(retries=9))
    assert not any(step.declares(mine.but(**settings)) for settings in ({"top_p": 1.0}, {"extra": '{"top_k": 1}'}))


@pytest.mark.parametrize("kind", [ChatModel, CompletionModel, EmbeddingModel, RerankModel, Transcriber])
def test_times_attempts_and_limits_are_no_part_of_what_results_are_kept_under(kind: Any) -> None:
    plain = kind("m", "http://h/v1")
    patient = plain.but(timeout_s=9.0, connect_timeout_s=9.0, deadline_s=9.0, retries=9, wait_s=9.0, max_wait_s=9.0)
    assert patient != plain
    assert plain.digest == patient.digest == plain.but(max_concurrent=9).digest
    assert decode(encode(patient)) == patient
    assert plain.digest != kind("m", "http://h/other/v1").digest


def test_the_hash_of_models_with_usual_settings_is_that_under_which_results_are_kept() -> None:
    models = (CompletionModel("m", "http://h/v1"), EmbeddingModel("m", "http://h/v1"), RerankModel("m", "http://h/v1"))
    assert [model.digest.hex() for model in models] == [
        "9c07fbe05d5be944839e6154085865f6", "5026f65e411e3ff8eb6b431b7abc31bc", "8dd5f49939e799d272025e43703d27d7"
    ]  # fmt: skip


@pytest.mark.slow
def test_the_address_of_azure_keeps_its_version_and_the_key_has_its_header(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_KEY", "secret")
    with OpenAIServer(ServedReply("Nokia.")) as server:
        url = f"{server.url}/deployments/mine/?api-version=2024-10-21"
        ChatModel("any", url, api_key_env="AZURE_KEY").generate(PROMPT)
    (request,) = server.requests
    assert request.path == "/v1/deployments/mine/chat/completions?api-version=2024-10-21"
    assert request.headers["api-key"] == "secret"
    assert "authorization" not in request.headers


@pytest.mark.slow
@pytest.mark.parametrize("key", ["k", "e", "EMPTY", "token", "embeddings"])
def test_a_made_up_key_for_a_server_of_ones_own_changes_no_reply(monkeypatch: pytest.MonkeyPatch, key: str) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", key)
    raw_reply = "<think>EMPTY thanks</think>Write a token for embeddings, and keep the rest EMPTY."
    with OpenAIServer(ServedReply(raw_reply)) as server:
        reply = ChatModel("any", server.url).generate(PROMPT)
    assert reply.text == raw_reply


@pytest.mark.slow
def test_thoughts_that_a_server_sends_apart_are_no_part_of_the_reply() -> None:
    with OpenAIServer(ServedReply("Nokia.", thoughts="Sony?")) as server:
        pieces: list[str] = []
        model = ChatModel("any", server.url)
        generation = Generation("Nokia.", thoughts="Sony?")
        assert model.generate(PROMPT, on_text=pieces.append) == model.generate(PROMPT) == generation
    assert pieces == ["Nokia."]


@pytest.mark.slow
@pytest.mark.parametrize("streams", [False, True])
def test_a_reply_in_parts_is_its_text_without_what_the_model_thinks(streams: bool) -> None:
    thinking = {"type": "thinking", "thinking": [{"type": "text", "text": "Sony?"}]}
    parts = [thinking, {"type": "output_text", "text": "No"}, "kia", {"type": "text", "text": "."}]
    whole = {"choices": [{"message": {"role": "assistant", "content": parts}, "finish_reason": "stop"}]}
    pieces: list[str] = []
    with OpenAIServer(ServedReply(body=json.dumps(whole).encode())) as server:
        model = ChatModel("magistral", server.url, retries=0)
        reply = model.generate(PROMPT, on_text=pieces.append if streams else None)
        assert reply == Generation("Nokia.", thoughts="Sony?")
    assert pieces == ["Nokia."] * streams


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
def test_a_thought_has_one_of_two_names(name: str) -> None:
    reply = Reply()
    reply.take(json.dumps({"choices": [{"message": {"content": "Nokia.", name: "Sony?"}}]}), "message")
    assert reply.generation(False).thoughts == "Sony?"


CUT = (
    ServedReply("<think>let me see", finish_reason="length"),
    ServedReply("", finish_reason="length", thoughts="let me see"),
)
ANSWERED = ServedReply("<think>Sony?</think> Nokia [1].")


@pytest.mark.slow
@pytest.mark.parametrize("cut", CUT, ids=["inline", "field"])
@pytest.mark.parametrize("streams", [False, True])
def test_the_first_reply_that_ends_in_its_thought_gives_the_model_tokens_to_think(
    cut: ServedReply, streams: bool
) -> None:
    with OpenAIServer(cut, ANSWERED) as server, Run(cache=None):
        read = Reader(ChatModel("m", server.url))
        for _ in range(2):
            *_, done = read.stream(FOUND) if streams else (Done(read(FOUND)),)
            assert isinstance(done, Done)
            assert done.value.text == "Nokia [1]."
    assert [request.body["max_tokens"] for request in server.requests] == [512, 512 + LEARNT, 512 + LEARNT]


@pytest.mark.slow
@pytest.mark.parametrize("cut", CUT, ids=["inline", "field"])
@pytest.mark.parametrize("set_by_the_user", [0, 100])
def test_a_thought_that_fills_all_tokens_names_the_switch(cut: ServedReply, set_by_the_user: int) -> None:
    with OpenAIServer(cut) as server, Run(cache=None):
        model = ChatModel("m", server.url, thought_tokens=set_by_the_user)
        thought_tokens = set_by_the_user or LEARNT
        with pytest.raises(
            ThoughtCut, match=f"all {512 + thought_tokens:,} tokens .*--think N, .* more than {thought_tokens:,}"
        ):
            Reader(model)(FOUND)
        asked_count = len(server.requests)
        assert asked_count == (1 if set_by_the_user else 2)
        with pytest.warns(DegradedWarning, match="--think N"):
            assert Ask(model, Role("Who?\n{{question}}", Text(), default="nobody")).reply(question="Who?") == "nobody"
    assert len(server.requests) == 2 * asked_count  # it is not sent back, which would end in its thought too


@pytest.mark.slow
def test_a_server_that_refuses_so_many_tokens_is_not_asked_for_them_again() -> None:
    refuses = ServedReply(status=400, body=b'{"error": {"message": "max_tokens is too large"}}')
    with OpenAIServer(CUT[0], refuses, ServedReply("Nokia [1].")) as server, Run(cache=None):
        read = Reader(ChatModel("m", server.url, retries=0))
        with pytest.raises(ThoughtCut, match="--think N"):
            read(FOUND)
        assert read(FOUND).text == "Nokia [1]."
    assert [request.body["max_tokens"] for request in server.requests] == [512, 512 + LEARNT, 512]


def stream_reply(reply: str) -> str:
    """What is left of what a reader streams of a reply that comes word by word."""
    text = ""
    with Run(cache=None):
        for event in Reader(ScriptedModel((reply,))).stream(FOUND):
            if isinstance(event, Emitted):
                text += event.text
            elif isinstance(event, Retracted):
                text = text[: len(text) - event.characters]
    return text


@pytest.mark.parametrize(
    ("reply", "answer"),
    [
        ("<think>Sony? [1]</think>\n\nNokia [1].", "Nokia [1]."),
        (f"  <think> {'So it may be Sony > Nokia. ' * 50} </think> Nokia [1].", "Nokia [1]."),
        ("<think>ing machines were Nokia's [1].</think>", ""),
        ("Nokia <think> [1].", "Nokia <think> [1]."),
        ("<", "<"),
        ("Sony [1]? No, [2\n</think>\n\nNokia [1].", "Nokia [1]."),
        ("Sony?</think> No.</Reasoning > Nokia [1].", "Nokia [1]."),
        ("<THOUGHT>Sony?</thought>Nokia [1].", "Nokia [1]."),
        ("Sony, I thought.</think>", ""),
        ("Sony </think><think> or Nokia [1].", ""),
        ("Sony </think><think> or </think>Nokia [1].", "Nokia [1]."),
        (f"{CHANNELS[0]}<|message|>Sony? [1]<|end|><|start|>assistant{FINAL}Nokia [1].", "Nokia [1]."),
        (f"{FINAL}Nokia [1].", "Nokia [1]."),
        (f"{CHANNELS[0]}<|message|>Sony?<|end|>{IN_JSON}Nokia [1].", "Nokia [1]."),
        (f"{IN_JSON}Nokia [1].", "Nokia [1]."),
        (f"{CHANNELS[0]}<|message|>Sony, or [1]", ""),
        ("analysisSony?assistantfinalNokia [1].", "Nokia [1]."),
        ("<|channel>thought\nSony?<channel|>Nokia [1].", "Nokia [1]."),
        ("<|START_THINKING|>Sony?<|END_THINKING|><|START_RESPONSE|>Nokia [1].", "Nokia [1]."),
        ("<|begin_of_thought|>Sony?<|end_of_thought|>\n<|begin_of_solution|>Nokia [1].", "Nokia [1]."),
        ("[THINK]Sony?[/THINK]Nokia [1].", "Nokia [1]."),
        ("Use [think] at Nokia [1].", "Use [think] at Nokia [1]."),
        ("<longcat_think>Sony?</longcat_think>Nokia [1].", "Nokia [1]."),
        ("My steps: Sony?\n[BEGIN FINAL RESPONSE]\nNokia [1].", "Nokia [1]."),
    ],
)
def test_a_thought_is_neither_streamed_nor_part_of_the_answer(reply: str, answer: str) -> None:
    if not answer:
        with pytest.raises(ModelRejected, match="holds no answer"):
            Reader(ScriptedModel((reply,)))(FOUND)
        return
    assert Reader(ScriptedModel((reply,)))(FOUND).text == answer
    assert stream_reply(reply) == answer


@given(
    st.lists(
        st.sampled_from(
            [
                "<think>",
                "</think>",
                *CHANNELS,
                "<channel|>",
                "[/THINK]",
                "assistantfinal",
                FINAL,
                IN_JSON,
                "</",
                "think",
                ">",
                " ",
                "Nokia",
                "[1]",
                ".",
            ]
        ),
        max_size=12,
    )
)
@example(["</", " ", "</think>", " ", "</"])
def test_what_is_streamed_is_what_is_said_wherever_a_thought_ends(parts: list[str]) -> None:
    pieces = list[str]()
    model = ScriptedModel(("".join(parts),))
    with patch.object(role, "is_streamed", return_value=True):
        generation = generate_answer(model, PROMPT, pieces.append, max_tokens=9, take_back=pieces.clear)
    assert "".join(pieces) == generation.text
    assert not re.search("</think>|^<think>", generation.text)
