"""`train`: the same weights for the same questions, whatever happens on the way."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from spolia.core.operator import Operator
from spolia.errors import DataError, WeightsError
from spolia.evaluation.data.dataset import DataSet
from spolia.evaluation.data.usage_log import UsageLog, marks_of
from spolia.evaluation.experiment.experiment import Experiment
from spolia.models.prompting.stand_in_models import ScriptedModel
from spolia.models.trained_weights import TrainedWeights
from spolia.retrieval import array_files
from spolia.retrieval.bm25 import BM25
from spolia.retrieval.learned.ranker import LearnedRanker
from spolia.stores.corpus import NodeGroup
from spolia.training import training
from spolia.training.parts import make_trainer
from spolia.training.trainer import Arrays, TrainingContext
from spolia.training.training import QuestionSplit, Trained, link_keys_of, train
from spolia.types import Item, Query, Ranking


class Line:
    """A part with one weight, which halves its distance to 1 at each step. Its flow does not read it."""

    part, version, steps, measure = "line", 1, 20, "R@5"
    converged, notes = False, ("One weight.",)

    def __init__(self, group: NodeGroup, dies_at: int = 0, loss: float = 0.0) -> None:
        self.group, self.dies_at, self.loss, self.made = group, dies_at, loss, 0
        self.weight = np.zeros(1, np.float32)

    def settings(self) -> Mapping[str, Any]:
        return {"group": self.group.name}

    def prepare(self, items: Sequence[Item], validation: Sequence[Item], seed: int) -> None:
        self.weight[:] = seed

    def step(self, done: float) -> float:
        self.made += 1
        if self.made == self.dies_at:
            raise KeyboardInterrupt
        self.weight += (1 - self.weight) / 2
        return self.loss + float(1 - self.weight[0])

    def validate(self) -> float | None:
        return 0.5

    def state(self) -> Arrays:
        return {"weight": self.weight}

    def restore(self, state: Arrays) -> None:
        self.weight = np.array(state["weight"], np.float32)

    def weights(self) -> Mapping[str, Any]:
        return {"weight": self.weight}

    def untrained(self) -> Operator[Query, Ranking]:
        return BM25(self.group)

    def trained(self, weights: TrainedWeights) -> Operator[Query, Ranking]:
        return BM25(self.group, source="line")


@pytest.fixture
def items(world: DataSet) -> list[Item]:
    return list(world.items())


@pytest.fixture
def done(passages: NodeGroup, items: list[Item], tmp_path: Path) -> Trained:
    return train(Line(passages), items, tmp_path / "line", objects={"chunks": passages})


@pytest.mark.slow
def test_the_card_says_what_was_trained_and_flow_and_weights_lie_beside_it(done: Trained, tmp_path: Path) -> None:
    card = json.loads((tmp_path / "line" / "card.json").read_text())
    assert card["sha256"] == done.sha256
    message = "Of 60 questions: 24 to train on, 13 for validation, 23 kept apart for the score."
    assert card["notes"][:2] == [message, "One weight."]
    assert card["notes"][2].startswith("No gain shown: R@5 changes by +0.0 points [")
    assert card["steps"] == {"made": 20, "most": 20, "converged": False, "pilot": None}
    assert card["score"]["difference"]["mean"] == 0.0
    assert card["score"]["n"] == card["questions"]["kept_apart"]
    assert len(card["curve"]) == 20
    assert card["curve"][-1]["validation"] == 0.5
    assert "{use: chunks}" in (tmp_path / "line" / "flow.yaml").read_text()
    assert TrainedWeights(str(tmp_path / "line")).tensors("line")["weight"][0] == pytest.approx(1, abs=1e-4)


@pytest.mark.slow
def test_a_killed_training_goes_on_and_gives_the_weights_of_one_that_was_not_killed(
    done: Trained, passages: NodeGroup, items: list[Item], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "KEPT_EVERY_S", 0.0)
    monkeypatch.setattr(training, "KEPT_AT_MOST", 0)
    with pytest.raises(KeyboardInterrupt):
        train(Line(passages, dies_at=12), items, tmp_path / "killed")
    with pytest.raises(DataError, match="holds another training that was interrupted"):
        train(Line(passages), items, tmp_path / "killed", seed=1)
    second_line = Line(passages)
    assert train(second_line, items, tmp_path / "killed").sha256 == done.sha256
    assert second_line.made == 9  # the steps that were kept are not made again
    finished = Line(passages)
    assert train(finished, items, tmp_path / "killed").sha256 == done.sha256
    assert finished.made == 0
    with pytest.raises(DataError, match="holds another training: a line"):
        train(Line(passages), items, tmp_path / "killed", seed=1)


@pytest.mark.slow
def test_a_time_becomes_steps_by_a_pilot_that_leaves_no_trace_in_the_weights(
    passages: NodeGroup, items: list[Item], tmp_path: Path
) -> None:
    found_training = train(Line(passages), items, tmp_path / "timed", budget_s=1e-9)
    assert found_training.card["steps"]["made"] == 1
    assert found_training.card["steps"]["pilot"]["budget_s"] == 1e-9
    assert found_training.weights.tensors("line")["weight"].tolist() == [0.5]


@pytest.mark.slow
def test_what_was_trained_on_is_not_reported_on(passages: NodeGroup, items: list[Item], tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"cannot be reported on, the first 'q3': it shares the id 'q3'"):
        train(Line(passages), items, tmp_path / "leak", kept_apart=items[3:5])
    with pytest.raises(DataError, match="shares the passage 'town0'"):
        train(Line(passages), items[:3], tmp_path / "leak", kept_apart=[Item("new", "?", gold=(("town0",),))])
    many = [item.but(id=f"{item.id}-{copy}", question=f"{item.question} {copy}") for item in items for copy in "ab"]
    log = UsageLog(tmp_path / "looks.jsonl", marks_of(many))
    train(Line(passages), many, tmp_path / "line", usage_log=log, steps=1)
    assert not Experiment(BM25(passages), many, "R@5").run(usage_log=log).tuned_count
    split = QuestionSplit.from_items(many)
    Experiment(BM25(passages), split.kept_apart, "R@5").run(usage_log=log)
    weights = TrainedWeights(str(tmp_path / "line"))  # whose card names the questions, wherever they are asked
    assert all(weights.was_trained_on(f" {item.question.upper()}") for item in split.train)
    assert not any(weights.was_trained_on(item.question) for item in split.kept_apart)
    with pytest.raises(DataError, match="were used to train a part of a flow"):
        Experiment(LearnedRanker(passages, weights), many, "R@5").run()
    assert Experiment(LearnedRanker(passages, weights), split.train[:9], "R@5", overlap=True).trained_on


SHAPES: Mapping[str, list[Item]] = {
    "pairs": [Item(f"q{at}", f"Question {at // 2}?", gold=((f"p{at // 2}",),)) for at in range(60)],
    "many of a passage": [Item(f"q{at}", f"{at}?", gold=((f"p{at // 20}",),)) for at in range(400)],
    "chain": [Item(f"q{at}", f"{at}?", gold=((f"p{at}",), (f"p{at + 1}",))) for at in range(200)],
    "large and small": [Item(f"q{at}", f"{at}?", gold=((f"p{max(0, at - 50)}",),)) for at in range(100)],
    "texts by passages": [Item(f"q{at}", f"{at % 23}?", gold=((f"p{at // 23}",),)) for at in range(23 * 40)],
}
"""Ways in which questions share passages and texts."""


@pytest.mark.parametrize("shape", SHAPES)
def test_most_questions_train_and_no_part_shares_an_id_a_text_or_a_passage_with_another(shape: str) -> None:
    items = SHAPES[shape]
    split = QuestionSplit.from_items(items)
    train, validation, separate_marks = (
        {mark for item in part for mark in link_keys_of(item)}
        for part in (split.train, split.validation, split.kept_apart)
    )
    assert not train & validation
    assert not (train | validation) & separate_marks
    assert sum(map(len, split.ids.values())) + split.left_out == len(items)
    assert len(split.train) > len(items) / 2
    assert split.kept_apart
    assert QuestionSplit.from_items(items[::-1]).kept_apart == split.kept_apart[::-1]


@pytest.mark.slow
def test_a_loss_that_is_no_number_and_too_few_questions_end_the_training(
    passages: NodeGroup, items: list[Item], tmp_path: Path
) -> None:
    with pytest.raises(DataError, match="The loss of step 1 is nan"):
        train(Line(passages, loss=float("nan")), items, tmp_path / "nan")
    with pytest.raises(DataError, match="Of 0 questions none is left to train on"):
        train(Line(passages), [], tmp_path / "none")

    class Refusing(Line):
        def prepare(self, items: Sequence[Item], validation: Sequence[Item], seed: int) -> None:
            raise DataError("Too few.")

    with pytest.raises(DataError, match=r"Too few\. Of \d+ questions: \d+ to train on, \d+ for validation"):
        train(Refusing(passages), items, tmp_path / "refused")
    assert not (tmp_path / "refused").exists()


def test_a_split_with_few_questions_to_train_on_or_none_for_the_score_warns_and_says_what_to_do() -> None:
    shared = [Item(f"q{index}", f"{index}?", gold=(("p",),)) for index in range(7)]
    few, without_score = QuestionSplit.from_items(shared).warnings
    assert "only 7 questions to train on, fewer than 8" in few
    assert "Give more questions, or ones that do not share gold passages." in without_score
    separate_items = [Item(f"q{index}", f"{index}?", gold=((f"p{index}",),)) for index in range(60)]
    assert not QuestionSplit.from_items(separate_items).warnings


@pytest.mark.slow
def test_other_weights_than_the_card_describes_are_refused(done: Trained, tmp_path: Path) -> None:
    folder = tmp_path / "line"
    with pytest.raises(WeightsError, match="holds weights of a line, and a ranker is needed"):
        TrainedWeights(str(folder)).plain("ranker")
    with pytest.raises(WeightsError, match="the flow was made with 0123"):
        TrainedWeights(str(folder), "0123").tensors("line")
    (folder / "weights.safetensors").write_bytes(b"cos\nsystem\n(S'echo poisoned'\ntR.")
    with pytest.raises(WeightsError, match="is not the file that its card describes"):
        TrainedWeights(str(folder)).tensors("line")
    (folder / "card.json").write_text("[")
    with pytest.raises(WeightsError, match="is not a card of trained weights"):
        TrainedWeights(str(folder)).tensors("line")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("part", "given", "said"),
    [
        ("verifier", {"base": "vectors"}, "takes no --base; ranker and sufficiency do"),
        ("ranker", {"base": "vectors"}, "Write --base trees"),
        ("ranker", {"method": "lsr"}, "takes no --method; adapter"),
        ("sufficiency", {"base": "vectors"}, "needs an embedder"),
        ("embedders", {}, "Did you mean embedder"),
    ],
)
def test_an_option_that_a_part_does_not_take_is_refused(
    passages: NodeGroup, part: str, given: dict[str, Any], said: str
) -> None:
    llm = ScriptedModel(("",))
    with pytest.raises(DataError, match=said):
        make_trainer(part, TrainingContext(passages, None, llm, lambda top_k: BM25(passages, top_k), **given))


@pytest.mark.slow
def test_a_full_disk_ends_the_training_with_what_to_do_and_the_last_checkpoint_stays(
    passages: NodeGroup, items: list[Item], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = array_files.write_arrays
    calls = list[Path]()

    def full(path: Path, arrays: Mapping[str, Any]) -> None:
        calls.append(path)
        if len(calls) > 2:
            raise OSError(28, "No space left on device")
        original(path, arrays)

    monkeypatch.setattr(training, "write_arrays", full)
    monkeypatch.setattr(training, "KEPT_EVERY_S", 0.0)
    monkeypatch.setattr(training, "KEPT_AT_MOST", 0)
    with pytest.raises(DataError, match=r"No space left on device.*run the same command again"):
        train(Line(passages), items, tmp_path / "line", steps=9)
    assert calls[0].exists()
    monkeypatch.setattr(training, "write_arrays", original)
    assert train(Line(passages), items, tmp_path / "line", steps=9).card["steps"]["made"] == 9


def test_two_trainings_into_one_folder_are_refused(passages: NodeGroup, items: list[Item], tmp_path: Path) -> None:
    class Nested(Line):
        def step(self, done: float) -> float:
            train(Line(passages), items, tmp_path / "line")
            return 0.0

    with pytest.raises(DataError, match="Another process trains into"):
        train(Nested(passages), items, tmp_path / "line")


def test_former_names_of_arguments_are_accepted_with_a_warning(
    passages: NodeGroup, items: list[Item], tmp_path: Path
) -> None:
    former: Any = train
    with (
        pytest.raises(DataError, match="loss"),
        pytest.warns(
            DeprecationWarning, match=r"train\((given|told)=…\) is train\((objects|on_progress)=…\) now"
        ) as warned,
    ):
        former(Line(passages, loss=float("inf")), items, tmp_path / "line", given={}, told=lambda *step: None)
    assert len(warned) == 2
