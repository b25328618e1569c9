"""Base of searches by the vectors of an embedder, and the check that the group was embedded by it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from numbers import Real
from shlex import quote
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from spolia.core.run_context import access, may_be_late, note
from spolia.deferred import numpy as np
from spolia.errors import FilterError, ManifestMismatch, ModelError, QueryError
from spolia.models.protocols import Embedder, SparseEmbedder, embed_checked
from spolia.retrieval.group_search import GroupSearch, search_text
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


def text_to_embed(query: Query, embedder: Embedder, row: int | None = None) -> str | None:
    """Return the text to embed, None where the query brings its vector; raise QueryError where either is of no use."""
    if query.vector is not None:
        _refuse_odd(query.vector, embedder)
        return None
    text = search_text(query, row=row)
    token_bound = len(text.encode("utf-8", "replace")) + SPECIALS  # no tokenizer makes more tokens than there are bytes
    # Tokens are counted only where bytes cannot rule out that the text is too long.
    if token_bound > embedder.window and (tokens := embedder.tokens([text])[0]) > embedder.window:
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


def vectors_of(queries: Sequence[Query], texts: Sequence[str | None], embedder: Embedder) -> Vectors:
    """Return a vector float32[d] for each query: its own, or its text's; all texts are embedded in one call."""
    vectors = np.zeros((len(queries), embedder.dimension), dtype=np.float32)
    for row, query in enumerate(queries):
        if query.vector is not None:
            vectors[row] = query.vector
    rows = [row for row, text in enumerate(texts) if text is not None]
    if rows:
        vectors[rows] = embed_checked(embedder, [text for text in texts if text is not None], "query")
    return vectors


def sparse_vectors_of(texts: Sequence[str | None], embedder: SparseEmbedder) -> SparseRows:
    """Embed the texts of queries as sparse vectors, in one call."""
    rows = embedder.embed_sparse([text or "" for text in texts], kind="query")
    if len(rows) != len(texts):
        raise ModelError(
            f"{embedder.name} gave {len(rows)} sparse vectors for {len(texts)} questions. Correct the embedder."
        )
    return rows


def refuse_other(group: NodeGroup, snapshot: Snapshot, embedder: Embedder | SparseEmbedder) -> None:
    """Raise ManifestMismatch for an embedder that the group was not embedded by, naming the ones that it was."""
    manifest = snapshot.manifest(group.name)
    embedding = manifest.find_embedding(embedder.name)
    if embedding is not None:
        refuse_other_embedder(embedding, group.name, embedder)
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
        store = snapshot.open_store.store
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
    """Return keys and scores of the best allowed nodes, ties by node id; by BM25 without an embedder."""
    if embedder is None:
        return snapshot.search(group.name, search_text(query), top_k, access(), candidates=allowed)
    scores = vector_scores(snapshot, group, query, embedder, allowed)
    return best_hits(scores.items(), top_k, snapshot.ids)


def vector_scores(
    snapshot: Snapshot, group: NodeGroup, query: Query, embedder: Embedder, allowed: Allowed
) -> dict[int, float]:
    """Return the score of each allowed node by its key, in the metric of the group; raise as `best` does."""
    refuse_other(group, snapshot, embedder)
    embedding = snapshot.manifest(group.name).find_embedding(embedder.name)
    assert embedding is not None
    vectors = vectors_of([query], [text_to_embed(query, embedder)], embedder)
    (query_vector,) = vectors_package.search.check_queries(embedding.metric, vectors, embedder.dimension)
    keys = allowed.keys[allowed.positions()].tolist()
    if not keys:
        return {}
    scores = vectors_package.search.exact_scores(
        embedding.metric, query_vector, snapshot.vectors(group.name, embedder.name, allowed)
    )
    return dict(zip(keys, scores.tolist(), strict=True))


V = TypeVar("V")
Found = list[list[tuple[int, float]]]


class VectorSearch(GroupSearch, Generic[V]):
    """Base of searches of a node group by the vectors of its queries.

    The queries of a batch are embedded together, and those with the same filter are searched together. What is wrong
    with a query is found before that, so that only its own row fails. Subclasses write `read`, `vectors`, `nearest`.

    Args:
        embedder: one that the group was built with.
    """

    embedder: Any

    cached: ClassVar[bool] = True

    @abstractmethod
    def read(self, query: Query, row: int | None, /) -> str | None:
        """Return the text to embed, None where the query brings its vector; `row` is its place in a batch, None if
        alone."""

    @abstractmethod
    def vectors(self, queries: Sequence[Query], texts: Sequence[str | None], /) -> V:
        """Return the vectors of queries, a row for each; `texts` are what `read` gave for them."""

    @abstractmethod
    def nearest(
        self, snapshot: Snapshot, vectors: V, rows: list[int], principals: frozenset[str], filter: Filter | None, /
    ) -> Found:
        """Return keys and scores of the nodes nearest to some rows of the vectors."""

    def late_searches(self) -> tuple[VectorSearch[V], ...]:
        # A subclass with its own `hits` may do anything, so only the plain search is deferred.
        return (self,) if type(self).hits is VectorSearch.hits else ()

    def hits(
        self, query: Query, snapshot: Snapshot, principals: frozenset[str], filter: Filter | None, /
    ) -> tuple[Hit, ...] | LateHits:
        (pairs,) = self._search_queries([query], [self.read(query, None)], snapshot, principals)
        return snapshot.late_hits(pairs, principals) if may_be_late(self) else snapshot.hits(pairs, principals)

    def snapshot(self) -> Snapshot:
        """Return the generation to search. A built-in group gets vectors by the embedder at their first use."""
        return groups.materialise.with_embedding(self.group, self.embedder).snapshot()

    def apply_batch(self, values: Sequence[Query], /) -> list[Ranking | Failure]:
        snapshot, principals = self.snapshot(), access()
        results: dict[int, Ranking | Failure] = {}
        texts: dict[int, str | None] = {}
        for row, query in enumerate(values):
            try:
                # raises for an unknown field before anything is embedded
                snapshot.allowed(self.group.name, principals, self.effective_filter(query))
                texts[row] = self.read(query, row)
            # Only this query's row fails; the others are embedded together.
            except (QueryError, FilterError) as error:
                results[row] = Failure.from_error(error, self.short)
        valid_queries = [values[row] for row in texts]
        for row, pairs in zip(
            texts, self._search_queries(valid_queries, list(texts.values()), snapshot, principals), strict=True
        ):
            results[row] = Ranking(values[row], snapshot.hits(pairs, principals), self.source)
        return [results[row] for row in range(len(values))]

    def _search_queries(
        self, queries: Sequence[Query], texts: Sequence[str | None], snapshot: Snapshot, principals: frozenset[str]
    ) -> Found:
        """Return for each query the keys and scores of the nearest nodes."""
        if not queries:
            return []
        refuse_other(self.group, snapshot, self.embedder)
        vectors = self.vectors(queries, texts)
        pairs_by_row: dict[int, list[tuple[int, float]]] = {}
        for rows in self._rows_by_filter(queries):
            filter = self.effective_filter(queries[rows[0]])
            for row, pairs in zip(rows, self.nearest(snapshot, vectors, rows, principals, filter), strict=True):
                pairs_by_row[row] = pairs
        return [pairs_by_row[row] for row in range(len(queries))]

    def _rows_by_filter(self, queries: Sequence[Query]) -> list[list[int]]:
        """Group the rows that share a filter, which are searched together."""
        rows: dict[bytes | None, list[int]] = {}
        for row, query in enumerate(queries):
            filter = self.effective_filter(query)
            rows.setdefault(None if filter is None else filter.digest, []).append(row)
        return list(rows.values())
