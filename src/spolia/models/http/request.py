"""One call of a server that replies with one JSON object."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from spolia.egress.exchange import RequestLimits, Response, release
from spolia.errors import ModelRejected, ModelUnavailable
from spolia.models.http.remote import Remote
from spolia.models.http.replies import DONE, Reply, estimated_tokens, events, fewer, mapping, parsed
from spolia.models.http.retry import Attempts, Out, chunks, content, largest_reply, without
from spolia.models.protocols import unread
from spolia.types import Generation, Usage


@dataclass
class Posting(Attempts[Out]):
    """A request whose reply is one JSON object; `read` says what that means, or raises `ModelRejected`.

    Args:
        array: under which name a reply that is a bare array is read; empty to refuse one.
    """

    model: Remote
    path: str
    body: Mapping[str, Any]
    bound: Usage
    read: Callable[[Mapping[str, Any]], Out]
    array: str = ""

    def __post_init__(self) -> None:
        self.bound = self.model.priced(self.bound)
        self.largest = largest_reply(self.bound)

    def exchange(self, limits: RequestLimits) -> Out:
        self._spent = Usage(calls=self.bound.calls)
        with self.told(self.path, self.body, limits) as (response, key):
            reply = parsed(content(response, key, self.largest), self.array)
        self._spent = _stated(reply, self.bound)
        return self.read(reply)

    def spent(self) -> Usage:
        return self.model.priced(self._spent)


def _stated(reply: Mapping[str, Any], bound: Usage) -> Usage:
    """What the server says that it cost."""
    said = mapping(reply.get("usage"))
    counts = (said.get("prompt_tokens", said.get("total_tokens")), said.get("completion_tokens"))
    sent, written = (count if isinstance(count, int) and count >= 0 else None for count in counts)
    if sent is None:
        return bound
    return bound.but(input_tokens=sent, output_tokens=written or 0)


def sendable(text: str, window: int = 0) -> str:
    """A text that every server takes: Unicode, not empty, and cut where it is surely beyond the window (in tokens)."""
    whole = text.encode("utf-8", "replace")
    if window and len(whole) > 3 * window:
        whole = whole[: 3 * window]
    return whole.decode("utf-8", "ignore").replace("\x00", " ") or " "


One = TypeVar("One")
Result = TypeVar("Result")
_most: dict[tuple[str, str], int] = {}
"""The most texts in one request that each model at each address was found to take in this process."""


def in_requests(
    model: Remote, texts: Sequence[One], send: Callable[[Sequence[One]], Iterable[Result]]
) -> Iterator[Result]:
    """What `send` gives for all texts, in as many requests as it takes: servers say how many they take at a time."""
    place, at = (model.base_url, model.model), 0
    while at < len(texts):
        part = texts[at : at + _most.get(place, len(texts))]
        try:
            yield from send(part)
        except ModelRejected as error:
            if not (most := fewer(str(error), len(part))):
                raise
            _most[place] = most
        else:
            at += len(part)


@dataclass
class ChatCall(Attempts[Generation]):
    """One `generate` with its attempts."""

    model: Remote
    body: Mapping[str, Any]
    bound: Usage
    logprobs: bool
    on_text: Callable[[str], None] | None

    def __post_init__(self) -> None:
        self.largest = largest_reply(self.bound)

    def exchange(self, limits: RequestLimits) -> Generation:
        self._reply = reply = Reply()
        with self.told("chat/completions", self.body, limits) as (response, key):
            if "text/event-stream" in response.headers.get("Content-Type", ""):
                self._streamed(reply, response, key)
            else:
                self._hand_out(reply.take(content(response, key, self.largest, "surrogateescape"), "message"))
            self._hand_out(reply.end())
        return reply.generation(self.logprobs)

    def is_stated(self) -> bool:
        return self._reply.usage is not None

    def spent(self) -> Usage:
        """What the server states, else an estimate where it has written anything."""
        found, text = self._reply.usage or Usage(calls=1), self._reply.text
        if self._reply.usage is None and text:
            found = found.but(input_tokens=self.bound.input_tokens, output_tokens=estimated_tokens(text))
        return self.model.priced(found)

    def _streamed(self, reply: Reply, response: Response, key: str) -> None:
        for data in events(chunks(response, self.largest)):
            if data == DONE:
                release(response)
                return
            self._hand_out(reply.take(without(key, data), "delta"))
        if not reply.finish_reason:
            raise ModelUnavailable(f"the stream ended in the middle, after {len(reply.text)} characters.")

    def _hand_out(self, piece: str) -> None:
        if piece and self.on_text is not None:
            self.handed_out = self.on_text is not unread
            self.on_text(piece)
