"""The ONNX graph of a BERT encoder with mean pooling, about 15 kB: operators only, the weights stay in their file.

The graph is written anew for every session, in a millisecond: there is no converted copy of 90 MB to keep, to find
damaged or to find stale. The session reads the weights out of the mapped safetensors file (`Gemm` with `transB` takes
them as they are stored).

    x_0 = LayerNorm(word[t] + position + type)
    a_i = LayerNorm(x_i + W_o MultiHead(W_q x_i, W_k x_i, W_v x_i))            Devlin et al. 2019; Vaswani et al. 2017
    x_{i+1} = LayerNorm(a_i + W_2 GELU(W_1 a_i))
    embedding = sum_t mask_t x_t / |sum_t mask_t x_t|                          Reimers and Gurevych 2019

Dividing by the number of tokens before the length is made 1 changes nothing, so it is left out.
"""

from dataclasses import dataclass, field

from spolia.models.onnx import protobuf
from spolia.models.onnx.protobuf import Attribute

FUSED = "com.microsoft"
"""Operators of onnxruntime itself: attention and residual normalisation in one pass over memory."""


@dataclass(frozen=True)
class EncoderShape:
    """Sizes of an encoder."""

    layers: int
    width: int
    heads: int
    inner: int
    vocabulary: int
    positions: int
    epsilon: float = 1e-12


@dataclass
class OnnxGraph:
    """A graph while it is being written. Values are named by strings; `weights` are those that a session must get."""

    nodes: list[bytes] = field(default_factory=list)
    integers: dict[str, bytes] = field(default_factory=dict)
    weights: dict[str, tuple[int, ...]] = field(default_factory=dict)

    def op(self, kind: str, *inputs: str, domain: str = "", output: str = "", **attributes: Attribute) -> str:
        """Add an operator and return the name of its output."""
        name = output or f"t{len(self.nodes)}"
        self.nodes.append(protobuf.node(kind, inputs, name, domain, attributes))
        return name

    def weight(self, name: str, *shape: int) -> str:
        self.weights[name] = shape
        return name

    def ints(self, *values: int) -> str:
        name = "i" + "_".join(map(str, values))
        self.integers[name] = protobuf.integers(name, values)
        return name

    def linear(self, x: str, name: str, rows: int, columns: int) -> str:
        """x W^T + b, with W as it is stored: (rows, columns)."""
        return self.op(
            "Gemm", x, self.weight(f"{name}.weight", rows, columns), self.weight(f"{name}.bias", rows), transB=1
        )

    def normal(self, x: str, residual: str, name: str, width: int, epsilon: float) -> str:
        """LayerNorm(x + residual)."""
        gain, bias = self.weight(f"{name}.weight", width), self.weight(f"{name}.bias", width)
        return self.op("SkipLayerNormalization", x, residual, gain, bias, domain=FUSED, epsilon=epsilon)


def sentence_encoder(shape: EncoderShape) -> tuple[bytes, tuple[str, ...]]:
    """The graph as an ONNX model, and the names of the weights that it needs.

    Inputs: `input_ids` int64 and `attention_mask` int32, both (batch, tokens). Output: `embedding` float32,
    (batch, width).
    """
    g = OnnxGraph()
    g.op("Shape", "input_ids", output="sizes")
    g.op("Concat", "sizes", g.ints(shape.width), axis=0, output="unflat")  # (batch, tokens, width)
    x = _embedded(g, shape)
    for number in range(shape.layers):
        x = _layer(g, shape, x, f"encoder.layer.{number}")
    _pooled(g, x)
    body = protobuf.graph(
        "sentence_encoder",
        g.nodes,
        [*g.integers.values(), *(protobuf.external(name, sizes) for name, sizes in g.weights.items())],
        [_batch("input_ids", protobuf.INT64, "tokens"), _batch("attention_mask", protobuf.INT32, "tokens")],
        [_batch("embedding", protobuf.FLOAT, shape.width)],
    )
    return protobuf.model(body, {"": 20, FUSED: 1}, ir_version=9), tuple(g.weights)


def _batch(name: str, kind: int, size: str | int) -> bytes:
    return protobuf.value(name, kind, ("batch", size))


def _embedded(g: OnnxGraph, shape: EncoderShape) -> str:
    """Word, position and type embeddings, normalised: (batch x tokens, width)."""
    width = shape.width
    count = g.op("Slice", "sizes", g.ints(1), g.ints(2))
    rows = g.weight("embeddings.position_embeddings.weight", shape.positions, width)
    position = g.op("Slice", rows, g.ints(0), count, g.ints(0))
    kinds = g.weight("embeddings.token_type_embeddings.weight", 2, width)
    kind = g.op("Slice", kinds, g.ints(0), g.ints(1), g.ints(0))
    word = g.op("Gather", g.weight("embeddings.word_embeddings.weight", shape.vocabulary, width), "input_ids")
    x = g.op("Add", word, g.op("Add", position, kind))
    name = "embeddings.LayerNorm"
    gain, bias = g.weight(f"{name}.weight", width), g.weight(f"{name}.bias", width)
    return _flat(g, shape, g.op("LayerNormalization", x, gain, bias, axis=-1, epsilon=shape.epsilon))


def _layer(g: OnnxGraph, shape: EncoderShape, x: str, name: str) -> str:
    width, inner = shape.width, shape.inner
    parts = [g.linear(x, f"{name}.attention.self.{part}", width, width) for part in ("query", "key", "value")]
    q, k, v = (g.op("Reshape", part, "unflat") for part in parts)
    mixed = g.op("MultiHeadAttention", q, k, v, "", "attention_mask", domain=FUSED, num_heads=shape.heads)
    out = g.linear(_flat(g, shape, mixed), f"{name}.attention.output.dense", width, width)
    a = g.normal(out, x, f"{name}.attention.output.LayerNorm", width, shape.epsilon)
    wide = g.op("Gelu", g.linear(a, f"{name}.intermediate.dense", inner, width))
    return g.normal(
        g.linear(wide, f"{name}.output.dense", width, inner), a, f"{name}.output.LayerNorm", width, shape.epsilon
    )


def _flat(g: OnnxGraph, shape: EncoderShape, x: str) -> str:
    return g.op("Reshape", x, g.ints(-1, shape.width))


def _pooled(g: OnnxGraph, x: str) -> None:
    """The sum over real tokens, as a product with the mask, at length 1."""
    mask = g.op("Unsqueeze", g.op("Cast", "attention_mask", to=protobuf.FLOAT), g.ints(1))
    total = g.op("Squeeze", g.op("MatMul", mask, g.op("Reshape", x, "unflat")), g.ints(1))
    g.op("LpNormalization", total, axis=-1, p=2, output="embedding")
