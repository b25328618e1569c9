"""Lucene's BM25, written from its documentation and independently of what is tested.

score(q, d) = Σ over the query's terms, repetitions counted, of idf · tf / (tf + k1 · (1 - b + b · |d| / mean |d|))
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

K1, B = 1.2, 0.75


def code_length(length: int) -> int:
    """What Lucene's one-byte code keeps of a length (SmallFloat.intToByte4): up to 40 all, above the top four bits."""
    if length < 24:
        return length
    rest = length - 24
    shift = max(0, rest.bit_length() - 4)
    return 24 + ((rest >> shift) << shift)


class Lucene:
    """An index of documents that are lists of terms."""

    def __init__(self, documents: Sequence[Sequence[str]]) -> None:
        self.counts = [Counter(document) for document in documents]
        mean = sum(map(len, documents)) / len(documents)
        self.norms = [K1 * (1 - B + B * code_length(len(document)) / mean) for document in documents]
        self.holding: dict[str, list[int]] = {}
        for number, counts in enumerate(self.counts):
            for term in counts:
                self.holding.setdefault(term, []).append(number)

    def scores(self, query: Sequence[str]) -> dict[int, float]:
        """The score of each document that shares a term with the query."""
        score_by_number: dict[int, float] = {}
        for term, repeated in Counter(query).items():
            holding = self.holding.get(term, [])
            idf = math.log(1 + (len(self.counts) - len(holding) + 0.5) / (len(holding) + 0.5))
            for number in holding:
                tf = self.counts[number][term]
                score_by_number[number] = score_by_number.get(number, 0.0) + repeated * idf * tf / (
                    tf + self.norms[number]
                )
        return score_by_number
