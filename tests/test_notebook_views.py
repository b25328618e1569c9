"""What a notebook shows of values, and their plain data."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from spolia import (
    BM25,
    Answer,
    Branch,
    Choice,
    Citation,
    Corpus,
    Extract,
    Hit,
    Item,
    Node,
    Query,
    Ranking,
    ReciprocalRankFusion,
    Run,
    Runs,
    Span,
    add_texts,
)  # fmt: skip
from spolia.evaluation import Experiment, parse_measures
from spolia.indexing.sync.report import SyncReport
from spolia.journal.run_view import view_run

ROOT = Path(__file__).resolve().parents[1]
HOSTILE = "<script>alert('x')</script>"


class Elements(HTMLParser):
    """Names of all elements of a fragment; each that opens also closes."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.names: list[str] = []
        self.open: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.names.append(tag)
        self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: Any) -> None:
        self.names.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def elements(value: Any) -> list[str]:
    parsed = Elements(value._repr_html_())
    assert not parsed.open
    return parsed.names


RANKING = Ranking(Query(HOSTILE), (Hit(Node("n", HOSTILE, "d", span=Span(0, 9, pages=(2, 3)), uri="a.pdf"), 0.25),))
ANSWER = Answer(HOSTILE, (Citation("1", "n", "d", "a.pdf", HOSTILE, Span(0, 9, pages=(2, 3))),), faults=("unknown",))


@pytest.mark.parametrize("value", [RANKING, ANSWER, Ranking(Query("?"), ()), Answer("")], ids=repr)
def test_a_value_is_shown_and_runs_nothing(value: Ranking | Answer) -> None:
    assert "script" not in elements(value)


def test_rankings_and_answers_are_told_with_their_places() -> None:
    assert str(RANKING) == "1  0.25  a.pdf, pages 2-3"
    assert str(ANSWER) == f"{HOSTILE}\n[1] a.pdf, pages 2-3"
    assert all("a.pdf, pages 2-3" in shown._repr_html_() for shown in (RANKING, ANSWER))


def test_a_report_names_a_failed_file_once() -> None:
    view = SyncReport(0, failed=(("a.pdf", "a.pdf is locked."),))._repr_html_()
    assert (view.count("a.pdf"), "is locked." in view) == (1, True)


def test_plain_data_is_json() -> None:
    assert json.loads(json.dumps(RANKING.json()))["hits"][0]["span"]["pages"] == [2, 3]
    assert json.loads(json.dumps(ANSWER.json()))["citations"][0]["place"] == "a.pdf, pages 2-3"


def test_a_flow_is_shown_as_its_picture_whose_style_holds_for_it_alone() -> None:
    chunks = Corpus("none.spolia").group()
    flow = Branch(BM25(chunks, source="<words>"), BM25(chunks, top_k=3)) >> ReciprocalRankFusion()
    assert elements(flow)[0] == "svg"
    rules = flow._repr_html_().partition("<style>")[2].partition("</style>")[0]
    assert all(rule.strip().startswith(".flow") for rule in rules.split("}") if rule.strip())
    assert elements(Choice(flow, BM25(chunks), name="first"))[0] == "svg"  # a space, too


@pytest.mark.slow
def test_a_report_and_a_run_are_shown(tmp_path: Path) -> None:
    corpus = Corpus(str(tmp_path / "s.spolia"))
    add_texts(corpus, {"salt.txt": f"Salt is dug in mines. {HOSTILE}", "tide.txt": "The moon causes the tide."})
    flow = BM25(corpus.group()) >> Extract()
    items = [Item("q1", "Where is salt dug?", answers=("mines",), gold=(("text:salt.txt",),))]
    with Runs(tmp_path / "runs.db", values=True) as runs:
        with Run(journal=runs.journal) as run:
            flow(Query("Where is salt dug?"))
        runs.journal.flush()
        view = view_run(runs.journal, run.id)
        assert {"h1", "details", "table"} <= set(elements(view)) - {"script"} == set(elements(view))
        assert "Where is salt dug?" in view._repr_html_()
    report = Experiment(flow, items, parse_measures("R@5,F1")).run()
    assert elements(report).count("table") == 1


@pytest.mark.slow
@pytest.mark.parametrize("path", sorted((ROOT / "examples" / "notebooks").glob("*.ipynb")), ids=lambda path: path.stem)
def test_the_notebooks_run_and_show_html(path: Path, tmp_path: Path) -> None:
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(path, 4)  # type: ignore[no-untyped-call]
    NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ()) if "data" in output]
    assert sum("text/html" in output["data"] for output in outputs) >= 2
