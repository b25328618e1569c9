"""Queries as vectors of an embedder, and whether a group was embedded by it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

from spolia.errors import ManifestMismatch, QueryError
from spolia.models.protocols import Embedder, SparseEmbedder
from spolia.retrieval.searched import searched
from spolia.stores.corpus import NodeGroup
from spolia.surrounding import note
from spolia.types import Query

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from spolia.stores.snapshot import Snapshot

    Vectors: TypeAlias = npt.NDArray[np.float32]

SPECIALS = 8
"""Tokens around a text, at most: its beginning and end, and a prefix for queries."""


def read(query: Query, embedder: Embedder, row: int | None = None) -> str | None:
    """The text to embed, None where the query brings its vector; that not all of it is read is recorded.

    Args:
        row: which value of a batch the query is.

    Raises:
        QueryError: for an empty query, or a vector of another length.
    """
    if query.vector is not None:
        if len(query.vector) != embedder.dimension:
            raise QueryError(
                f"The query's vector has {len(query.vector)} numbers; {embedder.name} gives "
                f"{embedder.dimension}. Write a vector from that embedder, or none."
            )
        return None
    text = searched(query, row=row)
    most = len(text.encode("utf-8", "replace")) + SPECIALS  # no tokenizer makes more tokens than there are bytes
    if most > embedder.window and (tokens := embedder.tokens([text])[0]) > embedder.window:
        note(f"The question has {tokens} tokens; {embedder.name} reads the first {embedder.window}.", row=row)
    return text


def vectors_of(asked: Sequence[Query], texts: Sequence[str | None], embedder: Embedder) -> Vectors:
    """A vector float32[d] for each query: its own, or that of its text, all of them embedded together.

    Args:
        texts: what `read` gave for each query.
    """
    import numpy as np

    vectors = np.zeros((len(asked), embedder.dimension), dtype=np.float32)
    for row, query in enumerate(asked):
        if query.vector is not None:
            vectors[row] = query.vector
    rows = [row for row, text in enumerate(texts) if text is not None]
    if rows:
        vectors[rows] = embedder.embed([text for text in texts if text is not None], kind="query")
    return vectors


def refuse_other(group: NodeGroup, snapshot: Snapshot, embedder: Embedder | SparseEmbedder) -> None:
    """Refuse an embedder that the group was not embedded by.

    Raises:
        ManifestMismatch: naming those that it was embedded by.
    """
    manifest = snapshot.manifest(group.name)
    if manifest.embedded(embedder.name) is None:
        names = ", ".join(repr(embedding.embedder) for embedding in manifest.embeddings)
        raise ManifestMismatch(
            f"Group {group.name!r} of {snapshot.opened.store} was built with "
            f"{f'the embedder {names}' if names else 'no embedder'}, and is searched with "
            f"{embedder.name!r}. Search with BM25, with that embedder, or index again with this one."
        )
