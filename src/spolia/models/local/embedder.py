"""Sentence embedders on this machine: any encoder or decoder, with the pooling and the prefixes it was trained with.

Reimers and Gurevych 2019 (mean and CLS pooling), Wang et al. 2022 (E5: prefixes), Wang et al. 2024 (last-token pooling
with instructions).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from spolia.errors import ModelError, ModelRejected
from spolia.models.local.encoder import LocalEncoder
from spolia.models.local.opened import torch
from spolia.models.protocols import Kind
from spolia.surrounding import charge
from spolia.types import Usage

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Vectors = npt.NDArray[np.float32]


@dataclass(frozen=True)
class LocalEmbedder(LocalEncoder):
    """The address of a sentence embedder (an `Embedder`); its settings are those of every `LocalEncoder`.

    Args:
        pooling: what of the last hidden states h_1 … h_n becomes the vector: `mean`, their mean over the text's tokens;
            `cls`, h_1; `last`, h_n, for models that read from left to right. Padding counts nowhere.

    >>> LocalEmbedder("models/e5-small", query_prefix="query: ", passage_prefix="passage: ").pooling
    'mean'
    """

    pooling: Literal["mean", "cls", "last"] = "mean"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.pooling not in POOLED:
            raise ModelError(f"LocalEmbedder got pooling={self.pooling!r}. Write one of {', '.join(POOLED)}.")

    @property
    def dimension(self) -> int:
        return self.width

    def embed(self, texts: Sequence[str], *, kind: Kind) -> Vectors:
        """One vector of length 1 for each text: float32, shape (texts, dimension); of nothing but zeros the first unit.

        Raises:
            ModelRejected: a vector has NaN or infinity.
        """
        import numpy as np

        found = np.empty((len(texts), self.dimension), np.float32)
        for batch, hidden, mask in self.hidden(texts, kind):
            found[batch] = unit(POOLED[self.pooling](hidden, mask), self.name)
            charge(Usage(embedded=len(batch)))
        return found


def unit(pooled: Any, whose: str) -> Vectors:
    """Rows of a tensor, each at length 1."""
    import numpy as np

    rows = pooled.double().cpu().numpy()
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    if not np.isfinite(lengths).all():
        raise ModelRejected(f"{whose} gave a vector with NaN or infinity. Check the weights, or the dtype.")
    rows[lengths[:, 0] == 0.0, 0] = lengths[lengths == 0.0] = 1.0
    found: Vectors = (rows / lengths).astype(np.float32)
    return found


def mean(hidden: Any, mask: Any) -> Any:
    """Mean over the tokens: Σ m_i h_i / Σ m_i, for float[texts, width, d] and their mask [texts, width]."""
    counted = mask.unsqueeze(-1).to(hidden.dtype)
    return (hidden * counted).sum(dim=1) / counted.sum(dim=1)


def first(hidden: Any, mask: Any) -> Any:
    """Of the first token, wherever the padding is."""
    return _at(hidden, mask.argmax(dim=1))


def last(hidden: Any, mask: Any) -> Any:
    """Of the last token, wherever the padding is."""
    return _at(hidden, mask.shape[1] - 1 - mask.flip(1).argmax(dim=1))


def _at(hidden: Any, places: Any) -> Any:
    return hidden[torch().arange(len(hidden), device=hidden.device), places]


POOLED = {"mean": mean, "cls": first, "last": last}
