"""Reports for people: what stands in them, and that nothing in a question can do anything there."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from spolia.core.function import step
from spolia.core.operator import Operator
from spolia.errors import QueryError
from spolia.evaluation.experiment.experiment import Experiment
from spolia.evaluation.experiment.results import Report
from spolia.evaluation.measures.registry import parse_measures
from spolia.evaluation.report.html import html
from spolia.evaluation.report.tables import markdown
from spolia.journal import Runs
from spolia.run import Run
from spolia.types import Answer, Hit, Item, Node, Query, Ranking

EVIL = '<script>alert("x")</script><img src=x onerror=alert(1)>'
ITEMS = [
    Item(f"q{i}", f"question {i}", answers=("a | b",), gold=(("p0",),), type="odd" if i % 2 else "even")
    for i in range(12)
]


@step
def first(query: Query) -> Ranking:
    return Ranking(query, (Hit(Node("p0", EVIL), 2.0), Hit(Node("p1", "other"), 1.0)), EVIL)


@step
def says(ranking: Ranking) -> Answer:
    return Answer(f"It is {EVIL}", evidence=ranking)


@step
def second(query: Query) -> Ranking:
    if query.text.endswith("3"):
        raise QueryError(f"broken {EVIL}")
    return first(query).but(hits=first(query).hits[1:])


@pytest.fixture
def report() -> Report:
    flows: dict[str, Operator[Query, Any]] = {"good & <b>": first >> says, "worse": second}
    return Experiment(
        flows, [*ITEMS, Item("q12", EVIL, gold=(("p0",),))], parse_measures("R@5,MRR,Calls"), data="d|e"
    ).run()


class Page(HTMLParser):
    """Tags and where they lead."""

    VOID = frozenset(("meta", "input", "br", "img", "link"))

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.leads: list[str] = []
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.leads += [
            value or "" for name, value in attrs if name in ("src", "href", "action", "data") or name[:2] == "on"
        ]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_needs_nothing_else_and_runs_nothing_of_what_it_shows(report: Report) -> None:
    page = Page(html(report))
    assert page.open == []
    assert page.leads == []
    assert page.tags.count("script") == 1
    assert "img" not in page.tags
    assert "default-src 'none'" in html(report)


def test_the_page_shows_every_question_with_all_that_came_of_it(report: Report) -> None:
    text = html(report)
    assert text.count('<details class="question"') == 13
    assert text.count('data-failed="1"') == 1
    assert text.count('data-differ="1"') == 13
    for words in (
        "QueryError: broken &lt;script&gt;",
        "gold passages: p0",
        "answers: a | b",
        "R@5 100.0",
        "It is &lt;script",
    ):
        assert words in text
    assert text.count("<svg") == 3 + 3 + 1
    assert "good &amp; &lt;b&gt; beats worse on R@5 by 100.0" in text


def test_the_steps_of_a_question_stand_in_the_page(tmp_path: Path) -> None:
    with Runs(tmp_path / "runs.db") as runs:
        whole = Experiment({"it": first >> says}, ITEMS, parse_measures("R@5"))
        report = whole.run(run=Run(journal=runs.journal))
        runs.journal.flush()

        def traces(run: str, lane: int) -> list[object]:
            return [span for span in runs.journal.spans(run) if span.lane == lane]

        text = html(report, traces)  # type: ignore[arg-type]
    assert text.count("3 steps, run ") == len(ITEMS)
    assert re.search(r"<pre>Then  [\d.]+ ms\n  \S*first  ", text)
    assert "3 steps" not in html(report)


def test_markdown_has_the_verdicts_and_tables_that_stay_tables(report: Report) -> None:
    text = markdown(report)
    assert "- good & <b> beats worse on R@5 by 100.0" in text
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert rows
    assert all(line.endswith("|") for line in rows)
    assert "**worse: 1 of 13 questions failed and score 0; the first, q3" in text
    assert "## Slices" in text


def test_one_flow_has_a_report_too() -> None:
    report = Experiment({"one": first}, ITEMS[:1], parse_measures("R@5")).run()
    assert "Verdicts" not in html(report)
    assert Page(html(report)).open == []
    assert "# 1 question " in markdown(report)
    assert "?: an end" not in markdown(report)


def test_an_end_that_is_not_known_is_explained() -> None:
    report = Experiment({"good": first}, ITEMS[:1], parse_measures("R@5,ATC")).run()
    assert "| ATC | 0 [0, ?] |" in markdown(report)
    for page in (markdown(report), html(report)):
        assert "the 95 % interval. ?: the bound cannot be estimated" in page


def test_a_cost_that_never_varies_has_no_interval() -> None:
    report = Experiment({"good": first}, ITEMS, parse_measures("R@5,Calls")).run()
    assert "| Calls | 1 |" in markdown(report)
    assert report.flows[0].json()["measures"]["Calls"] == {
        "mean": 1.0, "low": 1.0, "high": 1.0, "n": len(ITEMS), "undetermined": 0
    }  # fmt: skip


def test_a_measure_that_no_flow_defines_has_no_plot_and_no_verdict() -> None:
    @step
    def abstains(query: Query) -> Answer:
        return Answer("I do not know.", evidence=Ranking(query, ()), stop_reason="abstained")

    @step
    def says_nothing(query: Query) -> Answer:
        return Answer("", evidence=Ranking(query, ()), stop_reason="abstained")

    items = [Item(f"q{i}", "?", answers=("Nokia",)) for i in range(5)]
    report = Experiment({"one": abstains, "two": says_nothing}, items, parse_measures("EM,Risk")).run()
    assert report.flows[0].intervals[1] is None
    assert {comparison.measure for comparison in report.comparisons} == {"EM"}
    assert "Risk" in html(report)
    assert "| Risk | – | – |" in markdown(report)


def test_questions_are_filtered_by_type_and_what_stands_beside_them_is_said(report: Report) -> None:
    page = html(report)
    assert re.findall(r'<option value="([^"]*)">', page) == ["*", "", "even", "odd"]
    assert page.count('data-kinds="[&quot;odd&quot;]"') == 6
    assert "Beside each question: R@5, or the first that says anything of it, of good &amp; &lt;b&gt;, worse." in page


SURE = (0.9, 0.8, 0.7, 0.6, 0.5)
RIGHT = (True, True, False, True, False)


@step
def sure_by_number(query: Query) -> Answer:
    """Right at the first, second and fourth question; the fifth is not answered."""
    n = int(query.text.split()[1])
    ranking = Ranking(query, (Hit(Node("p0", "text"), SURE[n]),))
    answer = Answer("a" if RIGHT[n] else "b", evidence=ranking)
    return answer.but(stop_reason="abstained") if n == 4 else answer


def test_risk_is_drawn_against_coverage_where_abstaining_is_measured() -> None:
    items = [Item(f"q{n}", f"question {n}", answers=("a",)) for n in range(5)]
    report = Experiment({"sure": sure_by_number}, items, "AURC,EM").run()
    # by hand: of the first one, two, three and four answers 0, 0, 1/3 and 1/4 are wrong; the fifth is no answer
    ((measure, flow, points),) = report.curves
    assert (measure, flow) == ("AURC", "sure")
    assert [(round(x, 4), round(y, 4)) for x, y in points] == [(0.2, 0), (0.4, 0), (0.6, 0.3333), (0.8, 0.25)]
    page = html(report)
    assert "<h2>Risk and coverage</h2>" in page
    ((line,),) = [re.findall(r'<polyline points="([^"]+)"', page)]
    places = [tuple(map(float, place.split(","))) for place in line.split()]
    assert [x for x, _ in places[:4]] == [94.0, 142.0, 190.0, 238.0]  # 46 + 240 · coverage
    assert [y for _, y in places[:4]] == [250.0, 250.0, 90.0, 130.0]  # 10 + 240 · (1 - risk / 0.5)
    assert "risk 25.0 at 80.0" in page
    assert Page(page).open == []
    assert "Risk and coverage" not in html(Experiment({"sure": sure_by_number}, items, "EM").run())
