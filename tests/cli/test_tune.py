"""`spolia tune` on a small data set, over real parts."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from spolia.cli.commands.tune import TuningOptions
from spolia.cli.finished_study import FinishedStudy
from spolia.core.combinators.space import places
from spolia.evaluation.experiment.score_store import ScoreStore
from spolia.flow_files.files import load
from spolia.stores.corpus import Corpus

from .conftest import Spolia

SPACE = """
- Branch:
  - Choice:
      options:
      - BM25: {group: {use: chunks}, source: words}
      - TFIDF: {group: {use: chunks}, source: words}
      name: words
  - BM25Variant: {group: {use: chunks}, variant: bm25l, delta: 0.5, source: others}
- Choice:
    options:
    - Vary:
        body: ReciprocalRankFusion
        ranges: {k: [4.0, 20.0, 60.0]}
    - ConvexCombination: {normalisation: min-max, weights: {words: 0.7, others: 0.3}}
    name: fusion
- Vary:
    body: Cut
    ranges: {top_k: [1, 5]}
"""


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "small"
    folder.mkdir()
    passages = [
        {"id": f"p{number}", "title": "", "text": f"Light {number} has {number % 5} lamps at sea."}
        for number in range(12)
    ]
    questions = [
        {"id": f"q{number}", "question": f"How many lamps has light {number}?", "gold_ids": [f"p{number}"]}
        for number in range(12)
    ]
    (folder / "corpus.jsonl").write_text("\n".join(map(json.dumps, passages)))
    (folder / "questions.jsonl").write_text("\n".join(map(json.dumps, questions)))
    (tmp_path / "space.yaml").write_text(SPACE)
    return folder


@pytest.mark.slow
def test_a_space_in_yaml_is_tuned_and_its_best_flow_is_an_ordinary_one(spolia: Spolia, data: Path) -> None:
    out = data.parent / "tuned"
    command = ("tune", data.parent / "space.yaml", "--data", data, "--objective", "nDCG@10", "--seed", 1, "-o", out)
    ran = spolia(*command, "--json")
    assert ran.code == 0, ran.err
    assert f"Spolia notes in {data / 'looks.jsonl'} which questions" in ran.err
    report = ran.json
    assert list(report)[:5] == ["best", "score", "method", "regret_bound", "spent"]
    assert list(report["score"])[:3] == ["mean", "low", "high"]
    assert 0 <= report["score"]["low"] <= report["score"]["mean"] <= report["score"]["high"] <= 1
    assert report["spent"] == {"rows": 16 * 12, "calls": 0, "usd": 0.0, "share": 1.0}
    assert set(report["best"]["choices"]) >= {"words", "fusion", "Cut.top_k"}
    best = load(out / "best.yaml", {"chunks": Corpus("unused.spolia").group()})
    assert not places(best)
    page = (out / "report.html").read_text("utf-8")
    assert "effects of fusion" in page
    assert "http://" not in page.replace("http://www.w3.org", "")
    measured = spolia("eval", out / "best.yaml", "bm25", "--data", data, "--measures", "nDCG@10", "--json")
    assert measured.code == 0, measured.err
    chosen = f"12 of 12 questions were used to tune or choose a flow ({out / 'best.yaml'}), so their scores are too"
    assert chosen in measured.err
    evaluated = spolia("eval", "bm25", "multi-hop", "--data", data, "--measures", "nDCG@10")
    assert (evaluated.code, "used to tune" in evaluated.err) == (0, False)
    second_report = spolia(*command, "--json").json
    assert second_report["spent"]["rows"] == 0
    assert (second_report["best"], second_report["score"]) == (report["best"], report["score"])
    warm = spolia(*command[:-1], data.parent / "other", "--budget", "60%", "--warm", out, "--json").json
    assert 0 < warm["spent"]["share"] <= 0.6
    assert "No finalist" not in spolia(*command).out


@pytest.mark.slow
def test_a_study_of_other_questions_begins_with_what_was_best_unless_it_is_cold(
    spolia: Spolia, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPOLIA_CACHE", str(data.parent / "cache"))
    command = ("tune", data.parent / "space.yaml", "--data", data, "--budget", "60%", "--json", "-o")
    first = spolia(*command, data.parent / "first")
    assert "The search began" not in first.err
    lines = (data / "questions.jsonl").read_text().replace("How many lamps", "What number of lamps")
    (data / "questions.jsonl").write_text(lines)
    cold = spolia(*command, data.parent / "cold", "--cold", "--workers", 3)
    assert cold.code == 0, cold.err
    assert "The search began" not in cold.err
    warm = spolia(*command, data.parent / "warm")
    assert "best in 1 study of other questions." in " ".join(warm.err.split())
    assert any("best in 1 study" in note for note in warm.json["notes"])
    records = [*(data.parent / "cache" / "studies").iterdir()]
    assert len(records) == 2
    assert not any("lamps" in record.read_text() for record in records)


@pytest.mark.slow
def test_limits_and_several_objectives_are_written_as_options(spolia: Spolia, data: Path) -> None:
    space = data.parent / "space.yaml"
    command = ("tune", space, "--data", data, "--objective", "nDCG@10", "--under", "DocsShown=1", "--json")
    limited = spolia(*command, "-o", data.parent / "limited")
    assert limited.code == 0, limited.err
    assert limited.json["best"]["choices"]["Cut.top_k"] == "1"
    several = spolia(*command[:5], "nDCG@10,DocsShown", "-o", data.parent / "several", "--json")
    assert several.code == 0, several.err
    assert set(several.json["finalists"][0]["means"]) == {"nDCG@10", "DocsShown"}
    assert any(finalist["on_front"] for finalist in several.json["finalists"])
    timed = spolia(*command[:6], "--under", "Seconds=100", "-o", data.parent / "timed", "--json")
    assert timed.code == 0, timed.err
    assert not any("No flow was found" in note for note in timed.json["notes"])
    wrong = spolia(*command[:7], "DocsShown", "-o", data.parent / "wrong")
    assert "is no limit. Write a measure and a number" in wrong.err


@pytest.mark.slow
def test_what_cannot_be_tuned_is_told_before_anything_is_asked(spolia: Spolia, data: Path) -> None:
    rest = ("--data", data, "-o", data.parent / "tuned")
    assert "The space has one flow: it is measured" in spolia("tune", "bm25", "--data", data, "-o", data / "one").err
    space = data.parent / "space.yaml"
    assert "too small" in spolia("tune", space, *rest, "--budget", "1%").err
    assert "no strategy 'best'" in spolia("tune", space, *rest, "--strategy", "best").err
    assert "must be a measure that is a mean" in spolia("tune", space, *rest, "--objective", "BLEU").err
    assert "holds no result of a study" in spolia("tune", space, *rest, "--warm", data).err
    questions = data / "questions.jsonl"
    golden = questions.read_text()
    questions.write_text(
        "\n".join(json.dumps({"id": f"q{number}", "question": "?", "answers": ["3"]}) for number in range(9))
    )
    without = spolia("tune", space, *rest)
    assert without.code == 2
    assert "None of 9 questions has gold for nDCG@10. They have answers." in " ".join(without.err.split())
    questions.write_text(golden)


@pytest.mark.slow
def test_a_study_that_another_process_is_at_is_not_touched(spolia: Spolia, data: Path) -> None:
    command = ("tune", data.parent / "space.yaml", "--data", data, "-o", data.parent / "tuned", "--json")
    (data.parent / "tuned").mkdir()
    with ScoreStore(data.parent / "tuned" / "scores.experiment"):
        second = spolia(*command)
        assert second.code == 3
        assert second.json["error"]["kind"] == "StoreBusy"
        assert "is in use: another process is at this" in second.err
        assert [path.name for path in (data.parent / "tuned").iterdir()] == ["scores.experiment"]
    assert spolia(*command).code == 0


@pytest.mark.slow
def test_a_budget_of_calls_that_ends_too_early_still_gives_what_was_found(spolia: Spolia, data: Path) -> None:
    questions = [json.loads(line) for line in (data / "questions.jsonl").read_text().splitlines()]
    (data / "questions.jsonl").write_text(
        "\n".join(json.dumps(question | {"answers": ["3"]}) for question in questions)
    )
    space = data.parent / "reading.yaml"
    space.write_text(
        "- Vary: {body: {BM25: {group: {use: chunks}}}, ranges: {top_k: [1, 2, 5]}, names: {top_k: depth}}\n"
        "- Reader: {llm: {use: llm}}\n"
    )
    command = ("tune", space, "--data", data, "--objective", "F1", "--llm", "simulated", "-o", data.parent / "read")
    assert spolia(*command, "--estimate", "--json").json["n"] == 36
    cut = spolia(*command, "--budget-calls", 20, "--json")
    assert cut.code == 5, cut.err
    assert cut.json["spent"]["calls"] <= 20
    assert any("ended early" in note for note in cut.json["notes"])
    whole = spolia(*command, "--json")
    assert whole.code == 0, whole.err
    assert whole.json["spent"]["calls"] + cut.json["spent"]["calls"] <= 36


@pytest.mark.slow
def test_a_study_of_which_nothing_changed_is_read_and_not_opened(spolia: Spolia, data: Path) -> None:
    out = data.parent / "tuned"
    command = ("tune", data.parent / "space.yaml", "--data", data, "--objective", "nDCG@10", "-o", out)
    first = spolia(*command, "--json")
    (out / "scores.experiment").rename(out / "away")  # what a study that is opened would miss
    second_result = spolia(*command, "--json")
    assert second_result.json["spent"] == dict.fromkeys(first.json["spent"], 0)
    assert {**second_result.json, "spent": 0} == {**first.json, "spent": 0}
    result = spolia(*command)
    assert "nothing was computed" in result.err
    assert f"{first.json['flows']} flows" in result.out
    (out / "away").rename(out / "scores.experiment")

    (out / "best.yaml").unlink()
    output = spolia(*command).out
    assert f"nDCG@10 on {first.json['questions']} questions, corrected for the choice;" in " ".join(output.split())
    assert ("computed now" in output, "ahead of the best" in output) == (True, False)
    assert (out / "best.yaml").is_file()
    assert "computed now" in spolia(*command, "--seed", 2).out
    with (data / "questions.jsonl").open("a") as file:
        file.write("\n" + json.dumps({"id": "new", "question": "Which light?", "gold_ids": ["p1"]}) + "\n")
    changed = spolia(*command)
    assert changed.code == 2
    assert "a study of something else" in changed.err


def finished_study(folder: Path, *files: Path, objective: str = "MRR", **settings: Any) -> FinishedStudy:
    options = TuningOptions(space="space.yaml", data=Path("data"), out=folder, objective=objective, **settings)
    return FinishedStudy(folder, options, files)


def test_a_result_is_known_only_while_options_and_files_are_the_same(tmp_path: Path) -> None:
    space, best = tmp_path / "space.yaml", tmp_path / "best.yaml"
    space.write_text("- BM25")
    best.write_text("- BM25")
    reads = [f"NodeGroup(corpus=Corpus(path='{tmp_path}/stores/some-1.spolia'), name='chunk')"]
    finished_study(tmp_path, space).write({"rows": 3}, reads, tmp_path / "stores", [best])
    assert finished_study(tmp_path, space).read() == {"rows": 3}
    assert finished_study(tmp_path, space, json=True, workers=2).read() == {"rows": 3}
    assert finished_study(tmp_path, space, objective="MAP").read() is None
    assert finished_study(tmp_path, space, seed=1).read() is None
    assert finished_study(tmp_path, space, known=["own.py"]).read() is None
    space.write_text("- TFIDF")
    assert finished_study(tmp_path, space).read() is None
    space.write_text("- BM25")
    best.write_text("- Changed")
    assert finished_study(tmp_path, space).read() is None
    best.unlink()
    assert finished_study(tmp_path, space).read() is None


@pytest.mark.parametrize(
    "reads", ["Corpus(path='/elsewhere.spolia')", "PromptFile(place='/my/prompt.txt', language='')"]
)
def test_a_result_of_what_may_change_unseen_is_not_kept(tmp_path: Path, reads: str) -> None:
    finished_study(tmp_path).write({"rows": 3}, ["MiniLM(weights='')", reads], tmp_path / "stores", [])
    assert finished_study(tmp_path).read() is None


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"key": 1'])
def test_a_damaged_record_is_no_record(tmp_path: Path, text: str) -> None:
    (tmp_path / "finished.json").write_text(text)
    assert finished_study(tmp_path).read() is None


AUTORAG = """
node_lines:
- node_line_name: search
  nodes:
    - node_type: lexical_retrieval
      strategy: {metrics: [retrieval_recall, retrieval_mrr], strategy: rank, speed_threshold: 5}
      top_k: 10
      modules:
        - module_type: bm25
          bm25_tokenizer: [porter_stemmer, space]
    - node_type: passage_filter
      strategy: {metrics: [retrieval_recall, retrieval_precision]}
      modules:
        - module_type: pass_passage_filter
        - module_type: percentile_cutoff
          percentile: [0.1, 0.5]
        - module_type: recency_filter
          threshold_datetime: 2015-01-01
"""
AUTORAG_CHOSEN = """node_line_name,node_type,best_module_name,best_module_params
search,lexical_retrieval,BM25,"{'top_k': 10, 'bm25_tokenizer': 'space'}"
search,passage_filter,PercentileCutoff,{'percentile': 0.5}
"""


@pytest.mark.slow
def test_a_configuration_of_autorag_is_tuned_as_it_is_and_its_trial_begins_the_search(
    spolia: Spolia, data: Path
) -> None:
    trial, out = data.parent / "0", data.parent / "tuned"
    (trial / "search" / "passage_filter").mkdir(parents=True)
    (trial / "config.yaml").write_text(AUTORAG)
    ran = spolia("tune", trial / "config.yaml", "--data", data, "-o", out, "--json")
    assert ran.code == 0, ran.err
    assert ran.json["objective"] == "SetR, SetP"
    assert ran.json["flows"] == 2 * 3
    assert "recency_filter is left out" in ran.err
    assert ran.json["autorag"]["space"] == str(out / "space.yaml")
    same = spolia("tune", out / "space.yaml", "--data", data, "--objective", "SetR,SetP", "-o", out, "--json")
    assert same.code == 0, same.err
    assert same.json["spent"]["rows"] == 0

    (trial / "summary.csv").write_text(AUTORAG_CHOSEN)
    (trial / "search" / "passage_filter" / "summary.csv").write_text(
        "filename,module_name,module_params,execution_time,retrieval_recall,is_best\n"
        "1.parquet,PercentileCutoff,{'percentile': 0.5},0.001,0.75,True\n"
    )
    second_result = spolia(
        "tune", trial, "--data", data, "-o", out, "--json", "--objective", "SetR", "--budget", "60 rows"
    )
    assert second_result.code == 2, second_result.err  # the folder holds a study of two measures
    assert not (out / "autorag_best.yaml").exists()
    edited = (out / "space.yaml").read_text() + "# mine\n"
    (out / "space.yaml").write_text(edited)
    more = ("tune", trial / "config.yaml", "--data", data, "-o")
    assert spolia(*more, out, "--estimate").code == 0
    refused = spolia(*more, out, "--seed", 5)
    assert refused.code == 2
    assert "is not overwritten" in refused.err
    assert (out / "space.yaml").read_text() == edited
    assert spolia(*more, data.parent / "estimated", "--estimate").code == 0
    assert not (data.parent / "estimated").exists()
    warm = spolia("tune", trial, "--data", data, "-o", data.parent / "warm")
    assert warm.code == 0, warm.err
    assert "0.75" in warm.out
    assert "the search begins with it" in warm.err
    assert re.search(r"^ +SetR +ahead of the best +means", warm.out, re.M)  # the score is of the first measure
    result = spolia("eval", data.parent / "warm" / "autorag_best.yaml", "--data", data, "--measures", "SetR", "--json")
    assert result.code == 0, result.err


@pytest.mark.slow
def test_questions_of_a_store_are_named_with_it_and_do_not_suit_the_simulated_reader(
    spolia: Spolia, tmp_path: Path
) -> None:
    folder, store, table = tmp_path / "texts", tmp_path / "texts.spolia", tmp_path / "asked.csv"
    folder.mkdir()
    for number in range(6):
        (folder / f"{number}.txt").write_text(f"Light {number} has {number} lamps at sea.")
    table.write_text(
        "question,file\n" + "".join(f"How many lamps has light {number}?,{number}.txt\n" for number in range(6))
    )
    assert spolia("index", folder, "--store", store, "--no-vectors").code == 0
    space = tmp_path / "space.yaml"
    space.write_text("- BM25: {group: {use: chunks}}\n- Vary: {body: Cut, ranges: {top_k: [1, 3]}}\n")
    options = ("--data", table, "--store", store)
    ran = spolia("tune", space, *options, "--objective", "MRR", "-o", tmp_path / "tuned")
    assert ran.code == 0, ran.err
    assert f"best.yaml --data DATA --store {store}" in " ".join(ran.err.split())
    refused = spolia("eval", "bm25", *options, "--llm", "simulated")
    assert refused.code == 2
    assert "Give a folder with corpus.jsonl" in " ".join(refused.err.split())
