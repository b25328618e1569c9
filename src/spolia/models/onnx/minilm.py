"""The embedder all-MiniLM-L6-v2 on onnxruntime: texts of one length together, so that no vector depends on others."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from spolia.core.run_context import charge, check_cancelled, record_access
from spolia.deferred import numpy as np
from spolia.deferred import onnxruntime
from spolia.errors import ModelError, require
from spolia.models.onnx import safetensors, weights
from spolia.models.onnx.tokenizer import SPECIALS, WordPiece
from spolia.models.open_sessions import OpenSessions
from spolia.models.protocols import Kind
from spolia.types import Usage, Value


def batches(lengths: Sequence[int], batch_tokens: int) -> Iterator[list[int]]:
    """Yield rows in batches of one length, longest first; a batch holds at most `batch_tokens`, or one row.

    What a model computes for a row then has the same shape, whatever the other rows are: padding changes the order in
    which numbers are added, and so their last bits.

    >>> list(batches([3, 9, 3, 5, 3], 6))
    [[1], [3], [0, 2], [4]]
    """
    batch: list[int] = []
    for row in sorted(range(len(lengths)), key=lambda row: -lengths[row]):
        if batch and (lengths[row] != lengths[batch[0]] or lengths[row] * (len(batch) + 1) > batch_tokens):
            yield batch
            batch = []
        batch.append(row)
    if batch:
        yield batch


if TYPE_CHECKING:
    import numpy.typing as npt

    from spolia.types.arrays import Vectors


GRAPH = Path(__file__).with_name("minilm.onnx")
"""The operators, written by `python -m tests.minilm_graph`; the weights stay in their file."""
SORTED_TEXTS = 4096
"""Texts that are read at a time, to be sorted by length; bounds the memory for token numbers."""


@dataclass(frozen=True)
class MiniLM(Value):
    """Address of the embedder; opened on first use, once per process, and used by any number of threads.

    Args:
        weights: folder with `model.safetensors` and `tokenizer.json`; empty to look them up
            (`spolia.models.onnx.weights.find`). Their hash is pinned, so that every `MiniLM` gives the same vectors.
        threads: CPU threads for one call. The default leaves the other cores to other callers.
        batch_tokens: texts of one length are run together up to this number of tokens; vectors do not change.
            About 512 keep the activations of one layer in the processor's cache.

    Raises:
        WeightsError: on first use, when there are no weights.
        MissingExtra: on first use, when onnxruntime or tokenizers is not installed.

    >>> vectors = MiniLM().embed(["A cat sat.", "A feline was sitting."], kind="passage")  # doctest: +SKIP
    >>> vectors.shape  # doctest: +SKIP
    (2, 384)
    """

    weights: str = ""
    threads: int = 1
    batch_tokens: int = 512

    def __post_init__(self) -> None:
        for name in ("threads", "batch_tokens"):
            if getattr(self, name) < 1:
                raise ModelError(f"MiniLM got {name}={getattr(self, name)}. Write a number of at least 1.")

    @property
    def name(self) -> str:
        return f"{weights.MODEL}@{weights.SHA256[:8]}"

    dimension: ClassVar[int] = 384
    window: ClassVar[int] = 256
    waits: ClassVar[bool] = False
    scoped: ClassVar[bool] = False
    isolated: ClassVar[bool] = True
    """Worker processes of `sync` may compute it, each with weights of its own."""

    def fingerprint(self) -> str:
        return self.name

    def embed(self, texts: Sequence[str], *, kind: Kind) -> "Vectors":
        """Embed each text as a vector of length 1: float32, shape (texts, 384).

        Queries and passages are read alike: this model has no prefixes. Of a text beyond the window its first 254
        tokens are read. An empty text has a vector too (that of the model's special tokens), and so has one of unknown
        characters only (about the same for every such text: ask `covers` before trusting it).
        """
        vectors = np.empty((len(texts), self.dimension), np.float32)
        if not len(texts):
            return vectors
        record_access(self)
        session, _ = self._get_session()
        for first in range(0, len(texts), SORTED_TEXTS):
            rows = [self.tokenizer.ids(text, self.window) for text in texts[first : first + SORTED_TEXTS]]
            for batch in batches([len(row) for row in rows], self.batch_tokens):
                check_cancelled()
                ids = np.array([rows[number] for number in batch], np.int64)
                inputs = {"input_ids": ids, "attention_mask": np.ones(ids.shape, np.int32)}
                vectors[[first + number for number in batch]] = session.run(["embedding"], inputs)[0]
                charge(Usage(embedded=len(batch)))
        return vectors

    def tokens(self, texts: Sequence[str]) -> list[int]:
        """Return the length of each text in tokens, special ones included; above `window`, its end is not read."""
        return [count + SPECIALS for count in self.tokenizer.count(texts)]

    def covers(self, text: str) -> float:
        """Return the share of the characters that are in the vocabulary."""
        return self.tokenizer.covers(text)

    @property
    def tokenizer(self) -> WordPiece:
        return WordPiece(self.weights)

    def _get_session(self) -> tuple[Any, list[Any]]:
        def make() -> tuple[Any, list[Any]]:
            return open_session(safetensors.read(weights.find(self.weights).tensors), self.threads)

        return _sessions.get((self.weights, self.threads), make)


def open_session(tensors: "Mapping[str, npt.NDArray[np.float32]]", threads: int) -> tuple[Any, list[Any]]:
    """Open a session, and the mapped weights that it reads in place: it does not own them: they live as long."""
    require(onnxruntime, "Embedding texts")
    # the graph has none
    parameters = {name: array for name, array in tensors.items() if not name.startswith("pooler.")}
    values = [onnxruntime.OrtValue.ortvalue_from_numpy(array) for array in parameters.values()]
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.enable_mem_pattern = False  # it remembers a plan per shape, and every batch has another
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # idle threads burn no CPU
    options.add_external_initializers(list(parameters), values)
    return onnxruntime.InferenceSession(GRAPH.read_bytes(), options, providers=["CPUExecutionProvider"]), values


_sessions = OpenSessions[tuple[Any, list[Any]]]()
