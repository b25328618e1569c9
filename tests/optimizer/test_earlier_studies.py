"""Studies that begin with what was best on other questions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from spolia import BM25, Choice, Corpus, Cut, Identity, Item, Ranking, step
from spolia.core.combinators.space import Space
from spolia.core.operator import Operator
from spolia.evaluation.data.dataset import DataSet
from spolia.optimizer.candidates import FlowTable
from spolia.optimizer.earlier_studies import EarlierStudies, SpaceNames, question_marks
from spolia.optimizer.plan import TuningPlan
from spolia.optimizer.tuned_flow import TunedFlow
from spolia.optimizer.tuning import tune
from spolia.post_retrieval import Percentile
from spolia.retrieval import TFIDF

from .finds import Finds
from .test_tuning import SPACE

GROUP = Corpus("none.spolia").group("chunk")
FINDERS = Choice(TFIDF(GROUP, 60, "words", sublinear=False), BM25(GROUP, 60, "words"), name="words")
WORDS = FINDERS >> Choice(Identity(), Percentile(0.2), name="selection")


@step
def said(ranking: Ranking, *, prompt: str, key: str) -> Ranking:
    return ranking


def questions(n: int, about: str) -> list[Item]:
    return [
        Item(f"q{number}", f"{about} {number}", (f"the answer of {about}",), gold=(("gold",),)) for number in range(n)
    ]


def run_study(
    earlier: EarlierStudies | None, about: str, space: Operator[Any, Any] = SPACE, **options: Any
) -> TunedFlow:
    options = {"budget": "30%", "seed": 1, **options}
    return tune(space, questions(40, about), options.pop("objective", "MRR"), earlier=earlier, **options)


def notes_of_start(tuned_flow: TunedFlow) -> list[str]:
    return [note for note in tuned_flow.notes if note.startswith("The search began")]


@pytest.mark.slow
def test_a_study_begins_with_what_was_best_on_other_questions_and_says_of_how_many_studies(tmp_path: Path) -> None:
    earlier = EarlierStudies(tmp_path, None)
    first = run_study(earlier, "ships")
    assert not notes_of_start(first)
    start = earlier.find_warm_start(TuningPlan.from_space(SPACE, questions(40, "goats"), "MRR"))
    assert (dict(start.points[0]), start.own) == (first.point, 1)
    (note,) = notes_of_start(run_study(earlier, "goats"))
    assert "best in 1 study of other questions." in note
    (note,) = notes_of_start(run_study(earlier, "boats"))
    assert "best in 2 studies of other questions." in note
    assert not notes_of_start(run_study(None, "boats"))


@pytest.mark.slow
def test_a_record_of_the_same_questions_or_of_some_of_them_is_not_used(tmp_path: Path) -> None:
    earlier = EarlierStudies(tmp_path, None)
    run_study(earlier, "ships", strategy="random")
    assert earlier.find_warm_start(TuningPlan.from_space(SPACE, questions(40, "goats"), "MRR")).points
    assert not earlier.find_warm_start(TuningPlan.from_space(SPACE, questions(40, "ships"), "MRR", seed=2)).points
    for subset in (questions(40, "ships")[10:12], [*questions(40, "ships")[:20], *questions(60, "goats")[20:]]):
        assert not earlier.find_warm_start(TuningPlan.from_space(SPACE, subset, "MRR")).points
    renamed = [item.but(id=f"other-{item.id}") for item in questions(40, "ships")]
    assert not earlier.find_warm_start(TuningPlan.from_space(SPACE, renamed, "MRR")).points


@pytest.mark.slow
def test_places_and_candidates_are_matched_by_name_and_the_rest_is_the_default(tmp_path: Path) -> None:
    earlier = EarlierStudies(tmp_path, None)
    best = run_study(earlier, "ships").point
    assert best["skill"] == 3
    moved_space = Finds().vary("luck", luck=[2, 1, 0]).vary("skill", skill=[3, 2]) >> Choice(
        Identity(), Cut(3), name="more"
    )
    start = earlier.find_warm_start(TuningPlan.from_space(moved_space, questions(40, "goats"), "MRR"))
    assert start.points[0] == {"luck": 2 - best["luck"], "skill": 0}
    assert notes_of_start(run_study(earlier, "goats", moved_space))
    other_space = Finds().vary("a", skill=[3, 2]).vary("luck", luck=[7, 8])
    assert not earlier.find_warm_start(TuningPlan.from_space(other_space, questions(40, "goats"), "MRR")).points
    assert not earlier.find_warm_start(TuningPlan.from_space(SPACE, questions(40, "goats"), "nDCG@10")).points


@pytest.mark.slow
def test_a_record_holds_no_texts_and_no_places_of_this_machine(tmp_path: Path) -> None:
    prompt = "Answer like a pirate who knows the secret of ships."
    space = SPACE >> Choice(Identity(), said.but(prompt=prompt, key="sk-0123456789abcdef0123456789"), name="said")
    run_study(EarlierStudies(tmp_path, None), "ships", space)
    (path,) = tmp_path.iterdir()
    text = path.read_text()
    assert json.loads(text)["places"]["skill"] == ["0", "1", "2", "3"]
    for secret in ("pirate", "sk-0", "ships", "answer of", "gold", "q1"):
        assert secret not in text
    assert len(text) < 8_000


def test_the_names_of_a_space_are_the_same_over_every_corpus() -> None:
    def names(path: str) -> SpaceNames:
        group = Corpus(path).group("chunk")
        either = Choice(BM25(group), BM25(Corpus(path).group("short")))
        return SpaceNames(FlowTable(Space(either >> Cut().vary(top_k=(1, 2)) >> Cut().vary(top_k=(1, 2, 3)))))

    space_names, other_space_names = names("a.spolia"), names("somewhere/else.spolia")
    assert space_names.places == other_space_names.places
    assert len(space_names.candidates.all_flows) == len(other_space_names.candidates.all_flows) == 12
    assert space_names.choices(space_names.candidates.point_by_number[5]) == other_space_names.choices(
        other_space_names.candidates.point_by_number[5]
    )
    assert {"Cut.top_k#1", "Cut.top_k#2"} < space_names.places.keys()


@pytest.mark.slow
def test_a_study_that_goes_on_begins_as_it_began_whatever_has_ended_since(tmp_path: Path) -> None:
    earlier = EarlierStudies(tmp_path / "records", None)
    first = run_study(earlier, "ships", path=tmp_path / "study")
    run_study(earlier, "goats")
    second = run_study(earlier, "ships", path=tmp_path / "study")
    assert (second.rows, second.point, second.notes) == (0, first.point, first.notes)


@pytest.mark.slow
def test_damaged_records_and_those_of_another_version_are_passed_over(tmp_path: Path) -> None:
    earlier = EarlierStudies(tmp_path, None)
    run_study(earlier, "ships")
    (path,) = tmp_path.iterdir()
    good = json.loads(path.read_text())
    (tmp_path / "cut.json").write_text(path.read_text()[:50])
    for index, record in enumerate(
        (
            [],
            3,
            {**good, "form": 2},
            {**good, "places": 1},
            {**good, "best": [1]},
            {**good, "best": [{"score": 1, "takes": [99, 0, 0]}]},
            {"form": 1},
        )
    ):
        (tmp_path / f"other{index}.json").write_text(json.dumps(record))
    assert earlier.find_warm_start(TuningPlan.from_space(SPACE, questions(40, "goats"), "MRR")).own == 1
    path.unlink()
    assert not earlier.find_warm_start(TuningPlan.from_space(SPACE, questions(40, "goats"), "MRR")).points


def test_what_is_shipped_is_used_where_a_space_has_the_same_names() -> None:
    start = EarlierStudies(Path("/nowhere")).find_warm_start(
        TuningPlan.from_space(WORDS, questions(40, "goats"), "nDCG@5")
    )
    assert start.own == 0
    assert {*start.shipped} <= {"covid_qa", "squad_newwiki", "xquad_en"}
    assert {"words": 1, "selection": 0} in start.points
    assert "shipped with Spolia" in str(start)


@pytest.mark.slow
def test_a_shipped_record_is_not_used_for_some_questions_of_its_own_data(shared_datasets: Path) -> None:
    items = list(DataSet(str(shared_datasets / "covid_qa")).items())
    earlier = EarlierStudies(Path("/nowhere"), questions=question_marks(items))
    for asked_items in (items[-20:], items):
        start = earlier.find_warm_start(
            TuningPlan.from_space(WORDS, [item for item in asked_items if item.gold], "nDCG@10")
        )
        assert set(start.shipped) == {"squad_newwiki", "xquad_en"}


@pytest.mark.slow
def test_a_record_of_a_part_of_a_data_set_is_not_used_for_another_part(tmp_path: Path) -> None:
    items = questions(60, "ships")
    earlier = EarlierStudies(tmp_path, None, question_marks(items))
    tune(SPACE, items[:30], "MRR", budget="30%", strategy="random", earlier=earlier)
    plan = TuningPlan.from_space(SPACE, items[30:], "MRR")
    assert not earlier.find_warm_start(plan).points
    assert (
        EarlierStudies(tmp_path, None)
        .find_warm_start(TuningPlan.from_space(SPACE, questions(20, "goats"), "MRR"))
        .points
    )
