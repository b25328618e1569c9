"""What a file says of itself, as metadata: names that mean the same in every format.

`author`, `date` (of the content, ISO 8601), `modified`, `subject`, `keywords`, `language`, `description`; of mails
`sender`, `to`, `cc`, `message_id`. What is empty is left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import date, datetime
from math import isfinite

from spolia.types import Meta, Scalar

_LONGEST = 1000
_CONTROLS = re.compile("[\x00-\x1f\ud800-\udfff\ufffe\uffff]+")


def fields(**found: object) -> Meta:
    """Metadata of a document; a field with several values stands there several times.

    >>> fields(author="Ann  Lee", date=None, keywords=["stones", ""], pages=3)
    (('author', 'Ann Lee'), ('keywords', 'stones'), ('pages', 3))
    """
    return tuple((name, value) for name, values in found.items() for value in _values(values))


def _values(found: object) -> Iterable[Scalar]:
    if isinstance(found, (list, tuple)):
        for item in found:
            if not isinstance(item, (list, tuple)):
                yield from _values(item)
    elif isinstance(found, (bool, int, float)):
        if isfinite(found):
            yield found
    elif isinstance(found, (datetime, date)):
        yield found.isoformat()
    elif isinstance(found, str) and (text := " ".join(_CONTROLS.sub(" ", found).split())):
        yield text[:_LONGEST]


def split(keywords: str | None) -> list[str]:
    """Keywords that are written in one field.

    >>> split("stones, walls; roads")
    ['stones', 'walls', 'roads']
    """
    return [word.strip() for word in re.split("[,;]", keywords or "")]
