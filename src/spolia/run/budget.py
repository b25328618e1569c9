"""Budgets: a call is reserved before it is sent and settled after, so a spent budget refuses and never overshoots."""

from dataclasses import dataclass, field

from spolia.errors import WiringError
from spolia.types import Usage, Value
from spolia.types.outcomes import dollars

NO_COST = Usage()


@dataclass(frozen=True)
class Budget(Value):
    """How much may be spent; None means without limit.

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

    def refuses(self, spent: Usage, wanted: Usage, *, optional: bool) -> str:
        """Why `wanted` has no room beside `spent`; empty when it has. `optional` calls must leave `forced` over."""
        total = spent + wanted + self.forced if optional else spent + wanted
        if self.calls is not None and wanted.calls and total.calls > self.calls:
            kept = f" and {self.forced.calls} is kept for a forced answer" if optional and self.forced.calls else ""
            return f"{spent.calls} of {self.calls} calls are spent{kept}"
        if self.tokens is not None and total.input_tokens + total.output_tokens > self.tokens:
            used = spent.input_tokens + spent.output_tokens
            needed = wanted.input_tokens + wanted.output_tokens
            return f"{used} of {self.tokens} tokens are spent, the call may take up to {needed}"
        if self.cost_usd is not None and total.cost_usd > self.cost_usd:
            spent_of = f"{dollars(spent.cost_usd)} of {dollars(self.cost_usd)} US dollars are spent"
            return f"{spent_of}, the call may take {dollars(wanted.cost_usd)}"
        return ""


class Limiter:
    """A budget and what has been spent and reserved of it; `peak` is the most that was to be reserved at a time.
    The caller holds the lock of the run; a subclass that several runs share has one of its own."""

    __slots__ = ("budget", "held", "peak", "refused", "spent", "where")

    def __init__(self, budget: Budget, where: str) -> None:
        self.budget, self.where = budget, where
        self.spent = self.held = self.peak = Usage()
        self.refused = ""

    def reserve(self, wanted: Usage, *, optional: bool) -> str:
        """Keep room for a call. Returns why it has none; empty if it has."""
        why = self.take(wanted, optional=optional)
        self.refused = self.refused or why
        if not why:
            self.held += wanted
        if (most := self.held if not why else self.held + wanted).output_tokens > self.peak.output_tokens:
            self.peak = most
        return f"The budget of {self.where} allows no further call: {why}. Raise it, or ask for less." if why else ""

    def take(self, wanted: Usage, *, optional: bool) -> str:
        """Returns why the call has no room; empty if it has."""
        return self.budget.refuses(self.spent + self.held, wanted, optional=optional)

    def release(self, held: Usage) -> None:
        """Give back what was reserved."""
        self.held -= held

    def charge(self, spent: Usage) -> None:
        """Bear a cost."""
        self.spent += spent


def split(usage: Usage, n: int) -> list[Usage]:
    """A cost in n whole parts that add up to it."""
    names = ("calls", "input_tokens", "output_tokens", "embedded")
    return [
        Usage(
            **{name: getattr(usage, name) // n + (row < getattr(usage, name) % n) for name in names},
            cost_usd=usage.cost_usd / n,
        )
        for row in range(n)
    ]
