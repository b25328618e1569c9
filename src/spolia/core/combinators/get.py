"""A part of a value."""

import types
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from spolia.core.operator import Operator
from spolia.core.type_compatibility import joined, name_of
from spolia.errors import StepFailed, WiringError
from spolia.types import Value


@dataclass(frozen=True)
class Get(Operator[Value, Any]):
    """Give a field of a value: what joins a judge or a reader to the state of a loop.

    Args:
        field: of the value.

    Raises:
        WiringError: when it is built into a flow: the value lacks this field.
        StepFailed: when it runs: the field is None.

    >>> from spolia.types import Query
    >>> Get("question")(Query("author of Emma", "Who wrote Emma?"))
    'Who wrote Emma?'
    """

    field: str

    def apply(self, value: Value, /) -> Any:
        part_of(type(value), self.field)
        found = getattr(value, self.field)
        if found is None:
            raise StepFailed(
                f"The field {self.field!r} of {type(value).__name__} is None. Fill it before it is needed, or give it "
                "a default."
            )
        return found

    def gives(self, taken: Any, /) -> Any:
        super().gives(taken)
        return part_of(taken, self.field)

    def fanout(self, rows: int | None = None, /) -> int | None:
        return None


def parts_of(kind: Any) -> list[str]:
    """The names of a value's fields; none where the type is not known."""
    cls = get_origin(kind) or kind
    return [f.name for f in fields(cls)] if isinstance(cls, type) and is_dataclass(cls) else []


def part_of(kind: Any, name: str) -> Any:
    """The type of a field, without None; anything if unknown. Raises `WiringError` if the field does not exist."""
    if not (names := parts_of(kind)):
        return Any
    if name not in names:
        raise WiringError(f"{name_of(kind)} has no field {name!r}. It has: {', '.join(names)}.")
    try:
        found = get_type_hints(get_origin(kind) or kind)[name]
    except NameError:  # a type that is known in a function only
        return Any
    if get_origin(found) in (Union, types.UnionType):
        return joined([one for one in get_args(found) if one is not types.NoneType])
    return Any if isinstance(found, TypeVar) else found
