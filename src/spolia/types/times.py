"""Years, months, days and moments as texts, each of them a period; and what else metadata can hold."""

import re
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from numbers import Integral, Real
from typing import Self

from spolia.types.value import Scalar

_TIME = re.compile(  # ASCII digits only, since the ends of periods are compared as texts.
    r"(?P<year>\d{4})(-(?P<month>\d\d)(-(?P<day>\d\d)"
    r"([T ](?P<hour>\d\d)(:(?P<minute>\d\d)(:(?P<second>\d\d)(\.\d+)?)?)?(Z|[+-]\d\d:?\d\d))?)?)?",
    re.ASCII,
)
_MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", re.ASCII)
"""The form of most times, checked first because it is fast."""
# the finest unit first: the first one that a text has is what it is exact to
_SPANS = {"second": timedelta(0), "minute": timedelta(seconds=59), "hour": timedelta(minutes=59, seconds=59)}


class Time(str):
    """Text that says a time, and the period that it means: a year, a month, a day, an hour, a minute or a second.

    Attributes:
        first: second of the period, in UTC.
        last: second of the period, in UTC.

    Raises:
        ValueError: it says no time, or one in no time zone, with what to write.

    >>> Time("2024-02").first, Time("2024-02").last
    ('2024-02-01T00:00:00Z', '2024-02-29T23:59:59Z')
    >>> Time("2026-11-21T10:30:00+01:00").first
    '2026-11-21T09:30:00Z'
    """

    first: str
    last: str

    def __new__(cls, text: str) -> Self:
        time = super().__new__(cls, text)
        time.first, time.last = _find_period(text)
        return time

    @classmethod
    @lru_cache(maxsize=256)  # a filter compares the same operands with every node
    def from_text(cls, text: str) -> Self:
        """Return `Time(text)`, cached."""
        return cls(text)


def _find_period(text: str) -> tuple[str, str]:
    """Return the first and last second of a time."""
    try:
        if _MOMENT.fullmatch(text):
            datetime.fromisoformat(text)  # raises for a day that no month has
            return text, text
        if (match := _TIME.fullmatch(text)) is not None:
            return _period_of_days(match) if match["hour"] is None else _period_of_moment(match)
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{text!r:.60} is not a valid time") from error
    raise ValueError(f"{text!r:.60} is not a year, month, day, or moment with its time zone")


def _period_of_days(match: re.Match[str]) -> tuple[str, str]:
    year, month, day = int(match["year"]), match["month"], match["day"]
    begin, until = date(year, int(month or 1), int(day or 1)), int(month or 12)
    # December by itself: the year 9999 has no next month to count back from.
    last = 31 if until == 12 else (date(year, until + 1, 1) - timedelta(days=1)).day
    end = date(year, until, int(day or last))
    return f"{begin.isoformat()}T00:00:00Z", f"{end.isoformat()}T23:59:59Z"


def _period_of_moment(match: re.Match[str]) -> tuple[str, str]:
    begin = datetime.fromisoformat(match[0])
    unit = next(unit for unit in _SPANS if match[unit] is not None)
    return format_time(begin), format_time(begin + _SPANS[unit])


def is_time(text: str) -> bool:
    """Return whether a text is a year, a month, a day, or a moment with its time zone.

    >>> [is_time(text) for text in ("2026", "2026-11-21T10:30+01:00", "2026-11-21T10:30", "2026-13", "yesterday")]
    [True, True, False, False, False]
    """
    try:
        _find_period(text)
    except ValueError:
        return False
    return True


def format_time(time: date) -> str:
    """Write a day, or a moment to the second: in UTC, with a `Z`, unless it says no time zone.

    >>> format_time(date(2026, 11, 21)), format_time(datetime.fromisoformat("2026-11-21T10:30:00+01:00"))
    ('2026-11-21', '2026-11-21T09:30:00Z')
    """
    if not isinstance(time, datetime):  # a datetime is a date too
        return time.isoformat()
    if time.tzinfo is None:
        return time.isoformat(timespec="seconds")
    return time.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="seconds") + "Z"


def scalar_of(value: object) -> Scalar:
    """Return a value as metadata hold it: times as texts, numbers of numpy and others as Python's own.

    Raises:
        ValueError: metadata cannot hold the value, or it is a moment without a time zone.

    >>> scalar_of(date(2026, 11, 21)), scalar_of(0), scalar_of(None)
    ('2026-11-21', 0, None)
    """
    if value is None or isinstance(value, (str, bool)):  # before numbers, since True is an Integral
        return value
    if isinstance(value, datetime) and value.tzinfo is None:
        raise ValueError(
            f"{value!r} says no time zone, so that it may be one moment or another. Write it with .astimezone() where "
            "it is a time here, with .replace(tzinfo=UTC) where it is one in UTC, or write a date"
        )
    if isinstance(value, date):
        return format_time(value)
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        return float(value)
    raise ValueError(
        f"{value!r:.60} is of type {type(value).__name__}. Write a text, a number, True, False, None, a date, or a "
        "datetime with its time zone"
    )
