"""Weights of the words of questions: their gradient, what they learn from a reward, and the query that is searched."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from spolia.errors import DataError, WeightsError
from spolia.generation.reader import Reader
from spolia.models.prompting.stand_in_models import ScriptedModel
from spolia.models.trained_weights import TrainedWeights
from spolia.retrieval.bm25 import BM25
from spolia.retrieval.learned.term_weights import FEATURES, WeightedTerms, repeat_words, term_features
from spolia.stores.corpus import NodeGroup
from spolia.training.parts import make_trainer
from spolia.training.term_weights import QuestionWords, TermWeightsTrainer
from spolia.training.trainer import TrainingContext
from spolia.training.training import train
from spolia.types import Item, Query
from tests.retrieval.conftest import store

NAMES = ("Balo", "Cori", "Duna", "Feli", "Garo", "Holi", "Kela", "Lori", "Maro", "Nori", "Pelo", "Runa")


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory) -> NodeGroup:
    """Towns by name, and letters that hold what surrounds the name in each question."""
    towns = {
        name: f"{name} has a mill, and {index} people live there beside the water." for index, name in enumerate(NAMES)
    }
    frame = ["please", "kindly", "tell", "once", "more"]
    letters = {
        f"letter{index}": f"{' '.join(frame[: 1 + index % 5])} {frame[index % 3]}, number {index}."
        for index in range(10)
    }
    return store(tmp_path_factory.mktemp("words") / "s.spolia", towns | letters)


ITEMS = [
    Item(str(at), f"please kindly tell once more about {name}", (str(at),), ((name,),)) for at, name in enumerate(NAMES)
]


def test_the_gradient_is_that_of_the_expected_reward() -> None:
    """For a reward that is linear in the weights it is known: the feature sums of the words that are rewarded."""
    worth = np.array([1.0, -2.0, 0.5])
    features = np.random.default_rng(1).normal(size=(3, len(FEATURES)))

    class Linear(TermWeightsTrainer):
        def reward(self, one: QuestionWords, logs: np.ndarray) -> float:
            return float(logs @ worth)

    trainer = Linear.__new__(Linear)
    trainer.spread, trainer.theta = 0.5, np.full(len(FEATURES), 0.1)
    question = QuestionWords(ITEMS[0], ("a", "b", "c"), features)
    draw = np.random.default_rng(0)
    loss, slope = trainer.estimate_gradient([question] * 4_000, draw)
    assert loss == pytest.approx(-float(features @ trainer.theta @ worth))
    assert slope == pytest.approx(-(worth @ features), abs=0.25)


@pytest.mark.slow
def test_words_that_find_gold_weigh_more_and_the_reader_sees_the_question(group: NodeGroup, tmp_path: Path) -> None:
    trainer = TermWeightsTrainer(group, batch=6, rate=0.2)
    training = train(trainer, ITEMS[:8], tmp_path / "a", kept_apart=ITEMS[8:], steps=15)
    score = training.card["score"]
    assert score["trained"]["mean"] > score["untrained"]["mean"] + 0.2
    assert training.card["curve"][-1]["loss"] < training.card["curve"][0]["loss"]
    second_trainer = TermWeightsTrainer(group, batch=6, rate=0.2)
    assert train(second_trainer, ITEMS[:8], tmp_path / "b", kept_apart=ITEMS[8:], steps=15).sha256 == training.sha256
    query = WeightedTerms(group, training.weights)(Query(ITEMS[9].question))
    assert query.question == ITEMS[9].question
    assert query.text.split().count(NAMES[9]) > query.text.split().count("kindly")


@pytest.mark.slow
def test_an_interrupted_training_gives_the_same_weights(group: NodeGroup) -> None:
    whole, killed, resumed = (TermWeightsTrainer(group, batch=4) for _ in range(3))
    for trainer in (whole, killed, resumed):
        trainer.prepare(ITEMS, (), 3)
    for index in range(6):
        whole.step(index / 6)
    for index in range(2):
        killed.step(index / 6)
    resumed.restore({name: np.array(array) for name, array in killed.state().items()})
    for index in range(2, 6):
        resumed.step(index / 6)
    assert resumed.weights() == whole.weights()
    assert any(whole.weights()["weights"].values())


def test_a_reader_rewards_the_words_whose_passages_it_answers_from(group: NodeGroup) -> None:
    trainer = make_trainer("rewriter", TrainingContext(group, llm=ScriptedModel(("3",))))
    assert isinstance(trainer, TermWeightsTrainer)
    trainer.prepare(ITEMS, (), 0)
    assert [trainer.reward(question, np.zeros(len(question.words))) for question in trainer.questions[2:5]] == [
        0.0,
        1.0,
        0.0,
    ]
    assert (trainer.measure, trainer.settings()["model"]) == ("F1", trainer.llm.name if trainer.llm else "")
    assert trainer.untrained().steps[1] == Reader(ScriptedModel(("3",)))  # type: ignore[attr-defined]
    trainer.weights()
    assert trainer.notes[-1] == "No rewriting changed the reward, so that all words count the same."


def test_untrained_weights_leave_the_ranking_as_it_is(group: NodeGroup, tmp_path: Path) -> None:
    folder = save_weights(tmp_path, dict.fromkeys(FEATURES, 0.0))
    query = Query(ITEMS[0].question)
    assert WeightedTerms(group, folder)(query) is query
    words, _ = term_features(query.text, group.snapshot(), group.name, frozenset())
    same = BM25(group)(Query(" ".join(word for word in words for _ in range(4))))
    assert [hit.node.id for hit in same] == [hit.node.id for hit in BM25(group)(query)]
    assert WeightedTerms(group, folder)(Query("mill")).text == "mill"
    assert repeat_words([], []) == ""


def save_weights(folder: Path, theta: object) -> TrainedWeights:
    from spolia.models.trained_weights import hash_of

    (folder / "weights.json").write_text(json.dumps({"weights": theta}))
    (folder / "card.json").write_text(
        json.dumps({"part": "rewriter", "sha256": hash_of(folder / "weights.json")}), "utf-8"
    )
    return TrainedWeights(str(folder))


@pytest.mark.parametrize("theta", [{"rarity": 1.0}, dict.fromkeys(FEATURES, "1"), [1.0], None])
def test_weights_that_are_none_are_refused(group: NodeGroup, tmp_path: Path, theta: object) -> None:
    with pytest.raises(WeightsError, match="Train it again"):
        WeightedTerms(group, save_weights(tmp_path, theta))(Query("old mill"))


def test_questions_without_gold_or_of_one_word_are_refused(group: NodeGroup) -> None:
    for items in ([ITEMS[0].but(gold=())], [ITEMS[0].but(question="Balo")]):
        with pytest.raises(DataError, match="Nothing can be learned from 1 question"):
            TermWeightsTrainer(group).prepare(items, (), 0)
