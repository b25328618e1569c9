"""Parts of data sets, and who looked at which."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from spolia.errors import DataError
from spolia.evaluation.datasets import DataSet
from spolia.evaluation.looks import Looks, is_same, marks_of
from spolia.evaluation.splits import PARTS, counted, part_of
from spolia.types import Item


@pytest.fixture
def data(tmp_path: Path) -> DataSet:
    (tmp_path / "corpus.jsonl").write_text('{"id": "p1", "text": "The moon pulls."}')
    rows = [{"id": f"q{i}", "question": "What pulls?", "gold_ids": ["p1"]} for i in range(200)]
    (tmp_path / "questions.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return DataSet(str(tmp_path))


def test_the_parts_are_all_questions_and_none_twice(data: DataSet) -> None:
    parts = {name: [item.id for item in data.split(name).items()] for name in PARTS}
    assert sorted(id for ids in parts.values() for id in ids) == sorted(item.id for item in data.items())
    assert counted(item.id for item in data.items()) == {name: len(ids) for name, ids in parts.items()}


def test_a_question_never_changes_its_part() -> None:
    # frozen for ever: what was tuned on by one version must not be reported on by the next
    assert [part_of(f"q{i}") for i in range(1, 9)] == [
        "report", "select", "tune", "tune", "select", "tune", "report", "report",
    ]  # fmt: skip
    assert part_of("質問") == "select"


def test_parts_have_about_the_shares_that_they_should_have() -> None:
    found = counted(f"question number {i}" for i in range(10_000))
    assert {name: round(number / 10_000, 1) for name, number in found.items()} == dict(PARTS)


def test_a_part_is_drawn_from_like_a_whole(data: DataSet) -> None:
    drawn = data.split("report").sample(5, seed=1)
    assert {part_of(item.id) for item in drawn} == {"report"}
    assert data.split("report").name == data.name
    with pytest.raises(DataError, match="no part 'test'"):
        data.split("test")


SET, OTHER = (marks_of([Item(f"{name}{n}", f"Who is {n}?") for n in range(200)]) for name in ("q", "x"))


def test_a_flow_is_remembered_where_it_was_tuned(tmp_path: Path) -> None:
    looks = Looks(tmp_path / "new" / "looks.jsonl")
    assert looks.tuned_on(SET, ["a"]) == ()
    looks.note(SET, "tune", {"one": "a", "two": "b"}, "x1")
    looks.note(SET, "select", {"two": "b"}, "x2")
    looks.note(SET, "report", {"two": "b"}, "x3")
    assert looks.tuned_on(SET, ["a"]) == ("tune",)
    assert looks.tuned_on(SET, ["b"]) == ("tune", "select")
    assert looks.tuned_on(OTHER, ["b"]) == looks.tuned_on(SET, ["c"]) == ()


@pytest.mark.parametrize(("kept", "added"), [(200, 0), (200, 1), (199, 0), (200, 5000), (20, 0), (150, 100)])
def test_a_data_set_is_the_same_where_questions_were_added_or_taken_away(kept: int, added: int) -> None:
    some = [Item(f"q{n}", f"Who is {n}?") for n in range(kept)] + [Item(f"n{n}", "Who?") for n in range(added)]
    assert is_same(marks_of(some), SET)
    assert is_same(SET, marks_of(some))
    assert not is_same(marks_of(some), OTHER)


def test_the_same_experiment_counts_once(tmp_path: Path) -> None:
    looks = Looks(tmp_path / "looks.jsonl")
    for _ in range(3):
        looks.note(SET, "report", {"one": "a"}, "x1")
    looks.note(SET, "report", {"one": "a"}, "x2")
    assert looks.times(SET, "report") == 2
    with looks.path.open("a") as file:
        file.write('{"data": "set", "par')
    assert looks.times(SET, "report") == 2
