"""Display of `spolia tune`: what a study will take, and how far it is."""

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
from spolia.evaluation.experiment.comparison import format_interval

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


def format_duration(seconds: float) -> str:
    """Format a time for people.

    >>> format_duration(0.2), format_duration(42), format_duration(130), format_duration(7300)
    ('0.2 s', '42 s', '2 m', '2.0 h')
    """
    if seconds < 100:
        return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} m" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _count(number: float) -> str:
    return f"{number:,.0f}"


def _usd(number: float) -> str:
    return f"{number:.2g}" if number < 10 else f"{number:,.0f}"


def _list_costs(estimate: "StudyEstimate") -> "Iterator[tuple[str, Range, Callable[[float], str]]]":
    """Name, range and form of each cost."""
    yield "calls", estimate.calls, _count
    yield "tokens", estimate.tokens, _count
    yield "USD", estimate.usd, _usd
    yield "time", estimate.seconds, format_duration


def format_estimate(estimate: "StudyEstimate") -> str:
    """Format in one line what a study will take.

    >>> from spolia.optimizer.pilot import StudyEstimate
    >>> format_estimate(StudyEstimate(100, 20, (90, 120, 120), (9e3, 2e4, 3e4), (0.0, 0.0, 0.0), (20.0, 25.0, 30.0)))
    'Estimate: 100 scores to choose, 20 to report; calls 90–120, tokens 9,000–30,000, USD –, time 20 s–30 s.'
    """
    parts = []
    for name, (low, _, high), form in _list_costs(estimate):
        parts.append(f"{name} –" if not high else f"{name} {form(low)}–{form(high)}")
    scores = f"{_count(estimate.choosing)} scores to choose, {_count(estimate.reporting)} to report"
    return f"Estimate: {scores}; {', '.join(parts)}."


def print_study_estimate(
    screen: Screen, estimate: "StudyEstimate", flows: Mapping[str, Mapping[str, Any]], is_measured: bool
) -> None:
    """Print what a study would take, and what it would if all its scores were of one flow."""
    rows = [
        (name, *(form(number) if numbers[2] else "–" for number in numbers))
        for name, numbers, form in _list_costs(estimate)
    ]
    screen.give(
        estimate={name: dict(flow_estimate) for name, flow_estimate in flows.items()},
        n=estimate.choosing,
        study=asdict(estimate),
    )
    source = "measured on a few flows" if is_measured else "nothing was sent to a server"
    screen.show(
        f"Estimate for {several(estimate.choosing, 'score')} to choose and {estimate.reporting:,} to report; {source}.",
        table(rows, "", "least", "about", "most"),
    )
    if flows:
        flow_rows = [
            (
                name,
                f"{flow_estimate['calls']:,}",
                "no bound" if flow_estimate["most_calls"] is None else f"{flow_estimate['most_calls']:,}",
                f"{flow_estimate['tokens']:,}",
                "–"
                if flow_estimate["cost_usd"] is None and flow_estimate["calls"]
                else f"{flow_estimate['cost_usd'] or 0:.4g}",
            )
            for name, flow_estimate in flows.items()
        ]
        head = ("", "calls", "at most", "tokens", "USD")
        screen.show("", "If all scores to choose were of one flow:", table(flow_rows, *head), SILENT)


def format_status(progress: "StudyProgress", allowed: str) -> str:
    """Format in one line how far a study is."""
    usage, seconds_left = progress.spent, progress.seconds_left
    parts = [f"{progress.done:,} of {progress.total:,} scores", f"{usage.calls:,} calls", f"{_usd(usage.cost_usd)} USD"]
    parts += [f"budget {allowed}"] * bool(allowed)
    time_left = "" if seconds_left is None else f", about {format_duration(seconds_left)} left"
    return f"{', '.join(parts)}; {format_duration(progress.seconds)}{time_left}"


@contextmanager
def show_leaderboard(
    screen: Screen, objective: str, is_share: bool, allowed: str
) -> "Iterator[Callable[[StudyProgress], None]]":
    """Show the leading flows with intervals and how far the study is: redrawn on stderr if that is a terminal; else a
    line every half minute."""
    if not sys.stderr.isatty():
        yield _throttle(EVERY_S, lambda progress: screen.say(_format_line(progress, objective, is_share, allowed)))
        return

    console = Console(stderr=True, highlight=False, markup=False, emoji=False)
    with Live(console=console, transient=True, auto_refresh=False) as live:
        yield _throttle(
            REDRAWN_S, lambda progress: live.update(_draw_leaders(progress, objective, is_share, allowed), refresh=True)
        )


def _throttle(seconds: float, show: "Callable[[StudyProgress], None]") -> "Callable[[StudyProgress], None]":
    """Show progress from time to time, regardless of the thread that reports it."""
    next_time, lock = time.monotonic() + seconds, Lock()

    def show_if_due(progress: "StudyProgress") -> None:
        nonlocal next_time
        # A thread that finds the screen busy skips its report, so the display never delays the study.
        if time.monotonic() < next_time or not lock.acquire(blocking=False):
            return
        try:
            show(progress)
            next_time = time.monotonic() + seconds
        finally:
            lock.release()

    return show_if_due


def _format_line(progress: "StudyProgress", objective: str, is_share: bool, allowed: str) -> str:
    best = "".join(
        f"; leads with {objective} {format_interval(leader.score, is_share)}: {one_line(_choices(leader.choices), 120)}"
        for leader in progress.leaders(1)
    )
    return f"tuning: {format_status(progress, allowed)}{best}"


def _draw_leaders(progress: "StudyProgress", objective: str, is_share: bool, allowed: str) -> Renderable:
    rows = [
        (
            f"{rank}",
            format_interval(leader.score, is_share),
            f"{leader.questions:,}",
            one_line(_choices(leader.choices)),
        )
        for rank, leader in enumerate(progress.leaders(TOP), 1)
    ]
    leader_table = table(rows, "", f"{objective}, so far", "questions", "leading flows")
    return Group(format_status(progress, allowed), *([leader_table] if rows else []))


def _choices(choices: "Sequence[tuple[str, str]]") -> str:
    return ", ".join(map("=".join, choices))
