"""Access to a field of a value."""

import types
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from spolia.core.operator import Operator
from spolia.core.type_compatibility import join_types, name_of
from spolia.errors import StepFailed, WiringError
from spolia.types import Value


@dataclass(frozen=True)
class Get(Operator[Value, Any]):
    """Field of a value, for example to connect a judge or a reader to the state of a loop.

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
        field_type(type(value), self.field)
        field_value = getattr(value, self.field)
        if field_value is None:
            raise StepFailed(
                f"The field {self.field!r} of {type(value).__name__} is None. Fill it before it is needed, or give it "
                "a default."
            )
        return field_value

    def gives(self, input_type: Any, /) -> Any:
        super().gives(input_type)
        return field_type(input_type, self.field)

    def fanout(self, rows: int | None = None, /) -> int | None:
        return None


def field_names(kind: Any) -> list[str]:
    """Return the names of a value's fields; none if the type is unknown."""
    cls = get_origin(kind) or kind
    return [f.name for f in fields(cls)] if isinstance(cls, type) and is_dataclass(cls) else []


def field_type(kind: Any, name: str) -> Any:
    """Return the type of a field, without None; Any if unknown. Raise `WiringError` if the field does not exist."""
    if not (names := field_names(kind)):
        return Any
    if name not in names:
        raise WiringError(f"{name_of(kind)} has no field {name!r}. It has: {', '.join(names)}.")
    try:
        declared = get_type_hints(get_origin(kind) or kind)[name]
    except NameError:  # a type that is known in a function only
        return Any
    if get_origin(declared) in (Union, types.UnionType):
        return join_types([member for member in get_args(declared) if member is not types.NoneType])
    return Any if isinstance(declared, TypeVar) else declared
