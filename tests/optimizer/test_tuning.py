"""Spaces tuned on questions whose best flow is known."""

import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from time import sleep
from typing import Any, ClassVar
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spolia import checksums
from spolia.core.combinators import Branch, Choice, Identity
from spolia.core.combinators.space import Space
from spolia.core.function import step
from spolia.core.operator import Operator
from spolia.errors import DataError, SpoliaError, StepFailed, StoreTooNew
from spolia.evaluation.data.dataset import part_of
from spolia.evaluation.data.usage_log import UsageLog, marks_of
from spolia.evaluation.experiment.execution import ask
from spolia.evaluation.experiment.experiment import Experiment
from spolia.evaluation.experiment.score_store import ANSWER, ScoreStore
from spolia.evaluation.measures.measure import Measure
from spolia.evaluation.measures.rank_measures import ReciprocalRank
from spolia.evaluation.statistics.interval import Interval
from spolia.generation.reader import Reader
from spolia.indexing.sync.texts import add_texts
from spolia.models.prompting.stand_in_models import ScriptedModel
from spolia.optimizer.budget import TuningBudget
from spolia.optimizer.candidates import FlowTable
from spolia.optimizer.flow_scores import FlowScores
from spolia.optimizer.objectives import Objectives
from spolia.optimizer.progress import StudyProgress
from spolia.optimizer.report import html
from spolia.optimizer.score_board import Board, ScoreRows, main_effects
from spolia.optimizer.strategies import GreedySearch, Halving, ModelsFirst, RandomSearch, find_best
from spolia.optimizer.tuning import tune
from spolia.orchestration.rank_fusion import ReciprocalRankFusion
from spolia.post_retrieval.selection import Cut
from spolia.retrieval.bm25 import BM25
from spolia.run import Run
from spolia.stores.corpus import Corpus
from spolia.types import Answer, Hit, Item, Node, Query, Ranking
from tests.cases import check_each

from .finds import MODEL, NODES, Finds, questions, reading

SPACE = Finds().vary("skill", skill=[0, 1, 2, 3]).vary("luck", luck=[0, 1, 2]) >> Cut().vary("most", top_k=[2, 6])
SPACE_DEFAULT = Finds() >> Cut(2)


@pytest.mark.slow
def test_the_best_flow_is_chosen_and_reported_on_questions_that_did_not_choose() -> None:
    tuned_flow = tune(SPACE, questions(300), "MRR", seed=3)
    ids = [item.id for item in questions(300)]
    assert tuned_flow.point["skill"] == 3
    assert tuned_flow.point["most"] == 1
    assert tuned_flow.fresh == sum(part_of(id) == "report" for id in ids)
    assert tuned_flow.questions + tuned_flow.fresh == 300
    assert tuned_flow.score.low < tuned_flow.score.mean < tuned_flow.score.high
    assert tuned_flow.score.n == tuned_flow.fresh
    assert tuned_flow.regret_bound is not None
    assert 0 <= tuned_flow.regret_bound < 0.3
    assert tuned_flow.rows == tuned_flow.flows * tuned_flow.questions + len(tuned_flow.finalists) * tuned_flow.fresh
    fresh = [item for item in questions(300) if part_of(item.id) == "report"]
    assert tuned_flow.score.mean == pytest.approx(ask(tuned_flow.flow, fresh, "MRR").scores.mean())


@pytest.mark.slow
def test_copies_of_a_question_are_no_fresh_questions() -> None:
    copies = [item.but(id=f"{item.id}-{n}", question=item.question.upper()) for item in questions(90) for n in range(3)]
    tuned_flow = tune(SPACE, copies, "MRR")
    assert (tuned_flow.questions, tuned_flow.fresh) == (90, 0)
    assert "180 questions were left out: they have the text of another question." in tuned_flow.notes


@pytest.mark.slow
def test_what_is_left_out_and_what_fails_is_told_of_each_flow_wherever_a_study_is_shown() -> None:
    @step
    def failing(query: Query, *, skill: int = 0) -> Ranking:
        if int(query.text.split()[1]) % 2:
            raise ValueError("no odd questions")
        return Finds(skill)(query)

    items = [*questions(60), Item("bare", "question 60")]
    tuned_flow = tune(failing.vary("skill", skill=[0, 3]), items, "MRR")
    assert [(finalist.failed, finalist.questions_asked) for finalist in tuned_flow.finalists] == [(30, 60), (30, 60)]
    lines = [
        "1 question was left out: no gold for MRR.",
        "The chosen flow: 30 of 60 questions failed and score 0; the first, q",
        ": ValueError: no odd questions",
        "1 of 1 other finalist failed on questions, which score 0.",
    ]
    for view in ("\n".join(tuned_flow.notes), html(tuned_flow), tuned_flow._repr_html_(), str(tuned_flow.json())):
        for line in lines:
            assert line in view
    assert [finalist["failed"] for finalist in tuned_flow.json()["finalists"]] == [30, 30]
    assert "<td>30 of 60</td>" in html(tuned_flow)


@pytest.mark.slow
@pytest.mark.parametrize("n", [9, 220])
@pytest.mark.parametrize("flow", [Finds(), Finds().vary(luck=[7, 7])])
def test_a_space_of_one_flow_is_measured(flow: Operator[Query, Any], n: int) -> None:
    tuned_flow = tune(flow, questions(n), "MRR")
    assert "The space has one flow: it is measured, and nothing is chosen." in tuned_flow.notes
    assert (len(tuned_flow.finalists), tuned_flow.regret_bound in (None, 0.0)) == (1, True)
    fresh = [item for item in questions(n) if part_of(item.id) == "report" or n < 200]
    assert tuned_flow.score.mean == pytest.approx(ask(tuned_flow.flow, fresh, "MRR").scores.mean(), abs=0.01)


@pytest.mark.slow
def test_few_questions_all_choose_and_the_score_is_corrected_for_that() -> None:
    tuned_flow = tune(SPACE, questions(60), "MRR")
    own = ask(tuned_flow.flow, questions(60), "MRR").scores.mean()
    assert tuned_flow.fresh == 0
    assert tuned_flow.regret_bound is None
    assert tuned_flow.score.mean <= own
    assert tuned_flow.score.low <= tuned_flow.score.mean <= tuned_flow.score.high


def test_effects_are_those_of_the_candidates_whichever_questions_a_flow_was_asked() -> None:
    candidates = FlowTable(Space(SPACE))
    board, better = Board(candidates, 40, 600), {"skill": [0.0, 0.1, 0.2, 0.3], "luck": [0.0, 0.0, -0.3]}

    def additive(flows: Sequence[int], asked: range) -> ScoreRows:
        points = [candidates.point_by_number[flow] for flow in flows]
        own = np.array([sum(values[point[place]] for place, values in better.items()) for point in points])
        return ScoreRows(own[:, None] - np.array([question % 7 / 10 for question in asked]), np.zeros((len(flows), 2)))

    find_best(Halving(), board, additive)
    assert len(np.unique(board.question_counts)) > 2
    gains = {(effect.place, effect.candidate): effect.better for effect in main_effects(board)}
    for place, values in better.items():
        gains_of_place = [gains[place, str(candidate)] for candidate in range(len(values))]
        np.testing.assert_allclose(gains_of_place, np.array(values) - np.mean(values), atol=1e-9)
    assert {effect.better for effect in main_effects(board) if effect.place == "most"} == {0.0}  # and no rounding


@pytest.mark.slow
def test_the_report_is_one_page_with_ties_effects_and_spend() -> None:
    tuned_flow = tune(SPACE, questions(60), "MRR", budget="50%")
    assert tuned_flow.curve[-1][0] <= 0.5 * tuned_flow.flows * tuned_flow.questions
    assert tuned_flow.curve[-1][2] == pytest.approx(0.0, abs=1e-12)
    page = html(tuned_flow)
    ElementTree.fromstring(page.split("</head>")[1].join(["<html>", ""]))
    for sentence in (
        "Finalists",
        "Effects",
        "effects of skill",
        "Spend",
        "Behind in MRR, by scores",
        "chosen",
        "tuned on",
    ):
        assert sentence in page
    assert not re.search(r"""(src|href)=|url\(|@import""", page)


@pytest.mark.slow
def test_the_report_shows_the_questions_on_which_the_best_and_the_default_flow_differ(tmp_path: Path) -> None:
    items = questions(210)
    tuned_flow = tune(SPACE, items, "MRR", path=tmp_path)
    default, runner_up = tuned_flow.differences
    assert (default.rival, runner_up.rival) == ("the default flow", "the runner-up")
    assert default.better + default.worse + default.equal >= tuned_flow.questions
    first = default.questions[0]
    assert first.ours.score - first.theirs.score == max(
        entry.ours.score - entry.theirs.score for entry in default.questions
    )
    for entry in default.questions:
        item = next(item for item in items if item.id == entry.id)
        for flow, result in ((tuned_flow.flow, entry.ours), (SPACE_DEFAULT, entry.theirs)):
            hits = [hit.node.id for hit in flow(Query(item.question)).hits]
            assert [passage.name for passage in result.passages] == [NODES[int(id[1:])].document for id in hits[:3]]
            gold = [place for place, id in enumerate(hits, 1) if id == "n0"]
            assert result.score == pytest.approx(1 / gold[0] if gold else 0.0)
            assert [passage.is_gold for passage in result.passages] == [id == "n0" for id in hits[:3]]
    page = html(tuned_flow)
    assert "Against the default flow" in page
    assert first.question in page
    second_tuned_flow = tune(SPACE, items, "MRR", path=tmp_path)
    assert (second_tuned_flow.rows, second_tuned_flow.differences) == (0, tuned_flow.differences)
    groups = [entry.group for entry in tuned_flow.finalists]
    assert groups[0] == 1
    assert set(filter(None, groups)) == set(range(1, max(filter(None, groups)) + 1))


@pytest.mark.slow
def test_of_flows_on_fresh_questions_the_report_says_which_are_tied() -> None:
    tuned_flow = tune(SPACE, questions(60), "MRR", budget="50%")
    ahead = Interval(-0.1, -0.2, -0.05, 60)
    chosen, *_ = tuned_flow.finalists
    finalists = (chosen, chosen.but(ahead=ahead), chosen.but(ahead=ahead.but(high=0.05)))
    page = html(tuned_flow.but(finalists=finalists, regret_bound=0.02))
    assert (page.count("<td>worse</td>"), page.count("<td>tied</td>")) == (1, 1)
    assert "No finalist is better by more than 2.0" in page


@pytest.mark.slow
def test_the_report_plots_finalists_by_their_price_where_they_cost_something() -> None:
    tuned_flow = tune(SPACE, questions(60), "MRR", budget="50%")
    assert "a question</h3>" not in html(tuned_flow)
    score, even = Interval(0.5, 0.4, 0.6, 60), Interval(0.0, 0.0, 0.0, 60)
    chosen, dear = (tuned_flow.finalists[0].but(score=score, ahead=even, usd=usd) for usd in (0.001, 0.002))
    page = html(tuned_flow.but(finalists=(chosen, dear)))
    assert "MRR by USD a question" in page
    plot = page.split("MRR by USD a question</h3>")[1].split("</svg>")[0]
    assert [colour == "#9a9a94" for colour in re.findall(r'<circle[^>]*fill="([^"]*)"', plot)] == [True, False]
    assert "MRR by calls a question" in html(
        tuned_flow.but(finalists=(chosen.but(usd=0.0, calls=1.0), dear.but(usd=0.0)))
    )


@pytest.mark.slow
def test_the_curve_of_a_report_takes_the_room_that_its_numbers_need() -> None:
    tuned_flow = tune(SPACE, questions(60), "MRR", budget="50%")
    page = html(tuned_flow.but(curve=((100, 0.0, 0.002), (200, 0.0, 0.0))))
    plot = page.split("Behind in MRR, by scores asked for</h3>")[1].split("</svg>")[0]
    line = re.search(r'<polyline points="[\d.]+,([\d.]+) [\d.]+,([\d.]+)', plot)
    assert line is not None
    assert float(line[2]) - float(line[1]) > 60  # of 240


def test_a_sweep_scores_as_an_experiment_does() -> None:
    candidates, items = FlowTable(Space(SPACE)), questions(12)
    with ScoreStore() as store:
        scores = FlowScores(candidates, items, Objectives.from_measures("nDCG@3"), Run(share=True), store)
        swept = scores(candidates.all_flows, range(4, 12))
        assert not store.columns(ANSWER).size
    np.testing.assert_array_equal(swept.values[:, :, 0], ask(candidates.flows, items[4:], "nDCG@3").scores[:, :, 0])


@dataclass(frozen=True)
class Drawn(Operator[Query, Ranking]):
    """The passages that are listed for a question, by its number."""

    passages: tuple[tuple[str, ...], ...] = ()

    def calls(self, rows: int | None = None, /) -> int | None:
        return 0

    def apply(self, value: Query, /) -> Ranking:
        nodes = [Node(f"{rank}", "", document=name) for rank, name in enumerate(self.passages[int(value.text)])]
        return Ranking(value, tuple(Hit(node, -float(rank)) for rank, node in enumerate(nodes)))


RANKED = [
    "nDCG@3", 'nDCG@4(rule="exponential")', 'nDCG@5(rule="autorag")', "MRR", 'MRR(rule="autorag")', "MAP",
    'MAP(rule="ragas")', 'MAP(rule="autorag")', "R@3", "full@4", "P@2", "Rprec", "Hit@1", "SetP", "SetR", "SetF1",
]  # fmt: skip
names = st.sampled_from("abcdef")
graded = st.dictionaries(names, st.sampled_from([0.0, 1.0, 3.0]), max_size=3)
gold = st.lists(st.lists(names, min_size=1, max_size=2, unique=True).map(tuple), min_size=1, max_size=3, unique=True)


@pytest.mark.slow
@settings(max_examples=40)
@given(drawn=st.lists(st.tuples(st.lists(names, max_size=6).map(tuple), gold, graded), min_size=2, max_size=6))
def test_gold_at_the_same_places_is_measured_once_and_right(drawn: list[Any]) -> None:
    items = [
        Item(f"{index}", f"{index}", gold=tuple(gold_groups), grades=tuple(of_each.items()))
        for index, (_, gold_groups, of_each) in enumerate(drawn)
    ]
    space = Drawn(tuple(swept for swept, *_ in drawn)) >> Cut().vary("most", top_k=[None, 1, 3])
    candidates = FlowTable(Space(space))
    with ScoreStore() as store:
        swept = FlowScores(candidates, items, Objectives.from_measures(RANKED), Run(share=True), store)(
            candidates.all_flows, range(len(items))
        )
        assert not store.columns(ANSWER).size
    np.testing.assert_array_equal(swept.values, ask(candidates.flows, items, RANKED).scores)


@pytest.mark.slow
def test_gold_that_names_files_is_found_in_a_sweep_as_in_an_experiment(tmp_path: Path) -> None:
    corpora = [Corpus(str(tmp_path / f"{name}.spolia")) for name in ("one", "other")]
    for corpus, more in zip(corpora, ("lit", "lit and painted"), strict=True):
        add_texts(corpus, {f"{index}.md": f"Lighthouse {index} was {more} in {1800 + index}." for index in range(4)})
    items = [
        Item(f"q{index}", f"When was lighthouse {index} lit?", gold=((f"text:{index}.md",),)) for index in range(4)
    ]
    space = Choice(*(BM25(corpus.group()) for corpus in corpora), name="store") >> Cut().vary("most", top_k=[1, 4])
    candidates = FlowTable(Space(space))
    with ScoreStore() as store:
        scores = FlowScores(candidates, items, Objectives.from_measures("MRR"), Run(share=True), store)
        swept = scores(candidates.all_flows, range(4))
        assert not store.columns(ANSWER).size
    assert swept.values.max() == 1.0
    np.testing.assert_array_equal(swept.values[:, :, 0], ask(candidates.flows, items, "MRR").scores[:, :, 0])


@pytest.mark.slow
def test_a_budget_is_kept_and_the_same_study_again_computes_nothing(tmp_path: Path) -> None:
    first = tune(SPACE, questions(250), "MRR", budget="20%", seed=5, path=tmp_path / "study")
    assert 0 < first.share <= 0.2
    second_tuned_flow = tune(SPACE, questions(250), "MRR", budget="20%", seed=5, path=tmp_path / "study")
    assert (second_tuned_flow.rows, second_tuned_flow.share) == (0, 0.0)
    assert (second_tuned_flow.point, second_tuned_flow.score, second_tuned_flow.regret_bound) == (
        first.point,
        first.score,
        first.regret_bound,
    )
    assert second_tuned_flow.json()["spent"] == {"rows": 0, "calls": 0, "usd": 0.0, "share": 0.0}
    more = tune(SPACE, questions(250), "MRR", seed=5, path=tmp_path / "study")
    assert 0 < more.rows < more.flows * more.questions + len(more.finalists) * more.fresh


@pytest.mark.slow
def test_a_study_that_broke_off_goes_on_and_ends_with_the_same_choice(tmp_path: Path) -> None:
    whole = tune(SPACE, questions(250), "MRR", budget="30%", path=tmp_path / "whole")

    def stop(progress: StudyProgress) -> None:
        if progress.done > progress.total / 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tune(SPACE, questions(250), "MRR", budget="30%", path=tmp_path / "part", on_progress=stop)
    rest = tune(SPACE, questions(250), "MRR", budget="30%", path=tmp_path / "part")
    assert 0 < rest.rows < whole.rows
    assert (rest.point, rest.score) == (whole.point, whole.score)


def test_a_study_of_something_else_is_refused(tmp_path: Path) -> None:
    tune(SPACE, questions(30), "MRR", path=tmp_path)
    with pytest.raises(DataError, match="holds a study of something else: objective: was MRR, is R@2"):
        tune(SPACE, questions(30), "R@2", path=tmp_path)
    with pytest.raises(DataError, match="holds a study of something else: questions"):
        tune(SPACE, questions(31), "MRR", path=tmp_path)


@pytest.mark.parametrize("written", ["[" * 100_000, "[]"])
def test_a_damaged_study_file_is_named_and_kept(tmp_path: Path, written: str) -> None:
    (tmp_path / "study.json").write_text(written)
    with pytest.raises(DataError, match=r"study.json is damaged: .* Restore it from a backup"):
        tune(SPACE, questions(30), "MRR", path=tmp_path)


def test_two_studies_cannot_use_one_folder_at_the_same_time(tmp_path: Path) -> None:
    tune(SPACE, questions(10), "MRR", path=tmp_path)
    with ScoreStore(tmp_path / "scores.experiment"), pytest.raises(SpoliaError, match="in use"):
        tune(SPACE, questions(10), "MRR", path=tmp_path)


def test_equal_flows_are_one_and_ties_go_to_the_cheapest() -> None:
    space = Finds(skill=3).vary("luck", luck=[7, 7]) >> Choice(Cut(6) >> Cut(6), Identity(), Cut(6), name="cut")
    tuned_flow = tune(space, questions(20), "MRR")
    assert tuned_flow.flows == 3
    assert tuned_flow.point["cut"] == 1


@pytest.mark.slow
def test_flows_that_ask_models_are_asked_as_in_an_experiment_and_their_cost_is_counted(tmp_path: Path) -> None:
    tuned_flow = tune(reading(MODEL), questions(25), "EM", path=tmp_path)
    assert tuned_flow.point["skill"] == 1
    assert 0 < tuned_flow.spent.calls <= tuned_flow.rows
    assert tuned_flow.finalists[0].calls == 1.0
    second_tuned_flow = tune(reading(MODEL), questions(25), "EM", path=tmp_path)
    assert (second_tuned_flow.rows, second_tuned_flow.spent.calls) == (0, 0)
    assert second_tuned_flow.score == tuned_flow.score


def test_a_flow_that_always_fails_is_left_out_and_told_of() -> None:
    @step
    def breaks(value: Query) -> Ranking:
        raise RuntimeError("no server")

    tuned_flow = tune(Choice(Finds(), breaks, name="search"), questions(20), "MRR")
    assert tuned_flow.point == {"search": 0}
    ((choices, reason),) = tuned_flow.excluded
    assert choices == "search=breaks"
    assert reason.startswith("it fails on each of the first")
    assert "no server" in reason
    with pytest.raises(StepFailed, match="no server"):
        tune(Choice(breaks, breaks >> Cut(), name="search"), questions(20), "MRR")


def test_a_measure_that_never_differs_is_told_of() -> None:
    tuned_flow = tune(Finds(skill=5).vary("luck", luck=[0, 1]), questions(20), "MRR")
    assert any("score the same" in note for note in tuned_flow.notes)
    assert tuned_flow.score.mean == 1.0


@check_each(
    ("space", "items", "objective", "how", "message"),
    [
        (SPACE, [Item("q", "?")], "MRR", {}, "has gold for MRR"),
        (SPACE, questions(9), "MRR,R@5", {"strategy": "prove"}, "takes one objective without limits"),
        (SPACE, questions(9), "MRR", {"under": ["USD"]}, "is no limit. Write a measure and a number"),
        (SPACE, questions(9), "BLEU", {}, "must be a measure that is a mean"),
        (SPACE, questions(9), "MRR", {"budget": "1%"}, "too small .* Write at least '48 rows', or 22.23%"),
        (SPACE, questions(9), "MRR", {"budget": "a lot"}, "is not a budget"),
        (SPACE, questions(9), "MRR", {"budget": "17 rows", "strategy": GreedySearch()}, "too small"),
        (Finds().vary(skill=range(200), luck=range(200)), questions(9), "MRR", {}, "Write a budget in rows"),
    ],
)
def test_what_cannot_be_tuned_says_what_to_write(
    space: Any, items: Sequence[Item], objective: str, how: dict[str, Any], message: str
) -> None:
    with pytest.raises(DataError, match=message):
        tune(space, items, objective, **how)


def test_a_space_that_cannot_be_listed_is_tuned_by_what_is_drawn_of_it() -> None:
    huge = Finds().vary("skill", skill=range(200)).vary("luck", luck=range(200)) >> Cut().vary(
        "most", top_k=range(1, 9)
    )
    tuned_flow = tune(huge, questions(20), "MRR", budget="300 rows")
    assert tuned_flow.flows == 320_000
    assert tuned_flow.flows_asked < 100
    assert tuned_flow.score.mean > 0.9


@pytest.mark.slow
def test_questions_that_chose_cannot_be_reported_on_later(tmp_path: Path) -> None:
    items = questions(300)
    log = UsageLog(tmp_path / "looks.jsonl", marks_of(items))
    tune(SPACE, items, "MRR", budget="20%", usage_log=log)
    assert {entry.part for entry in log.entries(log.data)} == {"tune", "select", "report"}


@pytest.mark.slow
def test_the_same_seed_chooses_the_same_and_rivals_take_the_same_budget() -> None:
    for strategy in (None, RandomSearch(), GreedySearch()):
        one, two = (tune(SPACE, questions(60), "MRR", budget="600 rows", strategy=strategy, seed=2) for _ in range(2))
        assert (one.point, one.score, one.rows) == (two.point, two.score, two.rows)
        assert one.rows <= 600


def test_a_budget_is_a_share_or_a_number_of_rows() -> None:
    assert TuningBudget.parse("100 rows").rows(50) == 50
    assert TuningBudget.parse("2.5 %").rows(1000) == 25


@pytest.mark.slow
def test_a_flow_that_breaks_in_a_sweep_is_left_out_and_the_others_are_still_swept() -> None:
    @dataclass(frozen=True)
    class Breaks(Finds):
        def apply(self, value: Query, /) -> Ranking:
            raise RuntimeError("no server")

    with ScoreStore() as store:
        candidates = FlowTable(Space(Choice(Finds(), Breaks(), Finds(skill=2), name="search")))
        scores = FlowScores(candidates, questions(12), Objectives.from_measures("MRR"), Run(share=True), store)
        values = scores(candidates.all_flows, range(12)).values
        assert np.isneginf(values[1]).all()
        assert [*scores.excluded] == [1]
        assert np.isfinite(values[[0, 2]]).all()
        assert not (store.columns(ANSWER)["status"] == 1).any()


def test_equal_contexts_are_read_once_whichever_flows_show_them() -> None:
    space = Finds(skill=1) >> Cut().vary("most", top_k=[2, 3, 4, 5, 6]) >> Reader(MODEL, max_passages=2)
    tuned_flow = tune(space, questions(10), "EM")
    assert tuned_flow.rows == 50
    assert tuned_flow.spent.calls == 10


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_flow_that_is_degraded_in_a_sweep_is_asked_as_an_experiment_asks_it() -> None:
    @dataclass(frozen=True)
    class Down(Finds):
        def apply(self, value: Query, /) -> Ranking:
            if value.text.endswith("3"):
                raise RuntimeError("no server")
            return super().apply(value)

    flow = Branch(Down(), Finds(luck=2), min_arms=1) >> ReciprocalRankFusion()
    candidates = FlowTable(Space(Choice(flow, Finds(), name="search")))
    with ScoreStore() as store:
        scores = FlowScores(candidates, questions(12), Objectives.from_measures("MRR"), Run(share=True), store)
        values = scores(candidates.all_flows, range(12)).values
        assert np.isfinite(values).all()
        assert set(store.columns(ANSWER)["flow"].tolist()) == {scores._register_flow(0)}


@pytest.mark.slow
def test_questions_of_flows_that_wait_are_swept_at_the_same_time() -> None:
    together: list[int] = []
    running: list[int] = []

    @dataclass(frozen=True)
    class Waits(Finds):
        waits = True

        def apply(self, value: Query, /) -> Ranking:
            running.append(1)
            together.append(len(running))
            sleep(0.005)
            running.pop()
            return super().apply(value)

    tuned_flow = tune(Waits().vary("skill", skill=[0, 3]), questions(12), "MRR", run=Run(share=True, threads=4))
    assert tuned_flow.point == {"skill": 1}
    assert max(together) > 1


@pytest.mark.slow
def test_a_space_of_far_too_many_flows_is_tuned_by_a_budget_in_rows() -> None:
    parts = [Cut().vary(f"cut {index}", top_k=range(1, 11)) for index in range(23)]
    space = Finds()
    for part in parts:
        space = space >> part  # type: ignore[assignment]
    tuned_flow = tune(space, questions(10), "MRR", budget="60 rows", seed=1)
    assert tuned_flow.flows == 10**23
    assert tuned_flow.share < 1e-20
    (note,) = [note for note in tuned_flow.notes if "too many to list" in note]
    assert re.fullmatch(r"The space has 1e\+23 points, too many to list: \d+ flows of it were drawn\.", note)


@pytest.mark.slow
def test_a_choice_that_never_differs_is_merged_and_told_of() -> None:
    space = Choice(Finds(2), Finds(2), name="search") >> Cut().vary("most", top_k=[1, 5])
    tuned_flow = tune(space, questions(10), "MRR")
    assert (tuned_flow.flows, tuned_flow.rows) == (2, 20)
    assert (
        "All candidates of search are the same: nothing is chosen there. Write others, or no choice."
        in tuned_flow.notes
    )
    assert not any("are the same" in note for note in tune(SPACE, questions(10), "MRR").notes)


def test_a_study_of_a_newer_version_or_of_another_corpus_is_refused(tmp_path: Path) -> None:
    tune(SPACE, questions(10), "MRR", path=tmp_path / "study")
    about = tmp_path / "study" / "study.json"
    checksums.write(about, checksums.read(about) | {"form": 2})
    with pytest.raises(StoreTooNew, match="was written by a newer version of Spolia"):
        tune(SPACE, questions(10), "MRR", path=tmp_path / "study")


@pytest.mark.slow
def test_a_study_goes_not_on_when_its_documents_have_changed(tmp_path: Path) -> None:
    corpus = Corpus(str(tmp_path / "facts.spolia"))
    add_texts(corpus, {f"{index}.md": f"Lighthouse {index} was lit in {1800 + index}." for index in range(4)})
    items = [
        Item(f"q{index}", f"When was lighthouse {index} lit?", gold=((f"text:{index}.md",),)) for index in range(4)
    ]
    space = BM25(corpus.group()) >> Cut().vary("most", top_k=[1, 4])
    tune(space, items, "MRR", path=tmp_path / "study")
    add_texts(corpus, {"9.md": "Lighthouse 9 was lit in 1809."})
    with pytest.raises(DataError, match="holds a study of something else: reads"):
        tune(space, items, "MRR", path=tmp_path / "study")


def test_what_a_full_disk_refuses_of_a_study_names_the_file(tmp_path: Path) -> None:
    (tmp_path / f".study.json.{os.getpid()}.part").mkdir()
    with pytest.raises(DataError, match=r"study.json cannot be written: .* Free some space, or name another folder"):
        tune(SPACE, questions(10), "MRR", path=tmp_path)


SHOWING = Finds(skill=2) >> Cut().vary("most", top_k=[1, 2, 3, 4, 5])


@pytest.mark.slow
def test_a_limit_is_kept_before_anything_is_better_and_the_nearest_is_told_of() -> None:
    free = tune(SHOWING, questions(40), "MRR")
    assert free.point == {"most": 3}
    limited = tune(SHOWING, questions(40), "MRR", under=["DocsShown=2"])
    assert limited.point == {"most": 1}
    assert limited.score.mean < free.score.mean
    none = tune(SHOWING, questions(40), "MRR", under=["DocsShown=0.5"])
    assert none.point == {"most": 0}
    assert any("No flow was found that keeps within DocsShown=0.5" in note for note in none.notes)
    assert tune(SHOWING, questions(40), "DocsShown", under=["MRR=0.55"]).point == {"most": 1}


@pytest.mark.slow
def test_of_several_objectives_the_knee_of_the_front_is_chosen_and_the_front_is_told() -> None:
    flat = Finds(skill=2) >> Cut().vary("most", top_k=[1, 2, 3, 4, 5, 6])
    tuned_flow = tune(flat, questions(120), "MRR,DocsShown", under=["ATC=1"])
    assert {str(dict(finalist.means)["ATC"]) for finalist in tuned_flow.finalists} == {"0.0"}  # not -0.0
    means = {finalist.number: dict(finalist.means) for finalist in tuned_flow.finalists}
    assert {finalist.number for finalist in tuned_flow.finalists if finalist.on_front} == {0, 1, 2, 3}
    assert tuned_flow.point["most"] in {1, 2}
    assert means[4]["DocsShown"] == 5.0
    assert means[3]["MRR"] == means[5]["MRR"]
    assert tuned_flow.regret_bound is None
    assert "MRR by DocsShown" in html(tuned_flow)
    assert html(tuned_flow).count("<circle") >= len(tuned_flow.finalists)


def test_a_varied_candidate_is_told_apart_in_few_words() -> None:
    search = BM25(Corpus("notes.spolia").group(), top_k=10)
    options = search, search.vary(top_k=[3, 20]), search.vary(source=["a", "b"])
    texts = FlowTable(Space(Choice(*options, name="search"))).candidate_texts("search")
    assert texts == ["BM25", "BM25 with top_k varied", "BM25 with source varied"]


CLOCK = [0.0]


@dataclass(frozen=True)
class Takes(Finds):
    seconds: float = 1.0

    def apply(self, value: Query, /) -> Ranking:
        CLOCK[0] += self.seconds
        return super().apply(value)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.perf_counter", lambda: CLOCK[0])


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["Seconds", "Seconds,MRR", "MRR,Seconds"])
def test_a_difference_below_a_millisecond_decides_nothing(clock: None, objective: str) -> None:
    for n in (12, 100):
        space = Choice(Takes(seconds=0.0009), Takes(seconds=0.0005), Takes(seconds=0.0013), name="search")
        tuned_flow = tune(space, questions(n), objective, run=Run())
        assert tuned_flow.point == {"search": 0}
        assert "tied" in html(tuned_flow) or not tuned_flow.fresh or objective[0] == "M"
        assert {comparison.on_front for comparison in tuned_flow.finalists} <= {True, None}
        assert all((comparison.better, comparison.worse) == (0, 0) for comparison in tuned_flow.differences)
        slow = Choice(Takes(seconds=0.003), Takes(seconds=0.0005), name="search")
        assert tune(slow, questions(n), objective, run=Run()).point == {"search": 1}
    flows = {"a": Takes(seconds=0.0009), "b": Takes(seconds=0.0005)}
    (comparison,) = Experiment(flows, questions(30), "Seconds").run(run=Run()).comparisons
    assert not comparison.shown
    (comparison,) = (
        Experiment({**flows, "a": Takes(seconds=0.003)}, questions(30), "Seconds").run(run=Run()).comparisons
    )
    assert comparison.shown


@pytest.mark.slow
def test_a_flow_that_takes_too_long_is_not_chosen(clock: None) -> None:
    space = Choice(Takes(), Takes(skill=3, seconds=4.0), Takes(skill=1, seconds=2.0), name="search")
    assert tune(space, questions(12), "MRR", run=Run()).point == {"search": 1}
    tuned_flow = tune(space, questions(12), "MRR", run=Run(), under=["Seconds=2"])
    assert tuned_flow.point == {"search": 2}
    assert not tuned_flow.notes
    with pytest.raises(DataError, match="share steps or a cache do not take their own time"):
        tune(space, questions(12), "MRR", run=Run(share=True), under=["Seconds=2"])


@pytest.mark.slow
def test_greedy_combines_measures_as_it_is_told() -> None:
    for combine, best in (("mean", 0), ("rank", 0), ("normalize_mean", 2), ("front", 1)):
        tuned_flow = tune(SHOWING, questions(40), "MRR,DocsShown", strategy=GreedySearch(combine=combine))
        assert tuned_flow.point["most"] == best, combine
    with pytest.raises(DataError, match="combines no measures"):
        GreedySearch(combine="sum")


def test_models_first_begins_with_the_places_that_ask_models() -> None:
    model = ScriptedModel((("", "none"),))
    readers = Choice(Reader(model), Reader(model, max_passages=2), name="reader")
    space = FlowTable(Space(Finds().vary("skill", skill=[0, 1]) >> readers))
    assert [*ModelsFirst().order_places(space)] == ["reader", "skill"]


def test_less_is_better_of_costs() -> None:
    space = Finds(skill=2) >> Choice(Cut(4), Cut(2), Identity(), name="cut") >> Reader(MODEL)
    tuned_flow = tune(space, questions(12), "DocsShown")
    assert tuned_flow.point == {"cut": 1}
    assert tuned_flow.score.mean == 2.0
    assert [finalist.score is None for finalist in tuned_flow.finalists] == [False, True, True]
    assert html(tuned_flow).count("<td>not measured</td>") == 2
    assert "With 200 questions or more" in tuned_flow.json()["unscored"] in html(tuned_flow)


@dataclass(frozen=True)
class Unread(Measure):
    """A judge of whose verdicts none can be read."""

    notation: ClassVar[str] = "Unread"

    def applies(self, item: Item) -> bool:
        return True

    def score(self, result: Ranking | Answer, item: Item) -> None:
        return None


@pytest.mark.slow
@pytest.mark.parametrize("number", [12, 60])
def test_a_measure_without_a_score_decides_nothing_and_is_told(number: int) -> None:
    tuned_flow = tune(Choice(Finds(1), Finds(2), name="search"), questions(number), [ReciprocalRank(), Unread()])
    assert tuned_flow.point == {"search": 1}
    assert "Unread has no score on any of the" in " ".join(tuned_flow.notes)
    assert {finalist.json()["means"].get("Unread") for finalist in tuned_flow.finalists} == {None}
    assert "NaN" not in json.dumps(tuned_flow.json())
    assert "nan" not in html(tuned_flow)


@pytest.mark.slow
def test_of_several_objectives_a_tie_a_constant_one_and_a_chosen_flow_off_the_front_are_told() -> None:
    fresh_only = tuple(item.question for item in questions(40) if part_of(item.id) == "report")

    @dataclass(frozen=True)
    class OnFresh(Finds):
        asked: tuple[str, ...] = ()

        def apply(self, value: Query, /) -> Ranking:
            return Finds(5 if value.text in self.asked else self.skill).apply(value)

    space = Choice(OnFresh(1), OnFresh(1, asked=fresh_only), OnFresh(0), name="search")
    tuned_flow = tune(space, questions(40), "MRR,ATC")
    assert tuned_flow.point == {"search": 0}
    notes = " ".join(tuned_flow.notes)
    assert "ATC is the same for all flows on the" in notes
    assert "1 other flow tied with the chosen one in all objectives" in notes
    assert not tuned_flow.finalists[0].on_front
    assert "the chosen flow is not on the Pareto front: search=" in notes
    assert "not on the Pareto front" in html(tuned_flow)
