"""Speech to text (https://platform.openai.com/docs/api-reference/audio/createTranscription)."""

import hashlib
import json
from dataclasses import dataclass
from typing import Any

from spolia.egress.exchange import RequestLimits
from spolia.errors import ModelError, ModelRejected, ModelUnavailable
from spolia.models.http.remote import checked_url
from spolia.models.http.retry import Attempts, content
from spolia.types import Usage, Value
from spolia.types.value import indifferent

_BYTES_PER_MINUTE = 960_000  # of speech at 128 kbit/s: what a file may cost is judged by that before it is heard


@dataclass(frozen=True)
class SpeechSegment(Value):
    """A stretch of speech: start and end in seconds from the beginning, and its words."""

    start_s: float
    end_s: float
    text: str


@dataclass(frozen=True)
class Transcript(Value):
    """The text of a recording.

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
    """The address of a model that hears. It holds no secret: the key is read from the environment at each call.

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
    connect_timeout_s: float = indifferent(5.0)
    timeout_s: float = indifferent(300.0)
    deadline_s: float = indifferent(900.0)
    retries: int = indifferent(3)
    wait_s: float = indifferent(0.5)
    max_wait_s: float = indifferent(30.0)
    max_concurrent: int = indifferent(2)
    usd_per_minute: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "base_url", checked_url(self.base_url))
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
        self.bound = self._spent = Usage(calls=1, cost_usd=self._price(len(self.recording) / _BYTES_PER_MINUTE))

    def exchange(self, limits: RequestLimits) -> Transcript:
        kind, body = self._form()
        with self.sent("audio/transcriptions", body, limits, kind) as (response, key):
            found = _heard(content(response, key, self.largest))
        if found.duration_s:
            self._spent = Usage(calls=1, cost_usd=self._price(found.duration_s / 60))
        return found

    def spent(self) -> Usage:
        return self._spent

    def _price(self, minutes: float) -> float:
        return minutes * self.model.usd_per_minute

    def _form(self) -> tuple[str, bytes]:
        """The content type and the body of a form (RFC 7578) with the recording in it."""
        mark = hashlib.blake2b(self.recording, digest_size=16).hexdigest()  # nothing can hold its own hash by chance
        said = {"model": self.model.model, "response_format": "verbose_json", "timestamp_granularities[]": "segment"}
        said |= {name: text for name in ("language", "prompt") if (text := getattr(self.model, name))}
        pieces = [_field(mark, f'name="{name}"', text.encode()) for name, text in said.items()]
        shown = "".join(letter if letter.isalnum() or letter in "._- " else "_" for letter in self.name)
        shown = shown.encode("ascii", "replace").decode().replace("?", "_")
        file = f'name="file"; filename="{shown}"\r\nContent-Type: application/octet-stream'
        pieces.append(_field(mark, file, self.recording))
        return f"multipart/form-data; boundary={mark}", b"".join((*pieces, f"--{mark}--\r\n".encode()))


def _field(mark: str, said: str, content: bytes) -> bytes:
    return f"--{mark}\r\nContent-Disposition: form-data; {said}\r\n\r\n".encode() + content + b"\r\n"


def _heard(reply: str) -> Transcript:
    try:
        said = json.loads(reply)
        segments = tuple(_segment(one) for one in said.get("segments") or ())
        found = Transcript(
            str(said["text"]).strip(), segments, str(said.get("language") or ""), float(said.get("duration") or 0)
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ModelUnavailable(
            f"its reply is not a transcript ({type(error).__name__}: {error}): {reply[:80]!r}."
        ) from error
    return found


def _segment(said: dict[str, Any]) -> SpeechSegment:
    return SpeechSegment(float(said["start"]), float(said["end"]), str(said["text"]).strip())
