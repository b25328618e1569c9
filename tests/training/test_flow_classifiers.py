"""Classifiers of published flows: labels from gold, what cannot be learned, weights, and flows with them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from spolia.core.function import step
from spolia.core.operator import Operator
from spolia.errors import DataError, EmptyReply, WeightsError, WiringError
from spolia.evaluation.data.dataset import DataSet
from spolia.evaluation.data.passage_store import index_passages
from spolia.evaluation.simulation.profile import Profile
from spolia.evaluation.simulation.reader import SimulatedReader
from spolia.evaluation.simulation.world import FictionalWorld
from spolia.flow_files.files import load
from spolia.generation.reader import Reader
from spolia.models.prompting.stand_in_models import ScriptedModel
from spolia.models.text_classifier import AnswerFeatures, PairFeatures, Part, PassageFeatures, TrainedClassifier
from spolia.models.trained_weights import TrainedWeights
from spolia.orchestration.similarity_router import ByClassifier
from spolia.retrieval.bm25 import BM25
from spolia.testing import HashingEmbedder
from spolia.training.classifier import FOLDS, NEVER, ClassifierTrainer, LabelledText
from spolia.training.flow_classifiers import (
    EvaluatorTrainer,
    PairTrainer,
    RouterTrainer,
    VerifierTrainer,
    confident_threshold,
    try_answer,
)
from spolia.training.training import train
from spolia.types import Answer, Hit, Item, Node, Query, Ranking


@step
def search(query: Query) -> Ranking:
    return Ranking(query, tuple(Hit(Node(id, f"{id} of {query.text}", document=id), 1.0) for id in ("p1", "p2")))


class Given(ClassifierTrainer):
    """Learns three labels from given rows."""

    part: ClassVar[Part] = "router"
    labels = ("none", "one", "several")

    def __init__(self, rows: Sequence[LabelledText], **settings: Any) -> None:
        super().__init__(**settings)
        self.given = rows

    def label_items(self, items: Sequence[Item], seed: int) -> list[LabelledText]:
        return [row for row in self.given if row.item in {item.id for item in items}]

    def untrained(self) -> Operator[Query, Answer]:
        raise NotImplementedError

    def trained(self, weights: TrainedWeights) -> Operator[Query, Answer]:
        raise NotImplementedError


ASKED = ("Who is Ann?", "Is the mill of the town older?", "Where was the founder of the mill that burnt born?")
ROWS = [LabelledText(f"q{at}", f"{ASKED[at % 3]} {at}", "", at % 3) for at in range(12)]


def prepare_trainer(rows: Sequence[LabelledText] = ROWS, **settings: Any) -> Given:
    trainer = Given(rows, **settings)
    trainer.prepare([Item(row.item, row.question, gold=((row.item[:2],),)) for row in rows], (), 0)
    return trainer


def test_a_share_that_failed_once_is_not_tried_again_at_lower_scores() -> None:
    rows = [
        (1 - index / 1000, index >= 40) for index in range(600)
    ]  # the best 40 are wrong, so chance alone could pass later
    assert confident_threshold(rows, 0.9) == NEVER
    assert confident_threshold([(0.9, True)] * 40 + [(0.5, False)] * 9, 0.9) == 0.9


@pytest.mark.parametrize("reply", [" \n", "\n\n", "[9]"])
def test_a_reply_without_an_answer_is_one_failed_row(reply: str) -> None:
    ranking = search(Query("Who?"))
    reader = Reader(ScriptedModel((("", reply),)))
    assert try_answer(reader, ranking) is None
    with pytest.raises(EmptyReply, match="holds no answer"):
        reader(ranking)


@pytest.mark.parametrize("hidden", [0, 3])
def test_the_gradient_of_three_labels_is_that_of_the_loss(hidden: int) -> None:
    trainer = prepare_trainer(hidden=hidden)
    for _ in range(3):
        trainer.step(0.0)
    _, slopes = trainer._compute_gradient()
    draw, values = np.random.default_rng(0), [array for layer in trainer.layers for array in layer]
    for value, slope in zip(values, slopes, strict=True):
        position = (FOLDS, *(int(draw.integers(size)) for size in value.shape[1:]))
        original, ends = value[position], []
        for shift in (1e-5, -1e-5):
            value[position] = original + shift
            penalty = trainer.penalty / 2 * sum(float((weight[-1] ** 2).sum()) for weight, _ in trainer.layers)
            ends.append(trainer._compute_gradient()[0] + penalty)
        value[position] = original
        assert (ends[0] - ends[1]) / 2e-5 == pytest.approx(slope[position], abs=1e-6)


def test_probabilities_of_unseen_questions_set_the_temperature() -> None:
    wrong = [row._replace(label=(row.label + (index > 7)) % 3) for index, row in enumerate(ROWS)]
    hot, cold = prepare_trainer(wrong, hidden=0, rate=0.3), prepare_trainer(hidden=0, rate=0.3)
    for trainer in (hot, cold):
        for _ in range(60):
            trainer.step(0.0)
    assert np.array(hot.weights()["layers"][0]["weight"]).shape == (len(hot.mean), 2)
    cold.weights()
    assert hot.temperature > 1 > cold.temperature
    assert "100.0% of the rows are classified rightly" in cold.notes[-1]


def test_a_training_that_goes_on_makes_the_weights_of_one_that_was_not_killed() -> None:
    whole, killed, resumed = (prepare_trainer() for _ in range(3))
    for index in range(9):
        whole.step(index / 9)
    for index in range(4):
        killed.step(index / 9)
    resumed.restore({name: np.array(array) for name, array in killed.state().items()})
    for index in range(4, 9):
        resumed.step(index / 9)
    assert resumed.weights() == whole.weights()


def test_rows_that_teach_nothing_are_refused() -> None:
    with pytest.raises(DataError, match="All 4 rows have the label 'none'"):
        prepare_trainer([row for row in ROWS if row.label == 0])
    with pytest.raises(DataError, match="All rows are of one question, or of questions that share gold"):
        prepare_trainer([row._replace(item=f"same{index}") for index, row in enumerate(ROWS)])
    with pytest.raises(DataError, match="none has the gold that a router classifier learns from"):
        prepare_trainer([])

    class Broken(HashingEmbedder):
        def embed(self, texts: Sequence[str], *, kind: Any) -> Any:
            return super().embed(texts, kind=kind) * np.nan

    with pytest.raises(DataError, match="are not finite"):
        prepare_trainer(embedder=Broken())


def test_an_input_that_never_varies_has_no_weight() -> None:
    trainer = prepare_trainer([row._replace(question=f"{row.question} Really") for row in ROWS])
    assert "did not vary in training and have no weight" in trainer.notes[1]
    assert (trainer.scale == 0).sum() == int(trainer.notes[1].split()[0])
    assert not trainer.rows[:, trainer.scale == 0].any()


def test_a_question_is_labelled_by_the_cheapest_strategy_that_answers_it_or_by_its_gold() -> None:
    knows = "from what you know(?s:.*)"
    model = ScriptedModel(((f"{knows}Easy", "Right."), (knows, "Nothing."), ("Middle", "Right [1]."), ("", "Wrong.")))
    gold = {"Easy?": 1, "Middle?": 2, "Hard?": 2, "Plain?": 1, "Lost?": 0}
    items = [Item(name, name, ("right",), tuple((f"{name}{index}",) for index in range(n))) for name, n in gold.items()]
    rows = RouterTrainer(model, search).label_items([*items, Item("open", "Open?", gold=(("p1",),))], 0)
    assert {row.item: row.label for row in rows} == {"Easy?": 0, "Middle?": 1, "Hard?": 2, "Plain?": 1}


def test_passages_and_pairs_are_labelled_by_gold_and_a_copy_of_gold_is_gold() -> None:
    @step
    def finds(query: Query) -> Ranking:
        texts = {"p1": "Gold.", "p2": "Other.", "p3": "More gold.", "p4": "Gold."}
        return Ranking(query, tuple(Hit(Node(id, text, document=id), 1.0) for id, text in texts.items()))

    one, two = Item("one", "One?", gold=(("p1",),)), Item("two", "Two?", gold=(("p2",), ("p3",)))
    items, model = [one, two, Item("lost", "Lost?", gold=(("p9",),)), Item("none", "None?")], ScriptedModel(("",))
    rows = EvaluatorTrainer(model, finds, finds).label_items(items, 0)
    assert [row.label for row in rows] == [1, 0, 0, 1, 0, 1, 1, 0, 0, 0, 0, 0]
    labels: dict[str, list[int]] = {item: [] for item in ("one", "two", "lost")}
    for row in PairTrainer(model, finds, more=0).label_items(items, 0):
        labels[row.item].append(row.label)
    assert labels == {"one": [0, 0, 1, 0, 0, 0], "two": [0, 0, 0, 1, 0, 0], "lost": [0] * 6}


def test_strips_of_a_gold_passage_are_relevant_where_they_hold_an_answer() -> None:
    @step
    def finds(query: Query) -> Ranking:
        text = "Ann Lee was born here. She sang. He ran. The mill burnt down in May. It rained. They left."
        return Ranking(query, (Hit(Node("p1", text, document="p1"), 1.0),))

    trainer = EvaluatorTrainer(ScriptedModel(("",)), finds, finds)
    for answer, labels in (("May", [1, 0, 1]), ("June", [1, 1, 1])):
        rows = trainer.label_items([Item("q", "When?", (answer,), (("p1",),))], 0)
        assert [row.label for row in rows] == labels
        assert rows[1].text == "Ann Lee was born here. She sang. He ran."


def test_answers_are_labelled_by_what_was_wrong() -> None:
    model = ScriptedModel((("Right", "Gold [1]."), ("Silent", "I do not know."), ("", "Wrong.")))
    gold = {"Right?": "p1", "Silent?": "p1", "Reader?": "p2", "Search?": "p3"}
    items = [Item(name, name, ("gold",), ((id,),)) for name, id in gold.items()]
    rows = VerifierTrainer(model, search, n=2).label_items(items, 0)
    assert [VerifierTrainer.labels[row.label] for row in rows] == ["right"] * 2 + ["wrong answer"] * 2 + [
        "wrong passages"
    ] * 2
    assert rows[0].text.startswith("Gold [1].\n\f\n[1] p1 of Right?")


def test_features_of_passages_pairs_and_answers_are_counted() -> None:
    idf = {"who": 0.0, "the": 0.0, "of": 0.0}
    question = "Who founded the mill of Ann Lee?"
    town, mill = "Ann Lee\nAnn Lee owned the Old Mill.", "Old Mill\nThe mill was founded by Bo Ray."
    passage_features = PassageFeatures.from_texts(question, town, idf, 1.0)
    assert (
        passage_features.covered,
        passage_features.titled,
        passage_features.stated,
        passage_features.names,
        passage_features.title,
    ) == (0.75, 0.5, 0.75, 1, 1)
    pair = PairFeatures.from_texts(question, f"{town}\n\f\n{mill}", idf, 1.0)
    assert (pair.lower_share, pair.higher_share, pair.added, pair.linked) == (0.5, 0.75, 0.25, 1)
    answer = AnswerFeatures.from_texts(question, f"Bo Ray [2].\n\f\n{town}\n{mill}", idf, 1.0)
    assert (answer.stated, answer.sentence_share, answer.in_question, answer.number, answer.undated) == (
        1,
        0.5,
        0,
        0,
        0,
    )
    assert AnswerFeatures.from_texts(question, f"Al.\n\f\n{town}", idf, 1.0).stated == 0


def test_an_unknown_part_and_no_arm_are_refused() -> None:
    with pytest.raises(WiringError, match="There is no classifier 'rooter'"):
        TrainedClassifier("rooter", TrainedWeights("none"))  # type: ignore[arg-type]
    with pytest.raises(WiringError, match="has the arms none"):
        ByClassifier(TrainedClassifier("router", TrainedWeights("none")), ())


@pytest.fixture(scope="module")
def invented(tmp_path_factory: pytest.TempPathFactory) -> tuple[SimulatedReader, BM25, list[Item]]:
    """A simulated reader of an invented world that overlooks and guesses, a search, and questions."""
    folder = tmp_path_factory.mktemp("invented")
    FictionalWorld(7, people=60, questions=80).write(folder / "world")
    data = DataSet(str(folder / "world"))
    items = [item for item in data.items() if item.decomposition and item.answers]
    reader = SimulatedReader.from_data(data, items, Profile(know=0.2, miss=0.1, lure=0.3))
    return reader, BM25(index_passages(data, folder=folder), top_k=5), items


@pytest.mark.slow
@pytest.mark.parametrize("part", [RouterTrainer, EvaluatorTrainer, PairTrainer, VerifierTrainer])
def test_the_same_questions_give_the_same_weights_and_a_flow_that_runs(
    part: Any, invented: tuple[SimulatedReader, BM25, list[Item]], tmp_path: Path
) -> None:
    reader, found_by, items = invented
    kept_apart = items[:3]
    rest = [item for item in items[3:] if not any(item.documents & one.documents for one in kept_apart)][:30]
    objects = {"llm": reader, "chunks": found_by.group}
    trainers = (part(reader, found_by, *[found_by] * (part is EvaluatorTrainer)) for _ in range(2))
    one, two = (
        train(trainer, rest, tmp_path / name, kept_apart=kept_apart, steps=40, objects=objects)
        for name, trainer in zip(("one", "two"), trainers, strict=True)
    )
    assert one.sha256 == two.sha256
    assert one.card["curve"][-1]["loss"] < one.card["curve"][0]["loss"]
    assert one.card["score"]["n"] == 3
    assert {"mean", "low", "high"} <= {*one.card["score"]["difference"]}
    flow = load(tmp_path / "one" / "flow.yaml", objects=objects)
    assert flow == one.flow
    assert isinstance(flow(Query(items[0].question)), Answer)
    if part is RouterTrainer:
        with pytest.raises(WeightsError, match="was trained with the arms none, one, several"):
            ByClassifier(TrainedClassifier("router", one.weights), ("one", "two"))(Query("Who?"))
