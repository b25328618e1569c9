"""What a flow should be best at, and what it may take at most: how flows are ordered by several measures."""

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
Combined: TypeAlias = Callable[[Floats], Floats]
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
        """`MEASURE=NUMBER`; `DataError` for anything else."""
        name, _, number = text.rpartition("=")
        try:
            bound = float(number)
        except ValueError:
            name, bound = "", np.nan
        if not name or not np.isfinite(bound):
            raise DataError(f"{text!r} is no limit. Write a measure and a number, such as USD=0.002 or ATC=800.")
        return cls(mean_of(parse_measure(name)), bound)

    def __str__(self) -> str:
        return f"{self.measure}={self.bound:g}"


@dataclass(frozen=True)
class Objectives(Value):
    """Measures of which the means should be best, and limits that flows keep before anything else.

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
    def of(
        cls,
        objective: str | SetMeasure | Sequence[str | SetMeasure],
        under: Sequence[str | Limit] = (),
        combine: str = "front",
    ) -> Self:
        """The objectives that are written so; `DataError` if they cannot be tuned for."""
        given = [objective] if isinstance(objective, SetMeasure) else objective
        limits = tuple(Limit.parse(one) if isinstance(one, str) else one for one in under)
        return cls(tuple(dict.fromkeys(map(mean_of, as_measures(given)))), limits, combine)

    @property
    def measures(self) -> tuple[Measure | CostMeasure, ...]:
        """The measures to optimize and the limited ones, each once: the columns of scores."""
        return tuple(dict.fromkeys((*self.best, *(one.measure for one in self.limits))))

    @property
    def signs(self) -> Floats:
        """-1 for measures of which less is better: times its sign, more of every measure is better."""
        return np.array([-1.0 if one.lower_is_better else 1.0 for one in self.measures])

    @property
    def is_single(self) -> bool:
        """Whether there is one measure and no limit."""
        return len(self.measures) == 1 and not self.limits

    @property
    def are_timed(self) -> bool:
        """Whether it matters how long a flow takes."""
        return any(isinstance(one, Seconds) for one in self.measures)

    def blurred(self, means: Floats) -> Floats:
        """The means by flow and measure, where flows that differ from a better one by less than the measure can tell,
        or by rounding, have its mean. A measure that no flow has a score in decides nothing: all flows have 0."""
        found = np.round(means, 12)
        found[:, ~np.isfinite(found).any(axis=0)] = 0.0
        for column, measure in zip(found.T, self.measures, strict=True):
            leader = np.inf
            for at in np.argsort(-column, kind="stable") if measure.resolution else ():
                leader = leader if column[at] > leader - measure.resolution else column[at]
                column[at] = leader
        return found

    def excess(self, means: Floats) -> Floats:
        """By flow, how far it is beyond the limits, as sum of the shares of each; 0 within them.

        Args:
            means: by flow and measure, times the signs.
        """
        total = np.zeros(len(means))
        for one in self.limits:
            column = self.measures.index(one.measure)
            beyond = self.signs[column] * one.bound - means[:, column]
            if np.isfinite(beyond).any():
                total += np.maximum(0.0, beyond) / (abs(one.bound) or 1.0)
        return np.round(total, 12)

    def keys(self, means: Floats, combined: Combined | None = None) -> Floats:
        """By flow, numbers that order flows, the least first: those within the limits, then the better ones.

        Source: constraint domination, Deb 2002.
        """
        own = self.blurred(means)[:, : len(self.best)]
        better = own[:, 0] if len(self.best) == 1 else (combined or COMBINED[self.combine])(own)
        return np.column_stack([self.excess(means), -np.round(better, 12)])


def mean_of(measure: SetMeasure) -> Measure | CostMeasure:
    """The measure, if its total is a mean over questions."""
    if not isinstance(measure, Measure | CostMeasure):
        raise DataError(
            f"{measure!s} cannot be tuned for: an objective must be a measure that is a mean over questions, such as "
            "nDCG@10, F1, SentenceBLEU or Calls."
        )
    return measure


def fronts(means: Floats) -> NDArray[np.intp]:
    """By flow, the number of its Pareto front: 0 for those than which none is better in one measure and as good in the
    others; 1 for those that only flows of front 0 dominate, and so on.

    Source: non-dominated sorting, Deb, Pratap, Agarwal and Meyarivan 2002.

    >>> fronts(np.array([[3.0, 1.0], [1.0, 3.0], [1.0, 1.0], [2.0, 2.0]])).tolist()
    [0, 0, 1, 0]
    """
    rising, where = np.unique(np.round(means, 12), axis=0, return_inverse=True)
    number = np.zeros(len(rising), np.intp)
    for at in reversed(range(len(rising))):  # only a later row can dominate
        above = (rising[at + 1 :] >= rising[at]).all(axis=1)
        number[at] = number[at + 1 :][above].max(initial=-1) + 1
    return np.asarray(number[where.reshape(-1)])


def nearest_on_front(means: Floats) -> Floats:
    """Front by front, and in each the knee first: the flow nearest to the best of every measure, each measure in shares
    of its range on the front.

    Source: compromise programming, Zeleny 1973.

    >>> nearest_on_front(np.array([[1.0, 0.0], [0.9, 0.9], [0.0, 1.0], [0.1, 0.1]])).argsort()[::-1].tolist()
    [1, 2, 0, 3]
    """
    known, numbers = np.isfinite(means).all(axis=1), np.full(len(means), -np.inf)
    some = means[known]
    of_front = fronts(some)
    first = some[of_front == 0]
    if len(first):
        best, width = first.max(axis=0), np.ptp(first, axis=0)
        far = np.sqrt((((best - some) / np.where(width > 0, width, 1.0)) ** 2).sum(axis=1))
        numbers[known] = -(of_front + far / (1.0 + far))
    return numbers


def mean_of_measures(means: Floats) -> Floats:
    """The mean of all measures as they are: AutoRAG's `mean`."""
    return np.asarray(means.mean(axis=1))


def reciprocal_ranks(means: Floats) -> Floats:
    """The sum of 1 / rank in each measure; equal flows share their mean rank: AutoRAG's `rank`.

    >>> reciprocal_ranks(np.array([[0.9, 0.1], [0.8, 0.3], [0.7, 0.2]])).round(3).tolist()
    [1.333, 1.5, 0.833]
    """
    above = (means[None] > means[:, None]).sum(axis=1)
    same = (means[None] == means[:, None]).sum(axis=1)
    return np.asarray((1.0 / (1.0 + above + (same - 1) / 2.0)).sum(axis=1))


def normalized_means(means: Floats) -> Floats:
    """The sum of the measures, each from 0 for the worst flow to 1 for the best; 0 where all tie: AutoRAG's
    `normalize_mean`, which is NaN there.

    >>> normalized_means(np.array([[0.9, 5.0], [0.8, 5.0], [0.7, 5.0]])).round(3).tolist()
    [1.0, 0.5, 0.0]
    """
    known = np.isfinite(means).all(axis=1)
    numbers = np.full(len(means), -np.inf)
    if known.any():
        some = means[known]
        width = np.ptp(some, axis=0)
        numbers[known] = ((some - some.min(axis=0)) / np.where(width > 0, width, 1.0)).sum(axis=1)
    return numbers


COMBINED: Mapping[str, Combined] = {
    "front": nearest_on_front, "mean": mean_of_measures, "rank": reciprocal_ranks, "normalize_mean": normalized_means,
}  # fmt: skip
"""By the names of `GreedySearch(combine=...)`."""
