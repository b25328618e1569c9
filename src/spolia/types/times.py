"""Days and moments as texts that sort as they follow each other, and what else metadata can hold."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime
from numbers import Integral, Real

from spolia.types.value import Scalar

_TIME = re.compile(r"\d{4}(-\d\d(-\d\d(T\d\d(:\d\d(:\d\d)?)?Z?)?)?)?")


def is_time(text: str) -> bool:
    """Whether a text is a year, month, day or moment in UTC as they sort among each other.

    >>> [is_time(text) for text in ("2026", "2026-11-21T09:30:00Z", "2026-11-21T10:30+01:00", "yesterday")]
    [True, True, False, False]
    """
    return _TIME.fullmatch(text) is not None


def is_day(value: object) -> bool:
    """Whether it is a day, no moment."""
    return isinstance(value, date) and not isinstance(value, datetime)


def time_text(time: date) -> str:
    """A day, or a moment to the second: in UTC, with a `Z`, unless it says no time zone.

    >>> time_text(date(2026, 11, 21)), time_text(datetime.fromisoformat("2026-11-21T10:30:00+01:00"))
    ('2026-11-21', '2026-11-21T09:30:00Z')
    """
    if not isinstance(time, datetime):
        return time.isoformat()
    if time.tzinfo is None:
        return time.isoformat(timespec="seconds")
    return time.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="seconds") + "Z"


def scalar_of(value: object) -> Scalar:
    """A value as metadata hold it: times as texts, numbers of numpy and others as Python's own.

    Raises:
        ValueError: metadata hold no such value, or it is a moment somewhere, without time zone.

    >>> scalar_of(date(2026, 11, 21)), scalar_of(0), scalar_of(None)
    ('2026-11-21', 0, None)
    """
    if value is None or isinstance(value, (str, bool)):
        return value
    if isinstance(value, datetime) and value.tzinfo is None:
        raise ValueError(
            f"{value!r} says no time zone, so that it may be one moment or another. Write it with .astimezone() where "
            "it is a time here, with .replace(tzinfo=UTC) where it is one in UTC, or write a date"
        )
    if isinstance(value, date):
        return time_text(value)
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        return float(value)
    raise ValueError(
        f"{value!r:.60} is of type {type(value).__name__}. Write a text, a number, True, False, None, a date, or a "
        "datetime with its time zone"
    )
