"""A model that hears, against a real server that answers and fails as real ones do."""

from __future__ import annotations

import json
from email import message_from_bytes
from typing import Any

import pytest

from spolia.core.codec import decode, encode
from spolia.errors import BudgetSpent, ModelError, ModelRejected, ModelUnavailable
from spolia.indexing.readers.converters import MediaReader
from spolia.indexing.readers.reader import Blob, reader_of
from spolia.indexing.readers.registry import by_suffix
from spolia.models.http.transcriber import SpeechSegment, Transcriber, Transcript
from spolia.run import Budget, Run
from spolia.testing import OpenAIServer, ServedReply
from spolia.testing.server import closed_port_url

KEY = "sk-secret-0123456789"
SAID = {
    "text": "Old stones. New walls.",
    "language": "english",
    "duration": 62.0,
    "segments": [
        {"start": 0.0, "end": 2.5, "text": " Old stones."},
        {"start": 60.0, "end": 62.0, "text": " New walls."},
    ],
}


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)


def transcription_reply(**options: Any) -> ServedReply:
    return ServedReply(body=json.dumps(SAID | options).encode())


def model(url: str, **changes: Any) -> Transcriber:
    return Transcriber("whisper-1", url, **({"retries": 0, "wait_s": 0.01, "deadline_s": 10.0} | changes))


def form(kind: str, body: bytes) -> dict[str, tuple[str | None, bytes]]:
    """The fields of a form: file name and content, as another program reads them."""
    message = message_from_bytes(f"Content-Type: {kind}\r\n\r\n".encode() + body)
    parts: Any = message.get_payload()
    return {
        str(part.get_param("name", header="content-disposition")): (part.get_filename(), part.get_payload(decode=True))
        for part in parts
    }


def test_a_recording_is_sent_as_the_protocol_says() -> None:
    recording = bytes(range(256)) * 10
    with OpenAIServer(transcription_reply()) as server:
        transcript = model(server.url, language="en", prompt="Spolia").transcribe('über "x".mp3', recording)
    (request,) = server.requests
    fields = form(request.headers["content-type"], request.body)
    assert request.path == "/v1/audio/transcriptions"
    assert request.headers["authorization"] == f"Bearer {KEY}"
    assert fields["file"] == ("_ber _x_.mp3", recording)
    assert {name: content for name, (_, content) in fields.items() if name != "file"} == {
        "model": b"whisper-1",
        "response_format": b"verbose_json",
        "timestamp_granularities[]": b"segment",
        "language": b"en",
        "prompt": b"Spolia",
    }
    assert transcript == Transcript(
        "Old stones. New walls.",
        (SpeechSegment(0, 2.5, "Old stones."), SpeechSegment(60, 62, "New walls.")),
        "english",
        62.0,
    )


def test_a_server_that_names_no_segments_is_heard_too() -> None:
    with OpenAIServer(ServedReply(body=b'{"text": "Old stones."}')) as server:
        reading = MediaReader(model(server.url)).read(Blob("a/talk.mp3", b"x"))
    assert (reading.document.text, reading.document.regions, reading.document.meta) == ("Old stones.", (), ())


def test_what_was_said_at_a_time_is_a_region() -> None:
    with OpenAIServer(transcription_reply()) as server:
        readers = by_suffix({"*.mp3": MediaReader(model(server.url))})
        reader = reader_of("a/talk.mp3", readers)
        assert reader is not None
        document = reader.read(Blob("a/talk.mp3", b"x")).document
    assert document.text == "Old stones.\nNew walls."
    assert [(document.text[region.start : region.end], region.seconds) for region in document.regions] == [
        ("Old stones.", (0.0, 2.5)),
        ("New walls.", (60.0, 62.0)),
    ]
    assert document.meta == (("language", "english"), ("duration_s", 62.0))


@pytest.mark.parametrize(
    ("reply", "kind", "said"),
    [
        (ServedReply(status=401), ModelRejected, "check the key in OPENAI_API_KEY"),
        (ServedReply(status=400), ModelRejected, "400"),
        (ServedReply(status=503), ModelUnavailable, "503"),
        (ServedReply(body=b"not json"), ModelUnavailable, "not a transcript"),
        (ServedReply(body=b'{"segments": []}'), ModelUnavailable, "not a transcript"),
        (ServedReply(body=b'{"text": "a", "segments": [{"start": "x"}]}'), ModelUnavailable, "not a transcript"),
        (ServedReply(fault="reset"), ModelUnavailable, "connection"),
        (ServedReply(body=json.dumps(SAID).encode(), fault="truncate"), ModelUnavailable, "connection"),
    ],
)
def test_faults_are_told_and_the_key_is_not(reply: ServedReply, kind: type[ModelError], said: str) -> None:
    with OpenAIServer(reply) as server, pytest.raises(kind, match=said) as caught:
        model(server.url).transcribe("a.mp3", b"x")
    assert KEY not in str(caught.value)
    assert str(caught.value).startswith("whisper-1 at http://127.0.0.1")


def test_nobody_listens() -> None:
    with pytest.raises(ModelUnavailable, match="no connection"):
        model(closed_port_url()).transcribe("a.mp3", b"x")


def test_what_may_pass_is_tried_again() -> None:
    with OpenAIServer(ServedReply(status=503), ServedReply(fault="reset"), transcription_reply()) as server:
        assert model(server.url, retries=3).transcribe("a.mp3", b"x").text == SAID["text"]
    assert len(server.requests) == 3


def test_a_recording_that_is_too_large_is_not_sent() -> None:
    with OpenAIServer(transcription_reply()) as server, pytest.raises(ModelRejected, match=r"11 bytes.*takes 10"):
        model(server.url, largest_bytes=10).transcribe("a.mp3", b"01234567890")
    assert not server.requests


def test_minutes_are_charged_and_a_budget_holds() -> None:
    with OpenAIServer(transcription_reply()) as server:
        hears = model(server.url, usd_per_minute=0.6)
        with Run() as run:
            hears.transcribe("a.mp3", b"x")
        assert run.usage.cost_usd == pytest.approx(0.62)
        with Run(budget=Budget(cost_usd=0.5)), pytest.raises(BudgetSpent):
            hears.transcribe("a.mp3", bytes(960_000))
    assert len(server.requests) == 1


def test_an_address_is_plain_and_holds_no_secret() -> None:
    transcriber = model("http://127.0.0.1:1/v1")
    assert KEY not in repr(transcriber) + repr(encode(transcriber))
    assert decode(encode(transcriber), classes={"Transcriber": Transcriber}) == transcriber
    with pytest.raises(ModelError, match="more than an address"):
        model("http://me:secret@127.0.0.1/v1")
    with pytest.raises(ModelError, match="largest_bytes=0"):
        model("http://127.0.0.1:1/v1", largest_bytes=0)


def test_no_recording_is_read_unless_asked() -> None:
    assert reader_of("talk.mp3", by_suffix()) is None
