"""Deadlines of many requests in one thread, and sockets that send at once."""

from __future__ import annotations

import socket
import threading
import time

import pytest

from spolia.egress.addresses import open_socket
from spolia.egress.clock import Clock


def threads() -> int:
    return sum(thread.name == "spolia-clock" for thread in threading.enumerate())


def test_what_is_due_is_called_in_order_and_once_by_one_thread() -> None:
    clock, threads_before, calls = Clock(), threads(), list[str]()
    done = threading.Event()
    now = time.monotonic()
    with (
        clock.schedule(now + 3600, lambda: calls.append("never")),
        clock.schedule(now + 0.10, done.set),
        clock.schedule(now + 0.05, lambda: calls.append("second")),
        clock.schedule(now - 1, lambda: calls.append("first")),
    ):
        assert done.wait(600)
        assert threads() == threads_before + 1
    assert calls == ["first", "second"]


@pytest.mark.slow
def test_what_ended_before_is_not_called_and_not_kept() -> None:
    clock, numbers = Clock(), list[int]()
    for number in range(1000):
        with clock.schedule(time.monotonic() + 0.05, lambda number=number: numbers.append(number)):  # type: ignore[misc]
            pass
    assert len(clock._due) < 100
    done = threading.Event()
    with clock.schedule(time.monotonic() + 0.1, done.set):
        assert done.wait(600)
    assert numbers == []


def test_a_socket_does_not_hold_back_what_is_written() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        connection = open_socket("127.0.0.1", server.getsockname()[1], 5.0, public=False)
        with connection:
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
