"""A prompt is replied to: what it cost is counted, and what is no reply is an error with a type."""

from __future__ import annotations

import pytest

from spolia import ChatModel, Run
from spolia.errors import ModelRejected, ModelUnavailable, WiringError
from spolia.generation.prompt import Generate
from spolia.models.prompting.stand_in_models import ScriptedModel
from spolia.testing import OpenAIServer, ServedReply
from spolia.types import Failure, Message, Prompt

ASKED = Prompt((Message("user", "The capital?"),))


def test_what_it_cost_is_counted() -> None:
    with OpenAIServer(ServedReply("Paris.", usage=(7, 2))) as server, Run() as run:
        assert Generate(ChatModel("any", server.url))(ASKED).text == "Paris."
    assert (run.usage.calls, run.usage.input_tokens, run.usage.output_tokens) == (1, 7, 2)


@pytest.mark.slow
def test_what_may_pass_is_tried_again_as_often_as_the_model_says() -> None:
    with OpenAIServer(ServedReply(status=503), ServedReply("Paris.")) as server:
        assert Generate(ChatModel("any", server.url, retries=1))(ASKED).text == "Paris."
        assert len(server.requests) == 2
    with OpenAIServer(ServedReply(status=503)) as server, pytest.raises(ModelUnavailable):
        Generate(ChatModel("any", server.url, retries=0))(ASKED)


@pytest.mark.slow
def test_a_model_that_is_silent_for_too_long_is_left() -> None:
    with OpenAIServer(ServedReply(fault="hang")) as server, pytest.raises(ModelUnavailable, match=r"0\.2 s"):
        Generate(ChatModel("any", server.url, timeout_s=0.2, retries=0))(ASKED)


def test_nothing_and_a_refusal_are_outcomes_of_their_own() -> None:
    with OpenAIServer(ServedReply("")) as server:
        (row,) = Generate(ChatModel("any", server.url, retries=0)).batch([ASKED])
    assert isinstance(row, Failure)
    assert row.kind == "EmptyReply"
    with pytest.raises(ModelRejected):
        Generate(ScriptedModel((("another question", "x"),)))(ASKED)


def test_a_reply_that_goes_on_for_ever_is_cut_and_says_so() -> None:
    cut = Generate(ScriptedModel(("no " * 10_000,)), max_tokens=5)(ASKED)
    assert (len(cut.text.split()), cut.finish_reason) == (5, "length")
    with pytest.raises(WiringError):
        Generate(ScriptedModel(("x",)), max_tokens=0)
