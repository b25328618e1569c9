"""Cross-encoders in the ONNX format: tiny ones that are made on the spot."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import numpy as np
import pytest

from spolia.core.codec import decode, encode
from spolia.errors import ModelError, ModelRejected, WeightsError
from spolia.models.onnx.cross_encoder import OnnxCrossEncoder
from spolia.models.protocols import Scorer
from spolia.post_retrieval.rerankers import CrossEncoder
from spolia.types import Hit, Node, Query, Ranking
from tests.models.local import tiny

pytestmark = pytest.mark.slow
WORDS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "red", "stones", "blue", "sea", "salt")
TEXTS = ("blue sea", "red stones", "red sea", "")


def write_counting_encoder(folder: Path, classes: int = 1, weight: float = 1.0) -> Path:
    """A cross-encoder that adds up the numbers of all tokens times `weight`, and of further classes 0."""
    from onnx import TensorProto, checker, helper, save
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    words = Tokenizer(models.WordLevel({word: number for number, word in enumerate(WORDS)}, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    words.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    words.add_special_tokens(["[CLS]", "[SEP]"])
    words.save(str(folder / "tokenizer.json"))
    numbers = helper.make_tensor("weights", TensorProto.FLOAT, [1, classes], [*[0.0] * (classes - 1), weight])
    axes = helper.make_tensor("axes", TensorProto.INT64, [1], [1])
    nodes = [
        helper.make_node("Cast", ["input_ids"], ["floats"], to=TensorProto.FLOAT),
        helper.make_node("ReduceSum", ["floats", "axes"], ["sum"], keepdims=1),
        helper.make_node("MatMul", ["sum", "weights"], ["logits"]),
    ]
    ids = helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["rows", "tokens"])
    logits = helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["rows", classes])
    graph = helper.make_graph(nodes, "counted", [ids], [logits], [numbers, axes])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    checker.check_model(model)
    save(model, str(folder / "model.onnx"))
    return folder


def test_a_score_is_the_logit_of_question_and_text(tmp_path: Path) -> None:
    scorer = OnnxCrossEncoder(str(write_counting_encoder(tmp_path)))
    frame_sum = 2 + 3 + 3  # [CLS] question [SEP] text [SEP]
    expected = tuple(float(frame_sum + 4 + sum(WORDS.index(word) for word in text.split())) for text in TEXTS)
    assert scorer.scores("red", TEXTS) == expected
    assert scorer.scores("red", ()) == ()
    (marked,) = scorer.scores("red", ["[SEP] sea"])
    assert marked == float(frame_sum + 4 + 7 + 3)  # "[", "SEP" and "]" are words that it does not know, and no mark
    assert scorer.but(window=5).scores("red", ["blue sea salt"]) == (
        float(frame_sum + 4 + 6),
    )  # two words of four stay
    assert isinstance(scorer, Scorer)
    assert eval(repr(scorer)) == decode(encode(scorer), classes={"OnnxCrossEncoder": OnnxCrossEncoder}) == scorer


def test_of_several_classes_it_is_the_log_probability_of_one(tmp_path: Path) -> None:
    scorer = OnnxCrossEncoder(str(write_counting_encoder(tmp_path, classes=2, weight=0.1)))
    logit = 0.1 * (8 + 4 + 7)
    assert scorer.scores("red", ["sea"])[0] == pytest.approx(logit - np.log(1 + np.exp(logit)))
    assert scorer.but(label=0).scores("red", ["sea"])[0] == pytest.approx(-np.log(1 + np.exp(logit)))
    with pytest.raises(ModelError, match="has 2 classes, not 2"):
        scorer.but(label=2).scores("red", ["sea"])


def test_it_reranks_and_other_weights_have_another_name(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    scorer = OnnxCrossEncoder(str(write_counting_encoder(tmp_path / "a")))
    ranking = Ranking(Query("red"), tuple(Hit(Node(text, text), 1.0) for text in TEXTS[:3]))
    assert [hit.node.id for hit in CrossEncoder(scorer)(ranking)] == ["blue sea", "red sea", "red stones"]
    other_encoder = OnnxCrossEncoder(str(write_counting_encoder(tmp_path / "b", weight=2.0)))
    assert scorer.fingerprint() != other_encoder.fingerprint()


def test_what_is_no_such_model_is_an_error(tmp_path: Path) -> None:
    scorer = OnnxCrossEncoder(str(tmp_path))
    assert scorer.fingerprint() is None
    with pytest.raises(WeightsError, match="is not a folder with tokenizer"):
        scorer.scores("red", TEXTS)
    write_counting_encoder(tmp_path)
    (tmp_path / "model.onnx").write_bytes(b"no model")
    with pytest.raises(WeightsError, match="cannot be opened"):
        scorer.scores("red", TEXTS)
    with pytest.raises(ModelError, match="a path within the folder"):
        OnnxCrossEncoder("m", file="../other.onnx")
    infinite = tmp_path / "infinite"
    infinite.mkdir()
    with pytest.raises(ModelRejected, match="not a finite number"):
        OnnxCrossEncoder(str(write_counting_encoder(infinite, weight=float("inf")))).scores("red", TEXTS)


@pytest.mark.skipif(not tiny.is_installed(), reason="the extra local is not installed")
def test_a_model_that_was_exported_scores_as_it_does_in_torch(tmp_path: Path) -> None:
    import torch

    from spolia.models.local.embedders import LocalCrossEncoder

    raw = tiny.bert(tmp_path, "BertForSequenceClassification", num_labels=1)
    names = ("input_ids", "attention_mask", "token_type_ids")
    config = tmp_path / "tokenizer_config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"model_input_names": names}))
    axes = {name: {0: "rows", 1: "tokens"} for name in names}
    sample = tuple(torch.ones((1, 8), dtype=torch.int64) for _ in names)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            raw, sample, str(tmp_path / "model.onnx"), input_names=list(names), output_names=["logits"],
            dynamic_axes=axes, dynamo=False,
        )  # fmt: skip
    texts = ["Nokia employed Olsen.", "Salt", "The moon pulls the sea [SEP] and ships wait for the tide. " * 9]
    expected = LocalCrossEncoder(str(tmp_path), window=64).scores("Who employed Olsen?", texts)
    scores = OnnxCrossEncoder(str(tmp_path), window=64).scores("Who employed Olsen?", texts)
    np.testing.assert_allclose(scores, expected, atol=2e-5)
