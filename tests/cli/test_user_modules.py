"""Functions and groups of a Python module of the user's own, on the command line."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from spolia.stores.corpus import Corpus
from tests.indexing.sample_documents import locked_pdf

from .conftest import Spolia

pytestmark = pytest.mark.slow

CUTTING = """
from spolia.core.function import step
from spolia.indexing.transforms.function import transform
from spolia.stores.definition import Definition
from spolia.types import Ranking


@transform
def shouted(text):
    return [line.upper() for line in text.splitlines() if line]


@step
def first(ranking: Ranking) -> Ranking:
    return ranking.cut(1)


loud = Definition(shouted)
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes/tides.txt").write_text("The moon pulls.\nShips wait.\n")
    (tmp_path / "cutting.py").write_text(CUTTING)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield tmp_path
    sys.modules.pop("cutting", None)


def texts(group: str) -> list[str]:
    return [node.text for node in Corpus("n.spolia").latest().all_nodes(group)]


@pytest.fixture
def store(spolia: Spolia, place: Path) -> str:
    assert spolia("index", "notes", "--store", "n.spolia", "--no-vectors").code == 0
    built = spolia("groups", "build", "loud", "--store", "n.spolia", "--known", "cutting.py")
    assert built.code == 0, built.err
    sys.modules.pop("cutting")
    return "n.spolia"


@pytest.mark.parametrize("named", ["cutting.py", "cutting", "cutting.py:shouted"])
def test_a_group_made_by_a_function_is_followed(spolia: Spolia, store: str, place: Path, named: str) -> None:
    (place / "notes/new.txt").write_text("Salt is dug.")
    assert spolia("sync", "notes", "--store", store, "--no-vectors", "--known", named).code == 0
    assert sorted(texts("loud")) == ["SALT IS DUG.", "SHIPS WAIT.", "THE MOON PULLS."]
    assert spolia("groups", "build", "loud", "--store", store, "--known", named, "--rebuild").code == 0


def test_without_the_module_the_way_out_is_told(spolia: Spolia, store: str, place: Path) -> None:
    (place / "notes/new.txt").write_text("Salt is dug.")
    ran = spolia("sync", "notes", "--store", store, "--no-vectors")
    assert ran.code == 5
    assert "group loud  Group 'loud' is made by an operator that is unknown here, shouted" in ran.out
    assert "--known FILE.py" in ran.out


def test_a_changed_function_is_planned(spolia: Spolia, store: str, place: Path) -> None:
    (place / "cutting.py").write_text(CUTTING.replace("upper()", "upper()[:5]"))
    command = [sys.executable, "-m", "spolia", "plan", "notes", "--store", store, "--known", "cutting.py"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert "group loud  rebuilt  2 passages to cut" in ran.stdout, ran.stderr
    assert "--known cutting.py --rebuild" in ran.stderr


def test_a_module_serves_questions_and_flow_files(spolia: Spolia, store: str, place: Path) -> None:
    (place / "flow.yaml").write_text("[BM25: {group: {use: chunks}}, 'cutting:first']")
    options = ("--store", store, "--group", "loud", "--flow", "flow.yaml", "--json")
    assert "--known FILE.py" in spolia("search", "moon ships", *options).json["error"]["message"]
    hits = spolia("search", "moon ships", *options, "--known", "cutting.py").json["hits"]
    assert len(hits) == 1
    assert hits[0]["text"].isupper()
    assert spolia("ask", "What does the moon do?", *options, "--known", "cutting").json["citations"]
    assert spolia("check", "flow.yaml", "--known", "cutting.py").code == 0
    assert "first" in spolia("show", "flow.yaml", "--known", "cutting.py").out


UNFINISHED = """
from spolia.evaluation.measures.measure import Measure


class Half(Measure):
    notation = "Half"
"""


@pytest.mark.parametrize(
    ("text", "named", "said"),
    [
        (CUTTING, "nothere.py", "file not found"),
        (CUTTING, "no.such.module", "cannot be imported: ModuleNotFoundError"),
        ("1 / 0", "cutting.py", "cannot be imported: ZeroDivisionError: division by zero (in /"),
        ("x = 1\n1 / 0", "cutting.py", "cutting.py, line 2)"),
        ("x = 1", "cutting.py", "there is no operator"),
        (CUTTING, "cutting.py:whispered", "has no 'whispered'"),
        (UNFINISHED, "cutting.py", "the measure Half has no applies and no score. Write what every measure has"),
    ],
)
def test_a_module_that_serves_nothing_is_refused(spolia: Spolia, place: Path, text: str, named: str, said: str) -> None:
    (place / "cutting.py").write_text(text)
    ran = spolia("sync", "notes", "--store", "n.spolia", "--known", named)
    assert (ran.code, said in ran.err) == (2, True), ran.err
    assert not (place / "n.spolia").exists()


def test_a_file_that_is_called_like_another_module_is_not_mistaken_for_it(spolia: Spolia, place: Path) -> None:
    (place / "secrets.py").write_text(CUTTING)
    ran = spolia("sync", "notes", "--store", "n.spolia", "--known", "secrets.py")
    assert (ran.code, "Python has another module of the name secrets, /" in ran.err) == (2, True), ran.err


READING = """
from spolia.indexing.readers.pdf.reader import PdfReader


def minutes(blob):
    return blob.data.decode()[::-1]


READERS = {"*.min": minutes, "*.pdf": PdfReader(passwords=(("*", "NOTES_PASSWORD"),))}
"""


def test_readers_of_a_module_read_files(spolia: Spolia, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pypdfium2")
    monkeypatch.setenv("NOTES_PASSWORD", "secret")
    (place / "cutting.py").write_text(READING)
    (place / "notes" / "a.min").write_text(".tlasaB")
    (place / "notes" / "b.pdf").write_bytes(locked_pdf("secret"))
    command = ("notes", "--store", "n.spolia", "--no-vectors", "--json")
    assert spolia("plan", *command[:-1], "--json", "--known", "cutting.py").json["new"] == [
        "a.min",
        "b.pdf",
        "tides.txt",
    ]
    result = spolia("index", *command, "--known", "cutting.py")
    assert (result.code, result.json["added"]) == (0, 3)
    assert "Basalt." in texts("chunk")
    without = spolia("sync", *command).json
    assert (without["removed"], without["unread"]) == (0, {".min": 1})
    assert "Basalt." in texts("chunk"), "what another reader made of a file is kept"


def test_readers_that_are_none_are_refused(spolia: Spolia, place: Path) -> None:
    for declared in ("['*.min']", "{'*.min': 3}", "{1: str}"):
        (place / "cutting.py").write_text(f"READERS = {declared}")
        ran = spolia("sync", "notes", "--store", "n.spolia", "--known", "cutting.py")
        assert (ran.code, "Write READERS = {'*.foo': my_function" in ran.err) == (2, True), ran.err
        sys.modules.pop("cutting")
    assert not (place / "n.spolia").exists()


MEASURING = '''
from dataclasses import dataclass
from typing import ClassVar

from spolia.evaluation.measures.measure import Measure


class Lengthy(Measure):
    """A base of measures is none itself."""


@dataclass(frozen=True)
class Short(Measure):
    notation: ClassVar[str] = "Short_hits"
    k: int
    words: int = 3

    def applies(self, item):
        return True

    def score(self, result, item):
        if item.id == "broken":
            raise RuntimeError("cannot be read")
        short = [hit for hit in result.hits[: self.k] if len(hit.node.text.split()) <= self.words]
        return len(short) / self.k
'''


def test_a_measure_of_ones_own_is_measured_by(spolia: Spolia, place: Path) -> None:
    (place / "measuring.py").write_text(MEASURING)
    (place / "asked").mkdir()
    (place / "asked/questions.jsonl").write_text('{"id": "q1", "question": "moon?", "gold_ids": ["tides.txt"]}')
    assert spolia("index", "notes", "--store", "n.spolia", "--no-vectors").code == 0
    asking = ("eval", "bm25", "--data", "asked", "--store", "n.spolia", "--known", "measuring.py", "--measures")
    ran = spolia(*asking, "R@1,short_hits@1(words=5),AURC(of=Short_hits@2)", "--json")
    assert ran.code == 0, ran.err
    means = {name: measure["mean"] for name, measure in ran.json["measures"].items()}
    assert means == {"R@1": 1.0, "Short_hits@1(words=5)": 1.0, "AURC(of=Short_hits@2)": 1.0}
    assert "does not say how many places to look at. Write Short_hits@5" in spolia(*asking, "Short_hits").err
    assert "Write one of: Short_hits, R@k" in spolia(*asking, "colour").err
    (place / "asked/questions.jsonl").write_text('{"id": "broken", "question": "moon?", "gold_ids": ["tides.txt"]}')
    failed = spolia(*asking, "Short_hits@1")
    assert failed.code == 2
    says = "Short_hits@1 failed on the result of bm25 for question 'broken': RuntimeError: cannot be read."
    assert says in failed.err
    (place / "measuring.py").write_text(MEASURING.replace("Short_hits", "MRR"))
    sys.modules.pop("measuring")
    assert "Short is called 'MRR', as a measure of Spolia is" in spolia(*asking, "MRR").err
    sys.modules.pop("measuring")


SLOW = """
import time
from dataclasses import dataclass

from spolia.indexing.readers.text import TextReader


@dataclass(frozen=True)
class Slow(TextReader):
    apart = True

    def read(self, blob, /):
        time.sleep(60)


READERS = {"*.min": Slow()}
"""


def test_what_a_file_may_take_is_said_on_the_command_line(place: Path, spolia: Spolia) -> None:
    (place / "cutting.py").write_text(SLOW)
    (place / "notes" / "a.min").write_text("Salt is white.")
    ran = spolia("index", place / "notes", "--store", place / "s.spolia", "--known", place / "cutting.py",
                 "--no-vectors", "--file-seconds", "1", "--file-mb", "500", "--json")  # fmt: skip
    (failed,) = ran.json["failed"]
    assert "took longer than 1 s on a.min" in failed["reason"]
    assert "--file-seconds and --rebuild" in failed["reason"]
