"""Search by words, by the other formulas that are called BM25."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, get_args

from spolia.errors import WiringError
from spolia.retrieval.term_search import TermSearch
from spolia.retrieval.weighting import IDF, Saturation, Variant, okapi_floor
from spolia.stores.corpus import NodeGroup
from spolia.types import Filter

if TYPE_CHECKING:
    from spolia.retrieval.counts import Counts
    from spolia.retrieval.term_search import Mask, Numbers
    from spolia.stores.snapshot import Snapshot


@dataclass(frozen=True)
class BM25Variant(TermSearch):
    """The nodes that share the most telling words with the query, by a formula of choice, with exact lengths.

    score(q, d) = Σ_t qtf · idf · sat, with L = 1 - b + b · |d| / mean |d|, c = tf / L:

    | variant | idf | sat |
    |---|---|---|
    | `lucene` | ln(1 + (N - n + ½) / (n + ½)) | tf / (tf + k1 · L) |
    | `robertson` | ln((N - n + ½) / (n + ½)) | tf / (tf + k1 · L) |
    | `okapi` | the same; ε · mean idf of all terms where it is below 0 | (k1 + 1) · tf / (tf + k1 · L) |
    | `atire` | ln(N / n) | (k1 + 1) · tf / (tf + k1 · L) |
    | `bm25l` | ln((N + 1) / (n + ½)) | (k1 + 1) · (c + δ) / (k1 + c + δ) |
    | `bm25+` | ln((N + 1) / n) | (k1 + 1) · tf / (tf + k1 · L) + δ |

    qtf and tf: how often query and node hold the term t; n of N nodes hold it. `okapi` with k1 = 1.5 is that of
    rank_bm25, but for nodes that share no term, which are not found. The idf of
    `robertson`, and of `okapi` in small stores, is below 0 for a term that most nodes hold: such a match scores less
    than none, and is found all the same. `BM25` is faster, and `lucene` but for a factor k1 + 1 and the lengths.

    Args:
        group: the node group to search.
        variant: of the table.
        k1: how soon more of a term adds nothing; above 0.
        b: how much longer nodes count less, from 0 to 1.
        delta: δ, at least 0; ½ is usual for `bm25l`, 1 for `bm25+`.
        epsilon: ε of `okapi`, at least 0.
        top_k: hits to return, at most.
        source: name of the ranking, for weights when it is fused.
        filter: what may be found at all; the query's filter and the run's narrow it further.

    Raises:
        QueryError: for an empty query.
        FilterError: for a filter on a field that the store does not declare.
        StoreError: when the store cannot be read, or has no such group.
        WiringError: there is no such variant, or a number that makes no sense.

    Source: Kamphuis, de Vries, Boytsov, Lin, "Which BM25 do you mean? A large-scale reproducibility study of scoring
    variants", ECIR 2020; Lv, Zhai, "When documents are very long, BM25 fails!" (BM25L) and "Lower-bounding term
    frequency normalization" (BM25+), 2011.

    >>> from spolia.stores.corpus import Corpus
    >>> BM25Variant(Corpus("notes.spolia").group(), "bm25+", delta=1.0, top_k=5).short[:44]
    "BM25Variant(variant='bm25+', k1=1.2, b=0.75,"
    """

    group: NodeGroup
    variant: Variant = "lucene"
    k1: float = 1.2
    b: float = 0.75
    delta: float = 0.5
    epsilon: float = 0.25
    top_k: int = 10
    source: str = "bm25"
    filter: Filter | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.variant not in get_args(Variant):
            raise WiringError(f"There is no variant {self.variant!r}. Write one of: {', '.join(get_args(Variant))}.")
        refuse_odd(self.k1, self.b)
        if not (0 <= self.delta < float("inf") and 0 <= self.epsilon < float("inf")):
            raise WiringError(f"delta is {self.delta}, epsilon {self.epsilon}. Write numbers of at least 0.")

    def scores(self, snapshot: Snapshot, terms: Mapping[str, int], /) -> tuple[Numbers, Mask]:
        import numpy as np

        from spolia.retrieval.counts import counts_of

        counts = counts_of(snapshot, self.group.name)
        saturation = Saturation(self.variant, self.k1, self.b, self.delta)
        found, shares = np.zeros(len(counts.keys)), np.zeros(len(counts.keys), dtype=np.bool_)
        for term, repeated in terms.items():
            nodes, often = counts.holding(term)
            if len(nodes):
                lengths = counts.lengths[nodes] / counts.mean_length
                found[nodes] += repeated * self._idf(counts, len(nodes)) * saturation.of(often, lengths)
                shares[nodes] = True
        return found, shares

    def _idf(self, counts: Counts, holding: int) -> float:
        found = IDF[self.variant](len(counts.keys), holding)
        return okapi_floor(counts, self.epsilon) if found < 0 and self.variant == "okapi" else found


def refuse_odd(k1: float, b: float) -> None:
    """Refuse parameters for which the formulas make no sense."""
    if not (0 < k1 < float("inf") and 0 <= b <= 1):
        raise WiringError(f"k1 is {k1} and b is {b}. Write k1 above 0, and b from 0 to 1.")
