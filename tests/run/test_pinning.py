"""What a run pins: opened once, by whoever comes first, with the threads of the run if need be."""

from __future__ import annotations

import time
from itertools import count
from threading import Barrier

from spolia.core.run_context import gather, pin
from spolia.run.run import Run
from spolia.types import Failure


def test_what_is_being_opened_holds_nothing_that_the_threads_of_the_run_need() -> None:
    met = Barrier(2)

    def charged() -> bool:
        met.wait(20)  # in two threads
        is_free = run.lock.acquire(timeout=5)  # as whoever reserves a call to a model does
        if is_free:
            run.lock.release()
        return is_free

    with Run(threads=3) as run:
        assert pin("store", lambda: gather([charged, charged])) == [True, True]


def test_arms_that_want_the_same_at_the_same_time_open_it_once() -> None:
    counter = count(1)

    def slowly() -> int:
        number = next(counter)
        time.sleep(0.05)
        return number

    with Run(threads=4):
        assert gather([lambda: pin("store", slowly)] * 4) == [1] * 4
        assert pin("store", slowly, lambda number: number > 1) == 2
        assert pin("store", slowly) == 2


def test_another_is_opened_meanwhile() -> None:
    met = Barrier(2)

    def meeting() -> int:
        return met.wait(20)

    with Run(threads=3):
        assert sorted(gather([lambda: pin("one", meeting), lambda: pin("other", meeting)])) == [0, 1]  # type: ignore[type-var]


def test_who_takes_part_in_the_opening_may_ask_for_the_same() -> None:
    met = Barrier(2)

    def inner() -> str:
        met.wait(20)
        return pin("store", lambda: "before")

    with Run(threads=3):
        assert pin("store", lambda: gather([inner, inner])) == ["before", "before"]


def test_what_could_not_be_opened_is_tried_again() -> None:
    def fails() -> int:
        raise OSError("gone")

    with Run(threads=3):
        failures = gather([lambda: pin("store", fails)] * 2)
        assert all(isinstance(failure, Failure) for failure in failures)
        assert pin("store", lambda: 1) == 1
