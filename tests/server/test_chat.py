"""OpenAI's own client against the server."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("uvicorn", reason="the extra `server` is not installed")
pytest.importorskip("openai", reason="OpenAI's client is not installed")

import openai

from tests.server.conftest import STANDALONE, Served

pytestmark = pytest.mark.slow
TIDE = "What causes the tide?"


def client(served: Served, user: str = "ann", key: str = "") -> Any:
    return openai.OpenAI(base_url=f"{served.url}/v1", api_key=key or served.keys[user], max_retries=0)


def messages_of(content: Any) -> list[dict[str, Any]]:
    return [{"role": "system", "content": "Be brief."}, {"role": "user", "content": content}]


def test_flows_are_models(served: Served) -> None:
    models = client(served).models
    assert [model.id for model in models.list()] == ["naive", "grounded"]
    assert models.retrieve("grounded").owned_by == "spolia"


def test_an_answer_has_its_citations_as_footnotes_and_as_data(served: Served) -> None:
    parts = [{"type": "text", "text": TIDE}]
    completion = client(served).chat.completions.create(model="grounded", messages=messages_of(parts), temperature=0.3)
    (choice,) = completion.choices
    assert choice.message.content == "The moon causes it [1].\n\n[1] tides.md, line 1"
    assert choice.finish_reason == "stop"
    assert (completion.usage.prompt_tokens, completion.usage.completion_tokens) == (7, 3)
    (citation,) = completion.spolia["citations"]
    assert citation["quote"] == "The tide is caused by the pull of the moon."


@pytest.mark.parametrize("with_usage", [False, True])
def test_a_stream_says_what_the_answer_says(served: Served, with_usage: bool) -> None:
    more = {"stream_options": {"include_usage": True}} if with_usage else {}
    question = f"{TIDE} {with_usage}"
    with client(served).chat.completions.create(
        model="grounded", messages=messages_of(question), stream=True, **more
    ) as chunks:  # fmt: skip
        received = list(chunks)
    pieces = [chunk.choices[0].delta.content for chunk in received if chunk.choices and chunk.choices[0].delta.content]
    assert "".join(pieces) == "The moon causes it [1].\n\n[1] tides.md, line 1"
    assert len(pieces) > 3
    assert [chunk.usage.completion_tokens for chunk in received if chunk.usage] == [3] * with_usage
    last = received[-1 - with_usage]
    assert (last.choices[0].finish_reason, last.spolia["answer"]) == ("stop", "The moon causes it [1].")


def test_a_follow_up_question_is_made_standalone(served: Served) -> None:
    history = [
        {"role": "user", "content": "Who are the captains?"}, {"role": "assistant", "content": "Ann and others."},
    ]  # fmt: skip
    more = {"role": "user", "content": "Which one has the highest wage?"}
    completion = client(served).chat.completions.create(model="grounded", messages=[*history, more])
    prompts = [request.body["messages"] for request in served.model.requests if "messages" in request.body]
    condense, read = (messages[-1]["content"] for messages in prompts[-2:])
    assert "Ann and others." in condense
    assert STANDALONE in read
    assert completion.spolia["citations"][0]["uri"] == "salaries.md"


def test_errors_have_openais_form(served: Served) -> None:
    def raised(kind: Any, key: str = "", model: str = "grounded", content: Any = TIDE, **more: Any) -> Any:
        with pytest.raises(kind) as error:
            for _ in client(served, key=key).chat.completions.create(
                model=model, messages=messages_of(content), **more
            ):
                pass
        return error.value

    assert raised(openai.NotFoundError, model="gpt-9").code == "model_not_found"
    assert raised(openai.BadRequestError, n=2).param == "n"
    assert "tools" in str(raised(openai.BadRequestError, tools=[{"type": "function", "function": {"name": "f"}}]))
    image = raised(openai.BadRequestError, content=[{"type": "image_url", "image_url": {"url": "x"}}])
    assert "'image_url' is not read" in str(image)
    assert "sk-wrong" not in str(raised(openai.AuthenticationError, key="sk-wrong"))
    away = raised(openai.InternalServerError, content="What of the failing tide?")
    assert (away.status_code, away.code, away.response.headers["Retry-After"]) == (503, "model_unavailable", "7")
    streamed = raised(openai.APIError, content="What of the failing tide?", stream=True)
    assert (streamed.code, "cannot be reached" in str(streamed)) == ("model_unavailable", True)


def test_search_goes_on_without_the_model(served: Served) -> None:
    with served.client("bob") as bob:
        reply = bob.post("/v1/search", json={"question": "What of the failing tide?"}).json()
    assert [hit["uri"] for hit in reply["hits"]] == ["tides.md"]
