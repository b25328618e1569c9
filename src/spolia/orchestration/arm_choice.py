"""Choice of an arm by the scores of all arms."""

import math
from dataclasses import dataclass
from typing import Any

from spolia.core.call_bounds import total
from spolia.core.operator import Operator
from spolia.core.run_context import degrade, note
from spolia.core.type_compatibility import fits, literal_type, name_of, refuse_numbers
from spolia.errors import WiringError
from spolia.orchestration.similarity_router import arms_of, scores_of
from spolia.types import ArmScores, Query


def _find_arms(op: Operator[ArmScores, str], input_type: Any) -> tuple[str, ...] | None:
    """Return the scored arms, or None if they are unknown."""
    if not fits(ArmScores, input_type, {}):
        raise WiringError(
            f"{op.short} takes ArmScores, not {name_of(input_type)}. Put an operator that scores arms >> before it: "
            "ByKeywords, ByMeaning or ByNextToken."
        )
    return arms_of(input_type)


@dataclass(frozen=True)
class PickArm(Operator[ArmScores, str]):
    """The arm with the highest score, or the default where none has at least `floor`, or all have 0.

    Between equal scores the arm that is declared first. A score that is NaN or infinite is none, and is counted.

    Args:
        default: the arm for a question that belongs to no arm.
        floor: the least score; behind `ByMeaning`, whose scores sum to 1, 0.3 is usual.

    Raises:
        WiringError: for a floor that is not a number.

    Source: Gao et al., "Modular RAG", 2024 (arXiv 2407.21059), routing.

    >>> pick = PickArm("general", floor=0.3)
    >>> pick(ArmScores((("law", 0.4), ("medicine", 0.4)))), pick(ArmScores((("law", 0.2),)))
    ('law', 'general')
    """

    default: str
    floor: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_numbers(self, "a number", "floor")

    def gives(self, input_type: Any, /) -> Any:
        arms = _find_arms(self, input_type)
        # Scores are at most 1: under a higher floor only the default is named.
        return str if arms is None else literal_type((*(arms if self.floor <= 1 else ()), self.default))

    def apply(self, value: ArmScores, /) -> str:
        best, highest = self.default, max(self.floor, 0.0)
        reached = False
        for arm, score in value.scores:
            if not math.isfinite(score):
                degrade(f"The score of the arm {arm!r} is {score}; it is not counted.", partly=True)
            # A score equal to the floor reaches it, one equal to an earlier arm's does not replace that arm.
            elif (score > highest or (not reached and score == highest)) and score > 0:
                best, highest, reached = arm, score, True
        if not reached:
            note(f"No arm has a score of at least {self.floor} above 0; took {self.default!r}.")
        return best


@dataclass(frozen=True)
class Exceeds(Operator[ArmScores, str]):
    """An arm where its score is above a threshold, else another one: whether it is worth to retrieve, in Self-RAG.

    A score that is not there, NaN or infinite exceeds nothing.

    Args:
        arm: whose score decides.
        otherwise: the other arm.
        threshold: a score equal to it is not above it.

    Raises:
        WiringError: for a threshold that is not a number.

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
        refuse_numbers(self, "a number", "threshold")

    def gives(self, input_type: Any, /) -> Any:
        arms = _find_arms(self, input_type)
        may_exceed = arms is None or (self.arm in arms and self.threshold < 1)  # scores are from 0 to 1
        may_not = arms is None or self.arm not in arms or self.threshold >= 0
        return literal_type((self.arm,) * may_exceed + (self.otherwise,) * may_not)

    def apply(self, value: ArmScores, /) -> str:
        score = value.by_arm.get(self.arm, 0.0)
        if not math.isfinite(score):
            degrade(f"The score of the arm {self.arm!r} is {score}; took {self.otherwise!r}.")
            return self.otherwise
        return self.arm if score > self.threshold else self.otherwise


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

    Source: Gao et al., "Modular RAG", 2024 (arXiv 2407.21059), hybrid routing.

    >>> from spolia.orchestration.similarity_router import ByKeywords
    >>> first, second = ByKeywords((("a", ("x",)), ("b", ("y",)))), ByKeywords((("a", ("y",)), ("b", ("x",))))
    >>> Blend(first, second, weight=0.75)(Query("x")).by_arm
    {'a': 0.75, 'b': 0.25}
    """

    first: Operator[Query, ArmScores]
    second: Operator[Query, ArmScores]
    weight: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_numbers(self, "a number from 0 to 1", "weight")

    def gives(self, input_type: Any, /) -> Any:
        super().gives(input_type)
        # A judge of weight 0 is not asked, so its arms are none that may be named.
        judges = (self.first, self.second)[self.weight == 0 : 2 - (self.weight == 1)]
        arms = [arms_of(judge.gives(input_type)) for judge in judges]
        return ArmScores if None in arms else scores_of(dict.fromkeys(name for names in arms for name in names or ()))

    def apply(self, value: Query, /) -> ArmScores:
        if self.weight in (0, 1):
            return (self.first if self.weight else self.second)(value)
        first_scores, second_scores = self.first(value).by_arm, self.second(value).by_arm
        return ArmScores.from_scores(
            {
                arm: self.weight * first_scores.get(arm, 0.0) + (1 - self.weight) * second_scores.get(arm, 0.0)
                for arm in first_scores | second_scores
            }
        )

    def calls(self, rows: int | None = None, /) -> int | None:
        return total((self.first.calls(), self.second.calls()))
