"""Scores of features, linear or by boosted trees, pass after pass: what training fits and ranking computes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from spolia.errors import WeightsError
from spolia.retrieval.learned.features import FEATURES, SEEDS, QuestionInGroup, Seeds

if TYPE_CHECKING:
    from spolia.types.arrays import Numbers, Positions

FLOOR = 0.02
"""Standard deviation of a feature in training, at least, for it to count: of one that hardly varied nothing was
learned, and elsewhere it may be far from its mean."""
LARGEST = 1e9
"""A number of weights beyond this is none that training gives, and could make a score infinite."""
DIGITS = 6
"""Significant digits of weights: the same questions give the same ones, whatever order numbers are added in."""


@dataclass(frozen=True, eq=False)
class LinearScore:
    """Linear score(x) = Σ weight · (x - mean) / deviation, over the features that varied in training."""

    mean: Numbers
    deviation: Numbers
    weight: Numbers

    @classmethod
    def rounded(cls, mean: Numbers, deviation: Numbers, weight: Numbers) -> LinearScore:
        """Build a score with the precision that is written down."""
        return cls(
            *(np.array([float(f"{number:.{DIGITS}g}") for number in part]) for part in (mean, deviation, weight))
        )

    def contributions(self, features: Numbers) -> Numbers:
        """Return float64[n, features]: what each feature adds to each score."""
        contributions: Numbers = (features - self.mean) / np.where(self.weight, self.deviation, 1.0) * self.weight
        return contributions

    def plain(self) -> dict[str, list[float]]:
        """Return mean, deviation and weight by the name of the feature."""
        return {
            name: [float(part[column]) for part in (self.mean, self.deviation, self.weight)]
            for column, name in enumerate(FEATURES)
        }

    @classmethod
    def from_plain(cls, plain: Any) -> LinearScore:
        """Build from plain data; raise WeightsError for other features or for numbers that are not finite."""
        try:
            if set(plain) != set(FEATURES):
                raise ValueError(f"its features are {', '.join(plain)}; this version has {', '.join(FEATURES)}")
            rows = np.array([plain[name] for name in FEATURES], dtype=np.float64)
            if rows.shape != (len(FEATURES), 3) or not _are_sane(rows) or (rows[:, 1] < 0).any():
                raise ValueError("a feature has three finite numbers: mean, deviation, weight")
            if ((rows[:, 1] < FLOOR) & (rows[:, 2] != 0)).any():
                raise ValueError(f"a feature that deviated by less than {FLOOR} in training has weight 0")
        except (TypeError, ValueError) as error:
            raise WeightsError(f"These are not weights of a ranker: {error}. Train it again.") from error
        return cls(*rows.T)


TREE = {"feature": np.int64, "threshold": np.float64, "left": np.int64, "right": np.int64, "value": np.float64}
"""The columns of a tree's nodes: a leaf has itself to its left and right."""


@dataclass(frozen=True, eq=False)
class TreeScore:
    """Boosted trees: score(x) = Σ over the trees of the value of the leaf that x leads to, left where x[feature] ≤
    threshold.

    A feature contributes the change of the value at each node that splits by it. The contributions add up to the score
    but for the values of the roots, which all candidates share.

    Args:
        trees: of each node the columns of `TREE`; node 0 is the root, and the value of an inner node is the mean of
            those below it.

    Source: Burges, "From RankNet to LambdaRank to LambdaMART", 2010; contributions as in Saabas, "Interpreting random
    forests", 2014.
    """

    trees: Sequence[Mapping[str, Any]]

    def contributions(self, features: Numbers) -> Numbers:
        """Return float64[n, features]: what each feature adds to each score."""
        contributions, rows = np.zeros((len(features), len(FEATURES))), np.arange(len(features))
        for tree in self.trees:
            nodes = np.zeros(len(features), np.int64)
            while True:
                split_features = tree["feature"][nodes]
                is_left = features[rows, split_features] <= tree["threshold"][nodes]
                next_nodes = np.where(is_left, tree["left"][nodes], tree["right"][nodes])
                # A leaf leads to itself, so the walk ends when no row moves.
                if (next_nodes == nodes).all():
                    break
                np.add.at(contributions, (rows, split_features), tree["value"][next_nodes] - tree["value"][nodes])
                nodes = next_nodes
        return contributions

    def plain(self) -> dict[str, Any]:
        return {
            "features": list(FEATURES),
            "trees": [{name: tree[name].tolist() for name in TREE} for tree in self.trees],
        }

    @classmethod
    def from_plain(cls, plain: Any) -> TreeScore:
        """Build from plain data; raise WeightsError for other features, a tree with a circle, or numbers that are not
        finite."""
        try:
            if list(plain["features"]) != list(FEATURES):
                raise ValueError(f"this version has the features {', '.join(FEATURES)}")
            trees = [{name: np.array(tree[name], kind) for name, kind in TREE.items()} for tree in plain["trees"]]
            if not trees or not all(map(_is_tree, trees)):
                raise ValueError("a tree's node leads to later ones, by a feature and finite numbers")
        except (TypeError, ValueError, LookupError, OverflowError) as error:
            raise WeightsError(f"These are not weights of a ranker: {error}. Train it again.") from error
        return cls(trees)


def _are_sane(numbers: Numbers) -> bool:
    return bool((np.abs(numbers) <= LARGEST).all())  # not of NaN either


def _is_tree(tree: Mapping[str, Any]) -> bool:
    numbers = np.arange(len(tree["feature"]))
    sides = [tree["left"], tree["right"]]
    is_leaf = sides[0] == numbers
    return bool(
        all(column.shape == numbers.shape for column in tree.values()) and len(numbers)
        and _are_sane(tree["threshold"]) and _are_sane(tree["value"])
        and ((tree["feature"] >= 0) & (tree["feature"] < len(FEATURES))).all()
        and (is_leaf == (sides[1] == numbers)).all()
        # Children come after their parent, so that no walk goes in a circle.
        and all((is_leaf | ((side > numbers) & (side < len(numbers)))).all() for side in sides)
    )  # fmt: skip


Score: TypeAlias = LinearScore | TreeScore


def read_score(plain: Any) -> Score:
    """Read a score from what its `plain()` wrote."""
    return (
        TreeScore.from_plain(plain)
        if isinstance(plain, Mapping) and "trees" in plain
        else LinearScore.from_plain(plain)
    )


@dataclass(frozen=True, eq=False)
class RankedNodes:
    """Candidates of a question with their scores, in no order; `contributions` of the last pass add up to them."""

    positions: Positions
    scores: Numbers
    contributions: Numbers


def rank_candidates(searched: QuestionInGroup, passes: Sequence[Score]) -> RankedNodes:
    """Rank the candidates of a question in passes, each of which begins at the best nodes of the one before."""
    seeds = searched.first_seeds
    for number, score in enumerate(passes, start=1):
        candidates = searched.candidates(seeds)
        contributions = score.contributions(candidates.features)
        scores = contributions.sum(axis=1)
        if number < len(passes):
            seeds = next_seeds(candidates.positions, scores)
    return RankedNodes(candidates.positions, scores, contributions)


def next_seeds(positions: Positions, scores: Numbers) -> Seeds:
    """Return the seeds of the next pass: the best candidates, each with p = σ(score - third best score)."""
    if not len(scores):
        return Seeds(positions, scores)
    third = np.sort(scores)[-min(3, len(scores))]
    # exp of more overflows, and says nothing that ±50 does not.
    chances = 1 / (1 + np.exp(np.clip(third - scores, -50, 50)))
    best = np.lexsort((positions, -scores))[:SEEDS]
    earlier: Mapping[int, float] = dict(zip(positions.tolist(), chances.tolist(), strict=True))
    return Seeds(positions[best], chances[best], earlier)
