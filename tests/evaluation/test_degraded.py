"""What failed inside a flow is counted by step and reason; a step that never worked is not measured under its name."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from spolia.core.combinators import Guard, Loop
from spolia.core.function import step
from spolia.core.operator import Operator
from spolia.core.run_context import degrade
from spolia.errors import DataError, NeverWorked
from spolia.evaluation.data.dataset import DataSet
from spolia.evaluation.data.passage_store import index_passages
from spolia.evaluation.experiment.experiment import Experiment
from spolia.evaluation.experiment.score_store import EARLIER, MAGIC, ScoreStore
from spolia.evaluation.gate.gate import gate, record_baseline
from spolia.evaluation.measures.judged.ragas import Correctness
from spolia.evaluation.measures.registry import parse_measures
from spolia.evaluation.report.html import html
from spolia.evaluation.report.tables import markdown
from spolia.models import ChatModel, ScriptedModel
from spolia.post_retrieval.rerankers import RankGPT
from spolia.retrieval.bm25 import BM25
from spolia.testing import OpenAIServer, ServedReply
from spolia.types import Answer, Chain, Hit, Item, Node, Query, Ranking

ITEMS = tuple(Item(f"q{i}", f"question {i}", gold=(("p1",),)) for i in range(12))
MEASURES = parse_measures("R@1")
asked: list[str] = []


@step
def search(query: Query) -> Ranking:
    asked.append(query.text)
    return Ranking(query, (Hit(Node("p1", "one"), 2.0), Hit(Node("p2", "two"), 1.0)))


@step
def never(ranking: Ranking) -> Ranking:
    degrade("The server says 400.")
    return ranking


@step
def on_even_ones(ranking: Ranking) -> Ranking:
    if int(ranking.query.text.split()[1]) % 2:
        degrade("The server says 500.")
    return ranking


@dataclass(frozen=True)
class Rarely(Operator[Ranking, Ranking]):
    """Call a step from the sixth question on."""

    step: Operator[Ranking, Ranking]

    def apply(self, value: Ranking, /) -> Ranking:
        return self.step(value) if int(value.query.text.split()[1]) >= 5 else value


def experiment_of(*flows: Operator[Query, Ranking], **options: object) -> Experiment:
    return Experiment({str(number): flow for number, flow in enumerate(flows)}, ITEMS, MEASURES, **options)  # type: ignore[arg-type]


def salty(folder: Path) -> DataSet:
    """Eight questions, of which one finds no passage and one finds a single passage, so that nobody is asked."""
    folder.mkdir(exist_ok=True)
    passages = [{"id": f"p{n}", "title": "", "text": f"Salt is dug in mine {n}."} for n in range(9)]
    passages.append({"id": "owl", "title": "", "text": "Owls hunt."})
    questions = [f"Is salt dug in mine {n}?" for n in range(6)] + ["Who hunts with owls?", "Why?"]
    rows = [{"id": f"q{n}", "question": question, "gold_ids": [f"p{n}"]} for n, question in enumerate(questions)]
    (folder / "corpus.jsonl").write_text("\n".join(map(json.dumps, passages)))
    (folder / "questions.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return DataSet(str(folder))


@pytest.mark.slow
def test_a_reranker_whose_server_refuses_every_call_is_not_measured(tmp_path: Path) -> None:
    with OpenAIServer(ServedReply(status=400)) as server:
        first = BM25(index_passages(salty(tmp_path / "data"), folder=tmp_path))
        flows = {"bm25": first, "rankgpt": first >> RankGPT(ChatModel("any", base_url=server.url))}
        items = list(salty(tmp_path / "data").items())
        with pytest.raises(
            NeverWorked, match=r"rankgpt has a step that failed .*RankGPT \(\d+ of \d+ calls\).*400"
        ) as it:
            Experiment(flows, items, MEASURES).run()
        assert it.value.never_worked == ("RankGPT",)
        report = Experiment(flows, items, MEASURES, degraded="ok").run()
    bm25, rankgpt = (entry.json() for entry in report.flows)
    assert (bm25["degraded"], bm25["never_worked"], rankgpt["never_worked"]) == ({}, [], ["RankGPT"])
    ((reason, times),) = rankgpt["degraded"]["RankGPT"].items()
    assert (times, "400" in reason) == (6, True)
    assert all("RankGPT of rankgpt never worked" in entry.verdict for entry in report.comparisons)
    warnings = "; ".join(report.warnings)
    assert "rankgpt: RankGPT never worked, 6 of 6 calls failed; 6 times: RankGPT could not" in warnings
    for page in (markdown(report), html(report)):
        assert "Degraded calls" in page
        assert "RankGPT, which never worked" in page


@step
def says_salt(query: Query) -> Answer:
    return Answer("Salt")


@pytest.mark.slow
def test_a_judge_whose_server_refuses_every_call_is_no_measure_and_is_asked_again(tmp_path: Path) -> None:
    items = [item.but(answers=("salt",)) for item in ITEMS]
    with OpenAIServer(*[ServedReply(status=401)] * 5, ServedReply("Yes")) as server:
        judge = Correctness(ChatModel("any", base_url=server.url, retries=0))
        asking = Experiment({"salt": says_salt}, items, (judge,))
        with pytest.raises(NeverWorked, match=r"Correctness.* of the first 5 answers: .*status 401") as it:
            asking.run(path=tmp_path / "kept.experiment")
        assert it.value.never_worked == (str(judge),)
        (measured,) = asking.run(path=tmp_path / "kept.experiment").flows[0].measured
    assert (measured.n, measured.undetermined) == (12, 0)
    with OpenAIServer(ServedReply(status=401)) as server:
        judge = Correctness(ChatModel("any", base_url=server.url, retries=0))
        (measured,) = Experiment({"salt": says_salt}, items, (judge,), degraded="ok").run().flows[0].measured
    assert (measured.n, measured.undetermined) == (0, 12)


def test_what_failed_on_some_calls_is_counted_and_told_in_verdicts() -> None:
    report = experiment_of(search, search >> on_even_ones).run()
    assert report.flow("1").json()["degraded"] == {"on_even_ones": {"The server says 500.": 6}}
    assert (report.flow("1").never_worked, report.flow("1").degraded, report.flow("0").degraded) == ((), 6, 0)
    assert report.comparisons[0].verdict.endswith("6 of 12 results of 1 are degraded")
    assert "1: on_even_ones, 6 of 12 calls failed; 6 times: The server says 500" in report.warnings


def test_an_experiment_stops_early_and_asks_again_what_failed(tmp_path: Path) -> None:
    asked.clear()
    file = tmp_path / "kept.experiment"
    with pytest.raises(NeverWorked):
        experiment_of(search >> never).run(path=file)
    assert len(asked) == 5
    experiment_of(search >> never, degraded="ok").run(path=file)
    assert len(asked) == 5 + 12
    with pytest.raises(NeverWorked, match="12 of 12 calls"):
        experiment_of(search >> never).run(path=file)
    assert len(asked) == 5 + 12  # its answers were kept; now they are dropped
    experiment_of(search >> never, degraded="ok").run(path=file)
    assert len(asked) == 5 + 12 + 12


def test_a_step_that_is_called_later_stops_it_too_and_its_other_answers_stay(tmp_path: Path) -> None:
    asked.clear()
    file = tmp_path / "kept.experiment"
    flow = search >> Rarely(never)
    with pytest.raises(NeverWorked, match=r"never \(7 of 7 calls\): The server says 400"):
        experiment_of(flow).run(path=file)
    report = experiment_of(flow, degraded="ok").run(path=file)
    assert report.table.asked == 7


def test_a_fallback_is_no_way_around_it() -> None:
    @step
    def broken(ranking: Ranking) -> Ranking:
        raise ValueError("broken")

    flow = search >> Guard(broken, fallback=search_again, on=("ValueError",))
    with pytest.raises(NeverWorked, match=r"broken \(5 of 5 calls\): ValueError: broken"):
        experiment_of(flow).run()
    with pytest.raises(DataError, match=r"degraded='no' is unknown. Write one of: stop, ok"):
        experiment_of(flow, degraded="no")


def test_repaired_and_unparsed_replies_are_counted_apart() -> None:
    good = (r"question (0|3|6|9)\b", "[2] > [1]")
    repaired = (r"question (1|4|7|10)\b[\s\S]*I cannot", "[2] > [1]")
    report = experiment_of(search >> RankGPT(ScriptedModel((good, repaired, "I cannot")))).run()
    count_by_reason = report.flows[0].json()["degraded"]["RankGPT"]
    assert sorted(count_by_reason.values()) == [4, 4]
    assert [reason for reason in count_by_reason if "the second could" in reason]
    assert [reason for reason in count_by_reason if "its default" in reason]
    (calls,) = [step_calls for step_calls in report.flows[0].steps if step_calls.step == "RankGPT"]
    assert (calls.calls, calls.failed) == (12, 4)


def test_counts_are_kept_with_answers_and_files_without_them_are_read(tmp_path: Path) -> None:
    file = tmp_path / "kept.experiment"
    previous_report = experiment_of(search >> on_even_ones).run(path=file)
    assert experiment_of(search >> on_even_ones).run(path=file).flows[0].steps == previous_report.flows[0].steps
    raw = file.read_bytes()
    file.write_bytes(raw.replace(MAGIC, EARLIER[0], 1))
    with ScoreStore(file):
        assert file.read_bytes() == raw


def test_a_gate_says_what_was_degraded_and_names_it_as_the_cause(tmp_path: Path) -> None:
    baseline = tmp_path / "baseline.json"
    _, previous_baseline = record_baseline(experiment_of(search >> on_even_ones))
    previous_baseline.write(baseline)
    assert "degraded" in json.loads(baseline.read_text())["questions"]["q1"]
    assert "degraded" not in json.loads(baseline.read_text())["questions"]["q0"]
    verdict = gate(experiment_of(search >> on_even_ones), baseline)
    assert verdict.json()["degraded"] == {"on_even_ones": {"The server says 500.": 6}}
    assert verdict.json()["never_worked"] == []
    assert verdict.sentence.endswith("6 of 12 results of 0 are degraded.")
    with pytest.raises(NeverWorked):
        gate(experiment_of(search >> never), baseline)


@step
def begin(query: Query) -> Chain:
    return Chain(query)


@step
def ask_on(chain: Chain) -> Chain:
    return chain.but(pairs=(*chain.pairs, (f"question {len(chain.pairs)}", "answer")))


@step
def second_first(chain: Chain) -> Ranking:
    return Ranking(chain.query, (Hit(Node("p2", "two"), 2.0), Hit(Node("p1", "one"), 1.0)))


def test_steps_that_a_flow_plans_are_no_failure_in_reports_verdicts_and_gates(tmp_path: Path) -> None:
    planned = begin >> Loop(ask_on, max_steps=3) >> second_first
    report = experiment_of(search, planned).run()
    assert (report.flows[1].degraded, report.flows[1].json()["degraded"], report.warnings) == (0, {}, ())
    assert "Degraded" not in markdown(report) + html(report)
    assert all("degraded" not in verdict.verdict for verdict in report.comparisons)
    record_baseline(experiment_of(search))[1].write(tmp_path / "baseline.json")
    lost = gate(experiment_of(planned), tmp_path / "baseline.json")
    assert {changed_question.cause for changed_question in lost.changed_questions} == {"ranking"}


@step
def search_again(ranking: Ranking) -> Ranking:
    return ranking
