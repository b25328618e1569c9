"""Waiting for a server: as long as it asks for, within bounds, and no longer than the run lasts."""

import random
import threading
import time
from collections.abc import Callable, Mapping
from email.utils import parsedate_to_datetime
from math import isfinite
from typing import TypeVar

from spolia.core.run_context import check_cancelled, on_cancel
from spolia.errors import EgressFailed, EgressLate

T = TypeVar("T")


def pause(seconds: float) -> None:
    """Wait before another attempt; a cancellation ends the wait."""
    woken = threading.Event()
    with on_cancel(woken.set):
        check_cancelled()
        woken.wait(seconds)
    check_cancelled()


def retry_after_s(headers: Mapping[str, str]) -> float:
    """Return the seconds that `Retry-After` asks to wait: a number, or a date; 0 if it says nothing sensible."""
    stated = headers.get("retry-after", "").strip()
    try:
        seconds = float(stated)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(stated).timestamp() - time.time()
        except (ValueError, TypeError, OverflowError):
            return 0.0
    return max(seconds, 0.0) if isfinite(seconds) else 0.0


def retry(request: Callable[[], T], *, retries: int = 3, wait_s: float = 0.5, max_wait_s: float = 60.0) -> T:
    """Send a request, and again after longer and longer waits where that may help; raise the last EgressFailed."""
    for attempt in range(retries):
        try:
            return request()
        # The deadline has passed: another attempt would only take as long.
        except EgressLate:
            raise
        except EgressFailed as error:
            if error.after_s > max_wait_s:
                message = f"{error} It asks to wait {error.after_s:g} s: come back later."
                raise EgressFailed(message, error.status, error.after_s) from error
            # Waits vary, so that callers that failed together do not return together.
            pause(min(max(error.after_s, random.uniform(0.5, 1.0) * wait_s * 2**attempt), max_wait_s))
    try:
        return request()
    except EgressFailed as error:
        if not retries:
            raise
        raise EgressFailed(f"{error} Tried {retries + 1} times.", error.status, error.after_s) from error
