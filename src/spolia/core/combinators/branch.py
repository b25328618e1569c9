"""Several operators on one value."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

from spolia.core.call_bounds import total
from spolia.core.operator import In, Operator, Out, checked_operator
from spolia.core.run_context import degrade, gather
from spolia.core.type_compatibility import joined, name_of
from spolia.errors import BudgetSpent, QueryError, StepFailed, UndecidedError, WiringError
from spolia.types import Failure

R = TypeVar("R")


@dataclass(frozen=True, init=False, repr=False)
class Branch(Operator[In, tuple[Out, ...]]):
    """Run every arm on the same value, at the same time where they wait, and give the results in the order of the arms.

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

    def late(self) -> tuple[Operator[Any, Any], ...]:
        return tuple(one for arm in self.arms for one in arm.late())

    def takes(self) -> Any:
        return narrowest(self.arms, self.gives)

    def gives(self, taken: Any, /) -> Any:
        return tuple[gives_of_arms(self.arms, taken, "Branch"), ...]  # type: ignore[misc]

    def calls(self, rows: int | None = None, /) -> int | None:
        return total(arm.calls(rows) for arm in self.arms)

    def fanout(self, rows: int | None = None, /) -> int | None:
        return len(self.arms)


def _call(arm: Operator[In, Out], value: In) -> Callable[[], Out]:
    return lambda: arm(value)


def _batch(arm: Operator[In, Out], values: Sequence[In]) -> Callable[[], list[Out | Failure]]:
    return lambda: arm.batch(values, rows=range(len(values)))


def survivors(
    results: Sequence[R | Failure], least: int | None, noun: str, op: Operator[Any, Any], row: int | None = None
) -> tuple[R, ...]:
    """The results that are no failures, if there are enough; what was dropped is recorded."""
    for result in results:
        if isinstance(result, Failure) and isinstance(result.error, (QueryError, UndecidedError, WiringError)):
            raise result.error
    failures = [(index, result) for index, result in enumerate(results) if isinstance(result, Failure)]
    kept = tuple(result for result in results if not isinstance(result, Failure))
    if failures and len(kept) < (len(results) if least is None else least):
        index, first = failures[0]
        spent = [failure for _, failure in failures if isinstance(failure.error, BudgetSpent)]
        if least is None or spent:
            raise (spent[0] if spent else first).raised()
        raise StepFailed(
            f"{op.short}: {len(kept)} of {len(results)} {noun}s succeeded, {least} are needed. "
            f"The first to fail was {noun} {index}: {first.message}"
        ) from first.error
    for index, failure in failures:
        degrade(f"{noun} {index} failed: {failure.kind}: {failure.message}", row=row, partly=True)
    return kept


def row_survivors(
    results: Sequence[R | Failure], least: int | None, noun: str, op: Operator[Any, Any], row: int
) -> tuple[R, ...] | Failure:
    """The same for one row of a batch."""
    try:
        return survivors(results, least, noun, op, row)
    except Exception as error:
        return Failure.of(error, op.short)


def narrowest(arms: Sequence[Operator[Any, Any]], gives: Callable[[Any], Any]) -> Any:
    """A type that one of the arms takes and that `gives` accepts; else what is wrong with that of the first arm."""
    problem: WiringError | None = None
    for taken in sorted((arm.takes() for arm in arms), key=lambda kind: isinstance(kind, TypeVar)):
        try:
            gives(taken)
        except WiringError as error:
            problem = problem or error
        else:
            return taken
    raise problem or WiringError("No value fits all arms, since the Branch has no arms.")


def gives_of_arms(arms: Sequence[Operator[Any, Any]], taken: Any, where: str) -> Any:
    """What the arms give together; an error names the arm."""
    found = []
    for index, arm in enumerate(arms):
        try:
            found.append(arm.gives(taken))
        except WiringError as error:
            raise WiringError(f"Arm {index} of {where}: {advised(error, arm, taken)}") from error
    return joined(found)


def advised(error: WiringError, op: Operator[Any, Any], taken: Any) -> str:
    """An error about what an operator takes, with what to put before it unless the error says what to write."""
    advice = f". Put an operator from {name_of(taken)} to {name_of(op.takes())} >> before it."
    return str(error) if str(error).endswith(".") else f"{error}{advice}"
