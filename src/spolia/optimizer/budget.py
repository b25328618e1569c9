"""Budget of a study, in the unit that the user thinks in."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, floor, log10
from typing import Self

from spolia.errors import DataError
from spolia.run import Budget
from spolia.types import Usage, Value

SHARE, ROWS, CALLS, TOKENS, USD, SECONDS = "%", "rows", "calls", "tokens", "USD", "s"
_UNITS: Mapping[str, tuple[str, float]] = {
    "%": (SHARE, 0.01), "": (ROWS, 1), "row": (ROWS, 1), "rows": (ROWS, 1), "call": (CALLS, 1), "calls": (CALLS, 1),
    "token": (TOKENS, 1), "tokens": (TOKENS, 1), "usd": (USD, 1), "$": (USD, 1),
    "s": (SECONDS, 1), "m": (SECONDS, 60), "min": (SECONDS, 60), "h": (SECONDS, 3600),
}  # fmt: skip
_MULTIPLIERS = {"": 1, "k": 1_000, "M": 1_000_000}
_NOTATION = re.compile(r"(?P<amount>\d+(\.\d+)?)\s*(?P<times>[kM]?)\s*(?P<unit>%|\$|[a-zA-Z]*)", re.ASCII)
PLANNED_SHARE = 0.95
"""Share of a budget in calls, tokens, USD or time that is planned: single rows take more than the mean."""


@dataclass(frozen=True)
class RowCost(Value):
    """Mean cost of one score: one flow asked one question and measured."""

    calls: float = 0.0
    tokens: float = 0.0
    usd: float = 0.0
    seconds: float = 0.0

    @classmethod
    def from_usage(cls, usage: Usage, seconds: float, rows: int) -> Self:
        """Return the mean over `rows` scores."""
        tokens = usage.input_tokens + usage.output_tokens
        return cls(usage.calls / rows, tokens / rows, usage.cost_usd / rows, seconds / rows)

    def scale(self, factor: float) -> Self:
        """Return the cost times a factor."""
        return type(self)(*(factor * value for value in (self.calls, self.tokens, self.usd, self.seconds)))

    def amount(self, unit: str) -> float:
        """Return the cost in the unit of a budget."""
        return {CALLS: self.calls, TOKENS: self.tokens, USD: self.usd, SECONDS: self.seconds}[unit]


@dataclass(frozen=True)
class TuningBudget(Value):
    """Limit of what a study may take.

    A share of the grid, or a number of rows, is for the scores by which a flow is chosen; the report on fresh questions
    comes on top. An amount of calls, tokens, USD or seconds is for both, and is never exceeded.

    Args:
        amount: of a share, from 0 to 1.
        unit: `%` of the grid of flows × questions, `rows`, `calls`, `tokens`, `USD` or `s`.

    >>> TuningBudget.parse("5%").rows(1000), TuningBudget.parse("200 rows").rows(1000)
    (50, 200)
    >>> TuningBudget.parse("200k tokens"), TuningBudget.parse("10m")
    (TuningBudget(amount=200000.0, unit='tokens'), TuningBudget(amount=600.0, unit='s'))
    """

    amount: float
    unit: str = ROWS

    @property
    def is_share(self) -> bool:
        """Return whether it is a share of the grid."""
        return self.unit == SHARE

    @property
    def is_cost(self) -> bool:
        """Return whether the number of scores it pays for depends on what a score takes."""
        return self.unit not in (SHARE, ROWS)

    def rows(self, grid: int, row_cost: RowCost | None = None, held_cost: RowCost | None = None) -> int:
        """Return how many scores of a grid the budget pays for, if each takes `row_cost` and open calls hold
        `held_cost`."""
        if not self.is_cost:
            # 5 % of 1000 must be 50, also where the product is a little less in floating point.
            return min(grid, int(self.amount * grid + 1e-9) if self.is_share else int(self.amount))
        unit_cost = 0.0 if row_cost is None else row_cost.amount(self.unit)
        free = self.amount - (0.0 if held_cost is None else held_cost.amount(self.unit))
        return grid if unit_cost <= 0 else int(min(grid, max(0.0, PLANNED_SHARE * free / unit_cost)))

    def format_minimum(self, rows: int, row_cost: RowCost, held_cost: RowCost | None = None) -> str:
        """Format the least budget in this unit that pays for `rows` scores."""
        if self.unit == ROWS:
            return f"{rows} rows"
        amount = rows * row_cost.amount(self.unit) / PLANNED_SHARE + (
            0.0 if held_cost is None else held_cost.amount(self.unit)
        )
        if self.unit in (CALLS, TOKENS):
            return f"{ceil(amount)} {self.unit}"
        if self.unit == SECONDS and amount >= 60:
            return f"{ceil(amount / 60)}m"
        # Two digits, rounded up, so that the advised budget is always enough.
        step = 10.0 ** (floor(log10(max(amount, 1e-6))) - 1)
        rounded = f"{ceil(amount / step) * step:.2g}"
        return f"{rounded}s" if self.unit == SECONDS else f"{rounded} USD"

    def limit(self, share: float = 1.0) -> Budget | None:
        """Return the budget of models within a share of this one; None if it does not limit models."""
        if self.unit == USD:
            return Budget(cost_usd=share * self.amount)
        count = int(share * self.amount)
        return Budget(calls=count) if self.unit == CALLS else Budget(tokens=count) if self.unit == TOKENS else None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse `5%`, `2000 rows`, `500 calls`, `200k tokens`, `2 USD`, `10m`; `DataError` for anything else."""
        match = _NOTATION.fullmatch(text.strip())
        unit, factor = _UNITS.get(match["unit"].lower(), ("", 0.0)) if match else ("", 0.0)
        times = match["times"] if match else ""
        if times and match and not match["unit"]:
            unit, times = "", ""  # 10M may be minutes or millions
        amount = float(match["amount"]) * _MULTIPLIERS[times] if match else 0.0
        if not unit or amount <= 0 or (unit == SHARE and amount > 100):
            raise DataError(
                f"{text!r} is not a budget. Write a share of all scores, such as 5%, a number of them, such as "
                "'2000 rows', or what the study may take: '500 calls', '200k tokens', '2 USD', or 90s, 10m, 2h."
            )
        return cls(amount * factor, unit)

    def __str__(self) -> str:
        if self.is_share:
            return f"{100 * self.amount:g}%"
        return f"{self.amount:.12g}{'' if self.unit == SECONDS else ' '}{self.unit}"
