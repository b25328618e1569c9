"""One call of a server that replies with one JSON object."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from spolia.core.run_context import reserve
from spolia.egress.exchange import RequestLimits, Response
from spolia.errors import ModelUnavailable
from spolia.models.http.remote import Remote
from spolia.models.http.replies import DONE, Reply, estimated_tokens, events, mapping, parsed
from spolia.models.http.retry import Attempts, Out, chunks, paced, turn, without
from spolia.types import Generation, Usage

if TYPE_CHECKING:
    from spolia.models.http.chat import ChatModel


@dataclass
class Posting(Attempts[Out]):
    """A request with its attempts.

    Args:
        path: under the model's `base_url`.
        bound: what it may cost; also what it did cost where the server does not say.
        read: what the reply means; raises `ModelRejected` where it means nothing.
    """

    model: Remote
    path: str
    body: Mapping[str, Any]
    bound: Usage
    read: Callable[[Mapping[str, Any]], Out]

    def once(self, limits: RequestLimits) -> Out:
        model, spent = self.model, Usage(calls=self.bound.calls)
        with reserve(model.priced(self.bound)) as held, turn(model.base_url, model.max_concurrent, limits):
            paced(model, self.bound, limits)
            try:
                reply = self._exchange(limits)
                spent = _stated(reply, self.bound)
            finally:
                held.settle(model.priced(spent))
            return self.read(reply)

    def _exchange(self, limits: RequestLimits) -> Mapping[str, Any]:
        with self.sent(self.path, json.dumps(self.body).encode(), limits) as (response, key):
            return parsed(without(key, b"".join(chunks(response)).decode("utf-8", "replace")))


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


@dataclass
class ChatCall(Attempts[Generation]):
    """One `generate` with its attempts."""

    model: "ChatModel"
    body: bytes
    bound: Usage
    logprobs: bool
    on_text: Callable[[str], None] | None

    def once(self, limits: RequestLimits) -> Generation:
        reply = Reply()
        with reserve(self.bound) as held, turn(self.model.base_url, self.model.max_concurrent, limits):
            paced(self.model, self.bound, limits)
            try:
                self._exchange(reply, limits)
            finally:
                held.settle(self.model.priced(self._spent(reply)))
            return reply.generation(self.logprobs)

    def _spent(self, reply: Reply) -> Usage:
        """What the server states, else an estimate where it has written anything."""
        if reply.usage is not None:
            return reply.usage
        if not reply.text:
            return Usage(calls=1)
        return Usage(calls=1, input_tokens=self.bound.input_tokens, output_tokens=estimated_tokens(reply.text))

    def _exchange(self, reply: Reply, limits: RequestLimits) -> None:
        with self.sent("chat/completions", self.body, limits) as (response, key):
            if "text/event-stream" in response.headers.get("Content-Type", ""):
                self._streamed(reply, response, key)
            else:
                body = b"".join(chunks(response)).decode("utf-8", "surrogateescape")
                self._hand_out(reply.take(without(key, body), "message"))
            self._hand_out(reply.end())

    def _streamed(self, reply: Reply, response: Response, key: str) -> None:
        for data in events(chunks(response)):
            if data == DONE:
                return
            self._hand_out(reply.take(without(key, data), "delta"))
        if not reply.finish_reason:
            raise ModelUnavailable(f"the stream ended in the middle, after {len(reply.text)} characters.")

    def _hand_out(self, piece: str) -> None:
        if piece and self.on_text is not None:
            self.handed_out = True
            self.on_text(piece)
