"""What an embedder gives, looked at before it is reckoned with."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from spolia.errors import ModelError
from spolia.models.protocols import Embedder, Kind

if TYPE_CHECKING:
    from spolia.types.arrays import Vectors


def embedded(embedder: Embedder, texts: Sequence[str], kind: Kind) -> "Vectors":
    """float32[n, d], a vector for each text; ModelError if their number or length is wrong, or one has NaN or infinity.

    >>> from spolia.testing import HashingEmbedder
    >>> embedded(HashingEmbedder(16), ["red stones", "blue sea"], "passage").shape
    (2, 16)
    """
    import numpy as np

    if not texts:
        return np.zeros((0, embedder.dimension), np.float32)
    found = np.asarray(embedder.embed(texts, kind=kind), dtype=np.float32)
    if found.shape != (len(texts), embedder.dimension):
        raise ModelError(
            f"{embedder.name} gave vectors of shape {found.shape} for {len(texts)} texts, where each has "
            f"{embedder.dimension} numbers. Correct the embedder."
        )
    if not (finite := np.isfinite(found).all(axis=1)).all():
        raise ModelError(
            f"{embedder.name} gave NaN or infinity for {texts[int(finite.argmin())]!r:.80}. Correct the embedder."
        )
    return found
