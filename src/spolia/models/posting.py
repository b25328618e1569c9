"""One call of a server that replies with one JSON object."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from spolia.egress.exchange import Limits
from spolia.models.attempts import Attempts, Out, key_in, without
from spolia.models.rates import paced
from spolia.models.remote import Remote
from spolia.models.replies import mapping, parsed
from spolia.models.wire import chunks, posted, turn
from spolia.surrounding import reserve
from spolia.types import Usage


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

    def once(self, limits: Limits) -> Out:
        model, spent = self.model, Usage(calls=self.bound.calls)
        with reserve(model.priced(self.bound)) as held, turn(model.base_url, model.max_concurrent, limits):
            paced(model, self.bound, limits)
            try:
                reply = self._exchange(limits)
                spent = _stated(reply, self.bound)
            finally:
                held.settle(model.priced(spent))
            return self.read(reply)

    def _exchange(self, limits: Limits) -> Mapping[str, Any]:
        model, key = self.model, key_in(self.model.api_key_env)
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        body = json.dumps(self.body).encode()
        with posted(f"{model.base_url}/{self.path}", body, headers, limits, model.max_concurrent) as response:
            if response.status != 200:
                raise self.refused(response, key)
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
