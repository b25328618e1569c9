"""Filters on documents and nodes: conditions on declared metadata fields, with one meaning on every store.

A field may have several values (a document under two names has two). A condition holds when one of them fulfils it. A
node without a value takes the field's default; without a default no condition on the field holds, so that its negation
does. 0, False and "" are values like any other. A value of the wrong kind does not count. A field that is not
declared is an error, never an empty result.

>>> from spolia.filters import where, Between
>>> condition = where(lang=("en", "de")) & Between("year", at_least=2020) & ~where(kind="draft")
>>> condition.accepts({"lang": ("de",), "year": (2021,)})
True
"""

from spolia.filters.conditions import (
    And,
    AnyOf,
    Between,
    Bound,
    Condition,
    Leaf,
    Not,
    Operand,
    Or,
    combine_filters,
    where,
)
from spolia.filters.fields import FILE_FIELDS, KINDS, Field, Kind, Schema, notes_on

__all__ = [
    "And", "AnyOf", "Between", "Bound", "Condition", "FILE_FIELDS", "Field", "KINDS", "Kind", "Leaf", "Not",
    "Operand", "Or", "Schema", "combine_filters", "notes_on", "where",
]  # fmt: skip
