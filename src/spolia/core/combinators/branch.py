"""Several operators on one value."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from spolia.core.call_bounds import total
from spolia.core.operator import In, Operator, Out, checked_operator
from spolia.core.run_context import degrade, gather
from spolia.core.type_compatibility import join_types, name_of
from spolia.errors import BudgetSpent, QueryError, StepFailed, UndecidedError, WiringError
from spolia.types import Failure

R = TypeVar("R")


@dataclass(frozen=True, init=False, repr=False)
class Branch(Operator[In, tuple[Out, ...]]):
    """Arms that run on the same value, concurrently where they wait; results come in the order of the arms.

    Args:
        arms: the operators.
        min_arms: how many must succeed; all by default. A failed arm beyond that is left out and recorded.

    Raises:
        StepFailed: fewer than `min_arms` arms succeeded.

    >>> from spolia.core.function import step
    >>> @step
    ... def double(n: int) -> int:
    ...     return 2 * n
    >>> Branch(double, double >> double)(3)
    (6, 12)
    """

    arms: tuple[Operator[In, Out], ...]
    min_arms: int | None = None
    variadic: ClassVar[str] = "arms"
    composes: ClassVar[bool] = True

    def __init__(self, *arms: Operator[In, Out], min_arms: int | None = None) -> None:
        if not arms:
            raise WiringError("Branch needs at least one arm. Write Branch(first, second, ...).")
        if min_arms is not None and not 1 <= min_arms <= len(arms):
            raise WiringError(f"min_arms is {min_arms}; with {len(arms)} arms it lies between 1 and {len(arms)}.")
        for index, arm in enumerate(arms):
            checked_operator(arm, f"arm {index} of Branch")
        object.__setattr__(self, "arms", arms)
        object.__setattr__(self, "min_arms", min_arms)
        self.gives(self.takes())

    def apply(self, value: In, /) -> tuple[Out, ...]:
        results = gather([_call(arm, value) for arm in self.arms], waits=[arm.waiting for arm in self.arms])
        return survivors(results, self.min_arms, "arm", self)

    def apply_batch(self, values: Sequence[In], /) -> list[tuple[Out, ...] | Failure]:
        arms = [_batch(arm, values) for arm in self.arms]
        by_arm = [
            [result] * len(values) if isinstance(result, Failure) else result
            for result in gather(arms, waits=[arm.waiting for arm in self.arms])
        ]
        return [
            row_survivors(results, self.min_arms, "arm", self, row)
            for row, results in enumerate(zip(*by_arm, strict=True))
        ]

    def late_searches(self) -> tuple[Operator[Any, Any], ...]:
        return tuple(search for arm in self.arms for search in arm.late_searches())

    def takes(self) -> Any:
        return narrowest_input(self.arms, self.gives)

    def gives(self, input_type: Any, /) -> Any:
        return tuple[joint_output_type(self.arms, input_type, "Branch"), ...]  # type: ignore[misc]

    def calls(self, rows: int | None = None, /) -> int | None:
        return total(arm.calls(rows) for arm in self.arms)

    def fanout(self, rows: int | None = None, /) -> int | None:
        return len(self.arms)


# A function, since a lambda in a comprehension would call the last arm each time.
def _call(arm: Operator[In, Out], value: In) -> Callable[[], Out]:
    return lambda: arm(value)


def _batch(arm: Operator[In, Out], values: Sequence[In]) -> Callable[[], list[Out | Failure]]:
    return lambda: arm.batch(values, rows=range(len(values)))


def survivors(
    results: Sequence[R | Failure], minimum: int | None, noun: str, op: Operator[Any, Any], row: int | None = None
) -> tuple[R, ...]:
    """Return the results that did not fail, if there are enough; failures are recorded."""
    for result in results:
        # Mistakes of the caller, not of an arm: to go on without it would hide them.
        if isinstance(result, Failure) and isinstance(result.error, (QueryError, UndecidedError, WiringError)):
            raise result.error
    failures = [(index, result) for index, result in enumerate(results) if isinstance(result, Failure)]
    successes = tuple(result for result in results if not isinstance(result, Failure))
    if failures and len(successes) < (len(results) if minimum is None else minimum):
        index, first = failures[0]
        over_budget = [failure for _, failure in failures if isinstance(failure.error, BudgetSpent)]
        if minimum is None or over_budget:
            # a loop around this ends on a spent budget, and on nothing else
            raise (over_budget[0] if over_budget else first).raised()
        raise StepFailed(
            f"{op.short}: {len(successes)} of {len(results)} {noun}s succeeded, {minimum} are needed. "
            f"The first to fail was {noun} {index}: {first.message}"
        ) from first.error
    for index, failure in failures:
        degrade(f"{noun} {index} failed: {failure.kind}: {failure.message}", row=row, partly=True)
    return successes


def row_survivors(
    results: Sequence[R | Failure], minimum: int | None, noun: str, op: Operator[Any, Any], row: int
) -> tuple[R, ...] | Failure:
    """Return the survivors of one row of a batch, or the failure of the row."""
    try:
        return survivors(results, minimum, noun, op, row)
    except Exception as error:
        return Failure.from_error(error, op.short)


def narrowest_input(arms: Sequence[Operator[Any, Any]], gives: Callable[[Any], Any]) -> Any:
    """Return a type that an arm takes and `gives` accepts; raise the first arm's error if no arm has one."""
    problem: WiringError | None = None
    # Type variables last: any of them would fit, and say nothing.
    for input_type in sorted((arm.takes() for arm in arms), key=lambda kind: isinstance(kind, TypeVar)):
        try:
            gives(input_type)
        except WiringError as error:
            problem = problem or error
        else:
            return input_type
    raise problem or WiringError("No value fits all arms, since the Branch has no arms.")


def joint_output_type(arms: Sequence[Operator[Any, Any]], input_type: Any, owner: str) -> Any:
    """Return the type that the arms give together; an error names the arm."""
    output_types = []
    for index, arm in enumerate(arms):
        try:
            output_types.append(arm.gives(input_type))
        except WiringError as error:
            raise WiringError(f"Arm {index} of {owner}: {add_advice(error, arm, input_type)}") from error
    return join_types(output_types)


def add_advice(error: WiringError, op: Operator[Any, Any], input_type: Any) -> str:
    """Add to an error which operator to put before it, unless the error already has advice."""
    advice = f". Put an operator from {name_of(input_type)} to {name_of(op.takes())} >> before it."
    return str(error) if str(error).endswith(".") else f"{error}{advice}"
