"""MiniLM in torch, to be trained: the same weights by the same names as its graph for onnxruntime."""

from __future__ import annotations

from collections.abc import Mapping

from spolia.errors import installed

with installed("local", "torch", "Training an encoder"):
    import torch
    from torch import Tensor
    from torch.nn import functional

HEADS = 12
EPSILON = 1e-12


def token_vectors(weights: Mapping[str, Tensor], ids: Tensor, mask: Tensor) -> Tensor:
    """One vector for each token: (batch, tokens, width). `mask` is True for tokens and False for padding.

    x_0 = LayerNorm(word[t] + position + type[0]); a = LayerNorm(x + Attention(x)); x' = LayerNorm(a + W_2 GELU(W_1 a)).

    Source: Devlin et al., "BERT", NAACL 2019.
    """
    rows = weights["embeddings.position_embeddings.weight"][: ids.shape[1]]
    kind = weights["embeddings.token_type_embeddings.weight"][0]
    x = normal(weights, "embeddings.LayerNorm", weights["embeddings.word_embeddings.weight"][ids] + rows + kind)
    number = 0
    while f"encoder.layer.{number}.output.dense.weight" in weights:
        x = _layer(weights, f"encoder.layer.{number}", x, mask[:, None, None, :])
        number += 1
    return x


def linear(weights: Mapping[str, Tensor], name: str, x: Tensor) -> Tensor:
    return functional.linear(x, weights[f"{name}.weight"], weights[f"{name}.bias"])


def normal(weights: Mapping[str, Tensor], name: str, x: Tensor) -> Tensor:
    return functional.layer_norm(x, x.shape[-1:], weights[f"{name}.weight"], weights[f"{name}.bias"], EPSILON)


def _layer(weights: Mapping[str, Tensor], name: str, x: Tensor, mask: Tensor) -> Tensor:
    q, k, v = (
        linear(weights, f"{name}.attention.self.{part}", x).unflatten(-1, (HEADS, -1)).transpose(1, 2)
        for part in ("query", "key", "value")
    )
    mixed = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask).transpose(1, 2).flatten(2)
    a = normal(
        weights, f"{name}.attention.output.LayerNorm", x + linear(weights, f"{name}.attention.output.dense", mixed)
    )
    wide = functional.gelu(linear(weights, f"{name}.intermediate.dense", a))
    return normal(weights, f"{name}.output.LayerNorm", a + linear(weights, f"{name}.output.dense", wide))


def trainable(tensors: Mapping[str, object]) -> dict[str, Tensor]:
    """Copies of the tensors, of which those of the encoder's layers learn; the embeddings are frozen."""
    weights = {name: torch.tensor(array) for name, array in tensors.items() if not name.startswith("pooler.")}
    for name, tensor in weights.items():
        tensor.requires_grad_(not name.startswith("embeddings."))
    return weights
