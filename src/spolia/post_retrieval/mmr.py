"""Maximal marginal relevance, by the similarity of hits to each other and to the query: of vectors, or of words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from spolia.core.operator import Operator
from spolia.core.run_context import access
from spolia.core.type_compatibility import refuse_counts, refuse_numbers
from spolia.deferred import numpy as np
from spolia.errors import WiringError
from spolia.models.protocols import Embedder, embed_checked, refuse_no_embedder
from spolia.ranking.scalings import min_max
from spolia.stores.corpus import NodeGroup, refuse_no_group
from spolia.stores.lexical.analysis import Analyzer
from spolia.stores.manifest import refuse_other_embedder
from spolia.types import Node, Query, Ranking

if TYPE_CHECKING:
    from spolia.types.arrays import Numbers, Vectors


PLACES = 6
"""Of decimals that count: rounding is not to decide between what is equal."""


class VectorSimilarity:
    """Cosines of a query, float32[d], and the vectors of hits, float32[hits, d].

    `relevance` is how alike each hit is to the query, `similarities_to` how alike to the hit at a place: float64[hits].
    """

    def __init__(self, query: Vectors, vectors: Vectors) -> None:
        self.query, self.vectors = _normalize(query[None])[0], _normalize(vectors)

    def relevance(self) -> Numbers:
        return self._cosines(self.query)

    def similarities_to(self, index: int) -> Numbers:
        return self._cosines(self.vectors[index])

    def _cosines(self, vector: Vectors) -> Numbers:
        return np.asarray(np.round((self.vectors @ vector).astype(np.float64), PLACES), dtype=np.float64)


class WordSimilarity:
    """Overlap |A ∩ B| / |A ∪ B| of the words of two texts; the relevance of a hit is its score, scaled to 0 … 1.

    Two texts without words are the same. Scores are of the hits, best first.
    """

    def __init__(self, ranking: Ranking) -> None:
        analyzer, numbers = Analyzer(), dict[str, int]()
        texts, self.scores = [node.indexed_text for node in ranking.nodes], [hit.score for hit in ranking.hits]
        self.words = [
            np.array([numbers.setdefault(term, len(numbers)) for term in sorted(set(analyzer.words(text)))], np.int64)
            for text in texts
        ]
        self.counts = np.array([len(words) for words in self.words], dtype=np.float64)
        # An index from words to hits: each hit is compared only with those that share a word.
        holders = np.repeat(np.arange(len(texts)), [len(words) for words in self.words])
        # the empty array is for a ranking without hits
        all_words = np.concatenate([np.zeros(0, np.int64), *self.words])
        order = np.argsort(all_words, kind="stable")
        self.holders, self.starts = holders[order], np.searchsorted(all_words[order], np.arange(len(numbers) + 1))

    def relevance(self) -> Numbers:
        return np.array(min_max(self.scores)[0])

    def similarities_to(self, index: int) -> Numbers:
        holding = [self.holders[self.starts[word] : self.starts[word + 1]] for word in self.words[index]]
        shared = np.bincount(np.concatenate([np.zeros(0, np.int64), *holding]), minlength=len(self.words))
        union_sizes = self.counts + self.counts[index] - shared
        return np.where(union_sizes > 0, shared / np.where(union_sizes > 0, union_sizes, 1.0), 1.0)


def compare_vectors(ranking: Ranking, embedder: Embedder, group: NodeGroup | None) -> VectorSimilarity:
    """Compare a ranking's hits by the vectors that a group stores; other hits are embedded."""
    nodes = ranking.nodes
    vectors, stored = np.zeros((len(nodes), embedder.dimension), np.float32), np.zeros(len(nodes), dtype=np.bool_)
    if group is not None:
        places, stored_vectors = _read_stored(nodes, embedder, group)
        vectors[places], stored[places] = stored_vectors, True
    lacking = np.flatnonzero(~stored)
    if len(lacking):
        vectors[lacking] = embed_checked(embedder, [nodes[index].indexed_text for index in lacking], "passage")
    return VectorSimilarity(_find_query_vector(ranking.query, embedder), vectors)


def _find_query_vector(query: Query, embedder: Embedder) -> Vectors:
    if query.vector is not None and len(query.vector) == embedder.dimension:
        return np.array(query.vector, dtype=np.float32)
    vector: Vectors = embed_checked(embedder, [query.question], "query")[0]
    return vector


def _read_stored(nodes: Sequence[Node], embedder: Embedder, group: NodeGroup) -> tuple[list[int], Vectors]:
    """Return the places of the nodes with stored vectors, and these as float32[places, d]."""
    snapshot = group.snapshot()
    embedding = snapshot.manifest(group.name).find_embedding(embedder.name)
    if embedding is None:
        return [], np.zeros((0, embedder.dimension), np.float32)  # all hits are embedded then
    # vectors are found by the name, and another model may bear it
    refuse_other_embedder(embedding, group.name, embedder)
    keys = snapshot.keys_of({node.id for node in nodes if node.group == group.name})
    allowed = snapshot.allowed(group.name, access()).restrict_to(keys.values())
    row = {key: index for index, key in enumerate(allowed.keys[allowed.positions()].tolist())}
    rows = [(index, row[keys[node.id]]) for index, node in enumerate(nodes) if keys.get(node.id) in row]
    vectors = snapshot.vectors(group.name, embedder.name, allowed)
    return [index for index, _ in rows], vectors[[place for _, place in rows]]


def _normalize(vectors: Vectors) -> Vectors:
    lengths = np.sqrt(np.einsum("ij,ij->i", vectors, vectors))[:, None]
    # a zero vector stays one, not NaN
    return np.asarray(vectors / np.where(lengths > 0, lengths, 1.0), dtype=np.float32)


@dataclass(frozen=True)
class MMR(Operator[Ranking, Ranking]):
    """Take hits in turn, each as relevant and as unlike the earlier ones as possible: maximal marginal relevance.

    Of the hits D that are left and those S that are taken, next is the d with the largest
    score = λ · sim(q, d) - (1 - λ) · max(0, max over s in S of sim(d, s)). It is the hit's new score, and never rises,
    since opposite is no more unlike than unlike.

    With an embedder sim is the cosine of vectors. Without one, two hits are alike by the share of their words that both
    have, and sim(q, d) is the hit's score, scaled so that the best has 1 and the worst 0.

    Args:
        embedder: gives the vectors; None for words.
        group: whose stored vectors are taken, so that only the question is embedded; None to embed the hits, too.
        relevance: λ, from 0 (only unlike) to 1 (only relevant).
        top_k: hits to return, at most. Give it more to choose from, four times as many or so.

    Raises:
        WiringError: λ is not from 0 to 1, or a group is named without an embedder.
        ManifestMismatch: the group was embedded by another embedder of that name.
        ModelError: the embedder does not give vectors.

    Source: Carbonell, Goldstein, "The use of MMR, diversity-based reranking for reordering documents and producing
    summaries", SIGIR 1998.

    >>> from spolia.types import Hit, Node, Query
    >>> texts = {"a": "red stones", "b": "red stones", "c": "blue sea"}
    >>> found = Ranking(Query("red"), tuple(Hit(Node(id, text), 1.0) for id, text in texts.items()))
    >>> [(hit.node.id, hit.score) for hit in MMR()(found)]
    [('a', 0.5), ('c', 0.5), ('b', 0.0)]
    """

    embedder: Embedder | None = None
    group: NodeGroup | None = None
    relevance: float = 0.5
    top_k: int = 10

    version: ClassVar[int] = 3  # 2: vectors are checked; 3: words are cut as the index cuts them
    cached: ClassVar[bool] = True

    def __post_init__(self) -> None:
        refuse_counts(self, "top_k")
        refuse_numbers(self, "a number from 0 to 1", "relevance")
        if self.embedder is not None:
            refuse_no_embedder(self.embedder, "MMR", Embedder)
        if self.group is not None:
            refuse_no_group(self.group, "MMR")
            if self.embedder is None:
                raise WiringError(f"{self.short}: a group has vectors of an embedder. Write embedder=, or no group.")

    def apply(self, value: Ranking, /) -> Ranking:
        if not value.hits:
            return value
        likeness = WordSimilarity(value) if self.embedder is None else compare_vectors(value, self.embedder, self.group)
        choices = choose_diverse(likeness, len(value.hits), self.top_k, self.relevance)
        return value.but(hits=tuple(value.hits[index].but(score=score) for index, score in choices))


def choose_diverse(
    likeness: VectorSimilarity | WordSimilarity, count: int, top_k: int, relevance: float
) -> list[tuple[int, float]]:
    """Return positions and scores of the chosen hits, in turn; of equal ones the first."""
    relevant = relevance * likeness.relevance()
    nearest = np.zeros(count)
    left = np.ones(count, dtype=np.bool_)
    choices: list[tuple[int, float]] = []
    for _ in range(min(top_k, count)):
        scores = np.where(left, relevant - (1 - relevance) * nearest, -np.inf)  # what is taken cannot be taken again
        best = int(np.argmax(scores))
        choices.append((best, float(scores[best])))
        left[best] = False
        nearest = np.maximum(nearest, likeness.similarities_to(best))
    return choices
