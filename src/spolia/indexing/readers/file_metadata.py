"""What a file says of itself, as metadata: names that mean the same in every format.

`author`, `date` (of the content, ISO 8601), `modified`, `subject`, `keywords`, `language`, `description`; of mails
`sender`, `to`, `cc`, `message_id`. What is empty is left out. Moments are in UTC, `2026-11-21T09:30:00Z`, so that they
are values of a field of kind `time`; those that say no time zone count as UTC, as in YAML, for want of anything better.
"""

import re
from collections.abc import Iterable
from datetime import UTC, date, datetime
from math import isfinite

from spolia.types import Meta, Scalar, time_text

_LONGEST = 1000
_TIMES = ("date", "modified")
_MOMENT = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:")
_CONTROLS = re.compile("[\x00-\x1f\ud800-\udfff\ufffe\uffff]+")


def fields(**found: object) -> Meta:
    """Metadata of a document; a field with several values occurs several times.

    >>> fields(date="2026-11-21T10:30:00+01:00", modified=datetime(2026, 11, 21, 10), title="2026-11-21 10:30")
    (('date', '2026-11-21T09:30:00Z'), ('modified', '2026-11-21T10:00:00Z'), ('title', '2026-11-21 10:30'))

    >>> fields(author="Ann  Lee", date=None, keywords=["stones", ""], pages=3)
    (('author', 'Ann Lee'), ('keywords', 'stones'), ('pages', 3))
    """
    return tuple(
        (name, _moment(value) if name in _TIMES else value)
        for name, values in found.items()
        for value in _values(values)
    )


def _moment(value: Scalar) -> Scalar:
    """A time as a text in UTC. A year, a month, a day, and any other text stay as they are."""
    if not isinstance(value, str) or _MOMENT.match(value) is None:
        return value
    try:
        return _utc(datetime.fromisoformat(value))
    except ValueError:
        return value


def _utc(time: date) -> str:
    """As text; a moment in UTC, or that says no time zone, with a `Z`."""
    if isinstance(time, datetime) and time.tzinfo is None:
        time = time.replace(tzinfo=UTC)
    try:
        return time_text(time)
    except OverflowError:  # it is before the first year, or after the last, in UTC
        return time.isoformat()


def _values(found: object) -> Iterable[Scalar]:
    if isinstance(found, (list, tuple)):
        for item in found:
            if not isinstance(item, (list, tuple)):
                yield from _values(item)
    elif isinstance(found, (bool, int, float)):
        if isfinite(found):
            yield found
    elif isinstance(found, (datetime, date)):
        yield _utc(found)
    elif isinstance(found, str) and (text := " ".join(_CONTROLS.sub(" ", found).split())):
        yield text[:_LONGEST]


def split(keywords: str | None) -> list[str]:
    """Keywords that are written in one field.

    >>> split("stones, walls; roads")
    ['stones', 'walls', 'roads']
    """
    return [word.strip() for word in re.split("[,;]", keywords or "")]
