"""A linear score of features, pass after pass: what training fits and ranking computes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from spolia.errors import WeightsError
from spolia.retrieval.learned.features import FEATURES, SEEDS, QuestionInGroup, Seeds

if TYPE_CHECKING:
    from spolia.types.arrays import Numbers, Positions

FLOOR = 0.02
"""Standard deviation of a feature in training, at least, for it to count: of one that hardly varied nothing was
learned, and elsewhere it may be far from its mean."""
DIGITS = 6
"""Significant digits of weights: the same questions give the same ones, whatever order numbers are added in."""


@dataclass(frozen=True, eq=False)
class LinearScore:
    """score(x) = Σ weight · (x - mean) / deviation, over the features that varied in training."""

    mean: Numbers
    deviation: Numbers
    weight: Numbers

    @classmethod
    def fitted(cls, mean: Numbers, deviation: Numbers, weight: Numbers) -> LinearScore:
        """With the precision that is written down."""
        return cls(*(np.array([float(f"{one:.{DIGITS}g}") for one in part]) for part in (mean, deviation, weight)))

    def contributions(self, features: Numbers) -> Numbers:
        """float64[n, features]: what each feature adds to each score."""
        found: Numbers = (features - self.mean) / np.where(self.weight, self.deviation, 1.0) * self.weight
        return found

    def plain(self) -> dict[str, list[float]]:
        """Mean, deviation and weight by the name of the feature."""
        return {
            name: [float(part[at]) for part in (self.mean, self.deviation, self.weight)]
            for at, name in enumerate(FEATURES)
        }

    @classmethod
    def of(cls, plain: Any) -> LinearScore:
        """From plain data. WeightsError for other features, or what is no finite number."""
        try:
            if set(plain) != set(FEATURES):
                raise ValueError(f"its features are {', '.join(plain)}; this version has {', '.join(FEATURES)}")
            rows = np.array([plain[name] for name in FEATURES], dtype=np.float64)
            if rows.shape != (len(FEATURES), 3) or not np.isfinite(rows).all() or (rows[:, 1] < 0).any():
                raise ValueError("a feature has three finite numbers: mean, deviation, weight")
            if ((rows[:, 1] < FLOOR) & (rows[:, 2] != 0)).any():
                raise ValueError(f"a feature that deviated by less than {FLOOR} in training has weight 0")
        except (TypeError, ValueError) as error:
            raise WeightsError(f"These are not weights of a ranker: {error}. Train it again.") from error
        return cls(*rows.T)


@dataclass(frozen=True, eq=False)
class RankedNodes:
    """Candidates of a question with their scores, in no order; `contributions` of the last pass add up to them."""

    positions: Positions
    scores: Numbers
    contributions: Numbers


def ranked(searched: QuestionInGroup, passes: Sequence[LinearScore]) -> RankedNodes:
    """The candidates of a question, ranked pass after pass: each begins where the one before has led to."""
    seeds = searched.first_seeds
    for at, linear in enumerate(passes, start=1):
        found = searched.candidates(seeds)
        contributions = linear.contributions(found.features)
        scores = contributions.sum(axis=1)
        if at < len(passes):
            seeds = next_seeds(found.positions, scores)
    return RankedNodes(found.positions, scores, contributions)


def next_seeds(positions: Positions, scores: Numbers) -> Seeds:
    """Where the next pass begins: the best candidates, each with p = σ(score - third best score)."""
    if not len(scores):
        return Seeds(positions, scores)
    third = np.sort(scores)[-min(3, len(scores))]
    chances = 1 / (1 + np.exp(np.clip(third - scores, -50, 50)))
    best = np.lexsort((positions, -scores))[:SEEDS]
    earlier: Mapping[int, float] = dict(zip(positions.tolist(), chances.tolist(), strict=True))
    return Seeds(positions[best], chances[best], earlier)
