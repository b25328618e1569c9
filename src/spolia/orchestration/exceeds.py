"""One arm if its score is high enough, else the other."""

from __future__ import annotations

import math
from dataclasses import dataclass

from spolia.errors import WiringError
from spolia.operator import Operator
from spolia.surrounding import degrade
from spolia.types import ArmScores


@dataclass(frozen=True)
class Exceeds(Operator[ArmScores, str]):
    """An arm where its score is above a threshold, else another one: whether it is worth to retrieve, in Self-RAG.

    A score that is not there, NaN or infinite exceeds nothing.

    Args:
        arm: whose score is looked at.
        otherwise: the other arm.
        threshold: a score equal to it is not above it.

    Raises:
        WiringError: for a threshold that is no number.

    Source: Asai et al., "Self-RAG: learning to retrieve, generate, and critique through self-reflection", ICLR 2024.

    >>> worth = Exceeds("retrieve", "recall", threshold=0.2)
    >>> worth(ArmScores((("retrieve", 0.21), ("recall", 0.79)))), worth(ArmScores((("retrieve", 0.2),)))
    ('retrieve', 'recall')
    """

    arm: str
    otherwise: str
    threshold: float = 0.2

    def __post_init__(self) -> None:
        super().__post_init__()
        if not math.isfinite(self.threshold):
            raise WiringError(f"{self.short}: threshold is {self.threshold}. Write a number.")

    def apply(self, value: ArmScores, /) -> str:
        score = value.by_arm.get(self.arm, 0.0)
        if not math.isfinite(score):
            degrade(f"The score of the arm {self.arm!r} is {score}; took {self.otherwise!r}.")
            return self.otherwise
        return self.arm if score > self.threshold else self.otherwise
