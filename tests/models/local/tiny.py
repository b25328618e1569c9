"""Tiny models with random weights, and a tokenizer that is trained on the spot: what tests of local models open."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

TEXTS = (
    "Who employed Carsten Olsen? Nokia employed Carsten Olsen in Salo.",
    "The moon pulls the sea, and ships wait for the tide.",
    "Salt is dug in mines near Hallstatt. 7,000 years of it!",
)
TEMPLATE = (
    "{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
SMALL = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}


def is_installed() -> bool:
    """Whether torch and transformers are there; to import them takes seconds, which is left to the tests."""
    return bool(find_spec("torch") and find_spec("transformers"))


def word_pieces(folder: Path, more: Sequence[str] = ()) -> Any:
    """A tokenizer of words in lower case, with [CLS] before and [SEP] after, and [UNK] for what it does not know.

    `more` are tokens beside these, as the [unused0] of BERT.
    """
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer.train_from_iterator(TEXTS, trainers.WordPieceTrainer(vocab_size=200, special_tokens=[*specials, *more]))
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    special_tokens = dict(
        zip(("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"), specials, strict=True)
    )
    fast_tokenizer = PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special_tokens)
    fast_tokenizer.save_pretrained(folder)
    return fast_tokenizer


def byte_tokenizer(folder: Path, template: str = TEMPLATE) -> Any:
    """A tokenizer of bytes and some merges, which knows every text and puts nothing around it."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    specials = ["<|end|>", "<|system|>", "<|user|>", "<|assistant|>"]
    trainer = trainers.BpeTrainer(
        vocab_size=300, special_tokens=specials, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    tokenizer.train_from_iterator(TEXTS, trainer)
    fast_tokenizer = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|end|>", pad_token="<|end|>")
    fast_tokenizer.chat_template = template or None
    fast_tokenizer.save_pretrained(folder)
    return fast_tokenizer


def save_model(folder: Path, kind: str, config: Any, seed: int = 0) -> Any:
    """A model of a class of transformers with random weights, saved."""
    import torch
    import transformers

    torch.manual_seed(seed)
    model = getattr(transformers, kind)(config)
    with torch.no_grad():  # as they are made weights are so small that all tokens are as probable
        for parameter in model.parameters():
            parameter.mul_(8.0 if parameter.ndim > 1 else 1.0)
    model.eval().save_pretrained(folder, safe_serialization=True)
    return model


def bert(folder: Path, kind: str = "BertModel", seed: int = 0, tokens: Sequence[str] = (), **more: Any) -> Any:
    """An encoder of 16 numbers a token; `tokens` are in its vocabulary beside those of words."""
    from transformers import BertConfig

    tokenizer = word_pieces(folder, tokens)
    config = BertConfig(vocab_size=len(tokenizer), max_position_embeddings=512, pad_token_id=0, **SMALL, **more)
    return save_model(folder, kind, config, seed)


def llama(folder: Path, template: str = TEMPLATE, kind: str = "LlamaForCausalLM", positions: int = 1000) -> Any:
    """A decoder of 16 numbers a token."""
    from transformers import LlamaConfig

    tokenizer = byte_tokenizer(folder, template)
    config = LlamaConfig(
        vocab_size=len(tokenizer), max_position_embeddings=positions, eos_token_id=0, bos_token_id=None, pad_token_id=0,
        num_key_value_heads=1, **SMALL,
    )  # fmt: skip
    return save_model(folder, kind, config)


def t5(folder: Path) -> Any:
    """An encoder-decoder of 16 numbers a token."""
    from transformers import T5Config

    tokenizer = byte_tokenizer(folder, "")
    config = T5Config(
        vocab_size=len(tokenizer), d_model=16, d_kv=8, d_ff=32, num_layers=2, num_heads=2, pad_token_id=0,
        eos_token_id=0, decoder_start_token_id=1,
    )  # fmt: skip
    return save_model(folder, "T5ForConditionalGeneration", config)


def clip(folder: Path) -> Any:
    """A model of pictures of 16 by 16 points and of texts, with 8 numbers each."""
    from transformers import CLIPConfig
    from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

    tokenizer = word_pieces(folder)
    text = SMALL | {"vocab_size": len(tokenizer), "max_position_embeddings": 77, "eos_token_id": 3, "pad_token_id": 0}
    vision = SMALL | {"image_size": 16, "patch_size": 8}
    sizes = {"size": {"shortest_edge": 16}, "crop_size": {"height": 16, "width": 16}}
    CLIPImageProcessorPil(**sizes).save_pretrained(folder)
    return save_model(folder, "CLIPModel", CLIPConfig(text_config=text, vision_config=vision, projection_dim=8))
