"""The graph of all-MiniLM-L6-v2 that the package brings: `python -m tests.minilm_graph` writes it.

It has operators only, 16 kB: the weights stay in their file, as they are stored (`Gemm` with `transB` takes them so).

    x_0 = LayerNorm(word[t] + position + type)
    a_i = LayerNorm(x_i + W_o MultiHead(W_q x_i, W_k x_i, W_v x_i))            Devlin et al. 2019; Vaswani et al. 2017
    x_{i+1} = LayerNorm(a_i + W_2 GELU(W_1 a_i))
    embedding = sum_t mask_t x_t / |sum_t mask_t x_t|                          Reimers and Gurevych 2019

Dividing by the number of tokens before the length is made 1 changes nothing, so it is left out. The last x is an output
too, `tokens`: what else is learned of it (spans, classes) is one more linear layer.
"""

from __future__ import annotations

from typing import Any

from onnx import ModelProto, NodeProto, TensorProto, helper

from spolia.models.onnx.minilm import GRAPH, MiniLM

LAYERS, WIDTH, HEADS, INNER, VOCABULARY, POSITIONS = 6, MiniLM.dimension, 12, 1536, 30522, 512
EPSILON = 1e-12
FUSED = "com.microsoft"
"""Operators of onnxruntime itself: attention and residual normalisation in one pass over memory."""


class Writer:
    """A graph while it is being written; values are named by strings."""

    def __init__(self) -> None:
        self.nodes: list[NodeProto] = []
        self.tensors: dict[str, TensorProto] = {}

    def op(self, kind: str, *inputs: str, domain: str = "", output: str = "", **attributes: Any) -> str:
        """Add an operator and return the name of its output; an empty input leaves an optional one out."""
        name = output or f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [name], domain=domain, **attributes))
        return name

    def weight(self, name: str, *shape: int) -> str:
        """A tensor that is given to the session apart from the graph."""
        tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=shape, data_location=TensorProto.EXTERNAL)
        tensor.external_data.add(key="location", value="weights")
        self.tensors[name] = tensor
        return name

    def ints(self, *values: int) -> str:
        name = "i" + "_".join(map(str, values))
        self.tensors[name] = helper.make_tensor(name, TensorProto.INT64, [len(values)], values)
        return name

    def linear(self, x: str, name: str, rows: int, columns: int) -> str:
        """x W^T + b, with W as it is stored: (rows, columns)."""
        weight, bias = self.weight(f"{name}.weight", rows, columns), self.weight(f"{name}.bias", rows)
        return self.op("Gemm", x, weight, bias, transB=1)

    def normal(self, x: str, residual: str, name: str) -> str:
        """LayerNorm(x + residual)."""
        gain, bias = self.weight(f"{name}.weight", WIDTH), self.weight(f"{name}.bias", WIDTH)
        return self.op("SkipLayerNormalization", x, residual, gain, bias, domain=FUSED, epsilon=EPSILON)

    def flat(self, x: str) -> str:
        """(batch x tokens, width)."""
        return self.op("Reshape", x, self.ints(-1, WIDTH))


def graph() -> ModelProto:
    """Inputs: `input_ids` int64 and `attention_mask` int32, both (batch, tokens). Outputs: `embedding`, `tokens`."""
    g = Writer()
    g.op("Shape", "input_ids", output="sizes")
    g.op("Concat", "sizes", g.ints(WIDTH), axis=0, output="unflat")  # (batch, tokens, width)
    x = add_embeddings(g)
    for number in range(LAYERS):
        x = layer(g, x, f"encoder.layer.{number}")
    mask = g.op("Unsqueeze", g.op("Cast", "attention_mask", to=TensorProto.FLOAT), g.ints(1))
    total = g.op("Squeeze", g.op("MatMul", mask, g.op("Reshape", x, "unflat", output="tokens")), g.ints(1))
    g.op("LpNormalization", total, axis=-1, p=2, output="embedding")
    ids = helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["batch", "tokens"])
    real = helper.make_tensor_value_info("attention_mask", TensorProto.INT32, ["batch", "tokens"])
    out = helper.make_tensor_value_info("embedding", TensorProto.FLOAT, ["batch", WIDTH])
    output = helper.make_tensor_value_info("tokens", TensorProto.FLOAT, ["batch", "tokens", WIDTH])
    body = helper.make_graph(g.nodes, "sentence_encoder", [ids, real], [out, output], list(g.tensors.values()))
    return helper.make_model(
        body, opset_imports=[helper.make_opsetid("", 20), helper.make_opsetid(FUSED, 1)], ir_version=9
    )


def add_embeddings(g: Writer) -> str:
    """Word, position and type embeddings, normalised."""
    count = g.op("Slice", "sizes", g.ints(1), g.ints(2))
    rows = g.weight("embeddings.position_embeddings.weight", POSITIONS, WIDTH)
    position = g.op("Slice", rows, g.ints(0), count, g.ints(0))
    kinds = g.weight("embeddings.token_type_embeddings.weight", 2, WIDTH)
    kind = g.op("Slice", kinds, g.ints(0), g.ints(1), g.ints(0))
    word = g.op("Gather", g.weight("embeddings.word_embeddings.weight", VOCABULARY, WIDTH), "input_ids")
    x = g.op("Add", word, g.op("Add", position, kind))
    gain, bias = (g.weight(f"embeddings.LayerNorm.{part}", WIDTH) for part in ("weight", "bias"))
    return g.flat(g.op("LayerNormalization", x, gain, bias, axis=-1, epsilon=EPSILON))


def layer(g: Writer, x: str, name: str) -> str:
    """Attention, then the two linear maps, each normalised with what went into it."""
    parts = [g.linear(x, f"{name}.attention.self.{part}", WIDTH, WIDTH) for part in ("query", "key", "value")]
    q, k, v = (g.op("Reshape", part, "unflat") for part in parts)
    mixed = g.op("MultiHeadAttention", q, k, v, "", "attention_mask", domain=FUSED, num_heads=HEADS)
    out = g.linear(g.flat(mixed), f"{name}.attention.output.dense", WIDTH, WIDTH)
    a = g.normal(out, x, f"{name}.attention.output.LayerNorm")
    wide = g.op("Gelu", g.linear(a, f"{name}.intermediate.dense", INNER, WIDTH))
    return g.normal(g.linear(wide, f"{name}.output.dense", WIDTH, INNER), a, f"{name}.output.LayerNorm")


if __name__ == "__main__":
    GRAPH.write_bytes(graph().SerializeToString(deterministic=True))
