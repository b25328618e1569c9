"""Models in GGUF with random weights, written on the spot, and what they give, computed by numpy."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

WIDTH, INNER, LAYERS, HEADS, SHARED, LONGEST = 32, 48, 2, 4, 2, 1000
TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
MARKS = ["<|end|>", "<|system|>", "<|user|>", "<|assistant|>"]
TOKENS = [
    "<unk>", "<s>", "</s>", *MARKS, *(f"<0x{byte:02X}>" for byte in range(256)), "\u2581",
    *map(chr, range(33, 127)), "\u2581the", "\u2581a", "mo", "on", "moon", "\u2581moon",
]  # fmt: skip
END = TOKENS.index("<|end|>")
PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "\u2581the", "\u2581moon", "\u2581pulls", "\u2581sea", "s"]


def is_installed() -> bool:
    """Whether llama.cpp and the package that writes its files are there."""
    return bool(find_spec("llama_cpp") and find_spec("gguf"))


def _draw(*shape: int, seed: int) -> Any:
    return (np.random.default_rng(seed).standard_normal(shape) * 0.3).astype(np.float32)


def weights() -> dict[str, Any]:
    """Of a decoder as Llama's."""
    ones, head = np.ones(WIDTH, np.float32), WIDTH // HEADS
    tensors = {
        "token_embd.weight": _draw(len(TOKENS), WIDTH, seed=1),
        "output_norm.weight": ones,
        "output.weight": _draw(len(TOKENS), WIDTH, seed=2),
    }
    shapes = {
        "attn_q": (WIDTH, WIDTH), "attn_k": (head * SHARED, WIDTH), "attn_v": (head * SHARED, WIDTH),
        "attn_output": (WIDTH, WIDTH), "ffn_gate": (INNER, WIDTH), "ffn_up": (INNER, WIDTH), "ffn_down": (WIDTH, INNER),
    }  # fmt: skip
    for layer in range(LAYERS):
        tensors |= {f"blk.{layer}.{norm}_norm.weight": ones for norm in ("attn", "ffn")}
        for number, (name, shape) in enumerate(shapes.items()):
            tensors[f"blk.{layer}.{name}.weight"] = _draw(*shape, seed=10 * layer + number + 3)
    return tensors


def llama(path: Path, template: str = TEMPLATE, changed: dict[str, Any] | None = None) -> Path:
    """A decoder that reads bytes and some words."""
    import gguf

    file = gguf.GGUFWriter(str(path), "llama")
    file.add_name("tiny")
    file.add_context_length(LONGEST)
    file.add_embedding_length(WIDTH)
    file.add_block_count(LAYERS)
    file.add_feed_forward_length(INNER)
    file.add_head_count(HEADS)
    file.add_head_count_kv(SHARED)
    file.add_layer_norm_rms_eps(1e-5)
    file.add_rope_dimension_count(WIDTH // HEADS)
    file.add_vocab_size(len(TOKENS))
    file.add_tokenizer_model("llama")
    file.add_token_list(TOKENS)
    first = TOKENS.index("\u2581")
    file.add_token_scores([0.0] * first + [-1.0 * (len(TOKENS) - number) for number in range(first, len(TOKENS))])
    file.add_token_types([2, 3, 3, *[3] * len(MARKS), *[6] * 256, *[1] * (len(TOKENS) - first)])
    file.add_bos_token_id(1)
    file.add_eos_token_id(END)
    file.add_unk_token_id(0)
    if template:
        file.add_chat_template(template)
    return _write_file(file, path, weights() | (changed or {}))


def bert(path: Path) -> Path:
    """An encoder that reads from both sides, and says that the first token's state is the text's vector."""
    import gguf

    file = gguf.GGUFWriter(str(path), "bert")
    file.add_context_length(64)
    file.add_embedding_length(WIDTH)
    file.add_block_count(1)
    file.add_feed_forward_length(INNER)
    file.add_head_count(HEADS)
    file.add_layer_norm_eps(1e-12)
    file.add_causal_attention(False)
    file.add_pooling_type(gguf.PoolingType.CLS)
    file.add_vocab_size(len(PIECES))
    file.add_token_type_count(2)
    file.add_tokenizer_model("bert")
    file.add_token_list(PIECES)
    file.add_token_types([3, 2, 3, 3, 3, *[1] * (len(PIECES) - 5)])
    file.add_pad_token_id(0)
    file.add_unk_token_id(1)
    file.add_bos_token_id(2)
    file.add_sep_token_id(3)
    file.add_eos_token_id(3)
    file.add_mask_token_id(4)
    ones, none = np.ones(WIDTH, np.float32), np.zeros(WIDTH, np.float32)
    tensors = {
        "token_embd.weight": _draw(len(PIECES), WIDTH, seed=1),
        "token_types.weight": _draw(2, WIDTH, seed=2),
        "position_embd.weight": _draw(64, WIDTH, seed=3),
    }
    tensors |= {f"token_embd_norm.{part}": value for part, value in (("weight", ones), ("bias", none))}
    for name, shape in {"ffn_up": (INNER, WIDTH), "ffn_down": (WIDTH, INNER)}.items():
        tensors |= {
            f"blk.0.{name}.weight": _draw(*shape, seed=4),
            f"blk.0.{name}.bias": np.zeros(shape[0], np.float32),
        }
    for number, name in enumerate(("attn_q", "attn_k", "attn_v", "attn_output")):
        tensors |= {f"blk.0.{name}.weight": _draw(WIDTH, WIDTH, seed=5 + number), f"blk.0.{name}.bias": none}
    for name in ("attn_output_norm", "layer_output_norm"):
        tensors |= {f"blk.0.{name}.weight": ones, f"blk.0.{name}.bias": none}
    return _write_file(file, path, tensors)


def _write_file(file: Any, path: Path, tensors: dict[str, Any]) -> Path:
    for name, tensor in tensors.items():
        file.add_tensor(name, tensor)
    file.write_header_to_file()
    file.write_kv_data_to_file()
    file.write_tensors_to_file()
    file.close()
    return path


def states(ids: list[int]) -> Any:
    """float64[tokens, width], the last hidden states of the decoder for some tokens."""
    arrays = {name: value.astype(np.float64) for name, value in weights().items()}
    size, count = WIDTH // HEADS, len(ids)
    turned = np.arange(count)[:, None] / 10_000 ** (np.arange(0, size, 2) / size)
    hidden = arrays["token_embd.weight"][ids]
    for layer in range(LAYERS):
        part = {name.split(".")[2]: value for name, value in arrays.items() if name.startswith(f"blk.{layer}.")}
        inputs = _normalise(hidden)
        query, key, value = (
            (inputs @ part[name].T).reshape(count, -1, size) for name in ("attn_q", "attn_k", "attn_v")
        )
        query, key = _rotate(query, turned), _rotate(key, turned)
        mixed = []
        for head in range(HEADS):
            shared_head = head * SHARED // HEADS
            scores = query[:, head] @ key[:, shared_head].T / size**0.5
            scores[np.triu_indices(count, 1)] = -np.inf
            chances = np.exp(scores - scores.max(axis=1, keepdims=True))
            mixed.append(chances / chances.sum(axis=1, keepdims=True) @ value[:, shared_head])
        hidden = hidden + np.concatenate(mixed, axis=1) @ part["attn_output"].T
        inputs = _normalise(hidden)
        gate = inputs @ part["ffn_gate"].T
        hidden = hidden + (gate / (1 + np.exp(-gate)) * (inputs @ part["ffn_up"].T)) @ part["ffn_down"].T
    return _normalise(hidden)


def chances(ids: list[int]) -> Any:
    """float64[vocabulary], log-probabilities of the next token."""
    logits = states(ids)[-1] @ weights()["output.weight"].astype(np.float64).T
    return logits - logits.max() - np.log(np.exp(logits - logits.max()).sum())


def _normalise(hidden: Any) -> Any:
    return hidden / np.sqrt((hidden**2).mean(axis=1, keepdims=True) + 1e-5)


def _rotate(vectors: Any, turned: Any) -> Any:
    """Rotary positions over pairs that lie side by side, as llama.cpp has them for this architecture."""
    cosine, sine = np.cos(turned)[:, None], np.sin(turned)[:, None]
    even, odd = vectors[..., 0::2], vectors[..., 1::2]
    return np.stack((even * cosine - odd * sine, even * sine + odd * cosine), axis=-1).reshape(vectors.shape)
