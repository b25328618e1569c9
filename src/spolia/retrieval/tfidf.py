"""Search by the cosine of weighted words."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from spolia import retrieval
from spolia.deferred import numpy as np
from spolia.retrieval.group_search import TermSearch
from spolia.stores.corpus import NodeGroup
from spolia.types import Filter

if TYPE_CHECKING:
    from spolia.retrieval.term_counts import Counts
    from spolia.stores.snapshot.snapshot import Snapshot
    from spolia.types.arrays import Mask, Numbers


@dataclass(frozen=True)
class TFIDF(TermSearch):
    """Lexical search by the cosine of TF-IDF vectors.

    score(q, d) = Σ_t w(t, q) · w(t, d) / (|w(q)| · |w(d)|), from 0 to 1, with w(t, x) = (1 + ln tf) · idf and
    idf = ln((1 + N) / (1 + n)) + 1. tf: how often x holds the term t; n of N nodes hold it. Words of the query that no
    node holds are ignored. The terms are those of the group's analyser.

    Args:
        sublinear: tf counts as 1 + ln tf; else as it is.
        group, top_k, source, filter: as for every `GroupSearch`, which names the errors too.

    Source: Salton, Buckley, "Term-weighting approaches in automatic text retrieval", 1988 (ltc.ltc); the smoothed idf
    is that of scikit-learn.

    >>> from spolia.stores.corpus import Corpus
    >>> TFIDF(Corpus("notes.spolia").group(), top_k=5).short
    "TFIDF(top_k=5, source='tf-idf', sublinear=True)"
    """

    group: NodeGroup
    top_k: int = 10
    source: str = "tf-idf"
    filter: Filter | None = None
    sublinear: bool = True

    version: ClassVar[int] = 2  # 2: counts only what the asker may read

    def scores(
        self, snapshot: Snapshot, terms: Mapping[str, int], principals: frozenset[str], /
    ) -> tuple[Numbers, Mask]:
        counts, cache = (
            retrieval.term_counts.counts_of(snapshot, self.group.name, principals),
            snapshot.derived_of(principals, self.group.name),
        )
        lengths = retrieval.term_counts.derived(
            cache, ("tf-idf", self.group.name, self.sublinear), lambda: self._lengths(counts)
        )
        scores, shares = np.zeros(len(counts.keys)), np.zeros(len(counts.keys), dtype=np.bool_)
        query_square = 0.0
        for term, repeated in terms.items():
            nodes, often = counts.find_term(term)
            if len(nodes):
                weight = float(self._weights(np.array([float(repeated)]), _idf(counts.count, len(nodes)))[0])
                query_square += weight**2
                scores[nodes] += weight * self._weights(often, _idf(counts.count, len(nodes)))
                shares[nodes] = True
        return scores / np.where(shares, lengths * (math.sqrt(query_square) or 1.0), 1.0), shares

    def _weights(self, often: Numbers, idf: float | Numbers) -> Numbers:
        return np.asarray((1 + np.log(often) if self.sublinear else often) * idf, dtype=np.float64)

    def _lengths(self, counts: Counts) -> Numbers:
        """Return |w(d)| of every node."""
        terms, nodes, often = counts.entries
        idf = np.log((1 + counts.count) / (1 + np.bincount(terms, minlength=1))) + 1
        squares = np.bincount(nodes, self._weights(often, idf[terms]) ** 2, len(counts.keys))
        return np.asarray(np.sqrt(squares), dtype=np.float64)


def _idf(count: int, holding: int) -> float:
    return math.log((1 + count) / (1 + holding)) + 1
