"""Metadata fields that are declared, and those of every file."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal, TypeAlias

from spolia.errors import FilterError
from spolia.filters.conditions import Condition
from spolia.types import Meta, Record, Scalar, Time, Value, is_time

Kind: TypeAlias = Literal["str", "int", "float", "bool", "time"]
KINDS: Mapping[str, type] = {"str": str, "int": int, "float": float, "bool": bool, "time": str}


@dataclass(frozen=True)
class Field(Value):
    """Metadata field that can be filtered.

    Args:
        name: in the metadata.
        kind: type of its values: `str`, `int`, `float`, `bool`, or `time`: years, months, days, and moments with their
            time zone, as texts: `2026`, `2026-11-21`, `2026-11-21T09:30:00Z`, `2026-11-21T10:30+01:00`.
        default: value of a document without one; None for no value.
        max_length: characters of a text, at most; None for no limit.

    Raises:
        FilterError: for a default that the field cannot hold, an empty name, an unknown kind, a length of a kind
            without one.

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

    def fits(self, value: Scalar) -> bool:
        """Return whether it is a value of the field.

        >>> Field("year", "int").fits("2024"), Field("day", "time").fits("2024-05-01T10:00")
        (False, False)
        """
        if self.kind == "time":
            return isinstance(value, str) and is_time(value)
        if self.kind == "str":
            return isinstance(value, str) and (self.max_length is None or len(value) <= self.max_length)
        # not isinstance: True is an int
        is_of_kind = type(value) is KINDS[self.kind] or (self.kind == "float" and type(value) is int)
        return is_of_kind and value == value  # NaN would fulfil no condition, not even equality with itself

    def check(self, value: Scalar, whose: str) -> None:
        """Raise if a value does not fit the field; `whose` names its owner in the message."""
        if not self.fits(value):
            raise FilterError(self._describe_problem(value, whose))

    def _describe_problem(self, value: Scalar, whose: str) -> str:
        if self.kind == "time" and isinstance(value, str):
            return (
                f"Field {self.name!r} holds times, and {whose} is {value!r:.80}. Write a date, a datetime with its "
                "time zone, or a text like '2026', '2026-11', '2026-11-21', '2026-11-21T09:30:00Z' or "
                "'2026-11-21T10:30+01:00'."
            )
        if self.kind == "str" and isinstance(value, str):
            return (
                f"Field {self.name!r} holds at most {self.max_length} characters, and {whose} has {len(value)}. "
                "Shorten it, or declare the field with another max_length."
            )
        # fields of files cannot be declared again
        alternative = "" if self in FILE_FIELDS else f", or declare Field({self.name!r}, {type(value).__name__!r})"
        return (
            f"Field {self.name!r} holds {self.kind}, and {whose} is {value!r:.80} ({type(value).__name__}). "
            f"Write {'an' if self.kind == 'int' else 'a'} {self.kind}{alternative}."
        )

    def meant(self, values: Iterable[Scalar]) -> Iterator[Scalar]:
        """Return the values that fit the field, as conditions compare them; others are skipped."""
        fitting = filter(self.fits, values)
        return (Time(str(value)) for value in fitting) if self.kind == "time" else fitting

    def values(self, meta: Meta) -> tuple[Scalar, ...]:
        """Return the field's values in metadata: all pairs of its name that fit, else the default, else none."""
        scalars = tuple(self.meant(value for name, value in meta if name == self.name))
        return scalars or tuple(self.meant((self.default,)))


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
    """Declared fields of a store, and those of every file; FilterError if two have the same name."""

    implied: ClassVar[tuple[Field, ...]] = FILE_FIELDS

    def __new__(cls, fields: Iterable[Field] = ()) -> "Schema":
        if isinstance(fields, Field):
            raise FilterError(f"{fields!r:.80} is one field. Write [Field({fields.name!r}, ...)].")
        schema = super().__new__(cls, fields)
        names = {field.name for field in cls.implied}
        for field in schema:
            if not isinstance(field, Field):
                raise FilterError(f"{field!r:.80} is not a field. Write Field(name, kind): Field('year', 'int').")
            if field.name in names:
                raise FilterError(
                    f"Field {field.name!r} is declared twice, or is one that every file has "
                    f"({', '.join(implied.name for implied in cls.implied)}). Declare it once, under a name of its own."
                )
            names.add(field.name)
        return schema

    @cached_property
    def by_name(self) -> Mapping[str, Field]:  # kept, as `problems` looks up every value of every document in it
        return {field.name: field for field in (*self.implied, *self)}

    def check(self, filter: Condition) -> None:
        """Raise FilterError for a filter on a field that is not declared, or with values of another type."""
        declared = self.by_name
        for leaf in filter.leaves():
            field = declared.get(leaf.field)
            if field is None:
                raise FilterError(
                    f"There is no metadata field {leaf.field!r} to filter by. Declared are: "
                    f"{', '.join(sorted(declared))}. Write one of these, or declare it: "
                    f"sync(folder, corpus, fields=(Field({leaf.field!r}, ...),))."
                )
            for operand in leaf.operands():
                field.check(operand, "the filter's value")

    def problems(self, meta: Meta, whose: str = "its value") -> Iterator[str]:
        """Yield a sentence for each value of metadata that its field cannot hold: it counts as missing."""
        for name, value in meta:
            field = self.by_name.get(name)
            if field is not None and value is not None and not field.fits(value):
                yield f"{field._describe_problem(value, whose)} It is skipped."

    def record(self, meta: Meta) -> Record:
        """Return the values of every field, defaults filled in."""
        return {field.name: field.values(meta) for field in (*self.implied, *self)}


_MAX_LISTED = 12


def notes_on(schema: Schema, described: Iterable[tuple[str, Meta]]) -> tuple[str, ...]:
    """Return remarks on the declared fields: values that are passed over, and fields without a value.

    Args:
        described: documents and nodes, each by a name for the message, with their metadata.

    >>> from spolia.filters import Field
    >>> notes_on(Schema((Field("tags"),)), [("document a.md", (("keywords", "stones"),))])
    ("No document has a value of the field 'tags'. The names that documents have are: keywords.",)
    """
    used, passed_over, first = set[str](), Counter[str](), dict[str, str]()
    names: dict[str, None] = {}  # a dict keeps the order in which documents have them; a set does not
    fields = {field.name: field for field in schema}
    for whose, meta in described:
        invalid = set[str]()  # once a document, however many of its values do not fit
        for name, value in meta:
            names.setdefault(name)
            if (field := fields.get(name)) is None or value is None:
                continue
            if field.fits(value):
                used.add(name)
            else:
                invalid.add(name)
                if name not in first:
                    # one example a field: a folder of bad files is one line
                    first[name] = next(schema.problems(((name, value),), whose))
        passed_over.update(invalid)
    return tuple(
        _write_note(name, passed_over[name], first.get(name), names)
        for name in fields
        if name in first or name not in used
    )


def _write_note(name: str, count: int, first: str | None, names: Iterable[str]) -> str:
    if first is not None:
        return first if count == 1 else f"{first} So are those of {count - 1} others."
    listed = list(names)
    names_text = ", ".join(listed[:_MAX_LISTED]) + (
        f" and {len(listed) - _MAX_LISTED} more" if len(listed) > _MAX_LISTED else ""
    )
    return f"No document has a value of the field {name!r}. The names that documents have are: {names_text or 'none'}."
