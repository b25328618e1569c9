"""Step that does nothing."""

from dataclasses import dataclass
from typing import ClassVar, TypeVar

from spolia.core.operator import Operator

T = TypeVar("T")


@dataclass(frozen=True)
class Identity(Operator[T, T]):
    """Step that returns its input: the "do nothing" candidate of a choice, or an arm that passes its input on.

    >>> Identity[str]()("as it was")
    'as it was'
    """

    composes: ClassVar[bool] = True

    def apply(self, value: T, /) -> T:
        return value

    def fanout(self, rows: int | None = None, /) -> int | None:
        return rows
