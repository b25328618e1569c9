"""Conversion of values, operators and addresses to plain data and back, directed by the declared types.

Plain data are what JSON has: text, numbers, true, false, null, lists, and mappings from text. No class says how it is
written; its fields say it.
"""

from collections.abc import Callable, Mapping
from typing import Any

from spolia.core.codec.shape import IMPORTED, DecodeContext, EncodeContext, Plain, nearest_name, type_id
from spolia.core.codec.type_plan import plan_of, shape_of


def encode(value: object, declared: Any = Any, *, objects: Mapping[str, Any] | None = None) -> Plain:
    """Return the plain form of a value, an operator or an address, without fields that equal their defaults.

    Args:
        declared: the type of the place that it is decoded at; without one it says itself what it is.
        objects: objects that are written by their names, as `{use: name}`.

    Raises:
        CodecError: there is no plain form (a function, a number that is not finite, a handle).

    >>> from spolia.types import Query, Span
    >>> encode(Span(0, 3, pages=(1, 2)))
    {'Span': {'start': 0, 'end': 3, 'pages': [1, 2]}}
    >>> encode((Query("why?"),), tuple[Query, ...])
    [{'text': 'why?', 'question': 'why?'}]
    """
    return shape_of(declared).encode(value, EncodeContext(plan_of, objects or {}))


def decode(
    plain: Plain,
    declared: Any = Any,
    *,
    classes: Mapping[str, Any] = IMPORTED,
    objects: Mapping[str, Any] | None = None,
    accept: Callable[[Any], None] | None = None,
) -> Any:
    """Return the value that plain data describe at a place of a declared type.

    Where an operator is declared a list is a chain, where a tuple is declared it is a tuple, and `{use: name}` is an
    object that the caller gives.

    Args:
        classes: classes by id; by default the classes that are imported already.
        objects: objects by name.
        accept: is shown each value, address and operator that the data describe, and raises for one that may not be.

    Raises:
        CodecError: the data describe no value of this type; the error knows the place.

    >>> decode({"Span": {"start": 0, "end": 3, "pages": [1, 2]}})
    Span(start=0, end=3, pages=(1, 2), lines=None, seconds=None, page_starts=())
    """
    return shape_of(declared).decode(plain, DecodeContext(plan_of, classes, objects or {}, accept))


__all__ = ["IMPORTED", "Plain", "decode", "encode", "nearest_name", "plan_of", "shape_of", "type_id"]
