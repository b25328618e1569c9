"""A small path into JSON: names and numbers with dots between them."""

from __future__ import annotations

from typing import Any


def at(value: Any, path: str) -> Any:
    """What stands at a path; None where nothing does.

    >>> found = {"data": {"items": [{"id": 7}]}}
    >>> at(found, "data.items.0.id"), at(found, "data.next"), at(found, "")
    (7, None, {'data': {'items': [{'id': 7}]}})
    """
    for step in path.split(".") if path else ():
        if isinstance(value, dict):
            value = value.get(step)
        elif isinstance(value, list) and step.isdecimal() and int(step) < len(value):
            value = value[int(step)]
        else:
            return None
    return value
