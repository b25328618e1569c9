"""Objectives and limits of a study: how flows are ordered by several measures."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from spolia.errors import DataError
from spolia.evaluation.measures.costs import Seconds
from spolia.evaluation.measures.measure import CostMeasure, Measure, SetMeasure
from spolia.evaluation.measures.registry import as_measures, parse_measure
from spolia.types import Value

Floats: TypeAlias = NDArray[np.float64]
CombineFunction: TypeAlias = Callable[[Floats], Floats]
"""From means by flow and measure, higher is better, one number for each flow; higher is better."""


@dataclass(frozen=True)
class Limit(Value):
    """A bound on the mean of a measure: an upper bound, or a lower bound if higher is better.

    >>> str(Limit.parse("USD=0.002"))
    'USD=0.002'
    """

    measure: Measure | CostMeasure
    bound: float

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse `MEASURE=NUMBER`; `DataError` for anything else."""
        name, _, number = text.rpartition("=")
        try:
            bound = float(number)
        except ValueError:
            name, bound = "", np.nan
        if not name or not np.isfinite(bound):
            raise DataError(f"{text!r} is no limit. Write a measure and a number, such as USD=0.002 or ATC=800.")
        return cls(require_mean(parse_measure(name)), bound)

    def __str__(self) -> str:
        return f"{self.measure}={self.bound:g}"


@dataclass(frozen=True)
class Objectives(Value):
    """Objectives of a study: measures whose means should be best, and limits that flows keep before anything else.

    Args:
        best: one measure, or several: then flows are ordered by their Pareto fronts.
        combine: of several, how they are one, a name of `COMBINED`: `front` for the knee of the Pareto front.
    """

    best: tuple[Measure | CostMeasure, ...]
    limits: tuple[Limit, ...] = ()
    combine: str = "front"

    def __post_init__(self) -> None:
        if self.combine not in COMBINED:
            raise DataError(f"{self.combine!r} combines no measures. Write one of: {', '.join(COMBINED)}.")

    @classmethod
    def from_measures(
        cls,
        objective: str | SetMeasure | Sequence[str | SetMeasure],
        under: Sequence[str | Limit] = (),
        combine: str = "front",
    ) -> Self:
        """Parse objectives and limits; `DataError` if flows cannot be tuned for them."""
        measure_list = [objective] if isinstance(objective, SetMeasure) else objective
        limits = tuple(Limit.parse(limit) if isinstance(limit, str) else limit for limit in under)
        return cls(tuple(dict.fromkeys(map(require_mean, as_measures(measure_list)))), limits, combine)

    @property
    def measures(self) -> tuple[Measure | CostMeasure, ...]:
        """Return the measures to optimize and the limited ones, each once: the columns of scores."""
        return tuple(dict.fromkeys((*self.best, *(limit.measure for limit in self.limits))))

    @property
    def signs(self) -> Floats:
        """Return -1 for measures of which less is better: times its sign, more of every measure is better."""
        return np.array([-1.0 if measure.lower_is_better else 1.0 for measure in self.measures])

    @property
    def is_single(self) -> bool:
        """Return whether there is one measure and no limit."""
        return len(self.measures) == 1 and not self.limits

    @property
    def are_timed(self) -> bool:
        """Return whether it matters how long a flow takes."""
        return any(isinstance(measure, Seconds) for measure in self.measures)

    def blur(self, means: Floats) -> Floats:
        """Round means by flow and measure to the resolution of the measure: a flow within it of a better one gets its
        mean. A measure without scores becomes 0 for all flows, and decides nothing."""
        blurred = np.round(means, 12)  # else the last digits of a float would decide
        blurred[:, ~np.isfinite(blurred).any(axis=0)] = 0.0
        for column, measure in zip(blurred.T, self.measures, strict=True):
            leader = np.inf
            for index in np.argsort(-column, kind="stable") if measure.resolution else ():
                leader = leader if column[index] > leader - measure.resolution else column[index]
                column[index] = leader
        return blurred

    def excess(self, means: Floats) -> Floats:
        """Return by flow how far it is beyond the limits, as the sum of the shares of each; 0 within them.

        Args:
            means: by flow and measure, times the signs.
        """
        total = np.zeros(len(means))
        for limit in self.limits:
            column = self.measures.index(limit.measure)
            beyond = self.signs[column] * limit.bound - means[:, column]
            if np.isfinite(beyond).any():
                # A limit of 0 has no share: the excess counts as it is.
                total += np.maximum(0.0, beyond) / (abs(limit.bound) or 1.0)
        return np.round(total, 12)

    def keys(self, means: Floats, combine: CombineFunction | None = None) -> Floats:
        """Return by flow numbers that order flows, the least first: those within the limits, then the better ones.

        Source: constraint domination, Deb 2002.
        """
        own_means = self.blur(means)[:, : len(self.best)]
        better = own_means[:, 0] if len(self.best) == 1 else (combine or COMBINED[self.combine])(own_means)
        return np.column_stack([self.excess(means), -np.round(better, 12)])


def require_mean(measure: SetMeasure) -> Measure | CostMeasure:
    """Return the measure if its total is a mean over questions; raise DataError otherwise."""
    if not isinstance(measure, Measure | CostMeasure):
        raise DataError(
            f"{measure!s} cannot be tuned for: an objective must be a measure that is a mean over questions, such as "
            "nDCG@10, F1, SentenceBLEU or Calls."
        )
    return measure


def fronts(means: Floats) -> NDArray[np.intp]:
    """Return by flow the number of its Pareto front: 0 if no flow dominates it, 1 if only flows of front 0 do, and so
    on.

    Source: non-dominated sorting, Deb, Pratap, Agarwal and Meyarivan 2002.

    >>> fronts(np.array([[3.0, 1.0], [1.0, 3.0], [1.0, 1.0], [2.0, 2.0]])).tolist()
    [0, 0, 1, 0]
    """
    rising, inverse = np.unique(np.round(means, 12), axis=0, return_inverse=True)
    number = np.zeros(len(rising), np.intp)
    for row in reversed(range(len(rising))):  # only a later row can dominate
        is_dominating = (rising[row + 1 :] >= rising[row]).all(axis=1)
        number[row] = number[row + 1 :][is_dominating].max(initial=-1) + 1
    return np.asarray(number[inverse.reshape(-1)])


def nearest_on_front(means: Floats) -> Floats:
    """Score flows front by front, and in each the knee highest: the flow nearest to the best of every measure, each
    measure in shares of its range on the front.

    Source: compromise programming, Zeleny 1973.

    >>> nearest_on_front(np.array([[1.0, 0.0], [0.9, 0.9], [0.0, 1.0], [0.1, 0.1]])).argsort()[::-1].tolist()
    [1, 2, 0, 3]
    """
    is_known, numbers = np.isfinite(means).all(axis=1), np.full(len(means), -np.inf)
    known_means = means[is_known]
    front_numbers = fronts(known_means)
    first = known_means[front_numbers == 0]
    if len(first):
        best, width = first.max(axis=0), np.ptp(first, axis=0)
        distance = np.sqrt((((best - known_means) / np.where(width > 0, width, 1.0)) ** 2).sum(axis=1))
        # Always less than 1, so that the distance orders flows within a front and never across fronts.
        numbers[is_known] = -(front_numbers + distance / (1.0 + distance))
    return numbers


def mean_of_measures(means: Floats) -> Floats:
    """Return the mean of all measures as they are: AutoRAG's `mean`."""
    return np.asarray(means.mean(axis=1))


def reciprocal_ranks(means: Floats) -> Floats:
    """Return the sum of 1 / rank in each measure; equal flows share their mean rank: AutoRAG's `rank`.

    >>> reciprocal_ranks(np.array([[0.9, 0.1], [0.8, 0.3], [0.7, 0.2]])).round(3).tolist()
    [1.333, 1.5, 0.833]
    """
    better_counts = (means[None] > means[:, None]).sum(axis=1)
    same = (means[None] == means[:, None]).sum(axis=1)
    return np.asarray((1.0 / (1.0 + better_counts + (same - 1) / 2.0)).sum(axis=1))


def normalized_means(means: Floats) -> Floats:
    """Return the sum of the measures, each from 0 for the worst flow to 1 for the best; 0 where all tie: AutoRAG's
    `normalize_mean`, which is NaN there.

    >>> normalized_means(np.array([[0.9, 5.0], [0.8, 5.0], [0.7, 5.0]])).round(3).tolist()
    [1.0, 0.5, 0.0]
    """
    is_known = np.isfinite(means).all(axis=1)
    numbers = np.full(len(means), -np.inf)
    if is_known.any():
        known_means = means[is_known]
        width = np.ptp(known_means, axis=0)
        numbers[is_known] = ((known_means - known_means.min(axis=0)) / np.where(width > 0, width, 1.0)).sum(axis=1)
    return numbers


COMBINED: Mapping[str, CombineFunction] = {
    "front": nearest_on_front, "mean": mean_of_measures, "rank": reciprocal_ranks, "normalize_mean": normalized_means,
}  # fmt: skip
"""By the names of `GreedySearch(combine=...)`."""
