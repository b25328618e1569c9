"""The base of searches by the vectors of an embedder, and whether a group was embedded by it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from numbers import Real
from shlex import quote
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from spolia.core.run_context import access, may_be_late, note
from spolia.deferred import numpy as np
from spolia.errors import FilterError, ManifestMismatch, ModelError, QueryError
from spolia.models.protocols import Embedder, SparseEmbedder, embedded
from spolia.retrieval.group_search import GroupSearch, searched
from spolia.stores import groups
from spolia.stores import vectors as vectors_package
from spolia.stores.corpus import NodeGroup
from spolia.stores.definition import MAIN
from spolia.stores.manifest import refuse_other_embedder
from spolia.stores.snapshot.hit_order import best_hits
from spolia.types import Failure, Filter, Hit, LateHits, Query, Ranking

if TYPE_CHECKING:
    from spolia.models.vectors import SparseRows
    from spolia.stores.access.allowed_nodes import Allowed
    from spolia.stores.snapshot.snapshot import Snapshot
    from spolia.types.arrays import Vectors

_LARGEST = 3.4028234e38  # of float32
SPECIALS = 8  # tokens around a text, at most: its beginning and end, and a prefix for queries


def read(query: Query, embedder: Embedder, row: int | None = None) -> str | None:
    """The text to embed, None where the query brings its vector; QueryError where one is of no use."""
    if query.vector is not None:
        _refuse_odd(query.vector, embedder)
        return None
    text = searched(query, row=row)
    most = len(text.encode("utf-8", "replace")) + SPECIALS  # no tokenizer makes more tokens than there are bytes
    if most > embedder.window and (tokens := embedder.tokens([text])[0]) > embedder.window:
        note(f"The question has {tokens} tokens; {embedder.name} reads the first {embedder.window}.", row=row)
    return text


def _refuse_odd(vector: Sequence[float], embedder: Embedder) -> None:
    advice = "Write a vector from that embedder, or none."
    if len(vector) != embedder.dimension:
        raise QueryError(
            f"The query's vector has {len(vector)} numbers; {embedder.name} gives {embedder.dimension}. {advice}"
        )
    for place, number in enumerate(vector):
        if not isinstance(number, Real) or not abs(float(number)) <= _LARGEST:
            raise QueryError(
                f"The query's vector holds {number!r:.80} in place {place}; {embedder.name} gives finite numbers of 32 "
                f"bits. {advice}"
            )


def vectors_of(asked: Sequence[Query], texts: Sequence[str | None], embedder: Embedder) -> Vectors:
    """A vector float32[d] for each query: its own, or that of its text (from `read`), all of them embedded together."""
    vectors = np.zeros((len(asked), embedder.dimension), dtype=np.float32)
    for row, query in enumerate(asked):
        if query.vector is not None:
            vectors[row] = query.vector
    rows = [row for row, text in enumerate(texts) if text is not None]
    if rows:
        vectors[rows] = embedded(embedder, [text for text in texts if text is not None], "query")
    return vectors


def sparse_vectors_of(texts: Sequence[str | None], embedder: SparseEmbedder) -> SparseRows:
    """The sparse vectors of queries, all of them embedded together."""
    found = embedder.embed_sparse([text or "" for text in texts], kind="query")
    if len(found) != len(texts):
        raise ModelError(
            f"{embedder.name} gave {len(found)} sparse vectors for {len(texts)} questions. Correct the embedder."
        )
    return found


def refuse_other(group: NodeGroup, snapshot: Snapshot, embedder: Embedder | SparseEmbedder) -> None:
    """Raise ManifestMismatch for an embedder that the group was not embedded by, naming the ones that it was."""
    manifest = snapshot.manifest(group.name)
    how = manifest.embedded(embedder.name)
    if how is not None:
        refuse_other_embedder(how, group.name, embedder)
    else:
        names = ", ".join(repr(embedding.embedder) for embedding in manifest.embeddings)
        way = (
            "index again with this one"
            if group.name == MAIN
            else (
                f"give it vectors by this one: corpus.group({group.name!r}, Definition(..., "
                "embeddings=(Embedding(embedder),)))"
            )
        )
        store = snapshot.opened.store
        if names:
            way = f"with that embedder, or {way}"
        elif group.name == MAIN:
            way = (
                f"or make vectors: spolia sync FOLDER --store {quote(str(store))} --vectors; in Python "
                "sync(FOLDER, corpus, embedder=...)"
            )
        else:
            way = f"or {way}"
        raise ManifestMismatch(
            f"Group {group.name!r} of {store} was built with "
            f"{f'the embedder {names}' if names else 'no embedder'}, and is searched with "
            f"{embedder.name!r}. Search with BM25, {way}."
        )


def best(
    snapshot: Snapshot, group: NodeGroup, query: Query, embedder: Embedder | None, allowed: Allowed, top_k: int
) -> list[tuple[int, float]]:
    """Keys and scores of the best allowed nodes, ties by node id; by BM25 without an embedder."""
    if embedder is None:
        return snapshot.search(group.name, searched(query), top_k, access(), among=allowed)
    scores = by_meaning(snapshot, group, query, embedder, allowed)
    return best_hits(scores.items(), top_k, snapshot.ids)


def by_meaning(
    snapshot: Snapshot, group: NodeGroup, query: Query, embedder: Embedder, allowed: Allowed
) -> dict[int, float]:
    """The score of each allowed node by its key, in the metric of the group; raises as `best` does."""
    refuse_other(group, snapshot, embedder)
    how = snapshot.manifest(group.name).embedded(embedder.name)
    assert how is not None
    vectors = vectors_of([query], [read(query, embedder)], embedder)
    (asked,) = vectors_package.search.questions(how.metric, vectors, embedder.dimension)
    keys = allowed.keys[allowed.positions()].tolist()
    if not keys:
        return {}
    scores = vectors_package.search.exact(how.metric, asked, snapshot.vectors(group.name, embedder.name, allowed))
    return dict(zip(keys, scores.tolist(), strict=True))


V = TypeVar("V")
Found = list[list[tuple[int, float]]]


class VectorSearch(GroupSearch, Generic[V]):
    """Base of what embeds queries and searches a node group by their vectors.

    The queries of a batch are embedded together, and those with the same filter are searched together. What is wrong
    with a query is found before that, so that only its own row fails. Subclasses write `read`, `vectors`, `nearest`.

    Args:
        embedder: one that the group was built with.
    """

    embedder: Any

    cached: ClassVar[bool] = True

    @abstractmethod
    def read(self, query: Query, row: int | None, /) -> str | None:
        """The text to embed, None where the query brings its vector; `row` is its place in a batch, None if alone."""

    @abstractmethod
    def vectors(self, queries: Sequence[Query], texts: Sequence[str | None], /) -> V:
        """The vectors of queries, a row for each; `texts` are what `read` gave for them."""

    @abstractmethod
    def nearest(
        self, snapshot: Snapshot, vectors: V, rows: list[int], who: frozenset[str], wanted: Filter | None, /
    ) -> Found:
        """Keys and scores of what is nearest to some rows of the vectors."""

    def late(self) -> tuple[VectorSearch[V], ...]:
        return (self,) if type(self).hits is VectorSearch.hits else ()

    def hits(
        self, query: Query, snapshot: Snapshot, who: frozenset[str], wanted: Filter | None, /
    ) -> tuple[Hit, ...] | LateHits:
        (pairs,) = self._found([query], [self.read(query, None)], snapshot, who)
        return snapshot.late_hits(pairs, who) if may_be_late(self) else snapshot.hits(pairs, who)

    def snapshot(self) -> Snapshot:
        """The generation that is searched. A built-in group gets vectors by the embedder at their first use."""
        return groups.materialise.with_vectors(self.group, self.embedder).snapshot()

    def apply_batch(self, values: Sequence[Query], /) -> list[Ranking | Failure]:
        snapshot, who = self.snapshot(), access()
        results: dict[int, Ranking | Failure] = {}
        texts: dict[int, str | None] = {}
        for row, query in enumerate(values):
            try:
                snapshot.allowed(self.group.name, who, self.wanted(query))
                texts[row] = self.read(query, row)
            except (QueryError, FilterError) as error:
                results[row] = Failure.of(error, self.short)
        asked = [values[row] for row in texts]
        for row, pairs in zip(texts, self._found(asked, list(texts.values()), snapshot, who), strict=True):
            results[row] = Ranking(values[row], snapshot.hits(pairs, who), self.source)
        return [results[row] for row in range(len(values))]

    def _found(
        self, asked: Sequence[Query], texts: Sequence[str | None], snapshot: Snapshot, who: frozenset[str]
    ) -> Found:
        """For each query, keys and scores of what is nearest."""
        if not asked:
            return []
        refuse_other(self.group, snapshot, self.embedder)
        vectors = self.vectors(asked, texts)
        found: dict[int, list[tuple[int, float]]] = {}
        for rows in self._by_filter(asked):
            wanted = self.wanted(asked[rows[0]])
            for row, pairs in zip(rows, self.nearest(snapshot, vectors, rows, who, wanted), strict=True):
                found[row] = pairs
        return [found[row] for row in range(len(asked))]

    def _by_filter(self, asked: Sequence[Query]) -> list[list[int]]:
        """Which rows are searched together: those with the same filter."""
        rows: dict[bytes | None, list[int]] = {}
        for row, query in enumerate(asked):
            wanted = self.wanted(query)
            rows.setdefault(None if wanted is None else wanted.digest, []).append(row)
        return list(rows.values())
