"""Embedder whose questions a trained adapter moves; its passages stay where they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from spolia.deferred import numpy as np
from spolia.errors import WeightsError
from spolia.models.protocols import Embedder, Kind
from spolia.models.trained_weights import TrainedWeights
from spolia.types import Value

if TYPE_CHECKING:
    from spolia.types.arrays import Vectors

PART = "adapter"
DOWN, UP = "down", "up"


@dataclass(frozen=True)
class AdaptedEmbedder(Value):
    """Embedder with a low-rank adapter of its questions: v' = (v + U D v) / |v + U D v|.

    Passages have the vectors of the embedder itself, so a store needs no new ones. Untrained, U is 0 and v' = v.

    Args:
        embedder: the one that the group was built with.
        weights: those that `spolia train adapter` wrote.

    Raises:
        WeightsError: on first use, when the weights are missing, or are of another width.

    Source: query-side adaptation as in Gao et al., "Modular RAG", 2024, adapter fine-tuning.

    >>> from spolia.testing import HashingEmbedder
    >>> AdaptedEmbedder(HashingEmbedder(64), TrainedWeights("trained/adapter")).name
    'hashing-64'
    """

    embedder: Embedder
    weights: TrainedWeights

    @property
    def name(self) -> str:
        """Name of the embedder, whose vectors the passages have."""
        return self.embedder.name

    @property
    def dimension(self) -> int:
        return self.embedder.dimension

    @property
    def window(self) -> int:
        return self.embedder.window

    @property
    def waits(self) -> bool:
        return getattr(self.embedder, "waits", True)  # one that does not say is taken for a server

    @property
    def scoped(self) -> bool:
        return self.embedder.scoped

    def fingerprint(self) -> str | None:
        """Return the fingerprint of embedder and weights; None if one of them has none."""
        parts = self.embedder.fingerprint(), self.weights.fingerprint()
        return None if None in parts else "|".join(map(str, parts))

    def tokens(self, texts: Sequence[str]) -> list[int]:
        return self.embedder.tokens(texts)

    def covers(self, text: str) -> float:
        return self.embedder.covers(text)

    def embed(self, texts: Sequence[str], *, kind: Kind) -> Vectors:
        """Embed each text as a vector of length 1: float32, shape (texts, dimension)."""
        vectors = self.embedder.embed(texts, kind=kind)
        if kind != "query" or not len(texts):  # passages keep the vectors that the store has of them
            return vectors
        tensors = self.weights.tensors(PART)
        down, up = tensors.get(DOWN), tensors.get(UP)
        if down is None or up is None or down.shape[1:] != (self.dimension,) or up.shape != down.shape[::-1]:
            raise WeightsError(
                f"{self.weights.place} has no adapter for vectors of {self.dimension} numbers. Name the embedder that "
                "it was trained with."
            )
        return apply_adapter(vectors, down, up)


def apply_adapter(vectors: Vectors, down: Vectors, up: Vectors) -> Vectors:
    """Add its low-rank change to each vector, of length 1; return the same vectors if nothing changes."""
    if not up.any():  # untrained: the same vectors to the last bit, not scaled once more
        return vectors
    shifted = vectors + vectors @ down.T @ up.T
    # A vector that the change cancels has length 0; it must not become NaN.
    return np.asarray(shifted / np.maximum(np.linalg.norm(shifted, axis=1, keepdims=True), 1e-12), np.float32)
