"""Which kind of reranker the files of a model describe."""

from pathlib import Path

from spolia.models.local.address import config_of, folder_of
from spolia.models.local.colbert import LocalColBERT, is_colbert
from spolia.models.local.embedders import LocalCrossEncoder, LocalLLMReranker
from spolia.models.onnx.cross_encoder import OnnxCrossEncoder
from spolia.models.protocols import Scorer


def scorer_of(place: str, model: str, revision: str) -> Scorer:
    """Return a reranker in ONNX if the folder has one, else ColBERT, a language model or a cross-encoder for torch."""
    in_onnx = OnnxCrossEncoder(place)
    if in_onnx.exists() and not is_colbert(Path(place).expanduser()):
        return in_onnx
    if is_colbert(folder_of(model, revision)):
        return LocalColBERT(model, revision)
    architectures = config_of(model, revision).get("architectures")
    generates = isinstance(architectures, list) and any(str(name).endswith("ForCausalLM") for name in architectures)
    return LocalLLMReranker(model, revision) if generates else LocalCrossEncoder(model, revision)
