"""Asking a server again: attempts, waits, and what its refusals say."""

from __future__ import annotations

import os
import random
import time
from typing import Generic, Protocol, TypeVar

from spolia.egress.exchange import Limits, Response
from spolia.egress.patience import asked_s, pause
from spolia.errors import ModelError, ModelRejected, ModelUnavailable
from spolia.models.rates import TooSoon
from spolia.models.replies import refused
from spolia.models.wire import chunks

Out = TypeVar("Out")


class Server(Protocol):
    """What is known of a server and of the patience with it; see `ChatModel`."""

    @property
    def model(self) -> str: ...
    @property
    def base_url(self) -> str: ...
    @property
    def api_key_env(self) -> str: ...
    @property
    def connect_timeout_s(self) -> float: ...
    @property
    def timeout_s(self) -> float: ...
    @property
    def deadline_s(self) -> float: ...
    @property
    def retries(self) -> int: ...
    @property
    def wait_s(self) -> float: ...
    @property
    def max_wait_s(self) -> float: ...


class Attempts(Generic[Out]):
    """One call with its attempts.

    Attributes:
        model: the server.
        handed_out: whether something of the reply was given away, so that there is no other attempt.
    """

    model: Server
    handed_out = False

    def once(self, limits: Limits) -> Out:
        """One attempt.

        Raises:
            ModelUnavailable: another one may succeed.
            ModelRejected: none will.
        """
        raise NotImplementedError

    def persist(self) -> Out:
        """Try until it succeeds, cannot, or has been tried often and long enough."""
        model = self.model
        limits = Limits(model.connect_timeout_s, model.timeout_s, time.monotonic() + model.deadline_s)
        for attempt in range(model.retries + 1):
            try:
                return self.once(limits)
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
        if isinstance(error, TooSoon):
            return f"Tried {attempt} times before." if attempt else ""
        if attempt == self.model.retries:
            return f"Tried {attempt + 1} times." if attempt else ""
        if error.after_s > self.model.max_wait_s:
            return f"It asks to wait {error.after_s:g} s; write a larger max_wait_s, or come back later."
        if min(wait_s, self.model.max_wait_s) >= limits.left_s:
            return f"Tried {attempt + 1} times; the deadline of {self.model.deadline_s:g} s leaves no time for another."
        return None

    def refused(self, response: Response, key: str) -> ModelError:
        """The error that a status other than 200 is."""
        name = self.model.api_key_env
        known = f"check the key in {name}." if key else f"none was sent: set {name or 'api_key_env'}."
        headers = {name.lower(): text for name, text in response.headers.items()}
        said = next(chunks(response), b"").decode("utf-8", "replace")
        error = refused(response.status, headers, without(key, said), known)
        if isinstance(error, ModelUnavailable):
            error.after_s = asked_s(headers)
        return error

    @property
    def _who(self) -> str:
        return f"{self.model.model} at {self.model.base_url}"


def key_in(variable: str) -> str:
    """The key, read from the environment at each call and never kept; empty when there is none."""
    found = os.environ.get(variable, "").strip() if variable else ""
    if found and not (found.isascii() and found.isprintable()):
        raise ModelRejected(f"the key in {variable} has a line break or another character that no key has. Set it.")
    return found


def without(key: str, said: str) -> str:
    """What a server said without the key, which some servers quote in their errors."""
    return said.replace(key, "[key]") if key else said
