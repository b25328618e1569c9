"""`spolia eval` on a small data set, over real parts."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import pytest

from spolia.cli.commands.eval import WHAT
from spolia.evaluation.data.dataset import part_of
from spolia.evaluation.measures.registry import CLASSES
from spolia.testing import OpenAIServer, ServedReply

from .conftest import Spolia

PASSAGES = {
    "p1": "The moon pulls the sea, and so the tide rises.",
    "p2": "Salt is dug in mines near the border.",
    "p3": "Owls hunt by night and sleep by day.",
    "p4": "The railway reached the town in 1887.",
}
QUESTIONS = {
    "What makes the tide rise?": ["p1"],
    "Where is salt dug?": ["p2"],
    "What do owls do by night?": ["p3", "p4"],
}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "small"
    folder.mkdir()
    passages = [{"id": id, "title": "", "text": text} for id, text in PASSAGES.items()]
    questions = [{"id": f"q{i}", "question": q, "gold_ids": gold} for i, (q, gold) in enumerate(QUESTIONS.items())]
    (folder / "corpus.jsonl").write_text("\n".join(map(json.dumps, passages)))
    (folder / "questions.jsonl").write_text("\n".join(map(json.dumps, questions)))
    return folder


@pytest.mark.slow
def test_the_report_has_the_agreed_form(spolia: Spolia, data: Path) -> None:
    ran = spolia("eval", "bm25", "--data", data, "--json")
    assert ran.code == 0
    report = ran.json
    assert list(report)[:6] == ["flow", "data", "n", "measures", "usage", "seconds"]
    assert (report["flow"], report["data"], report["n"]) == ("bm25", "small", 3)
    assert list(report["measures"]) == ["R@1", "R@5", "R@10", "full@5", "full@10", "MRR", "nDCG@10"]
    assert report["measures"]["R@1"]["mean"] == pytest.approx((1 + 1 + 0.5) / 3)
    for interval in report["measures"].values():
        assert 0 <= interval["low"] <= interval["mean"] <= interval["high"] <= 1


@pytest.mark.slow
def test_what_each_step_took_and_gave_is_kept_on_demand(spolia: Spolia, data: Path) -> None:
    def printed_store(*options: str) -> str:
        ran = spolia("eval", "bm25", "--data", data, "--measures", "R@1", *options)
        assert ran.code == 0, ran.err
        store = re.search(r"--store (\S+)", ran.err)
        return store[1] if store else ""

    assert printed_store() == ""
    assert printed_store("--keep-values") == ""  # all answers are from before
    store = printed_store("--keep-values", "--again")
    trace = spolia("trace", "last", "--store", store)
    assert (trace.code, "kept no values" in trace.err) == (0, False)
    second_output = spolia("trace", "last", "--replay", 1, "--set", "top_k=1", "--store", store, "--json").json
    assert len(second_output["output"]["Ranking"]["hits"]) == 1


def test_for_people_it_is_a_table(spolia: Spolia, data: Path) -> None:
    ran = spolia("eval", "bm25", "--data", data, "--measures", "R@1,MRR")
    assert ran.code == 0
    assert "bm25 on small, 3 questions" in ran.out
    assert "R@1" in ran.out
    assert "nDCG" not in ran.out


def test_slices_and_how_verdicts_are_come_by_stand_in_the_terminal(spolia: Spolia, data: Path, tmp_path: Path) -> None:
    rows = [json.loads(line) for line in (data / "questions.jsonl").read_text().splitlines()]
    kinds = [row | {"meta": {"kind": ["sea", "land"][n % 2]}} for n, row in enumerate(rows)]
    (data / "questions.jsonl").write_text("\n".join(map(json.dumps, kinds)))
    (tmp_path / "one.yaml").write_text("BM25: {group: {use: chunks}, top_k: 1}")
    ran = spolia("eval", "bm25", tmp_path / "one.yaml", "--data", data, "--measures", "R@5", "--by", "kind")
    assert ran.code == 0, ran.err
    assert "with Holm's correction for 1 comparison. A difference that is not shown may still exist." in ran.out
    assert re.search(r"kind land +1 +R@5 +100\.0 \[", ran.out)
    assert "Within slices 0 of 2 comparisons show a difference, with Holm's correction" in ran.out
    assert "Slice by one of: kind." in spolia("eval", "bm25", "--data", data, "--by", "kinds").err


def test_a_limit_draws_by_the_seed(spolia: Spolia, data: Path) -> None:
    assert spolia("eval", "bm25", "--data", data, "--limit", 2, "--json").json["n"] == 2


def test_a_flow_file_is_measured(spolia: Spolia, data: Path, tmp_path: Path) -> None:
    (tmp_path / "one.yaml").write_text("BM25: {group: {use: chunks}, top_k: 1}")
    report = spolia("eval", tmp_path / "one.yaml", "--data", data, "--measures", "R@1,R@5", "--json").json
    assert report["measures"]["R@1"] == report["measures"]["R@5"]


def test_the_default_says_what_it_is(spolia: Spolia, data: Path) -> None:
    ran = spolia("eval", "default", "--data", data, "--weights", data, "--json")
    assert ran.code == 0
    assert ran.json["chosen"].startswith("bm25: all-MiniLM-L6-v2")
    assert ran.json["chosen"] in ran.err.replace("\n", " ")


def test_failed_questions_count_and_are_told(spolia: Spolia, data: Path) -> None:
    with (data / "questions.jsonl").open("a") as file:
        file.write('\n{"id": "q9", "question": "   ", "gold_ids": ["p1"]}')
    ran = spolia("eval", "bm25", "--data", data, "--json")
    assert ran.code == 5
    assert (ran.json["failures"], ran.json["n"]) == (1, 4)
    assert "1 of 4 questions failed and score 0; the first, q9: QueryError" in ran.err


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda data: (data / "questions.jsonl").unlink(), "No questions.jsonl"),
        (lambda data: (data / "questions.jsonl").write_text("{"), "line 1 is not JSON"),
        (
            lambda data: (
                (data / "corpus.jsonl.gz").write_bytes(gzip.compress((data / "corpus.jsonl").read_bytes())[:-9]),
                (data / "corpus.jsonl").unlink(),
            ),
            "cut short",
        ),
        (
            lambda data: (data / "questions.jsonl").write_text('{"id": "q", "question": "?", "gold_ids": ["p77"]}'),
            "'p77' of question 'q' is not in the corpus",
        ),
    ],
)
def test_bad_data_is_one_line_and_code_2(spolia: Spolia, data: Path, change: object, says: str) -> None:
    assert callable(change)
    change(data)
    ran = spolia("eval", "bm25", "--data", data, "--json")
    assert ran.code == 2
    assert ran.json["error"]["kind"] == "DataError"
    assert says in ran.err


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("bm25", "--measures", "F7"), "F7"),
        (("bm52",), "no flow 'bm52'"),
        (("naive", "--llm", "http://127.0.0.1:1/v1"), "--model"),
    ],
)
def test_wrong_arguments_are_one_line_and_code_2(spolia: Spolia, data: Path, args: tuple[str, ...], says: str) -> None:
    ran = spolia("eval", *args, "--data", data)
    assert (ran.code, ran.out) == (2, "")
    assert says in ran.err
    assert ran.err.count("\n") == 1


def test_several_flows_are_compared_and_reported_as_files(spolia: Spolia, data: Path, tmp_path: Path) -> None:
    (tmp_path / "one.yaml").write_text("BM25: {group: {use: chunks}, top_k: 1}")
    reports = [tmp_path / f"report.{kind}" for kind in ("html", "md", "json")]
    args = [arg for path in reports for arg in ("--report", path)]
    ran = spolia("eval", "bm25", tmp_path / "one.yaml", "--data", data, "--measures", "R@5", *args)
    assert ran.code == 0
    assert "bm25 and " in ran.out or "bm25 beats" in ran.out
    assert "<svg" in reports[0].read_text()
    assert "What makes the tide rise?" in reports[0].read_text()
    assert "step, run " in reports[0].read_text()
    assert "## Verdicts" in reports[1].read_text()
    written = json.loads(reports[2].read_text())
    assert [flow["flow"] for flow in written["flows"]] == ["bm25", str(tmp_path / "one.yaml")]
    assert len(written["comparisons"]) == 1


def test_one_measure_and_one_baseline_give_one_table_of_verdicts(spolia: Spolia, data: Path, tmp_path: Path) -> None:
    files = [tmp_path / "one.yaml", tmp_path / "two.yaml"]
    for k, file in enumerate(files, start=1):
        file.write_text(f"BM25: {{group: {{use: chunks}}, top_k: {k}}}")
    args = ("--data", data, "--measures", "R@1,MRR,R@5", "--report", tmp_path / "report.md")
    decided = spolia("eval", "bm25", *files, *args, "--primary", "MRR", "--against", "bm25")
    assert decided.code == 0, decided.err
    report = (tmp_path / "report.md").read_text()
    for text in (decided.out, report):
        assert (
            "for 2 comparisons. A difference that is not shown may still exist. Other numbers were not tested." in text
        )
        assert "against bm25" in text
        assert "no difference shown between" not in text
    assert report.count("| MRR |") == 2 + 1  # two verdicts, and a row of the scores
    assert "Unknown primary measure: 'MAP'" in spolia("eval", "bm25", *files, *args, "--primary", "MAP").err
    assert "Unknown flow to compare against: 'dense'" in spolia("eval", "bm25", *files, *args, "--against", "dense").err
    assert "bm25 is the only flow" in spolia("eval", "bm25", *args, "--against", "bm25").err


@pytest.mark.slow
def test_a_step_that_never_worked_stops_with_code_5(spolia: Spolia, data: Path, tmp_path: Path) -> None:
    questions = [
        {"id": f"d{n}", "question": "What makes the owls sleep by the sea?", "gold_ids": ["p3"]} for n in range(6)
    ]
    (data / "questions.jsonl").write_text("\n".join(map(json.dumps, questions)))
    flow = tmp_path / "reranked.yaml"
    flow.write_text("- BM25: {group: {use: chunks}}\n- RankGPT: {llm: {use: llm}}\n")
    with OpenAIServer(ServedReply(status=400)) as server:
        options = ("bm25", flow, "--data", data, "--llm", server.url, "--model", "m", "--measures", "R@1")
        ran = spolia("eval", *options, "--json")
        assert (ran.code, ran.json["never_worked"], ran.json["error"]["kind"]) == (5, ["RankGPT"], "NeverWorked")
        assert list(ran.json["degraded"]["RankGPT"].values()) == [5]
        assert "RankGPT (5 of 5 calls)" in spolia("eval", *options).err
        as_it_is = spolia("eval", *options, "--degraded", "ok", "--json")
        assert (as_it_is.code, as_it_is.json["flows"][1]["never_worked"]) == (0, ["RankGPT"])
        assert "RankGPT of" in as_it_is.json["comparisons"][0]["verdict"]
        page = spolia("eval", *options, "--degraded", "ok").out
        assert "RankGPT, which never worked" in page
        gate = ("--data", data, "--llm", server.url, "--model", "m", "--baseline", tmp_path / "b.json")
        assert spolia("gate", flow, *gate, "--write", "--measures", "R@1").code == 5
        assert spolia("gate", flow, *gate, "--write", "--measures", "R@1", "--degraded", "ok").code == 0
        assert spolia("gate", *gate).code == 5
        passed = spolia("gate", *gate, "--degraded", "ok", "--json")
        assert (passed.code, passed.json["never_worked"]) == (0, ["RankGPT"])


@pytest.mark.slow
def test_gate_and_eval_agree_where_a_step_failed_on_the_few_calls_there_were(
    spolia: Spolia, data: Path, tmp_path: Path
) -> None:
    asked_3_times = "What makes the owls sleep by the sea?"
    questions = [{"id": f"d{n}", "question": asked_3_times, "gold_ids": ["p3"]} for n in range(3)]
    questions.append({"id": "d3", "question": "Zzyzx?", "gold_ids": ["p3"]})  # finds nothing, so nothing is reranked
    (data / "questions.jsonl").write_text("\n".join(map(json.dumps, questions)))
    flow = tmp_path / "reranked.yaml"
    flow.write_text("- BM25: {group: {use: chunks}}\n- RankGPT: {llm: {use: llm}}\n")
    baseline = tmp_path / "b.json"
    with OpenAIServer(ServedReply(status=400)) as server:
        options = ("--data", data, "--llm", server.url, "--model", "m")
        evaluated = spolia("eval", flow, *options, "--measures", "R@1", "--json")
        assert (evaluated.code, evaluated.json["never_worked"]) == (5, ["RankGPT"])
        gate = ("gate", flow, *options, "--baseline", baseline)
        refused = spolia(*gate, "--write", "--measures", "R@1", "--json")
        assert (refused.code, refused.json["never_worked"], baseline.exists()) == (5, ["RankGPT"], False)
        assert spolia(*gate, "--write", "--measures", "R@1", "--degraded", "ok").code == 0
        ran = spolia(*gate)
        assert ran.code == 5
        assert "does not pass on questions, 4 questions: RankGPT never worked" in ran.out.replace(
            data.name, "questions"
        )
        verdict = spolia(*gate, "--json").json
        assert (verdict["passed"], verdict["never_worked"]) == (False, ["RankGPT"])
        assert spolia(*gate, "--degraded", "ok").code == 0


def test_json_of_several_flows_has_an_entry_for_each(spolia: Spolia, data: Path, tmp_path: Path) -> None:
    (tmp_path / "one.yaml").write_text("[BM25: {group: {use: chunks}, top_k: 1}, Extract]")
    (tmp_path / "ten.yaml").write_text("BM25: {group: {use: chunks}, top_k: 10}")
    questions = (data / "questions.jsonl").read_text()
    (data / "questions.jsonl").write_text(questions.replace("{", '{"answers": ["the moon"], ', 1))
    file, ten = tmp_path / "one.yaml", tmp_path / "ten.yaml"
    report = spolia("eval", "bm25", file, ten, "--data", data, "--json").json
    assert [flow["flow"] for flow in report["flows"]] == [f"bm25 = {ten}", str(file)]
    assert report["comparisons"][0]["verdict"].startswith("no difference shown")
    assert [flow["measures"]["F1"]["mean"] is None for flow in report["flows"]] == [True, False]


@pytest.mark.slow
def test_what_was_asked_is_not_asked_again(spolia: Spolia, data: Path) -> None:
    first = spolia("eval", "bm25", "--data", data, "--json").json
    assert spolia("eval", "bm25", "--data", data, "--json").json == first
    second_output = spolia("eval", "bm25", "--data", data, "--again", "--json").json
    assert second_output["measures"] == first["measures"]
    assert second_output["latency"] != first["latency"]


@pytest.mark.slow
def test_it_is_said_what_was_kept(spolia: Spolia, data: Path) -> None:
    command = ("eval", "bm25", "--data", data, "--save", data / "kept")
    assert "kept from before" not in spolia(*command).err
    assert "3 answers kept from before, nothing was asked; --again asks all again." in spolia(*command).err
    assert "kept from before" not in spolia(*command, "--again").err
    with (data / "questions.jsonl").open("a") as questions:
        questions.write('\n{"id": "new", "question": "Where is salt dug?", "gold_ids": ["p2"]}')
    assert "3 answers kept from before, 1 asked now; --again asks all again." in spolia(*command).err


def test_an_empty_set_and_an_empty_part_are_said_to_be_empty(spolia: Spolia, data: Path) -> None:
    rows = [{"id": "t3", "question": "Where is salt dug?", "gold_ids": ["p2"]}]
    part = part_of("t3")
    (data / "questions.jsonl").write_text("\n".join(map(json.dumps, rows)))
    other_part = next(name for name in ("tune", "select", "report") if name != part)
    ran = spolia("eval", "bm25", "--data", data, "--split", other_part)
    assert (ran.code, f"has no questions of the part {other_part}, and 1 of others. Name another one." in ran.err) == (
        2,
        True,
    )
    (data / "questions.jsonl").write_text("")
    ran = spolia("eval", "bm25", "--data", data)
    assert (ran.code, "has no questions. Write at least one." in ran.err) == (2, True)


def test_in_a_narrow_terminal_no_heading_of_the_times_is_cut(
    spolia: Spolia, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ("eval", "bm25", "--data", data, "--measures", "R@1")
    assert re.search(r"p50 +p95 +set-up", spolia(*command).out)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "60")
    lines = [line.split("  ")[0] for line in spolia(*command).out.splitlines()]
    for heading in ("p50", "p95", "set-up", "at once", "calls", "tokens", "embedded", "USD", "judges' USD", "failed"):
        assert heading in lines


@pytest.mark.slow
def test_again_takes_nothing_from_the_cache_so_that_it_is_timed(spolia: Spolia, data: Path, tmp_path: Path) -> None:
    flow = tmp_path / "answering.yaml"
    flow.write_text("- BM25: {group: {use: chunks}, top_k: 3}\n- Extract: {words: 20, embedder: MiniLM}\n")
    rows = [
        json.loads(line) | {"answers": ["the moon"]} for line in (data / "questions.jsonl").read_text().splitlines()
    ]
    (data / "questions.jsonl").write_text("\n".join(map(json.dumps, rows)))
    command = ("eval", flow, "--data", data, "--json", "--measures")
    assert spolia(*command, "F1").json["latency"]["cached"] == 0
    cached = spolia(*command, "F1,EM", "--save", tmp_path / "other").json["latency"]["cached"]
    assert cached == 2  # of three, the first is told apart as set-up
    second_latency = spolia(*command, "F1,EM", "--again").json["latency"]
    assert (second_latency["cached"], second_latency["n"]) == (0, 2)


@pytest.mark.slow
def test_where_answers_go_to_be_judged_is_said(
    spolia: Spolia, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    flow = tmp_path / "answering.yaml"
    flow.write_text("- BM25: {group: {use: chunks}, top_k: 3}\n- Extract: {words: 20, embedder: MiniLM}\n")
    rows = [
        json.loads(line) | {"answers": ["the moon"]} for line in (data / "questions.jsonl").read_text().splitlines()
    ]
    (data / "questions.jsonl").write_text("\n".join(map(json.dumps, rows)))
    with OpenAIServer(ServedReply("yes")) as server:
        command = ("eval", flow, "--data", data, "--llm", server.url, "--model", "judge", "--measures")
        ran = spolia(*command, "Correctness")
        assert server.requests
        goes = (
            f"To be judged, questions, answers and passages go to {server.url} (judge), with the key in OPENAI_API_KEY."
        )
        assert (ran.code, goes in ran.err, "is not asked" in ran.err) == (0, True, False)
        assert "judge is not asked: no flow and no measure uses it." in spolia(*command, "F1").err


@pytest.mark.slow
def test_what_was_tuned_on_is_not_reported_on(spolia: Spolia, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPOLIA_CACHE", str(data / "cache"))
    rows = [{"id": f"t{i}", "question": "Where is salt dug?", "gold_ids": ["p2"]} for i in range(140)]
    (data / "questions.jsonl").write_text("\n".join(map(json.dumps, rows)))
    tuned = spolia("eval", "bm25", "--data", data, "--split", "tune", "--json").json
    assert 0 < tuned["n"] < 140
    assert tuned["parts"] == {"tune": tuned["n"]}
    refused = spolia("eval", "bm25", "--data", data)
    assert refused.code == 2
    assert f"{tuned['n']} of 140 questions were used to tune" in refused.err
    assert "--split report" in refused.err
    with (data / "corpus.jsonl").open(
        "a"
    ) as corpus:  # the questions are those that were tuned on, whatever is searched
        corpus.write('\n{"id": "more", "text": "Salt is also dug elsewhere."}')
    monkeypatch.setenv("SPOLIA_CACHE", str(data / "another machine"))
    assert spolia("eval", "bm25", "--data", data).code == 2
    result = spolia("eval", "bm25", "--data", data, "--overlap", "--json")
    assert result.json["tuned_on"] == tuned["n"]
    assert "were used to tune" in result.err
    report = spolia("eval", "bm25", "--data", data, "--split", "report", "--json").json
    assert (report["tuned_on"], report["looked_at_before"]) == (0, 0)
    assert (
        spolia("eval", "bm25", "--data", data, "--split", "report", "--measures", "MRR", "--json").json[
            "looked_at_before"
        ]
        == 1
    )


@pytest.mark.slow
def test_flows_compared_on_all_questions_are_not_reported_on_a_part_of_them(
    spolia: Spolia, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPOLIA_CACHE", str(data / "cache"))
    rows = [{"id": f"t{i}", "question": "Where is salt dug?", "gold_ids": ["p2"]} for i in range(400)]
    (data / "questions.jsonl").write_text("\n".join(map(json.dumps, rows)))
    for top_k in (5, 6, 7):
        (tmp_path / f"{top_k}.yaml").write_text(f"BM25: {{group: {{use: chunks}}, top_k: {top_k}}}")
    five, six, seven = (str(tmp_path / f"{top_k}.yaml") for top_k in (5, 6, 7))
    assert spolia("eval", five, six, "--data", data, "--save", tmp_path / "a.experiment").code == 0
    refused = spolia("eval", five, "--data", data, "--split", "report")
    assert (refused.code, "choose a flow" in refused.err) == (2, True)
    report = spolia("eval", five, "--data", data, "--split", "report", "--overlap", "--json").json
    assert (report["tuned_on"], report["looked_at_before"]) == (report["n"], 1)
    assert spolia("eval", five, "--data", data, "--split", "tune").code == 0
    assert f"were used to tune or choose a flow ({five}; the first: " in spolia("eval", five, seven, "--data", data).err
    assert "were used to tune" not in spolia("eval", seven, "--data", data).err


@pytest.mark.slow
def test_a_measure_is_added_to_a_kept_experiment(spolia: Spolia, data: Path, tmp_path: Path) -> None:
    file = tmp_path / "mine.experiment"
    assert spolia("eval", "bm25", "--data", data, "--save", file).code == 0
    assert spolia("eval", "bm25", "--data", data, "--save", file).code == 0
    ran = spolia("eval", "bm25", "--data", data, "--save", file, "--measures", "MRR")
    assert "3 answers kept from before, nothing was asked" in ran.err
    assert "MRR" in ran.out


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("bm25", "bm25"), "bm25 is named twice"),
        (("bm25", "--split", "test"), "no part 'test'"),
        (("bm25", "--report", "report.pdf"), "cannot be written as 'report.pdf'"),
        (("bm25", "--report", "nowhere/report.md"), "no folder nowhere"),
        (("bm25", "--correction", "bonferroni"), "no correction 'bonferroni'"),
        (("bm25", "--measures", "EM"), "None of 3 questions has gold for EM"),
    ],
)
def test_what_cannot_be_reported_is_said_before_anything_is_asked(
    spolia: Spolia, data: Path, args: tuple[str, ...], says: str
) -> None:
    ran = spolia("eval", *args, "--data", data)
    assert (ran.code, ran.out) == (2, "")
    assert says in ran.err


def test_help_names_all_measures_that_the_command_can_take() -> None:
    names = set(re.findall(r"[\w@-]+", WHAT.partition(". ")[2]))
    assert set(CLASSES) - {"BERTScore"} <= names  # which needs an embedder of tokens, and no name can give one


@pytest.mark.slow
def test_words_find_passages_in_chinese(spolia: Spolia, shared_datasets: Path) -> None:
    report = spolia("eval", "bm25", "--data", shared_datasets / "xquad_zh", "--limit", 200, "--json").json
    assert report["n"] == 200
    assert report["measures"]["R@5"]["mean"] > 0.95


@pytest.mark.parametrize(
    ("written", "says"),
    [
        ("nDGC@10", "Did you mean nDCG@10"),
        ("R10", "Did you mean R@10"),
        ("precision@3", "Did you mean P@3"),
        ("Faithfulness", "or --llm URL --model NAME on the command line"),
    ],
)
def test_a_measure_that_is_misspelt_or_lacks_a_model_says_what_to_write(
    spolia: Spolia, data: Path, written: str, says: str
) -> None:
    ran = spolia("eval", "bm25", "--data", data, "--measures", written)
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert says in ran.err


def test_quotes_that_a_shell_takes_away_are_not_missed_and_a_name_becomes_a_file(
    spolia: Spolia, data: Path, tmp_path: Path
) -> None:
    measures = "nDCG@5(rule=exponential),MRR"
    ran = spolia("eval", "bm25", "--data", data, "--measures", measures, "--save", tmp_path / "mine", "--json")
    assert list(ran.json["measures"]) == ['nDCG@5(rule="exponential")', "MRR"]
    assert (tmp_path / "mine.experiment").is_file()
    assert [flow["flow"] for flow in ran.json["flows"]] == ["bm25"]


def test_a_look_is_said_when_it_is_taken_and_takes_only_what_it_asked(spolia: Spolia, data: Path) -> None:
    rows = [{"id": f"t{n}", "question": "Where is salt dug?", "gold_ids": ["p2"]} for n in range(140)]
    (data / "questions.jsonl").write_text("\n".join(map(json.dumps, rows)))
    ran = spolia("eval", "bm25", "--data", data, "--split", "tune", "--limit", 3, "--measures", "R@1")
    assert (
        "3 questions of the part tune looked at; reporting on them is refused from now on: spolia data looks" in ran.err
    )
    noted = f"Spolia notes in {data / 'looks.jsonl'} which questions were used to select flows or train parts."
    assert noted in ran.err
    assert noted not in spolia("eval", "bm25", "--data", data, "--split", "tune", "--limit", 3, "--measures", "R@1").err
    refused = spolia("eval", "bm25", "--data", data, "--measures", "R@1")
    assert refused.code == 2
    assert "3 of 140 questions were used to tune" in refused.err
    assert "3 questions of the part tune: bm25. To go on, ask the part report" in refused.err
    assert "1 look in " in spolia("data", "looks", data).out
