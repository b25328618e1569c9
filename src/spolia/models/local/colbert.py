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
    """Address of a ColBERT checkpoint (a `TokenEmbedder` and `Scorer`), read as the code that trained it does.

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
            # the marker, two special tokens, one of the text
            if getattr(self, name) and not 4 <= getattr(self, name) <= self.window:
                raise ModelError(
                    f"LocalColBERT got {name}={getattr(self, name)}. Write a number from 4 to {self.window} (window), "
                    "or 0 for what the checkpoint says."
                )

    @property
    def dimension(self) -> int:
        return len(_projection(self._folder))

    def fingerprint(self) -> str | None:
        base = super().fingerprint()
        if base is None or self.revision:  # a commit stands for the files in its folders too
            return base
        return "|".join((base, *map(hash_of, _dense_files(self._folder))))

    def embed_tokens(self, texts: Sequence[str], *, kind: Kind) -> TokenVectors:
        """Return vectors of length 1 for the tokens of each text that count."""
        vectors: dict[int, Vectors] = {}
        if len(texts):
            session = self.open_session()
            settings, projection = _read_settings(session), _projection(self._folder).astype(np.float64).T
            rows = [self._row(session, settings, text, kind) for text in texts]
            for batch, inputs in self.make_batches(rows):
                if not settings.attends:
                    pairs = zip(inputs["input_ids"], inputs["attention_mask"], strict=True)
                    inputs["attention_mask"] = [
                        [int(is_token and id != settings.filling) for id, is_token in zip(*pair, strict=True)]
                        for pair in pairs
                    ]
                states = session.run(**inputs).last_hidden_state
                for index, number in enumerate(batch):
                    row = rows[number]
                    counts = [kind == "query" or id not in settings.skipped for id in row]
                    hidden = states[index, : len(row)].double().cpu().numpy()
                    vectors[number] = (hidden[np.array(counts)] @ projection).astype(np.float32)
        charge(Usage(embedded=len(texts)))
        return models.vectors.TokenVectors.from_vectors(
            [vectors[number] for number in range(len(texts))], self.dimension
        )

    def scores(self, query: str, texts: Sequence[str]) -> tuple[float, ...]:
        """Return for each text Σ over the question's tokens of their largest product with a token of the text: a
        `Scorer`."""
        question = self.embed_tokens([query], kind="query").row(0)
        return tuple(models.vectors.max_sims(question, self.embed_tokens(texts, kind="passage")).tolist())

    @property
    def _folder(self) -> Path:
        return folder_of(self.model, self.revision)

    def _row(self, session: ModelSession, settings: _CheckpointSettings, text: str, kind: Kind) -> list[int]:
        """Return the tokens of a text, with its marker in second place; of a question, filled up with [MASK]."""
        is_query = kind == "query"
        length = min((self.query_tokens if is_query else self.passage_tokens) or settings.lengths[kind], self.window)
        marker = settings.markers[kind]
        text = text.lower() if settings.lowers else text
        row = session.ids(text, length - len(marker))  # the marker is put in below, and must not push the end out
        row = [*row[:1], *marker, *row[1:]]
        return row + [settings.filling] * (length - len(row)) if is_query and settings.filling is not None else row


def is_colbert(folder: Path) -> bool:
    """Return whether the files of a folder declare a ColBERT checkpoint."""
    kinds = json_of(folder / "config.json").get("architectures")
    is_declared = (folder / METADATA).is_file() or "query_prefix" in json_of(folder / PROMPTS)
    return is_declared or (isinstance(kinds, list) and any("colbert" in str(kind).lower() for kind in kinds))


@dataclass(frozen=True, eq=False)
class _CheckpointSettings:
    """Settings of a checkpoint for reading texts; `filling` is the token that fills up questions, None for none."""

    markers: dict[Kind, tuple[int, ...]]
    lengths: dict[Kind, int]
    skipped: frozenset[int]
    filling: int | None
    attends: bool
    lowers: bool = False


@lru_cache(maxsize=8)
def _read_settings(session: ModelSession) -> _CheckpointSettings:
    """Return the settings in the files of a checkpoint, and the defaults of the code that wrote them."""
    folder, tokenizer = session.folder, session.tokenizer
    config = json_of(folder / PROMPTS)
    if "query_prefix" in config:
        skipped = tokenizer.convert_tokens_to_ids(config.get("skiplist_words", list(string.punctuation)))
        return _CheckpointSettings(
            {"query": _marker(session, config["query_prefix"]), "passage": _marker(session, config["document_prefix"])},
            {"query": config.get("query_length", 32), "passage": config.get("document_length", 180)},
            frozenset(skipped),
            tokenizer.mask_token_id if config.get("do_query_expansion", True) else None,
            bool(config.get("attend_to_expansion_tokens", False)),
            bool(json_of(folder / "sentence_bert_config.json").get("do_lower_case", False)),
        )
    config = json_of(folder / METADATA)
    signs = string.punctuation if config.get("mask_punctuation", True) else ""
    query, passage = config.get("query_token_id", "[unused0]"), config.get("doc_token_id", "[unused1]")
    return _CheckpointSettings(
        {"query": _marker(session, query), "passage": _marker(session, passage)},
        {"query": config.get("query_maxlen", 32), "passage": config.get("doc_maxlen", 220)},
        frozenset(session.read(sign, add_special_tokens=False)["input_ids"][0] for sign in signs),
        tokenizer.mask_token_id,
        bool(config.get("attend_to_mask_tokens", False)),
    )


def _marker(session: ModelSession, token: str) -> tuple[int, ...]:
    """Return the number of the token that marks a kind of text; none if the checkpoint has none."""
    if not token:
        return ()
    token_id = session.tokenizer.convert_tokens_to_ids(token)
    if token_id is None or token_id == session.tokenizer.unk_token_id:
        raise WeightsError(
            f"The tokenizer in {session.folder} has no token {token!r}, which marks questions or passages. Write a "
            "ColBERT checkpoint, or use LocalTokenEmbedder for a model without markers."
        )
    return (int(token_id),)


def _dense_files(folder: Path) -> list[Path]:
    """List the files of the projections that have folders of their own, in the order in which they are applied."""
    return [path / "model.safetensors" for kind, path in modules_of(folder) if kind == "Dense"]


def _projection(folder: Path) -> Vectors:
    """Return float32[dimension, width], which maps hidden states to the vectors of tokens."""
    matrix: Any = None
    dense = _dense_files(folder)
    for file in dense:
        config, tensors = json_of(file.with_name("config.json")), safetensors.read(file) if file.is_file() else {}
        is_linear = config.get("activation_function", "Identity").endswith("Identity") and not config.get(
            "use_residual"
        )
        if set(tensors) != {PROJECTION} or not is_linear:
            raise WeightsError(
                f"{file.parent} is not a plain projection: it has "
                f"{', '.join(sorted(tensors)) or 'no float32 tensors'}, "
                f"activation {config.get('activation_function', 'Identity')}. Write a checkpoint whose projection is "
                f"{PROJECTION} alone."
            )
        matrix = tensors[PROJECTION] if matrix is None else tensors[PROJECTION] @ matrix
    # Without projections of their own, the weights of the model itself hold the matrix.
    for file in [] if dense else sorted(folder.glob("*.safetensors")):
        matrix = safetensors.read(file).get(PROJECTION, matrix)
    if matrix is None or matrix.ndim != 2:
        raise WeightsError(
            f"{folder} has no float32 matrix {PROJECTION!r}: it is not a ColBERT checkpoint. Write one, or use "
            "LocalTokenEmbedder for the hidden states of any encoder."
        )
    projection: Vectors = matrix
    return projection
