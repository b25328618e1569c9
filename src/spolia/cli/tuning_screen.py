"""What `spolia tune` shows: what a study will take, and how far it is."""

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from threading import Lock
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group
from rich.live import Live

from spolia.cli.screen import EVERY_S, Renderable, Screen, one_line, table
from spolia.core.plurals import several
from spolia.evaluation.experiment.comparison import amount

if TYPE_CHECKING:
    from spolia.optimizer.pilot import Range, StudyEstimate
    from spolia.optimizer.progress import StudyProgress

SILENT = (
    "Calls if every reply says nothing; tokens from empty to the longest replies; equal contexts are asked once; the "
    "time is without that of the models. –: nothing, or no price is known."
)
REDRAWN_S = 0.5
TOP = 5
"""Flows of the leaderboard."""


def duration(seconds: float) -> str:
    """A time for people.

    >>> duration(0.2), duration(42), duration(130), duration(7300)
    ('0.2 s', '42 s', '2 m', '2.0 h')
    """
    if seconds < 100:
        return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} m" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _count(number: float) -> str:
    return f"{number:,.0f}"


def _usd(number: float) -> str:
    return f"{number:.2g}" if number < 10 else f"{number:,.0f}"


def _kinds(found: "StudyEstimate") -> "Iterator[tuple[str, Range, Callable[[float], str]]]":
    """Name, range and form of each cost."""
    yield "calls", found.calls, _count
    yield "tokens", found.tokens, _count
    yield "USD", found.usd, _usd
    yield "time", found.seconds, duration


def estimate_line(found: "StudyEstimate") -> str:
    """What a study will take, in one line.

    >>> from spolia.optimizer.pilot import StudyEstimate
    >>> estimate_line(StudyEstimate(100, 20, (90, 120, 120), (9e3, 2e4, 3e4), (0.0, 0.0, 0.0), (20.0, 25.0, 30.0)))
    'Estimate: 100 scores to choose, 20 to report; calls 90–120, tokens 9,000–30,000, USD –, time 20 s–30 s.'
    """
    told = []
    for name, (least, _, most), form in _kinds(found):
        told.append(f"{name} –" if not most else f"{name} {form(least)}–{form(most)}")
    scores = f"{_count(found.choosing)} scores to choose, {_count(found.reporting)} to report"
    return f"Estimate: {scores}; {', '.join(told)}."


def tell_study(
    screen: Screen, found: "StudyEstimate", flows: Mapping[str, Mapping[str, Any]], is_measured: bool
) -> None:
    """What a study would take, and what it would if all its scores were of one flow."""
    rows = [(name, *(form(one) if numbers[2] else "–" for one in numbers)) for name, numbers, form in _kinds(found)]
    screen.give(estimate={name: dict(one) for name, one in flows.items()}, n=found.choosing, study=asdict(found))
    how = "measured on a few flows" if is_measured else "nothing was sent to a server"
    screen.show(
        f"Estimate for {several(found.choosing, 'score')} to choose and {found.reporting:,} to report; {how}.",
        table(rows, "", "least", "about", "most"),
    )
    if flows:
        each = [
            (
                name,
                f"{one['calls']:,}",
                "no bound" if one["most_calls"] is None else f"{one['most_calls']:,}",
                f"{one['tokens']:,}",
                "–" if one["cost_usd"] is None and one["calls"] else f"{one['cost_usd'] or 0:.4g}",
            )
            for name, one in flows.items()
        ]
        head = ("", "calls", "at most", "tokens", "USD")
        screen.show("", "If all scores to choose were of one flow:", table(each, *head), SILENT)


def status(progress: "StudyProgress", allowed: str) -> str:
    """How far a study is, in one line."""
    spent, left = progress.spent, progress.seconds_left
    told = [f"{progress.done:,} of {progress.total:,} scores", f"{spent.calls:,} calls", f"{_usd(spent.cost_usd)} USD"]
    told += [f"budget {allowed}"] * bool(allowed)
    time_left = "" if left is None else f", about {duration(left)} left"
    return f"{', '.join(told)}; {duration(progress.seconds)}{time_left}"


@contextmanager
def leaderboard(
    screen: Screen, objective: str, is_share: bool, allowed: str
) -> "Iterator[Callable[[StudyProgress], None]]":
    """The flows that lead, with intervals, and how far the study is: redrawn on stderr if that is a terminal; else a
    line every half minute."""
    if not sys.stderr.isatty():
        yield _every(EVERY_S, lambda progress: screen.say(_line(progress, objective, is_share, allowed)))
        return

    console = Console(stderr=True, highlight=False, markup=False, emoji=False)
    with Live(console=console, transient=True, auto_refresh=False) as live:
        yield _every(
            REDRAWN_S, lambda progress: live.update(_drawn(progress, objective, is_share, allowed), refresh=True)
        )


def _every(seconds: float, show: "Callable[[StudyProgress], None]") -> "Callable[[StudyProgress], None]":
    """Show progress from time to time, regardless of the thread that reports it."""
    next_time, lock = time.monotonic() + seconds, Lock()

    def told(progress: "StudyProgress") -> None:
        nonlocal next_time
        if time.monotonic() < next_time or not lock.acquire(blocking=False):
            return
        try:
            show(progress)
            next_time = time.monotonic() + seconds
        finally:
            lock.release()

    return told


def _line(progress: "StudyProgress", objective: str, is_share: bool, allowed: str) -> str:
    best = "".join(
        f"; leads with {objective} {amount(one.score, is_share)}: {one_line(_choices(one.choices), 120)}"
        for one in progress.leaders(1)
    )
    return f"tuning: {status(progress, allowed)}{best}"


def _drawn(progress: "StudyProgress", objective: str, is_share: bool, allowed: str) -> Renderable:
    rows = [
        (f"{at}", amount(one.score, is_share), f"{one.questions:,}", one_line(_choices(one.choices)))
        for at, one in enumerate(progress.leaders(TOP), 1)
    ]
    shown = table(rows, "", f"{objective}, so far", "questions", "leading flows")
    return Group(status(progress, allowed), *([shown] if rows else []))


def _choices(choices: "Sequence[tuple[str, str]]") -> str:
    return ", ".join(map("=".join, choices))
