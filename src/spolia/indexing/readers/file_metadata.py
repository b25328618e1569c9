"""Metadata that a file states, under names that mean the same in every format.

`author`, `date` (of the content, ISO 8601), `modified`, `subject`, `keywords`, `language`, `description`; of mails
`sender`, `to`, `cc`, `message_id`. What is empty is left out. Moments are in UTC, `2026-11-21T09:30:00Z`, so that they
are values of a field of kind `time`; those that say no time zone count as UTC, as in YAML, for want of anything better.
"""

import re
from collections.abc import Iterable
from datetime import UTC, date, datetime
from math import isfinite

from spolia.types import Meta, Scalar, format_time

_LONGEST_VALUE = 1000
_TIMES = ("date", "modified")
_TIME_START = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:")
_CONTROLS = re.compile("[\x00-\x1f\ud800-\udfff\ufffe\uffff]+")


def fields(**entries: object) -> Meta:
    """Build the metadata of a document. A field with several values occurs several times.

    >>> fields(date="2026-11-21T10:30:00+01:00", modified=datetime(2026, 11, 21, 10), title="2026-11-21 10:30")
    (('date', '2026-11-21T09:30:00Z'), ('modified', '2026-11-21T10:00:00Z'), ('title', '2026-11-21 10:30'))

    >>> fields(author="Ann  Lee", date=None, keywords=["stones", ""], pages=3)
    (('author', 'Ann Lee'), ('keywords', 'stones'), ('pages', 3))
    """
    return tuple(
        (name, _normalize_time(value) if name in _TIMES else value)
        for name, values in entries.items()
        for value in _scalars(values)
    )


def _normalize_time(value: Scalar) -> Scalar:
    """Convert a time to UTC. A year, a month, a day and any other text stay as they are."""
    if not isinstance(value, str) or _TIME_START.match(value) is None:
        return value
    try:
        return _utc_text(datetime.fromisoformat(value))
    except ValueError:
        return value


def _utc_text(time: date) -> str:
    """Format a date, or a time in UTC with a `Z`. A time without a zone counts as UTC."""
    if isinstance(time, datetime) and time.tzinfo is None:
        time = time.replace(tzinfo=UTC)
    try:
        return format_time(time)
    except OverflowError:  # it is before the first year, or after the last, in UTC
        return time.isoformat()


def _scalars(value: object) -> Iterable[Scalar]:
    if isinstance(value, (list, tuple)):
        for item in value:
            if not isinstance(item, (list, tuple)):
                yield from _scalars(item)
    elif isinstance(value, (bool, int, float)):
        if isfinite(value):
            yield value
    elif isinstance(value, (datetime, date)):
        yield _utc_text(value)
    elif isinstance(value, str) and (text := " ".join(_CONTROLS.sub(" ", value).split())):
        yield text[:_LONGEST_VALUE]


def split_keywords(keywords: str | None) -> list[str]:
    """Split the keywords of one field.

    >>> split_keywords("stones, walls; roads")
    ['stones', 'walls', 'roads']
    """
    return [word.strip() for word in re.split("[,;]", keywords or "")]
