"""Asking a model's server again: waiting, rates, limits of attempts, and errors without keys."""

import json
import os
import random
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, Generic, Protocol, TypeVar

from spolia.core.environment import is_secret
from spolia.core.run_context import check_cancelled, note, reach, reserve
from spolia.egress.exchange import RequestLimits, Response, exchanged, pieces
from spolia.egress.retry import asked_s, pause
from spolia.errors import EgressFailed, EgressRefused, ModelError, ModelRejected, ModelUnavailable
from spolia.models.http.remote import Remote, joined
from spolia.models.http.replies import RENAMED, refused, refused_setting
from spolia.types import Addressed, Usage

MAX_REPLY_BYTES = 32 * 2**20
LEAST_REPLY_BYTES = 4 * 2**20
BYTES_PER_TOKEN = 1_024
"""Most that a server sends of a token; an event of a stream has 200 to 400 bytes."""
POLL_S = 0.05


@contextmanager
def posted(url: str, body: bytes, headers: Mapping[str, str], limits: RequestLimits, kept: int) -> Iterator[Response]:
    """Send `body` and give the response, whose content is still to be read; `kept` connections stay open."""
    try:
        with exchanged(
            "POST", url, limits, body=body, headers={"Content-Type": "application/json", **headers}, kept=kept
        ) as response:
            yield response
    except EgressRefused as error:
        raise ModelRejected(str(error)) from error
    except EgressFailed as error:
        raise ModelUnavailable(str(error)) from error


def largest_reply(bound: Usage) -> int:
    """Bytes that a reply may have, by the tokens that are sent and asked for.

    >>> largest_reply(Usage(input_tokens=500, output_tokens=512))
    5230592
    """
    tokens = bound.input_tokens + bound.output_tokens
    return LEAST_REPLY_BYTES + min(BYTES_PER_TOKEN * tokens, MAX_REPLY_BYTES)


def chunks(response: Response, largest: int) -> Iterator[bytes]:
    """The content as it comes; ModelRejected if it has more than `largest` bytes."""
    advice = "That is more than was asked for. Check that base_url is a model's server, and that it keeps max_tokens."
    try:
        yield from pieces(response, largest, advice)
    except EgressRefused as error:
        raise ModelRejected(str(error)) from error


_turns: dict[tuple[str, int], threading.Semaphore] = {}
_making = threading.Lock()


@contextmanager
def turn(server: str, at_once: int, limits: RequestLimits) -> Iterator[None]:
    """Wait until fewer than `at_once` requests are under way to a server; ModelUnavailable if the deadline is first."""
    with _making:
        free = _turns.setdefault((server, at_once), threading.Semaphore(at_once))
    while not free.acquire(timeout=POLL_S):
        check_cancelled()
        if limits.left_s <= 0:
            raise ModelUnavailable(
                f"no turn before the deadline: {at_once} requests are under way. Write a larger deadline_s."
            )
    try:
        yield
    finally:
        free.release()


def _forget() -> None:
    """After a fork the child waits for nothing that its parent does, and holds none of its locks."""
    global _making, _booking
    _turns.clear()
    _making, _booking = threading.Lock(), threading.Lock()


os.register_at_fork(after_in_child=_forget)


BURST_S = 60.0


class TooSoon(ModelUnavailable):
    """The limits allow the next request after the deadline only, so that there is no sense in another attempt."""


class Rate:
    """A rate per minute: bursts of at most a minute's worth, then evenly (virtual scheduling, ITU-T I.371).

    >>> rate = Rate(60)
    >>> rate.book(60, now=0.0), rate.book(1, now=0.0), rate.book(1, now=10.0)
    (0.0, 1.0, 0.0)
    """

    def __init__(self, per_minute: float) -> None:
        self.per_minute = per_minute
        self._spent_by = 0.0  # when all that was booked will be allowed again

    def wait_s(self, amount: float, now: float) -> float:
        """Seconds until `amount` may be sent; more than a minute's worth counts as a minute's worth."""
        return max(0.0, self._after(amount, now) - BURST_S - now)

    def book(self, amount: float, now: float) -> float:
        """`wait_s`, and `amount` counts from now on."""
        waited, self._spent_by = self.wait_s(amount, now), self._after(amount, now)
        return waited

    def _after(self, amount: float, now: float) -> float:
        return max(self._spent_by, now) + min(amount, self.per_minute) * 60 / self.per_minute


_rates: dict[tuple[str, str, str, float], Rate] = {}
_booking = threading.Lock()


def paced(model: Remote, bound: Usage, limits: RequestLimits) -> None:
    """Wait until a request of this cost keeps the model's limits; TooSoon if the deadline comes first."""
    wanted = {
        "requests_per_minute": (model.requests_per_minute, 1),
        "tokens_per_minute": (model.tokens_per_minute, bound.input_tokens + bound.output_tokens),
    }
    with _booking:
        now = time.monotonic()
        rates = [
            (_rates.setdefault((model.base_url, model.model, name, limit), Rate(limit)), amount)
            for name, (limit, amount) in wanted.items()
            if limit
        ]
        wait_s = max((rate.wait_s(amount, now) for rate, amount in rates), default=0.0)
        if wait_s > limits.left_s:
            raise TooSoon(
                f"its limits ({model.requests_per_minute:g} requests, {model.tokens_per_minute:g} tokens a minute) "
                f"allow the next request in {wait_s:.0f} s, after the deadline. Write a larger deadline_s."
            )
        for rate, amount in rates:
            rate.book(amount, now)
    if wait_s:
        pause(wait_s)


Out = TypeVar("Out")


_refused: dict[tuple[str, str], frozenset[str]] = {}
"""What each model at each address was found to refuse in this process."""


class ModelServer(Protocol):
    """A model on a server, with its limits: what an attempt needs of its address."""

    @property
    def model(self) -> str: ...

    @property
    def base_url(self) -> str: ...

    @property
    def api_key_env(self) -> str: ...

    @property
    def retries(self) -> int: ...

    @property
    def wait_s(self) -> float: ...

    @property
    def max_wait_s(self) -> float: ...

    @property
    def max_concurrent(self) -> int: ...

    @property
    def connect_timeout_s(self) -> float: ...

    @property
    def timeout_s(self) -> float: ...

    @property
    def deadline_s(self) -> float: ...


class Attempts(Generic[Out]):
    """One call with its attempts.

    Attributes:
        bound: what an attempt may cost, with its price.
        largest: bytes that a reply may have.
        handed_out: whether something of the reply was given away, so that there is no other attempt.
        is_working: whether the server has the request, and has neither refused it nor replied in full.
    """

    model: ModelServer
    bound: Usage
    largest: int = MAX_REPLY_BYTES
    handed_out = False
    is_working = False

    def exchange(self, limits: RequestLimits) -> Out:
        """What the server replies; ModelUnavailable if another attempt may succeed, ModelRejected if none will."""
        raise NotImplementedError

    def spent(self) -> Usage:
        """What the last exchange has cost, with its price."""
        raise NotImplementedError

    def is_stated(self) -> bool:
        """Whether the server has said what the last exchange has cost."""
        return False

    def once(self, limits: RequestLimits) -> Out:
        """One attempt. If it breaks after the request was sent, the server may bill all that it was asked for, so that
        counts, unless it has said what it bills."""
        model = self.model
        with reserve(self.bound) as held, turn(f"{model.model} at {model.base_url}", model.max_concurrent, limits):
            if isinstance(model, Remote):
                paced(model, self.bound, limits)
            self.is_working, broke = False, False
            try:
                return self.exchange(limits)
            except ModelError as error:
                broke = self.is_working and getattr(error.__cause__, "was_sent", True)
                raise
            finally:
                held.settle(self.bound if broke and not self.is_stated() else self.spent())

    def persist(self) -> Out:
        """Try until it succeeds, cannot, or has been tried often and long enough."""
        model = self.model
        if isinstance(model, Addressed):
            reach(model)
        limits = RequestLimits(model.connect_timeout_s, model.timeout_s, time.monotonic() + model.deadline_s)
        for attempt in range(model.retries + 1):
            try:
                return self.once(limits)
            except ModelUnavailable as error:
                wait_s = max(error.after_s, random.uniform(0.5, 1.0) * model.wait_s * 2**attempt)
                why = self._hopeless(attempt, wait_s, error, limits)
                if why is not None:
                    gone = ModelUnavailable(f"{self._who}: {error} {why}".rstrip())
                    gone.after_s = error.after_s
                    raise gone from error
                pause(min(wait_s, model.max_wait_s))
            except ModelRejected as error:
                raise type(error)(f"{self._who}: {error}") from error
        raise AssertionError("the last attempt returns or raises")

    def _hopeless(self, attempt: int, wait_s: float, error: ModelUnavailable, limits: RequestLimits) -> str | None:
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

    @contextmanager
    def sent(
        self, path: str, body: bytes, limits: RequestLimits, kind: str = "application/json"
    ) -> Iterator[tuple[Response, str]]:
        """The response to one request with the key, and the key; raises for any status other than 200."""
        model, key = self.model, key_in(self.model.api_key_env)
        keyed = {"api-key": key} if "?" in model.base_url else {"Authorization": f"Bearer {key}"}
        headers = {"Content-Type": kind} | (keyed if key else {})
        self.is_working = True
        with posted(joined(model.base_url, path), body, headers, limits, model.max_concurrent) as response:
            if response.status != 200:
                self.is_working = False
                raise self.refused(response, key)
            yield response, key
        self.is_working = False

    @contextmanager
    def told(self, path: str, body: Mapping[str, Any], limits: RequestLimits) -> Iterator[tuple[Response, str]]:
        """`sent` for an object, without the settings that this model was found to refuse, as its errors say."""
        place, found = (self.model.base_url, self.model.model), None
        with ExitStack() as opened:
            while found is None:
                left = _refused.get(place, frozenset())
                said = {name: value for name, value in body.items() if name not in left}
                said |= {new: body[name] for name, new in RENAMED.items() if name in left}
                if "stream" in left:
                    said.pop("stream_options", None)
                try:
                    found = opened.enter_context(self.sent(path, json.dumps(said).encode(), limits))
                except ModelRejected as error:
                    if error.setting not in said:
                        raise
                    _refused[place] = left | {error.setting}
            for name in sorted(left.intersection(body)):
                how = f"as {RENAMED[name]}" if name in RENAMED else "without it"
                note(f"{self._who} refuses {name}; the request was sent {how}.")
            yield found

    def refused(self, response: Response, key: str) -> ModelError:
        """The error that a status other than 200 is."""
        name = self.model.api_key_env
        known = f"check the key in {name}." if key else f"none was sent: set {name or 'api_key_env'}."
        headers = {name.lower(): text for name, text in response.headers.items()}
        said = next(chunks(response, self.largest), b"").decode("utf-8", "replace")
        error = refused(response.status, headers, without(key, said), known)
        if isinstance(error, ModelRejected):
            error.setting = refused_setting(response.status, said)
        if isinstance(error, ModelUnavailable):
            error.after_s = asked_s(headers)
        return error

    @property
    def _who(self) -> str:
        return f"{self.model.model} at {self.model.base_url}"


def key_in(variable: str) -> str:
    """The key, read from the environment at each call and never kept; empty if unset."""
    found = os.environ.get(variable, "").strip() if variable else ""
    if found and not (found.isascii() and found.isprintable()):
        raise ModelRejected(f"the key in {variable} has a line break or another character that no key has. Set it.")
    return found


def content(response: Response, key: str, largest: int, errors: str = "replace") -> str:
    """All that a server sent, as text without the key."""
    return without(key, b"".join(chunks(response, largest)).decode("utf-8", errors))


def without(key: str, said: str) -> str:
    """What a server said without the key, which some servers quote in their errors; a key that is a mere word stays."""
    return said.replace(key, "[key]") if is_secret(key) else said
