"""Scores of vectors for a query: roughly for many of them at once, exactly for the few that may be the best.

Rough scores are float32 matrix products, which differ in their last digits between one query and many, one block and
another. So all that come within `slack` of the best are looked at again in float64, row by row: results do not depend
on how they were computed, nor on the index that found the candidates.
"""

import numpy as np
import numpy.typing as npt

from spolia.errors import StoreError
from spolia.stores.access.allowed_nodes import Keys
from spolia.stores.definition import Metric
from spolia.stores.snapshot.hit_order import Ids, best_hits
from spolia.stores.vectors.dense import Vectors

_ULP = 2.0**-23  # of float32

Scores = npt.NDArray[np.float64]


def check_queries(metric: Metric, queries: Vectors, dimension: int) -> Vectors:
    """Return queries float32[m, d] that fit to the vectors of a store; of length 1 for the cosine."""
    queries = np.asarray(queries, dtype=np.float32)
    if queries.ndim != 2 or queries.shape[1] != dimension:
        raise StoreError(
            f"The queries' vectors have shape {queries.shape}, those of the store have {dimension} numbers each. "
            "Search with the embedder that the group was built with."
        )
    if not np.isfinite(queries).all():
        row = int(np.flatnonzero(~np.isfinite(queries).all(axis=1))[0])
        raise StoreError(f"Query {row} holds NaN or infinity. Check what the embedder returned before searching.")
    return unit_rows(queries) if metric == "cosine" else queries


def unit_rows(vectors: Vectors) -> Vectors:
    """Scale rows to length 1; zeros stay zeros."""
    lengths = np.sqrt((vectors.astype(np.float64) ** 2).sum(axis=1, keepdims=True))
    return (vectors / np.where(lengths > 0, lengths, 1.0)).astype(np.float32)


def rough_scores(metric: Metric, products: Vectors, squares: Vectors) -> Vectors:
    """Return numbers in the order of the scores. Of the squared distance |q|² - 2qx + |x|² they leave out |q|²."""
    return 2 * products - squares if metric == "euclidean" else products


def slack(metric: Metric, query: Vectors, radius: float) -> np.float32:
    """Return how much `rough_scores` may put a row below another that is as good or less: twice the error of a float32
    sum."""
    error = len(query) * _ULP * float(np.linalg.norm(query.astype(np.float64))) * radius
    if metric == "euclidean":
        error = 2 * error + len(query) * _ULP * radius**2
    return np.float32(2 * error)


def exact_scores(metric: Metric, query: Vectors, rows: Vectors) -> Scores:
    """Return scores of rows float32[n, d], higher is better: cosine of unit vectors, dot product, or -distance."""
    wide = rows.astype(np.float64)
    if metric == "euclidean":
        wide -= query  # in place, since another array of this size takes as long as the sums
        wide *= wide
    else:
        wide *= query
    sums: Scores = wide.sum(axis=1)
    return 0.0 - np.sqrt(sums) if metric == "euclidean" else sums


def rank_scores(keys: Keys, scores: Scores, top_k: int, ids: Ids | None = None) -> list[tuple[int, float]]:
    """Return the best of these keys, as `best_hits` puts them; of many, only those that may be among the best are
    looked at.

    >>> rank_scores(np.array([4, 5, 6]), np.array([0.5, 0.7, 0.5]), 2, lambda keys: {4: "later", 6: "earlier"})
    [(5, 0.7), (6, 0.5)]
    """
    if 0 < top_k < len(keys):
        near = np.flatnonzero(scores >= np.partition(scores, len(scores) - top_k)[len(scores) - top_k])
        keys, scores = keys[near], scores[near]
    order = np.lexsort((keys, -scores))
    keys, scores = keys[order], scores[order]
    hits = list(zip(keys.tolist(), scores.tolist(), strict=True))
    return best_hits(hits, top_k, ids) if (scores[1:] == scores[:-1]).any() else hits[: max(top_k, 0)]
