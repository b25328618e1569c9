"""A mean, or a difference of means, and where it may lie."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, isfinite
from typing import Any

from spolia.types import Value


@dataclass(frozen=True)
class Interval(Value):
    """A number measured on questions that were drawn, and where it may lie for all questions of their kind.

    Args:
        mean: of the scores, or of the differences; of a measure that is no mean, its total.
        low: lower end; -inf where nothing can be said.
        high: upper end; inf where nothing can be said.
        n: how many questions stand behind it.
        level: how often such intervals hold the true number.
        method: how the ends were found.

    >>> print(Interval(0.7, 0.4, 0.9, 10))
    0.700 [0.400, 0.900]
    """

    mean: float
    low: float
    high: float
    n: int
    level: float = 0.95
    method: str = ""

    @property
    def excludes_zero(self) -> bool:
        """Whether zero lies outside."""
        return self.low > 0 or self.high < 0

    @property
    def reversed(self) -> Interval:
        """The difference the other way round."""
        return self.but(mean=-self.mean, low=-self.high, high=-self.low)

    def within(self, least: float = -inf, most: float = inf) -> Interval:
        """The interval without what cannot be, always around the mean."""
        return self.but(low=min(self.mean, max(self.low, least)), high=max(self.mean, min(self.high, most)))

    def json(self) -> dict[str, Any]:
        """Plain data; what is not known is null."""
        numbers = {name: getattr(self, name) for name in ("mean", "low", "high")}
        return {name: number if isfinite(number) else None for name, number in numbers.items()} | {"n": self.n}

    def __str__(self) -> str:
        return f"{self.mean:.3f} [{self.low:.3f}, {self.high:.3f}]"
