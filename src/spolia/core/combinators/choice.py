"""Candidates for one place of a flow."""

from dataclasses import dataclass
from typing import Any, ClassVar

from spolia.core.call_bounds import largest
from spolia.core.combinators.branch import joint_output_type, narrowest_input
from spolia.core.operator import In, Operator, Out, checked_operator
from spolia.errors import UndecidedError, WiringError


@dataclass(frozen=True, init=False, repr=False)
class Choice(Operator[In, Out]):
    """Candidates for one place of a flow, "do nothing" (`Identity()`) among them if you like.

    Args:
        options: the candidates.
        name: of the place. Choices of one name, and ranges of that name (`vary`), are decided together.

    >>> from spolia import Identity, settle, step
    >>> @step
    ... def double(n: int) -> int:
    ...     return 2 * n
    >>> flow = Choice(Identity(), double, name="first") >> Choice(Identity(), double, name="second")
    >>> [settled(5) for _, settled in settle(flow)]
    [5, 10, 10, 20]
    """

    options: tuple[Operator[In, Out], ...]
    name: str = ""
    variadic: ClassVar[str] = "options"

    def __init__(self, *options: Operator[In, Out], name: str = "") -> None:
        if not options:
            raise WiringError("Choice needs at least one option. Write Choice(Identity(), Other()).")
        for index, option in enumerate(options):
            checked_operator(option, f"option {index} of Choice")
        object.__setattr__(self, "options", options)
        object.__setattr__(self, "name", name)
        self.gives(self.takes())

    def apply(self, value: In, /) -> Out:
        raise UndecidedError(
            f"Choice{f' {self.name!r}' if self.name else ''} among {len(self.options)} options is open. "
            "Write decide(flow, point), or settle(flow) to get every decided flow."
        )

    def takes(self) -> Any:
        return narrowest_input(self.options, self.gives)

    def gives(self, input_type: Any, /) -> Any:
        return joint_output_type(self.options, input_type, "Choice")

    def tail(self) -> tuple[Operator[Any, Any], ...]:
        return self.options

    def calls(self, rows: int | None = None, /) -> int | None:
        return largest(option.calls(rows) for option in self.options)

    def fanout(self, rows: int | None = None, /) -> int | None:
        return largest(option.fanout(rows) for option in self.options)
