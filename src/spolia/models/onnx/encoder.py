"""An open session of the sentence encoder: what a `MiniLM` address stands for in one process."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spolia.errors import MissingExtra, WeightsError
from spolia.models.onnx import safetensors
from spolia.models.onnx.graph import EncoderShape, sentence_encoder

if TYPE_CHECKING:
    from spolia.types.arrays import Vectors


class Encoder:
    """Runs the graph of an encoder over rows of token numbers. May be used by several threads at a time."""

    def __init__(self, path: Path, shape: EncoderShape, threads: int) -> None:
        try:
            import onnxruntime
        except ImportError as error:
            raise MissingExtra("embeddings", "onnxruntime", "Embedding texts") from error
        graph, names = sentence_encoder(shape)
        tensors = safetensors.read(path)
        if missing := [name for name in names if name not in tensors]:
            raise WeightsError(f"{path} has no tensor {missing[0]}. Fetch the weights again.")
        # The session reads the mapped arrays in place and does not own them: they must live as long as it does.
        self._given = [onnxruntime.OrtValue.ortvalue_from_numpy(tensors[name]) for name in names]
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.enable_mem_pattern = False  # it remembers a plan per shape, and every batch has another
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # idle threads burn no CPU
        options.add_external_initializers(list(names), self._given)
        self._session: Any = onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])

    def encoded(self, rows: Sequence[Sequence[int]]) -> "Vectors":
        """One vector of length 1 for each row of token numbers; all rows have one length (`models.batches`)."""
        import numpy as np

        ids = np.array(rows, np.int64)
        given = {"input_ids": ids, "attention_mask": np.ones(ids.shape, np.int32)}
        found: Vectors = self._session.run(["embedding"], given)[0]
        return found
