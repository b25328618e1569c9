"""Two ways to score arms together."""

from __future__ import annotations

from dataclasses import dataclass

from spolia.bounds import total
from spolia.errors import WiringError
from spolia.operator import Operator
from spolia.types import ArmScores, Query


@dataclass(frozen=True)
class Blend(Operator[Query, ArmScores]):
    """Score arms by two judges: score(q, F_j) = a · first_j + (1 − a) · second_j.

    With a = 1 only the first is asked, with a = 0 only the second. An arm that one of them does not know has 0 there.

    Args:
        first: for hybrid routing, `ByKeywords`.
        second: for hybrid routing, `ByMeaning`.
        weight: a, from 0 to 1.

    Raises:
        WiringError: for another weight.

    Source: Gao et al., "Modular RAG: Transforming RAG Systems into LEGO-like Reconfigurable Frameworks", 2024, hybrid
    routing.

    >>> from spolia.orchestration.by_keywords import ByKeywords
    >>> one, other = ByKeywords((("a", ("x",)), ("b", ("y",)))), ByKeywords((("a", ("y",)), ("b", ("x",))))
    >>> Blend(one, other, weight=0.75)(Query("x")).by_arm
    {'a': 0.75, 'b': 0.25}
    """

    first: Operator[Query, ArmScores]
    second: Operator[Query, ArmScores]
    weight: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.weight <= 1:
            raise WiringError(f"{self.short}: weight is {self.weight}. Write a number from 0 to 1.")

    def apply(self, value: Query, /) -> ArmScores:
        if self.weight in (0, 1):
            return (self.first if self.weight else self.second)(value)
        one, other = self.first(value).by_arm, self.second(value).by_arm
        return ArmScores.of(
            {arm: self.weight * one.get(arm, 0.0) + (1 - self.weight) * other.get(arm, 0.0) for arm in one | other}
        )

    def calls(self, rows: int | None = None, /) -> int | None:
        return total((self.first.calls(), self.second.calls()))
