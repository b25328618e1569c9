"""MiniLM and checkpoints that are fine-tuned: gradients, equal scores without torch, and what they learn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from spolia.errors import DataError, WeightsError
from spolia.models.local.embedders import LocalCrossEncoder
from spolia.models.onnx import weights
from spolia.models.onnx.minilm import MiniLM
from spolia.models.onnx.tuned_minilm import MiniLMScorer, TunedMiniLM
from spolia.models.prompting.stand_in_models import ScriptedModel
from spolia.retrieval.bm25 import BM25
from spolia.stores.corpus import Corpus, NodeGroup
from spolia.training.parts import make_trainer
from spolia.training.sufficiency import SampledChain, SufficiencyTrainer, prefixes_of
from spolia.training.trainer import TrainingContext
from spolia.training.training import train
from spolia.types import Chain, Item, Query
from tests.models.local.tiny import bert, save_model, word_pieces
from tests.post_retrieval.compression.scorer import Scorer
from tests.training.test_query_adapter import ReadsMiles

pytestmark = pytest.mark.slow
pytest.importorskip("torch")
try:
    weights.find(hub=False)
except WeightsError as error:
    pytest.skip(f"needs the weights: {error}", allow_module_level=True)

import torch  # noqa: E402

from spolia.training.fine_tuning import (  # noqa: E402
    PAPER,
    CheckpointSufficiency,
    EmbedderTrainer,
    FineTuning,
    MiniLMSufficiency,
    RerankerTrainer,
    TorchRecipe,
    draw_batch,
)
from spolia.training.query_adapter import Teacher  # noqa: E402

RECIPE = TorchRecipe(window=96, batch=8, rate=1e-4, warm_up=2, low_precision=False)


def refuse_other_gradient(fine_tuning: FineTuning[Any], name: str, position: tuple[int, ...]) -> None:
    """What the loss changes with one weight is what torch says."""
    batch, tensor = fine_tuning.batch(), fine_tuning.learned[name]
    torch.manual_seed(0)
    (slope,) = torch.autograd.grad(fine_tuning.loss(batch), [tensor])
    ends = []
    for shift in (2e-3, -2e-3):
        with torch.no_grad():
            tensor[position] += shift
            torch.manual_seed(0)
            ends.append(float(fine_tuning.loss(batch)))
            tensor[position] -= shift
    assert (ends[0] - ends[1]) / 4e-3 == pytest.approx(float(slope[position]), rel=0.05, abs=2e-4)


def test_an_epoch_has_each_row_once_and_the_next_another_order() -> None:
    epochs = [[row for index in range(3) for row in draw_batch(8, 3, 3 * epoch + index, 1)] for epoch in (0, 1)]
    assert [sorted(epoch) for epoch in epochs] == [list(range(8))] * 2
    assert epochs[0] != epochs[1]


def test_a_reranker_learns_and_onnxruntime_scores_as_torch_does(
    group: NodeGroup, items: list[Item], tmp_path: Path
) -> None:
    trainer = RerankerTrainer(group, MiniLM(), depth=6, recipe=RECIPE)
    training = train(trainer, items, tmp_path / "out", kept_apart=(), steps=8, seed=1)
    refuse_other_gradient(trainer, "score.weight", (0, 7))
    curve = [point["loss"] for point in training.card["curve"]]
    assert min(curve[-3:]) < curve[0]
    rows = [(items[0].question, text) for text in ("Oda Balbalson was born.", "A market town.", "")]
    with torch.no_grad():
        expected = trainer.scores(rows).double().sigmoid().tolist()
    scorer = MiniLMScorer(training.weights, window=RECIPE.window)
    assert scorer.scores(items[0].question, [text for _, text in rows]) == pytest.approx(expected, abs=1e-5)
    assert scorer.scores("Who?", ["A town."]) == scorer.scores("Who?", ["A town.", "A river of trout."])[:1]
    with pytest.raises(WeightsError, match="weights of a reranker, and a sufficiency is needed"):
        MiniLMScorer(training.weights, "sufficiency").scores("Who?", ["Ann."])
    with pytest.raises(DataError, match="Nothing can be learned from 1 question"):
        trainer.prepare([items[0].but(gold=())], (), 0)


@pytest.mark.parametrize("method", ["gold", "lsr", "reward"])
def test_an_embedder_of_questions_learns_and_passages_stay(
    group: NodeGroup, items: list[Item], tmp_path: Path, method: str
) -> None:
    llm = ReadsMiles(()) if method == "reward" else Scorer(hints=(("miles", "painter"),))
    trainer = EmbedderTrainer(Teacher(group, MiniLM(), llm, method), temperature=0.1, recipe=RECIPE)
    training = train(trainer, items[:8], tmp_path / "out", kept_apart=(), steps=6, seed=1)
    if method != "reward":  # whose gradient is drawn
        refuse_other_gradient(trainer, "encoder.layer.5.output.dense.bias", (3,))
        assert training.card["curve"][-1]["loss"] < training.card["curve"][0]["loss"]
    tuned = TunedMiniLM(tuned=training.weights)
    questions = [item.question for item in items[:3]]
    with torch.no_grad():
        expected = trainer.embed_texts(questions).numpy()
    assert np.abs(tuned.embed(questions, kind="query") - expected).max() < 1e-5
    plain = MiniLM().embed(questions, kind="passage")
    assert np.array_equal(tuned.embed(questions, kind="passage"), plain)
    assert not np.array_equal(tuned.embed(questions, kind="query"), plain)
    assert (tuned.name, tuned.fingerprint() != MiniLM().fingerprint()) == (MiniLM().name, True)


def learned_by_heart(tmp_path: Path, make: Callable[[SufficiencyTrainer], Any]) -> tuple[Any, Any]:
    """A classifier of eight questions' chains, one of which says by a word that it suffices; and its trainer."""
    items = [Item(f"q{index}", f"Who employed {index}?", ("Nokia",)) for index in range(8)]
    chains = [
        SampledChain(
            item.id, Chain(Query(item.question), (("Who?", "The moon"), ("And who?", "Nokia"))), (0, 1), (0, 1), (9, 19)
        )
        for item in items
    ]
    group = Corpus(str(tmp_path / "none.spolia")).group()
    trainer = make(SufficiencyTrainer(ScriptedModel(("Nokia",)), BM25(group), chain_steps=2, chains=chains))
    return train(trainer, items, tmp_path / "out", kept_apart=(), seed=1), trainer


def tiny_t5(folder: Path) -> None:
    from transformers import T5Config

    size = len(word_pieces(folder))
    config = T5Config(
        vocab_size=size, d_model=16, d_kv=8, d_ff=32, num_layers=2, num_heads=2, pad_token_id=0, eos_token_id=3,
        decoder_start_token_id=0, dropout_rate=0.1,
    )  # fmt: skip
    save_model(folder, "T5ForConditionalGeneration", config)


@pytest.mark.parametrize("kind", ["bert", "t5"])
def test_a_checkpoint_becomes_a_classifier_that_ends_chains(tmp_path: Path, kind: str) -> None:
    (bert if kind == "bert" else tiny_t5)(tmp_path / "base")
    recipe = replace(PAPER, rate=2e-2, window=64)
    training, trainer = learned_by_heart(
        tmp_path, lambda chains: CheckpointSufficiency(chains, str(tmp_path / "base"), epochs=20, recipe=recipe)
    )
    assert (training.card["steps"]["made"], training.card["file"]) == (40, "weights.safetensors")  # 16 rows, 8 a step
    first, last = (
        [point["loss"] for point in training.card["curve"]][stretch] for stretch in (slice(5), slice(-5, None))
    )
    assert np.mean(last) < 0.9 * np.mean(first)
    assert "No chain ends early" in training.card["notes"][-2]
    scorer = LocalCrossEncoder(str(tmp_path / "out"), window=64)
    rows = prefixes_of(trainer.chains.sampled[0])
    scores = scorer.scores(rows[0][0], [text for _, text in rows])
    assert np.exp(scores) == pytest.approx(trainer.probabilities(rows), abs=1e-4)
    assert scores[0] < scores[1]
    assert training.flow == trainer.trained(training.weights)
    own = tmp_path / "out" / "model.safetensors"
    poisoned = bytearray(own.read_bytes())
    poisoned[-1] ^= 1
    own.unlink()  # it may be a link to weights.safetensors
    own.write_bytes(poisoned)
    with pytest.raises(WeightsError, match=r"model.safetensors is not the file that its card describes"):
        scorer.scores(rows[0][0], ["A town."])


def test_minilm_becomes_a_classifier_that_ends_chains(tmp_path: Path) -> None:
    recipe = replace(PAPER, window=96, rate=2e-4, head_rate=1e-2)
    training, trainer = learned_by_heart(tmp_path, lambda chains: MiniLMSufficiency(chains, epochs=3, recipe=recipe))
    rows = prefixes_of(trainer.chains.sampled[0])
    scores = MiniLMScorer(training.weights, "sufficiency", window=96).scores(rows[0][0], [text for _, text in rows])
    assert scores == pytest.approx(trainer.probabilities(rows), abs=1e-5)
    assert scores[0] < scores[1]


def test_a_training_that_was_interrupted_ends_with_the_same_weights(group: NodeGroup, items: list[Item]) -> None:
    whole, begun, resumed = (RerankerTrainer(group, MiniLM(), depth=6, recipe=RECIPE) for _ in range(3))
    for trainer in (whole, begun, resumed):
        trainer.prepare(items[:4], items[4:5], 0)
    for number in range(3):
        whole.step(number / 3)
    begun.step(0.0)
    resumed.restore({name: np.copy(array) for name, array in begun.state().items()})
    for number in (1, 2):
        resumed.step(number / 3)
    assert all(np.array_equal(array, resumed.weights()[name]) for name, array in whole.weights().items())
    assert whole.validate() == resumed.validate()


def test_an_embedder_that_is_not_minilm_cannot_be_trained(group: NodeGroup) -> None:
    with pytest.raises(DataError, match="trains MiniLM"):
        make_trainer("embedder", TrainingContext(group))
