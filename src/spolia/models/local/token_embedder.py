"""A vector for each token, for late interaction (ColBERT, Khattab and Zaharia 2020)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from spolia.errors import WeightsError
from spolia.models.local.encoder import LocalEncoder
from spolia.models.local.folder import folder_of
from spolia.models.protocols import Kind
from spolia.surrounding import charge
from spolia.types import Usage

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from spolia.models.token_vectors import TokenVectors

    Vectors = npt.NDArray[np.float32]


@dataclass(frozen=True)
class LocalTokenEmbedder(LocalEncoder):
    """The address of a late-interaction model (a `TokenEmbedder`); its settings are those of every `LocalEncoder`.

    Args:
        projection: name of the tensor float32[dimension, width] that maps hidden states to the vectors of tokens, as
            `linear.weight` of ColBERT's files; empty to take the hidden states as they are.

    >>> LocalTokenEmbedder("models/colbert", projection="linear.weight").projection
    'linear.weight'
    """

    projection: str = ""

    @property
    def dimension(self) -> int:
        return len(self._projection()) if self.projection else self.width

    def embed_tokens(self, texts: Sequence[str], *, kind: Kind) -> TokenVectors:
        """Vectors of length 1 for the tokens of each text, special ones included: E(t) = P h_t / |P h_t|."""
        import numpy as np

        from spolia.models.token_vectors import TokenVectors

        vectors: list[Vectors] = self.hidden_states(texts, kind=kind)
        if self.projection:
            onto = self._projection().astype(np.float64).T
            vectors = [(states @ onto).astype(np.float32) for states in vectors]
        charge(Usage(embedded=len(texts)))
        return TokenVectors.of(vectors, self.dimension)

    def _projection(self) -> Vectors:
        from spolia.models import safetensors

        for path in sorted(folder_of(self.model, self.revision).glob("*.safetensors")):
            if (found := safetensors.read(path).get(self.projection)) is not None and found.ndim == 2:
                return found
        raise WeightsError(f"{self.model} has no float32 matrix {self.projection!r}. Write another one, or none.")
