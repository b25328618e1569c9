"""Rows of an experiment on disk: kept as they come, gone on with, never taken for another's."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import spolia
from spolia.core.combinators import Guard
from spolia.core.function import step
from spolia.errors import DataError, ModelUnavailable, NotAStore, StepFailed, StoreBusy, StoreTooNew
from spolia.evaluation.data.dataset import DataSet
from spolia.evaluation.data.passage_store import indexed
from spolia.evaluation.experiment.experiment import Experiment
from spolia.evaluation.experiment.rows import QuestionRow, RowFile
from spolia.evaluation.gate.gate import gate, recorded
from spolia.evaluation.measures.judged.g_eval import GEval
from spolia.evaluation.measures.judged.ragas import Correctness
from spolia.evaluation.measures.measure import Case
from spolia.evaluation.measures.registry import parse_measures
from spolia.generation.reader import Reader
from spolia.models.prompting.stand_in_models import ScriptedModel
from spolia.retrieval.bm25 import BM25
from spolia.run import Run
from spolia.run.lane import Lane
from spolia.stores.tables.rows import SourceRow
from spolia.types import Answer, Citation, Document, Failure, Generation, Hit, Item, Node, Prompt, Query, Ranking, Span

from .killed import ITEMS, experiment

HERE = Path(__file__).parent


def in_a_process(path: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    code = f"import sys; sys.path.insert(0, {str(HERE.parents[1])!r}); sys.argv = ['x', {str(path)!r}]; " + (
        "import tests.evaluation.killed as killed; killed.experiment().run(path=sys.argv[1])"
    )
    return subprocess.run(
        [sys.executable, "-c", code], env=os.environ | environment, capture_output=True, text=True, timeout=60
    )


def facts(folder: Path) -> Path:
    """A data set of one passage."""
    (folder / "corpus.jsonl").write_text('{"id": "p1", "text": "The moon pulls the sea."}')
    return folder


def test_a_killed_experiment_goes_on_where_it_was(tmp_path: Path) -> None:
    path, log = tmp_path / "a.experiment", tmp_path / "log"
    for at in ("7", "13"):
        assert in_a_process(path, KILLED_AT=at, LOG=str(log)).returncode == -signal.SIGKILL
    finished = in_a_process(path, LOG=str(log))
    assert finished.returncode == 0, finished.stderr
    assert log.read_text().splitlines() == [item.question for item in ITEMS]  # each once, none again


def test_what_was_asked_is_never_asked_again(tmp_path: Path) -> None:
    asked: list[str] = []

    @step
    def counting(query: Query) -> Ranking:
        asked.append(query.text)
        return Ranking(query, (Hit(Node("p1", "text"), 1.0),), "here")

    whole = Experiment({"counting": counting}, ITEMS, parse_measures("R@1,MRR,Calls"))
    first = whole.run(path=tmp_path / "a.experiment")
    again = whole.run(path=tmp_path / "a.experiment")
    assert len(asked) == len(ITEMS)
    assert again == first
    assert again.rows == first.rows
    whole.run(path=tmp_path / "a.experiment", again=True)
    assert len(asked) == 2 * len(ITEMS)


@dataclass(frozen=True)
class Served(ScriptedModel):
    """A model whose server is down while a file is there."""

    down: str = ""

    def generate(self, prompt: Prompt, **how: Any) -> Generation:
        if Path(self.down).exists():
            raise ModelUnavailable("refused")
        return super().generate(prompt, **how)


@pytest.mark.parametrize("part", ["flow", "arm", "judge"])
def test_what_met_a_server_that_was_down_is_asked_again(tmp_path: Path, part: str) -> None:
    down = tmp_path / "down"
    down.touch()
    served, works = (Served(("Nokia",), name="m", down=str(one)) for one in (down, tmp_path / "never"))
    texts = indexed(DataSet(str(facts(tmp_path))), folder=tmp_path / "kept")
    other = Reader(ScriptedModel(("Siemens",)))
    readers = {"flow": Reader(served), "arm": Guard(Reader(served), fallback=other), "judge": Reader(works)}
    flow = BM25(texts) >> readers[part]
    judges = (Correctness(Served(("yes",), name="j", down=str(down))),) if part == "judge" else ()
    items = [Item(f"q{i}", "Who pulls?", answers=("Nokia",)) for i in range(3)]
    whole = Experiment({"it": flow}, items, [*parse_measures("EM"), *judges])
    score = str(whole.measures[-1])
    if part == "flow":
        with pytest.raises(
            StepFailed, match="it fails on each of the first 3 questions, the same way: ModelUnavailable"
        ):
            whole.run(path=tmp_path / "a.experiment")
    else:
        before = whole.run(path=tmp_path / "a.experiment")
        assert [one.value for one in before.flows[0].measured if one.measure == score] in ([0.0], [None])
        told = "it: 3 questions met a server that was down or busy; the same experiment asks again"
        assert told in before.warnings
    down.unlink()
    after = whole.run(path=tmp_path / "a.experiment")
    assert [one.value for one in after.flows[0].measured if one.measure == score] == [1.0]
    assert after.warnings == ()
    with Run() as run:
        whole.run(path=tmp_path / "a.experiment", run=run)
    assert run.usage.calls == 0


def test_another_process_at_the_same_experiment_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.experiment"
    with RowFile(path):
        other = in_a_process(path)
        assert "StoreBusy" in other.stderr
        with pytest.raises(StoreBusy, match="another process is at this experiment"):
            RowFile(path)
    assert in_a_process(path).returncode == 0


def test_a_changed_function_is_refused_and_named(tmp_path: Path) -> None:
    @step
    def found(query: Query) -> Ranking:
        return Ranking(query, (Hit(Node("p1", "text"), 1.0),))

    before = found

    @step  # type: ignore[no-redef]
    def found(query: Query) -> Ranking:
        return Ranking(query, (Hit(Node("p2", "text"), 1.0),))

    path = tmp_path / "a.experiment"
    Experiment({"it": before}, ITEMS, parse_measures("R@1")).run(path=path)
    with pytest.raises(DataError, match=r"another experiment: flows, it, code, found\(\): was \w+, is \w+\. Name"):
        Experiment({"it": found}, ITEMS, parse_measures("R@1")).run(path=path)


def test_a_change_in_what_a_measure_of_spolia_imports_is_refused(tmp_path: Path) -> None:
    """How recall looks for gold is in another file than recall."""
    shutil.copytree(Path(spolia.__file__).parent, tmp_path / "spolia", ignore=shutil.ignore_patterns("__pycache__"))
    path, package = tmp_path / "a.experiment", tmp_path / "spolia" / "evaluation"
    assert in_a_process(path, PYTHONPATH=str(tmp_path)).returncode == 0
    with (package / "pages" / "html.py").open("a") as file:
        file.write("\nANOTHER = 1\n")
    assert in_a_process(path, PYTHONPATH=str(tmp_path)).returncode == 0  # which no measure imports
    with (package / "measures" / "ranked.py").open("a") as file:
        file.write("\nANOTHER = 1\n")
    refused = in_a_process(path, PYTHONPATH=str(tmp_path)).stderr
    assert "holds another experiment: measures, R@1, code, Recall: was " in refused


def test_a_prompt_file_of_a_judge_that_changed_is_refused(tmp_path: Path) -> None:
    prompt, judge = tmp_path / "g.txt", ScriptedModel(("5",), name="judge")
    prompt.write_text("Grade: {{question}} {{answer}}")
    flow = BM25(indexed(DataSet(str(facts(tmp_path))), folder=tmp_path / "kept")) >> Reader(ScriptedModel(("[1]",)))
    whole = Experiment({"it": flow}, [Item("q1", "What pulls?")], [GEval(judge, samples=1, prompt=str(prompt))])
    whole.run(path=tmp_path / "a.experiment")
    baseline = recorded(whole)[1]
    prompt.write_text("Grade harshly: {{question}} {{answer}}")
    with pytest.raises(DataError, match=r"holds another experiment: measures, GEval.*, reads"):
        whole.run(path=tmp_path / "a.experiment")
    with pytest.raises(DataError, match=r"GEval.* is computed otherwise than then: its code, its model or a prompt"):
        gate(whole, baseline)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"items": ITEMS[:-1]}, "questions, number: was 20, is 19"),
        ({"items": [*ITEMS[:-1], ITEMS[-1].but(question="another?")]}, "questions, content"),
        ({"items": [*ITEMS[:-1], ITEMS[-1].but(gold=(("p9",),))]}, "questions, content"),
        ({"measures": parse_measures("R@1,MRR,nDCG@5")}, "measures, nDCG@5: is new"),
        ({"measures": parse_measures("R@1")}, "measures, MRR: is gone"),
        ({"data": "thirty"}, "data: was twenty, is thirty"),
    ],
)
def test_other_questions_or_measures_are_refused_and_named(
    tmp_path: Path, change: dict[str, object], says: str
) -> None:
    path, whole = tmp_path / "a.experiment", experiment()
    whole.run(path=path)
    given: dict[str, Any] = {"flows": dict(whole.flows), "items": whole.items, "measures": whole.measures}
    given |= {"data": "twenty"} | change
    with pytest.raises(DataError, match=says):
        Experiment(given.pop("flows"), given.pop("items"), given.pop("measures"), **given).run(path=path)


def test_other_fields_models_stores_and_rights_are_refused_and_named(tmp_path: Path) -> None:
    items = [Item("q1", "What pulls?", gold=(("p1",),), answers=("the moon",))]
    chunks = indexed(DataSet(str(facts(tmp_path))), folder=tmp_path / "kept")

    def run(*, top_k: int = 5, reply: str = "the moon [1]", principal: str = "") -> None:
        flow = BM25(chunks, top_k=top_k) >> Reader(ScriptedModel((reply,)))
        whole = Experiment({"it": flow}, items, parse_measures("R@1,Acc"))
        whole.run(path=tmp_path / "a.experiment", run=Run(principal=principal))

    run()
    run()
    for change, says in (
        ({"top_k": 3}, r"flows, it, written: .*has changed|top_k=3"),
        ({"reply": "the sun [1]"}, "flows, it"),
        ({"principal": "ann"}, r"asked for, principals: was \[\], is \['ann'\]"),
    ):
        with pytest.raises(DataError, match=says):
            run(**change)
    with chunks.corpus.writer():
        pass
    run()
    with chunks.corpus.writer() as writer:
        node = Node("p2/chunk", "Salt.", "p2", "chunk", Span(0, 5))
        writer.put(Document("p2", "Salt."), [node], SourceRow("p2", 5))
    with pytest.raises(DataError, match=r"flows, it, reads"):
        run()


def test_in_a_folder_every_experiment_has_its_own_file(tmp_path: Path) -> None:
    whole = experiment()
    whole.run(path=tmp_path)
    whole.run(path=tmp_path)
    Experiment(dict(whole.flows), ITEMS, parse_measures("R@1"), data="twenty").run(path=tmp_path)
    assert len(list(tmp_path.glob("twenty-*.experiment"))) == 2


def test_a_row_comes_back_as_it_was(tmp_path: Path) -> None:
    node = Node("n1", "The moon pulls. " * 100, "d1", span=Span(3, 90))
    answer = Answer("The moon. [1]", (Citation("1", "n1", "d1", "a.txt", "The moon"),), evidence=None)
    ranking = Ranking(Query("what?"), (Hit(node, 1.5), Hit(Node("n2", "x"), 0.5)), "here")
    results: tuple[Ranking | Answer | Failure, ...] = (
        answer.but(evidence=ranking),
        ranking,
        Failure("ValueError", "broken", "BM25()"),
    )
    seen = (("EM", (1.0,)), ("AURC", (-float("inf"), 0.0)), ("Judged", None))
    with RowFile(tmp_path / "a.experiment") as rows:
        kept = [
            QuestionRow.of(
                f"flow {i}", Case(Item("q", "?"), result, retrievals=(ranking,)), Lane(), seen=seen, opening=0.5 * i
            )
            for i, result in enumerate(results)
        ]
        for row in kept:
            rows.keep(row)
    with RowFile(tmp_path / "a.experiment") as rows:
        assert list(rows.rows.values()) == kept


def test_what_is_no_experiment_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no database " * 100)
    other = sqlite3.connect(tmp_path / "other.db")
    other.execute("CREATE TABLE t (x)")
    other.close()
    experiment().run(path=tmp_path / "new")
    newer = sqlite3.connect(tmp_path / "new")
    newer.execute("PRAGMA user_version = 99")
    newer.close()
    for name, error in (("text", NotAStore), ("other.db", NotAStore), ("new", StoreTooNew)):
        with pytest.raises(error):
            experiment().run(path=tmp_path / name)
    assert (tmp_path / "text").read_text().startswith("no database")
