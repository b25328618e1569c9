"""The adapter of questions: its gradient, where it moves them, and that passages stay."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from spolia.errors import DataError, WeightsError
from spolia.evaluation.data.dataset import DataSet
from spolia.evaluation.data.passage_store import index_passages
from spolia.evaluation.experiment.experiment import Experiment
from spolia.models.adapted_embedder import DOWN, UP, AdaptedEmbedder
from spolia.models.onnx import safetensors
from spolia.models.prompting.stand_in_models import ScriptedModel
from spolia.models.trained_weights import TrainedWeights, hash_of
from spolia.stores.backends.rows import SourceRow
from spolia.stores.corpus import NodeGroup
from spolia.testing import HashingEmbedder
from spolia.training.parts import make_trainer
from spolia.training.query_adapter import (
    AdapterRows,
    AdapterTrainer,
    Teacher,
    divergence,
    gold_nodes,
    reinforce,
    softmax,
)
from spolia.training.trainer import TrainingContext
from spolia.training.training import train
from spolia.types import Document, Generation, Item, Node, Prompt, Quote, Span
from tests.post_retrieval.compression.scorer import Scorer
from tests.retrieval.conftest import store

EMBEDDER = HashingEmbedder(64)


@pytest.fixture(scope="module")
def group(world: DataSet, tmp_path_factory: pytest.TempPathFactory) -> NodeGroup:
    return index_passages(world, EMBEDDER, folder=tmp_path_factory.mktemp("vectors"))


@pytest.fixture(scope="module")
def items(world: DataSet) -> list[Item]:
    return list(world.items())


@pytest.mark.slow
def test_the_gradient_is_that_of_the_loss(group: NodeGroup) -> None:
    random, trainer = np.random.default_rng(0), AdapterTrainer(Teacher(group, EMBEDDER), rank=3)
    questions, candidates, scores = (random.normal(size=size) for size in ((4, 6), (4, 5, 6), (4, 5)))
    rows = AdapterRows(questions, candidates, softmax(scores, 1))
    rows.candidates[1, 3:], rows.target[1] = 0.0, [1, 0, 0, 0, 0]  # fewer candidates, and one positive
    trainer.values = {DOWN: random.normal(size=(3, 6)), UP: random.normal(size=(6, 3))}
    _, slopes = trainer.compute_gradient(rows)
    for name, value in trainer.values.items():
        for position in np.ndindex(value.shape):
            ends, original = [], value[position]
            for shift in (1e-6, -1e-6):
                value[position] = original + shift
                ends.append(trainer.compute_gradient(rows)[0])
            value[position] = original
            assert (ends[0] - ends[1]) / 2e-6 == pytest.approx(slopes[name][position], abs=1e-5)


def test_mass_moves_to_what_the_target_prefers_and_nothing_moves_where_it_has_it() -> None:
    scores = np.array([[0.3, 0.2, 0.1]])
    for preferred in range(3):
        _, pull = divergence(scores, np.eye(3)[[preferred]], 0.1)
        assert pull[0, preferred] < 0 < min(np.delete(pull[0], preferred))
    loss, pull = divergence(scores, softmax(scores, 0.1), 0.1)
    assert [loss, float(np.abs(pull).max())] == pytest.approx([0.0, 0.0])


def test_what_may_answer_another_question_of_a_batch_is_no_negative_for_it() -> None:
    texts = ["Ann left in 1920.", "Bob came.", "Ann left in 1920.", "The year is 1920."]
    vectors, near = np.eye(4), np.array([[1.0, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0.9, 0.1]])
    good = [frozenset((text,)) for text in texts]
    rows = AdapterRows(near, vectors[:, None], np.ones((4, 1)), texts, texts, good, [("1920",), (), (), ()])
    assert rows.false_negatives(range(4)).tolist() == [
        [True, False, True, True],  # its own, the same text, one that holds the answer
        [False, True, False, False],
        [True, False, True, False],
        [False, False, True, True],  # the embedder puts the third passage above its own
    ]
    assert rows.false_negatives([3, 1]).tolist() == [[True, False], [False, True]]


@pytest.mark.slow
def test_trained_on_gold_it_finds_more_and_untrained_it_changes_nothing(
    group: NodeGroup, items: list[Item], tmp_path: Path
) -> None:
    items = [item.but(gold=item.gold[2:]) for item in items]  # the river alone, which words and letters hardly tell
    trainer = AdapterTrainer(Teacher(group, EMBEDDER))
    training = train(trainer, items, tmp_path / "adapter", kept_apart=(), steps=50)
    assert training.card["curve"][-1]["loss"] < training.card["curve"][0]["loss"]
    flows = {"untrained": trainer.untrained(), "trained": training.flow}
    untrained, trained = (
        flow.json()["measures"]["MRR"]["mean"] for flow in Experiment(flows, items[:20], "MRR").run().flows
    )
    assert trained > untrained + 0.05
    questions = [item.question for item in items[:9]]
    adapted, base = AdaptedEmbedder(EMBEDDER, training.weights), EMBEDDER.embed(questions, kind="query")
    assert np.array_equal(adapted.embed(questions, kind="passage"), base)
    assert np.linalg.norm(adapted.embed(questions, kind="query"), axis=1) == pytest.approx(1, abs=1e-6)
    assert not np.array_equal(adapted.embed(questions, kind="query"), base)
    with pytest.raises(WeightsError, match="no adapter for vectors of 32 numbers"):
        AdaptedEmbedder(HashingEmbedder(32), training.weights).embed(questions, kind="query")
    trainer.prepare(items, (), 0)
    for name, tensors in (("untrained", trainer.weights()), ("none", {DOWN: np.zeros((1, 64), np.float32)})):
        folder = tmp_path / name
        folder.mkdir()
        safetensors.write(folder / "weights.safetensors", tensors)
        sha256 = hash_of(folder / "weights.safetensors")
        (folder / "card.json").write_text(f'{{"part": "adapter", "sha256": "{sha256}"}}')
    same = AdaptedEmbedder(EMBEDDER, TrainedWeights(str(tmp_path / "untrained")))
    assert np.array_equal(same.embed(questions, kind="query"), base)
    with pytest.raises(WeightsError, match="no adapter"):
        AdaptedEmbedder(EMBEDDER, TrainedWeights(str(tmp_path / "none"))).embed(questions, kind="query")
    with pytest.raises(DataError, match="Nothing can be learned from 60 questions"):
        AdapterTrainer(Teacher(group, EMBEDDER)).prepare([item.but(gold=()) for item in items], (), 0)


@pytest.mark.slow
@pytest.mark.parametrize("hint", ["painter", "lowlands"])
def test_a_question_moves_to_the_passages_from_which_a_model_foretells_the_answer(
    group: NodeGroup, items: list[Item], hint: str
) -> None:
    """The model of these numbers is scripted: it foretells `miles` after a passage with one word."""
    trainer = AdapterTrainer(Teacher(group, EMBEDDER, Scorer(hints=(("miles", hint),)), "lsr"), temperature=0.1)
    snapshot = group.snapshot()
    vectors = np.array(snapshot.open.stored_vectors(group.name, EMBEDDER.name).vectors_at(np.arange(9)))
    trainer.prepare(items[:12], (), 0)
    assert len(trainer.rows.questions) == 12
    assert trainer.rows.target.sum(axis=1) == pytest.approx(1)
    loss_before = trainer.compute_gradient(trainer.rows)[0]
    while trainer.done < 30:
        trainer.step(trainer.done / 30)
    assert trainer.compute_gradient(trainer.rows)[0] < loss_before
    assert np.array_equal(snapshot.open.stored_vectors(group.name, EMBEDDER.name).vectors_at(np.arange(9)), vectors)


def test_a_model_that_scores_texts_teaches_the_adapter_and_one_that_only_chats_does_not(group: NodeGroup) -> None:
    for llm in (Scorer(), ScriptedModel(("",))):
        trainer = make_trainer("adapter", TrainingContext(group, EMBEDDER, llm))
        assert isinstance(trainer, AdapterTrainer)
        assert trainer.teacher.method == ("lsr" if isinstance(llm, Scorer) else "gold")
    with pytest.raises(DataError, match="lsr needs a language model that scores texts"):
        Teacher(group, EMBEDDER, ScriptedModel(("",)), "lsr")
    with pytest.raises(DataError, match="no method 'best'"):
        Teacher(group, EMBEDDER, method="best")


@pytest.mark.slow
def test_what_is_drawn_and_rewarded_becomes_likelier_and_finds_the_best_arm() -> None:
    """A bandit of four arms; the mean of the drawn gradients is that of the expected reward."""
    scores, rewards = np.array([[0.3, 0.1, 0.0, 0.2]]), np.array([[0.0, 1.0, 0.2, 0.5]])
    draws = [reinforce(scores, rewards, 0.5, np.random.default_rng(index))[1] for index in range(4000)]
    for index in range(4):
        step = np.eye(4)[[index]] * 1e-5
        ends = [reinforce(scores + sign * step, rewards, 0.5, np.random.default_rng(0))[0] for sign in (1, -1)]
        assert np.mean(draws, axis=0)[0, index] == pytest.approx((ends[0] - ends[1]) / 2e-5, abs=0.02)
    for index in range(300):
        scores = scores - 0.3 * reinforce(scores, rewards, 0.5, np.random.default_rng(index))[1]
    assert softmax(scores, 0.5)[0, 1] > 0.9


@pytest.mark.slow
def test_the_passages_from_which_a_model_foretells_best_are_positive_beside_gold(
    group: NodeGroup, items: list[Item]
) -> None:
    trainer = AdapterTrainer(Teacher(group, EMBEDDER, Scorer(hints=(("miles", "painter"),)), "aar"))
    trainer.prepare(items[:6], (), 0)
    assert 6 * 3 < len(trainer.rows.questions) <= 6 * (3 + 2)
    assert set(trainer.rows.target.sum(axis=1)) == {1.0}


class ReadsMiles(ScriptedModel):
    """Answers with the length that stands in its prompt."""

    def generate(self, prompt: Prompt, **how: Any) -> Generation:
        match = re.search(r"(\d+ miles) long", prompt.text)
        return ScriptedModel((match[1] if match else "Nobody knows",)).generate(prompt, **how)


@pytest.mark.slow
def test_a_question_moves_to_the_passages_from_which_a_model_answers_rightly(
    group: NodeGroup, items: list[Item]
) -> None:
    trainer = AdapterTrainer(Teacher(group, EMBEDDER, ReadsMiles(()), "reward"), temperature=0.1, rate=0.02)
    trainer.prepare(items[:12], (), 0)
    reward_before = -trainer.compute_gradient(trainer.rows)[0]
    while trainer.done < 60:
        trainer.step(trainer.done / 60)
    assert -trainer.compute_gradient(trainer.rows)[0] > reward_before + 0.02  # the expected reward
    with pytest.raises(DataError, match="none prefers one passage to another"):
        AdapterTrainer(Teacher(group, EMBEDDER, ScriptedModel(("7",)), "reward")).prepare(items[:2], (), 0)


def test_of_a_gold_document_the_nodes_with_an_answer_are_positives(tmp_path: Path) -> None:
    texts = ("The mill is old.", "Ann built it.", "It burnt.")
    starts = (0, 17, 31)
    nodes = [
        Node(f"d:{index}", text, "d", span=Span(start, start + len(text)), number=index)
        for index, (text, start) in enumerate(zip(texts, starts, strict=True))
    ]
    group = store(tmp_path / "s.spolia", {"other": "A church."})
    with group.corpus.writer() as writer:
        writer.put_document(Document("d", " ".join(texts), uri="d.txt"), nodes, SourceRow("d.txt", content_hash="d"))
    item = Item("q", "Who built it?", ("Ann B", "Annie"), (("d",),))
    assert [node.id for node in gold_nodes(group, item)] == ["d:0", "d:1", "d:2"]
    assert [node.id for node in gold_nodes(group, item.but(answers=("Ann built",)))] == ["d:1"]
    quoted = item.but(gold=((Quote("d", 31, "It burnt."),),))
    assert [node.id for node in gold_nodes(group, quoted)] == ["d:2"]
