"""From scores of arms to the name of one."""

from __future__ import annotations

import math
from dataclasses import dataclass

from spolia.errors import WiringError
from spolia.operator import Operator
from spolia.surrounding import degrade, note
from spolia.types import ArmScores


@dataclass(frozen=True)
class PickArm(Operator[ArmScores, str]):
    """The arm with the highest score, or the default where none has at least `floor`, or all have 0.

    Between equal scores the arm that is declared first. A score that is NaN or infinite is none, and is counted.

    Args:
        default: the arm for a question that belongs to no arm.
        floor: the least score; behind `ByMeaning`, whose scores sum to 1, 0.3 is usual.

    Raises:
        WiringError: for a floor that is no number.

    Source: Gao et al., "Modular RAG: Transforming RAG Systems into LEGO-like Reconfigurable Frameworks", 2024, routing.

    >>> pick = PickArm("general", floor=0.3)
    >>> pick(ArmScores((("law", 0.4), ("medicine", 0.4)))), pick(ArmScores((("law", 0.2),)))
    ('law', 'general')
    """

    default: str
    floor: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not math.isfinite(self.floor):
            raise WiringError(f"{self.short}: floor is {self.floor}. Write a number.")

    def apply(self, value: ArmScores, /) -> str:
        best, highest = self.default, max(self.floor, 0.0)
        reached = False
        for arm, score in value.scores:
            if not math.isfinite(score):
                degrade(f"The score of the arm {arm!r} is {score}; it is not counted.")
            elif (score > highest or (not reached and score == highest)) and score > 0:
                best, highest, reached = arm, score, True
        if not reached:
            note(f"No arm has a score of at least {self.floor} above 0; took {self.default!r}.")
        return best
