"""Limits on requests and tokens a minute, kept before a server has to refuse."""

from __future__ import annotations

import os
import threading
import time

from spolia.egress.exchange import Limits
from spolia.egress.patience import pause
from spolia.errors import ModelUnavailable
from spolia.models.remote import Remote
from spolia.types import Usage

BURST_S = 60.0


class TooSoon(ModelUnavailable):
    """The limits allow the next request after the deadline only, so that there is no sense in another attempt."""


class Rate:
    """So much a minute: at most a minute's worth at once, then evenly (virtual scheduling, ITU-T I.371).

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


def paced(model: Remote, bound: Usage, limits: Limits) -> None:
    """Wait until a request to a model keeps its limits.

    Args:
        bound: what it may cost.

    Raises:
        TooSoon: the deadline comes first; nothing is booked.
        Cancelled: the run was cancelled.
    """
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


def _forget() -> None:
    """After a fork the child holds no lock of its parent's."""
    global _booking
    _booking = threading.Lock()


os.register_at_fork(after_in_child=_forget)
