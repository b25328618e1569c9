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
from spolia.core.run_context import check_cancelled, note, record_access, reserve
from spolia.egress.exchange import RequestLimits, Response, read_pieces, send_request
from spolia.egress.retry import pause, retry_after_s
from spolia.errors import EgressFailed, EgressRefused, ModelError, ModelRejected, ModelUnavailable
from spolia.models.http.remote import Remote, join_url
from spolia.models.http.replies import RENAMED, find_refused_setting, status_error
from spolia.types import Addressed, Usage

MAX_REPLY_BYTES = 32 * 2**20
LEAST_REPLY_BYTES = 4 * 2**20
BYTES_PER_TOKEN = 1_024
"""Most that a server sends of a token; an event of a stream has 200 to 400 bytes."""
POLL_S = 0.05  # how soon a cancelled run stops waiting for its turn


@contextmanager
def post(
    url: str, body: bytes, headers: Mapping[str, str], limits: RequestLimits, pool_size: int
) -> Iterator[Response]:
    """Send `body` and yield the response, whose content is still to be read; `kept` connections stay open."""
    try:
        with send_request(
            "POST", url, limits, body=body, headers={"Content-Type": "application/json", **headers}, pool_size=pool_size
        ) as response:
            yield response
    except EgressRefused as error:
        raise ModelRejected(str(error)) from error
    except EgressFailed as error:
        raise ModelUnavailable(str(error)) from error


def largest_reply(bound: Usage) -> int:
    """Return the bytes that a reply may have, by the tokens that are sent and asked for.

    >>> largest_reply(Usage(input_tokens=500, output_tokens=512))
    5230592
    """
    tokens = bound.input_tokens + bound.output_tokens
    return LEAST_REPLY_BYTES + min(BYTES_PER_TOKEN * tokens, MAX_REPLY_BYTES)


def read_chunks(response: Response, largest: int) -> Iterator[bytes]:
    """Yield the content as it comes; ModelRejected if it has more than `largest` bytes."""
    advice = "That is more than was asked for. Check that base_url is a model's server, and that it keeps max_tokens."
    try:
        yield from read_pieces(response, largest, advice)
    except EgressRefused as error:
        raise ModelRejected(str(error)) from error


_turns: dict[tuple[str, int], threading.Semaphore] = {}
_turns_lock = threading.Lock()


@contextmanager
def turn(server: str, at_once: int, limits: RequestLimits) -> Iterator[None]:
    """Wait until fewer than `at_once` requests are under way to a server; ModelUnavailable if the deadline is first."""
    with _turns_lock:
        free = _turns.setdefault((server, at_once), threading.Semaphore(at_once))
    while not free.acquire(timeout=POLL_S):
        check_cancelled()
        if limits.remaining_s <= 0:
            raise ModelUnavailable(
                f"no turn before the deadline: {at_once} requests are under way. Write a larger deadline_s."
            )
    try:
        yield
    finally:
        free.release()


def _reset_after_fork() -> None:
    """Reset turns and locks in a forked child, which must wait for no request of its parent."""
    global _turns_lock, _rates_lock
    _turns.clear()
    _turns_lock, _rates_lock = threading.Lock(), threading.Lock()


os.register_at_fork(after_in_child=_reset_after_fork)


BURST_S = 60.0


class TooSoon(ModelUnavailable):
    """Error if the limits allow the next request only after the deadline, so that another attempt makes no sense."""


class Rate:
    """Rate per minute: bursts of at most a minute's worth, then evenly (virtual scheduling, ITU-T I.371).

    >>> rate = Rate(60)
    >>> rate.book(60, now=0.0), rate.book(1, now=0.0), rate.book(1, now=10.0)
    (0.0, 1.0, 0.0)
    """

    def __init__(self, per_minute: float) -> None:
        self.per_minute = per_minute
        self._booked_until = 0.0  # when all that was booked will be allowed again

    def wait_s(self, amount: float, now: float) -> float:
        """Return the seconds until `amount` may be sent; more than a minute's worth counts as a minute's worth."""
        return max(0.0, self._next_free(amount, now) - BURST_S - now)

    def book(self, amount: float, now: float) -> float:
        """Book `amount` from now on, and return the seconds to wait before sending it."""
        waited, self._booked_until = self.wait_s(amount, now), self._next_free(amount, now)
        return waited

    def _next_free(self, amount: float, now: float) -> float:
        return max(self._booked_until, now) + min(amount, self.per_minute) * 60 / self.per_minute


_rates: dict[tuple[str, str, str, float], Rate] = {}
_rates_lock = threading.Lock()


def wait_for_rate(model: Remote, bound: Usage, limits: RequestLimits) -> None:
    """Wait until a request of this cost keeps the model's limits; TooSoon if the deadline comes first."""
    demands = {
        "requests_per_minute": (model.requests_per_minute, 1),
        "tokens_per_minute": (model.tokens_per_minute, bound.input_tokens + bound.output_tokens),
    }
    # Both limits are read and booked together, so that two threads cannot take the same room.
    with _rates_lock:
        now = time.monotonic()
        rates = [
            (_rates.setdefault((model.base_url, model.model, name, limit), Rate(limit)), amount)
            for name, (limit, amount) in demands.items()
            if limit
        ]
        wait_s = max((rate.wait_s(amount, now) for rate, amount in rates), default=0.0)
        if wait_s > limits.remaining_s:
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
    """Call of a server with its attempts.

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
        """Return the server's reply; ModelUnavailable if another attempt may succeed, ModelRejected if none will."""
        raise NotImplementedError

    def usage(self) -> Usage:
        """Return the cost of the last exchange, with its price."""
        raise NotImplementedError

    def is_stated(self) -> bool:
        """Return whether the server has stated the cost of the last exchange."""
        return False

    def try_once(self, limits: RequestLimits) -> Out:
        """Try once. If it breaks after the request was sent, the server may bill all that it was asked for, so that
        counts, unless it has said what it bills."""
        model = self.model
        with (
            reserve(self.bound) as reservation,
            turn(f"{model.model} at {model.base_url}", model.max_concurrent, limits),
        ):
            if isinstance(model, Remote):
                wait_for_rate(model, self.bound, limits)
            self.is_working, may_bill = False, False
            try:
                return self.exchange(limits)
            except ModelError as error:
                may_bill = self.is_working and getattr(error.__cause__, "was_sent", True)
                raise
            finally:
                reservation.settle(self.bound if may_bill and not self.is_stated() else self.usage())

    def persist(self) -> Out:
        """Try until it succeeds, cannot succeed, or attempts or time run out."""
        model = self.model
        if isinstance(model, Addressed):
            record_access(model)
        limits = RequestLimits(model.connect_timeout_s, model.timeout_s, time.monotonic() + model.deadline_s)
        for attempt in range(model.retries + 1):
            try:
                return self.try_once(limits)
            except ModelUnavailable as error:
                # Waits vary, so that callers that failed together do not return together.
                wait_s = max(error.after_s, random.uniform(0.5, 1.0) * model.wait_s * 2**attempt)
                stop_reason = self._stop_reason(attempt, wait_s, error, limits)
                if stop_reason is not None:
                    final_error = ModelUnavailable(f"{self._label}: {error} {stop_reason}".rstrip())
                    final_error.after_s = error.after_s
                    raise final_error from error
                pause(min(wait_s, model.max_wait_s))
            except ModelRejected as error:
                raise type(error)(f"{self._label}: {error}") from error
        raise AssertionError("the last attempt returns or raises")

    def _stop_reason(self, attempt: int, wait_s: float, error: ModelUnavailable, limits: RequestLimits) -> str | None:
        """Return why another attempt makes no sense; None if it may help."""
        if self.handed_out:
            return "Not tried again, because the beginning was handed out already."
        if isinstance(error, TooSoon):
            return f"Tried {attempt} times before." if attempt else ""
        if attempt == self.model.retries:
            return f"Tried {attempt + 1} times." if attempt else ""
        if error.after_s > self.model.max_wait_s:
            return f"It asks to wait {error.after_s:g} s; write a larger max_wait_s, or come back later."
        if min(wait_s, self.model.max_wait_s) >= limits.remaining_s:
            return f"Tried {attempt + 1} times; the deadline of {self.model.deadline_s:g} s leaves no time for another."
        return None

    @contextmanager
    def send(
        self, path: str, body: bytes, limits: RequestLimits, kind: str = "application/json"
    ) -> Iterator[tuple[Response, str]]:
        """Yield the response to one request with the key, and the key; raise for any status other than 200."""
        model, key = self.model, read_key(self.model.api_key_env)
        # An address with api-version is one of Azure, which wants the key by this name.
        keyed = {"api-key": key} if "?" in model.base_url else {"Authorization": f"Bearer {key}"}
        headers = {"Content-Type": kind} | (keyed if key else {})
        self.is_working = True
        with post(join_url(model.base_url, path), body, headers, limits, model.max_concurrent) as response:
            if response.status != 200:
                self.is_working = False
                raise self.status_error(response, key)
            yield response, key
        self.is_working = False

    @contextmanager
    def send_object(self, path: str, body: Mapping[str, Any], limits: RequestLimits) -> Iterator[tuple[Response, str]]:
        """Send an object, without the settings that this model was found to refuse by its errors."""
        server, reply = (self.model.base_url, self.model.model), None
        with ExitStack() as stack:
            while reply is None:
                refused_names = _refused.get(server, frozenset())
                payload = {name: value for name, value in body.items() if name not in refused_names}
                payload |= {new: body[name] for name, new in RENAMED.items() if name in refused_names}
                if "stream" in refused_names:
                    payload.pop("stream_options", None)
                try:
                    reply = stack.enter_context(self.send(path, json.dumps(payload).encode(), limits))
                except ModelRejected as error:
                    if error.setting not in payload:
                        raise
                    _refused[server] = refused_names | {error.setting}  # ends: each round leaves one more setting out
            for name in sorted(refused_names.intersection(body)):
                change = f"as {RENAMED[name]}" if name in RENAMED else "without it"
                note(f"{self._label} refuses {name}; the request was sent {change}.")
            yield reply

    def status_error(self, response: Response, key: str) -> ModelError:
        """Return the error that a status other than 200 stands for."""
        name = self.model.api_key_env
        key_advice = f"check the key in {name}." if key else f"none was sent: set {name or 'api_key_env'}."
        headers = {name.lower(): text for name, text in response.headers.items()}
        # the first piece says enough of an error
        text = next(read_chunks(response, self.largest), b"").decode("utf-8", "replace")
        error = status_error(response.status, headers, redact_key(key, text), key_advice)
        if isinstance(error, ModelRejected):
            error.setting = find_refused_setting(response.status, text)
        if isinstance(error, ModelUnavailable):
            error.after_s = retry_after_s(headers)
        return error

    @property
    def _label(self) -> str:
        return f"{self.model.model} at {self.model.base_url}"


def read_key(variable: str) -> str:
    """Read the key from the environment, at each call and without keeping it; empty if unset."""
    key = os.environ.get(variable, "").strip() if variable else ""
    # Such a key would break the header, and the error of the HTTP library would quote it.
    if key and not (key.isascii() and key.isprintable()):
        raise ModelRejected(f"the key in {variable} has a line break or another character that no key has. Set it.")
    return key


def read_content(response: Response, key: str, largest: int, errors: str = "replace") -> str:
    """Return all that a server sent, as text without the key."""
    return redact_key(key, b"".join(read_chunks(response, largest)).decode("utf-8", errors))


def redact_key(key: str, text: str) -> str:
    """Return a text without the key, which some servers quote in their errors; a key that is a mere word stays."""
    return text.replace(key, "[key]") if is_secret(key) else text
