"""What an experiment is given that it should not be, from questions to a file of another one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from spolia.core.function import step
from spolia.errors import DataError
from spolia.evaluation.data.dataset import DataSet
from spolia.evaluation.data.passage_store import index_passages
from spolia.evaluation.experiment.experiment import Experiment
from spolia.evaluation.experiment.flows import Flow
from spolia.evaluation.gate.gate import gate, record_baseline
from spolia.evaluation.measures.judged.g_eval import GEval
from spolia.evaluation.measures.judged.ragas import Correctness
from spolia.evaluation.measures.registry import parse_measures
from spolia.generation.reader import Reader
from spolia.models.prompting.stand_in_models import ScriptedModel
from spolia.post_retrieval.selection import Cut
from spolia.retrieval.bm25 import BM25
from spolia.retrieval.dense import Dense
from spolia.run import Run
from spolia.stores.corpus import NodeGroup
from spolia.testing import HashingEmbedder
from spolia.types import Answer, Item, Query, Ranking, Usage
from tests.cases import check_each

PASSAGES = {f"p{n}": f"Lighthouse {n} was lit in {1800 + n} by keeper number {n * n}." for n in range(30)}


def data_set(folder: Path, passages: dict[str, str], questions: list[dict[str, object]]) -> DataSet:
    folder.mkdir(parents=True)
    (folder / "corpus.jsonl").write_text("\n".join(json.dumps({"id": id, "text": t}) for id, t in passages.items()))
    (folder / "questions.jsonl").write_text("\n".join(map(json.dumps, questions)))
    return DataSet(str(folder))


def question_row(n: int, **more: object) -> dict[str, object]:
    return {"id": f"q{n}", "question": f"When was lighthouse {n} lit?", "gold_ids": [f"p{n}"]} | more


@pytest.fixture
def data(tmp_path: Path) -> DataSet:
    return data_set(tmp_path / "data", PASSAGES, [question_row(n, answers=[str(1800 + n)]) for n in range(30)])


@pytest.fixture
def chunks(data: DataSet, tmp_path: Path) -> NodeGroup:
    return index_passages(data, HashingEmbedder(), folder=tmp_path / "kept")


@step
def cites_nothing(query: Query) -> Answer:
    return Answer("ice", evidence=Ranking(query, ()))


def test_items_without_gold_are_left_out_and_counted(tmp_path: Path) -> None:
    bare: dict[str, object] = {"id": "bare", "question": "Who?"}
    some_data_set = data_set(tmp_path / "some", PASSAGES, [question_row(1), bare])
    report = Experiment(
        BM25(index_passages(some_data_set, folder=tmp_path / "kept")), some_data_set.items(), parse_measures("R@5")
    ).run()
    assert (report.n, report.without_gold) == (1, 1)
    assert "1 question without gold was left out." in report.warnings


def test_gold_that_is_not_in_the_corpus_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="gold id 'p99' of question 'q1' is not in the corpus of 30 passages"):
        list(data_set(tmp_path / "some", PASSAGES, [question_row(0), question_row(1, gold_ids=["p1", "p99"])]).items())


def test_ids_that_come_twice_are_named(tmp_path: Path, chunks: NodeGroup) -> None:
    with pytest.raises(DataError, match="line 2: id 'q1' is on an earlier line too"):
        list(data_set(tmp_path / "some", PASSAGES, [question_row(1), question_row(1)]).items())
    twice = [Item("q1", "?", gold=(("p1",),)), Item("q1", "??", gold=(("p1",),))]
    with pytest.raises(DataError, match="1 id of several questions each, the first 'q1'"):
        Experiment(BM25(chunks), twice, parse_measures("R@5"))


@pytest.mark.slow
def test_no_questions_are_no_experiment(tmp_path: Path, chunks: NodeGroup) -> None:
    empty = data_set(tmp_path / "some", PASSAGES, [])
    with pytest.raises(DataError, match="There are no questions to ask"):
        Experiment(BM25(chunks), empty.items(), parse_measures("R@5"))


@pytest.mark.slow
def test_one_question_shows_nothing(data: DataSet, chunks: NodeGroup) -> None:
    flows: dict[str, Flow] = {"ten": BM25(chunks), "none": BM25(chunks) >> Cut(top_k=1) >> losing}
    report = Experiment(flows, data.sample(1), parse_measures("R@5,MRR,Calls")).run()
    assert report.n == 1
    assert [comparison.shown for comparison in report.comparisons] == [False] * len(report.comparisons)
    assert all(comparison.verdict.startswith("no difference shown") for comparison in report.comparisons)


@step
def losing(found: Ranking) -> Answer:
    return Answer("no", evidence=found.but(hits=()))


@pytest.mark.slow
def test_scores_that_are_all_equal_have_an_interval_and_no_winner(data: DataSet, chunks: NodeGroup) -> None:
    flows = {"one": BM25(chunks), "two": BM25(chunks, top_k=9)}
    report = Experiment(flows, data.items(), parse_measures("R@5,MRR,nDCG@10,Calls")).run()
    for comparison in report.comparisons:
        assert (comparison.interval.mean, comparison.p, comparison.shown) == (0.0, 1.0, False)
        assert comparison.interval.low <= 0 <= comparison.interval.high
    assert report.flow("one").measured[0].value == 1.0


@check_each("reply", ["NaN", "N/A", "nan of 5", "N/A out of 5", "Infinity", "", "?"])
def test_a_judge_without_a_number_is_undetermined_and_counted(reply: str) -> None:
    judge = ScriptedModel((("ice</answer>", reply), ("", reply)), name="judge")
    items = [Item(f"q{n}", "What broke it?", answers=("ice",)) for n in range(3)]
    report = Experiment(cites_nothing, items, [GEval(judge, samples=2), Correctness(judge)]).run()
    assert [(measured.n, measured.undetermined, measured.value) for measured in report.flows[0].measured] == [
        (0, 3, None)
    ] * 2
    assert any("undetermined for 3 of 3 questions" in warning for warning in report.warnings)
    assert "NaN" not in json.dumps(report.json())


def test_answers_in_another_script_are_compared_by_their_own_words() -> None:
    @step
    def says(query: Query) -> Answer:
        return Answer("القمر يسبب المد" if query.text == "?" else "月が潮を引く。")

    items = [Item("ar", "?", answers=("القمر",)), Item("ja", "??", answers=("月が潮を引く",))]
    measures = parse_measures('F1(words="unicode"), EM(words="unicode"), ROUGE-L(words="unicode")')
    report = Experiment(says, items, measures).run()
    assert [measured.value for measured in report.flows[0].measured] == [pytest.approx(x) for x in (0.75, 0.5, 0.75)]


@pytest.mark.slow
def test_an_answer_of_a_million_characters_is_measured_whole_and_kept_in_little_space(tmp_path: Path) -> None:
    @step
    def talks(query: Query) -> Answer:
        return Answer("the moon pulls " * 66_666 + "ice")

    items, path = [Item("q", "?", answers=("ice",))], tmp_path / "a.experiment"
    report = Experiment(talks, items, parse_measures("Acc,F1,ROUGE-L")).run(path=path)
    assert report.flows[0].measured[0].value == 1.0  # it stands at the very end
    assert path.stat().st_size < 200_000


@pytest.mark.slow
def test_a_baseline_of_another_corpus_or_version_is_refused(data: DataSet, chunks: NodeGroup, tmp_path: Path) -> None:
    experiment = Experiment(BM25(chunks), data.items(), parse_measures("R@5"))
    _, previous_baseline = record_baseline(experiment)
    renamed = {f"x{id}": text for id, text in PASSAGES.items()}
    other_data_set = data_set(tmp_path / "other", renamed, [question_row(n, gold_ids=[f"xp{n}"]) for n in range(30)])
    elsewhere = Experiment(
        BM25(index_passages(other_data_set, folder=tmp_path / "kept")), other_data_set.items(), parse_measures("R@5")
    )
    with pytest.raises(DataError, match="30 questions with another answer than then"):
        gate(elsewhere, previous_baseline)
    (tmp_path / "b.json").write_text(previous_baseline.text().replace('"spolia_baseline": 3', '"spolia_baseline": 4'))
    with pytest.raises(DataError, match="is a baseline of form 4; this version knows 3"):
        gate(experiment, tmp_path / "b.json")


MODULE = """
import os, signal, sys
from dataclasses import dataclass
from spolia.evaluation.experiment.experiment import Experiment
from spolia.evaluation.measures.registry import parse_measures
from spolia.core.operator import Operator
from spolia.types import Hit, Item, Node, Query, Ranking
from beside import best

@dataclass(frozen=True)
class Finds(Operator[Query, Ranking]):
    def apply(self, query: Query) -> Ranking:
        if query.text == os.environ.get("KILLED_AT"):
            os.kill(os.getpid(), signal.SIGKILL)
        return Ranking(query, (Hit(Node("p1", "text"), best()),))  # COMMENT

items = [Item(f"q{n}", str(n), gold=(("p1",),)) for n in range(10)]
report = Experiment({"it": Finds()}, items, parse_measures("R@1")).run(path=sys.argv[1])
print(report.table.asked, *report.warnings)
"""


@pytest.mark.slow
def test_a_killed_run_goes_on_with_the_same_code_and_is_asked_again_with_another(tmp_path: Path) -> None:
    """Also where what has changed is a function that a class calls, in another file. A comment changes nothing."""
    module, path = tmp_path / "mine.py", tmp_path / "a.experiment"

    def run(score: str, killed_at: str = "", comment: str = "") -> subprocess.CompletedProcess[str]:
        (tmp_path / "beside.py").write_text(f"def best():\n    return {score}\n")
        module.write_text(MODULE.replace("COMMENT", comment))
        command, environment = [sys.executable, "-B", str(module), str(path)], os.environ | {"KILLED_AT": killed_at}
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)

    assert run("1.0", killed_at="4").returncode == -signal.SIGKILL
    assert run("2.0").stdout.startswith("10 Computed again, since it has changed: flows, it, code, Finds: was ")
    assert run("1.0", comment="another one").stdout == "6\n"


@pytest.mark.slow
def test_a_cached_experiment_calls_no_model_embedder_or_retriever(
    data: DataSet, chunks: NodeGroup, tmp_path: Path
) -> None:
    judge = ScriptedModel(("yes",), name="judge")
    flow = Dense(chunks, HashingEmbedder(), top_k=3) >> Reader(ScriptedModel(("1805 [1].",), name="reader"))
    measures = [*parse_measures("R@5,EM,Calls,ATC"), Correctness(judge)]
    experiment, path = Experiment({"flow": flow}, list(data.items()), measures), tmp_path / "a.experiment"
    with Run() as first:
        first_report = experiment.run(run=first, path=path)
    assert first.actual_usage.calls == 60
    assert first.actual_usage.embedded >= 30
    with Run() as second:
        second_report = experiment.run(run=second, path=path)
    assert (second.actual_usage, second.usage) == (Usage(), Usage())
    assert second_report == first_report
    assert second_report.flows[0].interval("Calls") == first_report.flows[0].interval("Calls")


@pytest.mark.parametrize(
    ("gold", "grades", "says"),
    [
        (((),), (), r"The gold of question 'q' has the group \(\)\. Write a tuple of groups"),
        (("p1",), (), r"has the group 'p1'\. Write a tuple of groups, each a tuple of at least one passage"),
        ((("p1",),), (("p1", -1.0),), r"The grade of 'p1' of question 'q' is -1\.0\. Write 0 or more"),
        ((("p1",),), (("p1", float("nan")),), r"The grade of 'p1' of question 'q' is nan"),
    ],
)
def test_gold_written_in_python_that_means_nothing_is_refused(gold: Any, grades: Any, says: str) -> None:
    with pytest.raises(DataError, match=says):
        Item("q", "?", gold=gold, grades=grades)
