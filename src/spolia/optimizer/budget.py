"""How much a study may ask."""

import re
from dataclasses import dataclass
from typing import Self

from spolia.errors import DataError
from spolia.types import Value

_WRITTEN = re.compile(r"(?P<amount>\d+(\.\d+)?)\s*(?P<unit>%|rows?)?", re.ASCII)


@dataclass(frozen=True)
class TuningBudget(Value):
    """Scores that may be asked for while a flow is chosen: a number, or a share of the grid of flows × questions. What
    is asked to report the choice on fresh questions is not in it.

    >>> TuningBudget.parse("5%").rows(1000), TuningBudget.parse("200 rows").rows(1000)
    (50, 200)
    """

    amount: float
    is_share: bool = False

    def rows(self, grid: int) -> int:
        """How many scores, of a grid of so many."""
        return min(grid, int(self.amount * grid + 1e-9) if self.is_share else int(self.amount))

    @classmethod
    def parse(cls, text: str) -> Self:
        """`5%` of the grid, or a number of rows; `DataError` for anything else."""
        found = _WRITTEN.fullmatch(text.strip())
        amount = float(found["amount"]) if found else 0.0
        is_share = found is not None and found["unit"] == "%"
        if amount <= 0 or (is_share and amount > 100):
            raise DataError(
                f"{text!r} is not a budget. Write a share of all scores, such as 5%, or a number of them, such as "
                "'2000 rows'. To limit model calls, write --budget-calls, --budget-tokens or --budget-usd."
            )
        return cls(amount / 100 if is_share else amount, is_share)
