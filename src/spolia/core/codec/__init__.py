"""Values, operators and addresses as plain data, and back: one pair of functions, directed by the declared types.

Plain data are what JSON has: text, numbers, true, false, null, lists, and mappings from text. No class says how it is
written; its fields say it.
"""

from collections.abc import Callable, Mapping
from typing import Any

from spolia.core.codec.shape import IMPORTED, DecodeContext, EncodeContext, Plain, nearest, type_id
from spolia.core.codec.type_plan import plan_of, shape_of


def encode(value: object, declared: Any = Any, *, given: Mapping[str, Any] | None = None) -> Plain:
    """The plain form of a value, an operator or an address. Fields that equal their defaults are left out.

    Args:
        declared: the type of the place that it is decoded at; without one it says itself what it is.
        given: objects that are written by their names, as `{use: name}`.

    Raises:
        CodecError: there is no plain form (a function, a number that is not finite, a handle).

    >>> from spolia.types import Query, Span
    >>> encode(Span(0, 3, pages=(1, 2)))
    {'Span': {'start': 0, 'end': 3, 'pages': [1, 2]}}
    >>> encode((Query("why?"),), tuple[Query, ...])
    [{'text': 'why?', 'question': 'why?'}]
    """
    return shape_of(declared).encode(value, EncodeContext(plan_of, given or {}))


def decode(
    plain: Plain,
    declared: Any = Any,
    *,
    known: Mapping[str, Any] = IMPORTED,
    given: Mapping[str, Any] | None = None,
    accept: Callable[[Any], None] | None = None,
) -> Any:
    """The value that plain data describe at a place of a declared type.

    Where an operator is declared a list is a chain, where a tuple is declared it is a tuple, and `{use: name}` is an
    object that the caller gives.

    Args:
        known: classes by id; by default the classes that are imported already.
        given: objects by name.
        accept: is shown each value, address and operator that the data describe, and raises for one that may not be.

    Raises:
        CodecError: the data describe no value of this type; the error knows the place.

    >>> decode({"Span": {"start": 0, "end": 3, "pages": [1, 2]}})
    Span(start=0, end=3, pages=(1, 2), lines=None, seconds=None, page_starts=())
    """
    return shape_of(declared).decode(plain, DecodeContext(plan_of, known, given or {}, accept))


__all__ = ["IMPORTED", "Plain", "decode", "encode", "nearest", "plan_of", "shape_of", "type_id"]
