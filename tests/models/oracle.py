"""The encoder once more, written as the papers have it, in float64 numpy and one text at a time: what is right.

x_0 = LN(word + position + type); a = LN(x + W_o attention(x)); x' = LN(a + W_2 gelu(W_1 a)); mean; length 1.
Devlin et al. 2019 (BERT), Hendrycks and Gimpel 2016 (GELU), Reimers and Gurevych 2019 (mean pooling).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from spolia.models.onnx import safetensors

Array = npt.NDArray[np.float64]
LAYERS, HEADS, EPSILON = 6, 12, 1e-12
erf = np.vectorize(math.erf, otypes=[np.float64])


class Oracle:
    """Embeds rows of token numbers, special ones included."""

    def __init__(self, path: Path) -> None:
        self.w = {name: tensor.astype(np.float64) for name, tensor in safetensors.read(path).items()}

    def embed(self, rows: Sequence[Sequence[int]]) -> Array:
        return np.stack([self._one(row) for row in rows])

    def _one(self, row: Sequence[int]) -> Array:
        e = "embeddings."
        x = self.w[e + "word_embeddings.weight"][list(row)] + self.w[e + "position_embeddings.weight"][: len(row)]
        x = self._normal(x + self.w[e + "token_type_embeddings.weight"][0], e + "LayerNorm")
        for number in range(LAYERS):
            x = self._layer(x, f"encoder.layer.{number}.")
        mean: Array = x.mean(axis=0)
        return mean / np.sqrt(mean @ mean)

    def _layer(self, x: Array, name: str) -> Array:
        out = self._linear(self._attention(x, name + "attention.self."), name + "attention.output.dense")
        a = self._normal(x + out, name + "attention.output.LayerNorm")
        wide = self._linear(a, name + "intermediate.dense")
        gelu = wide * 0.5 * (1.0 + erf(wide / math.sqrt(2.0)))
        return self._normal(a + self._linear(gelu, name + "output.dense"), name + "output.LayerNorm")

    def _attention(self, x: Array, name: str) -> Array:
        q, k, v = (self._heads(self._linear(x, name + part)) for part in ("query", "key", "value"))
        scores = q @ k.transpose(0, 2, 1) / math.sqrt(q.shape[-1])
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        mixed = (weights / weights.sum(axis=-1, keepdims=True)) @ v
        attended: Array = mixed.transpose(1, 0, 2).reshape(x.shape)
        return attended

    def _heads(self, x: Array) -> Array:
        return x.reshape(len(x), HEADS, -1).transpose(1, 0, 2)

    def _linear(self, x: Array, name: str) -> Array:
        return x @ self.w[name + ".weight"].T + self.w[name + ".bias"]

    def _normal(self, x: Array, name: str) -> Array:
        centred = x - x.mean(axis=-1, keepdims=True)
        scaled = centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + EPSILON)
        normalised: Array = scaled * self.w[name + ".weight"] + self.w[name + ".bias"]
        return normalised
