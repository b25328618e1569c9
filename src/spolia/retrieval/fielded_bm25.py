"""Search by words, where a word in the title counts more than one in the text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from spolia.errors import WiringError
from spolia.retrieval.bm25_variant import refuse_odd
from spolia.retrieval.term_search import TermSearch
from spolia.retrieval.weighting import IDF, Saturation
from spolia.stores.corpus import NodeGroup
from spolia.types import Filter

if TYPE_CHECKING:
    from spolia.retrieval.counts import Counts
    from spolia.retrieval.term_search import Mask, Numbers
    from spolia.stores.snapshot import Snapshot

CONTEXT, TEXT = "context", "text"


@dataclass(frozen=True)
class FieldedBM25(TermSearch):
    """The nodes that share the most telling words with the query, those in title and headings weighed by themselves.

    Together (BM25F), the counts of the fields f are added up before they saturate:
    score(q, d) = Σ_t qtf · idf · T / (k1 + T), T = Σ_f w_f · tf_f / (1 - b_f + b_f · |d|_f / mean |d|_f), with n the
    nodes that hold t in any field. As the best field (what Elasticsearch calls multi-match),
    score(q, d) = max_f w_f · BM25_f(q, d), each field with counts and lengths of its own. In both,
    idf = ln(1 + (N - n + ½) / (n + ½)).

    Args:
        group: the node group to search.
        weights: of the fields: `context`, the title and headings above a node's text, and `text`.
        combine: `together` or `best`.
        k1: how soon more of a term adds nothing; above 0.
        b: of each field, how much longer ones count less, from 0 to 1.
        top_k: hits to return, at most.
        source: name of the ranking, for weights when it is fused.
        filter: what may be found at all; the query's filter and the run's narrow it further.

    Raises:
        QueryError: for an empty query.
        FilterError: for a filter on a field that the store does not declare.
        StoreError: when the store cannot be read, or has no such group.
        WiringError: another field, or a number that makes no sense.

    Source: Zaragoza, Craswell, Taylor, Saria, Robertson, "Microsoft Cambridge at TREC-13: Web and HARD tracks", 2004.

    >>> from spolia.stores.corpus import Corpus
    >>> FieldedBM25(Corpus("notes.spolia").group(), top_k=5).short
    "FieldedBM25(combine='together', k1=1.2, top_k=5, source='bm25f')"
    """

    group: NodeGroup
    weights: tuple[tuple[str, float], ...] = ((CONTEXT, 1.25), (TEXT, 1.0))
    combine: Literal["together", "best"] = "together"
    k1: float = 1.2
    b: tuple[tuple[str, float], ...] = ((CONTEXT, 0.75), (TEXT, 0.75))
    top_k: int = 10
    source: str = "bm25f"
    filter: Filter | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.combine not in ("together", "best"):
            raise WiringError(f"{self.combine!r} is no way to combine fields. Write 'together' or 'best'.")
        if set(dict(self.weights)) != {CONTEXT, TEXT} or set(dict(self.b)) != {CONTEXT, TEXT}:
            raise WiringError(f"The fields are {CONTEXT!r} and {TEXT!r}. Write weights and b for both.")
        if not all(0 <= weight < float("inf") for _, weight in self.weights) or not any(w for _, w in self.weights):
            raise WiringError(f"The weights are {self.weights}. Write numbers of at least 0, not all of them 0.")
        for _, b in self.b:
            refuse_odd(self.k1, b)

    def scores(self, snapshot: Snapshot, terms: Mapping[str, int], /) -> tuple[Numbers, Mask]:
        from spolia.retrieval.counts import counts_of

        used = [name for name, weight in self.weights if weight]
        counts = {name: counts_of(snapshot, self.group.name, name) for name in used}
        return (self._together if self.combine == "together" else self._best)(counts, terms)

    def _together(self, counts: Mapping[str, Counts], terms: Mapping[str, int]) -> tuple[Numbers, Mask]:
        import numpy as np

        count = len(next(iter(counts.values())).keys)
        found, shares = np.zeros(count), np.zeros(count, dtype=np.bool_)
        for term, repeated in terms.items():
            total, holds = np.zeros(count), np.zeros(count, dtype=np.bool_)
            for name, field in counts.items():
                nodes, often = field.holding(term)
                b = dict(self.b)[name]
                short = 1 - b + b * field.lengths[nodes] / field.mean_length
                total[nodes] += dict(self.weights)[name] * often / short
                holds[nodes] = True
            if holds.any():
                idf = IDF["lucene"](count, int(np.count_nonzero(holds)))
                found += repeated * idf * total / (self.k1 + total)
                shares |= holds
        return found, shares

    def _best(self, counts: Mapping[str, Counts], terms: Mapping[str, int]) -> tuple[Numbers, Mask]:
        import numpy as np

        count = len(next(iter(counts.values())).keys)
        best, shares = np.zeros(count), np.zeros(count, dtype=np.bool_)
        for name, field in counts.items():
            saturation, own = Saturation("lucene", self.k1, dict(self.b)[name], 0.0), np.zeros(count)
            for term, repeated in terms.items():
                nodes, often = field.holding(term)
                if len(nodes):
                    lengths = field.lengths[nodes] / field.mean_length
                    own[nodes] += repeated * IDF["lucene"](count, len(nodes)) * saturation.of(often, lengths)
                    shares[nodes] = True
            best = np.maximum(best, dict(self.weights)[name] * own)
        return best, shares
