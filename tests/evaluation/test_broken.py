"""Flows that cannot be asked at all are refused, and measures that fail are named with the question."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest

import spolia
from spolia.core.function import step
from spolia.errors import DataError, ManifestMismatch, MeasureError, ModelRejected, NeverWorked, StepFailed
from spolia.evaluation.data.dataset import DataSet
from spolia.evaluation.data.formats.trec import write_lines
from spolia.evaluation.data.passage_store import index_passages
from spolia.evaluation.experiment.experiment import Experiment
from spolia.evaluation.experiment.score_store import ANSWER, ANSWERED, ScoreStore
from spolia.evaluation.measures.measure import Measure, Result
from spolia.evaluation.measures.registry import parse_measures
from spolia.generation.reader import Reader
from spolia.models.http.chat import ChatModel
from spolia.retrieval.bm25 import BM25
from spolia.retrieval.dense import Dense
from spolia.testing import OpenAIServer, ServedReply
from spolia.types import Hit, Item, Node, Query, Ranking
from tests.evaluation.test_corpus import Letters, data

__all__ = ["data"]
ITEMS = tuple(Item(f"q{i}", f"question {i}", gold=(("p1",),)) for i in range(12))
MEASURES = parse_measures("R@1")
asked: list[str] = []


def number(query: Query) -> int:
    asked.append(query.text)
    return int(query.text.split()[1])


@step
def good(query: Query) -> Ranking:
    number(query)
    return Ranking(query, (Hit(Node("p1", "text"), 1.0),))


@step
def without_vectors(query: Query) -> Ranking:
    number(query)
    raise ManifestMismatch("The group has no vectors by this embedder.")


@step
def without_key(query: Query) -> Ranking:
    number(query)
    raise ModelRejected("The server says 401: no key.")


@step
def fails_at_first(query: Query) -> Ranking:
    if number(query) < 4:
        raise ModelRejected("The server says 500.")
    return good(query)


@step
def fails_each_otherwise(query: Query) -> Ranking:
    raise ValueError(f"no reply to {number(query)}")


def answered_questions(path: Path) -> set[tuple[str, str]]:
    """Flows and questions of which a file has an answer."""
    with ScoreStore(path) as store:
        rows = {(row["flow"], row["question"]): row["status"] for row in store.columns(ANSWER)}
        return {
            (store.name_of(flow), store.name_of(item)) for (flow, item), status in rows.items() if status == ANSWERED
        }


@pytest.fixture(autouse=True)
def nothing_asked() -> None:
    asked.clear()


def test_a_flow_that_cannot_be_asked_is_refused_after_the_first_question(tmp_path: Path) -> None:
    file = tmp_path / "kept.experiment"
    with pytest.raises(StepFailed, match="bad fails on the first question: ManifestMismatch: The group has no vectors"):
        Experiment({"good": good, "bad": without_vectors}, ITEMS, MEASURES).run(path=file)
    assert len(asked) == 5 + 1  # of the one before it the first questions, which are kept
    assert answered_questions(file) == {("good", f"q{i}") for i in range(5)}


def test_a_flow_that_fails_the_same_way_on_all_it_is_asked_first_is_refused() -> None:
    with pytest.raises(NeverWorked, match="bad fails on each of the first 5 questions, the same way: ModelRejected"):
        Experiment({"bad": without_key, "good": good}, ITEMS, MEASURES).run()
    assert len(asked) == 5
    with pytest.raises(NeverWorked, match="each of the first 3 questions") as stopped:
        Experiment({"bad": without_key}, ITEMS[:3], MEASURES).run()
    assert stopped.value.never_worked == ("without_key",)
    as_it_is = Experiment({"bad": without_key}, ITEMS, MEASURES, degraded="ok").run()
    assert (len(as_it_is.flows[0].failures), as_it_is.flows[0].never_worked) == (12, ("without_key",))


def test_other_failures_score_0_and_are_counted() -> None:
    for flow, failed in ((fails_at_first, 4), (fails_each_otherwise, 12)):
        (flow_report,) = Experiment(flow, ITEMS, MEASURES, degraded="ok").run().flows
        assert (len(flow_report.failures), flow_report.measured[0].failed) == (failed, failed)
        assert flow_report.measured[0].value == pytest.approx(1 - failed / 12)
    with pytest.raises(NeverWorked, match=r"fails_each_otherwise \(5 of 5 calls\): ValueError: no reply to 0"):
        Experiment(fails_each_otherwise, ITEMS, MEASURES).run()
    (single,) = Experiment(without_key, ITEMS[:1], MEASURES).run().flows
    assert len(single.failures) == 1


@pytest.mark.slow
def test_a_store_without_vectors_is_no_worse_ranker(data: DataSet, tmp_path: Path) -> None:
    chunks = index_passages(data, folder=tmp_path / "kept")
    flows = {"bm25": BM25(chunks), "dense": Dense(chunks, Letters())}
    with pytest.raises(StepFailed, match="dense fails on the first question: ManifestMismatch"):
        Experiment(flows, data.items(), MEASURES).run()


@dataclass(frozen=True)
class Halves(Measure):
    """Half a score, and none of the seventh question."""

    notation: ClassVar[str] = "Halves"

    def applies(self, item: Item) -> bool:
        return True

    def score(self, result: Result, item: Item) -> float:
        if item.id == "q7":
            raise ZeroDivisionError("nothing to divide by")
        return 0.5


def test_a_measure_that_fails_is_named_with_the_question_and_the_others_are_kept(tmp_path: Path) -> None:
    file = tmp_path / "kept.experiment"
    says = "Halves failed on the result of good for question 'q7': ZeroDivisionError: nothing to divide by"
    with pytest.raises(MeasureError, match=says):
        Experiment({"good": good}, ITEMS, [*MEASURES, Halves()]).run(path=file)
    assert answered_questions(file) >= {("good", f"q{i}") for i in range(8)}  # the seventh, too
    previous_count = len(asked)
    assert Experiment({"good": good}, ITEMS[:7], MEASURES).run(path=file).flows[0].measured[0].value == 1.0
    assert len(asked) == previous_count


def test_a_full_disk_is_told_with_the_name_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(DataError, match=r"new.experiment cannot be written: No space left on device. Free some space"):
        ScoreStore(tmp_path / "new.experiment")


def test_no_file_of_a_user_is_written_in_its_place() -> None:
    source = Path(spolia.__file__).parent
    places = [path for layer in ("cli", "evaluation", "optimizer") for path in (source / layer).rglob("*.py")]
    places.remove(source / "cli" / "commands" / "init.py")  # makes a new folder
    pattern = re.compile(r"""(\w+)(?:\.write_(?:text|bytes)\(|\.open\(["'][wx])""")
    offences = [
        f"{path.name}:{number}: {line.strip()}"
        for path in places
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if ">>>" not in line and any(name != "part" for name in pattern.findall(line))
    ]
    assert offences == [], "write it through whole_files, so that a kill leaves the file that was there"


def test_lines_on_a_full_disk_leave_the_file_that_was_there(tmp_path: Path) -> None:
    path = tmp_path / "qrels.txt"
    path.write_text("before")

    def full() -> Iterator[str]:
        yield "after"
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(DataError, match="cannot be written: No space left on device"):
        write_lines(path, "head", full())
    assert [(entry.name, entry.read_text()) for entry in tmp_path.iterdir()] == [("qrels.txt", "before")]


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["reset", "truncate", "stall"])
def test_a_reply_that_breaks_anywhere_is_asked_for_again(fault: Any) -> None:
    @step
    def plant(query: Query) -> Ranking:
        return Ranking(query, (Hit(Node("p1", "The plant is in Salo."), 1.0),))

    replies = ServedReply("Salo it is indeed [1].", fault=fault), ServedReply("Salo [1].")
    with OpenAIServer(*replies) as server:
        reader = Reader(ChatModel("any", server.url, timeout_s=1.0, wait_s=0.01))
        report = Experiment(plant >> reader, [Item("q", "Where is the plant?", answers=("Salo",))], "F1").run()
    assert not report.flows[0].failures
    assert report.flows[0].measured[0].value == 1.0
    assert len(server.requests) == 2
