"""Parts of data sets, and who looked at which."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from spolia.core.function import step
from spolia.errors import DataError
from spolia.evaluation.data.dataset import PARTS, DataSet, count_parts, part_of
from spolia.evaluation.data.usage_log import LogEntry, Marks, UsageLog, is_same, marks_of
from spolia.evaluation.experiment.experiment import Experiment
from spolia.evaluation.measures.registry import parse_measures
from spolia.types import Item, Query, Ranking
from tests.cases import check_each


@pytest.fixture
def data(tmp_path: Path) -> DataSet:
    (tmp_path / "corpus.jsonl").write_text('{"id": "p1", "text": "The moon pulls."}')
    rows = [{"id": f"q{i}", "question": "What pulls?", "gold_ids": ["p1"]} for i in range(200)]
    (tmp_path / "questions.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return DataSet(str(tmp_path))


def test_the_parts_are_all_questions_and_none_twice(data: DataSet) -> None:
    parts = {name: [item.id for item in data.split(name).items()] for name in PARTS}
    assert sorted(id for ids in parts.values() for id in ids) == sorted(item.id for item in data.items())
    assert count_parts(item.id for item in data.items()) == {name: len(ids) for name, ids in parts.items()}


def test_a_question_never_changes_its_part() -> None:
    # frozen for ever: what was tuned on by one version must not be reported on by the next
    assert [part_of(f"q{i}") for i in range(1, 9)] == [
        "report", "select", "tune", "tune", "select", "tune", "report", "report",
    ]  # fmt: skip
    assert part_of("質問") == "select"


def test_a_question_and_its_twin_that_cannot_be_answered_are_in_the_same_part() -> None:
    twins = [(f"2hop__{n}", f"2hop__{n}-unanswerable") for n in range(50)]
    assert all(part_of(question_id) == part_of(twin_id) for question_id, twin_id in twins)
    assert {part_of(question_id) for question_id, _ in twins} == set(PARTS)
    tuned = {part_of(question_id): question_id for question_id, _ in twins}["tune"]
    log_entry = UsageLog(None).new_entry([Item(tuned, "?")], {"a": "a"}, ["R@5"])
    assert log_entry.bars_question(f"{tuned}-unanswerable")


def test_parts_have_about_the_shares_that_they_should_have() -> None:
    counts = count_parts(f"question number {i}" for i in range(10_000))
    assert {name: round(number / 10_000, 1) for name, number in counts.items()} == dict(PARTS)


def test_a_part_is_drawn_from_like_a_whole(data: DataSet) -> None:
    sample = data.split("report").sample(5, seed=1)
    assert {part_of(item.id) for item in sample} == {"report"}
    assert data.split("report").name == data.name
    with pytest.raises(DataError, match="no part 'test'"):
        data.split("test")


SET, OTHER = (marks_of([Item(f"{name}{n}", f"Who is {n}?") for n in range(200)]) for name in ("q", "x"))


def entry(part: str, *flows: str, data: Marks = SET, text: str = "", declared: bool = False) -> LogEntry:
    return LogEntry(data, part, tuple((name, name) for name in flows), text or f"{part} {flows}", declared)


def parts_taken(usage_log: UsageLog, of: LogEntry) -> set[str]:
    """The parts of the entries that take questions away."""
    return {log_entry.part for log_entry in usage_log.choosing_entries(of)}


def test_what_was_chosen_on_is_remembered(tmp_path: Path) -> None:
    usage_log = UsageLog(tmp_path / "new" / "looks.jsonl")
    assert parts_taken(usage_log, entry("all", "a")) == set()
    usage_log.note(entry("tune", "a", "b"))
    usage_log.note(entry("select", "b"))
    assert parts_taken(usage_log, entry("all", "a")) == parts_taken(usage_log, entry("all", "b")) == {"tune"}
    assert parts_taken(usage_log, entry("all", "c")) == set()
    usage_log.note(entry("select", "b", declared=True))
    assert parts_taken(usage_log, entry("all", "b", "c")) == {"tune", "select"}
    assert (
        parts_taken(usage_log, entry("select", "a")) == parts_taken(usage_log, entry("all", "a", data=OTHER)) == set()
    )


def test_who_compares_on_all_questions_has_looked_at_those_to_report_on(tmp_path: Path) -> None:
    usage_log = UsageLog(tmp_path / "looks.jsonl")
    usage_log.note(entry("all", "a"))
    assert parts_taken(usage_log, entry("report", "a")) == set()
    assert usage_log.count_other_looks(entry("report", "a")) == 0
    usage_log.note(entry("all", "a", "b"))
    assert [
        (log_entry.bars_question("q1"), log_entry.bars_question("q3"))
        for log_entry in usage_log.choosing_entries(entry("report", "a"))
    ] == [(True, False)]
    assert parts_taken(usage_log, entry("report", "c")) == parts_taken(usage_log, entry("all", "a", "b", "c")) == set()
    assert (
        usage_log.count_other_looks(entry("report", "c"))
        == usage_log.count_other_looks(entry("all", "a", "b", "c"))
        == 1
    )
    assert usage_log.count_other_looks(entry("all", "a", "b")) == 0


def test_a_look_at_some_questions_takes_these_away_and_says_which_it_was(tmp_path: Path) -> None:
    items = [Item(f"q{i}", f"What is {i}?", gold=(("p1",),)) for i in range(140)]
    tune = [item for item in items if part_of(item.id) == "tune"]
    usage_log, measures = UsageLog(tmp_path / "looks.jsonl", marks_of(items), "tune"), parse_measures("R@5")
    Experiment({"finds": nothing}, tune[:3], measures).run(usage_log=usage_log)
    whole = UsageLog(usage_log.path, marks_of(items))
    Experiment(nothing, [item for item in items if item not in tune[:3]], measures).run(usage_log=whole)
    with pytest.raises(
        DataError, match=r"3 of 140 questions were used to tune.*last 20\d\d-.* 3 questions of the part tune: finds"
    ):
        Experiment(nothing, items, measures).run(usage_log=whole)
    assert whole.forget(marks_of([Item("x", "Who?")])) == 0
    assert whole.forget(marks_of(items)) == 1
    assert usage_log.path is not None
    usage_log.path.write_text('{"data": [')
    report = Experiment(nothing, items, measures).run(usage_log=whole)
    assert report.tuned_count == 0
    assert "looks.jsonl is damaged: 1 of its lines" in report.warnings[-1]


def test_the_command_that_strikes_looks_out_names_the_data(tmp_path: Path) -> None:
    data = tmp_path / "my questions.csv"
    data.touch()
    command = UsageLog.for_data(data, tmp_path / "cache", SET).forget_command
    assert command == f"spolia data looks '{data}' --forget"
    items = [Item(f"q{i}", f"What is {i}?", gold=(("p1",),)) for i in range(140)]
    measures, tune = parse_measures("R@5"), [item for item in items if part_of(item.id) == "tune"]
    looked, whole = (UsageLog.for_data(data, tmp_path / "cache", marks_of(items), part) for part in ("tune", ""))
    Experiment({"finds": nothing}, tune, measures).run(usage_log=looked)
    with pytest.raises(DataError, match=re.escape(command)):
        Experiment(nothing, items, measures).run(usage_log=whole)


def test_a_look_without_a_list_of_questions_is_at_all_of_its_part(tmp_path: Path) -> None:
    usage_log = UsageLog(tmp_path / "looks.jsonl")
    (tmp_path / "looks.jsonl").write_text('{"data": [')  # cut off by a full disk
    usage_log.note(entry("tune", "a", "b"))
    (log_entry,) = usage_log.choosing_entries(entry("all", "a"))
    assert [log_entry.bars_question(f"q{n}") for n in (1, 2, 3, 4)] == [False, False, True, True]


@step
def nothing(query: Query) -> Ranking:
    return Ranking(query, ())


@pytest.mark.slow
def test_an_experiment_writes_down_what_it_was_chosen_by(tmp_path: Path) -> None:
    @step
    def nothing_else(query: Query) -> Ranking:
        return Ranking(query, (), "nowhere")

    items = [Item(f"q{i}", f"What is {i}?", gold=(("p1",),)) for i in range(400)]
    reported = [item for item in items if part_of(item.id) == "report"]
    flows, measures = {"a": nothing, "b": nothing_else}, parse_measures("R@5")
    Experiment(flows, items, measures).run(path=tmp_path)
    assert Experiment(flows, items, [*measures, *parse_measures("MRR")]).run(path=tmp_path).look_count == 1
    with pytest.raises(
        DataError, match=r"choose a flow .nothing; the first: 'q1'.* To go on, ask new questions; or allow it"
    ):
        Experiment(nothing, reported, measures).run(path=tmp_path / "own.experiment")
    report = Experiment(nothing, reported, measures, overlap=True).run(path=tmp_path)
    assert (report.tuned_count, report.look_count) == (len(reported), 2)
    assert Experiment(nothing, reported, measures).run().tuned_count == 0  # in memory nothing is known


def test_the_log_lies_beside_the_data_and_what_earlier_versions_wrote_elsewhere_counts(tmp_path: Path) -> None:
    data, cache, file = tmp_path / "data", tmp_path / "cache", tmp_path / "set.json"
    data.mkdir()
    file.touch()
    UsageLog(cache / "looks.jsonl").note(entry("tune", "a", "b", text="x1"))
    usage_log = UsageLog.for_data(data, cache, SET)
    usage_log.note(entry("select", "a", "b", text="x2"))
    assert [log_entry.part for log_entry in usage_log.entries(SET)] == ["tune", "select"]
    assert (data / "looks.jsonl").is_file()
    elsewhere = UsageLog.for_data(data, tmp_path / "another machine", SET)
    assert [log_entry.part for log_entry in elsewhere.entries(SET)] == ["select"]
    assert UsageLog.for_data(file, cache, SET).path == tmp_path / "set.json.looks.jsonl"
    assert (usage_log.forget(SET), usage_log.entries(SET)) == (2, [])


def test_of_few_questions_the_report_warns_and_is_not_refused(tmp_path: Path) -> None:
    @step
    def nothing_else(query: Query) -> Ranking:
        return Ranking(query, (), "nowhere")

    items = [Item(f"q{i}", f"What is {i}?", gold=(("p1",),)) for i in range(30)]
    reported, measures = [item for item in items if part_of(item.id) == "report"], parse_measures("R@5")
    Experiment({"a": nothing, "b": nothing_else}, items, measures).run(path=tmp_path)
    report = Experiment(nothing, reported, measures).run(path=tmp_path)
    assert report.tuned_count == len(reported)
    assert "used to tune or choose a flow (nothing), so their scores are too good." in report.warnings[0]


@check_each(("kept", "added"), [(200, 0), (200, 1), (199, 0), (200, 5000), (20, 0), (150, 100)])
def test_a_data_set_is_the_same_where_questions_were_added_or_taken_away(kept: int, added: int) -> None:
    items = [Item(f"q{n}", f"Who is {n}?") for n in range(kept)] + [Item(f"n{n}", "Who?") for n in range(added)]
    assert is_same(marks_of(items), SET)
    assert is_same(SET, marks_of(items))
    assert not is_same(marks_of(items), OTHER)


def test_the_same_experiment_counts_once(tmp_path: Path) -> None:
    usage_log = UsageLog(tmp_path / "looks.jsonl")
    for _ in range(3):
        usage_log.note(entry("report", "a", text="x1", declared=True))
    usage_log.note(entry("report", "a", text="x2", declared=True))
    assert usage_log.count_other_looks(entry("report", "a", text="x3")) == 2
    with (tmp_path / "looks.jsonl").open("a") as file:
        file.write('{"data": "set", "par')
    assert usage_log.count_other_looks(entry("report", "a", text="x3")) == 2
