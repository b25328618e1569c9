"""When what was found is from."""

from __future__ import annotations

from datetime import UTC, datetime

from spolia.types import Node, Time, is_time

SECONDS_A_DAY = 86_400


def latest(node: Node, field: str) -> float | None:
    """The latest time of a metadata field, in days since 1970; None where it holds none.

    A year, a month or a day counts where it begins.

    >>> latest(Node("n", "", meta=(("day", "1970-01-02"), ("day", "soon"))), "day")
    1.0
    """
    times = (str(value) for name, value in node.meta if name == field and value is not None)
    found = [days_of(Time(time)) for time in times if is_time(time)]
    return max(found, default=None)


def days_of(time: Time) -> float:
    """When a time begins, in days since 1970."""
    at = datetime.strptime(time.first, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
    return at.timestamp() / SECONDS_A_DAY
