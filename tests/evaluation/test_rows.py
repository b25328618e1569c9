"""Answers and scores on disk: kept as they come, added to, gone on with, never taken for another's."""

from __future__ import annotations

import os
import random
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
from base64 import b64decode
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar
from zlib import decompress

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import spolia
from spolia.core.combinators import Guard
from spolia.core.function import step
from spolia.core.run_context import charge
from spolia.errors import DataError, ModelUnavailable, NotAStore, QueryError, StepFailed, StoreBusy, StoreTooNew
from spolia.evaluation.data.dataset import DataSet
from spolia.evaluation.data.passage_store import index_passages
from spolia.evaluation.experiment.execution import ask
from spolia.evaluation.experiment.experiment import Experiment
from spolia.evaluation.experiment.score_store import (
    ANSWER,
    MAGIC,
    SCORED,
    SCORES,
    STEPS,
    USAGE,
    ScoreStore,
    usage_from_row,
)
from spolia.evaluation.gate.gate import gate, record_baseline
from spolia.evaluation.measures.judged.g_eval import GEval
from spolia.evaluation.measures.judged.ragas import Correctness
from spolia.evaluation.measures.measure import Case, Measure, Result
from spolia.evaluation.measures.registry import parse_measures
from spolia.filters import where
from spolia.generation.reader import Reader
from spolia.models.prompting.stand_in_models import ScriptedModel
from spolia.retrieval.bm25 import BM25
from spolia.run import Run
from spolia.run.lane import StepCalls
from spolia.stores.backends.rows import SourceRow
from spolia.types import (
    Answer,
    Citation,
    Document,
    Failure,
    Generation,
    Hit,
    Item,
    Node,
    Prompt,
    Query,
    Ranking,
    Span,
    Usage,
)

from .killed_experiment import ITEMS, experiment

HERE = Path(__file__).parent


def in_a_process(path: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    code = f"import sys; sys.path.insert(0, {str(HERE.parents[1])!r}); sys.argv = ['x', {str(path)!r}]; " + (
        "import tests.evaluation.killed_experiment as killed; report = killed.experiment().run(path=sys.argv[1]);"
        "print('asked', report.table.asked); print(*report.warnings)"
    )
    return subprocess.run(
        [sys.executable, "-c", code], env=os.environ | environment, capture_output=True, text=True, timeout=60
    )


def facts(folder: Path) -> Path:
    """A data set of one passage."""
    (folder / "corpus.jsonl").write_text('{"id": "p1", "text": "The moon pulls the sea."}')
    return folder


@pytest.mark.slow
def test_a_killed_experiment_goes_on_where_it_was(tmp_path: Path) -> None:
    path, log = tmp_path / "a.experiment", tmp_path / "log"
    for killed_at in ("7", "13"):
        assert in_a_process(path, KILLED_AT=killed_at, LOG=str(log)).returncode == -signal.SIGKILL
    finished = in_a_process(path, LOG=str(log))
    assert finished.returncode == 0, finished.stderr
    assert log.read_text().splitlines() == [item.question for item in ITEMS]  # each once, none again


def test_what_was_asked_is_never_asked_again(tmp_path: Path) -> None:
    queries: list[str] = []

    @step
    def counting(query: Query) -> Ranking:
        queries.append(query.text)
        return Ranking(query, (Hit(Node("p1", "text"), 1.0),), "here")

    whole = Experiment({"counting": counting}, ITEMS, parse_measures("R@1,MRR,Calls"))
    first = whole.run(path=tmp_path / "a.experiment")
    second_report = whole.run(path=tmp_path / "a.experiment")
    assert len(queries) == len(ITEMS)
    assert second_report == first
    assert second_report.table.asked == 0
    assert [second_report.table.case(0, index) for index in range(20)] == [
        first.table.case(0, index) for index in range(20)
    ]
    whole.run(path=tmp_path / "a.experiment", ask_again=True)
    assert len(queries) == 2 * len(ITEMS)


@dataclass(frozen=True)
class ServedReply(ScriptedModel):
    """A model whose server is down while a file is there."""

    down: str = ""

    def generate(self, prompt: Prompt, **how: Any) -> Generation:
        if Path(self.down).exists():
            raise ModelUnavailable("refused")
        return super().generate(prompt, **how)


@pytest.mark.slow
@pytest.mark.parametrize("part", ["flow", "arm", "judge"])
def test_what_met_a_server_that_was_down_is_asked_again(tmp_path: Path, part: str) -> None:
    down = tmp_path / "down"
    down.touch()
    served, works = (ServedReply(("Nokia",), name="m", down=str(entry)) for entry in (down, tmp_path / "never"))
    texts = index_passages(DataSet(str(facts(tmp_path))), folder=tmp_path / "kept")
    other_reader = Reader(ScriptedModel(("Siemens",)))
    readers = {"flow": Reader(served), "arm": Guard(Reader(served), fallback=other_reader), "judge": Reader(works)}
    flow = BM25(texts) >> readers[part]
    judges = (Correctness(ServedReply(("yes",), name="j", down=str(down))),) if part == "judge" else ()
    items = [Item(f"q{i}", "Who pulls?", answers=("Nokia",)) for i in range(3)]
    policy = "stop" if part == "flow" else "ok"
    whole = Experiment({"it": flow}, items, [*parse_measures("EM"), *judges], degraded=policy)
    score = str(whole.measures[-1])
    if part == "flow":
        with pytest.raises(
            StepFailed, match="it fails on each of the first 3 questions, the same way: ModelUnavailable"
        ):
            whole.run(path=tmp_path / "a.experiment")
    else:
        previous_report = whole.run(path=tmp_path / "a.experiment")
        assert [entry.value for entry in previous_report.flows[0].measured if entry.measure == score] in (
            [0.0],
            [None],
        )
        expected_warning = "it: 3 questions met a server that was down or busy; the same experiment asks again"
        assert expected_warning in previous_report.warnings
    down.unlink()
    later_report = whole.run(path=tmp_path / "a.experiment")
    assert [entry.value for entry in later_report.flows[0].measured if entry.measure == score] == [1.0]
    assert not [entry for entry in later_report.warnings if "server" in entry or "never worked" in entry]
    with Run() as run:
        whole.run(path=tmp_path / "a.experiment", run=run)
    assert run.usage.calls == 0


@pytest.mark.slow
def test_another_process_at_the_same_experiment_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.experiment"
    with ScoreStore(path):
        other_process = in_a_process(path)
        assert "StoreBusy" in other_process.stderr
        with pytest.raises(StoreBusy, match="another process is at this experiment"):
            ScoreStore(path)
    assert in_a_process(path).returncode == 0


@step
def first_of(query: Query) -> Ranking:
    ASKED.append(query.text)
    return Ranking(query, (Hit(Node("p1", "text"), 1.0),), "here")


@step
def second_of(query: Query) -> Ranking:
    ASKED.append(query.text)
    return Ranking(query, (Hit(Node("p2", "text"), 1.0),), "there")


ASKED: list[str] = []


@pytest.fixture(autouse=True)
def nothing_asked() -> None:
    ASKED.clear()


def test_more_questions_flows_and_measures_are_added_and_only_they_are_computed(tmp_path: Path) -> None:
    path = tmp_path / "a.experiment"
    assert ask({"first": first_of}, ITEMS[:10], "R@1", path=path).asked == 10
    assert ask({"first": first_of}, ITEMS, "R@1", path=path).asked == 10
    assert ask({"first": first_of, "second": second_of}, ITEMS, "R@1", path=path).asked == 20
    assert len(ASKED) == 40
    more = ask({"first": first_of, "second": second_of}, ITEMS, "R@1,MRR,Calls,AnswerHit@1", path=path)
    assert (more.asked, len(ASKED)) == (0, 40)
    anew = ask({"first": first_of, "second": second_of}, ITEMS, "R@1,MRR,Calls,AnswerHit@1")
    np.testing.assert_array_equal(more.scores, anew.scores)
    assert more.scores[:, :, 2].tolist() == [[1.0] * 20] * 2
    rows = ask({"second": second_of}, ITEMS[3:5], "MRR", path=path)
    np.testing.assert_array_equal(rows.scores, anew.scores[1:, 3:5, 1:2])
    assert (rows.asked, rows.notes, len(ASKED)) == (0, (), 80)


def test_score_rows_are_columns_with_what_each_answer_took() -> None:
    @step
    def fails_on_three(query: Query) -> Ranking:
        charge(Usage(calls=2))
        if query.text == "question 3":
            raise QueryError("three is broken")
        return first_of(query)

    items = [*ITEMS[:5], Item("q99", "without gold")]
    table = ask({"it": fails_on_three}, items, "R@1,Calls")
    assert table.failed.tolist() == [[False, False, False, True, False, False]]
    assert table.scores[0, :5, 0].tolist() == [0.0, 1.0, 0.0, 0.0, 1.0]
    assert np.isnan(table.scores[0, 5, 0])
    rows = table.rows()
    assert {len(column) for column in rows.values()} == {11}  # recall of five questions, calls of six
    assert rows["failed"].sum() == 2
    assert rows["calls"].tolist() == [2] * 11
    assert list(rows) == ["flow", "question", "measure", "score", "failed", "seconds", *USAGE]
    assert table.usage("usage", 0) == Usage(calls=12)
    failure = table.case(0, 3).result
    assert isinstance(failure, Failure)
    assert failure.message.startswith("three is broken")


@dataclass(frozen=True)
class OfType(Measure):
    notation: ClassVar[str] = "OfType"

    def applies(self, item: Item) -> bool:
        return True

    def score(self, result: Result, item: Item) -> float:
        return float(item.type == "right")


def test_a_question_of_another_type_is_scored_again_and_not_asked(tmp_path: Path) -> None:
    path = tmp_path / "a.experiment"
    items = [Item("q", "?", type=kind) for kind in ("wrong", "right", "wrong")]
    assert [ask(first_of, [item], [OfType()], path=path).scores.item() for item in items] == [0.0, 1.0, 0.0]
    assert len(ASKED) == 1


def test_equal_flows_are_asked_once() -> None:
    table = ask({"one": first_of, "same": first_of}, ITEMS, "R@1")
    assert len(ASKED) == 20
    assert table.scores[0].tolist() == table.scores[1].tolist()


def test_what_several_flows_ask_alike_is_asked_once() -> None:
    @step
    def best(ranking: Ranking) -> Ranking:
        return ranking.cut(1)

    table = ask({"plain": first_of, "cut": first_of >> best}, ITEMS, "R@1")
    assert (len(ASKED), table.asked) == (20, 40)


@pytest.mark.slow
@settings(max_examples=25)
@given(seed=st.integers(0, 2**32))
def test_a_damaged_file_is_read_as_far_as_it_is_whole_and_the_rest_is_computed_again(seed: int) -> None:
    """Cut off anywhere, or with bytes changed anywhere behind its first line."""
    generator = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.experiment"
        flows = {"first": first_of, "second": second_of}
        whole = ask(flows, ITEMS[:6], "R@1,MRR", path=path)
        results = [whole.case(1, index).result for index in range(6)]
        raw = bytearray(path.read_bytes())
        for _ in range(generator.randint(0, 3)):
            raw[generator.randrange(len(MAGIC), len(raw))] ^= 1 << generator.randrange(8)
        path.write_bytes(raw[: generator.choice([len(raw), generator.randrange(len(raw))])])
        for asked_limit in (None, 0):
            rows = ask(flows, ITEMS[:6], "R@1,MRR", path=path)
            np.testing.assert_array_equal(rows.scores, whole.scores)
            assert rows.asked <= 12 if asked_limit is None else rows.asked == 0
            assert [rows.case(1, index).result for index in range(6)] == results


@pytest.mark.slow
def test_a_killed_write_loses_the_answers_in_progress_alone(tmp_path: Path) -> None:
    """Whole records stay, however much of the last one was written."""
    path = tmp_path / "a.experiment"
    with ScoreStore(path) as store:
        case = Case(Item("q", "?"), Ranking(Query("?"), (Hit(Node("n", "text"), 1.0),)))
        flow, question, gold, measure = (
            store.register(kind, bytes(16), {"name": "it"}) for kind in ("flows", "questions", "gold", "measures")
        )
        store.write_answer(flow, question, case, usage=Usage(), spent=Usage(), opening=0.0)
        size = path.stat().st_size
        store.write_scores(flow, question, gold, {measure: (SCORED, (1.0,), Usage())})
    raw = path.read_bytes()
    for end in range(size, len(raw)):
        path.write_bytes(raw[:end])
        with ScoreStore(path) as store:
            assert [len(store.columns(kind)) for kind in (ANSWER, SCORES)] == [1, 0]
            assert store.case(store.columns(ANSWER)[0], case.item) == case
        assert path.stat().st_size == size


def test_a_changed_function_is_asked_again_and_named(tmp_path: Path) -> None:
    @step
    def found(query: Query) -> Ranking:
        return Ranking(query, (Hit(Node("p1", "text"), 1.0),))

    previous_flow = found

    @step  # type: ignore[no-redef]
    def found(query: Query) -> Ranking:
        return Ranking(query, (Hit(Node("p2", "text"), 1.0),))

    path = tmp_path / "a.experiment"
    was = Experiment({"it": previous_flow}, ITEMS, parse_measures("R@1")).run(path=path)
    now = Experiment({"it": found}, ITEMS, parse_measures("R@1")).run(path=path)
    assert now.flows[0].measured[0].value != was.flows[0].measured[0].value
    (warning,) = now.warnings
    assert re.match(r"Computed again, since it has changed: flows, it, code, found\(\): was \w+, is \w+\.", warning)
    second_report = Experiment({"it": previous_flow}, ITEMS, parse_measures("R@1")).run(path=path)
    assert (second_report, second_report.table.asked, second_report.warnings) == (was, 0, ())


@pytest.mark.slow
def test_a_change_in_what_a_measure_of_spolia_names_is_taken_again_and_a_comment_is_not(tmp_path: Path) -> None:
    """How recall looks for gold is in another file than recall."""
    shutil.copytree(Path(spolia.__file__).parent, tmp_path / "spolia", ignore=shutil.ignore_patterns("__pycache__"))
    path, package = tmp_path / "a.experiment", tmp_path / "spolia" / "evaluation" / "measures"
    assert in_a_process(path, PYTHONPATH=str(tmp_path)).returncode == 0
    for name in ("retrieval_measure.py", "rank_measures.py"):
        with (package / name).open("a") as file:
            file.write("\n\n# A comment.\nANOTHER = 1\n")
    assert in_a_process(path, PYTHONPATH=str(tmp_path)).stdout == "asked 0\n\n"
    with (package / "retrieval_measure.py").open("a") as file:
        file.write("\ndef count_satisfied(ids, item):\n    return 0\n")
    output = in_a_process(path, PYTHONPATH=str(tmp_path)).stdout
    assert output.startswith("asked 0\nComputed again, since it has changed: measures, R@1, code, Recall: was ")


@pytest.mark.slow
def test_a_prompt_file_of_a_judge_that_changed_is_judged_again_without_asking_the_flow(tmp_path: Path) -> None:
    prompt, judge = tmp_path / "g.txt", ScriptedModel(("5",), name="judge")
    prompt.write_text("Grade: {{question}} {{answer}}")
    flow = BM25(index_passages(DataSet(str(facts(tmp_path))), folder=tmp_path / "kept")) >> Reader(
        ScriptedModel(("The moon [1].",))
    )
    whole = Experiment({"it": flow}, [Item("q1", "What pulls?")], [GEval(judge, samples=1, prompt=str(prompt))])
    whole.run(path=tmp_path / "a.experiment")
    baseline = record_baseline(whole)[1]
    prompt.write_text("Grade harshly: {{question}} {{answer}}")
    report = whole.run(path=tmp_path / "a.experiment")
    assert (report.table.asked, report.flows[0].judging.calls) == (0, 1)
    assert "measures, GEval" in report.warnings[0]
    with pytest.raises(DataError, match=r"GEval.* is computed otherwise than then: its code, its model or a prompt"):
        gate(whole, baseline)


@pytest.mark.parametrize(
    ("change", "asked", "says"),
    [
        ({"items": ITEMS[:-1]}, 0, ""),
        ({"items": [*ITEMS[:-1], ITEMS[-1].but(question="another?")]}, 1, "questions, q19, question: was question 19"),
        ({"items": [*ITEMS[:-1], ITEMS[-1].but(gold=(("p9",),))]}, 0, "gold, q19"),
        ({"items": [*ITEMS[:-1], ITEMS[-1].but(type="another")]}, 0, "gold, q19"),
        ({"measures": parse_measures("R@1,MRR,nDCG@5")}, 0, ""),
        ({"measures": parse_measures("R@1")}, 0, ""),
        ({"data": "thirty"}, 0, ""),
    ],
)
def test_other_questions_are_asked_again_and_other_gold_is_scored_again(
    tmp_path: Path, change: dict[str, object], asked: int, says: str
) -> None:
    path, whole = tmp_path / "a.experiment", experiment()
    whole.run(path=path)
    arguments: dict[str, Any] = {"flows": dict(whole.flows), "items": whole.items, "measures": whole.measures}
    arguments |= {"data": "twenty"} | change
    other_experiment = Experiment(
        arguments.pop("flows"), arguments.pop("items"), arguments.pop("measures"), **arguments
    )
    report = other_experiment.run(path=path)
    assert report.table.asked == asked
    assert report.flows[0].measured == other_experiment.run().flows[0].measured
    assert (says in report.warnings[0]) if says else not report.warnings


@pytest.mark.slow
def test_other_fields_models_stores_and_rights_are_asked_again_and_named(tmp_path: Path) -> None:
    items = [Item("q1", "What pulls?", gold=(("p1",),), answers=("the moon",))]
    chunks = index_passages(DataSet(str(facts(tmp_path))), folder=tmp_path / "kept")

    def run(*, top_k: int = 5, reply: str = "the moon [1]", principal: str = "") -> tuple[int, str]:
        flow = BM25(chunks, top_k=top_k) >> Reader(ScriptedModel((reply,)))
        whole = Experiment({"it": flow}, items, parse_measures("R@1,Acc"))
        report = whole.run(path=tmp_path / "a.experiment", run=Run(principal=principal))
        return report.table.asked, " ".join(report.warnings)

    assert run() == (1, "")
    assert run() == (0, "")
    for change, says in (
        ({"top_k": 3}, r"flows, it, written: .*has changed|top_k=3"),
        ({"reply": "the sun [1]"}, "flows, it"),
        ({"principal": "ann"}, r"flows, it, asked for, principals: was \[\], is \['ann'\]"),
    ):
        asked_count, warnings = run(**change)
        assert asked_count == 1
        assert re.search(says, warnings)
    with chunks.corpus.writer():
        pass
    assert run() == (0, "")
    with chunks.corpus.writer() as writer:
        node = Node("p2/chunk", "Salt.", "p2", "chunk", Span(0, 5))
        writer.put_document(Document("p2", "Salt."), [node], SourceRow("p2", 5))
    asked_count, warnings = run()
    assert asked_count == 1
    assert "flows, it, reads" in warnings


def test_in_a_folder_every_flow_has_its_own_file(tmp_path: Path) -> None:
    items, flows = ITEMS[:5], {"first": first_of, "second": second_of}
    Experiment(flows, items, parse_measures("R@1"), data="twenty").run(path=tmp_path)
    assert len(list(tmp_path.glob("twenty-*.experiment"))) == 2
    report = Experiment({"second": second_of}, items, parse_measures("R@1,MRR"), data="twenty").run(path=tmp_path)
    assert len(list(tmp_path.glob("twenty-*.experiment"))) == 2
    assert (report.table.asked, len(ASKED)) == (0, 10)
    assert report.table.cell(0, 1).case.result == second_of(Query("question 1"))


PARTS: list[list[tuple[tuple[str, float], ...]]] = [
    [(("bm25", 1.5), ("dense", 0.25)), (("dense", 0.5),), ()],
    [(("bm25", 1.5), ("dense", 0.25)), (("dense", 0.5), ("bm25", 1.0))],
    [(("bm25", 1.5), ("bm25", 0.25))],
    [(("bm25", float("nan")),)],
]
"""Of hits: those that columns hold, and others."""


def test_an_answer_comes_back_as_it_was(tmp_path: Path) -> None:
    node = Node("n1", random.Random(1).randbytes(4_000).hex(), "d1", span=Span(3, 90), meta=(("half", "\ud800"),))
    answer = Answer("The moon. [1]", (Citation("1", "n1", "d1", "a.txt", "The moon"),), evidence=None)
    other_hit = Hit(Node("n2", "x"), -float("inf"), found=(node, Node("n3", "y")))
    ranking = Ranking(Query("what?"), (Hit(node, 1.5), other_hit), "here")
    results: tuple[Ranking | Answer | Failure, ...] = (
        answer.but(evidence=ranking),
        answer,
        ranking,
        Failure("ValueError", "broken", "BM25()"),
        *(Ranking(Query("?"), tuple(Hit(node, 1.0, parts) for parts in part_lists), "fused") for part_lists in PARTS),
        Ranking(Query("?"), (Hit(Node("n4", "", meta=(("no number", float("nan")),)), 1.0),)),
    )
    usage, took = Usage(1, 2, 3, 4, 0.5), {"lane": 7, "seconds": 0.25, "opening": 1.5, "cached": True}
    cases = [Case(Item("q", "?"), result, usage, (ranking, ranking.cut(1))) for result in results]

    def read(store: ScoreStore) -> list[Case]:
        return [store.case(row, Item("q", "?")) for row in store.columns(ANSWER)]

    with ScoreStore(tmp_path / "a.experiment") as store:
        question = store.register("questions", bytes(16), {"name": "q"})
        for number, case in enumerate(cases):
            flow = store.register("flows", bytes([number] * 16), {"name": f"flow {number}"})
            store.write_answer(
                flow, question, case, steps=(), usage=usage, spent=usage, run=store.register_run("run"), **took
            )
        assert read(store)[-1] is cases[-1]
    with ScoreStore(tmp_path / "a.experiment") as store:
        found_cases = read(store)
        assert found_cases == cases[:-1]  # the last one cannot be written, and is asked again
        assert [getattr(case_read.result, "evidence", None) for case_read in found_cases[:4]] == [
            ranking,
            None,
            None,
            None,
        ]
        for case, parts in zip(found_cases[4:], PARTS, strict=True):
            assert isinstance(case.result, Ranking)
            assert repr([hit.parts for hit in case.result.hits]) == repr(parts)  # NaN does not equal itself
        row = store.columns(ANSWER)[0]
        assert (store.name_of(row["run"]), usage_from_row(row["usage"])) == ("run", usage)
        assert {name: row[name] for name in took} == took
    assert (tmp_path / "a.experiment").stat().st_size < 2 * len(node.text)  # each passage once


FORM_2 = (
    "eNoLLsjPyUxUKE7OL0otVjDiYvRkYGAQ3ioibSDJpiMhFW5UYRIhHi9WvbFaKTszL0XJSkGpuCS1oFhJR0EpLzE3FSQQHR2j5ORrZBoDFDTS"
    "UTCAoejY2FilWiY3oIn5eprydWK3tdmvvDN57ihg7JTr9LKCcXXYKZ/ATUEBp4xDLgUGaHmu1WD82CRc7CVi1C0a5HX5q8MjzZ8nl+5cWZmw"
    "U8R5aRTD/Gj+KiZDoHEzlkldW/y38XJjtprezwxrztIYQS5k44JQjJuSxZijyn6euY2RgUGdUYPnNQMEMEJpJijNzIAKmJDUMFywh9A/6iH0"
    "ByifwQFCcUBpASj9wJ5YdRWMZ/1P+x02EPgzNeP8iSIl19Y4gfgDjYufNq80TzAtDLHXCH1Sn14e/eDYzNvn3pw594ZN75mx2o1yaZE/OiYH"
    "umd7p1etfrCu2VljXYtp2q0ZvGLT+5Ta520v/HpimsaJ9e27EqYox82YxbR+rlbJrC/Ld4kZFrCZ3O7wnqHdWLucdYrIh8NnJ7n75M8s/Sjx"
    "aHZByKPdL37enXr8deSZmEmb605onnn67WbwHhv/LXcSuCyqp8VeUN0WFOJqafPC8fa1FZMM+b9PWeMm9ftun5QE8/rTBpMWhs8yrOiR5Mw2"
    "jTrNw8l6UYPFx3Sx+tH136+9XfW/P/+CfP21bW+5o4sW3GNTAPq+8fLrfVVM2KNDAEoDAM/T2bY="
)
"""A file that version 0.2.0 wrote, compressed."""


def test_a_file_of_an_earlier_version_is_read_alike(tmp_path: Path) -> None:
    """The file holds an answer with evidence, whose hits have parts and smaller nodes, and a ranking."""
    path = tmp_path / "a.experiment"
    path.write_bytes(decompress(b64decode(FORM_2)))
    node, smaller = Node("n1", "Salt is dug.", "d1"), Node("n2", "Salt")
    fused = Hit(node, 1.5, (("bm25", 1.0), ("dense", 0.5)), (smaller,))
    ranking = Ranking(
        Query("what?", filter=where(year=2020)), (fused, Hit(smaller, 0.5)), "fused", (("bm25", "what?"),)
    )
    result = Answer("Salt [1].", (Citation("1", "n1", "d1", "a.txt", "Salt"),), evidence=ranking)
    with ScoreStore(path) as store:
        (row,) = store.columns(ANSWER)
        case = store.case(row, Item("q", "?"))
        expected = Case(Item("q", "?"), result, Usage(1, 2, 3, 4, 0.5), (ranking, ranking.cut(1)), 0.25)
        assert case == expected
        assert repr(case) == repr(expected)  # parts do not count where hits are compared
        assert store.steps(int(store.columns(STEPS)[0]["steps"])) == (StepCalls("BM25", 2),)
    assert path.read_bytes().startswith(MAGIC)


def test_what_is_no_experiment_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no database " * 100)
    other_connection = sqlite3.connect(tmp_path / "other.db")
    other_connection.execute("CREATE TABLE t (x)")
    other_connection.close()
    experiment().run(path=tmp_path / "new")
    (tmp_path / "new").write_bytes((tmp_path / "new").read_bytes().replace(MAGIC, b"Spolia scores 99\n", 1))
    for name, error in (("text", NotAStore), ("other.db", NotAStore), ("new", StoreTooNew)):
        with pytest.raises(error):
            experiment().run(path=tmp_path / name)
    assert (tmp_path / "text").read_text().startswith("no database")
