"""The sufficiency classifier: rows from chains, gradients, thresholds, and CoRAG that ends where it says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from spolia.errors import DataError, WeightsError
from spolia.evaluation.data.dataset import DataSet
from spolia.evaluation.data.passage_store import index_passages
from spolia.evaluation.simulation.profile import Profile
from spolia.evaluation.simulation.reader import SimulatedReader
from spolia.evaluation.simulation.world import FictionalWorld
from spolia.journal import Runs
from spolia.models.prompting.stand_in_models import ScriptedModel
from spolia.models.text_classifier import ChainFeatures, TextClassifier, TrainedClassifier
from spolia.retrieval.bm25 import BM25
from spolia.run import Run
from spolia.stores.corpus import Corpus
from spolia.testing import HashingEmbedder
from spolia.training.classifier import NEVER
from spolia.training.sufficiency import (
    SampledChain,
    SufficiencyTrainer,
    answer_logprob,
    choose_threshold,
    measure_stopping,
    sample_chains,
    sufficiency_rows,
)
from spolia.training.training import train
from spolia.types import Answer, Chain, Item, Prompt, Query, Token
from tests.cases import check_each


def chain(item: str, *exact: float, promise: float = 0.0, answer: str = "Ann") -> SampledChain:
    """A chain with this EM after each of its pairs; a pair is 10 tokens, the answer 5."""
    pairs = tuple((f"Hop {index} of {item}?", f"{answer} {index}") for index in range(len(exact)))
    tokens = tuple(10 * index + 5 for index in range(1, len(exact) + 1))
    return SampledChain(item, Chain(Query(f"What is {item}?"), pairs), exact, exact, tokens, promise)


def test_each_beginning_up_to_the_first_that_suffices_is_a_row() -> None:
    rows = sufficiency_rows([chain("a", 0, 1, 1), chain("b", 0, 0, 0)])
    assert [(row.item, row.text.count("Q: "), row.sufficient) for row in rows] == [
        ("a", 1, False), ("a", 2, True), ("b", 1, False), ("b", 2, False), ("b", 3, False),
    ]  # fmt: skip
    assert rows[1].text == "Question: What is a?\nQ: Hop 0 of a?\nA: Ann 0\nQ: Hop 1 of a?\nA: Ann 1"


def test_chains_of_one_pair_are_sampled_down_and_the_most_promising_chain_is_kept() -> None:
    short = [chain(f"s{index}", 1, 1) for index in range(20)]
    two = [chain(f"t{index}", 0, 1) for index in range(4)]
    rows = sufficiency_rows([*short, *two], singles=1.75, seed=3)
    assert sum(row.item.startswith("s") for row in rows) == 7
    assert rows == sufficiency_rows([*short, *two], singles=1.75, seed=3)
    assert rows != sufficiency_rows([*short, *two], singles=1.75, seed=4)
    best = sufficiency_rows([chain("a", 0, 0, promise=-2.0), chain("a", 0, 1, promise=-1.0)], best_only=True)
    assert [row.sufficient for row in best] == [False, True]


def test_a_threshold_saves_what_it_can_without_losing_more_than_is_allowed() -> None:
    chains = [chain(f"q{index}", 0, 1, 1, 1) for index in range(180)] + [
        chain(f"r{index}", 0, 0, 0, 1) for index in range(120)
    ]
    scores = [[0.1, 0.9, 0.9, 0.9]] * 180 + [[0.1, 0.4, 0.4, 0.4]] * 120
    choice = choose_threshold(chains, scores, most_lost=0.015)
    assert 0.4 < choice.threshold <= 0.9
    assert choice.change == 0
    assert choice.saved == pytest.approx(180 * 20 / (300 * 45))
    assert measure_stopping(chains, [2] * 300).change == pytest.approx(-0.4)
    assert measure_stopping(chains, [2] * 300).lower < -0.4
    confused = [[0.9, 0.1, 0.1, 0.1]] * 300
    assert choose_threshold(chains, confused, 0.015).saved == 0


def test_too_few_questions_show_no_threshold() -> None:
    chains = [chain(f"q{index}", 0, 1, 1, 1) for index in range(150)]
    choice = choose_threshold(chains, [[0.1, 0.9, 0.9, 0.9]] * 150, most_lost=0.015)
    assert choice.threshold == NEVER
    assert "About 199 questions with chains can show that" in choice.describe(0.015)
    assert choose_threshold([], [], 0.015).threshold == NEVER


class Scoring(ScriptedModel):
    """A model that finds an answer likely if the text before holds it."""

    def continuation(self, prompt: Prompt, text: str) -> tuple[Token, ...]:
        return (Token(text, -0.5 if text in prompt.text else -4.0),)


def test_the_chain_of_a_question_that_makes_its_answer_likeliest_is_learned_from_by_default() -> None:
    llm = Scoring(("",), capabilities=frozenset(("chat", "scores")))
    item = Item("a", "What is a?", ("Ann 1",))
    unlikely, likely = (sampled_chain.chain for sampled_chain in (chain("a", 0, 0, answer="Bob"), chain("a", 0, 1)))
    assert (answer_logprob(llm, item, unlikely), answer_logprob(llm, item, likely)) == (-4.0, -0.5)
    search = BM25(Corpus("none").group())
    assert SufficiencyTrainer(llm, search).best_only
    assert not SufficiencyTrainer(llm, search, best_only=False).best_only
    assert not SufficiencyTrainer(Scoring(("",)), search).best_only
    assert not SufficiencyTrainer(ScriptedModel(("",)), search).best_only


@pytest.mark.slow
@pytest.mark.parametrize(("questions", "least"), [(60, 0), (400, 50)])
def test_a_threshold_chosen_among_many_loses_more_than_is_allowed_as_seldom_as_is_said(
    questions: int, least: int
) -> None:
    draw = np.random.default_rng(5)
    wrong = chosen = 0
    for _ in range(60):  # the classifier knows nothing, and 5 % of the chains that end early lose their answer
        loses = draw.random(questions) < 0.05
        chains = [chain(f"q{index}", float(not lost), 1) for index, lost in enumerate(loses)]
        scores = draw.random((questions, 2)).tolist()
        threshold = choose_threshold(chains, scores, most_lost=0.015, tried=100).threshold
        chosen += threshold < NEVER
        wrong += 0.05 * max(0.0, 1 - threshold) > 0.015
    assert chosen >= least
    assert wrong <= 6


def trainer_on(chains: list[SampledChain], **options: Any) -> SufficiencyTrainer:
    trainer = SufficiencyTrainer(ScriptedModel(("",)), BM25(Corpus("none").group()), chains=chains, **options)
    items = [Item(id, f"What is {id}?") for id in dict.fromkeys(sampled_chain.item for sampled_chain in chains)]
    trainer.prepare(items, items[:2], 0)
    return trainer


@pytest.mark.parametrize("hidden", [0, 3])
def test_the_gradient_is_that_of_the_loss(hidden: int) -> None:
    trainer = trainer_on([chain("a", 0, 1), chain("of b", 0, 0, 1), chain("c", 0, 0), chain("d", 1)], hidden=hidden)
    draw = np.random.default_rng(0)
    for _ in range(3):
        trainer.step(0.0)
    _, slopes = trainer._compute_gradient()
    values = [array for layer in trainer.layers for array in layer]
    for value, slope in zip(values, slopes, strict=True):
        position = (-1, *(int(draw.integers(size)) for size in value.shape[1:]))  # of the model that sees all rows
        original, ends = value[position], []
        for shift in (1e-5, -1e-5):
            value[position] = original + shift
            penalty = trainer.penalty / 2 * sum(float((weight[-1] ** 2).sum()) for weight, _ in trainer.layers)
            ends.append(trainer._compute_gradient()[0] + penalty)
        value[position] = original
        assert (ends[0] - ends[1]) / 2e-5 == pytest.approx(slope[position], abs=1e-6)


def test_what_cannot_be_learned_is_refused() -> None:
    with pytest.raises(DataError, match="All 4 rows have the label 'insufficient'"):
        trainer_on([chain("a", 0, 0), chain("b", 0, 0)])
    with pytest.raises(DataError, match="from 0 questions: none has the gold"):
        trainer_on([])


def test_features_of_a_chain_are_counted() -> None:
    chain_text = "Question: Who is the mother of Ann?\nQ: Who is Ann?\nA: A painter.\nQ: Her mother?\nA: I do not know."
    chain_features = ChainFeatures.from_texts(
        "Who is the mother of Ann?", chain_text, {"who": 0.0, "is": 0.0, "the": 0.0, "of": 0.0}, 2.0
    )
    assert (
        chain_features.steps,
        chain_features.answers,
        chain_features.failures,
        chain_features.last_failed,
        chain_features.hops,
        chain_features.hops_left,
    ) == (
        2,
        1,
        1,
        1,
        3,
        2,
    )
    assert (
        chain_features.covered,
        chain_features.uncovered,
        chain_features.asks_who,
        chain_features.asks_when,
        chain_features.new,
    ) == (0.5, 2, 1, 0, 0)
    assert (chain_features.loose, chain_features.chained, chain_features.answer_in_question, chain_features.head) == (
        1,
        0,
        0,
        0.2,
    )


@pytest.mark.slow
def test_a_trained_classifier_ends_the_chains_of_corag(tmp_path: Path) -> None:
    FictionalWorld(7, people=60, questions=80).write(tmp_path / "world")
    data = DataSet(str(tmp_path / "world"))
    items = [item for item in data.items() if item.decomposition and item.answers]
    reader = SimulatedReader.from_data(data, items, Profile(miss=0.05))
    search = BM25(index_passages(data, folder=tmp_path), top_k=5)
    chains = list(sample_chains(reader, search, items, steps=4, n=1))
    for is_first in (True, False):  # after a kill a model is not asked again
        with Runs(tmp_path / "runs.db") as runs, Run(cache=runs.cache) as run:
            assert list(sample_chains(reader, search, items[:3], steps=4, n=1)) == chains[:3]
        assert bool(run.actual_usage.calls) == is_first
    assert {entry.item for entry in chains} == {item.id for item in items}
    assert all(list(entry.tokens) == sorted(entry.tokens) for entry in chains)
    trainer = SufficiencyTrainer(reader, search, hidden=4, chain_steps=4, chains=chains, most_lost=0.1)
    second_trainer = SufficiencyTrainer(reader, search, hidden=4, chain_steps=4, chains=chains, most_lost=0.1)
    objects = {"llm": reader, "chunks": search.group}
    training, twice = (
        train(entry, items, tmp_path / name, kept_apart=(), steps=80, objects=objects)
        for entry, name in ((trainer, "one"), (second_trainer, "two"))
    )
    assert training.sha256 == twice.sha256
    assert training.card["curve"][-1]["loss"] < training.card["curve"][0]["loss"]
    tokens = {}
    for name, flow in (("all", trainer.untrained()), ("some", training.flow)):
        with Run() as run, run.lane() as lane:
            answers = [flow(Query(item.question)) for item in items[:8]]
        assert all(isinstance(answer, Answer) for answer in answers)
        tokens[name] = lane.usage.input_tokens
    assert tokens["some"] < tokens["all"]
    weights = json.loads((tmp_path / "one" / "weights.json").read_text())
    assert 0 < weights["threshold"] < 1
    with pytest.raises(WeightsError, match="trained with the embedder"):
        TrainedClassifier("sufficiency", training.weights, Wide(16)).scores("Who?", ["Question: Who?"])


class Wide(HashingEmbedder):
    """Vectors of any width by one name."""

    name = "wide"


@check_each(
    ("change", "said"),
    [
        ({"rare": None}, "must be finite"),
        ({"rare": 10**400}, "too large"),
        ({"layers": []}, "one unit for each label"),
        ({"layers": "x"}, "indices"),
        ({"layers": [{"weight": [[1]], "bias": [0]}]}, "do not fit"),
        ({"mean": ["x"]}, "could not convert"),
        ({"idf": [1]}, "no attribute"),
    ],
)
def test_weights_that_are_none_are_refused(change: dict[str, Any], said: str) -> None:
    trainer = trainer_on([chain("a", 0, 1), chain("b", 0, 0, 1)], embedder=Wide(16))
    plain = trainer.weights()
    assert TextClassifier.from_plain("sufficiency", plain).probabilities(
        [("Who?", "Question: Who?")], Wide(16)
    ).shape == (1, 2)
    with pytest.raises(WeightsError, match=r"trained on 54 numbers a text, and here there are 70"):
        TextClassifier.from_plain("sufficiency", plain).probabilities([("Who?", "Question: Who?")], Wide(24))
    with pytest.raises(WeightsError, match=said):
        TextClassifier.from_plain("sufficiency", plain | change)
    with pytest.raises(WeightsError, match=next(iter(change))):
        TextClassifier.from_plain("sufficiency", {name: weight for name, weight in plain.items() if name not in change})
