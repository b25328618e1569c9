"""One of several operators, decided by the value."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from spolia.core.call_bounds import largest, total
from spolia.core.combinators.branch import add_advice, joint_output_type, narrowest_input
from spolia.core.operator import In, Operator, Out, checked_operator
from spolia.core.run_context import degrade
from spolia.core.type_compatibility import fits, name_of
from spolia.errors import WiringError
from spolia.types import Failure


@dataclass(frozen=True, init=False, repr=False)
class Route(Operator[In, Out]):
    """Router that names the arm through which a value goes.

    Args:
        router: gives the name of an arm.
        arms: operators by name.
        default: the arm for a name that no arm has; this is recorded.

    >>> from spolia.core.function import step
    >>> @step
    ... def parity(n: int) -> str:
    ...     return "even" if n % 2 == 0 else "odd"
    >>> @step
    ... def half(n: int) -> int:
    ...     return n // 2
    >>> @step
    ... def triple(n: int) -> int:
    ...     return 3 * n + 1
    >>> Route(parity, {"even": half, "odd": triple}, default="even")(7)
    22
    """

    router: Operator[In, str]
    arms: tuple[tuple[str, Operator[In, Out]], ...]
    default: str
    composes: ClassVar[bool] = True

    def __init__(
        self,
        router: Operator[In, str],
        arms: Mapping[str, Operator[In, Out]] | Sequence[tuple[str, Operator[In, Out]]],
        default: str,
    ) -> None:
        pairs = tuple(arms.items()) if isinstance(arms, Mapping) else tuple(arms)
        checked_operator(router, "the router of Route")
        for name, arm in pairs:
            checked_operator(arm, f"arm {name!r} of Route")
        names = [name for name, _ in pairs]
        if default not in names:
            raise WiringError(
                f"The default {default!r} is not an arm of Route. The arms are: {', '.join(names) or 'none'}."
            )
        if len(set(names)) < len(names):
            raise WiringError(f"Route has two arms of one name among {', '.join(names)}. Give every arm its own name.")
        object.__setattr__(self, "router", router)
        object.__setattr__(self, "arms", pairs)
        object.__setattr__(self, "default", default)
        self.gives(self.takes())

    def apply(self, value: In, /) -> Out:
        return self.arm(self.router(value))(value)

    def apply_batch(self, values: Sequence[In], /) -> list[Out | Failure]:
        results: list[Any] = list(self.router.batch(values, rows=range(len(values))))
        rows_by_arm: dict[str, list[int]] = {}
        for row, name in enumerate(results):
            if not isinstance(name, Failure):
                rows_by_arm.setdefault(self._arm_name(name, row), []).append(row)
        for name, rows in rows_by_arm.items():
            arm_results = self.arm(name).batch([values[row] for row in rows], rows=rows)
            for row, result in zip(rows, arm_results, strict=True):
                results[row] = result
        return results

    def arm(self, name: str) -> Operator[In, Out]:
        """Return the arm of this name, or the default."""
        return dict(self.arms)[self._arm_name(name)]

    def _arm_name(self, name: str, row: int | None = None) -> str:
        if any(name == arm_name for arm_name, _ in self.arms):
            return name
        degrade(f"the router named {name!r}, which is not an arm; took {self.default!r}", row=row)
        return self.default

    def takes(self) -> Any:
        return narrowest_input([*(arm for _, arm in self.arms), self.router], self.gives)

    def gives(self, input_type: Any, /) -> Any:
        try:
            router_output = self.router.gives(input_type)
        except WiringError as error:
            raise WiringError(f"The router of Route: {add_advice(error, self.router, input_type)}") from error
        if not fits(str, router_output, {}):
            raise WiringError(
                f"The router of Route gives {name_of(router_output)}; it must give the name of an arm, a str."
            )
        return joint_output_type([arm for _, arm in self.arms], input_type, "Route")

    def tail(self) -> tuple[Operator[Any, Any], ...]:
        return tuple(arm for _, arm in self.arms)

    def calls(self, rows: int | None = None, /) -> int | None:
        return total((self.router.calls(rows), largest(arm.calls(rows) for _, arm in self.arms)))

    def fanout(self, rows: int | None = None, /) -> int | None:
        return largest(arm.fanout(rows) for _, arm in self.arms)

    def __repr__(self) -> str:
        arms = ", ".join(f"{name!r}: {arm!r}" for name, arm in self.arms)
        return f"Route({self.router!r}, {{{arms}}}, default={self.default!r})"
