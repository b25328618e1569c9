"""`spolia gate` on a small data set and on a store of the user's own, over real parts."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from spolia.indexing.splitters.sized_splitter import SlidingWindow
from spolia.indexing.sync.sync import sync
from spolia.stores.corpus import Corpus
from spolia.testing import OpenAIServer, ServedReply

from .conftest import Spolia

TOPICS = ("tide", "salt", "owl", "train", "lamp", "goat", "rope", "bell", "sail", "corn", "mill", "well")
TEXT = "{0} number {1} belongs to the museum.\n\nIt was bought in {2}. Visitors like the {0} best in spring.\n"


def text(n: int) -> str:
    return TEXT.format(TOPICS[n % 12], n, 1800 + n)


def question(n: int) -> str:
    return f"Which {TOPICS[n % 12]} bought in {1800 + n} do visitors like best in spring?"


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Thirty passages and a question about each; the working directory is where the folder is."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "questions"
    folder.mkdir()
    passages = [{"id": f"p{n}", "text": text(n)} for n in range(30)]
    questions = [{"id": f"q{n}", "question": question(n), "gold_ids": [f"p{n}"]} for n in range(30)]
    (folder / "corpus.jsonl").write_text("\n".join(map(json.dumps, passages)))
    (folder / "questions.jsonl").write_text("\n".join(map(json.dumps, questions)))
    (tmp_path / "flow.yaml").write_text("BM25: {group: {use: chunks}, top_k: 10}")
    return folder


WRITE = ("gate", "flow.yaml", "--data", "questions", "--baseline", "baseline.json", "--write")
CHECK = ("gate", "--baseline", "baseline.json")


@pytest.mark.slow
def test_what_was_written_passes_without_anything_said_again(spolia: Spolia, data: Path) -> None:
    result = spolia(*WRITE)
    assert (result.code, result.err) == (0, "")
    assert result.out == "baseline.json: flow.yaml on questions, 30 questions\n"
    ran = spolia(*CHECK)
    assert ran.code == 0
    assert ran.out.startswith("flow.yaml passes on questions, 30 questions: no measure may drop beyond its tolerance.")
    assert "nDCG@10" in ran.out


@pytest.mark.slow
def test_a_gate_keeps_what_each_step_took_and_gave_on_demand(spolia: Spolia, data: Path) -> None:
    spolia(*WRITE)
    (data.parent / "flow.yaml").write_text("BM25: {group: {use: chunks}, top_k: 3}")
    assert "--store" not in spolia(*CHECK).err
    (data.parent / "flow.yaml").write_text("BM25: {group: {use: chunks}, top_k: 4}")
    match = re.search(r"--store (\S+)", spolia(*CHECK, "--keep-values").err)
    assert match is not None
    trace = spolia("trace", "last", "--store", match[1], "--json").json
    assert trace["spans"][0]["input"]["Query"]["text"]


@pytest.mark.slow
def test_a_worse_flow_is_code_1_and_says_where_and_why(spolia: Spolia, data: Path, tmp_path: Path) -> None:
    spolia(*WRITE)
    bad = "Then: {steps: [{BM25: {group: {use: chunks}, top_k: 10}}, {KeywordFilter: {excluded: [museum]}}]}"
    (tmp_path / "flow.yaml").write_text(bad)
    ran = spolia(*CHECK, "--report", "gate.md", "--report", "gate.json")
    assert ran.code == 1, ran.err
    assert "flow.yaml does not pass" in ran.out
    assert "because the flow finds other passages, or the same in another order" in ran.out
    assert "gold p0: rank 1 then, not found now" in ran.out
    assert (tmp_path / "gate.md").read_text().startswith("## Does not pass: flow.yaml\n")
    verdict = json.loads((tmp_path / "gate.json").read_text())
    assert (verdict["passed"], verdict["causes"]) == (False, {"ranking": 30})
    assert spolia(*CHECK, "--json").json["passed"] is False


@pytest.mark.slow
def test_passages_that_changed_are_named(spolia: Spolia, data: Path) -> None:
    spolia(*WRITE)
    copies = [{"id": f"copy{n}", "text": question(n) * 2} for n in range(30)]
    with (data / "corpus.jsonl").open("a") as corpus:
        corpus.write("\n" + "\n".join(map(json.dumps, copies)))
    ran = spolia(*CHECK)
    assert ran.code == 1
    assert "30 because the documents changed" in ran.out
    assert "documents: 60 in place of 30; copy0 is new" in ran.out


@pytest.mark.slow
def test_a_store_that_is_cut_otherwise_is_told_apart(spolia: Spolia, data: Path, tmp_path: Path) -> None:
    files = tmp_path / "files"
    files.mkdir()
    for n in range(30):
        (files / f"{n}.txt").write_text(text(n))
    rows = [json.loads(line) for line in (data / "questions.jsonl").read_text().splitlines()]

    def store(name: str, size: int) -> str:
        corpus = Corpus(str(tmp_path / name))
        sync(files, corpus, splitter=SlidingWindow(size=size, overlap=0))
        return name

    for n, row in enumerate(rows):
        row["gold_ids"] = [f"{n}.txt"]
    (data / "questions.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (data / "corpus.jsonl").unlink()
    wide, narrow = store("wide.spolia", 200), store("narrow.spolia", 12)
    assert spolia(*WRITE, "--store", wide, "--measures", "MRR").code == 0
    assert spolia(*CHECK).code == 0
    ran = spolia(*CHECK, "--store", narrow)
    assert ran.code == 1
    assert "because the corpus was re-chunked" in ran.out
    assert "chunks: group chunk: 30 nodes then, " in ran.out
    assert "1 node then, " in ran.out


@pytest.mark.slow
def test_what_is_no_baseline_is_written_anew(spolia: Spolia, data: Path, tmp_path: Path) -> None:
    (tmp_path / "baseline.json").write_text('{"spolia_baseline": 0}')
    assert spolia(*CHECK).code == 2
    assert spolia(*WRITE).code == 0
    assert spolia(*CHECK).code == 0
    (tmp_path / "flow.yaml").write_text("BM25: {group: {use: chunks}, top_k: 3}")
    second_output = spolia(*CHECK, "--write", "--json").json  # of the same flow, data and measures
    assert second_output == {"written": "baseline.json", "flow": "flow.yaml", "data": "questions", "n": 30}
    assert spolia(*CHECK).code == 0


@pytest.mark.slow
def test_new_questions_are_not_asked_and_counted(spolia: Spolia, data: Path) -> None:
    spolia(*WRITE)
    with (data / "questions.jsonl").open("a") as questions:
        questions.write('\n{"id": "new", "question": "What belongs to the museum?", "gold_ids": ["p1"]}')
    ran = spolia(*CHECK)
    assert ran.code == 0
    assert "1 question of questions not in the baseline, and not asked." in ran.err


@pytest.mark.slow
def test_questions_that_nothing_measures_are_not_called_new(spolia: Spolia, data: Path) -> None:
    with (data / "questions.jsonl").open("a") as questions:
        questions.write('\n{"id": "without", "question": "What has no gold?"}')
    assert spolia(*WRITE).code == 0
    assert "not in the baseline" not in spolia(*CHECK).err


def test_changed_questions_are_refused(spolia: Spolia, data: Path) -> None:
    spolia(*WRITE)
    whole = (data / "questions.jsonl").read_text()
    (data / "questions.jsonl").write_text(whole.replace('"gold_ids": ["p3"]', '"gold_ids": ["p4"]'))
    ran = spolia(*CHECK, "--json")
    assert ran.code == 2
    assert "1 question with another gold than then, the first 'q3'" in ran.json["error"]["message"]


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("gate", "--baseline", "none.json"), "There is no baseline none.json"),
        (("gate", "--baseline", "none.json", "--write"), "does not say which flow and data it is of"),
        ((*CHECK, "--measures", "MRR"), "go with --write"),
        ((*CHECK, "--limit", "3"), "go with --write"),
        ((*CHECK, "--tolerance", "much"), "--tolerance much is not a number"),
        ((*CHECK, "--tolerance", "F1=0.1"), "given for F1, which is not measured"),
        ((*CHECK, "--rule", "strict"), "no rule 'strict'"),
        ((*CHECK, "--report", "gate.html"), "cannot be written as 'gate.html'"),
        (("gate", "--baseline", "questions/corpus.jsonl"), "is not a baseline"),
    ],
)
def test_wrong_usage_is_one_line_and_code_2(spolia: Spolia, data: Path, args: tuple[str, ...], says: str) -> None:
    spolia(*WRITE)
    ran = spolia(*args)
    assert (ran.code, ran.out) == (2, "")
    assert says in ran.err
    assert ran.err.count("\n") == 1


@pytest.mark.slow
def test_a_baseline_of_a_language_model_is_not_compared_with_answers_of_none(spolia: Spolia, data: Path) -> None:
    with OpenAIServer(ServedReply("It was bought in 1803 [1].")) as server:
        model = ("--llm", server.url, "--model", "m")
        (_, _, *rest) = WRITE
        assert spolia("gate", "naive", *rest, *model, "--limit", "3", "--measures", "R@1").code == 0
        without = spolia(*CHECK)
        assert (without.code, without.out) == (2, "")
        assert "baseline.json was made with the language model m, and naive is asked without one" in without.err
        assert "--llm URL --model m" in without.err
        assert spolia(*CHECK, *model).code == 0


@pytest.mark.slow
def test_tolerances_and_the_rule_decide(spolia: Spolia, data: Path, tmp_path: Path) -> None:
    spolia(*WRITE, "--measures", "R@1,MRR")
    undecided = "Then: {steps: [{BM25: {group: {use: chunks}}}, {KeywordFilter: {excluded: [number 7]}}]}"
    (tmp_path / "flow.yaml").write_text(undecided)
    assert spolia(*CHECK).code == 1
    assert spolia(*CHECK, "--rule", "worse").code == 0
    assert spolia(*CHECK, "--tolerance", "R@1=0.3", "--tolerance", "MRR=0.3").code == 0


@pytest.mark.slow
def test_what_decides_and_what_is_known_is_kept_and_paths_are_from_the_baseline(
    spolia: Spolia, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lowered.py").write_text(
        "from spolia import Query, step\n\n\n@step\ndef plain(query: Query) -> Query:\n"
        "    return query.but(text=query.text.lower())\n"
    )
    flow = "['lowered:plain', BM25: {group: {use: chunks}}]"
    (tmp_path / "flow.yaml").write_text(flow)
    (tmp_path / "ci").mkdir()
    write = (
        "gate",
        "flow.yaml",
        "--data",
        "questions",
        "--baseline",
        "ci/baseline.json",
        "--write",
        "--known",
        "lowered.py",
    )
    ran = spolia(*write, "--measures", "R@1,MRR", "--tolerance", "R@1=0.3", "--tolerance", "MRR=0.3")
    assert ran.code == 0, ran.err
    assert json.loads((tmp_path / "ci" / "baseline.json").read_text())["command"] == {
        "flow": "../flow.yaml",
        "data": "../questions",
        "tolerance": ["R@1=0.3", "MRR=0.3"],
        "known": ["../lowered.py"],
    }
    (tmp_path / "flow.yaml").write_text(flow.replace("}]", "}, KeywordFilter: {excluded: [number 7]}]"))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    check = ("gate", "--baseline", "../ci/baseline.json")
    assert spolia(*check).code == 0
    assert spolia(*check, "--tolerance", "0.01").code == 1
    second_result = spolia(*check, "--write", "--rule", "worse", "--json")
    assert second_result.code == 0, second_result.err
    baseline = json.loads((tmp_path / "ci" / "baseline.json").read_text())["command"]
    assert (baseline["tolerance"], baseline["rule"], baseline["flow"]) == (
        ["R@1=0.3", "MRR=0.3"],
        "worse",
        "../flow.yaml",
    )


def test_what_cannot_decide_is_not_written(spolia: Spolia, data: Path, tmp_path: Path) -> None:
    for args, says in (
        (("--rule", "strict"), "no rule 'strict'. Write one of: not-worse, worse"),
        (("--tolerance", "5"), "tolerates everything"),
        (("--tolerance", "EM=0.1"), "EM, which is not measured"),
    ):
        assert says in spolia(*WRITE, *args).err
    assert not (tmp_path / "baseline.json").exists()


@pytest.mark.slow
def test_a_damaged_baseline_is_told_in_words(spolia: Spolia, data: Path, tmp_path: Path) -> None:
    spolia(*WRITE)
    whole = json.loads((tmp_path / "baseline.json").read_text())
    del whole["digest"]  # as earlier versions write it: what is read is checked, whoever wrote it
    for text, says in (
        ("<<<<<<< HEAD\n{}", "baseline.json is not a baseline: it is not JSON"),
        ("{}", "baseline.json is JSON, but no baseline"),
        (json.dumps(whole | {"questions": []}), "baseline.json is a damaged baseline"),
        (json.dumps(whole | {"command": {"tolerance": "0.05"}}), "Write a text there, or texts for tolerance"),
    ):
        (tmp_path / "baseline.json").write_text(text)
        ran = spolia(*CHECK)
        assert (ran.code, ran.err.count("\n")) == (2, 1)
        assert says in ran.err
        assert "Error(" not in ran.err
    assert "spolia gate FLOW --data DIR --baseline none.json --write" in spolia("gate", "--baseline", "none.json").err


@pytest.mark.slow
def test_a_baseline_is_not_written_on_what_was_tuned_on(spolia: Spolia, data: Path) -> None:
    file = Path("questions", "questions.jsonl")
    few = file.read_text()
    assert spolia("eval", "bm25", "--data", "questions", "--split", "tune").code == 0
    ran = spolia(*WRITE)
    assert (ran.code, "of 30 questions were used to tune" in ran.err) == (0, True)  # few: a warning
    more = [{"id": f"r{n}", "question": question(n % 30), "gold_ids": [f"p{n % 30}"]} for n in range(70)]
    file.write_text("\n".join((few.rstrip(), *map(json.dumps, more))))
    assert spolia("eval", "bm25", "--data", "questions", "--split", "tune").code == 0
    ran = spolia(*WRITE)
    assert ran.code == 2
    assert "questions were used to tune" in ran.err
    assert "of the part tune: bm25" in ran.err
    assert spolia(*WRITE, "--overlap").code == 0
    assert spolia("gate", "--baseline", "baseline.json").code == 0
    assert "2 looks in " in spolia("data", "looks", "questions", "--forget").out
    assert spolia(*WRITE).code == 0
    assert spolia("data", "looks", "questions", "--json").json["looks"] == []


@pytest.mark.slow
def test_an_order_of_passages_changes_nothing(spolia: Spolia, data: Path) -> None:
    """Several passages score the same for each question, and one of them is gold."""
    rows = [
        {"id": f"q{n}", "question": f"Which {TOPICS[n % 12]} do visitors like best?", "gold_ids": [f"p{n}"]}
        for n in range(30)
    ]
    (data / "questions.jsonl").write_text("\n".join(map(json.dumps, rows)))
    spolia(*WRITE, "--measures", "R@1,MRR")
    lines = (data / "corpus.jsonl").read_text().splitlines()
    (data / "corpus.jsonl").write_text("\n".join(lines[::-1]))
    ran = spolia(*CHECK, "--tolerance", "0", "--json")
    assert (ran.code, ran.err) == (0, "")
    assert (ran.json["changes"], ran.json["questions"]) == ([], [])


@pytest.mark.slow
def test_gold_that_names_files_and_quotes_them_outlives_edits(spolia: Spolia, data: Path, tmp_path: Path) -> None:
    files = tmp_path / "notes"
    files.mkdir()
    for n in range(30):
        (files / f"{n}.txt").write_text(text(n))
    rows = [
        {
            "id": f"q{n}",
            "question": question(n),
            "gold_ids": [{"document": f"{n}.txt", "quote": f"bought in {1800 + n}"}],
        }
        for n in range(30)
    ]
    (data / "corpus.jsonl").unlink()
    (data / "questions.jsonl").write_text("\n".join(map(json.dumps, rows)))
    keeping = ("index", "notes", "--store", "n.spolia", "--no-vectors")
    assert spolia(*keeping).code == 0
    assert spolia(*WRITE, "--store", "n.spolia", "--measures", "R@5,MRR").code == 0
    (files / "3.txt").write_text("Another beginning.\n\n" + text(3).replace("bought in", "bought\nin"))
    assert spolia(*keeping).code == 0
    ran = spolia(*CHECK, "--json")
    assert (ran.code, ran.json["changes"]) == (0, [{"kind": "documents", "change": "3.txt has another text"}])
    (files / "3.txt").write_text(text(3).replace("bought", "found"))
    assert spolia(*keeping).code == 0
    lost = spolia(*CHECK)
    assert lost.code == 2
    assert "Gold '3.txt “bought in 1803”' of question 'q3' (“Which" in lost.err
    assert "does not occur in '3.txt' of n.spolia" in lost.err
    (files / "3.txt").unlink()
    assert spolia(*keeping).code == 0
    gone = spolia(*CHECK)
    assert (gone.code, "names no document of n.spolia" in gone.err) == (2, True)
