"""Alignment of ranked lists as arrays, with one row for each list and one column for each document."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import fsum
from typing import TYPE_CHECKING, Self, TypeAlias

from spolia.deferred import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

Scored: TypeAlias = Sequence[tuple[str, float]]
Numbers: TypeAlias = "npt.NDArray[np.float64]"
Places: TypeAlias = "npt.NDArray[np.int64]"


@dataclass(frozen=True, eq=False)
class AlignedLists:
    """Ranked lists, aligned over all documents that at least one of them holds."""

    names: Sequence[str]
    places: tuple[Places, ...]  # for each list int64[length]; of a document that stands there twice, the first counts
    scores: tuple[Numbers, ...]  # for each list float64[length], best first
    find_names: Callable[[Sequence[int]], Mapping[int, str]] | None = None
    """Names some documents by their places, where `names` does not; leaves those out that are there no more."""

    @classmethod
    def from_lists(cls, lists: Sequence[Scored]) -> Self:
        """Align lists of (id, score) pairs, best first; higher is better."""
        number: dict[str, int] = {}
        places = [[number.setdefault(name, len(number)) for name, _ in list_] for list_ in lists]
        scores = tuple(np.array([score for _, score in list_], dtype=np.float64) for list_ in lists)
        return cls(list(number), tuple(np.array(row, dtype=np.int64) for row in places), scores)

    def spread(self, values: Sequence[npt.ArrayLike], absent: Sequence[float]) -> Numbers:
        """Spread values in the order of the lists as float64[lists, documents]; `absent` fills what a list lacks."""
        table = np.empty((len(self.places), len(self.names)))
        for row, places in enumerate(self.places):
            table[row] = absent[row]
            table[row, places[::-1]] = np.asarray(values[row], dtype=np.float64)[::-1]  # the last one written stays
        return table

    @cached_property
    def ranks(self) -> Numbers:
        """Return float64[lists, documents] of ranks from 1, as in `competition_ranks`; infinite where absent."""
        return self.spread([competition_ranks(scores) for scores in self.scores], [np.inf] * len(self.scores))

    def select_best(self, scores: Numbers, weights: Sequence[float], top_k: int | None = None) -> Places:
        """Return int64[variants, top_k] by scores float64[variants, documents]; ties by weighted rank, then by name."""
        weighted_ranks = self.ranks[[index for index, weight in enumerate(weights) if weight > 0]]
        first = weighted_ranks.min(axis=0, initial=np.inf)
        # Stable sorts, the least important first: by name, then by rank, then by score.
        contenders: list[int] = _find_contenders(scores, top_k).tolist()
        if self.find_names is None:
            in_order = sorted(contenders, key=self.names.__getitem__)
        else:
            names = self.find_names(contenders)
            in_order = sorted(names, key=names.__getitem__)
        by_name = np.array(in_order, dtype=np.int64)
        ties = by_name[np.argsort(first[by_name], kind="stable")]
        order = np.argsort(-scores[:, ties], axis=1, kind="stable")
        return np.asarray(ties[order[:, :top_k]], dtype=np.int64)


def _find_contenders(scores: Numbers, top_k: int | None) -> Places:
    """Return the documents that may be among the best: of a single variant those not below the last one, else all."""
    variants, count = scores.shape
    if variants == 1 and top_k is not None and top_k < count:
        negated = -scores[0]
        # A partition instead of a sort: only what may be among the best is named and sorted (benchmarks/fusion.py).
        last = np.partition(negated, top_k - 1)[top_k - 1]
        if last == last:  # not NaN: then fewer than top_k have a number, and all contend
            return np.flatnonzero(negated <= last)
    return np.arange(count)


def sum_exactly(rows: Sequence[Numbers]) -> Numbers:
    """Sum arrays of one shape, correctly rounded, so that their order makes no difference."""
    # A sum of two numbers is correctly rounded already; only more need `fsum`, which is called once a document.
    if len(rows) <= 2:
        return rows[0] + rows[1] if len(rows) == 2 else rows[0]
    flat = np.stack(np.broadcast_arrays(*rows)).reshape(len(rows), -1)
    sums = np.array([fsum(column) for column in flat.T.tolist()])
    return sums.reshape(np.broadcast_shapes(*(row.shape for row in rows)))


def competition_ranks(scores: Numbers) -> Numbers:
    """Return float64[n] ranks from 1 of ordered scores; neighbours with equal scores share the better rank."""
    numbers = np.arange(1, len(scores) + 1, dtype=np.float64)
    numbers[1:][scores[1:] == scores[:-1]] = 0  # equal to its neighbour: takes over that one's rank below
    return np.maximum.accumulate(numbers) if len(numbers) else numbers
