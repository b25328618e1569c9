"""One operator on several values."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, get_args, get_origin

from spolia.core.call_bounds import times
from spolia.core.combinators.branch import row_survivors, survivors
from spolia.core.operator import In, Operator, Out, checked_operator
from spolia.core.type_compatibility import fits, join_types, name_of
from spolia.errors import WiringError
from spolia.types import Failure


@dataclass(frozen=True)
class Each(Operator[Sequence[In], tuple[Out, ...]]):
    """Operator applied to every value of a sequence; results come in order.

    Args:
        arm: the operator.
        min_rows: how many must succeed; all by default. A failed one beyond that is left out and recorded.

    >>> from spolia.core.function import step
    >>> @step
    ... def double(n: int) -> int:
    ...     return 2 * n
    >>> Each(double)((1, 2, 3))
    (2, 4, 6)
    """

    arm: Operator[In, Out]
    min_rows: int | None = None
    composes: ClassVar[bool] = True

    def __post_init__(self) -> None:
        checked_operator(self.arm, "the arm of Each")
        if self.min_rows is not None and self.min_rows < 0:
            raise WiringError(f"min_rows is {self.min_rows}; it is 0 or more.")

    def apply(self, value: Sequence[In], /) -> tuple[Out, ...]:
        return survivors(self.arm.batch(value), self._minimum(value), "row", self)

    def apply_batch(self, values: Sequence[Sequence[In]], /) -> list[tuple[Out, ...] | Failure]:
        flat = [item for value in values for item in value]
        rows = [row for row, value in enumerate(values) for _ in value]
        results = iter(self.arm.batch(flat, rows=rows))
        return [
            row_survivors([next(results) for _ in value], self._minimum(value), "row", self, row)
            for row, value in enumerate(values)
        ]

    def _minimum(self, value: Sequence[In]) -> int | None:
        return None if self.min_rows is None else min(self.min_rows, len(value))

    def takes(self) -> Any:
        return Sequence[self.arm.takes()]  # type: ignore[misc]

    def gives(self, input_type: Any, /) -> Any:
        return tuple[self.arm.gives(element(input_type, self.short)), ...]  # type: ignore[misc]

    def calls(self, rows: int | None = None, /) -> int | None:
        return times(rows, self.arm.calls())

    def fanout(self, rows: int | None = None, /) -> int | None:
        return rows


def element(sequence_type: Any, owner: str) -> Any:
    """Return the type of the elements of a sequence type."""
    origin = get_origin(sequence_type) or sequence_type
    if origin is str or not fits(Sequence, sequence_type, {}):
        raise WiringError(
            f"{owner} takes several values, not {name_of(sequence_type)}. Put a step that gives a tuple before it."
        )
    return join_types([arg for arg in get_args(sequence_type) if arg is not Ellipsis])
