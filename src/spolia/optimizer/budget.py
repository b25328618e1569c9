"""How much a study may take, in the unit that the user thinks in."""

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
_TIMES = {"": 1, "k": 1_000, "M": 1_000_000}
_WRITTEN = re.compile(r"(?P<amount>\d+(\.\d+)?)\s*(?P<times>[kM]?)\s*(?P<unit>%|\$|[a-zA-Z]*)", re.ASCII)
PLANNED = 0.95
"""Share of a budget in calls, tokens, USD or time that is planned: single rows take more than the mean."""


@dataclass(frozen=True)
class RowCost(Value):
    """What one score takes in the mean: one flow asked one question and measured."""

    calls: float = 0.0
    tokens: float = 0.0
    usd: float = 0.0
    seconds: float = 0.0

    @classmethod
    def of(cls, usage: Usage, seconds: float, rows: int) -> Self:
        """The mean over `rows` scores."""
        tokens = usage.input_tokens + usage.output_tokens
        return cls(usage.calls / rows, tokens / rows, usage.cost_usd / rows, seconds / rows)

    def times(self, factor: float) -> Self:
        """That many times as much."""
        return type(self)(*(factor * one for one in (self.calls, self.tokens, self.usd, self.seconds)))

    def amount(self, unit: str) -> float:
        """In the unit of a budget."""
        return {CALLS: self.calls, TOKENS: self.tokens, USD: self.usd, SECONDS: self.seconds}[unit]


@dataclass(frozen=True)
class TuningBudget(Value):
    """How much a study may take.

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
        """Whether it is a share of the grid."""
        return self.unit == SHARE

    @property
    def is_cost(self) -> bool:
        """Whether it depends on what a score takes, how many scores it is enough for."""
        return self.unit not in (SHARE, ROWS)

    def rows(self, grid: int, each: RowCost | None = None, held: RowCost | None = None) -> int:
        """How many scores of a grid it pays for, if each takes `each`, and calls hold `held` until they are
        answered."""
        if not self.is_cost:
            return min(grid, int(self.amount * grid + 1e-9) if self.is_share else int(self.amount))
        taken = 0.0 if each is None else each.amount(self.unit)
        free = self.amount - (0.0 if held is None else held.amount(self.unit))
        return grid if taken <= 0 else int(min(grid, max(0.0, PLANNED * free / taken)))

    def least(self, rows: int, each: RowCost, held: RowCost | None = None) -> str:
        """The least budget in this unit that pays for `rows` scores, as text."""
        if self.unit == ROWS:
            return f"{rows} rows"
        taken = rows * each.amount(self.unit) / PLANNED + (0.0 if held is None else held.amount(self.unit))
        if self.unit in (CALLS, TOKENS):
            return f"{ceil(taken)} {self.unit}"
        if self.unit == SECONDS and taken >= 60:
            return f"{ceil(taken / 60)}m"
        step = 10.0 ** (floor(log10(max(taken, 1e-6))) - 1)
        rounded = f"{ceil(taken / step) * step:.2g}"
        return f"{rounded}s" if self.unit == SECONDS else f"{rounded} USD"

    def limit(self, share: float = 1.0) -> Budget | None:
        """What models may be asked for within a share of it; None where it does not limit that."""
        if self.unit == USD:
            return Budget(cost_usd=share * self.amount)
        most = int(share * self.amount)
        return Budget(calls=most) if self.unit == CALLS else Budget(tokens=most) if self.unit == TOKENS else None

    @classmethod
    def parse(cls, text: str) -> Self:
        """`5%`, `2000 rows`, `500 calls`, `200k tokens`, `2 USD`, `10m`; `DataError` for anything else."""
        found = _WRITTEN.fullmatch(text.strip())
        unit, factor = _UNITS.get(found["unit"].lower(), ("", 0.0)) if found else ("", 0.0)
        times = found["times"] if found else ""
        if times and found and not found["unit"]:
            unit, times = "", ""  # 10M may be minutes or millions
        amount = float(found["amount"]) * _TIMES[times] if found else 0.0
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
