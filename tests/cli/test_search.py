"""`spolia search`, `trace` and `doctor` on a store."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from spolia.journal import database
from spolia.journal.trace import _new_run_ids
from spolia.stores.backends.rows import SourceRow
from spolia.stores.corpus import Corpus
from spolia.stores.manifest import Manifest
from spolia.types import Document, Node, Span

from .conftest import Spolia

TEXTS = {
    "sea/tides.md": "The moon pulls the sea, and so the tide rises.",
    "salt.txt": "Salt is dug in mines \x1b[31mnear\u202e the border.",
    "owls.pdf": "Owls hunt by night.",
}


@pytest.fixture
def store(tmp_path: Path) -> Path:
    corpus = Corpus(str(tmp_path / "notes.spolia")).create()
    with corpus.writer() as writer:
        writer.define("chunk", Manifest("chunk", "Whole()", "test 1"))
        for number, (uri, text) in enumerate(TEXTS.items()):
            pages = (number + 1, number + 1) if uri.endswith("pdf") else None
            span = Span(0, len(text), pages=pages, lines=None if pages else (4, 5))
            node = Node(f"n{number}", text, f"d{number}", "chunk", span, uri=uri)
            writer.put_document(Document(f"d{number}", text, uri), [node], SourceRow(uri, len(text), content_hash=uri))
    return Path(corpus.path)


@pytest.mark.slow
def test_a_search_by_words_loads_only_what_it_needs(store: Path) -> None:
    code = "import atexit, sys; atexit.register(lambda: print(*sys.modules)); from spolia.cli import main; main()"
    command = [sys.executable, "-c", code, "search", "tide", "--store", str(store)]
    *lines, modules = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    assert "sea/tides.md" in lines[0]
    loaded = set(modules.split())
    assert not loaded & {"numpy", "rich.console", "pydantic", "onnxruntime", "urllib3", "spolia.generation.reader"}
    commands = {name.rpartition(".")[2] for name in loaded if name.startswith("spolia.cli.commands.")}
    assert commands == {"search"}


def test_hits_show_place_score_and_text(spolia: Spolia, store: Path) -> None:
    ran = spolia("search", "tide", "--store", store)
    assert ran.code == 0
    assert "1  sea/tides.md, lines 4-5" in ran.out
    assert "The moon pulls the sea" in ran.out
    assert "bm25: " in ran.err


def test_hits_as_json_carry_all_that_is_known(spolia: Spolia, store: Path) -> None:
    answer = spolia("search", "owls at night", "--store", store, "--flow", "bm25", "--json").json
    [hit] = answer["hits"]
    assert (hit["place"], hit["uri"], hit["document"], hit["node"]) == ("owls.pdf, page 3", "owls.pdf", "d2", "n2")
    assert hit["span"] == {"start": 0, "end": 19, "pages": [3, 3], "lines": None, "seconds": None}
    assert hit["text"] == TEXTS["owls.pdf"]


def test_a_document_cannot_act_on_the_terminal(spolia: Spolia, store: Path) -> None:
    plain, json = (spolia("search", "salt", "--store", store, *more) for more in ((), ("--json",)))
    assert "\\x1b[31mnear\\u202e the border" in plain.out
    assert "\x1b" not in plain.out + json.out
    assert "\u202e" not in plain.out + json.out
    assert json.json["hits"][0]["text"] == TEXTS["salt.txt"]


@pytest.mark.slow
def test_top_k_and_flow_files(spolia: Spolia, store: Path, tmp_path: Path) -> None:
    assert len(spolia("search", "the by", "--store", store, "--json").json["hits"]) == 3
    assert len(spolia("search", "the by", "--store", store, "--json", "--top-k", 2).json["hits"]) == 2
    (tmp_path / "one.yaml").write_text("BM25: {group: {use: chunks}, top_k: 1}")
    result = spolia("search", "the by", "--store", store, "--flow", tmp_path / "one.yaml", "--json")
    assert len(result.json["hits"]) == 1


@pytest.mark.parametrize("question", ["zebra", "\u202e\u200f!?", "…"])
def test_nothing_found_is_said_and_has_its_code(spolia: Spolia, store: Path, question: str) -> None:
    ran = spolia("search", question, "--store", store, "--json")
    assert (ran.code, ran.json["hits"]) == (6, [])
    assert "Nothing found" in ran.err


@pytest.mark.parametrize("question", ["", "   "])
def test_an_empty_question_is_refused(spolia: Spolia, store: Path, question: str) -> None:
    ran = spolia("search", question, "--store", store, "--json")
    assert ran.code == 2
    assert ran.json["error"]["kind"] == "QueryError"


@pytest.mark.slow
def test_strange_questions_are_answered_or_refused_but_never_crash(spolia: Spolia, store: Path) -> None:
    for question in ("tide " * 20_000, "tide\u202e\u2066", "ti\tde\r\n", "\ud800", "--", "tide AND ( OR \"'*?:^~"):
        ran = spolia("search", "--store", store, "--json", "--", question)
        assert ran.code in (0, 2, 6)
        assert "Traceback" not in ran.err


def test_a_store_that_is_none_is_code_3(spolia: Spolia, tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "letter.txt").write_text("Dear Ann")
    for path in (tmp_path / "nowhere", tmp_path / "notes", tmp_path / "notes" / "letter.txt"):
        ran = spolia("search", "tide", "--store", path, "--json")
        assert ran.code == 3
        assert ran.json["exit_code"] == 3
        assert str(path) in ran.err
    assert [entry.name for entry in (tmp_path / "notes").iterdir()] == ["letter.txt"]
    assert not (tmp_path / "nowhere").exists()


def test_without_a_place_to_record_it_still_answers(spolia: Spolia, store: Path) -> None:
    (store / "runs.db").write_text("this is no database, as anybody can see")
    ran = spolia("search", "tide", "--store", store, "--json")
    assert ran.code == 0
    assert len(ran.json["hits"]) == 1
    assert "Nothing is recorded of this run" in ran.err


def test_what_is_not_recorded_since_the_disk_is_full_is_told_with_the_answer(
    spolia: Spolia, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert spolia("search", "tide", "--store", store).code == 0
    connect = database.open_connection

    def full(path: Path) -> sqlite3.Connection:
        connection = connect(path)
        connection.execute("PRAGMA max_page_count = 1")  # as many as there are
        return connection

    monkeypatch.setattr(database, "open_connection", full)
    ran = spolia("search", "tide " * 20_000, "--store", store, "--json")
    assert (ran.code, len(ran.json["hits"])) == (0, 1)
    assert "Not all of this run is recorded: " in ran.err
    assert "runs.db could not be written: OperationalError: database or disk is full" in ran.err


@pytest.mark.slow
def test_runs_can_be_traced(spolia: Spolia, store: Path) -> None:
    run = spolia("search", "tide", "--store", store, "--json").json["run"]
    _new_run_ids()  # as in another process
    spolia("search", "owls", "--store", store)
    listed = spolia("trace", "--store", store, "--json").json["runs"]
    assert [entry["run"] for entry in listed][1] == run
    trace = spolia("trace", run[:6], "--store", store, "--json").json
    assert (trace["run"], trace["spans"][0]["step"]) == (run, "BM25")
    assert trace["spans"][0]["result"]["hits"][0][0] == "n0"
    text = spolia("trace", "last", "--store", store).out
    assert "BM25" in text
    assert "1 hit" in text


@pytest.mark.slow
def test_runs_that_are_not_there_are_said_to_be_so(spolia: Spolia, store: Path) -> None:
    assert spolia("trace", "--store", store).code == 3
    spolia("search", "tide", "--store", store)
    ran = spolia("trace", "zzz", "--store", store)
    assert ran.code == 2
    assert "No run 'zzz'" in ran.err


@pytest.mark.slow
def test_the_doctor_looks_at_the_store(spolia: Spolia, store: Path) -> None:
    ran = spolia("doctor", "--store", store, "--json")
    assert (ran.code, ran.json["ok"]) == (0, True)
    about = {finding["about"]: finding for finding in ran.json["findings"]}
    assert "3 documents" in about["store"]["text"]
    assert "Whole()" in about["group chunk"]["text"]
    assert about["base"]["state"] == "ok"


@pytest.mark.slow
def test_the_doctor_finds_what_is_broken(spolia: Spolia, store: Path, tmp_path: Path) -> None:
    [segment] = list((store / "lexical").rglob("*.store"))[:1]
    segment.write_bytes(b"\0" * segment.stat().st_size)
    ran = spolia("doctor", "--store", store, "--json")
    assert (ran.code, ran.json["ok"]) == (3, False)
    assert spolia("doctor", "--store", tmp_path / "nowhere").code == 3


@pytest.fixture
def notes(spolia: Spolia, tmp_path: Path) -> Path:
    (tmp_path / "docs").mkdir()
    for name in ("owls.md", "mice.txt"):
        (tmp_path / "docs" / name).write_text("Owls hunt mice by night.\n")
    assert spolia("index", tmp_path / "docs", "--store", tmp_path / "d.spolia", "--no-vectors").code == 0
    return tmp_path / "d.spolia"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("condition", "found"),
    [("file_type=md", {"owls.md"}), ("file_modified>2026-01-01", {"owls.md", "mice.txt"}), ("file_size>1000", set())],
)
def test_conditions_hold_for_questions(spolia: Spolia, notes: Path, condition: str, found: set[str]) -> None:
    ran = spolia("search", "owls", "--store", notes, "--where", condition, "--json")
    assert {hit["uri"] for hit in ran.json["hits"]} == found
    answer = spolia("ask", "What do owls hunt?", "--store", notes, "--where", condition, "--json").json
    assert {citation["uri"] for citation in answer["citations"]} <= found
    assert bool(answer["citations"]) == bool(found)


def test_a_condition_that_is_none_is_refused(spolia: Spolia, notes: Path) -> None:
    ran = spolia("search", "owls", "--store", notes, "--where", "file_modified>yesterday")
    assert ran.code == 2
    assert "'yesterday' is not valid: the field" in ran.err


@pytest.mark.slow
def test_what_a_first_use_could_not_make_is_told(spolia: Spolia, notes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = notes.parent / "picky.py"
    module.write_text(
        "from spolia.indexing.transforms.function import transform\n"
        "from spolia.stores.definition import Definition\n\n\n"
        '@transform\ndef worded(part: "Part"):\n'
        '    if part.document.uri == "mice.txt":\n        raise ValueError("no mice")\n'
        "    return part.node.text.split()\n\n\n"
        "words = Definition(worded)\n"
    )
    ran = spolia("search", "owls", "--store", notes, "--group", "words", "--known", module, "--json")
    assert ran.code == 5, ran.err
    assert (ran.json["built"], [lack["uri"] for lack in ran.json["unmade"]]) == ({"words": 5}, ["mice.txt"])
    assert "Group words was built" in ran.err
    assert "not in words: mice.txt" in ran.err
    second_result = spolia("search", "owls", "--store", notes, "--group", "words", "--json")
    assert (second_result.code, "unmade" in second_result.json) == (0, False)


@pytest.mark.slow
def test_words_without_quotes_are_explained(spolia: Spolia, notes: Path, tmp_path: Path) -> None:
    assert "in quotes" in spolia("search", "owls", "hunt", "--store", notes, "--json").json["error"]["message"]
    assert "in quotes" in spolia("ask", "what", "do", "owls", "hunt", "--store", notes).err
    assert "in quotes" in spolia("ask", "owls", "hunt", "--store", notes).err


@pytest.mark.slow
def test_a_trace_tells_the_question(spolia: Spolia, notes: Path) -> None:
    spolia("search", "owls at night", "--store", notes)
    assert spolia("trace", "--store", notes, "--json").json["runs"][0]["question"] == "owls at night"
    assert "owls at night" in spolia("trace", "--store", notes).out
    assert spolia("trace", "last", "--store", notes).out.startswith("“owls at night”\n")


@pytest.mark.slow
def test_a_declared_field_is_filtered_by(spolia: Spolia, tmp_path: Path) -> None:
    notes, store = tmp_path / "notes", tmp_path / "declared.spolia"
    notes.mkdir()
    (notes / "old.md").write_text("---\nauthor: Ann\nyear: 1931\n---\nStones of old walls.")
    (notes / "new.md").write_text("---\nauthor: Bob\n---\nStones of new walls.")
    refused = spolia("sync", notes, "--store", store, "--no-vectors", "--field", "year:number")
    assert refused.code == 2
    assert "NAME:KIND=DEFAULT; str, int, float, bool, time" in refused.err
    assert spolia("sync", notes, "--store", store, "--no-vectors").code == 0
    refused = spolia("search", "stones", "--store", store, "--where", "author=Ann")
    assert refused.code == 2
    assert "--field author:KIND" in refused.err
    fields = ("--field", "author", "--field", "year:int=2026")
    planned = spolia("plan", notes, "--store", store, "--no-vectors", *fields, "--json")
    assert planned.json["command"].endswith("--no-vectors --field author --field year:int=2026")
    assert spolia("sync", notes, "--store", store, "--no-vectors", *fields).code == 0
    for condition, uri in (("author=Ann", "old.md"), ("year>1931", "new.md"), ("year<=1931", "old.md")):
        answer = spolia("search", "stones", "--store", store, "--where", condition, "--json").json
        assert [hit["uri"] for hit in answer["hits"]] == [uri]
