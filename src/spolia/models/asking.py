"""One call of a chat model: attempts, waits, the request itself and what it cost."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from math import isfinite
from typing import TYPE_CHECKING

from spolia.egress.exchange import Limits, Response
from spolia.errors import ModelError, ModelRejected, ModelUnavailable
from spolia.models.replies import Reply, estimated_tokens, refused
from spolia.models.sse import DONE, events
from spolia.models.wire import chunks, pause, posted, turn
from spolia.surrounding import reserve
from spolia.types import Generation, Usage

if TYPE_CHECKING:
    from spolia.models.chat import ChatModel


@dataclass
class Call:
    """One `generate` with its attempts."""

    model: ChatModel
    body: bytes
    bound: Usage
    logprobs: bool
    on_text: Callable[[str], None] | None
    handed_out: bool = False

    def persist(self) -> Generation:
        """Try until it succeeds, cannot, or has been tried often and long enough."""
        model = self.model
        limits = Limits(model.connect_timeout_s, model.timeout_s, time.monotonic() + model.deadline_s)
        for attempt in range(model.retries + 1):
            try:
                return self._reserved(limits)
            except ModelUnavailable as error:
                wait_s = max(error.after_s, random.uniform(0.5, 1.0) * model.wait_s * 2**attempt)
                why = self._hopeless(attempt, wait_s, error, limits)
                if why is not None:
                    raise ModelUnavailable(f"{self._who}: {error} {why}".rstrip()) from error
                pause(min(wait_s, model.max_wait_s))
            except ModelRejected as error:
                raise ModelRejected(f"{self._who}: {error}") from error
        raise AssertionError("the last attempt returns or raises")

    def _hopeless(self, attempt: int, wait_s: float, error: ModelUnavailable, limits: Limits) -> str | None:
        """Why another attempt makes no sense; None where it does."""
        if self.handed_out:
            return "Not tried again, because the beginning was handed out already."
        if attempt == self.model.retries:
            return f"Tried {attempt + 1} times." if attempt else ""
        if error.after_s > self.model.max_wait_s:
            return f"It asks to wait {error.after_s:g} s; write a larger max_wait_s, or come back later."
        if min(wait_s, self.model.max_wait_s) >= limits.left_s:
            return f"Tried {attempt + 1} times; the deadline of {self.model.deadline_s:g} s leaves no time for another."
        return None

    def _reserved(self, limits: Limits) -> Generation:
        reply = Reply()
        with reserve(self.bound) as held, turn(self.model.base_url, self.model.max_concurrent, limits):
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
        model, key = self.model, _key(self.model.api_key_env)
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        url = f"{model.base_url}/chat/completions"
        with posted(url, self.body, headers, limits, model.max_concurrent) as response:
            if response.status != 200:
                raise self._refused(response, key)
            if "text/event-stream" in response.headers.get("Content-Type", ""):
                self._streamed(reply, response, key)
            else:
                body = b"".join(chunks(response)).decode("utf-8", "surrogateescape")
                self._hand_out(reply.take(_without(key, body), "message"))
            self._hand_out(reply.end())

    def _streamed(self, reply: Reply, response: Response, key: str) -> None:
        for data in events(chunks(response)):
            if data == DONE:
                return
            self._hand_out(reply.take(_without(key, data), "delta"))
        if not reply.finish_reason:
            raise ModelUnavailable(f"the stream ended in the middle, after {len(reply.text)} characters.")

    def _hand_out(self, piece: str) -> None:
        if piece and self.on_text is not None:
            self.handed_out = True
            self.on_text(piece)

    def _refused(self, response: Response, key: str) -> ModelError:
        name = self.model.api_key_env
        known = f"check the key in {name}." if key else f"none was sent: set {name or 'api_key_env'}."
        headers = {name.lower(): text for name, text in response.headers.items()}
        said = next(chunks(response), b"").decode("utf-8", "replace")
        error = refused(response.status, headers, _without(key, said), known)
        if isinstance(error, ModelUnavailable):
            error.after_s = _after_s(headers)
        return error

    @property
    def _who(self) -> str:
        return f"{self.model.model} at {self.model.base_url}"


def _key(variable: str) -> str:
    """The key, read from the environment at each call and never kept; empty when there is none."""
    found = os.environ.get(variable, "").strip() if variable else ""
    if found and not (found.isascii() and found.isprintable()):
        raise ModelRejected(f"the key in {variable} has a line break or another character that no key has. Set it.")
    return found


def _without(key: str, said: str) -> str:
    """What a server said without the key, which some servers quote in their errors."""
    return said.replace(key, "[key]") if key else said


def _after_s(headers: Mapping[str, str]) -> float:
    """Seconds that `Retry-After` asks to wait: a number, or a date; 0 where it says nothing sensible."""
    stated = headers.get("retry-after", "").strip()
    try:
        seconds = float(stated)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(stated).timestamp() - time.time()
        except (ValueError, TypeError, OverflowError):
            return 0.0
    return max(seconds, 0.0) if isfinite(seconds) else 0.0
