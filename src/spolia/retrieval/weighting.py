"""The formulas that are called BM25: how rare a term is, and how often it stands in a node of some length."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from spolia.retrieval.counts import Counts

    Numbers = npt.NDArray[np.float64]

Variant: TypeAlias = Literal["lucene", "robertson", "okapi", "atire", "bm25l", "bm25+"]
Idf: TypeAlias = Callable[[float, float], float]
"""From the number of nodes, and of those that hold the term."""

IDF: Mapping[str, Idf] = {
    "lucene": lambda count, holding: math.log(1 + (count - holding + 0.5) / (holding + 0.5)),
    "robertson": lambda count, holding: math.log((count - holding + 0.5) / (holding + 0.5)),
    "okapi": lambda count, holding: math.log((count - holding + 0.5) / (holding + 0.5)),
    "atire": lambda count, holding: math.log(count / holding),
    "bm25l": lambda count, holding: math.log((count + 1) / (holding + 0.5)),
    "bm25+": lambda count, holding: math.log((count + 1) / holding),
}


@dataclass(frozen=True)
class Saturation:
    """How much a term's count adds, the more often the less.

    Args:
        variant: whose formula.
        k1: how soon more adds nothing.
        b: how much longer nodes count less, from 0 (not at all).
        delta: δ of BM25L and BM25+.
    """

    variant: Variant
    k1: float
    b: float
    delta: float

    def of(self, often: Numbers, lengths: Numbers) -> Numbers:
        """float64[m]: the factor beside the idf.

        Args:
            often: float64[m] counts of the term.
            lengths: float64[m] lengths of the nodes, in parts of the mean.
        """
        short = 1 - self.b + self.b * lengths
        if self.variant == "bm25l":
            even = often / short + self.delta
            return (self.k1 + 1) * even / (self.k1 + even)
        plain = often / (often + self.k1 * short)
        if self.variant in ("lucene", "robertson"):
            return plain
        return (self.k1 + 1) * plain + (self.delta if self.variant == "bm25+" else 0.0)


def okapi_floor(counts: Counts, epsilon: float) -> float:
    """ε · mean idf over all terms: what stands for an idf below 0."""
    import numpy as np

    holding, count = np.diff(counts.starts).astype(np.float64), float(len(counts.keys))
    if not len(holding):
        return 0.0
    return epsilon * float(np.log((count - holding + 0.5) / (holding + 0.5)).mean())
