"""A chat model against a real server that fails as real ones do: each fault ends in a value or a typed error."""

from __future__ import annotations

import contextvars
import json
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest

from spolia.core.codec import decode, encode
from spolia.core.function import step
from spolia.core.operator import Operator
from spolia.errors import BudgetSpent, Cancelled, ModelError, ModelRejected, ModelUnavailable
from spolia.flow_files.files import load
from spolia.models.http.chat import ChatModel
from spolia.models.http.completions import CompletionModel
from spolia.models.protocols import LanguageModel
from spolia.run import Budget, Run
from spolia.testing import OpenAIServer, ServedReply, check_language_model
from spolia.testing.server import closed_port_url
from spolia.types import Generation, Message, Prompt

KEY = "sk-secret-0123456789"
PROMPT = Prompt((Message("system", "Be brief."), Message("user", "Who employed Carsten Olsen?")), sample=3)
ALL = frozenset({"chat", "stream", "logprobs"})


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)


def model(url: str, **changes: Any) -> ChatModel:
    """A model that is soon out of patience."""
    fields: dict[str, Any] = {"retries": 0, "wait_s": 0.01, "timeout_s": 5.0, "deadline_s": 10.0, "capabilities": ALL}
    return ChatModel("any", url, **(fields | changes))


def error_message(served: ServedReply, **changes: Any) -> str:
    """The message of the error that one reply ends in."""
    with OpenAIServer(served) as server, pytest.raises(ModelError) as caught:
        model(server.url, **changes).generate(PROMPT)
    whole, error = "", caught.value
    while error is not None:
        whole, error = f"{whole}{error}", error.__cause__ or error.__context__  # type: ignore[assignment]
    assert KEY not in whole
    assert str(caught.value).startswith("any at http://127.0.0.1")
    return f"{type(caught.value).__name__}: {caught.value}"


# ------------------------------------------------------------------------------------------------------------- success


def test_a_reply_is_asked_for_as_the_protocol_says() -> None:
    with OpenAIServer(ServedReply("Nokia did.")) as server:
        reply = model(server.url).generate(PROMPT, max_tokens=9, temperature=0.5, stop=("\n",))
    (request,) = server.requests
    assert reply == Generation("Nokia did.")
    assert request.path == "/v1/chat/completions"
    assert request.headers["authorization"] == f"Bearer {KEY}"
    assert request.body["messages"][1] == {"role": "user", "content": "Who employed Carsten Olsen?"}
    assert (request.body["seed"], request.body["max_tokens"], request.body["temperature"]) == (3, 9, 0.5)
    assert request.body["stop"] == ["\n"]
    assert "stream" not in request.body


@pytest.mark.slow
def test_it_keeps_the_contract_of_language_models() -> None:
    with OpenAIServer(ServedReply("One, two, three.")) as server:
        check_language_model(model(server.url))
        check_language_model(model(server.url, capabilities=frozenset({"chat"})))


def test_without_a_key_none_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY")
    with OpenAIServer() as server:
        model(server.url).generate(PROMPT)
        model(server.url, api_key_env="").generate(PROMPT)
    assert all("authorization" not in request.headers for request in server.requests)


def test_the_key_is_nowhere_in_the_address() -> None:
    chat_model = model("http://127.0.0.1:1/v1")
    assert isinstance(chat_model, LanguageModel)
    assert KEY not in repr(chat_model) + chat_model.fingerprint() + repr(encode(chat_model))
    assert decode(encode(chat_model)) == chat_model
    assert eval(repr(chat_model)) == chat_model
    assert chat_model.digest == model("http://127.0.0.1:1/v1", capabilities=frozenset(sorted(ALL))).digest


@pytest.mark.parametrize("fault", ["", "torn chunks", "torn events", "torn pairs"])
def test_characters_survive_being_torn_apart(fault: Any) -> None:
    text = "Søren ate 한국어 and 😀😀, ok?"
    pieces: list[str] = []
    with OpenAIServer(ServedReply(text, fault=fault)) as server:
        reply = model(server.url).generate(PROMPT, on_text=pieces.append)
    assert reply.text == "".join(pieces) == text
    assert len(pieces) > 3
    assert server.requests[0].body["stream_options"] == {"include_usage": True}


def test_half_a_character_at_the_end_is_marked_as_lost() -> None:
    body = b'{"choices":[{"message":{"content":"caf\xc3"},"finish_reason":"stop"}]}'
    with OpenAIServer(ServedReply(body=body)) as server:
        assert model(server.url).generate(PROMPT).text == "caf�"


def test_log_probabilities_come_with_the_tokens() -> None:
    with OpenAIServer(ServedReply("so it is")) as server:
        reply = model(server.url).generate(PROMPT, logprobs=True)
        streamed = model(server.url).generate(PROMPT, logprobs=True, on_text=lambda text: None)
    assert [token.logprob for token in reply.tokens] == [-0.25] * 3
    assert len(streamed.tokens) == 3


def test_a_reply_that_was_cut_says_so() -> None:
    with OpenAIServer(ServedReply("Once upon", finish_reason="length")) as server:
        whole = model(server.url).generate(PROMPT)
        streamed = model(server.url).generate(PROMPT, on_text=lambda text: None)
    assert whole == streamed == Generation("Once upon", "length")


def test_a_server_that_cannot_stream_is_heard_at_once() -> None:
    pieces: list[str] = []
    body = b'{"choices":[{"message":{"content":"All of it."}}]}'
    with OpenAIServer(ServedReply(body=body)) as server:
        model(server.url).generate(PROMPT, on_text=pieces.append)
    assert pieces == ["All of it."]


def test_connections_are_kept_and_a_stale_one_is_replaced() -> None:
    with OpenAIServer(
        ServedReply(), ServedReply(), ServedReply(headers=(("Connection", "close"),)), ServedReply()
    ) as server:
        for _ in range(4):
            assert model(server.url).generate(PROMPT).text == "ok"
        first, second, third, fourth = (request.port for request in server.requests)
    assert first == second == third != fourth


def test_the_connection_of_a_stream_is_kept_where_the_server_ends_it() -> None:
    with OpenAIServer(ServedReply(), ServedReply(fault="endless"), ServedReply()) as server:
        for _ in range(4):
            assert model(server.url).generate(PROMPT, on_text=lambda text: None).text == "ok"
        first, second, third, fourth = (request.port for request in server.requests)
    assert first == second != third == fourth


# -------------------------------------------------------------------------------------------------- failures that pass


def test_a_refused_connection() -> None:
    with pytest.raises(ModelUnavailable, match=r"refused.*Start the server"):
        model(closed_port_url()).generate(PROMPT)


def test_a_host_that_does_not_exist() -> None:
    with pytest.raises(ModelUnavailable, match="host name is not known"):
        model("http://no-such-host.invalid/v1").generate(PROMPT)


@pytest.mark.parametrize(
    ("served", "expected"),
    [
        (ServedReply(fault="hang"), "ModelUnavailable: .*sent nothing for 0.2 s"),
        (ServedReply(fault="reset"), "ModelUnavailable: .*connection broke before the reply was complete"),
        (ServedReply("x" * 99, fault="truncate"), "ModelUnavailable: .*connection broke before the reply was complete"),
        (ServedReply(status=429), "ModelUnavailable: .*status 429"),
        (ServedReply(status=500), r"ModelUnavailable: .*status 500: status 500 for Bearer \[key\]"),
        (ServedReply(status=503, body=b"<html>busy</html>"), "ModelUnavailable: .*status 503: <html>busy</html>"),
        (
            ServedReply(status=401),
            r"ModelRejected: .*does not accept the key.*Bearer \[key\].*check the key in OPENAI",
        ),
        (ServedReply(status=400), "ModelRejected: .*status 400"),
        (ServedReply(status=404), "ModelRejected: .*does not know this address or model.*Check model"),
        (ServedReply(body=b"<html>"), "ModelRejected: .*no valid JSON but '<html>'"),
        (ServedReply(body=b"[" * 100_000), "ModelRejected: .*no valid JSON"),
        (ServedReply(body=b"[1]"), "ModelRejected: .*not a JSON object"),
        (ServedReply(body=b'{"choices":[{"message":"hello"}]}'), "EmptyReply: .*no text"),
        (ServedReply(body=b'{"error":{"message":"overloaded"}}'), "ModelUnavailable: .*overloaded"),
        (ServedReply(fault="no choice"), "ModelRejected: .*without a choice"),
        (ServedReply(""), "EmptyReply: .*no text"),
        (ServedReply("", finish_reason="length"), "ThoughtCut: .*Write --think N"),
        (
            ServedReply(refusal="I cannot help with that."),
            "ModelRejected: .*refused to answer: I cannot help with that.",
        ),
        (ServedReply("Once", finish_reason="content_filter"), "ModelRejected: .*content filter"),
        (
            ServedReply(status=429, body=b'{"error":{"message":"pay","code":"insufficient_quota"}}'),
            "ModelRejected: .*no credit",
        ),
    ],
)
def test_what_a_fault_ends_in(served: ServedReply, expected: str) -> None:
    text = error_message(served, timeout_s=0.2 if served.fault == "hang" else 5.0)
    assert re.match(expected, text), text


@pytest.mark.parametrize(
    ("served", "expected"),
    [
        (ServedReply(refusal="I cannot help with that."), "refused to answer: I cannot help with that."),
        (ServedReply("Once upon", finish_reason="content_filter"), "content filter"),
        (ServedReply(""), "no text"),
        (ServedReply("", finish_reason="length"), "Write --think N"),
        (ServedReply(fault="no choice"), "no text"),
    ],
)
def test_what_a_fault_in_a_stream_ends_in(served: ServedReply, expected: str) -> None:
    with OpenAIServer(served) as server, pytest.raises(ModelRejected, match=expected):
        model(server.url, retries=3).generate(PROMPT, on_text=lambda text: None)
    assert len(server.requests) == 1


def test_a_refusal_in_the_middle_of_a_reply_is_a_refusal() -> None:
    deltas = [{"content": "Take the"}, {"refusal": "I cannot go on."}]
    events = [{"choices": [{"delta": delta, "finish_reason": "stop"}]} for delta in deltas]
    body = b"".join(b"data: %s\n\n" % json.dumps(event).encode() for event in events)
    served = ServedReply(body=body, headers=(("Content-Type", "text/event-stream"),))
    with OpenAIServer(served) as server, pytest.raises(ModelRejected, match="refused to answer: I cannot go on"):
        model(server.url).generate(PROMPT, on_text=lambda text: None)


def test_a_missing_key_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY")
    with (
        OpenAIServer(ServedReply(status=401)) as server,
        pytest.raises(ModelRejected, match="none was sent: set OPENAI"),
    ):
        model(server.url).generate(PROMPT)


def test_a_key_with_a_line_break_is_refused_without_quoting_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-1\r\nX-Evil: 2")
    with OpenAIServer() as server, pytest.raises(ModelRejected, match="OPENAI_API_KEY has a line break") as caught:
        model(server.url).generate(PROMPT)
    assert "sk-1" not in str(caught.value)
    assert not server.requests


def test_neither_documents_nor_key_follow_a_redirect() -> None:
    with OpenAIServer() as other_server:
        served = ServedReply(status=307, headers=(("Location", f"{other_server.url}/chat/completions"),))
        with (
            OpenAIServer(served) as server,
            pytest.raises(ModelRejected, match=f"redirects to {other_server.url}.*base_url"),
        ):
            model(server.url).generate(PROMPT)
        assert not other_server.requests


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["truncate", "stall"])
def test_a_stream_that_breaks_off_is_not_a_short_reply(fault: Any) -> None:
    pieces: list[str] = []
    with (
        OpenAIServer(ServedReply("one two three four", fault=fault)) as server,
        pytest.raises(ModelUnavailable) as caught,
    ):
        model(server.url, retries=3, timeout_s=0.3).generate(PROMPT, on_text=pieces.append)
    assert "".join(pieces) == "one two "
    assert "handed out already" in str(caught.value)
    assert len(server.requests) == 1


def test_a_stream_that_ends_without_a_reason_broke_off() -> None:
    body = b'data: {"choices":[{"delta":{"content":"one"}}]}\n\n'
    served = ServedReply(body=body, headers=(("Content-Type", "text/event-stream"),))
    with OpenAIServer(served) as server, pytest.raises(ModelUnavailable, match="ended in the middle, after 3 char"):
        model(server.url).generate(PROMPT, on_text=lambda text: None)


@pytest.mark.slow
def test_a_server_that_drips_is_cut_at_the_deadline() -> None:
    with (
        OpenAIServer(ServedReply("slow " * 99, fault="drip")) as server,
        pytest.raises(ModelUnavailable, match="deadline_s"),
    ):
        model(server.url, deadline_s=0.4).generate(PROMPT)


@pytest.mark.slow
@pytest.mark.parametrize("end", [(b"", b"0"), (b"0\r\n", b"X: a\r\n")], ids=["size", "trailers"])
def test_a_complete_reply_is_not_lost_where_the_server_drips_its_end(end: tuple[bytes, bytes]) -> None:
    events = (b'data: {"choices":[{"delta":{"content":"one"},"finish_reason":"stop"}]}\n\n', b"data: [DONE]\n\n")
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"

    def serve() -> None:
        with listening.accept()[0] as connection, suppress(OSError):
            connection.recv(65_536)
            connection.sendall(head + b"".join(b"%x\r\n%s\r\n" % (len(event), event) for event in events) + end[0])
            while True:
                connection.sendall(end[1])
                time.sleep(0.02)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = threading.Thread(target=serve)
        server.start()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}/v1"
        assert model(url).generate(PROMPT, on_text=lambda text: None).text == "one"
        server.join()


@pytest.mark.slow
def test_a_server_that_takes_no_connection() -> None:
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        url = f"http://127.0.0.1:{full.getsockname()[1]}/v1"
        with closing(socket.create_connection(full.getsockname())), pytest.raises(ModelUnavailable):
            model(url, connect_timeout_s=0.2, timeout_s=0.2).generate(PROMPT)


# ------------------------------------------------------------------------------------------------------------- retries


@pytest.mark.slow
def test_what_may_pass_is_tried_again() -> None:
    busy = ServedReply(status=429, headers=(("Retry-After", "0"),))
    with OpenAIServer(busy, ServedReply(status=500), ServedReply(fault="reset"), ServedReply("Yes.")) as server:
        assert model(server.url, retries=3).generate(PROMPT).text == "Yes."
    assert len(server.requests) == 4


def test_what_cannot_pass_is_not_tried_again() -> None:
    with OpenAIServer(ServedReply(status=401), ServedReply("Yes.")) as server, pytest.raises(ModelRejected):
        model(server.url, retries=3).generate(PROMPT)
    assert len(server.requests) == 1


@pytest.mark.slow
def test_attempts_are_counted_in_the_error() -> None:
    with OpenAIServer(ServedReply(status=500)) as server, pytest.raises(ModelUnavailable, match=r"Tried 3 times\."):
        model(server.url, retries=2).generate(PROMPT)
    assert len(server.requests) == 3


def measure_waits(monkeypatch: pytest.MonkeyPatch, *served: ServedReply, **changes: Any) -> list[float]:
    """How long it would have waited."""
    pauses: list[float] = []
    monkeypatch.setattr("spolia.models.http.retry.pause", pauses.append)
    with OpenAIServer(*served) as server:
        model(server.url, **{"retries": 3, "deadline_s": 100.0, **changes}).generate(PROMPT)
    return pauses


@pytest.mark.slow
def test_waits_grow_and_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    busy = ServedReply(status=503)
    first, second, third = measure_waits(monkeypatch, busy, busy, busy, ServedReply(), wait_s=1.0, max_wait_s=3.0)
    assert 0.5 <= first <= 1.0 <= second <= 2.0 <= third <= 3.0


@pytest.mark.slow
def test_the_server_says_how_long_to_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    (seconds,) = measure_waits(monkeypatch, ServedReply(status=429, headers=(("Retry-After", "7"),)), ServedReply())
    assert seconds == 7.0
    date = formatdate(time.time() + 20, usegmt=True)
    (seconds,) = measure_waits(monkeypatch, ServedReply(status=429, headers=(("Retry-After", date),)), ServedReply())
    assert 10.0 < seconds <= 20.0
    for nonsense in ("soon", "nan", "-5", "inf", "Mon, 99 Foo"):
        (seconds,) = measure_waits(
            monkeypatch, ServedReply(status=429, headers=(("Retry-After", nonsense),)), ServedReply()
        )
        assert seconds <= 0.01


def test_a_wait_beyond_all_patience_is_not_begun() -> None:
    served = ServedReply(status=429, headers=(("Retry-After", "3600"),))
    with OpenAIServer(served) as server, pytest.raises(ModelUnavailable, match="asks to wait 3600 s"):
        model(server.url, retries=3).generate(PROMPT)


def test_a_wait_beyond_the_deadline_is_not_begun() -> None:
    with OpenAIServer(ServedReply(status=500)) as server, pytest.raises(ModelUnavailable, match="leaves no time"):
        model(server.url, retries=3, wait_s=30.0, deadline_s=5.0).generate(PROMPT)


# --------------------------------------------------------------------------------------------- in a run


@step(waits=True)
def reply_text(value: Ask) -> str:
    return value.model.generate(PROMPT, on_text=value.on_text, max_tokens=100).text


class Ask:
    """What the operator above is given."""

    def __init__(self, model: ChatModel, on_text: Callable[[str], None] | None = None) -> None:
        self.model, self.on_text = model, on_text


def flow() -> Operator[Any, str]:
    return reply_text


def test_usage_is_what_the_server_states_else_an_estimate() -> None:
    served = (ServedReply("Yes.", usage=(1000, 2000)), ServedReply("Yes indeed.", usage=None), ServedReply(status=401))
    with OpenAIServer(*served) as server, Run() as run:
        flow()(Ask(model(server.url, usd_per_million=(2.0, 10.0))))
        assert (run.usage.calls, run.usage.input_tokens, run.usage.output_tokens) == (1, 1000, 2000)
        assert run.usage.cost_usd == pytest.approx(0.022)
        flow()(Ask(model(server.url)))
        assert run.usage.calls == 2
        assert 1010 < run.usage.input_tokens < 1100
        assert 2001 < run.usage.output_tokens < 2010
        with pytest.raises(ModelRejected):
            flow()(Ask(model(server.url)))
        assert run.usage.calls == 3


def test_a_budget_of_two_calls_sends_two_attempts() -> None:
    with OpenAIServer(ServedReply(status=500)) as server, Run(budget=Budget(calls=2)), pytest.raises(BudgetSpent):
        flow()(Ask(model(server.url, retries=5)))
    assert len(server.requests) == 2


@pytest.mark.parametrize(
    ("served", "billed"),
    [
        (ServedReply("x" * 99, fault="truncate", usage=None), True),
        (ServedReply(fault="reset"), True),
        (ServedReply(status=500), False),
        (None, False),
    ],
    ids=["in the middle", "before the reply", "an error", "no connection"],
)
def test_a_call_that_breaks_after_it_was_sent_counts_at_its_bound(served: ServedReply | None, billed: bool) -> None:
    with OpenAIServer(served or ServedReply()) as server, Run() as run:
        url = server.url if served else "http://127.0.0.1:9/v1"
        with pytest.raises(ModelUnavailable):
            model(url).generate(Prompt((Message("user", "How high is the tide?"),)), max_tokens=100)
    assert (run.actual_usage.calls, run.actual_usage.output_tokens) == (1, 100 if billed else 0)


@pytest.mark.slow
def test_requests_at_a_time_are_limited_for_each_server() -> None:
    with OpenAIServer(ServedReply("a b c", fault="torn chunks")) as server, Run(threads=8):
        flow().batch([Ask(model(server.url, max_concurrent=2), lambda text: time.sleep(0.01))] * 8)
    assert len(server.requests) == 8
    assert server.most_at_once <= 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("served", "changes"),
    [
        (ServedReply(fault="hang"), {}),
        (ServedReply("one two three four", fault="stall"), {}),
        (ServedReply(status=500), {"wait_s": 20.0, "retries": 3, "deadline_s": 60.0}),
    ],
    ids=["before the reply", "within the stream", "between attempts"],
)
def test_a_cancellation_ends_a_wait_at_once(served: ServedReply, changes: dict[str, Any]) -> None:
    ended: list[BaseException] = []
    with OpenAIServer(served) as server, Run() as run:

        def ask() -> None:
            try:
                flow()(Ask(model(server.url, **{"timeout_s": 30.0, "deadline_s": 60.0, **changes}), lambda text: None))
            except BaseException as error:
                ended.append(error)

        worker = threading.Thread(target=contextvars.copy_context().run, args=(ask,))
        worker.start()
        for _ in eventually(lambda: bool(server.requests)):
            pass
        time.sleep(0.1)
        run.cancel()
        worker.join(600)
        assert not worker.is_alive()
    assert [type(error) for error in ended] == [Cancelled]


def eventually(true: Callable[[], bool]) -> Iterator[None]:
    for _ in range(500):
        if true():
            return
        time.sleep(0.01)
        yield
    raise AssertionError("never came")


# --------------------------------------------------------------------------------------------------- building


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("127.0.0.1:8000/v1", "no web address. Write for example"),
        ("ftp://host/v1", "no web address"),
        ("http://[::1/v1", "no web address"),
        ("https://user:pass@host/v1", "holds more than an address"),
        ("https://host/v1?key=pass", "holds more than an address"),
        ("https://host/v1?api-version=1&key=pass", "holds more than an address"),
    ],
)
def test_an_address_that_is_none_or_holds_a_secret_is_refused(url: str, expected: str) -> None:
    with pytest.raises(ModelError, match=expected) as caught:
        ChatModel("any", url)
    assert "pass" not in str(caught.value).replace("password", "")


def test_what_a_server_cannot_do_is_refused_before_it_is_asked() -> None:
    with OpenAIServer() as server:
        with pytest.raises(ModelRejected, match="states no log-probabilities"):
            ChatModel("any", server.url).generate(PROMPT, logprobs=True)
        with pytest.raises(ModelRejected, match="does not chat"):
            ChatModel("any", server.url, capabilities=frozenset({"stream"})).generate(PROMPT)
    assert not server.requests


def test_a_capability_is_one_that_such_a_server_is_asked_for() -> None:
    with pytest.raises(
        ModelError, match=r"for 'strem'\. Write some of: chat, stream, logprobs, next_tokens, structured"
    ):
        ChatModel("any", "http://127.0.0.1:8000/v1", capabilities=frozenset({"chat", "strem"}))
    with pytest.raises(ModelError, match=r"for 'structured'\. Write some of: chat, logprobs, next_tokens, scores"):
        CompletionModel("any", "http://127.0.0.1:8000/v1", capabilities=frozenset({"structured"}))
    with pytest.raises(ModelRejected, match=r"Write capabilities=\{'chat', 'logprobs', 'stream'\}"):
        ChatModel("any", "http://127.0.0.1:1/v1").generate(PROMPT, logprobs=True)


def test_what_a_model_was_not_said_to_state_can_be_written_in_a_flow_file_as_the_error_says(tmp_path: Path) -> None:
    with OpenAIServer() as server:
        with pytest.raises(ModelRejected) as refused:
            ChatModel("any", server.url).generate(PROMPT, logprobs=True)
        advised = str(refused.value).partition("{use: llm}, write ")[2].removesuffix(".")
        (tmp_path / "flow.yaml").write_text(f"Rewrite: {{llm: {advised}}}\n")
        llm = load(tmp_path / "flow.yaml", env=("OPENAI_API_KEY",)).llm  # type: ignore[attr-defined]
        assert llm == ChatModel("any", server.url, capabilities=frozenset({"chat", "logprobs", "stream"}))
        assert llm.generate(PROMPT, logprobs=True).tokens


def test_a_server_that_ignores_the_wish_for_log_probabilities() -> None:
    with (
        OpenAIServer(ServedReply(logprob=None)) as server,
        pytest.raises(ModelRejected, match=r"states no log-probabilities. Name another server.*flow that needs none"),
    ):
        model(server.url).generate(PROMPT, logprobs=True)
