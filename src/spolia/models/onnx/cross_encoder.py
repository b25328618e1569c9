"""Cross-encoders on onnxruntime, without torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from math import isfinite
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from spolia.core.run_context import charge, check_cancelled, record_access
from spolia.deferred import numpy as np
from spolia.deferred import onnxruntime, tokenizers
from spolia.errors import ModelError, ModelRejected, WeightsError, require
from spolia.models.file_hash import hash_of
from spolia.models.open_sessions import OpenSessions
from spolia.types import Usage, Value

GRAPHS = ("model.onnx", "onnx/model.onnx")
"""Where repositories of such models keep the graph with its weights."""
TOKENIZER = "tokenizer.json"
INPUTS = ("input_ids", "attention_mask", "token_type_ids")


@dataclass(frozen=True)
class OnnxCrossEncoder(Value):
    """Address of a cross-encoder in the ONNX format (a `Scorer`); opened on first use, once per process.

    Each text is run alone, so that a score does not depend on the texts beside it, to the last bit.

    Args:
        model: folder with `tokenizer.json` and `model.onnx`, or `onnx/model.onnx`.
        file: another graph in that folder, as `onnx/model_quint8_avx2.onnx`.
        window: tokens of question and text together; of what is too long, the longer is cut.
        label: which of the model's classes says that the text answers. Its score is the logit where there is one class,
            else the natural log-probability of this one.
        threads: CPU threads for one call.

    Raises:
        WeightsError: on first use, when the files do not exist or hold another kind of model.
        MissingExtra: on first use, when onnxruntime or tokenizers is not installed.

    >>> OnnxCrossEncoder("models/ms-marco-MiniLM-L6-v2").window
    512
    """

    model: str
    file: str = ""
    window: int = 512
    label: int = -1
    threads: int = 1

    waits: ClassVar[bool] = False
    scoped: ClassVar[bool] = False

    def __post_init__(self) -> None:
        for name in ("window", "threads"):
            if getattr(self, name) < 1:
                raise ModelError(f"OnnxCrossEncoder got {name}={getattr(self, name)}. Write a number of at least 1.")
        # it may come in a flow file from somebody else
        if Path(self.file).is_absolute() or ".." in Path(self.file).parts:
            raise ModelError(f"OnnxCrossEncoder got file={self.file!r}. Write a path within the folder {self.model}.")

    @property
    def name(self) -> str:
        fingerprint = self.fingerprint()
        folder_name = Path(self.model).name
        return (
            f"{folder_name}@{blake2b(fingerprint.encode(), digest_size=4).hexdigest()}" if fingerprint else folder_name
        )

    def exists(self) -> bool:
        """Return whether the folder has such files; they are not opened."""
        try:
            return bool(self._files())
        except WeightsError:
            return False

    def fingerprint(self) -> str | None:
        """Return the identity of its files and settings; None if there are no files."""
        if not self.exists():
            return None
        graph, tokenizer = self._files()
        return f"{hash_of(graph)}|{hash_of(tokenizer)}|{self.window}|{self.label}"

    def scores(self, query: str, texts: Sequence[str]) -> tuple[float, ...]:
        """Return one score for each text, in their order; higher is better.

        Raises:
            ModelError: the model lacks this label.
            ModelRejected: a score is not a finite number.
        """
        if not len(texts):
            return ()
        record_access(self)
        loaded, scores = self._get_loaded(), []
        for text in texts:
            check_cancelled()
            # The tokenizer refuses halves of surrogate pairs.
            scores.append(self._score(loaded, *(part.encode("utf-8", "replace").decode() for part in (query, text))))
            charge(Usage(embedded=1))
        if not all(map(isfinite, scores)):
            raise ModelRejected(f"{self.name} gave a score that is not a finite number. Check the weights.")
        return tuple(scores)

    def _score(self, loaded: _LoadedModel, query: str, text: str) -> float:
        encoding = loaded.tokenizer.encode(query, text)
        rows = dict(zip(INPUTS, (encoding.ids, encoding.attention_mask, encoding.type_ids), strict=True))
        inputs = {name: np.array([rows[name]], np.int64) for name in loaded.inputs}
        logits = np.asarray(loaded.session.run(None, inputs)[0], np.float64).reshape(-1)
        if not -len(logits) <= self.label < len(logits):
            raise ModelError(f"{self.name} has {len(logits)} classes, not {self.label}. Write a smaller label.")
        if len(logits) == 1:
            return float(logits[0])
        highest = logits.max()  # subtracted so that exp cannot overflow
        return float(logits[self.label] - highest - np.log(np.exp(logits - highest).sum()))

    def _files(self) -> tuple[Path, Path]:
        folder = Path(self.model).expanduser()
        graph = next(
            (folder / name for name in ([self.file] if self.file else GRAPHS) if (folder / name).is_file()), None
        )
        if graph is None or not (folder / TOKENIZER).is_file():
            raise WeightsError(
                f"{self.model!r} is not a folder with {TOKENIZER} and {self.file or ' or '.join(GRAPHS)}. Write the "
                "path of a cross-encoder in the ONNX format."
            )
        return graph, folder / TOKENIZER

    def _get_loaded(self) -> _LoadedModel:
        graph, tokenizer = self._files()
        key = (graph, tokenizer, self.window, self.threads)
        return _sessions.get(key, lambda: _LoadedModel.load(*key))


class _LoadedModel(NamedTuple):
    """Session, the names of its inputs, and the tokenizer."""

    session: Any
    inputs: tuple[str, ...]
    tokenizer: Any

    @classmethod
    def load(cls, graph: Path, vocabulary: Path, window: int, threads: int) -> _LoadedModel:
        require(onnxruntime, "Reranking by an ONNX model")
        require(tokenizers, "Reranking by an ONNX model")
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        # Idle threads that spin burn CPU.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        try:
            session = onnxruntime.InferenceSession(str(graph), options, providers=["CPUExecutionProvider"])
            tokenizer = tokenizers.Tokenizer.from_file(str(vocabulary))
        except Exception as error:  # both raise their own kinds
            raise WeightsError(
                f"{graph} or {vocabulary} cannot be opened: {str(error).strip().splitlines()[0]:.300}"
            ) from error
        inputs = tuple(entry.name for entry in session.get_inputs())
        if unknown := [name for name in inputs if name not in INPUTS]:
            raise WeightsError(f"{graph} wants {unknown[0]!r}, and a cross-encoder is given {', '.join(INPUTS)}.")
        tokenizer.no_padding()
        tokenizer.enable_truncation(window, strategy="longest_first")
        tokenizer.encode_special_tokens = True  # a [SEP] in a text is text
        return cls(session, inputs, tokenizer)


_sessions = OpenSessions[_LoadedModel]()
