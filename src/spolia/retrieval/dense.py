"""Search by vectors: of texts, of single tokens, or of the weights that a model gives to terms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from spolia import retrieval
from spolia.models.protocols import Embedder, SparseEmbedder, TokenEmbedder, embed_checked, refuse_no_embedder
from spolia.retrieval.group_search import GroupSearch, search_text
from spolia.retrieval.vector_search import VectorSearch, sparse_vectors_of, text_to_embed, vectors_of
from spolia.stores import vectors as vectors_package
from spolia.stores.corpus import NodeGroup
from spolia.types import Filter, Hit, Query

if TYPE_CHECKING:
    from spolia.models.vectors import SparseRows
    from spolia.retrieval.vector_search import Found
    from spolia.stores.snapshot.snapshot import Snapshot
    from spolia.types.arrays import Vectors


@dataclass(frozen=True)
class Dense(VectorSearch["Vectors"]):
    """Vector search for the nodes nearest to the query, by the group's index for the embedder.

    The query is embedded, unless it brings its vector. Many queries are embedded together and searched with one matrix
    product. There is always a nearest node, so that `top_k` are found wherever the group has as many.

    Args:
        embedder: one that the group was built with.
        group, top_k, source, filter: as for every `GroupSearch`, which names the errors too.

    Raises:
        ManifestMismatch: when the group was built with another embedder, or none.
        WiringError: what stands for the embedder is none, and what it lacks.

    Source: Karpukhin et al., "Dense passage retrieval for open-domain question answering", EMNLP 2020.

    >>> from spolia import Corpus, MiniLM
    >>> Dense(Corpus("notes.spolia").group(), MiniLM(), top_k=5).short
    "Dense(top_k=5, source='dense')"
    """

    group: NodeGroup
    embedder: Embedder
    top_k: int = 10
    source: str = "dense"
    filter: Filter | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_no_embedder(self.embedder, "Dense", Embedder)

    def reads(self, value: Query, /) -> object:
        return (value.text if value.vector is None else value.vector), value.filter

    def is_nested(self) -> bool:
        return self.snapshot().is_exact(self.group.name, self.embedder.name)

    def read(self, query: Query, row: int | None, /) -> str | None:
        return text_to_embed(query, self.embedder, row)

    def vectors(self, queries: Sequence[Query], texts: Sequence[str | None], /) -> Vectors:
        return vectors_of(queries, texts, self.embedder)

    def nearest(
        self,
        snapshot: Snapshot,
        vectors: Vectors,
        rows: list[int],
        principals: frozenset[str],
        filter: Filter | None,
        /,
    ) -> Found:
        return snapshot.nearest_batch(
            self.group.name, self.embedder.name, vectors[rows], self.top_k, principals, filter
        )


@dataclass(frozen=True)
class LearnedSparse(VectorSearch["SparseRows"]):
    """Exact search for the nodes whose sparse vectors have the largest product with the query's.

    score(q, d) = Σ over terms t of w_q(t) · w_d(t), with the weights that a model gives to the terms of a vocabulary. A
    node that shares no term with the query is not found.

    Args:
        embedder: one that the group was built with.
        group, top_k, source, filter: as for every `GroupSearch`, which names the errors too.

    Raises:
        ManifestMismatch: when the group was built with another embedder, or none.
        WiringError: what stands for the embedder is none, and what it lacks.

    Source: Formal et al., "SPLADE: Sparse lexical and expansion model for first stage ranking", 2021.

    >>> from spolia.models.local.embedders import LocalSparseEmbedder
    >>> from spolia.stores.corpus import Corpus
    >>> LearnedSparse(Corpus("notes.spolia").group(), LocalSparseEmbedder("splade"), top_k=5).short
    "LearnedSparse(top_k=5, source='sparse')"
    """

    group: NodeGroup
    embedder: SparseEmbedder
    top_k: int = 10
    source: str = "sparse"
    filter: Filter | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_no_embedder(self.embedder, "LearnedSparse", SparseEmbedder)

    def read(self, query: Query, row: int | None, /) -> str:
        return search_text(query, row=row)

    def vectors(self, queries: Sequence[Query], texts: Sequence[str | None], /) -> SparseRows:
        return sparse_vectors_of(texts, self.embedder)

    def nearest(
        self,
        snapshot: Snapshot,
        vectors: SparseRows,
        rows: list[int],
        principals: frozenset[str],
        filter: Filter | None,
        /,
    ) -> Found:
        query_rows = type(vectors).concatenate(vectors.select(row) for row in rows)
        return snapshot.nearest_sparse(self.group.name, self.embedder.name, query_rows, self.top_k, principals, filter)


@dataclass(frozen=True)
class LateInteraction(GroupSearch):
    """Search for nodes that have a token near to each token of the query.

    score(q, d) = Σ_i max_j q_i · d_j over the vectors of length 1 of the query's and the node's tokens; exact, over all
    nodes that may be found. For a large group write `BM25(group, top_k=100) >> ColBERT(embedder)`.

    The token vectors of the group's nodes are made at the first search, and kept in the store's folder by what the text
    is, so that no text is embedded twice: some 50 kB for a passage of 100 tokens with 128 numbers each. A folder that
    is lost costs nothing but the embedding.

    Args:
        embedder: gives a vector for each token.
        group, top_k, source, filter: as for every `GroupSearch`, which names the errors too.

    Raises:
        ModelError: the embedder does not give token vectors.
        WiringError: `embedder` is not one.

    Source: Khattab, Zaharia, "ColBERT: efficient and effective passage search via contextualized late interaction over
    BERT", SIGIR 2020.

    >>> from spolia.stores.corpus import Corpus
    >>> from spolia.testing.hash_embedder import HashingTokens
    >>> LateInteraction(Corpus("notes.spolia").group(), HashingTokens(), top_k=5).short
    "LateInteraction(top_k=5, source='tokens')"
    """

    group: NodeGroup
    embedder: TokenEmbedder
    top_k: int = 10
    source: str = "tokens"
    filter: Filter | None = None

    version: ClassVar[int] = 2  # 2: its files are private
    cached: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_no_embedder(self.embedder, "LateInteraction", TokenEmbedder)

    def hits(
        self, query: Query, snapshot: Snapshot, principals: frozenset[str], filter: Filter | None, /
    ) -> tuple[Hit, ...]:
        text, allowed = search_text(query), snapshot.allowed(self.group.name, principals, filter)
        index = retrieval.token_index.token_index(snapshot, self.group.name, self.embedder)
        query_vectors = retrieval.token_index.embed_tokens(self.embedder, [text], is_query=True).row(0)
        if not len(query_vectors):
            return ()
        positions = allowed.positions()
        scores = index.scores(query_vectors, positions)
        return snapshot.hits(
            vectors_package.search.rank_scores(allowed.keys[positions], scores, self.top_k, snapshot.ids), principals
        )


@dataclass(frozen=True)
class DenseInMemory(GroupSearch):
    """Vector search by cosine, with an embedder that the group was not built with.

    The first query of each generation embeds all nodes, and their vectors stay in memory. Use it to try an embedder on
    a small group; `Dense` searches stored vectors.

    Args:
        embedder: any one.
        group, top_k, source, filter: as for every `GroupSearch`, which names the errors too.

    Raises:
        WiringError: what stands for the embedder is none, and what it lacks.

    Source: as of `Dense`.

    >>> from spolia import Corpus, MiniLM
    >>> DenseInMemory(Corpus("notes.spolia").group(), MiniLM(), top_k=5).short
    "DenseInMemory(top_k=5, source='dense')"
    """

    group: NodeGroup
    embedder: Embedder
    top_k: int = 10
    source: str = "dense"
    filter: Filter | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_no_embedder(self.embedder, "DenseInMemory", Embedder)

    def hits(
        self, query: Query, snapshot: Snapshot, principals: frozenset[str], filter: Filter | None, /
    ) -> tuple[Hit, ...]:
        def embed() -> Vectors:
            keys = snapshot.open.records(self.group.name).keys
            return embed_checked(self.embedder, list(retrieval.term_counts.texts_of(snapshot, keys)), "passage")

        vectors = retrieval.term_counts.derived(snapshot.derived, (self.group.name, self.embedder.fingerprint()), embed)
        (query_vector,) = embed_checked(self.embedder, [search_text(query)], "query")
        allowed = snapshot.allowed(self.group.name, principals, filter)
        positions = allowed.positions()
        scores = (vectors[positions] @ query_vector).astype("float64")
        return snapshot.hits(
            vectors_package.search.rank_scores(allowed.keys[positions], scores, self.top_k, snapshot.ids), principals
        )
