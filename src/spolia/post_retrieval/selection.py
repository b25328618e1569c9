"""Selection of hits by a threshold on their own scores or others; at least one hit stays."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from spolia.core.operator import Operator
from spolia.core.sweepable import Rearrangement, VariantRanking
from spolia.core.type_compatibility import refuse_counts, refuse_numbers
from spolia.errors import WiringError
from spolia.models.protocols import Embedder, embed_checked
from spolia.stores.lexical.analysis import contains_phrase, phrase_words
from spolia.types import Node, Ranking

ALMOST = 1e-9
"""What a product of a count and a share may be off: 0.29 of 100 are 29."""


def select_at_least(scores: Sequence[float], bound: float) -> list[int]:
    """Return the positions of the scores that reach a bound; without any, that of the best score.

    >>> [select_at_least((0.2, math.nan, 0.5), bound) for bound in (0.2, 0.9)]
    [[0, 2], [2]]
    """
    return [index for index, score in enumerate(scores) if score >= bound] or select_best_share(scores, 0.0)


def select_best_share(scores: Sequence[float], share: float) -> list[int]:
    """Return the positions of the best max(1, ⌊n · share⌋) of n scores, in order; ties: the first. NaN is the worst.

    >>> select_best_share((1.0, 5.0, math.nan, 2.0, 2.0), 0.5)
    [1, 3]
    """
    count = max(1, math.floor(len(scores) * share + ALMOST))
    numbers = [-math.inf if score != score else score for score in scores]  # NaN after those, by the second key
    places = range(len(scores))
    if numbers.count(-math.inf):  # Only then can NaN be among them; the other order needs no call for each score.
        order = sorted(places, key=lambda index: (scores[index] != scores[index], -numbers[index]))
    else:
        order = sorted(places, key=numbers.__getitem__, reverse=True)  # `reverse` keeps equal scores in their order
    return sorted(order[:count])


def query_cosines(ranking: VariantRanking, embedder: Embedder) -> list[float]:
    """Return cos(query, hit) of each hit, by its indexed text; raise ModelError if the embedder gives no vectors."""
    if not (nodes := ranking.nodes):
        return []
    (query,) = embed_checked(embedder, [ranking.query.text], "query")
    vectors = embed_checked(embedder, [node.indexed_text for node in nodes], "passage")
    return [float(vector @ query) for vector in vectors]


def refuse_nan(op: Operator[Any, Any], bound: float | None) -> None:
    """Refuse a bound that nothing can reach or miss."""
    if bound is not None and math.isnan(bound):
        raise WiringError(f"{op.short}: no score is at least NaN. Write a number.")


@dataclass(frozen=True)
class Threshold(Rearrangement):
    """The hits whose score is at least as high as a bound, s ≥ at_least; the best one where none is.

    `Cut(at_least=...)` is the same, but may leave nothing. A distance d has the score -d, so that nothing has to be
    turned around.

    Args:
        at_least: the least score that is kept.

    Source: `threshold_cutoff` in Kim et al., "AutoRAG", 2024 (arXiv 2410.20878).

    >>> from spolia.types import Hit, Node, Query
    >>> found = Ranking(Query("?"), tuple(Hit(Node(str(s), ""), s) for s in (0.9, 0.5, 0.4)))
    >>> [hit.score for hit in Threshold(0.5)(found)], [hit.score for hit in Threshold(2.0)(found)]
    ([0.9, 0.5], [0.9])
    """

    at_least: float

    def __post_init__(self) -> None:
        refuse_nan(self, self.at_least)

    def choose_hits(self, scores: Sequence[float], /) -> tuple[Sequence[int], None]:
        return select_at_least(scores, self.at_least), None


@dataclass(frozen=True)
class Percentile(Rearrangement):
    """The best max(1, ⌊n · share⌋) of n hits, by score; of equal ones the first.

    n is counted for each ranking.

    Args:
        share: of the hits that stay, above 0, up to 1.

    Source: `percentile_cutoff` in Kim et al., "AutoRAG", 2024 (arXiv 2410.20878).

    >>> from spolia.types import Hit, Node, Query
    >>> found = Ranking(Query("?"), tuple(Hit(Node(str(s), ""), s) for s in (0.9, 0.5, 0.4, 0.3, 0.2)))
    >>> [hit.score for hit in Percentile(0.5)(found)]
    [0.9, 0.5]
    """

    share: float = 0.6

    def __post_init__(self) -> None:
        refuse_numbers(self, "a number above 0, up to 1", "share")

    def choose_hits(self, scores: Sequence[float], /) -> tuple[Sequence[int], None]:
        return select_best_share(scores, self.share), None


@dataclass(frozen=True)
class _SimilaritySelection(Rearrangement):
    """Base of operators that choose hits by the cosines of their vectors."""

    embedder: Embedder

    cached: ClassVar[bool] = True

    def variant_key(self) -> object:
        return self.embedder

    def compute_features(self, ranking: VariantRanking, /) -> list[float]:
        return query_cosines(ranking, self.embedder)


@dataclass(frozen=True)
class SimilarityThreshold(_SimilaritySelection):
    """The hits whose vectors are near enough to the query's, cos(q, d) ≥ at_least; the nearest one where none is.

    Order and scores stay as they were, whatever retriever gave them.

    Args:
        embedder: gives the vectors; each hit costs one text.
        at_least: the least cosine, from -1 to 1.

    Raises:
        ModelError: the embedder does not give vectors.

    Source: `similarity_threshold_cutoff` in Kim et al., "AutoRAG", 2024 (arXiv 2410.20878).

    >>> from spolia.testing import HashingEmbedder
    >>> from spolia.types import Hit, Node, Query
    >>> found = Ranking(Query("red stones"), (Hit(Node("a", "blue sea"), 2.0), Hit(Node("b", "old red stones"), 1.0)))
    >>> [hit.node.id for hit in SimilarityThreshold(HashingEmbedder(), 0.5)(found)]
    ['b']
    """

    at_least: float = 0.5

    version: ClassVar[int] = 2

    def __post_init__(self) -> None:
        refuse_nan(self, self.at_least)

    def choose_hits(self, similarities: Sequence[float], /) -> tuple[Sequence[int], None]:
        return select_at_least(similarities, self.at_least), None


@dataclass(frozen=True)
class SimilarityPercentile(_SimilaritySelection):
    """The max(1, ⌊n · share⌋) of n hits whose vectors are nearest to the query's, by cos(q, d).

    Order and scores stay as they were, whatever retriever gave them.

    Args:
        embedder: gives the vectors; each hit costs one text.
        share: of the hits that stay, above 0, up to 1.

    Raises:
        ModelError: the embedder does not give vectors.

    Source: `similarity_percentile_cutoff` in Kim et al., "AutoRAG", 2024 (arXiv 2410.20878).

    >>> from spolia.testing import HashingEmbedder
    >>> from spolia.types import Hit, Node, Query
    >>> found = Ranking(Query("red stones"), (Hit(Node("a", "blue sea"), 2.0), Hit(Node("b", "old red stones"), 1.0)))
    >>> [hit.node.id for hit in SimilarityPercentile(HashingEmbedder(), 0.5)(found)]
    ['b']
    """

    share: float = 0.6

    version: ClassVar[int] = 2

    def __post_init__(self) -> None:
        refuse_numbers(self, "a number above 0, up to 1", "share")

    def choose_hits(self, similarities: Sequence[float], /) -> tuple[Sequence[int], None]:
        return select_best_share(similarities, self.share), None


@dataclass(frozen=True)
class Cut(Rearrangement):
    """The best hits, and of them those whose score is at least as high as a bound: s ≥ at_least.

    The one place where scores are cut off, so that the bound means the same for every retriever and every embedding:
    `Branch(Dense(notes, small) >> Cut(at_least=0.3), Dense(notes, large) >> Cut(at_least=0.5))`. Nothing may be left.

    Args:
        top_k: hits to keep, at most; None for all.
        at_least: the least score that is kept; None for all. A distance d has the score -d.

    >>> from spolia.types import Hit, Node, Query
    >>> scores = {"a": 0.9, "b": 0.5, "c": 0.4}
    >>> found = Ranking(Query("why?"), tuple(Hit(Node(id, id), score) for id, score in scores.items()))
    >>> [hit.node.id for hit in Cut(at_least=0.5)(found)], [hit.node.id for hit in Cut(top_k=1)(found)]
    (['a', 'b'], ['a'])
    """

    top_k: int | None = None
    at_least: float | None = None

    def __post_init__(self) -> None:
        refuse_counts(self, "top_k", optional=True)
        refuse_nan(self, self.at_least)

    def choose_hits(self, scores: Sequence[float], /) -> tuple[Sequence[int], None]:
        return range(len(scores))[: self.top_k] if self.at_least is None else [
            index for index, score in enumerate(scores[: self.top_k]) if score >= self.at_least
        ], None


@dataclass(frozen=True)
class KeywordFilter(Operator[Ranking, Ranking]):
    """The hits whose text, or title and headings above it, hold every required keyword and no excluded one.

    A keyword is a word, or several in a row. Whole words are compared, in any case and with accents or without, but not
    stemmed: `art` is neither in `artist` nor in `arts`. Order and scores stay; nothing may be left.

    Args:
        required: all of them have to be there.
        excluded: none of them may be.

    Raises:
        WiringError: for a keyword without a letter or digit, which no text can hold.

    Source: `KeywordFilter` of LazyLLM.

    >>> from spolia.types import Hit, Query
    >>> texts = ("apple pie", "banana split", "apple and banana")
    >>> found = Ranking(Query("dessert"), tuple(Hit(Node(text, text), 1.0) for text in texts))
    >>> [hit.node.text for hit in KeywordFilter(("apple", "banana"))(found)]
    ['apple and banana']
    >>> [hit.node.text for hit in KeywordFilter(excluded=("Apple",))(found)]
    ['banana split']
    """

    required: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for keyword in (*self.required, *self.excluded):
            if not phrase_words(keyword):
                raise WiringError(f"The keyword {keyword!r} has neither letters nor digits. Write a word, or several.")

    def apply(self, value: Ranking, /) -> Ranking:
        return value.but(hits=tuple(hit for hit in value.hits if self._keeps(hit.node)))

    def _keeps(self, node: Node) -> bool:
        text = node.shown_text
        return all(contains_phrase(text, word) for word in self.required) and not any(
            contains_phrase(text, w) for w in self.excluded
        )
