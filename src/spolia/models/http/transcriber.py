"""Speech to text (https://platform.openai.com/docs/api-reference/audio/createTranscription)."""

import hashlib
import json
from dataclasses import dataclass
from typing import Any

from spolia.egress.exchange import RequestLimits
from spolia.errors import ModelError, ModelRejected, ModelUnavailable
from spolia.models.http.remote import check_url
from spolia.models.http.retry import Attempts, read_content
from spolia.types import Usage, Value
from spolia.types.value import neutral_field

_BYTES_PER_MINUTE = 960_000  # of speech at 128 kbit/s: what a file may cost is judged by that before it is heard


@dataclass(frozen=True)
class SpeechSegment(Value):
    """Stretch of speech: start and end in seconds from the beginning, and its words."""

    start_s: float
    end_s: float
    text: str


@dataclass(frozen=True)
class Transcript(Value):
    """Text of a recording.

    Args:
        segments: in order; empty where the server gives none.
        language: as the server names it.
        duration_s: of the recording, in seconds; 0 where the server does not say.
    """

    text: str
    segments: tuple[SpeechSegment, ...] = ()
    language: str = ""
    duration_s: float = 0.0


@dataclass(frozen=True)
class Transcriber(Value):
    """Address of a model that transcribes speech. It holds no secret: the key is read from the environment at each
    call.

    Args:
        model: what the server calls it.
        base_url: where the API begins, for example `http://127.0.0.1:8000/v1`. Recordings and the key are sent there
            and nowhere else.
        api_key_env: name of the environment variable with the key; nothing is sent where it is empty or not set.
        language: of the recording (ISO 639-1), if known.
        prompt: names and words that occur, so that they are spelt so.
        largest_bytes: of a recording that the server takes.
        connect_timeout_s, timeout_s, deadline_s, retries, wait_s, max_wait_s, max_concurrent: as for `ChatModel`.
        usd_per_minute: price of a minute of a recording.

    >>> from spolia.testing import OpenAIServer, ServedReply
    >>> body = b'{"text": "Stones.", "segments": [{"start": 0.0, "end": 1.5, "text": " Stones."}], "duration": 1.5}'
    >>> with OpenAIServer(ServedReply(body=body)) as server:
    ...     Transcriber("whisper-1", server.url).transcribe("a.mp3", b"...").segments
    (SpeechSegment(start_s=0.0, end_s=1.5, text='Stones.'),)
    """

    model: str
    base_url: str
    api_key_env: str = "OPENAI_API_KEY"
    language: str = ""
    prompt: str = ""
    largest_bytes: int = 25_000_000
    connect_timeout_s: float = neutral_field(5.0)
    timeout_s: float = neutral_field(300.0)
    deadline_s: float = neutral_field(900.0)
    retries: int = neutral_field(3)
    wait_s: float = neutral_field(0.5)
    max_wait_s: float = neutral_field(30.0)
    max_concurrent: int = neutral_field(2)
    usd_per_minute: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "base_url", check_url(self.base_url))
        for name in ("connect_timeout_s", "timeout_s", "deadline_s", "max_concurrent", "largest_bytes"):
            if not 0 < getattr(self, name) <= 1e10:
                raise ModelError(f"Transcriber got {name}={getattr(self, name)}. Write 0 < number.")

    @property
    def name(self) -> str:
        return self.model

    def transcribe(self, name: str, recording: bytes) -> Transcript:
        """Transcribe a recording.

        Args:
            name: of the file, whose suffix tells the server its format.

        Raises:
            ModelUnavailable: the same call may succeed later.
            ModelRejected: it will not: the recording is too large, or the server refuses it.
            BudgetSpent: refused before it was sent.
        """
        if len(recording) > self.largest_bytes:
            raise ModelRejected(
                f"{name} has {len(recording)} bytes, and {self.model} takes {self.largest_bytes}. Cut it, or pack it "
                "better, for example: ffmpeg -i IN -ac 1 -b:a 32k OUT.mp3 (largest_bytes says otherwise)."
            )
        return _Call(self, name, recording).persist()


@dataclass
class _Call(Attempts[Transcript]):
    model: Transcriber
    name: str
    recording: bytes

    def __post_init__(self) -> None:
        self.bound = self._usage = Usage(calls=1, cost_usd=self._price(len(self.recording) / _BYTES_PER_MINUTE))

    def exchange(self, limits: RequestLimits) -> Transcript:
        kind, body = self._form()
        with self.send("audio/transcriptions", body, limits, kind) as (response, key):
            transcript = _parse_transcript(read_content(response, key, self.largest))
        # Until the server states the length, the estimate by the size of the file counts.
        if transcript.duration_s:
            self._usage = Usage(calls=1, cost_usd=self._price(transcript.duration_s / 60))
        return transcript

    def usage(self) -> Usage:
        return self._usage

    def _price(self, minutes: float) -> float:
        return minutes * self.model.usd_per_minute

    def _form(self) -> tuple[str, bytes]:
        """Return the content type and the body of a form (RFC 7578) with the recording in it."""
        boundary = hashlib.blake2b(
            self.recording, digest_size=16
        ).hexdigest()  # nothing can hold its own hash by chance
        fields = {"model": self.model.model, "response_format": "verbose_json", "timestamp_granularities[]": "segment"}
        fields |= {name: text for name in ("language", "prompt") if (text := getattr(self.model, name))}
        pieces = [_field(boundary, f'name="{name}"', text.encode()) for name, text in fields.items()]
        # A quote or line break in a file name would end the header.
        file_name = "".join(letter if letter.isalnum() or letter in "._- " else "_" for letter in self.name)
        file_name = file_name.encode("ascii", "replace").decode().replace("?", "_")
        file = f'name="file"; filename="{file_name}"\r\nContent-Type: application/octet-stream'
        pieces.append(_field(boundary, file, self.recording))
        return f"multipart/form-data; boundary={boundary}", b"".join((*pieces, f"--{boundary}--\r\n".encode()))


def _field(boundary: str, disposition: str, content: bytes) -> bytes:
    return f"--{boundary}\r\nContent-Disposition: form-data; {disposition}\r\n\r\n".encode() + content + b"\r\n"


def _parse_transcript(reply: str) -> Transcript:
    try:
        body = json.loads(reply)
        segments = tuple(_segment(row) for row in body.get("segments") or ())
        transcript = Transcript(
            str(body["text"]).strip(), segments, str(body.get("language") or ""), float(body.get("duration") or 0)
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ModelUnavailable(
            f"its reply is not a transcript ({type(error).__name__}: {error}): {reply[:80]!r}."
        ) from error
    return transcript


def _segment(row: dict[str, Any]) -> SpeechSegment:
    return SpeechSegment(float(row["start"]), float(row["end"]), str(row["text"]).strip())
