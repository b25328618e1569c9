"""The learned ranker: what it learns, what it refuses, what it does not see."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from spolia import Choice, decide, dump, load
from spolia.errors import DataError, ManifestMismatch, WeightsError
from spolia.evaluation.data.dataset import DataSet, part_of
from spolia.evaluation.data.passage_store import index_passages
from spolia.flow_files.built_in_flows import bm25, multi_hop
from spolia.models.trained_weights import TrainedWeights
from spolia.optimizer import tune
from spolia.retrieval.array_files import write_arrays
from spolia.retrieval.learned.features import FEATURES, CandidateRows
from spolia.retrieval.learned.links import MADE, node_links, title_keys
from spolia.retrieval.learned.ranker import LearnedRanker
from spolia.retrieval.learned.scores import TreeScore, read_score
from spolia.run import Run
from spolia.stores.corpus import NodeGroup
from spolia.stores.files import links_folder
from spolia.testing import HashingEmbedder
from spolia.training.ranker import LBFGS, Example, ListwiseLoss, PassFit, RankerTrainer, TreeFit
from spolia.training.training import QuestionSplit, Trained, train
from spolia.types import Item, Query, digest_of
from tests.cases import check_each


@pytest.fixture(scope="module")
def ranker(world: DataSet, passages: NodeGroup, tmp_path_factory: pytest.TempPathFactory) -> Trained:
    return train(RankerTrainer(passages), list(world.items()), tmp_path_factory.mktemp("ranker"))


def example(rows: list[list[float]], gold: list[bool]) -> Example:
    """Candidates with the first features as given, the others 0."""
    features = np.zeros((len(rows), len(FEATURES)))
    features[:, : len(rows[0])] = rows
    return Example(CandidateRows(np.arange(len(rows)), features), np.array(gold))


@pytest.mark.slow
def test_it_finds_by_links_what_neither_words_nor_names_of_the_question_tell(
    ranker: Trained, world: DataSet, tmp_path: Path, passages: NodeGroup
) -> None:
    score = ranker.card["score"]
    assert score["untrained"]["mean"] < 0.7
    assert score["trained"]["mean"] == 1.0
    second_training = train(RankerTrainer(passages), list(world.items()), tmp_path / "again")
    assert second_training.sha256 == ranker.sha256


@pytest.mark.slow
def test_each_hit_says_which_features_its_score_is_made_of(ranker: Trained) -> None:
    ranking = ranker.flow(Query("How long is the water in the town where Oda Balbalson was born?"))
    parts = {hit.node.document: dict(hit.parts) for hit in ranking.hits[:3]}
    assert parts.keys() == {"person0", "town0", "river0"}
    assert all(part and set(part) <= set(FEATURES) for part in parts.values())
    assert parts["town0"].keys() & {"linked_from_seed", "linked_from_named"}


@pytest.mark.slow
def test_random_gold_teaches_nothing(world: DataSet, passages: NodeGroup, tmp_path: Path) -> None:
    items = list(world.items())
    golds = [item.gold for item in items]
    shuffled = [item.but(gold=golds[(index * 17 + 5) % len(items)]) for index, item in enumerate(items)]
    training = train(RankerTrainer(passages), shuffled, tmp_path / "random")
    assert training.card["score"]["trained"]["mean"] < 0.3


@pytest.mark.slow
def test_a_store_whose_groups_differ_is_refused_with_both_named(
    ranker: Trained, passages: NodeGroup, world: DataSet, tmp_path: Path
) -> None:
    embedder = HashingEmbedder(8)
    other_group = index_passages(world, embedder, folder=tmp_path)
    with pytest.raises(ManifestMismatch, match=f"dimension: 0 in training, 8 here; .*'{embedder.name}' here"):
        LearnedRanker(other_group, ranker.weights, embedder)(Query("Who?"))
    with pytest.raises(ManifestMismatch, match=r"names: 'RuleEntities\(.*' in training, '' here"):
        LearnedRanker(passages, ranker.weights, names="")(Query("Who?"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"passes": []}, "holds no passes"),
        ({"passes": [{"words": [0, 1, 1]}]}, "its features are words; this version has"),
        ({"passes": [{name: [0, 1] for name in FEATURES}]}, "three finite numbers"),
        ({"passes": [{name: [0, 1, 1e308] for name in FEATURES}]}, "three finite numbers"),
        (
            {"passes": [{name: [0, 0.001, 1] for name in FEATURES}]},
            "that deviated by less than 0.02 in training has weight",
        ),
    ],
)
def test_weights_that_are_none_are_refused(ranker: Trained, tmp_path: Path, change: Any, said: str) -> None:
    from spolia.models.trained_weights import hash_of

    weights = ranker.weights.plain("ranker") | change
    (tmp_path / "weights.json").write_text(json.dumps(weights))
    card = {"part": "ranker", "sha256": hash_of(tmp_path / "weights.json")}
    (tmp_path / "card.json").write_text(json.dumps(card))
    with pytest.raises(WeightsError, match=said):
        ranker.flow.but(weights=TrainedWeights(str(tmp_path)))(Query("Who?"))


def test_a_feature_that_is_constant_in_training_has_weight_0() -> None:
    rows = [[1.0, 0.3], [0.0, 0.3], [0.2, 0.3]]
    linear = PassFit.from_examples([example(rows, [True, False, False])] * 3).finish(45)
    assert linear.weight[0] > 0
    assert not linear.weight[1:].any()
    far = example([[0.5, 900.0], [0.5, 0.3]], [True, False]).candidates.features
    assert len(set(linear.contributions(far).sum(axis=1))) == 1


@pytest.mark.parametrize(
    ("gold", "value", "said"),
    [
        ([True, True], 1.0, "Nothing can be learned from 1 question"),
        ([False, False], 1.0, "Nothing can be learned from 1 question"),
        ([True, False], float("nan"), "The feature 'words' is not finite"),
    ],
)
def test_nothing_is_learned_of_equal_labels_or_what_is_no_number(gold: list[bool], value: float, said: str) -> None:
    with pytest.raises(DataError, match=said):
        PassFit.from_examples([example([[value], [0.0]], gold)])


def test_the_gradient_of_the_loss_is_that_of_its_definition() -> None:
    random = np.random.default_rng(0)
    examples = [
        Example(CandidateRows(np.arange(n), random.normal(size=(n, len(FEATURES)))), np.isin(np.arange(n), range(gold)))
        for n, gold in ((5, 1), (4, 2), (3, 0), (6, 3))
    ]
    width = len(FEATURES)
    loss = ListwiseLoss(examples, np.zeros(width), np.ones(width), np.ones(width, np.bool_))
    weights = random.normal(size=width)
    direct = [
        np.mean([-s[g] + np.log(np.exp(s[g]) + np.exp(s[~item.gold]).sum()) for g in np.flatnonzero(item.gold)])
        for item in examples
        if item.teaches
        for s in [item.candidates.features @ weights]
    ]
    value, gradient = loss(weights, 0.3)
    assert value == pytest.approx(np.mean(direct) + 0.15 * weights @ weights)
    differences = [loss(weights + 1e-6 * item, 0.3)[0] - loss(weights - 1e-6 * item, 0.3)[0] for item in np.eye(width)]
    assert gradient == pytest.approx(np.array(differences) / 2e-6, abs=1e-6)
    search = LBFGS(weights)
    while not search.converged:
        search.step(loss)
    assert np.abs(loss(search.point)[1]).max() < 1e-6


def test_a_title_is_looked_for_without_its_parenthesis_and_up_to_its_first_comma() -> None:
    assert title_keys("Paris (Texas)") == {"paris texas", "paris"}
    assert title_keys("The") == title_keys("X") == title_keys("") == frozenset()


@pytest.mark.slow
@pytest.mark.usefixtures("ranker")  # whose training builds the group of names
@pytest.mark.parametrize("damage", [None, b"", b"PK poisoned", 60])
def test_links_are_kept_in_a_file_and_read_again_where_it_is_damaged(
    passages: NodeGroup, damage: bytes | int | None
) -> None:
    snapshot, folder = passages.snapshot(), links_folder(passages.corpus.backend.folder, passages.name)
    links = node_links(snapshot, passages.name, "entity", frozenset()).texts
    (path,) = [file for file in folder.iterdir() if digest_of((MADE, "entity")).hex()[:16] in file.name]
    whole = path.read_bytes()
    if damage is None:  # which shows that the file is read
        write_arrays(path, links.arrays() | {"mentions": np.zeros((2, 0), np.int64)})
    else:
        path.write_bytes(damage if isinstance(damage, bytes) else whole[:damage])
    snapshot.derived.clear()
    second_links = node_links(snapshot, passages.name, "entity", frozenset()).texts
    assert second_links.arrays()["mentions"].shape == ((2, 0) if damage is None else links.arrays()["mentions"].shape)
    assert second_links.names.numbers == links.names.numbers
    assert (path.read_bytes() == whole) == (damage is not None)
    path.write_bytes(whole)
    snapshot.derived.clear()


@pytest.mark.slow
def test_what_may_not_be_read_changes_no_score(tmp_path: Path) -> None:
    """A document for others shares a title and names with what anybody reads."""
    from spolia.indexing.sync.texts import add_texts
    from spolia.stores.corpus import Corpus

    open_texts = {
        "person.md": "# Oda Holmson\n\nThe painter Oda Holmson was born in Holmburg.",
        "town.md": "# Holmburg\n\nA market town with a bridge over Holm Water.",
        "river.md": "# Holm Water\n\nA stream of the lowlands, known for its trout.",
    }
    items = [
        Item(
            "q1",
            "Which water is in the town where Oda Holmson was born?",
            gold=(("text:town.md",), ("text:person.md",)),
        )
    ]
    scores = []
    for name, hidden in (("without", {}), ("with", {"secret.md": "# Holmburg\n\nHolm Water floods Oda Holmson."})):
        corpus = Corpus(str(tmp_path / name))
        add_texts(corpus, open_texts)
        if hidden:
            add_texts(corpus, hidden, access=lambda uri: ("board",))
        trainer = RankerTrainer(corpus.group())
        (question,) = trainer.prepare_questions(items)
        with Run():
            scores.append(trainer.build_examples([question])[0].candidates.features)
    assert np.array_equal(scores[0], scores[1])


@pytest.mark.slow
def test_vectors_count_where_there_are_any_and_a_restored_second_pass_ends_with_the_same_weights(
    world: DataSet, tmp_path: Path
) -> None:
    embedder, items = HashingEmbedder(64), list(world.items())
    group = index_passages(world, embedder, folder=tmp_path)
    whole, restored = RankerTrainer(group, embedder), RankerTrainer(group, embedder)
    for trainer in (whole, restored):
        trainer.prepare(items[:40], (), 0)
    while not whole.fitted:  # pass by pass
        whole.step(0.0)
    whole.step(0.0)
    restored.restore({name: array.copy() for name, array in whole.state().items()})
    while not whole.converged:
        assert whole.step(0.0) == restored.step(0.0)
    assert whole.weights() == restored.weights()
    assert restored.converged
    first, second = whole.weights()["passes"]
    assert first["meaning"][2] != 0
    assert first["earlier_pass"][2] == 0 != second["earlier_pass"][2]


@pytest.mark.slow
def test_the_flow_multi_hop_takes_the_ranker_that_fits_and_may_be_an_option_of_a_space(
    ranker: Trained, passages: NodeGroup
) -> None:
    query = Query("How long is the water in the town where Oda Balbalson was born?")
    shipped = multi_hop(passages, top_k=3)
    assert {"person0", "town0"} <= {hit.node.document for hit in shipped(query).hits}
    own = multi_hop(passages, top_k=3, ranker=str(ranker.weights.place))
    space = Choice(bm25(passages), own, name="search")
    assert load(dump(space, {"chunks": passages}), {"chunks": passages}) == space  # as a file for `spolia tune`
    decided = [flow(query) for flow in (decide(space, {"search": 0}), decide(space, {"search": 1}))]
    assert [len({"town0", "river0"} & {hit.node.document for hit in ranking.hits}) for ranking in decided][1] == 2
    assert load(dump(own, {"chunks": passages}), {"chunks": passages}) == own


@pytest.mark.slow
def test_no_candidate_is_chosen_by_questions_that_its_weights_were_trained_on(
    ranker: Trained, world: DataSet, passages: NodeGroup, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spolia.evaluation.experiment.experiment.ENOUGH", 1)
    items = list(world.items())
    own = multi_hop(passages, top_k=5, ranker=str(ranker.weights.place))
    space = Choice(bm25(passages, top_k=5), own, name="search")
    tuned_flow = tune(space, items, "R@5", path=tmp_path / "scores")
    learned = sum(ranker.card["questions"][part] for part in ("train", "validation"))
    assert any(f"{learned} questions were left out" in note for note in tuned_flow.notes)
    assert tuned_flow.score.n == len(items) - learned
    with pytest.raises(DataError, match="trained on all"):
        tune(space, [item for item in items if part_of(item.id) == "tune"], "R@5", path=tmp_path / "none")


def grow_examples(count: int, draw: int = 0) -> list[Example]:
    """Questions whose gold has a high first feature where the second one is low, and a low one where it is high."""
    examples, random = [], np.random.default_rng(draw)
    for _ in range(count):
        rows = random.random((12, 3))
        rows[:, 2] = 0.5
        worth = np.where(rows[:, 1] < 0.5, rows[:, 0], 1 - rows[:, 0])
        examples.append(example(rows.tolist(), (worth >= np.sort(worth)[-2]).tolist()))
    return examples


@pytest.mark.slow
def test_trees_rank_what_no_line_does_and_their_contributions_add_up_to_the_score_of_lightgbm() -> None:
    lightgbm = pytest.importorskip("lightgbm")
    fit, held_out = TreeFit(grow_examples(60)), grow_examples(30, 1)
    losses = [fit.step() for _ in range(60)]
    assert losses[-1] < 0.5 * losses[1]
    linear = PassFit.from_examples(grow_examples(60))
    linear.finish(45)
    assert fit.compute_loss(held_out) < 0.5
    rows = held_out[0].candidates.features
    contributions = fit.score.contributions(rows)
    expected = lightgbm.Booster(model_str=fit.booster.model_to_string()).predict(rows)
    assert np.ptp(expected - contributions.sum(axis=1)) < 1e-6
    assert not contributions[:, 2:].any()  # what is constant splits nothing
    by_line = [linear.score.contributions(item.candidates.features).sum(axis=1) for item in held_out]
    by_trees = [fit.score.contributions(item.candidates.features).sum(axis=1) for item in held_out]
    linear_best, trees_best = (
        np.mean([item.gold[scores.argmax()] for item, scores in zip(held_out, all_scores, strict=True)])
        for all_scores in (by_line, by_trees)
    )
    assert trees_best > linear_best + 0.2


@pytest.mark.slow
def test_trees_are_the_same_twice_and_after_a_kill_and_rank_without_lightgbm(
    world: DataSet, passages: NodeGroup, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("lightgbm")
    items = list(world.items())
    trainers = [RankerTrainer(passages, passes=2, trees=True) for _ in range(3)]
    training = train(trainers[0], items, tmp_path / "one", steps=160)
    assert training.card["score"]["trained"]["mean"] > 0.9
    assert training.card["steps"]["made"] == 160
    for trainer in trainers[1:]:
        trainer.prepare(*_train_and_validation(items), 0)
    for _ in range(155):
        trainers[1].step(0.0)
    trainers[2].restore(trainers[1].state())
    for trainer in trainers[1:]:
        while trainer._made < 10:
            trainer.step(0.0)
        assert json.loads(json.dumps(trainer.weights())) == json.loads((tmp_path / "one" / "weights.json").read_text())
    monkeypatch.setitem(sys.modules, "lightgbm", None)
    (hit, *_) = training.flow(Query(items[0].question)).hits
    assert hit.score == pytest.approx(sum(dict(hit.parts).values()), rel=0.5)


def _train_and_validation(items: list[Item]) -> tuple[Sequence[Item], Sequence[Item]]:
    split = QuestionSplit.from_items(items)
    return split.train, split.validation


LEAF = {"feature": [0], "threshold": [0.0], "left": [0], "right": [0], "value": [1.0]}


@check_each(
    "change",
    [
        {"left": [1]},
        {"right": [-1]},
        {"feature": [99]},
        {"value": [float("nan")]},
        {"value": [1e308]},
        {"value": []},
        {"threshold": ["x"]},
        {"left": [10**400]},
    ],
)
def test_poisoned_trees_are_refused(change: dict[str, Any]) -> None:
    assert TreeScore.from_plain({"features": list(FEATURES), "trees": [LEAF]}).contributions(
        np.zeros((2, 21))
    ).shape == (2, 21)
    with pytest.raises(WeightsError, match="not weights of a ranker"):
        read_score({"features": list(FEATURES), "trees": [LEAF | change]})
    with pytest.raises(WeightsError, match="not weights of a ranker"):
        read_score({"features": ["x"], "trees": [LEAF]})
