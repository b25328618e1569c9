"""The best of many nodes by their scores."""

from __future__ import annotations

import numpy as np

from spolia.stores.reading.allowed import Keys
from spolia.stores.reading.ordered import Ids, ordered
from spolia.stores.vectors.metrics import Scores


def ordered_scores(keys: Keys, scores: Scores, top_k: int, ids: Ids | None = None) -> list[tuple[int, float]]:
    """The best of these keys, as `ordered` puts them; of many, only those that may be among the best are looked at.

    >>> ordered_scores(np.array([4, 5, 6]), np.array([0.5, 0.7, 0.5]), 2, lambda keys: {4: "later", 6: "earlier"})
    [(5, 0.7), (6, 0.5)]
    """
    if 0 < top_k < len(keys):
        near = np.flatnonzero(scores >= np.partition(scores, len(scores) - top_k)[len(scores) - top_k])
        keys, scores = keys[near], scores[near]
    return ordered(zip(keys.tolist(), scores.tolist(), strict=True), top_k, ids)
