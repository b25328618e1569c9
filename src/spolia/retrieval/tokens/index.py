"""The token vectors of the nodes of a group at a generation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from spolia.errors import ModelError
from spolia.models.protocols import TokenEmbedder
from spolia.models.token_vectors import TokenVectors, Vectors, max_sims
from spolia.retrieval.counts import derived, texts_of
from spolia.retrieval.tokens.kept import Kept
from spolia.stores.layout import tokens_folder
from spolia.stores.tables.rows import hash_of
from spolia.surrounding import check_cancelled

if TYPE_CHECKING:
    from spolia.stores.snapshot import Snapshot

EMBEDDED_AT_ONCE, WRITTEN_AT_ONCE, COMPARED_AT_ONCE = 64, 2_048, 256


@dataclass(frozen=True, eq=False)
class TokenIndex:
    """Where the token vectors of each node are.

    Args:
        hashes: of the texts of all nodes, in the order of their keys.
        kept: the vectors.
    """

    hashes: Sequence[bytes]
    kept: Kept

    def scores(self, query: Vectors, positions: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        """float64[m]: Σ_i max_j q_i · d_j of some nodes.

        Args:
            query: float32[tokens, d].
            positions: int64[m] places of the nodes in the order of their keys.
        """
        found = [np.zeros(0)]
        for start in range(0, len(positions), COMPARED_AT_ONCE):
            check_cancelled()
            some = positions[start : start + COMPARED_AT_ONCE].tolist()
            found.append(max_sims(query, self.kept.of([self.hashes[at] for at in some])))
        return np.concatenate(found)


def token_index(snapshot: Snapshot, group: str, embedder: TokenEmbedder) -> TokenIndex:
    """The token vectors of a group; what is not kept yet is embedded, and kept in the store's folder.

    Raises:
        ModelError: the embedder gives another number of texts than it is given, or vectors of another length.
        ModelUnavailable: the same call may succeed later; what was embedded before stays.
    """
    return derived(snapshot, ("tokens", group, embedder.name), lambda: _built(snapshot, group, embedder))


def embedded(embedder: TokenEmbedder, texts: Sequence[str], *, is_query: bool = False) -> TokenVectors:
    """The token vectors of texts; raises `ModelError` where they are none."""
    found = embedder.embed_tokens(texts, kind="query" if is_query else "passage")
    if len(found) != len(texts) or found.vectors.shape[1] != embedder.dimension:
        raise ModelError(
            f"{embedder.name} gave token vectors of {len(found)} texts with {found.vectors.shape[1]} numbers each, for "
            f"{len(texts)} texts and {embedder.dimension} numbers. Correct the embedder."
        )
    return found


def _built(snapshot: Snapshot, group: str, embedder: TokenEmbedder) -> TokenIndex:
    kept = Kept(tokens_folder(snapshot.opened.folder, embedder.name), embedder.dimension)
    hashes: list[bytes] = []
    lacking: dict[bytes, str] = {}
    for text in texts_of(snapshot, snapshot.records(group).keys):
        hashes.append(hash_of(text))
        if hashes[-1] not in kept.places:
            lacking[hashes[-1]] = text
        if len(lacking) >= WRITTEN_AT_ONCE:
            _embed(kept, embedder, lacking)
    _embed(kept, embedder, lacking)
    return TokenIndex(hashes, kept)


def _embed(kept: Kept, embedder: TokenEmbedder, lacking: dict[bytes, str]) -> None:
    texts, parts = list(lacking.values()), list[Vectors]()
    for start in range(0, len(texts), EMBEDDED_AT_ONCE):
        check_cancelled()
        rows = embedded(embedder, texts[start : start + EMBEDDED_AT_ONCE])
        parts += [rows.row(at) for at in range(len(rows))]
    if parts:
        offsets = np.cumsum([0, *map(len, parts)], dtype=np.int64)
        kept.add(list(lacking), TokenVectors(offsets, np.concatenate(parts)))
        lacking.clear()
