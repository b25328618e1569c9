"""Flows asked the same questions: what is asked, counted, charged, compared and refused."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import sleep
from typing import Any, ClassVar
from zlib import compress, crc32

import pytest

from spolia.core.function import step
from spolia.core.operator import Operator
from spolia.core.run_context import charge
from spolia.errors import BudgetSpent, DataError, DocumentError, MeasureError, NotAStore, WiringError
from spolia.evaluation.data.dataset import DataSet, part_of
from spolia.evaluation.data.passage_store import index_passages
from spolia.evaluation.experiment.experiment import Experiment
from spolia.evaluation.experiment.results import Latency, Report
from spolia.evaluation.experiment.score_store import ANSWER, HEAD, NAME, SCORES, STEPS, ScoreStore, _decompress_json
from spolia.evaluation.measures.judged.ragas import Correctness
from spolia.evaluation.measures.measure import Case, CostMeasure, Measure, Result
from spolia.evaluation.measures.registry import parse_measures
from spolia.evaluation.report import tables
from spolia.evaluation.report.html import html
from spolia.evaluation.report.tables import describe_slices, markdown
from spolia.generation.reader import Reader
from spolia.journal import Cache, Runs
from spolia.models.prompting.stand_in_models import ScriptedModel
from spolia.retrieval.bm25 import BM25
from spolia.run import Budget, Run
from spolia.stores.corpus import Corpus
from spolia.types import Answer, Hit, Item, Node, Query, Ranking, Usage

ITEMS = [Item(f"q{i}", f"question {i}", gold=((f"p{i}",),), type="odd" if i % 2 else "even") for i in range(10)]
MEASURES = parse_measures("R@1,MRR")


@step
def finds_even_ones(query: Query) -> Ranking:
    number = int(query.text.split()[1])
    charge(Usage(calls=1, embedded=2))
    names = [f"p{number}", "x"] if number % 2 == 0 else ["x", f"p{number}"]
    return Ranking(query, tuple(Hit(Node(name, ""), 1.0) for name in names), "here")


@step
def finds_all(query: Query) -> Ranking:
    return Ranking(query, (Hit(Node(f"p{query.text.split()[1]}", ""), 1.0),), "there")


@step
def fails_on_seven(query: Query) -> Ranking:
    if query.text.endswith("7"):
        raise DocumentError("seven is broken")
    return finds_even_ones(query)


@step
def counts_words(query: Query) -> int:
    return len(query.text.split())


@step
def says_nokia(query: Query) -> Answer:
    return Answer("Nokia", evidence=Ranking(query, (Hit(Node("p1", "Nokia employed him."), 1.0),)))


def test_the_report_is_plain_data_with_means_between_0_and_1() -> None:
    report = Experiment({"even": finds_even_ones}, ITEMS, MEASURES, data="ten").run()
    entry = report.flows[0].json()
    assert list(entry)[:6] == ["flow", "data", "n", "measures", "usage", "seconds"]
    assert (entry["flow"], entry["data"], entry["n"], entry["failures"]) == ("even", "ten", 10, 0)
    assert entry["measures"]["R@1"]["mean"] == 0.5
    assert entry["measures"]["MRR"]["mean"] == 0.75
    assert entry["measures"]["R@1"]["low"] < 0.5 < entry["measures"]["R@1"]["high"]
    assert entry["usage"] == {"calls": 10, "input_tokens": 0, "output_tokens": 0, "embedded": 20, "cost_usd": 0.0}
    assert json.loads(json.dumps(report.json())) == report.json()


def test_every_flow_is_asked_the_same_questions_and_compared_on_each_measure() -> None:
    items = [Item(f"q{i}", f"question {i}", gold=((f"p{i}",),)) for i in range(60)]
    report = Experiment({"even": finds_even_ones, "all": finds_all}, items, MEASURES).run()
    assert [comparison.verdict.partition(" by ")[0] for comparison in report.comparisons] == [
        "all beats even on R@1",
        "all beats even on MRR",
    ]
    best = report.compare("even", "all", "R@1")
    assert (best.interval.mean, best.shown) == (0.5, True)
    assert best.verdict == "all beats even on R@1 by 50.0 [37.7, 62.3]"  # Wilson of 30 in 60, where one has none alone
    assert best.p == pytest.approx(2**-29)  # thirty questions, all on one side
    assert best.adjusted == pytest.approx(2**-28)


def test_what_is_not_shown_is_never_called_equal() -> None:
    report = Experiment({"one": finds_even_ones, "two": fails_on_seven}, ITEMS, MEASURES).run()
    for comparison in report.comparisons:
        assert comparison.verdict.startswith("no difference shown between ")
        assert "equal" not in comparison.verdict
    assert report.compare("one", "two", "MRR").interval.mean == pytest.approx(0.05)


def test_less_is_better_of_what_costs() -> None:
    items = [Item(f"q{i}", f"question {i}") for i in range(30)]
    report = Experiment({"dear": finds_even_ones, "free": finds_all}, items, [Embedded()]).run()
    assert report.comparisons[0].verdict == "free beats dear on Embedded by 2 [1.817, 2.183] (lower is better)"


@dataclass(frozen=True)
class Embedded(CostMeasure):
    notation: ClassVar[str] = "Embedded"

    def cost(self, case: Case) -> float:
        return case.usage.embedded


def test_a_failed_question_scores_0_and_is_counted() -> None:
    report = Experiment(fails_on_seven, ITEMS, MEASURES).run()
    (flow,) = report.flows
    assert [(id, failure.kind) for id, failure in flow.failures] == [("q7", "DocumentError")]
    assert flow.measured[1].observations[7] == (0.0,)
    assert flow.json()["measures"]["MRR"]["mean"] == pytest.approx((5 * 1 + 4 * 0.5) / 10)
    assert any("1 of 10 questions failed and score 0; the first, q7" in warning for warning in report.warnings)


@pytest.mark.parametrize("form", [str, markdown, html, Report._repr_html_, lambda report: str(report.json())])
def test_each_form_of_a_report_says_what_failed_and_what_was_left_out(form: Callable[[Report], str]) -> None:
    page = form(Experiment(fails_on_seven, [*ITEMS, Item("q10", "question 10")], MEASURES).run())
    assert "1 of 10 questions failed and score 0; the first, q7: DocumentError" in page
    assert "1 question without gold was left out" in page


def test_questions_without_gold_are_left_out_and_counted() -> None:
    report = Experiment(finds_even_ones, [*ITEMS, Item("q10", "question 10")], MEASURES).run()
    assert (report.n, report.without_gold, report.flows[0].usage.calls) == (10, 1, 10)


def test_questions_of_each_kind_are_told_apart() -> None:
    report = Experiment(finds_even_ones, ITEMS, MEASURES, by="type").run()
    assert [(question_slice.field, question_slice.value, question_slice.n) for question_slice in report.slices] == [
        ("type", "even", 5),
        ("type", "odd", 5),
    ]
    means = {
        question_slice.value: {measure: i.mean for _, measure, i in question_slice.scores if i}
        for question_slice in report.slices
    }
    assert means == {"even": {"R@1": 1.0, "MRR": 1.0}, "odd": {"R@1": 0.0, "MRR": 0.5}}


def test_the_type_may_stand_among_the_metadata_and_an_unknown_field_is_refused() -> None:
    items = [item.but(type="", meta=(("type", item.type), ("hops", 2))) for item in ITEMS]
    assert {
        question_slice.value: question_slice.n
        for question_slice in Experiment(finds_even_ones, items, MEASURES).run().slices
    } == {
        "even": 5,
        "odd": 5,
    }
    with pytest.raises(DataError, match=r"field 'hop'.*hops, type"):
        Experiment(finds_even_ones, items, MEASURES, by="hop")


def test_a_field_of_several_values_has_a_slice_for_each_and_objects_are_looked_into() -> None:
    metas = {0: '["date", "place"]', 1: '["date"]'}
    items = [item.but(type="", meta=(("tags", metas[n % 2]),)) for n, item in enumerate(ITEMS)]
    report = Experiment(finds_even_ones, items, MEASURES, by="tags").run()
    assert {question_slice.value: question_slice.n for question_slice in report.slices} == {"date": 10, "place": 5}
    inside = [item.but(type="", meta=(("metadata", json.dumps({"type": item.type})),)) for item in ITEMS]
    assert {question_slice.value for question_slice in Experiment(finds_even_ones, inside, MEASURES).run().slices} == {
        "even",
        "odd",
    }
    with pytest.raises(DataError, match=r"Slice by one of: metadata\.type, type"):
        Experiment(finds_even_ones, inside, MEASURES, by="metadata")
    with pytest.raises(DataError, match=r"'type'\. They have no type and no metadata"):
        Experiment(finds_even_ones, [item.but(type="") for item in ITEMS], MEASURES, by="type")


def test_what_makes_no_slices_is_said_where_it_was_asked_for() -> None:
    items = [item.but(meta=(("number", n), ("set", "one"))) for n, item in enumerate(ITEMS * 3)]
    items = [item.but(id=f"{item.id} {n}") for n, item in enumerate(items)]
    report = Experiment(finds_even_ones, items, MEASURES, by=["number", "set"]).run()
    assert report.slices == ()
    assert "number has 30 values, and no slices are made of more than 20." in report.warnings
    assert "All questions have the same set, 'one', so that there are no slices by it." in report.warnings


def test_differences_within_slices_are_told_and_corrected_together() -> None:
    items = [Item(f"q{i}", f"question {i}", gold=((f"p{i}",),), type="odd" if i % 2 else "even") for i in range(40)]
    report = Experiment({"even": finds_even_ones, "all": finds_all}, items, parse_measures("R@1")).run()
    odd = next(question_slice for question_slice in report.slices if question_slice.value == "odd")
    (comparison,) = odd.comparisons
    assert (comparison.verdict.partition(" by ")[0], comparison.comparison_count) == ("all beats even on R@1", 2)
    assert comparison.p == pytest.approx(2**-19)
    assert comparison.adjusted == pytest.approx(2**-18)
    assert (
        not next(question_slice for question_slice in report.slices if question_slice.value == "even")
        .comparisons[0]
        .shown
    )
    sentences = describe_slices(report)
    assert sentences[0].startswith("type odd: all beats even on R@1 by 100.0 [")
    assert sentences[1] == (
        "Within slices 1 of 2 comparisons show a difference, with Holm's correction for these 2 together."
    )


def test_calls_of_retrievers_are_measured() -> None:
    (measure,) = parse_measures('Calls(source="here")')
    report = Experiment({"even": finds_even_ones, "all": finds_all}, ITEMS, [measure]).run()
    assert [flow.json()["measures"][str(measure)]["mean"] for flow in report.flows] == [1.0, 0.0]


def test_a_question_belongs_to_a_part_and_what_was_tuned_on_is_refused() -> None:
    report = Experiment(finds_even_ones, ITEMS, MEASURES).run()
    assert dict(report.parts) == {
        part: [part_of(item.id) for item in ITEMS].count(part) for part in ("tune", "select", "report")
    }
    tuned = [item.id for item in ITEMS if part_of(item.id) == "tune"]
    used = f"{len(tuned)} of 10 questions were used to tune or choose a flow"
    with pytest.raises(DataError, match=rf"{used} \(the first: '{tuned[0]}'\)"):
        Experiment(finds_even_ones, ITEMS, MEASURES, tuned_on=("tune",))
    overlapping = Experiment(finds_even_ones, ITEMS, MEASURES, tuned_on=("tune",), overlap=True).run()
    assert used in overlapping.warnings[0]
    held_out = [item for item in ITEMS if part_of(item.id) == "report"]
    assert Experiment(finds_even_ones, held_out, MEASURES, tuned_on=("tune", "select")).run().tuned_count == 0


def test_the_first_question_is_kept_apart_from_the_times() -> None:
    latency = Experiment(finds_even_ones, ITEMS, MEASURES).run().flows[0].latency
    assert latency.n == 9
    assert 0 < (latency.p50_s or 0) <= (latency.p95_s or 0)


@step(cached=True)
def slow(query: Query) -> Ranking:
    sleep(0.03)
    return finds_all(query)


@step
def first(ranking: Ranking) -> Ranking:
    sleep(0.01)
    return ranking.cut(1)


@pytest.mark.parametrize("threads", [1, 4])
def test_a_step_that_two_flows_share_runs_once_and_counts_its_time_for_both(threads: int) -> None:
    run = Run(cache=Cache(), threads=threads)
    report = Experiment({"slow": slow, "first": slow >> first}, ITEMS, MEASURES).run(run=run)
    assert next(run.executed[type(slow)]) == 10
    first_latency, second_latency = (flow.latency for flow in report.flows)
    assert (first_latency.n, second_latency.n, first_latency.cached, second_latency.cached) == (9, 9, 0, 0)
    assert (first_latency.p50_s or 0) >= 0.03
    assert (second_latency.p50_s or 0) >= 0.04  # what the shared step took counts, although it ran once
    assert "≥" not in tables.markdown(report)


def test_of_a_step_that_an_earlier_run_computed_only_the_rest_is_timed(tmp_path: Path) -> None:
    def latency(flow: Operator[Query, Ranking], **options: Any) -> Latency:
        with Runs(tmp_path / "runs.db") as runs:
            report = Experiment(flow, ITEMS, MEASURES).run(run=Run(cache=Cache(runs.database, **options)))
        text = tables.markdown(report)
        assert ("--again times all" in text) == (
            f"≥ {tables.format_seconds(report.flows[0].latency.ran_p50_s)}" in text
        )
        return report.flows[0].latency

    assert latency(slow).n == 9
    rest = latency(slow >> first)
    assert (rest.n, rest.p50_s, rest.cached) == (0, None, 9)
    assert (rest.ran_p50_s or 0) >= 0.01
    second_latency = latency(slow >> first, replace=True)
    assert (second_latency.n, second_latency.cached) == (9, 0)
    assert (second_latency.p50_s or 0) >= 0.04
    assert (second_latency.p50_s or 0) > (rest.ran_p50_s or 0)  # by the 0.03 s that `slow` sleeps, in every question


def test_judges_are_paid_apart_and_their_silence_is_counted() -> None:
    llm = ScriptedModel((("question 1<", "yes"), ("question 2<", "no"), ("", "I would not know.")), name="judge")
    items = [Item(f"q{i}", f"question {i}", answers=("Nokia",)) for i in (1, 2, 3)]
    report = Experiment(says_nokia, items, [Correctness(llm)]).run(run=Run())
    (flow,) = report.flows
    assert flow.usage.calls == 0
    assert flow.judging.calls == 4  # the unreadable reply is sent back once
    assert flow.measured[0].undetermined == 1
    assert "undetermined for 1 of 3 questions" in report.warnings[0]


def test_a_judge_that_says_nothing_at_all_leaves_no_number() -> None:
    llm = ScriptedModel(("hm",), name="judge")
    report = Experiment(
        {"one": says_nokia, "two": finds_all_and_says},
        [Item("q1", "question 1", answers=("Nokia",))],
        [Correctness(llm)],
    ).run()
    assert report.flows[0].interval('Correctness(llm="judge")') is None
    assert report.flows[0].json()["measures"]['Correctness(llm="judge")']["mean"] is None
    assert report.comparisons == ()


@step
def finds_all_and_says(query: Query) -> Answer:
    return Answer("Siemens", evidence=finds_all(query))


@dataclass(frozen=True)
class NotANumber(Measure):
    notation: ClassVar[str] = "NaN"

    def applies(self, item: Item) -> bool:
        return True

    def score(self, result: Result, item: Item) -> float:
        return float("nan") if item.id == "q1" else 1.0


@dataclass(frozen=True)
class CostsNaN(CostMeasure):
    notation: ClassVar[str] = "CostsNaN"

    def cost(self, case: Case) -> float:
        return float("nan")


def test_what_is_no_number_is_undetermined() -> None:
    report = Experiment(finds_all, ITEMS, [NotANumber(), CostsNaN()]).run()
    measured = report.flows[0].measured
    assert [(entry.n, entry.undetermined) for entry in measured] == [(9, 1), (0, 10)]


def test_a_score_outside_of_the_range_of_its_measure_is_refused() -> None:
    @dataclass(frozen=True)
    class Stars(NotANumber):
        notation: ClassVar[str] = "Stars"

        def score(self, result: Result, item: Item) -> float:
            return 4.0

    with pytest.raises(MeasureError, match=r"Stars gave 4, which is outside of its range from 0 to 1"):
        Experiment(finds_all, ITEMS, [Stars()]).run()


def test_undetermined_questions_are_left_out_of_both_flows_of_a_pair() -> None:
    @dataclass(frozen=True)
    class OnlyOne(NotANumber):
        notation: ClassVar[str] = "OnlyOne"

        def score(self, result: Result, item: Item) -> float:
            lost = isinstance(result, Ranking) and result.source == "here" and item.id in ("q1", "q2")
            return float("nan") if lost else 1.0

    report = Experiment({"even": finds_even_ones, "all": finds_all}, ITEMS, [OnlyOne()]).run()
    assert [flow.measured[0].n for flow in report.flows] == [8, 10]
    assert report.comparisons[0].interval.n == 8


@pytest.mark.slow
def test_flow_and_judge_share_the_budget_and_what_was_answered_is_kept(tmp_path: Path) -> None:
    path, model = tmp_path / "a.experiment", ScriptedModel(("Nokia [1].",))
    items = [Item(f"q{i}", f"question {i}", answers=("Nokia",)) for i in range(6)]
    experiment = Experiment(finds_all_here >> Reader(model), items, parse_measures("Acc"))
    with pytest.raises(BudgetSpent, match="Raise the budget and run again"):
        experiment.run(run=Run(budget=Budget(calls=3), threads=1), path=path)
    report = experiment.run(run=Run(budget=Budget(calls=3), threads=1), path=path)
    assert report.flows[0].usage.calls == 6
    assert report.flows[0].failures == ()


@step
def finds_all_here(query: Query) -> Ranking:
    return Ranking(query, (Hit(Node("p", "Nokia employed Carsten Olsen."), 1.0),))


@pytest.mark.parametrize(
    ("items", "says"),
    [
        ([], "There are no questions to ask"),
        ([Item("q", "?")], "None of 1 question has gold for R@1, MRR"),
        ([ITEMS[0], ITEMS[1], ITEMS[0]], "1 id of several questions each, the first 'q0'"),
    ],
)
def test_questions_that_cannot_be_asked_are_refused(items: list[Item], says: str) -> None:
    with pytest.raises(DataError, match=says):
        Experiment(finds_all, items, MEASURES)


@pytest.mark.parametrize(
    ("item", "measures", "write"),
    [
        (Item("q", "?", answers=("Espoo",)), "R@1,MRR", "They have answers. Write --measures EM,F1 (in Python 'EM,F1'"),
        (Item("q", "?", gold=(("p",),)), "EM", "They have gold passages. Write --measures R@5,MRR (in Python"),
        (Item("q", "?"), "EM", "a column 'file' or 'quote'), or with answers for measures of answers."),
    ],
)
def test_where_no_measure_applies_the_error_names_those_that_do(item: Item, measures: str, write: str) -> None:
    with pytest.raises(DataError, match=re.escape(write)):
        Experiment(finds_all, [item], measures.split(","))


def test_answers_in_the_data_are_measured_by_default_and_a_ranking_has_none(tmp_path: Path) -> None:
    items = [Item("q1", "question 1", gold=(("p1",),), answers=("Nokia",)), Item("q2", "question 2", gold=(("p1",),))]
    for _ in range(2):  # also where the scores are kept
        report = Experiment({"ranks": finds_all, "answers": says_nokia}, items).run(path=tmp_path / "kept")
        rows = {row[0]: row[1:] for row in tables.tabulate_scores(report).rows}
        assert list(rows) == ["R@1", "R@5", "R@10", "full@5", "full@10", "MRR", "nDCG@10", "EM", "F1"]
        assert rows["EM"][0] == rows["F1"][0] == "–"
        assert rows["EM"][1].startswith("100.0")
        assert tables.NO_NUMBER in tables.explain_scores(report)
        assert not any("undetermined" in entry for entry in report.warnings)
        assert {entry.measure for entry in report.comparisons}.isdisjoint({"EM", "F1"})
        assert report.flow("ranks").json()["measures"]["EM"]["mean"] is None
    assert "EM" not in rows_of(Experiment({"ranks": finds_all}, items).run())
    assert "EM" not in rows_of(Experiment({"answers": says_nokia}, items[1:]).run())


def rows_of(report: Report) -> list[str]:
    return [row[0] for row in tables.tabulate_scores(report).rows]


def test_equal_flows_are_one_row_with_all_names() -> None:
    flows = {"default": finds_all, "even": finds_even_ones, "all": finds_all}
    report = Experiment(flows, ITEMS, MEASURES, against="all").run()
    assert [entry.flow for entry in report.flows] == ["default = all", "even"]
    assert report.flow("all") is report.flow("default") is report.flow("default = all")
    assert report.compare("all", "even", "MRR") == report.compare("even", "default", "MRR")
    assert {entry.comparison_count for entry in report.comparisons} == {2}  # nothing is compared with itself
    with pytest.raises(DataError, match="is one flow"):
        report.compare("all", "default", "MRR")


def test_one_question_is_enough_to_be_asked_and_not_to_show_anything() -> None:
    report = Experiment({"even": finds_even_ones, "all": finds_all}, ITEMS[1:2], MEASURES).run()
    assert [entry.json()["measures"]["MRR"]["mean"] for entry in report.flows] == [0.5, 1.0]
    assert not any(entry.shown for entry in report.comparisons)


def test_only_rankings_and_answers_are_measured() -> None:
    flow: Operator[Any, Any] = counts_words
    with pytest.raises(WiringError, match="gives int; a Ranking or an Answer can be measured"):
        Experiment(flow, ITEMS, MEASURES)


def test_what_cannot_be_told_apart_or_measured_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WiringError, match="Two of the flows are the same"):
        Experiment([finds_all, finds_all], ITEMS, MEASURES)
    with pytest.raises(WiringError, match="no flow"):
        Experiment({}, ITEMS, MEASURES)
    with pytest.raises(DataError, match="No measures given"):
        Experiment(finds_all, ITEMS, [])
    with pytest.raises(DataError, match="no correction 'bonferroni'"):
        Experiment(finds_all, ITEMS, MEASURES, correction="bonferroni")
    for _ in range(2):  # also where the scores are kept
        with pytest.raises(MeasureError, match="EM: not to be measured of a ranking, and all gives nothing else"):
            Experiment({"all": finds_all}, [Item("q", "question 1", answers=("x",))], "EM").run(path=tmp_path / "e")


@pytest.fixture
def data(tmp_path: Path) -> DataSet:
    (tmp_path / "corpus.jsonl").write_text('{"id": "p1", "text": "The moon pulls the sea."}')
    (tmp_path / "questions.jsonl").write_text('{"id": "q1", "question": "What pulls the sea?", "gold_ids": ["p1"]}')
    return DataSet(str(tmp_path))


@pytest.mark.slow
def test_gold_that_the_store_has_not_is_named(data: DataSet, tmp_path: Path) -> None:
    flow = BM25(index_passages(data, folder=tmp_path / "kept"))
    assert Experiment(flow, data.items(), MEASURES).run().flows[0].measured[0].value == 1.0
    items = [*data.items(), Item("q2", "What pulls?", gold=(("p1", "p9"),)), Item("q3", "Who?", gold=(("p8",),))]
    with pytest.raises(
        DataError, match=r"Gold 'p9' of question 'q2' .“What pulls\?”. names no document of .*kept.*Nor is this .*'p8'"
    ):
        Experiment(flow, items, MEASURES).run()


def test_a_store_that_is_not_there_is_no_failed_question(tmp_path: Path) -> None:
    with pytest.raises(NotAStore):
        Experiment(BM25(Corpus(str(tmp_path / "none.spolia")).group()), ITEMS, MEASURES).run()


def test_what_a_report_has_not_is_named_with_what_it_has() -> None:
    report = Experiment({"even": finds_even_ones, "all": finds_all}, ITEMS, "R@1, MRR").run()
    assert [str(measure) for measure in Experiment(finds_all, ITEMS, ["R@1", MEASURES[1]]).measures] == ["R@1", "MRR"]
    with pytest.raises(DataError, match=r"No flow is called 'evn'\. Write one of: even, all"):
        report.flow("evn")
    with pytest.raises(DataError, match=r"'R@5' was not measured\. Measured: R@1, MRR"):
        report.flow("even").interval("R@5")
    with pytest.raises(DataError, match="'R@5' was not measured"):
        report.compare("even", "all", "R@5")
    wrong: Any = 5
    with pytest.raises(MeasureError, match=r"5 is not a measure. Write parse_measure"):
        Experiment(finds_all, ITEMS, [wrong])
    name: Any = "bm25"
    for flows in (name, [name], {"bm25": name}):
        with pytest.raises(WiringError, match=r"'bm25' is not a flow\. Give operators"):
            Experiment(flows, ITEMS, MEASURES)


def test_a_flow_that_is_cut_off_before_a_measure_looks_is_told(data: DataSet, tmp_path: Path) -> None:
    chunks = index_passages(data, folder=tmp_path / "kept")
    passages = list(data.passages())
    items = [Item(f"t{n}", passage.text, gold=((passage.id,),)) for n, passage in enumerate(passages)]
    flows = {"short": BM25(chunks, top_k=1), "long": BM25(chunks)}
    warnings = Experiment(flows, items, "R@1,R@5,MRR").run().warnings
    assert warnings == ("short returns 1 passage, so its R@5 equals those at 1.",)


@pytest.mark.parametrize("kind", [NAME, ANSWER, SCORES, STEPS])
@pytest.mark.parametrize("payload", [b"[" * 100_000, b"7", bytes(12) + b"{}"])
def test_a_record_with_a_right_checksum_that_nobody_has_written_so_is_passed_over(
    tmp_path: Path, kind: int, payload: bytes
) -> None:
    path = tmp_path / "asked.spolia"
    with ScoreStore(path):
        pass
    path.write_bytes(path.read_bytes() + HEAD.pack(kind, len(payload), crc32(payload, kind)) + payload)
    with ScoreStore(path) as store:
        assert not len(store.columns(SCORES))


@pytest.mark.slow
def test_an_answer_that_would_unpack_to_more_than_was_written_is_no_answer() -> None:
    with pytest.raises(DataError, match="too large"):
        _decompress_json(compress(bytes(2**28 + 1)))


def test_a_report_says_of_each_measure_how_many_questions_have_no_gold_for_it() -> None:
    items = [*ITEMS[:2], Item("q8", "question 8", answers=("Nokia",))]
    report = Experiment(says_nokia, items, "R@1,MRR,EM").run()
    assert "R@1, MRR: 1 of 3 questions has no gold for them." in report.warnings
    assert "EM: 2 of 3 questions have no gold for it." in report.warnings
