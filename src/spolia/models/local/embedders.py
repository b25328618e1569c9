"""Local models that read texts or pictures: embedders of four kinds, and cross-encoders."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from spolia import models
from spolia.core.run_context import charge, check_cancelled
from spolia.deferred import Image
from spolia.deferred import numpy as np
from spolia.errors import ModelError, ModelRejected, WeightsError, require
from spolia.models.local.address import (
    PROMPTS,
    Local,
    ModelSession,
    config_of,
    folder_of,
    json_of,
    modules_of,
    torch,
    transformers,
)
from spolia.models.onnx import safetensors
from spolia.models.protocols import Kind
from spolia.types import Usage

if TYPE_CHECKING:
    from spolia.models.vectors import SparseRows, TokenVectors
    from spolia.types.arrays import Vectors


_WIDTHS = ("hidden_size", "d_model", "n_embd", "dim")


@dataclass(frozen=True)
class LocalEncoder(Local):
    """Base of the local models that embed texts; its settings are those of every `Local`.

    Args:
        query_prefix, passage_prefix: what the model wants before each: `query: `, or an instruction. By default the
            prompts `query` and `document` (or `passage`) of its `config_sentence_transformers.json`, else nothing.
        end: whether the token that ends a text is put after it, for models that want it and whose tokenizer does not.
    """

    query_prefix: str | None = None
    passage_prefix: str | None = None
    end: bool = False

    @property
    def resolved(self) -> Self:
        config = json_of(folder_of(self.model, self.revision) / PROMPTS)
        prompts = config.get("prompts") or {}

        def prefix(explicit: str | None, *names: str) -> str:
            if explicit is not None:
                return explicit
            prompts_by_name = (prompts[name] for name in (*names, config.get("default_prompt_name")) if name in prompts)
            return str(next(prompts_by_name, ""))

        return self.but(
            query_prefix=prefix(self.query_prefix, "query"),
            passage_prefix=prefix(self.passage_prefix, "document", "passage", "corpus"),
        )

    @property
    def width(self) -> int:
        """Return the length of a hidden state, as config.json says; nothing is opened for that."""
        config = config_of(self.model, self.revision)
        widths = [config[name] for name in _WIDTHS if isinstance(config.get(name), int)]
        if not widths:
            raise WeightsError(f"config.json of {self.model} has none of {', '.join(_WIDTHS)}: it embeds no texts.")
        return int(widths[0])

    def tokens(self, texts: Sequence[str]) -> list[int]:
        """Return the length of each text in tokens, with special ones and a passage's prefix; beyond `window` nothing
        is read."""
        return [len(row) for row in self.rows(texts, "passage", uncut=True)]

    def covers(self, text: str) -> float:
        """Return the share of characters that are not mapped to the token for unknown ones; 1 for an empty text."""
        if not text:
            return 1.0
        session = self.open_session()
        encoding = session.read(text, return_offsets_mapping=True, add_special_tokens=False)
        tokens = zip(encoding["offset_mapping"], encoding["input_ids"], strict=True)
        unknown = [range(*ends) for ends, id in tokens if id == session.tokenizer.unk_token_id]
        return 1.0 - len({position for places in unknown for position in places}) / len(text)

    def rows(self, texts: Sequence[str], kind: Kind, *, uncut: bool = False) -> list[list[int]]:
        """Return the tokens of each text with its prefix; a long one is cut to the window, unless `whole`."""
        session, resolved = self.open_session(), self.resolved
        prefix = resolved.query_prefix if kind == "query" else resolved.passage_prefix
        rows = [session.ids(f"{prefix}{text}", None if uncut else self.window) for text in texts]
        ending = session.tokenizer.eos_token_id if self.end else None
        if ending is None:
            return rows
        # One place is kept for the token that ends the text.
        room = None if uncut else self.window - 1
        return [row if row[-1] == ending else [*row[:room], ending] for row in rows]

    def hidden_states(self, texts: Sequence[str], *, kind: Kind = "passage", layer: int = -1) -> list[Vectors]:
        """Return the outputs of a layer for each token of each text: float32, shape (tokens, width).

        Args:
            layer: 0 for what the first one is given, 1 for what it gives, -1 for what the last gives.

        Raises:
            ModelError: the model lacks this layer.
        """
        states: dict[int, Vectors] = {}
        for batch, hidden, mask in self.hidden_batches(texts, kind, layer):
            lengths = mask.sum(dim=1).tolist()
            states |= {row: hidden[index, : lengths[index]].float().cpu().numpy() for index, row in enumerate(batch)}
        return [states[row] for row in range(len(texts))]

    def hidden_batches(self, texts: Sequence[str], kind: Kind, layer: int = -1) -> Iterator[tuple[list[int], Any, Any]]:
        """Yield batches of texts by number, with float[texts, tokens, width] of one layer, and the mask of their
        tokens."""
        if not len(texts):
            return
        session = self.open_session()
        for batch, inputs in self.make_batches(self.rows(texts, kind)):
            states = session.run(**inputs, output_hidden_states=True).hidden_states
            if not -len(states) <= layer < len(states):
                raise ModelError(f"{self.name} has no layer {layer}. Write one from 0 to {len(states) - 1}, or -1.")
            mask = torch().tensor(inputs["attention_mask"][: len(batch)], device=self.device)
            yield batch, states[layer][: len(batch)], mask


@dataclass(frozen=True)
class LocalEmbedder(LocalEncoder):
    """Address of a sentence embedder (an `Embedder`); its settings are those of every `LocalEncoder`.

    Args:
        pooling: what of the last hidden states h_1 … h_n becomes the vector: `mean`, their mean over the text's tokens;
            `cls`, h_1; `last`, h_n, for models that read from left to right. Padding counts nowhere. By default what
            its `1_Pooling/config.json` says, else `mean`.

    Raises:
        WeightsError: on first use, where nothing is given and the folder says something else than these three.

    >>> LocalEmbedder("models/e5-small", query_prefix="query: ", passage_prefix="passage: ", pooling="cls").pooling
    'cls'
    """

    pooling: Literal["", "mean", "cls", "last"] = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.pooling not in ("", *POOLING_FUNCTIONS):
            raise ModelError(
                f"LocalEmbedder got pooling={self.pooling!r}. Write one of {', '.join(POOLING_FUNCTIONS)}."
            )

    @property
    def resolved(self) -> Self:
        resolved = super().resolved
        if self.pooling:
            return resolved
        return resolved.but(pooling=pooling_of(folder_of(self.model, self.revision), self.model))

    @property
    def dimension(self) -> int:
        return self.width

    def embed(self, texts: Sequence[str], *, kind: Kind) -> Vectors:
        """Embed each text as a vector of length 1: float32, shape (texts, dimension); of nothing but zeros the first
        unit.

        Raises:
            ModelRejected: a vector has NaN or infinity.
        """
        vectors, pool = np.empty((len(texts), self.dimension), np.float32), POOLING_FUNCTIONS[self.resolved.pooling]
        for batch, hidden, mask in self.hidden_batches(texts, kind):
            vectors[batch] = unit_rows(pool(hidden, mask), self.name)
            charge(Usage(embedded=len(batch)))
        return vectors


MODES = {"pooling_mode_mean_tokens": "mean", "pooling_mode_cls_token": "cls", "pooling_mode_lasttoken": "last"}
COMPUTED_MODULES = ("Transformer", "Pooling", "Normalize")
"""Modules of sentence-transformers that a `LocalEmbedder` computes."""


def pooling_of(folder: Path, model: str) -> str:
    """Return the pooling that the files of a model name; `mean` if they name none.

    Raises:
        WeightsError: they name one, or a module after it, that `LocalEmbedder` does not compute.
    """
    modules = modules_of(folder)
    config = json_of(dict(modules).get("Pooling", folder / "1_Pooling") / "config.json")
    modes = [MODES.get(name, name) for name, is_on in config.items() if name.startswith("pooling_mode_") and is_on]
    mode = "+".join(modes) or str(config.get("pooling_mode", "mean"))
    unknown = [kind for kind, _ in modules if kind not in COMPUTED_MODULES] + [mode] * (mode not in POOLING_FUNCTIONS)
    unknown += ["include_prompt: false"] * (config.get("include_prompt") is False)
    if unknown:
        raise WeightsError(
            f"{model} is embedded with {unknown[0]}, which LocalEmbedder does not compute. Write another model, or "
            f"pooling={', '.join(POOLING_FUNCTIONS)} to go on with the hidden states alone."
        )
    return mode


def unit_rows(pooled: Any, model_name: str) -> Vectors:
    """Return the rows of a tensor, each at length 1."""
    rows = pooled.double().cpu().numpy()
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    if not np.isfinite(lengths).all():
        raise ModelRejected(f"{model_name} gave a vector with NaN or infinity. Check the weights, or the dtype.")
    rows[lengths[:, 0] == 0.0, 0] = lengths[lengths == 0.0] = 1.0
    scaled: Vectors = (rows / lengths).astype(np.float32)
    return scaled


def mean(hidden: Any, mask: Any) -> Any:
    """Return the mean over the tokens: Σ m_i h_i / Σ m_i, for float[texts, width, d] and their mask [texts, width]."""
    weights = mask.unsqueeze(-1).to(hidden.dtype)
    return (hidden * weights).sum(dim=1) / weights.sum(dim=1)


def first_token(hidden: Any, mask: Any) -> Any:
    """Return the vector of the first token, wherever the padding is."""
    return _select_tokens(hidden, mask.argmax(dim=1))


def last_token(hidden: Any, mask: Any) -> Any:
    """Return the vector of the last token, wherever the padding is."""
    return _select_tokens(hidden, mask.shape[1] - 1 - mask.flip(1).argmax(dim=1))


def _select_tokens(hidden: Any, places: Any) -> Any:
    return hidden[torch().arange(len(hidden), device=hidden.device), places]


POOLING_FUNCTIONS = {"mean": mean, "cls": first_token, "last": last_token}


@dataclass(frozen=True)
class LocalSparseEmbedder(LocalEncoder):
    """Address of a model that weighs the terms of its vocabulary (a `SparseEmbedder`).

    w_v = max_t log(1 + relu(logit_tv)) over the tokens t of the text, special ones included. Terms of weight 0 are left
    out. Its settings are those of every `LocalEncoder`.

    Args:
        batch_tokens: every token of a batch has a logit for every term: 1,024 tokens of 30,000 terms take 125 MB.

    >>> LocalSparseEmbedder("models/splade").batch_tokens
    1024
    """

    batch_tokens: int = 1024

    head: ClassVar[str] = "AutoModelForMaskedLM"

    def embed_sparse(self, texts: Sequence[str], *, kind: Kind) -> SparseRows:
        """Return one row of weights for each text."""
        if not len(texts):
            return models.vectors.SparseRows.from_weights(())
        weights_by_row: dict[int, dict[int, float]] = {}
        session = self.open_session()
        for batch, inputs in self.make_batches(self.rows(texts, kind)):
            logits = session.run(**inputs).logits.float()
            # padding weighs nothing: log(1 + 0)
            logits[torch().tensor(inputs["attention_mask"], device=self.device) == 0] = 0.0
            largest = logits.amax(dim=1)  # first, since relu and log keep the order
            for number, row in zip(batch, largest[: len(batch)].relu().log1p().cpu(), strict=True):
                terms = row.nonzero().flatten()
                weights_by_row[number] = dict(zip(terms.tolist(), row[terms].tolist(), strict=True))
            charge(Usage(embedded=len(batch)))
        return models.vectors.SparseRows.from_weights(weights_by_row[number] for number in range(len(texts)))


@dataclass(frozen=True)
class LocalTokenEmbedder(LocalEncoder):
    """Address of any encoder as a late-interaction model (a `TokenEmbedder`); for ColBERT's files: `LocalColBERT`.

    Its settings are those of every `LocalEncoder`. Every token counts; there are no markers and no [MASK].

    Args:
        projection: name of the tensor float32[dimension, width] that maps hidden states to the vectors of tokens; empty
            to take the hidden states as they are.

    >>> LocalTokenEmbedder("models/late", projection="linear.weight").projection
    'linear.weight'
    """

    projection: str = ""

    @property
    def dimension(self) -> int:
        return len(self._projection()) if self.projection else self.width

    def embed_tokens(self, texts: Sequence[str], *, kind: Kind) -> TokenVectors:
        """Return vectors of length 1 for the tokens of each text, special ones included: E(t) = P h_t / |P h_t|."""
        vectors: list[Vectors] = self.hidden_states(texts, kind=kind)
        if self.projection:
            projection = self._projection().astype(np.float64).T
            vectors = [(states @ projection).astype(np.float32) for states in vectors]
        charge(Usage(embedded=len(texts)))
        return models.vectors.TokenVectors.from_vectors(vectors, self.dimension)

    def own_tokens(self, texts: Sequence[str], *, kind: Kind) -> list[list[bool]]:
        """Tell a text's own tokens, among those of `embed_tokens`, from the special ones put around it."""
        tokenizer = self.open_session().tokenizer
        special = {*tokenizer.all_special_ids} - {tokenizer.unk_token_id}
        return [[id not in special for id in row] for row in self.rows(texts, kind)]

    def _projection(self) -> Vectors:
        for path in sorted(folder_of(self.model, self.revision).glob("*.safetensors")):
            if (matrix := safetensors.read(path).get(self.projection)) is not None and matrix.ndim == 2:
                return matrix
        raise WeightsError(f"{self.model} has no float32 matrix {self.projection!r}. Write another one, or none.")


@dataclass(frozen=True)
class LocalCrossEncoder(Local):
    """Address of a cross-encoder (a `Scorer`); its settings are those of every `Local`.

    Args:
        label: which of the model's classes says that the text answers. Its score is the logit where there is one class,
            else the natural log-probability of this one.
        query_prefix, text_prefix: what the model wants before each, as an instruction.

    >>> LocalCrossEncoder("models/ms-marco").label
    -1
    """

    label: int = -1
    query_prefix: str = ""
    text_prefix: str = ""

    head: ClassVar[str] = "AutoModelForSequenceClassification"

    def scores(self, query: str, texts: Sequence[str]) -> tuple[float, ...]:
        """Return one score for each text, in their order; higher is better. If both are too long together, the longer
        is cut.

        Raises:
            ModelError: the model lacks this label.
            ModelRejected: a score is not a finite number.
        """
        if not len(texts):
            return ()
        session = self.open_session()
        pairs = [self._pair(session, query, text) for text in texts]
        scores: dict[int, float] = {}
        for batch, inputs in self.make_batches([pair["input_ids"] for pair in pairs]):
            if "token_type_ids" in pairs[0]:
                # `make_batches` repeats the last row to keep the shape, so its types are repeated too.
                width, copies = len(inputs["input_ids"][0]), batch[-1:] * (len(inputs["input_ids"]) - len(batch))
                kinds = [pairs[number]["token_type_ids"] for number in (*batch, *copies)]
                inputs["token_type_ids"] = [[*row, *[0] * (width - len(row))] for row in kinds]
            scores |= zip(batch, self._class_scores(session.run(**inputs).logits[: len(batch)]), strict=True)
            charge(Usage(embedded=len(batch)))
        if not all(map(isfinite, scores.values())):
            raise ModelRejected(
                f"{self.name} gave a score that is not a finite number. Check the weights, or the dtype."
            )
        return tuple(scores[number] for number in range(len(texts)))

    def _pair(self, session: ModelSession, query: str, text: str) -> dict[str, list[int]]:
        return session.read(self.query_prefix + query, self.text_prefix + text, window=self.window)

    def _class_scores(self, logits: Any) -> list[float]:
        classes = logits.shape[-1]
        if not -classes <= self.label < classes:
            raise ModelError(f"{self.name} has {classes} classes, none of them {self.label}. Write a smaller label.")
        exact = logits.double()
        scores: list[float] = (exact if classes == 1 else exact.log_softmax(dim=-1))[:, self.label].tolist()
        return scores


@dataclass(frozen=True)
class LocalLLMReranker(Local):
    """Address of a language model that was trained to rerank (a `Scorer`), as `BAAI/bge-reranker-v2-gemma`.

    score(q, d) = the raw logit of `yes` as the next token after

        [BOS] A: q ⏎ B: d ⏎ instruction

    with no probability made of it. A folder that says how it is asked, as sentence-transformers writes it
    (`LogitScore` in `modules.json`), is asked like this: with its chat template for the roles `query` and `document`,
    and the logit of its own token, minus that of its token for no if it has one. Its other settings are those of every
    `Local`.

    Args:
        window: tokens of question and text together; the text is cut, and a question beyond three quarters of it. The
            instruction comes after that.
        instruction: what the model was trained with; with a chat template its system message, by default the prompt of
            the folder.
        yes: the word whose first token is scored, without a chat template.

    Source: Li et al., "Making large language models a better foundation for dense retrieval", 2023; the scoring of
    `FlagLLMReranker` in FlagEmbedding.

    >>> LocalLLMReranker("models/bge-reranker-v2-gemma").yes
    'Yes'
    """

    window: int = 1024
    instruction: str = (
        "Given a query A and a passage B, determine whether the passage contains an answer to the query by providing a "
        "prediction of either 'Yes' or 'No'."
    )
    yes: str = "Yes"

    head: ClassVar[str] = "AutoModelForCausalLM"

    def scores(self, query: str, texts: Sequence[str]) -> tuple[float, ...]:
        """Return one score for each text, in their order; higher is better.

        Raises:
            ModelRejected: a score is not a finite number.
        """
        if not len(texts):
            return ()
        session = self.open_session()
        scoring = dict(modules_of(session.folder)).get("LogitScore")
        if scoring is None:
            yes, no = self._token_ids(session, self.yes)[0], None
            rows = [self._row(session, query, text) for text in texts]
        else:
            config = json_of(scoring / "config.json")
            yes, no = config["true_token_id"], config.get("false_token_id")
            rows = [self._template_row(session, query, text) for text in texts]
        scores: dict[int, float] = {}
        for batch, inputs in self.make_batches(rows):
            logits = session.run(**inputs).logits
            for index, number in enumerate(batch):
                last = logits[index, len(rows[number]) - 1]
                scores[number] = float(last[yes]) - (0.0 if no is None else float(last[no]))
            charge(Usage(embedded=len(batch)))
        if not all(map(isfinite, scores.values())):
            raise ModelRejected(
                f"{self.name} gave a score that is not a finite number. Check the weights, or the dtype."
            )
        return tuple(scores[number] for number in range(len(texts)))

    def _template_row(self, session: ModelSession, query: str, text: str) -> list[int]:
        """Return the tokens of one question and text by the folder's own template; the text is cut to the window."""
        config = json_of(session.folder / PROMPTS)
        prompt = (config.get("prompts") or {}).get(config.get("default_prompt_name"), "")
        if self.instruction != type(self).instruction:
            prompt = self.instruction
        messages = [{"role": "system", "content": prompt}] if prompt else []
        messages.append({"role": "query", "content": session.escape_special_tokens(query)})

        def read(document: str) -> list[int]:
            document = session.escape_special_tokens(document)
            text = session.tokenizer.apply_chat_template(
                [*messages, {"role": "document", "content": document}], tokenize=False, add_generation_prompt=True
            )
            ids: list[int] = session.read(text, marks=True, add_special_tokens=False)["input_ids"]
            return ids

        row = read(text)
        if len(row) > self.window and text:
            ends = session.read(text, return_offsets_mapping=True, add_special_tokens=False)["offset_mapping"]
            room = len(ends) - (len(row) - self.window)
            row = read(text[: ends[room - 1][1]] if room > 0 else "")
        # The end is kept, since the answer follows the last token of the template.
        return row[-self.window :]

    def _row(self, session: ModelSession, query: str, text: str) -> list[int]:
        """Return the tokens of one question and text in the form that the model was trained with."""
        begin, newline = session.tokenizer.bos_token_id, self._token_ids(session, "\n")
        first = [] if begin is None else [int(begin)]
        # as the code that it was published with
        first += self._token_ids(session, f"A: {query}")[: self.window * 3 // 4]
        second = [*newline, *self._token_ids(session, f"B: {text}")]
        return [*first, *second[: self.window - len(first)], *newline, *self._token_ids(session, self.instruction)]

    @staticmethod
    def _token_ids(session: ModelSession, text: str) -> list[int]:
        ids: list[int] = session.read(text, add_special_tokens=False)["input_ids"]
        return ids


@dataclass(frozen=True)
class LocalImageEmbedder(LocalEncoder):
    """Address of a model that embeds pictures and texts (an `ImageEmbedder`).

    Its settings are those of every `LocalEncoder`. Its folder has a `preprocessor_config.json` too, which says how
    pictures are scaled and cut.

    Args:
        window: longest text in tokens; CLIP reads 77.
        images_at_once: pictures that an accelerator runs together, always: fewer are filled up. On the CPU each is run
            alone.

    >>> LocalImageEmbedder("models/clip").window
    77
    """

    window: int = 77
    images_at_once: int = 16

    indifferent: ClassVar[frozenset[str]] = LocalEncoder.indifferent | {"images_at_once"}

    @property
    def dimension(self) -> int:
        config = config_of(self.model, self.revision)
        if not isinstance(dimension := config.get("projection_dim"), int):
            raise WeightsError(f"config.json of {self.model} has no projection_dim: it embeds no pictures.")
        return dimension

    def embed(self, texts: Sequence[str], *, kind: Kind) -> Vectors:
        """Embed each text as a vector of length 1: float32, shape (texts, dimension)."""
        vectors = np.empty((len(texts), self.dimension), np.float32)
        if not len(texts):
            return vectors
        session = self.open_session()
        for batch, inputs in self.make_batches(self.rows(texts, kind)):
            vectors[batch] = self._features(session, "get_text_features", **inputs)[: len(batch)]
            charge(Usage(embedded=len(batch)))
        return vectors

    def embed_images(self, images: Sequence[bytes]) -> Vectors:
        """Embed each picture, a file of PNG, JPEG …, as a vector of length 1: float32, shape (images, dimension)."""
        vectors = np.empty((len(images), self.dimension), np.float32)
        if not len(images):
            return vectors
        session, processor = self.open_session(), self._image_processor()
        count = 1 if self._runs_rows_alone else self.images_at_once
        for start in range(0, len(images), count):
            check_cancelled()
            batch = images[start : start + count]
            pixels = processor(images=[_picture(image) for image in batch], return_tensors="pt")["pixel_values"]
            # The shape is always the same, since torch adds in another order for another shape.
            filled = pixels[[*range(len(batch)), *[0] * (count - len(batch))]].to(self.device, session.model.dtype)
            vectors[start : start + len(batch)] = self._features(session, "get_image_features", pixel_values=filled)[
                : len(batch)
            ]
            charge(Usage(embedded=len(batch)))
        return vectors

    def _features(self, session: ModelSession, method: str, **inputs: Any) -> Vectors:
        outputs = session.run(getattr(session.model, method), **inputs)
        # Newer versions of transformers return an object here, older ones the tensor.
        return unit_rows(getattr(outputs, "pooler_output", outputs), self.name)

    def _image_processor(self) -> Any:
        """Load the processor that scales and cuts pictures, by the model's own file, with Pillow."""
        folder = folder_of(self.model, self.revision)
        try:
            return transformers().AutoImageProcessor.from_pretrained(
                folder, backend="pil", trust_remote_code=False, local_files_only=True
            )
        except Exception as error:
            raise WeightsError(
                f"{folder} does not say how pictures are scaled: {str(error).strip().splitlines()[0]:.300} "
                "Write a folder with a preprocessor_config.json."
            ) from error


def _picture(data: bytes) -> Any:
    require(Image, "Embedding pictures")
    return Image.open(io.BytesIO(data)).convert("RGB")
