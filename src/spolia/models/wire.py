"""Asking a model's server: whose settings name it, so that it may be anywhere, and whose failures are a model's."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from spolia.egress.exchange import Limits, Response, exchanged, pieces
from spolia.errors import EgressFailed, EgressRefused, ModelRejected, ModelUnavailable
from spolia.surrounding import check_cancelled

MAX_REPLY_BYTES = 32 * 2**20
POLL_S = 0.05


@contextmanager
def posted(url: str, body: bytes, headers: Mapping[str, str], limits: Limits, kept: int) -> Iterator[Response]:
    """Send `body` and give the response, whose content is still to be read.

    Args:
        kept: connections that are kept open to this server.

    Raises:
        ModelUnavailable: the server cannot be reached, or it fell silent or took too long.
        ModelRejected: its certificate is not valid.
        Cancelled: the run was cancelled; the socket is cut.
    """
    try:
        with exchanged(
            "POST", url, limits, body=body, headers={"Content-Type": "application/json", **headers}, kept=kept
        ) as response:
            yield response
    except EgressRefused as error:
        raise ModelRejected(str(error)) from error
    except EgressFailed as error:
        raise ModelUnavailable(str(error)) from error


def chunks(response: Response) -> Iterator[bytes]:
    """The content as it comes, up to `MAX_REPLY_BYTES`."""
    try:
        yield from pieces(response, MAX_REPLY_BYTES)
    except EgressRefused as error:
        raise ModelRejected(f"{error} Ask for fewer tokens.") from error


_turns: dict[tuple[str, int], threading.Semaphore] = {}
_making = threading.Lock()


@contextmanager
def turn(server: str, at_once: int, limits: Limits) -> Iterator[None]:
    """Wait until fewer than `at_once` requests of this process are under way to a server.

    Raises:
        ModelUnavailable: the deadline came first.
        Cancelled: the run was cancelled.
    """
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
    """After a fork the child waits for nothing that its parent does."""
    global _making
    _turns.clear()
    _making = threading.Lock()


os.register_at_fork(after_in_child=_forget)
