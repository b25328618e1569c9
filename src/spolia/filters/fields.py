"""Metadata fields that are declared, and those of every file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal, TypeAlias

from spolia.errors import FilterError
from spolia.filters.conditions import Condition
from spolia.types import Meta, Record, Scalar, Value, is_time

Kind: TypeAlias = Literal["str", "int", "float", "bool", "time"]
KINDS: Mapping[str, type] = {"str": str, "int": int, "float": float, "bool": bool, "time": str}


@dataclass(frozen=True)
class Field(Value):
    """A metadata field that can be filtered.

    Args:
        name: as it stands in the metadata.
        kind: type of its values: `str`, `int`, `float`, `bool`, or `time`: years, months, days and moments in UTC, as
            texts that sort as they follow each other: `2026`, `2026-11-21`, `2026-11-21T09:30:00Z`.
        default: value of what has none; None for no value.
        max_length: characters of a text, at most; None for no limit.

    Raises:
        FilterError: for a default that is no value of the field, an empty name, an unknown kind, a length of what has
            none.

    >>> Field("year", "int", default=0).default
    0
    """

    name: str
    kind: Kind = "str"
    default: Scalar = None
    max_length: int | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise FilterError(f"A field is called {self.name!r}. Write a name: Field('year', 'int').")
        if self.kind not in KINDS:
            raise FilterError(f"Field {self.name!r} has kind {self.kind!r}. Write one of: {', '.join(KINDS)}.")
        if self.max_length is not None and (self.kind != "str" or self.max_length < 1):
            raise FilterError(
                f"Field {self.name!r} holds {self.kind} with max_length={self.max_length!r}. It is the number of "
                "characters of a text, at least 1; leave it away for other kinds."
            )
        if self.default is not None:
            self.check(self.default, "the default")

    def check(self, value: Scalar, whose: str) -> None:
        """Refuse what is no value of the field.

        Args:
            whose: what has the value, for the message.
        """
        fits = type(value) is KINDS[self.kind] or (self.kind == "float" and type(value) is int)
        if fits and self.kind == "time" and not is_time(str(value)):
            raise FilterError(
                f"Field {self.name!r} holds times, and {whose} is {value!r:.80}. Write a date, a datetime with its "
                "time zone, or a text like '2026-11-21' or '2026-11-21T09:30:00Z'."
            )
        if not fits or value != value:
            raise FilterError(
                f"Field {self.name!r} holds {self.kind}, and {whose} is {value!r:.80} ({type(value).__name__}). "
                f"Write a {self.kind}, or declare Field({self.name!r}, {type(value).__name__!r})."
            )
        if self.max_length is not None and isinstance(value, str) and len(value) > self.max_length:
            raise FilterError(
                f"Field {self.name!r} holds at most {self.max_length} characters, and {whose} has {len(value)}. "
                f"Shorten it, or declare the field with another max_length."
            )

    def values(self, meta: Meta) -> tuple[Scalar, ...]:
        """The values of the field in metadata: all pairs of its name, else the default, else none."""
        found = tuple(value for name, value in meta if name == self.name and value is not None)
        return found or (() if self.default is None else (self.default,))


FILE_FIELDS: tuple[Field, ...] = (
    Field("file_name"),
    Field("file_type"),
    Field("file_size", "int"),
    Field("file_created", "time"),
    Field("file_modified", "time"),
    Field("file_accessed", "time"),
)
"""Fields of every file that a document was read from, without being declared: name without folders, suffix without dot,
bytes, and three times in UTC, as they were when the file was indexed."""


class Schema(tuple[Field, ...]):
    """The declared fields of a store, and those of every file.

    Raises:
        FilterError: two fields of one name, or one of a field of every file.
    """

    implied: ClassVar[tuple[Field, ...]] = FILE_FIELDS

    def __new__(cls, fields: Iterable[Field] = ()) -> Schema:
        found = super().__new__(cls, fields)
        taken = {field.name for field in cls.implied}
        for field in found:
            if not isinstance(field, Field):
                raise FilterError(f"{field!r:.80} is no field. Write Field(name, kind): Field('year', 'int').")
            if field.name in taken:
                raise FilterError(
                    f"Field {field.name!r} is declared twice, or is one that every file has "
                    f"({', '.join(implied.name for implied in cls.implied)}). Declare it once, under a name of its own."
                )
            taken.add(field.name)
        return found

    @cached_property
    def by_name(self) -> Mapping[str, Field]:
        """Each field by its name."""
        return {field.name: field for field in (*self.implied, *self)}

    def check(self, filter: Condition) -> None:
        """Refuse a filter on a field that is not declared, or with values of another type.

        Raises:
            FilterError: and which fields there are.
        """
        known = self.by_name
        for leaf in filter.leaves():
            field = known.get(leaf.field)
            if field is None:
                raise FilterError(
                    f"There is no metadata field {leaf.field!r} to filter by. Declared are: {', '.join(sorted(known))}."
                    f" Write one of these, or declare it: sync(folder, corpus, fields=(Field({leaf.field!r}, ...),))."
                )
            for operand in leaf.operands():
                field.check(operand, "the filter's value")

    def check_values(self, meta: Meta, whose: str) -> None:
        """Refuse metadata that a field, declared or of every file, cannot hold.

        Args:
            whose: what has the metadata, for the message.
        """
        for name, value in meta:
            if name in self.by_name and value is not None:
                self.by_name[name].check(value, whose)

    def record(self, meta: Meta) -> Record:
        """The values of every field, defaults filled in."""
        return {field.name: field.values(meta) for field in (*self.implied, *self)}
