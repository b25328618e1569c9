"""Parts of data sets, and who looked at which."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from spolia.errors import DataError
from spolia.evaluation.datasets import DataSet
from spolia.evaluation.looks import Looks
from spolia.evaluation.splits import PARTS, counted, part_of


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


def test_a_flow_is_remembered_where_it_was_tuned(tmp_path: Path) -> None:
    looks = Looks(tmp_path / "new" / "looks.jsonl")
    assert looks.tuned_on("set", ["a"]) == ()
    looks.note("set", "tune", {"one": "a", "two": "b"}, "x1")
    looks.note("set", "select", {"two": "b"}, "x2")
    looks.note("set", "report", {"two": "b"}, "x3")
    assert looks.tuned_on("set", ["a"]) == ("tune",)
    assert looks.tuned_on("set", ["b"]) == ("tune", "select")
    assert looks.tuned_on("another set", ["b"]) == looks.tuned_on("set", ["c"]) == ()


def test_the_same_experiment_counts_once(tmp_path: Path) -> None:
    looks = Looks(tmp_path / "looks.jsonl")
    for _ in range(3):
        looks.note("set", "report", {"one": "a"}, "x1")
    looks.note("set", "report", {"one": "a"}, "x2")
    assert looks.times("set", "report") == 2
    with looks.path.open("a") as file:
        file.write('{"data": "set", "par')
    assert looks.times("set", "report") == 2
