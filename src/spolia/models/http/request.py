"""One call of a server that replies with one JSON object."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from spolia.egress.exchange import RequestLimits, Response, release
from spolia.errors import ModelRejected, ModelUnavailable
from spolia.models.http.remote import Remote
from spolia.models.http.replies import DONE, Reply, as_mapping, estimate_tokens, events, parse_object, smaller_batch
from spolia.models.http.retry import Attempts, Out, largest_reply, read_chunks, read_content, redact_key
from spolia.models.protocols import ignore_text
from spolia.types import Generation, Usage


@dataclass
class JsonCall(Attempts[Out]):
    """Request whose reply is one JSON object; `read` turns that into a value, or raises `ModelRejected`.

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
        self.bound = self.model.add_price(self.bound)
        self.largest = largest_reply(self.bound)

    def exchange(self, limits: RequestLimits) -> Out:
        # A reply that cannot be read has cost one call.
        self._usage = Usage(calls=self.bound.calls)
        with self.send_object(self.path, self.body, limits) as (response, key):
            reply = parse_object(read_content(response, key, self.largest), self.array)
        self._usage = _read_usage(reply, self.bound)
        return self.read(reply)

    def usage(self) -> Usage:
        return self.model.add_price(self._usage)


def _read_usage(reply: Mapping[str, Any], bound: Usage) -> Usage:
    """Return the usage that the server states, else the bound."""
    stated = as_mapping(reply.get("usage"))
    counts = (stated.get("prompt_tokens", stated.get("total_tokens")), stated.get("completion_tokens"))
    input_tokens, output_tokens = (count if isinstance(count, int) and count >= 0 else None for count in counts)
    if input_tokens is None:
        return bound
    return bound.but(input_tokens=input_tokens, output_tokens=output_tokens or 0)


def clean_text(text: str, window: int = 0) -> str:
    """Return a text that every server takes: Unicode, not empty, cut to three bytes for each token of the window."""
    data = text.encode("utf-8", "replace")
    if window and len(data) > 3 * window:
        data = data[: 3 * window]
    return data.decode("utf-8", "ignore").replace("\x00", " ") or " "  # the cut may have halved a character: left out


Content = TypeVar("Content")
Result = TypeVar("Result")
_batch_limits: dict[tuple[str, str], int] = {}
"""The most texts in one request that each model at each address was found to take in this process."""


def send_batches(
    model: Remote, texts: Sequence[Content], send: Callable[[Sequence[Content]], Iterable[Result]]
) -> Iterator[Result]:
    """Yield what `send` gives for all texts, in smaller requests if the server says that it takes fewer at a time."""
    server, start = (model.base_url, model.model), 0
    while start < len(texts):
        part = texts[start : start + _batch_limits.get(server, len(texts))]
        try:
            yield from send(part)
        except ModelRejected as error:
            if not (limit := smaller_batch(str(error), len(part))):
                raise
            _batch_limits[server] = limit  # without a lock: at worst two threads learn the same
        else:
            start += len(part)


@dataclass
class ChatCall(Attempts[Generation]):
    """Call of `generate` with its attempts."""

    model: Remote
    body: Mapping[str, Any]
    bound: Usage
    logprobs: bool
    on_text: Callable[[str], None] | None

    def __post_init__(self) -> None:
        self.largest = largest_reply(self.bound)

    def exchange(self, limits: RequestLimits) -> Generation:
        self._reply = reply = Reply()
        with self.send_object("chat/completions", self.body, limits) as (response, key):
            if "text/event-stream" in response.headers.get("Content-Type", ""):
                self._read_stream(reply, response, key)
            else:
                # What is no UTF-8 goes on as surrogates, which `TornTextDecoder` mends.
                self._hand_out(reply.take(read_content(response, key, self.largest, "surrogateescape"), "message"))
            self._hand_out(reply.end())
        return reply.generation(self.logprobs)

    def is_stated(self) -> bool:
        return self._reply.usage is not None

    def usage(self) -> Usage:
        """Return the usage that the server states, else an estimate if it has written anything."""
        usage, text = self._reply.usage or Usage(calls=1), self._reply.text
        if self._reply.usage is None and text:
            usage = usage.but(input_tokens=self.bound.input_tokens, output_tokens=estimate_tokens(text))
        return self.model.add_price(usage)

    def _read_stream(self, reply: Reply, response: Response, key: str) -> None:
        for data in events(read_chunks(response, self.largest)):
            if data == DONE:
                # The connection still holds the end of the stream: read it, so that the pool can use
                # it again.
                release(response)
                return
            self._hand_out(reply.take(redact_key(key, data), "delta"))
        if not reply.finish_reason:
            raise ModelUnavailable(f"the stream ended in the middle, after {len(reply.text)} characters.")

    def _hand_out(self, piece: str) -> None:
        if piece and self.on_text is not None:
            # a broken stream that nobody has read may be asked for again
            self.handed_out = self.on_text is not ignore_text
            self.on_text(piece)
