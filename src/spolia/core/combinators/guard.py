"""Limit on calls, and a fallback."""

from dataclasses import dataclass
from typing import Any, ClassVar

from spolia.core.call_bounds import largest, smallest, total
from spolia.core.combinators.branch import joint_output_type
from spolia.core.operator import In, Operator, Out, checked_operator
from spolia.core.run_context import degrade, limit_calls
from spolia.errors import UndecidedError, WiringError


@dataclass(frozen=True)
class Guard(Operator[In, Out]):
    """Body under a limit, and a fallback if it fails; the fallback is recorded and its result not cached.

    Args:
        body: what is tried.
        fallback: what is done instead; without it the error goes on.
        max_calls: calls to language models that the body may make.
        on: names of the error classes that the fallback answers to, subclasses included.

    >>> from spolia import Identity, step
    >>> @step
    ... def broken(n: int) -> int:
    ...     return n // 0
    >>> Guard(broken, fallback=Identity(), on=("ZeroDivisionError",))(5)
    5
    """

    body: Operator[In, Out]
    fallback: Operator[In, Out] | None = None
    max_calls: int | None = None
    on: tuple[str, ...] = ("SpoliaError",)
    composes: ClassVar[bool] = True

    def __post_init__(self) -> None:
        checked_operator(self.body, "the body of Guard")
        if self.fallback is not None:
            checked_operator(self.fallback, "the fallback of Guard")
        if self.max_calls is not None and self.max_calls < 0:
            raise WiringError(f"max_calls is {self.max_calls}; it is 0 or more.")
        self.gives(self.body.takes())

    def apply(self, value: In, /) -> Out:
        try:
            with limit_calls(self.max_calls):
                return self.body(value)
        except Exception as error:
            # by name, since flow files hold texts
            answers = any(cls.__name__ in self.on for cls in type(error).__mro__)
            # An open choice is a mistake in the flow, which no fallback may hide.
            if self.fallback is None or not answers or isinstance(error, UndecidedError):
                raise
            degrade(f"fell back: {type(error).__name__}: {error}", partly=True)
        return self.fallback(value)

    def takes(self) -> Any:
        return self.body.takes()

    def gives(self, input_type: Any, /) -> Any:
        return joint_output_type([arm for arm in (self.body, self.fallback) if arm is not None], input_type, "Guard")

    def tail(self) -> tuple[Operator[Any, Any], ...]:
        return (self.body,) if self.fallback is None else (self.body, self.fallback)

    def calls(self, rows: int | None = None, /) -> int | None:
        body = smallest(self.body.calls(rows), self.max_calls)
        return body if self.fallback is None else total((body, self.fallback.calls(rows)))

    def fanout(self, rows: int | None = None, /) -> int | None:
        return largest(arm.fanout(rows) for arm in self.tail())
