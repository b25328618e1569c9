"""ColBERT checkpoints: a marker before each text, questions filled up with [MASK], passages without punctuation."""

from __future__ import annotations

import string
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spolia import models
from spolia.core.run_context import charge
from spolia.deferred import numpy as np
from spolia.errors import ModelError, WeightsError
from spolia.models.file_hash import hash_of
from spolia.models.local.address import PROMPTS, Local, ModelSession, folder_of, json_of, modules_of
from spolia.models.onnx import safetensors
from spolia.models.protocols import Kind
from spolia.types import Usage

if TYPE_CHECKING:
    from spolia.models.vectors import TokenVectors
    from spolia.types.arrays import Vectors

PROJECTION = "linear.weight"
METADATA = "artifact.metadata"


@dataclass(frozen=True)
class LocalColBERT(Local):
    """The address of a ColBERT checkpoint (a `TokenEmbedder` and `Scorer`), read as the code that trained it does.

    With W the projection, and h_t what the encoder gives for a token, E(t) = W h_t / |W h_t| of

        question: [CLS] [Q] q_1 … q_n [SEP] [MASK] … [MASK], up to `query_tokens` tokens; all vectors count
        passage:  [CLS] [D] d_1 … d_m [SEP], cut at `passage_tokens`; punctuation is read, and has no vectors

    The other tokens attend to [MASK] only where the checkpoint says so. Its own files say what the markers are, how
    long texts are and which tokens are left out: `artifact.metadata` (stanford-futuredata/ColBERT, as
    `colbert-ir/colbertv2.0`), or `config_sentence_transformers.json` with the projection in `1_Dense` (PyLate). Its
    other settings are those of every `Local`. A marker that is written in a text is text.

    Args:
        query_tokens: length of a question, marker and special tokens included; 0 as the checkpoint says.
        passage_tokens: longest passage, in the same way.

    Raises:
        ModelError: a length leaves no room for a token of the text.
        WeightsError: on first use, where a marker or the projection is missing, or is of a kind that is not known.

    Source: Khattab, Zaharia, "ColBERT: efficient and effective passage search via contextualized late interaction over
    BERT", SIGIR 2020; Santhanam et al., "ColBERTv2", NAACL 2022.

    >>> LocalColBERT("models/colbertv2.0").query_tokens
    0
    """

    query_tokens: int = 0
    passage_tokens: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("query_tokens", "passage_tokens"):
            if getattr(self, name) and not 4 <= getattr(self, name) <= self.window:
                raise ModelError(
                    f"LocalColBERT got {name}={getattr(self, name)}. Write a number from 4 to {self.window} (window), "
                    "or 0 for what the checkpoint says."
                )

    @property
    def dimension(self) -> int:
        return len(_projection(self._folder))

    def fingerprint(self) -> str | None:
        known = super().fingerprint()
        if known is None or self.revision:  # a commit stands for the files in its folders too
            return known
        return "|".join((known, *map(hash_of, _dense(self._folder))))

    def embed_tokens(self, texts: Sequence[str], *, kind: Kind) -> TokenVectors:
        """Vectors of length 1 for the tokens of each text that count."""
        found: dict[int, Vectors] = {}
        if len(texts):
            opened = self.opened()
            reading, onto = _reading(opened), _projection(self._folder).astype(np.float64).T
            rows = [self._row(opened, reading, text, kind) for text in texts]
            for batch, given in self.in_batches(rows):
                if not reading.attends:
                    pairs = zip(given["input_ids"], given["attention_mask"], strict=True)
                    given["attention_mask"] = [
                        [int(there and id != reading.filling) for id, there in zip(*pair, strict=True)]
                        for pair in pairs
                    ]
                states = opened.run(**given).last_hidden_state
                for at, number in enumerate(batch):
                    row = rows[number]
                    counts = [kind == "query" or id not in reading.skipped for id in row]
                    hidden = states[at, : len(row)].double().cpu().numpy()
                    found[number] = (hidden[np.array(counts)] @ onto).astype(np.float32)
        charge(Usage(embedded=len(texts)))
        return models.vectors.TokenVectors.of([found[number] for number in range(len(texts))], self.dimension)

    def scores(self, query: str, texts: Sequence[str]) -> tuple[float, ...]:
        """For each text Σ over the question's tokens of their largest product with a token of the text: a `Scorer`."""
        asked = self.embed_tokens([query], kind="query").row(0)
        return tuple(models.vectors.max_sims(asked, self.embed_tokens(texts, kind="passage")).tolist())

    @property
    def _folder(self) -> Path:
        return folder_of(self.model, self.revision)

    def _row(self, opened: ModelSession, reading: _Reading, text: str, kind: Kind) -> list[int]:
        """The tokens of a text, with its marker in second place; of a question, filled up with [MASK]."""
        is_query = kind == "query"
        length = min((self.query_tokens if is_query else self.passage_tokens) or reading.lengths[kind], self.window)
        marker = reading.markers[kind]
        text = text.lower() if reading.lowers else text
        row = opened.ids(text, length - len(marker))
        row = [*row[:1], *marker, *row[1:]]
        return row + [reading.filling] * (length - len(row)) if is_query and reading.filling is not None else row


def is_colbert(folder: Path) -> bool:
    """Whether the files of a folder are those of a ColBERT checkpoint, by what they say of themselves."""
    kinds = json_of(folder / "config.json").get("architectures")
    said = (folder / METADATA).is_file() or "query_prefix" in json_of(folder / PROMPTS)
    return said or (isinstance(kinds, list) and any("colbert" in str(kind).lower() for kind in kinds))


@dataclass(frozen=True, eq=False)
class _Reading:
    """How a checkpoint reads texts; `filling` is the token that questions are filled up with, None for none."""

    markers: dict[Kind, tuple[int, ...]]
    lengths: dict[Kind, int]
    skipped: frozenset[int]
    filling: int | None
    attends: bool
    lowers: bool = False


@lru_cache(maxsize=8)
def _reading(opened: ModelSession) -> _Reading:
    """What the files of a checkpoint say, and the defaults of the code that wrote them."""
    folder, tokenizer = opened.folder, opened.tokenizer
    said = json_of(folder / PROMPTS)
    if "query_prefix" in said:
        skipped = tokenizer.convert_tokens_to_ids(said.get("skiplist_words", list(string.punctuation)))
        return _Reading(
            {"query": _marker(opened, said["query_prefix"]), "passage": _marker(opened, said["document_prefix"])},
            {"query": said.get("query_length", 32), "passage": said.get("document_length", 180)},
            frozenset(skipped),
            tokenizer.mask_token_id if said.get("do_query_expansion", True) else None,
            bool(said.get("attend_to_expansion_tokens", False)),
            bool(json_of(folder / "sentence_bert_config.json").get("do_lower_case", False)),
        )
    said = json_of(folder / METADATA)
    signs = string.punctuation if said.get("mask_punctuation", True) else ""
    query, passage = said.get("query_token_id", "[unused0]"), said.get("doc_token_id", "[unused1]")
    return _Reading(
        {"query": _marker(opened, query), "passage": _marker(opened, passage)},
        {"query": said.get("query_maxlen", 32), "passage": said.get("doc_maxlen", 220)},
        frozenset(opened.read(sign, add_special_tokens=False)["input_ids"][0] for sign in signs),
        tokenizer.mask_token_id,
        bool(said.get("attend_to_mask_tokens", False)),
    )


def _marker(opened: ModelSession, token: str) -> tuple[int, ...]:
    """The number of the token that marks a kind of text; none where the checkpoint has none."""
    if not token:
        return ()
    found = opened.tokenizer.convert_tokens_to_ids(token)
    if found is None or found == opened.tokenizer.unk_token_id:
        raise WeightsError(
            f"The tokenizer in {opened.folder} has no token {token!r}, which marks questions or passages. Write a "
            "ColBERT checkpoint, or use LocalTokenEmbedder for a model without markers."
        )
    return (int(found),)


def _dense(folder: Path) -> list[Path]:
    """The files of the projections that are in folders of their own, in the order in which they are applied."""
    return [path / "model.safetensors" for kind, path in modules_of(folder) if kind == "Dense"]


def _projection(folder: Path) -> Vectors:
    """float32[dimension, width], which maps hidden states to the vectors of tokens."""
    found: Any = None
    dense = _dense(folder)
    for file in dense:
        said, tensors = json_of(file.with_name("config.json")), safetensors.read(file) if file.is_file() else {}
        is_linear = said.get("activation_function", "Identity").endswith("Identity") and not said.get("use_residual")
        if set(tensors) != {PROJECTION} or not is_linear:
            raise WeightsError(
                f"{file.parent} is not a plain projection: it has "
                f"{', '.join(sorted(tensors)) or 'no float32 tensors'}, "
                f"activation {said.get('activation_function', 'Identity')}. Write a checkpoint whose projection is "
                f"{PROJECTION} alone."
            )
        found = tensors[PROJECTION] if found is None else tensors[PROJECTION] @ found
    for file in [] if dense else sorted(folder.glob("*.safetensors")):
        found = safetensors.read(file).get(PROJECTION, found)
    if found is None or found.ndim != 2:
        raise WeightsError(
            f"{folder} has no float32 matrix {PROJECTION!r}: it is not a ColBERT checkpoint. Write one, or use "
            "LocalTokenEmbedder for the hidden states of any encoder."
        )
    projection: Vectors = found
    return projection
