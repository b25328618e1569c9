"""Budgets: a call is reserved before it is sent and settled after, so that a budget is never overshot."""

from dataclasses import dataclass, field

from spolia.core.deprecation import renamed_arguments
from spolia.errors import WiringError
from spolia.types import Usage, Value
from spolia.types.outcomes import format_dollars

NO_COST = Usage()


@dataclass(frozen=True)
class Budget(Value):
    """Limits of what may be spent; None means no limit.

    Args:
        calls: requests to language models.
        tokens: tokens sent and generated, together.
        cost_usd: price in US dollars.
        forced: what loops must leave over, so that one answer can still be forced after them.

    Raises:
        WiringError: for a limit below 0.

    >>> Budget(calls=3).refuses(Usage(calls=3), Usage(calls=1), optional=False)
    '3 of 3 calls are spent'
    """

    calls: int | None = None
    tokens: int | None = None
    cost_usd: float | None = None
    forced: Usage = field(default=Usage(calls=1))

    def __post_init__(self) -> None:
        for name in ("calls", "tokens", "cost_usd"):
            limit = getattr(self, name)
            if limit is not None and (
                isinstance(limit, bool) or not isinstance(limit, (int, float)) or not limit >= 0
            ):  # NaN neither
                raise WiringError(f"Budget: {name} is {limit!r}. Write 0 or more, or None for no limit.")

    @renamed_arguments(spent="usage", wanted="requested")
    def refuses(self, usage: Usage, requested: Usage, *, optional: bool) -> str:
        """Return why `requested` has no room after `usage`; empty if it has. `optional` calls must leave `forced`."""
        total = usage + requested + self.forced if optional else usage + requested
        if self.calls is not None and requested.calls and total.calls > self.calls:
            for_answer = f" and {self.forced.calls} is kept for a forced answer" if self.forced.calls else ""
            return f"{usage.calls} of {self.calls} calls are spent{for_answer if optional else ''}"
        if self.tokens is not None and total.input_tokens + total.output_tokens > self.tokens:
            used = usage.input_tokens + usage.output_tokens
            needed = requested.input_tokens + requested.output_tokens
            return f"{used} of {self.tokens} tokens are spent, the call may take up to {needed}"
        if self.cost_usd is not None and total.cost_usd > self.cost_usd:
            amounts = f"{format_dollars(usage.cost_usd)} of {format_dollars(self.cost_usd)} US dollars are spent"
            return f"{amounts}, the call may take {format_dollars(requested.cost_usd)}"
        return ""


class Limiter:
    """Budget with what was spent and reserved of it; `peak` is the largest reservation. The caller holds the run's
    lock; a subclass that several runs share has its own."""

    __slots__ = ("budget", "first_refusal", "label", "peak", "reserved", "spent")

    def __init__(self, budget: Budget, label: str) -> None:
        self.budget, self.label = budget, label
        self.spent = self.reserved = self.peak = Usage()
        self.first_refusal = ""

    def reserve(self, requested: Usage, *, optional: bool) -> str:
        """Reserve room for a call; return why it has none, empty if it has."""
        refusal = self.take(requested, optional=optional)
        self.first_refusal = self.first_refusal or refusal
        reserved = self.reserved + requested
        if not refusal:
            self.reserved = reserved
        if reserved.output_tokens > self.peak.output_tokens:
            self.peak = reserved
        if not refusal:
            return ""
        return f"The budget of {self.label} allows no further call: {refusal}. Raise it, or ask for less."

    def take(self, requested: Usage, *, optional: bool) -> str:
        """Return why the call has no room; empty if it has."""
        return self.budget.refuses(self.spent + self.reserved, requested, optional=optional)

    def release(self, reserved: Usage) -> None:
        """Give back a reservation."""
        self.reserved -= reserved

    def charge(self, usage: Usage) -> None:
        """Add a cost to what was spent."""
        self.spent += usage


def split_usage(usage: Usage, n: int) -> list[Usage]:
    """Split a cost into n parts with whole counts that add up to it."""
    names = ("calls", "input_tokens", "output_tokens", "embedded")
    return [
        Usage(
            **{name: getattr(usage, name) // n + (row < getattr(usage, name) % n) for name in names},
            cost_usd=usage.cost_usd / n,
        )
        for row in range(n)
    ]
