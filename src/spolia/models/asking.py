"""One call of a chat model: the request itself and what it cost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from spolia.egress.exchange import Limits, Response
from spolia.errors import ModelUnavailable
from spolia.models.attempts import Attempts, key_in, without
from spolia.models.rates import paced
from spolia.models.replies import Reply, estimated_tokens
from spolia.models.sse import DONE, events
from spolia.models.wire import chunks, posted, turn
from spolia.surrounding import reserve
from spolia.types import Generation, Usage

if TYPE_CHECKING:
    from spolia.models.chat import ChatModel


@dataclass
class Call(Attempts[Generation]):
    """One `generate` with its attempts."""

    model: ChatModel
    body: bytes
    bound: Usage
    logprobs: bool
    on_text: Callable[[str], None] | None

    def once(self, limits: Limits) -> Generation:
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

    def _exchange(self, reply: Reply, limits: Limits) -> None:
        model, key = self.model, key_in(self.model.api_key_env)
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        url = f"{model.base_url}/chat/completions"
        with posted(url, self.body, headers, limits, model.max_concurrent) as response:
            if response.status != 200:
                raise self.refused(response, key)
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
