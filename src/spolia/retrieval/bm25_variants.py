"""BM25 by a formula of choice, and BM25 over fields: how rare a term is, how often it occurs in a node."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, TypeAlias, get_args

from spolia import retrieval
from spolia.deferred import numpy as np
from spolia.errors import WiringError
from spolia.retrieval.group_search import TermSearch
from spolia.stores.corpus import NodeGroup
from spolia.types import Filter

if TYPE_CHECKING:
    from spolia.retrieval.term_counts import Counts
    from spolia.stores.snapshot.snapshot import Snapshot
    from spolia.types.arrays import Mask, Numbers

Variant: TypeAlias = Literal["lucene", "robertson", "okapi", "atire", "bm25l", "bm25+"]
Idf: TypeAlias = Callable[[float, float], float]  # from the number of nodes, and of those that hold the term

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
    """Growth of a term's score with its count, ever slower; `b` says how much longer nodes count less."""

    variant: Variant
    k1: float
    b: float
    delta: float  # δ of BM25L and BM25+

    def factors(self, often: Numbers, lengths: Numbers) -> Numbers:
        """Return float64[m] factors beside the idf, for counts of the term and lengths in parts of the mean."""
        short = 1 - self.b + self.b * lengths
        if self.variant == "bm25l":
            even = often / short + self.delta
            return (self.k1 + 1) * even / (self.k1 + even)
        plain = often / (often + self.k1 * short)
        if self.variant in ("lucene", "robertson"):
            return plain
        return (self.k1 + 1) * plain + (self.delta if self.variant == "bm25+" else 0.0)


def okapi_floor(counts: Counts, epsilon: float) -> float:
    """Return ε · mean idf over all terms, which replaces an idf below 0."""
    holding, count = np.bincount(counts.entries[0]).astype(np.float64), float(counts.count)
    holding = holding[holding > 0]  # other terms are in hidden nodes only
    if not len(holding):
        return 0.0
    return epsilon * float(np.log((count - holding + 0.5) / (holding + 0.5)).mean())


@dataclass(frozen=True)
class BM25Variant(TermSearch):
    """Lexical search by a BM25 formula of choice, with exact lengths.

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
        variant: of the table.
        k1: how soon more of a term adds nothing; above 0.
        b: how much longer nodes count less, from 0 to 1.
        delta: δ, at least 0; ½ is usual for `bm25l`, 1 for `bm25+`.
        epsilon: ε of `okapi`, at least 0.
        group, top_k, source, filter: as for every `GroupSearch`, which names the errors too.

    Raises:
        WiringError: the variant is unknown, or a number that makes no sense.

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

    version: ClassVar[int] = 2  # 2: counts only what the asker may read

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.variant not in get_args(Variant):
            raise WiringError(f"There is no variant {self.variant!r}. Write one of: {', '.join(get_args(Variant))}.")
        refuse_odd(self.k1, self.b)
        if not (0 <= self.delta < float("inf") and 0 <= self.epsilon < float("inf")):
            raise WiringError(f"delta is {self.delta}, epsilon {self.epsilon}. Write numbers of at least 0.")

    def scores(
        self, snapshot: Snapshot, terms: Mapping[str, int], principals: frozenset[str], /
    ) -> tuple[Numbers, Mask]:
        counts = retrieval.term_counts.counts_of(snapshot, self.group.name, principals)
        saturation = Saturation(self.variant, self.k1, self.b, self.delta)
        scores, shares = np.zeros(len(counts.keys)), np.zeros(len(counts.keys), dtype=np.bool_)
        for term, repeated in terms.items():
            nodes, often = counts.find_term(term)
            if len(nodes):
                lengths = counts.lengths[nodes] / counts.mean_length
                scores[nodes] += repeated * self._idf(counts, len(nodes)) * saturation.factors(often, lengths)
                shares[nodes] = True
        return scores, shares

    def _idf(self, counts: Counts, holding: int) -> float:
        idf = IDF[self.variant](counts.count, holding)
        return okapi_floor(counts, self.epsilon) if idf < 0 and self.variant == "okapi" else idf


def refuse_odd(k1: float, b: float) -> None:
    """Refuse parameters for which the formulas make no sense."""
    if not (0 < k1 < float("inf") and 0 <= b <= 1):
        raise WiringError(f"k1 is {k1} and b is {b}. Write k1 above 0, and b from 0 to 1.")


CONTEXT, TEXT = "context", "text"


@dataclass(frozen=True)
class FieldedBM25(TermSearch):
    """Lexical search by BM25 that weighs title and headings apart from the text.

    Together (BM25F), the counts of the fields f are added up before they saturate:
    score(q, d) = Σ_t qtf · idf · T / (k1 + T), T = Σ_f w_f · tf_f / (1 - b_f + b_f · |d|_f / mean |d|_f), with n the
    nodes that hold t in any field. As the best field (what Elasticsearch calls multi-match),
    score(q, d) = max_f w_f · BM25_f(q, d), each field with counts and lengths of its own. In both,
    idf = ln(1 + (N - n + ½) / (n + ½)).

    Args:
        weights: of the fields: `context`, the title and headings above a node's text, and `text`.
        combine: `together` or `best`.
        k1: how soon more of a term adds nothing; above 0.
        b: of each field, how much longer ones count less, from 0 to 1.
        group, top_k, source, filter: as for every `GroupSearch`, which names the errors too.

    Raises:
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

    version: ClassVar[int] = 2  # 2: counts only what the asker may read

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.combine not in ("together", "best"):
            raise WiringError(f"{self.combine!r} is not a way to combine fields. Write 'together' or 'best'.")
        if set(dict(self.weights)) != {CONTEXT, TEXT} or set(dict(self.b)) != {CONTEXT, TEXT}:
            raise WiringError(f"The fields are {CONTEXT!r} and {TEXT!r}. Write weights and b for both.")
        if not all(0 <= weight < float("inf") for _, weight in self.weights) or not any(w for _, w in self.weights):
            raise WiringError(f"The weights are {self.weights}. Write numbers of at least 0, not all of them 0.")
        for _, b in self.b:
            refuse_odd(self.k1, b)

    def scores(
        self, snapshot: Snapshot, terms: Mapping[str, int], principals: frozenset[str], /
    ) -> tuple[Numbers, Mask]:
        used = [name for name, weight in self.weights if weight]
        counts = {name: retrieval.term_counts.counts_of(snapshot, self.group.name, principals, name) for name in used}
        return (self._sum_fields if self.combine == "together" else self._take_best_field)(counts, terms)

    def _sum_fields(self, counts: Mapping[str, Counts], terms: Mapping[str, int]) -> tuple[Numbers, Mask]:
        any_field = next(iter(counts.values()))
        count = len(any_field.keys)
        scores, shares = np.zeros(count), np.zeros(count, dtype=np.bool_)
        for term, repeated in terms.items():
            total, holds = np.zeros(count), np.zeros(count, dtype=np.bool_)
            for name, field in counts.items():
                nodes, often = field.find_term(term)
                b = dict(self.b)[name]
                short = 1 - b + b * field.lengths[nodes] / field.mean_length
                total[nodes] += dict(self.weights)[name] * often / short
                holds[nodes] = True
            if holds.any():
                idf = IDF["lucene"](any_field.count, int(np.count_nonzero(holds)))
                scores += repeated * idf * total / (self.k1 + total)
                shares |= holds
        return scores, shares

    def _take_best_field(self, counts: Mapping[str, Counts], terms: Mapping[str, int]) -> tuple[Numbers, Mask]:
        count = len(next(iter(counts.values())).keys)
        best, shares = np.zeros(count), np.zeros(count, dtype=np.bool_)
        for name, field in counts.items():
            saturation, field_scores = Saturation("lucene", self.k1, dict(self.b)[name], 0.0), np.zeros(count)
            for term, repeated in terms.items():
                nodes, often = field.find_term(term)
                if len(nodes):
                    lengths = field.lengths[nodes] / field.mean_length
                    field_scores[nodes] += (
                        repeated * IDF["lucene"](field.count, len(nodes)) * saturation.factors(often, lengths)
                    )
                    shares[nodes] = True
            best = np.maximum(best, dict(self.weights)[name] * field_scores)
        return best, shares
