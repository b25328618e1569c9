"""A flow against what it was: whether it passes, which questions differ, and why."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import partial
from math import inf
from pathlib import Path
from typing import Any

import pytest

from spolia.core.combinators import Branch
from spolia.core.function import step
from spolia.errors import DataError
from spolia.evaluation.experiment.experiment import Experiment
from spolia.evaluation.gate.baseline import Baseline
from spolia.evaluation.gate.gate import Gate, GateVerdict, gate, record_baseline
from spolia.evaluation.measures.judged.ragas import Correctness
from spolia.evaluation.report.gate_report import markdown
from spolia.evaluation.statistics.interval import Interval
from spolia.generation.reader import Reader
from spolia.indexing.splitters.sized_splitter import SlidingWindow
from spolia.indexing.sync.sync import sync
from spolia.models.prompting.stand_in_models import ScriptedModel
from spolia.orchestration.rank_fusion import ReciprocalRankFusion
from spolia.retrieval.bm25 import BM25
from spolia.retrieval.dense import Dense
from spolia.run import Run
from spolia.stores.corpus import Corpus, NodeGroup
from spolia.testing.hash_embedder import HashingEmbedder
from spolia.types import Item, Query, Quote, Ranking
from tests.evaluation.gate.lighthouses import TEXTS, experiment_of, items, store_texts
from tests.evaluation.killed_experiment import experiment

pytestmark = pytest.mark.slow


@pytest.fixture
def chunks(tmp_path: Path) -> NodeGroup:
    return store_texts(tmp_path / "a.spolia")


@pytest.fixture
def recorded_baseline(chunks: NodeGroup) -> Baseline:
    return record_baseline(experiment_of(BM25(chunks), items(chunks)))[1]


def kinds(verdict: Gate) -> list[str]:
    return [kind for kind, _ in verdict.changes]


def test_what_has_not_changed_passes(recorded_baseline: Baseline, chunks: NodeGroup) -> None:
    verdict = gate(experiment_of(BM25(chunks), items(chunks)), recorded_baseline, tolerance=0)
    assert verdict.passed
    assert (verdict.changes, verdict.changed_questions, verdict.why) == ((), (), "")
    assert [measure_verdict.sentence for measure_verdict in verdict.verdicts] == [
        f"{measure_verdict.measure} is unchanged on each of 40 questions: {100 * measure_verdict.now.mean:.1f}"
        for measure_verdict in verdict.verdicts
        if measure_verdict.now
    ]


def test_the_same_documents_in_another_store_are_the_same(
    recorded_baseline: Baseline, chunks: NodeGroup, tmp_path: Path
) -> None:
    other_group = store_texts(tmp_path / "elsewhere" / "b.spolia")
    verdict = gate(experiment_of(BM25(other_group), items(other_group)), recorded_baseline)
    assert (verdict.passed, verdict.changes) == (True, ())


def test_a_baseline_comes_back_from_its_file_as_it_was(recorded_baseline: Baseline, tmp_path: Path) -> None:
    recorded_baseline.write(tmp_path / "baseline.json")
    assert Baseline.read(tmp_path / "baseline.json") == recorded_baseline
    lines = (tmp_path / "baseline.json").read_text().splitlines()
    assert sum(line.startswith(' "q') for line in lines) == 40  # a line for each question


@step
def backwards(found: Ranking) -> Ranking:
    return found.but(hits=found.hits[::-1])


def test_a_worse_ranker_is_told_by_the_same_nodes_in_another_order(
    recorded_baseline: Baseline, chunks: NodeGroup
) -> None:
    verdict = gate(experiment_of(BM25(chunks) >> backwards, items(chunks)), recorded_baseline)
    assert not verdict.passed
    assert {measure_verdict.outcome for measure_verdict in verdict.verdicts} == {"worse"}
    assert kinds(verdict) == ["flow"]
    assert set(verdict.causes) == {"ranking"}
    assert "because the flow finds other passages, or the same in another order" in verdict.why
    first = verdict.worse[0]
    assert first.evidence[0].startswith("gold text:")
    assert "rank 1 then, " in first.evidence[0]
    assert first.evidence[1].startswith("found then: text:")
    assert dict(verdict.changes)["flow"] == "backwards is new"


def test_a_corpus_that_is_cut_otherwise_is_told_apart(chunks: NodeGroup, tmp_path: Path) -> None:
    first = record_baseline(experiment_of(BM25(chunks), items(chunks)))[1]
    previous_baseline = first.but(
        questions=tuple(question.but(seen=dict.fromkeys(question.seen, (0.5,))) for question in first.questions)
    )
    smaller = store_texts(tmp_path / "b.spolia", size=24)
    verdict = gate(experiment_of(BM25(smaller), items(smaller)), previous_baseline)
    assert kinds(verdict) == ["chunks"]
    assert dict(verdict.changes)["chunks"].startswith("group chunk: 40 nodes then, 120 now; group chunk: transform: ")
    assert "SlidingWindow: size=200 then, size=24 now" in dict(verdict.changes)["chunks"]
    assert "code is another" not in dict(verdict.changes)["chunks"]  # which is nothing that anybody changed
    assert {question.cause for question in verdict.changed_questions} == {"chunks"}
    assert "1 node then, 3 nodes now" in verdict.changed_questions[0].evidence[0]


def test_another_cut_and_another_ranker_are_not_told_apart(recorded_baseline: Baseline, tmp_path: Path) -> None:
    smaller = store_texts(tmp_path / "b.spolia", size=24)
    verdict = gate(experiment_of(BM25(smaller) >> backwards, items(smaller)), recorded_baseline)
    assert not verdict.passed
    assert set(kinds(verdict)) == {"chunks", "flow"}
    assert set(verdict.causes) == {"chunks or flow"}
    assert "re-chunked and the flow is another one; their effects cannot be separated" in verdict.why
    assert "1 node then, 3 nodes now" in verdict.worse[0].evidence[0]


def test_a_flow_that_searches_another_group_too_has_not_cut_anything(
    recorded_baseline: Baseline, chunks: NodeGroup
) -> None:
    sentences = chunks.corpus.group("sentence")
    flow = Branch(BM25(chunks), BM25(sentences)) >> ReciprocalRankFusion(top_k=20) >> backwards
    verdict = gate(experiment_of(flow, items(chunks)), recorded_baseline)
    assert set(verdict.causes) == {"groups"}
    assert verdict.worse[0].evidence[0] == "searched then: chunk; now: chunk, sentence"
    assert "flow searches other node groups" in verdict.why


def test_gold_that_is_quoted_survives_every_cut(chunks: NodeGroup, tmp_path: Path) -> None:
    """The same questions are comparable; a quote that two nodes share now is found later, and that is told."""
    texts = {document.id: document.text for document in chunks.snapshot().documents()}

    def quoted(item: Item) -> Item:
        ((id,),) = item.gold
        start = texts[str(id)].index("ice broke")
        return item.but(gold=((Quote(str(id), start, texts[str(id)][start:].partition(" from")[0]),),))

    questions = [quoted(item) for item in items(chunks)]
    previous_baseline = record_baseline(experiment_of(BM25(chunks), questions, "MRR"))[1]
    narrow = store_texts(tmp_path / "b.spolia", size=8)
    verdict = gate(experiment_of(BM25(narrow), questions, "MRR"), previous_baseline)
    assert verdict.verdicts[0].outcome == "worse"
    assert set(verdict.causes) == {"chunks"}
    assert previous_baseline.but(questions=()).documents.keys() == verdict.now.documents.keys()
    changed = gate(experiment_of(BM25(chunks) >> backwards, questions, "MRR"), previous_baseline)
    assert re.match(r"gold text:\d+\[\d+:\d+\]: rank 1 then, rank \d+ now", changed.worse[0].evidence[0])


def test_documents_that_changed_are_named(recorded_baseline: Baseline, tmp_path: Path) -> None:
    noise = {f"noise {n}": f"What broke the lantern in winter {1800 + n}? " * 3 for n in range(20)}
    more = store_texts(tmp_path / "b.spolia", TEXTS | noise)
    questions = [item.but(gold=item.gold) for item in items(more)]
    verdict = gate(experiment_of(BM25(more), questions), recorded_baseline)
    assert "documents" in kinds(verdict)
    assert "chunks" not in kinds(verdict)  # what is the same is cut as it was
    assert dict(verdict.changes)["documents"].startswith("60 in place of 40; text:noise ")
    assert set(verdict.causes) == {"documents"}
    assert "text:noise 0 is not in the baseline" in " ".join(question.evidence[0] for question in verdict.worse)


def test_a_text_that_changed_is_named(chunks: NodeGroup, tmp_path: Path) -> None:
    questions = items(chunks)[:30]
    previous_baseline = record_baseline(experiment_of(BM25(chunks, top_k=40), questions))[1]
    other_group = store_texts(
        tmp_path / "b.spolia", TEXTS | {"35": TEXTS["35"] + " What broke the lantern in winter?" * 9}
    )
    verdict = gate(experiment_of(BM25(other_group, top_k=40), questions), previous_baseline)
    assert dict(verdict.changes)["documents"].endswith("text:35 has another text")
    assert set(verdict.causes) == {"documents"}


def test_other_answers_from_the_same_passages_are_told_apart(chunks: NodeGroup) -> None:
    def reading(reply: str) -> Any:
        return BM25(chunks) >> Reader(ScriptedModel((reply,), name="m"))

    questions = items(chunks)
    previous_baseline = record_baseline(experiment_of(reading("Ice [1]."), questions, "R@5,EM"))[1]
    verdict = gate(experiment_of(reading("Fire [1]."), questions, "R@5,EM"), previous_baseline)
    assert [(measure_verdict.measure, measure_verdict.outcome) for measure_verdict in verdict.verdicts] == [
        ("R@5", "not worse"),
        ("EM", "worse"),
    ]
    assert kinds(verdict) == ["flow", "models"]
    assert dict(verdict.causes) == {"answer": 40}
    assert verdict.worse[0].evidence == ("answered then: Ice [1].", "answered now: Fire [1].")


def test_a_flow_that_fails_now_is_told(recorded_baseline: Baseline, chunks: NodeGroup) -> None:
    @step
    def breaks(found: Ranking) -> Ranking:
        if found.query.text.endswith("1805?"):
            raise DataError("the fifth is broken")
        return found

    verdict = gate(experiment_of(BM25(chunks) >> breaks, items(chunks)), recorded_baseline, tolerance=0.2)
    assert verdict.passed  # one of forty
    assert [(question.item, question.cause) for question in verdict.worse] == [("q5", "failed")]
    (evidence,) = verdict.worse[0].evidence
    assert evidence.startswith("then no failure; now DataError: the fifth is broken")
    assert "1 of 40 questions failed" in verdict.report.warnings[0]


def test_what_is_not_deterministic_is_said_to_be(chunks: NodeGroup) -> None:
    experiment = experiment_of(BM25(chunks) >> backwards, items(chunks))
    previous_baseline = record_baseline(experiment)[1]
    luckier = previous_baseline.but(
        questions=tuple(question.but(seen={"R@5": (1.0,), "MRR": (1.0,)}) for question in previous_baseline.questions)
    )
    verdict = gate(experiment, luckier)
    assert len(verdict.worse) == 40
    assert "nothing that is recorded has changed" in verdict.why
    assert set(verdict.causes) == {"score"}


def test_few_questions_decide_nothing_and_say_how_many_would(chunks: NodeGroup) -> None:
    @step
    def turns_one(found: Ranking) -> Ranking:
        return found.but(hits=found.hits[1:2] + found.hits[:1]) if found.query.text.endswith("1807?") else found

    questions = items(chunks)[5:15]
    previous_baseline = record_baseline(experiment_of(BM25(chunks), questions, "R@1"))[1]
    gate_report = gate(experiment_of(BM25(chunks) >> turns_one, questions, "R@1"), previous_baseline, tolerance=0.2)
    (verdict,) = gate_report.verdicts
    assert verdict.outcome == "undecided"
    assert "questions like these 10 would decide" in verdict.sentence
    assert not gate_report.passed
    assert gate(
        experiment_of(BM25(chunks) >> turns_one, questions, "R@1"), previous_baseline, tolerance=0.2, rule="worse"
    ).passed
    wide = gate(experiment_of(BM25(chunks) >> turns_one, questions, "R@1"), previous_baseline, tolerances={"R@1": 0.5})
    assert wide.verdicts[0].outcome == "not worse"


def test_what_is_undecided_says_how_many_questions_would_decide() -> None:
    def undecided(low: float, mean: float, high: float, p: float = 1.0, tolerance: float = 0.05) -> str:
        interval, change = Interval(0.5, 0.4, 0.6, 40), Interval(mean, low, high, 40)
        verdict = GateVerdict("MRR", interval, interval, change, p, tolerance, 5, 0, True)
        assert verdict.outcome == "undecided"
        return verdict.sentence.partition("; ")[2]

    # by hand: 40 · ((0.03 + 0.11) / (0.05 - 0.03))² = 40 · 49; worse: 40 · (0.18 / 0.08)² = 202.5
    assert undecided(-0.17, -0.03, 0.11) == "about 1,960 questions like these 40 would decide"
    assert undecided(-0.26, -0.08, 0.10) == "about 203 questions like these 40 would show that it is worse"
    # the interval is below zero, and the test is not: 40 · (1.95996 / 1.64485)² = 56.8
    assert undecided(-0.15, -0.08, -0.01, p=0.1) == "about 57 questions like these 40 would show that it is worse"
    assert undecided(-0.1, 0.0, 0.1, tolerance=0.0).startswith("no number of questions decides")
    assert undecided(-inf, -0.08, inf).startswith("too few questions for an interval")


@pytest.mark.parametrize("left", [1, 39])
def test_questions_that_are_determined_no_more_decide_nothing(chunks: NodeGroup, left: int) -> None:
    """A judge that has become silent passes nothing, however well the rest is."""
    says = BM25(chunks) >> Reader(ScriptedModel(("ice",), name="reader"))
    replies = [(f"winter {1800 + n}\\b", "yes") for n in range(left)] + [("", "I cannot say.")]
    judge = ScriptedModel(tuple(replies), name="judge")
    now = Experiment({"flow": says}, items(chunks), [Correctness(judge)])
    silent = record_baseline(now)[1]
    questions = [question.but(seen=dict.fromkeys(question.seen, (1.0,))) for question in silent.questions]
    gate_report = gate(now, silent.but(questions=tuple(questions)))
    (verdict,) = gate_report.verdicts
    assert (gate_report.passed, verdict.outcome, verdict.lost) == (False, "undecided", 40 - left)
    assert f"of {left} question" in verdict.sentence
    assert f"{40 - left} scores of the baseline cannot be determined now" in verdict.sentence


def test_less_is_better_of_what_costs_and_a_share_is_tolerated(chunks: NodeGroup) -> None:
    @step
    def twice(query: Query) -> Ranking:
        BM25(chunks)(query)
        return BM25(chunks)(query)

    questions = items(chunks)
    previous_baseline = record_baseline(experiment_of(BM25(chunks), questions, "R@5,Calls"))[1]
    verdict = gate(experiment_of(twice, questions, "R@5,Calls"), previous_baseline)
    calls = verdict.verdicts[1]
    assert (calls.outcome, calls.tolerance) == ("worse", 0.05)
    assert calls.change is not None
    assert calls.change.mean == -1
    assert gate(experiment_of(twice, questions, "R@5,Calls"), previous_baseline, tolerances={"Calls": 1.2}).passed
    assert verdict.changed_questions == ()  # the questions that differ are those that score otherwise


def refusal_of(experiment: Any, previous_baseline: Any, **options: Any) -> str:
    with pytest.raises(DataError) as error:
        gate(experiment, previous_baseline, **options)
    return str(error.value)


def test_what_cannot_be_compared_is_refused_and_all_reasons_told(
    recorded_baseline: Baseline, chunks: NodeGroup
) -> None:
    questions = items(chunks)
    flow = BM25(chunks)
    assert "1 question of the baseline not asked now, the first 'q39'" in refusal_of(
        experiment_of(flow, questions[:-1]), recorded_baseline
    )
    new = Item("q40", "What?", gold=questions[0].gold)
    assert "1 question not in the baseline, the first 'q40'" in refusal_of(
        experiment_of(flow, [*questions, new]), recorded_baseline
    )
    turned = [questions[0].but(gold=questions[1].gold), *questions[1:]]
    message = refusal_of(experiment_of(flow, turned, "R@5,nDCG@5"), recorded_baseline)
    assert "1 question with another gold than then, the first 'q0'" in message
    assert "MRR is not measured now" in message
    assert "nDCG@5 was not measured then" in message
    assert experiment_of(flow, recorded_baseline.select_items([*questions, new])) == experiment_of(flow, questions)


def test_measures_that_are_computed_otherwise_are_refused(recorded_baseline: Baseline, chunks: NodeGroup) -> None:
    older = recorded_baseline.but(
        measures={**recorded_baseline.measures, "MRR": "0123456789abcdef"},
        signature={**recorded_baseline.signature, "Spolia": {"version": "0.0.1"}},
    )
    assert "MRR is computed otherwise than by Spolia 0.0.1" in refusal_of(
        experiment_of(BM25(chunks), items(chunks)), older
    )


def test_a_baseline_of_another_corpus_is_refused(recorded_baseline: Baseline, tmp_path: Path) -> None:
    other_group = store_texts(tmp_path / "b.spolia", {"x": "Salt is dug in mines.", "y": "Owls hunt by night."})
    message = refusal_of(experiment_of(BM25(other_group), items(store_texts(tmp_path / "c.spolia"))), recorded_baseline)
    assert "The baseline is of another corpus: none of its 40 documents, 'text:" in message


def items_by_name() -> list[Item]:
    """The questions, with the texts that are gold by their names: no edit changes these."""
    asks = "What broke the lantern in winter {}?"
    return [Item(f"q{n}", asks.format(1800 + n), answers=("ice",), gold=((f"text:{n}",),)) for n in range(40)]


def test_gold_that_is_gone_is_named(chunks: NodeGroup, tmp_path: Path) -> None:
    previous_baseline = record_baseline(experiment_of(BM25(chunks), items_by_name()))[1]
    fewer = store_texts(tmp_path / "b.spolia", {name: text for name, text in TEXTS.items() if name != "7"})
    message = refusal_of(experiment_of(BM25(fewer), items_by_name()), previous_baseline)
    assert "Gold 'text:7' of question 'q7' (“What broke the lantern in winter 1807?”) names no document of" in message


def test_gold_by_name_is_the_same_after_an_edit(chunks: NodeGroup, tmp_path: Path) -> None:
    previous_baseline = record_baseline(experiment_of(BM25(chunks), items_by_name()))[1]
    without = TEXTS["5"].replace("In winter 1805 ice broke its lantern.", "Nobody asks of it.")
    edited = store_texts(tmp_path / "b.spolia", TEXTS | {"5": without})
    verdict = gate(experiment_of(BM25(edited), items_by_name()), previous_baseline, tolerance=0.2)
    assert verdict.passed
    assert dict(verdict.changes)["documents"] == "text:5 has another text"
    assert [(changed_question.item, changed_question.cause) for changed_question in verdict.changed_questions] == [
        ("q5", "documents")
    ]
    assert verdict.changed_questions[0].evidence[0] == "text:5 has another text"
    assert verdict.changed_questions[0].evidence[1] == "gold text:5: rank 1 then, not found now"


def test_a_quote_that_is_found_in_parts_says_where(chunks: NodeGroup, tmp_path: Path) -> None:
    words = "The keeper of it had {0} goats and {0} hens. He wrote a diary every night by the lamp."
    questions = [
        Item(f"q{n}", f"Who had {n} goats and {n} hens?", gold=((Quote(f"text:{n}", text=words.format(n)),),))
        for n in range(10, 20)
    ]
    previous_baseline = record_baseline(experiment_of(BM25(chunks), questions))[1]
    narrow = store_texts(tmp_path / "b.spolia", size=9)
    verdict = gate(experiment_of(BM25(narrow), questions), previous_baseline)
    assert set(verdict.causes) == {"chunks"}
    evidence = [entry.evidence[1] for entry in verdict.worse]
    says = r"gold text:\d+ “The keeper .*”: rank 1 then, \d\d % of it at rank 1(, \d\d % by rank \d+)? now"
    assert [entry for entry in evidence if not re.fullmatch(says, entry)] == []  # seen first where it was then


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (None, "There is no baseline"),
        ("no JSON", "not a baseline"),
        ("[]", "no baseline"),
        (
            '{"spolia_baseline": 99}',
            "is a baseline of form 99; this version knows 3. Upgrade: pip install -U spolia, or write",
        ),
        ('{"spolia_baseline": 3, "data": "x"}', "is a damaged baseline: it lacks 'flow'"),
    ],
)
def test_a_file_that_is_no_baseline_is_refused(chunks: NodeGroup, tmp_path: Path, text: str | None, says: str) -> None:
    path = tmp_path / "baseline.json"
    if text is not None:
        path.write_text(text)
    assert says in refusal_of(experiment_of(BM25(chunks), items(chunks)), path)


def test_rules_and_tolerances_that_make_no_sense_are_refused(recorded_baseline: Baseline, chunks: NodeGroup) -> None:
    experiment = experiment_of(BM25(chunks), items(chunks))
    assert "no rule 'strict'" in refusal_of(experiment, recorded_baseline, rule="strict")
    assert "got -0.1" in refusal_of(experiment, recorded_baseline, tolerance=-0.1)
    assert "got nan" in refusal_of(experiment, recorded_baseline, tolerance=float("nan"))
    assert "a tolerance of 5 tolerates everything" in refusal_of(experiment, recorded_baseline, tolerance=5)
    assert "given for F1, which is not measured" in refusal_of(experiment, recorded_baseline, tolerances={"F1": 0.1})


def test_who_asks_is_part_of_what_the_numbers_depend_on(recorded_baseline: Baseline, chunks: NodeGroup) -> None:
    verdict = gate(experiment_of(BM25(chunks), items(chunks)), recorded_baseline, run=Run(principal="ann"))
    assert verdict.changes == (("asked for", "principals was none, is ['ann']"),)


def test_a_flow_without_a_store_has_a_baseline_too() -> None:
    _, previous_baseline = record_baseline(experiment())
    assert previous_baseline.documents == {}
    assert gate(experiment(), previous_baseline).passed


def test_the_page_says_it_all(recorded_baseline: Baseline, chunks: NodeGroup) -> None:
    verdict = gate(experiment_of(BM25(chunks) >> backwards, items(chunks)), recorded_baseline)
    page = markdown(verdict)
    assert page.startswith("## Does not pass: flow\n")
    assert "| MRR | " in page
    assert "- Of 40 questions " in page
    assert "- MRR is worse: -" in page
    assert "worse (ranking): q" in page
    assert "... and 20 more questions that score otherwise" in page
    assert "Rule: no measure may drop beyond its tolerance." in page
    plain = verdict.json()
    assert json.loads(json.dumps(plain)) == plain
    assert plain["passed"] is False
    assert len(plain["questions"]) == 40


@pytest.mark.parametrize("by", [BM25, partial(Dense, embedder=HashingEmbedder(8))])
def test_a_file_that_is_edited_and_put_back_changes_nothing(tmp_path: Path, by: Callable[..., Any]) -> None:
    """All documents say the same in one paragraph, so that all score the same."""
    folder = tmp_path / "notes"
    folder.mkdir()
    for name, text in TEXTS.items():
        (folder / f"{name}.txt").write_text(f"{text}\n\nVisitors are let in from nine to five, with a guide.")
    corpus = Corpus(str(tmp_path / "a.spolia"))
    keep = partial(sync, folder, corpus, splitter=SlidingWindow(size=16, overlap=0), embedder=HashingEmbedder(8))
    keep()
    ask = "Are visitors let in from nine to five, with a guide?"
    questions = [Item(f"q{n}", ask, gold=((f"{n}.txt",),)) for n in range(40)]
    previous_baseline = record_baseline(experiment_of(by(corpus.group(), top_k=30), questions))[1]
    assert (
        len({question.seen["MRR"] for question in previous_baseline.questions}) > 10
    )  # who comes first is decided by nothing else
    original_text = (folder / "7.txt").read_text()
    for text in ("Nothing at all.", original_text):
        (folder / "7.txt").write_text(text)
        keep()
    verdict = gate(experiment_of(by(corpus.group(), top_k=30), questions), previous_baseline, tolerance=0)
    assert (verdict.passed, verdict.changes, verdict.changed_questions) == (True, (), ())
