"""Data sets: what is read, and what is said about those that do not follow the schema."""

from __future__ import annotations

import gzip
import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from spolia.errors import DataError
from spolia.evaluation.data.dataset import DataSet
from spolia.types import SubQuestion

Row = dict[str, Any]
CORPUS: list[Row] = [
    {"id": "p1", "title": "Tides", "text": "The moon pulls the sea."},
    {"id": "p2", "text": "Salt.", "meta": {"y": 1}},
]
QUESTIONS: list[Row] = [
    {
        "id": "q1",
        "question": "What pulls the sea?",
        "answers": ["the moon", "moon"],
        "type": "2hop",
        "gold_ids": ["p1", "p2"],
        "decomposition": [{"question": "What?", "answer": "the moon", "gold_id": "p1"}],
        "meta": {"fold": "dev", "spans": [{"start": 4}]},
    },
    {"id": "q2", "question": "¿Qué? 何?", "gold_ids": []},
]


def lines(rows: list[Row]) -> bytes:
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "corpus.jsonl").write_bytes(lines(CORPUS))
    (tmp_path / "questions.jsonl").write_bytes(lines(QUESTIONS))
    return tmp_path


def items_of(folder: Path) -> list[object]:
    return list(DataSet(str(folder)).items())


def with_question(folder: Path, **changes: object) -> Path:
    (folder / "questions.jsonl").write_bytes(lines([QUESTIONS[1], QUESTIONS[0] | changes]))
    return folder


def test_items_carry_all_that_the_questions_say(folder: Path) -> None:
    item, other_item = DataSet(str(folder)).items()
    assert (item.id, item.answers, item.type) == ("q1", ("the moon", "moon"), "2hop")
    assert item.gold == (("p1",), ("p2",))
    assert item.decomposition == (SubQuestion("What?", "the moon", "p1"),)
    assert item.meta == (("fold", "dev"), ("spans", '[{"start": 4}]'))
    assert (other_item.question, other_item.gold, other_item.answers) == ("¿Qué? 何?", (), ())


def test_an_empty_question_is_kept_for_it_stands_in_published_sets(folder: Path) -> None:
    with_question(folder, question="")
    assert [item.question for item in DataSet(str(folder)).items()] == ["¿Qué? 何?", ""]


def test_passages_are_documents(folder: Path) -> None:
    first, second = DataSet(str(folder)).passages()
    assert (first.id, first.title, first.text) == ("p1", "Tides", "The moon pulls the sea.")
    assert (second.title, second.meta) == ("", (("y", 1),))


def test_gzipped_reads_the_same(folder: Path) -> None:
    plain = items_of(folder)
    for name in ("corpus.jsonl", "questions.jsonl"):
        (folder / f"{name}.gz").write_bytes(gzip.compress((folder / name).read_bytes()))
        (folder / name).unlink()
    assert items_of(folder) == plain


def test_passages_stream(tmp_path: Path) -> None:
    (tmp_path / "corpus.jsonl").write_bytes(lines(CORPUS) + b"not JSON\n")
    assert [passage.id for passage in itertools.islice(DataSet(str(tmp_path)).passages(), 2)] == ["p1", "p2"]


def test_a_list_among_the_gold_is_a_group_of_which_one_suffices(folder: Path) -> None:
    with_question(folder, gold_ids=[["p1", "p2"], "p2", "p2"])
    assert list(DataSet(str(folder)).items())[1].gold == (("p1", "p2"), ("p2",))


def test_grades_become_gains_where_higher_is_better(folder: Path) -> None:
    with_question(folder, meta={"grades": {"p1": 1, "p2": 4}})
    assert list(DataSet(str(folder)).items())[1].grades == (("p1", 4.0), ("p2", 1.0))


def test_a_sample_is_drawn_by_its_seed_and_keeps_the_order(tmp_path: Path) -> None:
    (tmp_path / "questions.jsonl").write_bytes(lines([{"id": f"q{i:03}", "question": "?!"} for i in range(100)]))
    data = DataSet(str(tmp_path))
    sample = [item.id for item in data.sample(10)]
    assert len(sample) == 10
    assert sample == sorted(sample) == [item.id for item in data.sample(10)]
    assert sample != [item.id for item in data.sample(10, seed=1)]
    assert len(data.sample(None)) == len(data.sample(1000)) == 100


def test_the_content_hash_is_of_the_corpus(folder: Path) -> None:
    previous_hash = DataSet(str(folder)).content_hash()
    with_question(folder, question="Another?")
    assert DataSet(str(folder)).content_hash() == previous_hash
    (folder / "corpus.jsonl").write_bytes(lines(CORPUS[::-1]))
    assert DataSet(str(folder)).content_hash() != previous_hash


def test_a_missing_folder_or_file_is_named(folder: Path) -> None:
    with pytest.raises(DataError, match=r"nowhere does not exist.*corpus\.jsonl"):
        items_of(folder / "nowhere")
    with pytest.raises(
        DataError, match=r"is in no form that is known; it has a first row with: id, title, text\. Known: spolia"
    ):
        items_of(folder / "corpus.jsonl")
    (folder / "questions.jsonl").unlink()
    with pytest.raises(DataError, match=r"No questions\.jsonl.*it has: corpus\.jsonl"):
        items_of(folder)


@pytest.mark.parametrize("keep", [0.3, 0.9])
def test_a_truncated_gz_is_refused(folder: Path, keep: float) -> None:
    many = lines([{"id": f"q{i}", "question": f"Why {i * 7919 % 104729}?"} for i in range(2000)])
    packed = gzip.compress(many)
    (folder / "questions.jsonl").unlink()
    (folder / "questions.jsonl.gz").write_bytes(packed[: int(len(packed) * keep)])
    with pytest.raises(DataError, match=r"questions\.jsonl\.gz is cut short or damaged after \d+ whole lines.*again"):
        items_of(folder)


@pytest.mark.parametrize("content", [b"plain text", b"\x1f\x8b\x08\x00garbage", b"\x1f"])
def test_what_is_no_gz_at_all_is_refused(folder: Path, content: bytes) -> None:
    (folder / "corpus.jsonl").unlink()
    (folder / "corpus.jsonl.gz").write_bytes(content)
    with pytest.raises(DataError, match=r"corpus\.jsonl\.gz is cut short or damaged"):
        items_of(folder)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (b'{"id": "q9", "question": ', "line 3 is not JSON"),
        (b"[1, 2]", "line 3 holds list, not an object"),
        (b'{"id": "q9", "question": "\xff"}', "line 3 is not UTF-8"),
        (b"[" * 100_000, "line 3 is not JSON"),
        (b'{"question": "?"}', "line 3: 'id' is missing"),
        (b'{"id": 9, "question": "?"}', "line 3: 'id' is 9; write a text"),
        (b'{"id": "q9", "text": "?"}', "'question' is missing; write a text. The fields are: id, text"),
        (b'{"id": "q1", "question": "?"}', "line 3: id 'q1' is on an earlier line"),
        (
            b'{"id": "q9", "question": "?", "gold_ids": ["p1", "p77"]}',
            "gold id 'p77' of question 'q9' is not in the corpus",
        ),
        (b'{"id": "q9", "question": "?", "gold_ids": "p1"}', "'gold_ids' is 'p1'; write a list"),
        (b'{"id": "q9", "question": "?", "gold_ids": [[]]}', "empty group"),
        (b'{"id": "q9", "question": "?", "answers": [1]}', "'answers' holds 1; write texts"),
        (b'{"id": "q9", "question": "?", "meta": [1]}', "'meta' is list; write an object"),
        (b'{"id": "q9", "question": "?", "decomposition": ["?"]}', "a hop of 'decomposition' is str"),
        (
            b'{"id": "q9", "question": "?", "gold_ids": ["p1"], "meta": {"grades": {"p1": 7}}}',
            "grade 7 of 'p1' is not a code",
        ),
        (b'{"id": "q9", "question": "?", "gold_ids": ["p1"], "meta": {"grades": {"p2": 1}}}', "of 'p2' is not a code"),
    ],
)
def test_a_line_that_does_not_follow_the_schema_is_named(folder: Path, line: bytes, says: str) -> None:
    with (folder / "questions.jsonl").open("ab") as file:
        file.write(line + b"\n")
    with pytest.raises(DataError) as caught:
        items_of(folder)
    assert says in str(caught.value)
    assert "questions.jsonl line 3" in str(caught.value)


def test_a_passage_that_comes_twice_is_refused(folder: Path) -> None:
    (folder / "corpus.jsonl").write_bytes(lines([*CORPUS, CORPUS[0]]))
    with pytest.raises(DataError, match=r"corpus\.jsonl line 3: id 'p1'"):
        items_of(folder)


def test_blank_lines_and_a_byte_order_mark_do_no_harm(folder: Path) -> None:
    path = folder / "questions.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n\n"))
    assert len(items_of(folder)) == 2


def test_questions_without_a_corpus_can_be_read(folder: Path) -> None:
    (folder / "corpus.jsonl").unlink()
    assert len(items_of(folder)) == 2
    with pytest.raises(DataError, match=r"No corpus\.jsonl"):
        list(DataSet(str(folder)).passages())


@pytest.mark.slow
def test_real_sets_follow_the_schema(shared_datasets: Path) -> None:
    names = ["musique", "cranfield", "xquad_th", "bamboogle", "squad2_dev"]
    counts = {name: sum(1 for _ in DataSet(str(shared_datasets / name)).items()) for name in names}
    assert counts == {"musique": 180, "cranfield": 225, "xquad_th": 1190, "bamboogle": 75, "squad2_dev": 5349}
    assert sum(1 for _ in DataSet(str(shared_datasets / "musique")).passages()) == 5021
