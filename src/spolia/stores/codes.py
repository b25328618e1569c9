"""Vectors as int8 codes for graphs: a quarter of the bytes, and distances that cost a quarter of the time.

Every metric becomes the Euclidean distance, so that one kind of graph serves all. Between unit vectors it has the order
of the cosine. For dot products a number is put to each vector that makes all of them as long as the longest, and 0 to
the query (Bachrach et al., "Speeding up the Xbox recommender system using a Euclidean transformation for inner-product
spaces", 2014). The mean is taken off, and what is left is scaled so that all but the rarest numbers fit into -127..127:
codes of one byte then find the same neighbours, whose scores are computed from the vectors again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from spolia.stores.definition import Metric
from spolia.stores.vectors import Vectors

Codes = npt.NDArray[np.int8]

_SAMPLED = 20_000
_FITTING = 0.9999
_LARGEST = 127


@dataclass(frozen=True, eq=False)
class Coding:
    """How the vectors of one segment are coded.

    Args:
        metric: decides what is put to a vector.
        radius: length of the longest vector.
        mean: float32[d], or float32[d + 1] for dot products.
        scale: codes for 1.
    """

    metric: Metric
    radius: float
    mean: Vectors
    scale: float

    @property
    def dimension(self) -> int:
        """Numbers in a code."""
        return len(self.mean)

    def of_rows(self, rows: Vectors) -> Codes:
        """Codes of vectors, int8[n, dimension]."""
        return self._rounded(lifted(rows, self.radius) if self.metric == "dot" else rows)

    def of_query(self, query: Vectors) -> Codes:
        """Code of a query, int8[dimension]; its length says nothing about the order of dot products."""
        if self.metric == "dot":
            length = float(np.linalg.norm(query))
            query = np.append(query * np.float32(self.radius / length if length else 0.0), np.float32(0))
        return self._rounded(query)

    def _rounded(self, vectors: Vectors) -> Codes:
        scaled = np.rint((vectors - self.mean) * np.float32(self.scale))
        codes: Codes = np.clip(scaled, -_LARGEST, _LARGEST).astype(np.int8)
        return codes


def fitted(metric: Metric, vectors: Vectors) -> Coding:
    """The coding of a segment, from a sample of its vectors float32[n, d]."""
    radius = max(float(np.linalg.norm(block, axis=1).max()) for block in _blocks(vectors)) if metric == "dot" else 1.0
    sample = vectors[:: -(-len(vectors) // _SAMPLED)]
    if metric == "dot":
        sample = lifted(sample, radius)
    mean = sample.mean(axis=0, dtype=np.float64).astype(np.float32)
    reach = float(np.quantile(np.abs(sample - mean), _FITTING))
    return Coding(metric, radius, mean, _LARGEST / reach if reach else 1.0)


def _blocks(vectors: Vectors) -> Sequence[Vectors]:
    return [vectors[start : start + 4_096] for start in range(0, len(vectors), 4_096)]


def lifted(rows: Vectors, radius: float) -> Vectors:
    """Rows with one more number, so that all have the length `radius`."""
    squares = (rows.astype(np.float64) ** 2).sum(axis=1)
    return np.column_stack([rows, np.sqrt(np.maximum(radius**2 - squares, 0.0)).astype(np.float32)])
