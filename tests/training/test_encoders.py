"""MiniLM as a bi-encoder, and as the judge of sentences: losses, draws, equal without torch."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from spolia.cli.models import load_embedder, load_scorer
from spolia.cli.options import ModelOptions, RerankOptions
from spolia.core.codec import decode, encode
from spolia.errors import DataError, ManifestMismatch, ModelError, WeightsError
from spolia.evaluation.data.dataset import DataSet
from spolia.evaluation.data.passage_store import index_passages
from spolia.models.onnx import weights
from spolia.models.onnx.minilm import MiniLM
from spolia.models.onnx.tuned_minilm import MiniLMScorer, TunedMiniLM
from spolia.models.protocols import Embedder
from spolia.models.trained_weights import BI_ENCODER, CONTEXT
from spolia.post_retrieval.compression import Extractive
from spolia.retrieval.bm25 import BM25
from spolia.retrieval.dense import Dense
from spolia.stores.corpus import NodeGroup
from spolia.training.parts import make_trainer
from spolia.training.trainer import TrainingContext
from spolia.training.training import Trained, train
from spolia.types import Item, Query
from tests.training.test_query_adapter import ReadsMiles

pytestmark = pytest.mark.slow
pytest.importorskip("torch")
try:
    weights.find(hub=False)
except WeightsError as error:
    pytest.skip(f"needs the weights: {error}", allow_module_level=True)

import torch  # noqa: E402

from spolia.training.encoders import BiEncoderTrainer, ContextTrainer  # noqa: E402
from spolia.training.fine_tuning import Contrast, TorchRecipe  # noqa: E402

RECIPE = TorchRecipe(window=64, batch=8, rate=1e-4, warm_up=2, low_precision=False)


@pytest.fixture(scope="module")
def bi_encoder(
    group: NodeGroup, items: list[Item], tmp_path_factory: pytest.TempPathFactory
) -> tuple[BiEncoderTrainer, Trained]:
    trainer = BiEncoderTrainer(group, MiniLM(), depth=8, recipe=RECIPE)
    return trainer, train(trainer, items[:9], tmp_path_factory.mktemp("trained") / "out", kept_apart=items[9:], steps=6)


def test_onnxruntime_embeds_questions_and_passages_as_torch_does(
    bi_encoder: tuple[BiEncoderTrainer, Trained], items: list[Item]
) -> None:
    trainer, training = bi_encoder
    embedder = TunedMiniLM(tuned=training.weights, part=BI_ENCODER)
    texts = [items[0].question, "A market town with an old bridge.", ""]
    with torch.no_grad():
        expected = trainer.embed_texts(texts).numpy()
    for kind in ("query", "passage"):
        assert np.abs(embedder.embed(texts, kind=kind) - expected).max() < 1e-6
        assert np.abs(embedder.embed(texts, kind=kind) - MiniLM().embed(texts, kind=kind)).max() > 1e-3


def test_the_score_is_that_of_a_store_indexed_with_it_and_the_store_of_the_training_stays(
    bi_encoder: tuple[BiEncoderTrainer, Trained], group: NodeGroup, small: DataSet, items: list[Item], tmp_path: Path
) -> None:
    trainer, training = bi_encoder
    embedder = TunedMiniLM(tuned=training.weights, part=BI_ENCODER)
    assert [embedding.embedder for embedding in group.snapshot().manifest(group.name).embeddings] == [MiniLM().name]
    assert embedder.name.startswith(f"{MiniLM().name}+{training.sha256[:8]}")
    assert decode(encode(embedder), Embedder) == embedder
    assert training.flow == Dense(group, embedder)
    with pytest.raises(ManifestMismatch):
        training.flow(Query(items[0].question))
    scored, whole = (
        trainer.scored_flow(training.weights),
        Dense(index_passages(small, embedder, folder=tmp_path), embedder),
    )
    for item in items:
        here, there_ranking = scored(Query(item.question)), whole(Query(item.question))
        assert [hit.node.id for hit in here] == [hit.node.id for hit in there_ranking]
        assert [hit.score for hit in here] == pytest.approx([hit.score for hit in there_ranking], abs=1e-6)
    assert training.card["score"]["n"] == 3
    losses = [point["loss"] for point in training.card["curve"]]
    assert min(losses[-2:]) < losses[0]


def test_options_name_what_was_trained(bi_encoder: tuple[BiEncoderTrainer, Trained], tmp_path: Path) -> None:
    folder = bi_encoder[1].weights.folder
    assert load_embedder(ModelOptions(embedder=folder), None, "chunk") == TunedMiniLM(
        tuned=bi_encoder[1].weights.but(sha256=""), part=BI_ENCODER
    )
    (tmp_path / "card.json").write_text(json.dumps({"part": "reranker", "sha256": ""}))
    assert isinstance(load_scorer(RerankOptions(reranker=str(tmp_path))), MiniLMScorer)
    with pytest.raises(ModelError, match="Write 'embedder' or 'bi-encoder'"):
        TunedMiniLM(tuned=bi_encoder[1].weights, part="reader")


def test_passages_of_other_questions_are_negatives_unless_they_are_gold(
    bi_encoder: tuple[BiEncoderTrainer, Trained],
) -> None:
    trainer, _ = bi_encoder
    rows = [
        Contrast("Who?", "Ann did.", ("A town.",), frozenset(("Ann did.", "Bob helped."))),
        Contrast("Who else?", "Bob helped.", ("A river.",), frozenset(("Bob helped.",))),
    ]
    with torch.no_grad():
        questions, texts = (
            trainer.embed_texts(["Who?", "Who else?"]),
            ["Ann did.", "A town.", "Bob helped.", "A river."],
        )
        scores = (questions @ trainer.embed_texts(texts).T).double().numpy() / trainer.temperature
        loss = float(trainer.loss(rows))
    first = np.exp(scores[0, [0, 1, 3]])  # Bob's passage is gold for the first question too
    second = np.exp(scores[1])
    expected = -(np.log(first[0] / first.sum()) + np.log(second[2] / second.sum())) / 2
    assert loss == pytest.approx(expected, abs=1e-5)


def test_what_holds_an_accepted_answer_is_no_negative(group: NodeGroup, items: list[Item]) -> None:
    trainer = BiEncoderTrainer(group, MiniLM(), depth=12, recipe=RECIPE)
    partly = items[0].but(gold=items[0].gold[:1])  # the river's passage holds the answer, and is not gold
    trainer.prepare([partly], (), 0)
    negatives = {text for row in trainer.rows for text in row.negatives}
    assert negatives
    assert not any("3 miles long" in text for text in negatives)
    assert not negatives & trainer.rows[0].gold


def context(group: NodeGroup, **settings: object) -> ContextTrainer:
    settings = {"max_sentences": 1, "recipe": RECIPE.but(window=72, batch=4), **settings}
    return ContextTrainer(ReadsMiles(()), BM25(group, top_k=4), **settings)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def asked(items: list[Item], group: NodeGroup) -> list[Item]:
    """Questions whose river is named, so that BM25 finds it."""
    return [item.but(question=f"{item.question} {item.answers[0]}") for item in items]


def test_a_context_adapter_chooses_the_sentences_that_the_reader_answers_from(
    group: NodeGroup, asked: list[Item], tmp_path: Path
) -> None:
    trainer = context(group, first=0.6)
    training = train(trainer, asked[:8], tmp_path / "out", kept_apart=asked[8:], steps=10, seed=1)
    score = training.card["score"]
    assert (score["untrained"]["mean"], score["trained"]["mean"]) == (0.0, 1.0)
    assert training.card["curve"][-1]["loss"] < -0.5  # minus the reward of the draws
    row = trainer.rows[0]
    with torch.no_grad():
        scores = trainer.scores([row])[0]
    scorer = MiniLMScorer(training.weights, CONTEXT, window=trainer.recipe.window)
    expected = scores.double().sigmoid().numpy()
    texts = [span.text_in(row.ranking) for span in row.spans]
    assert np.abs(np.array(scorer.scores(row.item.question, texts)) - expected).max() < 1e-6
    ranking = Extractive(at_least=-1.0, most=1, scorer=scorer)(row.ranking)
    assert [node.text for node in ranking.nodes] == [texts[trainer.best_sentences(scores)[0]]]
    second_training = train(
        context(group, first=0.6), asked[:8], tmp_path / "b", kept_apart=asked[8:], steps=10, seed=1
    )
    assert second_training.sha256 == training.sha256


def test_the_reward_makes_what_is_better_than_the_best_likelier(group: NodeGroup, asked: list[Item]) -> None:
    trainer = context(group)
    trainer.prepare(asked[:2], (), 0)
    row = trainer.rows[0]
    (right,) = row.holding
    assert [trainer.reward(row, [index]) for index in (right, 1 - min(right, 1))] == [1.0, 0.0]
    wrong = next(index for index in range(len(row.spans)) if index != right)
    start = torch.zeros(len(row.spans))
    start[wrong] = 0.1  # what would be kept is wrong
    total = torch.zeros_like(start)
    torch.manual_seed(0)
    for _ in range(300):
        scores = start.clone().requires_grad_()
        loss = trainer._reward_loss(row, scores)
        loss.backward()
        assert scores.grad is not None
        total += scores.grad
    chance = start.softmax(0)
    expected = -chance[right] * (torch.eye(len(start))[right] - chance)  # reward 1 for one of them, and baseline 0
    assert total / 300 == pytest.approx(expected, abs=0.05)
    assert trainer._likelihood_loss(row, start).item() == pytest.approx(-float(chance[right].log()))


def test_a_killed_training_of_sentences_ends_with_the_same_weights(group: NodeGroup, asked: list[Item]) -> None:
    recipe = RECIPE.but(window=72, batch=2)
    whole, begun, resumed = (context(group, first=0.3, recipe=recipe) for _ in range(3))
    for trainer in (whole, begun, resumed):
        trainer.prepare(asked[:4], asked[4:6], 0)
    for number in range(3):
        whole.step(number / 3)
    begun.step(0.0)
    resumed.restore({name: np.copy(array) for name, array in begun.state().items()})
    for number in (1, 2):
        resumed.step(number / 3)
    assert all(np.array_equal(array, resumed.weights()[name]) for name, array in whole.weights().items())
    assert whole.validate() == resumed.validate()


def test_passages_without_an_answer_teach_no_choice(group: NodeGroup, items: list[Item]) -> None:
    with pytest.raises(DataError, match="no passage found holds an accepted answer"):
        context(group).prepare([items[0].but(answers=("a yard",))], (), 0)


@pytest.mark.parametrize(("part", "said"), [("bi-encoder", "trains MiniLM"), ("context", "needs the language model")])
def test_a_part_names_what_it_lacks(group: NodeGroup, part: str, said: str) -> None:
    with pytest.raises(DataError, match=said):
        make_trainer(part, TrainingContext(group))
