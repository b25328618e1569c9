"""Queries as vectors of an embedder, and whether a group was embedded by it."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Real
from typing import TYPE_CHECKING, TypeAlias

from spolia.errors import ManifestMismatch, ModelError, QueryError
from spolia.models.protocols import Embedder, SparseEmbedder
from spolia.retrieval.searched import searched
from spolia.stores.corpus import NodeGroup
from spolia.stores.defined import refuse_other_embedder
from spolia.stores.definition import MAIN
from spolia.surrounding import note
from spolia.types import Query

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from spolia.models.sparse import SparseRows
    from spolia.stores.snapshot import Snapshot

    Vectors: TypeAlias = npt.NDArray[np.float32]

_LARGEST = 3.4028234e38
"""Of float32."""
SPECIALS = 8
"""Tokens around a text, at most: its beginning and end, and a prefix for queries."""


def read(query: Query, embedder: Embedder, row: int | None = None) -> str | None:
    """The text to embed, None where the query brings its vector; that not all of it is read is recorded.

    Args:
        row: which value of a batch the query is.

    Raises:
        QueryError: for an empty query, or a vector of another length, with NaN, infinity or what is no number.
    """
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
    """A vector float32[d] for each query: its own, or that of its text, all of them embedded together.

    Args:
        texts: what `read` gave for each query.

    Raises:
        ModelError: the embedder gave another number of vectors, of another length, or with NaN or infinity.
    """
    import numpy as np

    vectors = np.zeros((len(asked), embedder.dimension), dtype=np.float32)
    for row, query in enumerate(asked):
        if query.vector is not None:
            vectors[row] = query.vector
    rows = [row for row, text in enumerate(texts) if text is not None]
    if rows:
        found = np.asarray(embedder.embed([text for text in texts if text is not None], kind="query"), dtype=np.float32)
        if found.shape != (len(rows), embedder.dimension):
            raise ModelError(
                f"{embedder.name} gave vectors of shape {found.shape} for {len(rows)} questions, where each has "
                f"{embedder.dimension} numbers. Correct the embedder."
            )
        if not np.isfinite(found).all():
            row = int(np.flatnonzero(~np.isfinite(found).all(axis=1))[0])
            raise ModelError(
                f"{embedder.name} gave NaN or infinity for {texts[rows[row]]!r:.80}. Correct the embedder."
            )
        vectors[rows] = found
    return vectors


def sparse_vectors_of(texts: Sequence[str | None], embedder: SparseEmbedder) -> SparseRows:
    """The sparse vectors of queries, all of them embedded together.

    Raises:
        ModelError: the embedder gave another number of them.
    """
    found = embedder.embed_sparse([text or "" for text in texts], kind="query")
    if len(found) != len(texts):
        raise ModelError(
            f"{embedder.name} gave {len(found)} sparse vectors for {len(texts)} questions. Correct the embedder."
        )
    return found


def refuse_other(group: NodeGroup, snapshot: Snapshot, embedder: Embedder | SparseEmbedder) -> None:
    """Refuse an embedder that the group was not embedded by.

    Raises:
        ManifestMismatch: naming those that it was embedded by, or in what one of the same name differs.
    """
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
        raise ManifestMismatch(
            f"Group {group.name!r} of {snapshot.opened.store} was built with "
            f"{f'the embedder {names}' if names else 'no embedder'}, and is searched with "
            f"{embedder.name!r}. Search with BM25, with that embedder, or {way}."
        )
