"""`spolia trace` and `spolia show --svg`: runs and flows that can be seen, compared and run again."""

from __future__ import annotations

import json
import re
import sqlite3
from contextlib import suppress
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from spolia import step
from spolia.cli.user_modules import load_user_modules
from spolia.core.operator import Operator
from spolia.journal import Runs
from spolia.models import Lines, Role, ScriptedModel
from spolia.models.prompting.role import Ask, Brief
from spolia.run import Run
from spolia.types import Answer, Hit, Node, Query, Ranking
from tests.records import tamper

from .conftest import Spolia
from .test_search import store as store  # a fixture

pytestmark = pytest.mark.slow


def ranking(*names: str, text: str = "why?") -> Ranking:
    return Ranking(
        Query(text), tuple(Hit(Node(n, f"text of {n}", uri=f"{n}.md"), 1 / r) for r, n in enumerate(names, 1))
    )


@step
def turned(value: Ranking) -> Ranking:
    return ranking(*[hit.node.id for hit in reversed(value.hits)][:2], text=value.query.text)


@step
def asked(value: Ranking) -> Any:
    role = Role("Name parts.\n<question>{{question}}</question>", Lines())
    return Ask(ScriptedModel(("one\ntwo",)), role)(Brief.from_texts(question=value.query.text))


def record_run(path: Path, flow: Operator[Any, Any], value: Any, values: bool = True, **run: Any) -> str:
    with Runs(path, values=values) as runs, Run(journal=runs.journal, **run) as current_run:
        flow(value)
    return current_run.id


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    record_run(tmp_path / "runs.db", turned >> asked, ranking("a", "b", "c"))
    return tmp_path / "runs.db"


def test_a_run_is_shown_with_passages_before_and_after_their_moves_and_the_exact_prompts(
    spolia: Spolia, journal: Path
) -> None:
    text = spolia("trace", "last", "--journal", journal).out
    assert "3 → 2 hits" in text
    assert re.search(r"1 +↑2 +1 +c\.md", text)
    assert re.search(r"2 +=", text)
    assert "dropped: a.md (was 1)" in text
    assert "user: Name parts.\n" in text
    assert "<question>why?</question>" in text
    assert "reply: one\n" in text
    span = next(
        s for s in spolia("trace", "last", "--journal", journal, "--json").json["spans"] if s["step"].endswith("turned")
    )
    assert [row["id"] for row in span["before"]] == ["a", "b", "c"]
    assert [(row["id"], row["rank"], row["before"]) for row in span["after"]] == [("c", 1, 3), ("b", 2, 2)]
    assert span["operator"] is not None


def test_searching_keeps_values_unless_it_is_switched_off(spolia: Spolia, store: Path) -> None:
    spolia("search", "tide", "--store", store, "--flow", "bm25")
    (span,) = spolia("trace", "last", "--store", store, "--json").json["spans"]
    assert span["after"][0]["name"] == "sea/tides.md"
    assert span["input"]["Query"]["text"] == "tide"
    spolia("search", "owls", "--store", store, "--flow", "bm25", "--no-keep-values")
    ran = spolia("trace", "last", "--store", store, "--json").json
    assert ran["spans"][0]["input"] is None
    assert [row["id"] for row in ran["spans"][0]["after"]] == ["n2"]
    assert "kept no values" in ran["lost"]


def test_values_are_shown_to_those_who_may_read_what_the_asker_could(spolia: Spolia, tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    record_run(path, turned >> asked, ranking("a", "b"), principal="ann", groups=("staff",))
    page = tmp_path / "run.html"
    for access in ((), ("--access", "ann"), ("--access", "bob", "--access", "staff")):
        outputs = [
            spolia("trace", "last", "--journal", path, *access).out,
            spolia("trace", "last", "--journal", path, "--json", *access).out,
        ]
        spolia("trace", "last", "--journal", path, "--html", page, *access)
        spolia_diff = spolia("trace", "last", "--diff", "last", "--journal", path, "--json", *access).out
        for text in (*outputs, spolia_diff, page.read_text()):
            assert "text of" not in text
            assert "a.md" not in text
            assert "Name parts" not in text
        assert spolia("trace", "last", "--replay", 2, "--journal", path, *access).code == 2
    full = ("--access", "staff", "--access", "ann", "--access", "more")
    assert "text of" in spolia("trace", "last", "--journal", path, "--json", *full).out


@step
def rewritten(query: Query) -> Query:
    return query


@step
def told(query: Query) -> Answer:
    if "fail" in query.text:
        raise ValueError(f"{query.text}: the salary is nine thousand")
    return Answer("The salary is nine thousand.", stop_reason="answered")


@step
def decomposed(query: Query) -> Ranking:
    return searched_for(Query("where does Olsen work?"))


@step
def searched_for(query: Query) -> Ranking:
    return ranking("a", text=query.text)


@step
def read(value: Ranking) -> Answer:
    return Answer("Espoo.", stop_reason="answered")


@pytest.mark.parametrize("flow", [decomposed >> read, told], ids=["with sub-questions", "without a search"])
def test_a_run_is_named_by_what_the_user_asked(spolia: Spolia, tmp_path: Path, flow: Operator[Any, Any]) -> None:
    path, page = tmp_path / "runs.db", tmp_path / "run.html"
    question = "Where is the seat of Olsen's employer?"
    record_run(path, flow, Query("where is its seat?", question=question))
    on = ("--journal", path)
    assert spolia("trace", *on, "--json").json["runs"][0]["question"] == question
    assert spolia("trace", "last", *on, "--json").json["questions"] == [question]
    assert f"“{question}”" in spolia("trace", "last", *on).out
    assert question[:20] in spolia("trace", *on).out
    spolia("trace", "last", *on, "--html", page)
    assert "<h2>“Where is the seat of Olsen&#x27;s employer?”</h2>" in page.read_text()


def test_a_run_whose_inputs_are_not_kept_says_so_beside_what_was_searched(spolia: Spolia, tmp_path: Path) -> None:
    record_run(tmp_path / "runs.db", decomposed >> read, Query("Where is the seat of his employer?"), values=False)
    on = ("--journal", tmp_path / "runs.db")
    (row,) = spolia("trace", *on, "--json").json["runs"]
    assert (row["question"], row["searched"]) == ("", "where does Olsen work?")
    assert "question not kept; first search: “where does Olsen work?”" in spolia("trace", "last", *on).out
    assert "question not kept" in spolia("trace", *on).out


@pytest.mark.parametrize("values", [True, False])
@pytest.mark.parametrize("question", ["what does Olsen earn?", "fail at what Olsen does earn"])
def test_what_another_user_asked_and_was_told_is_not_shown(
    spolia: Spolia, tmp_path: Path, question: str, values: bool
) -> None:
    path, page = tmp_path / "runs.db", tmp_path / "run.html"
    with suppress(ValueError):
        record_run(path, rewritten >> told, Query(question), principal="ann", values=values)
    for access, is_shown in (((), False), (("--access", "ann"), True)):
        on = ("--journal", path, *access)
        spolia("trace", "last", "--html", page, *on)
        outputs = [spolia("trace", "last", *on, *more).out for more in ((), ("--json",))]
        listed = [spolia("trace", *on).out, spolia("trace", *on, "--json").out]
        assert all(("nine thousand" in text) is is_shown for text in (*outputs, page.read_text()))
        names = ["Olsen" in text for text in (*outputs, *listed, page.read_text())]
        assert all(names) if is_shown and values else is_shown or not any(names)


class Page(HTMLParser):
    """What a page loads, and whether its elements are closed."""

    def __init__(self) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.loads += [f"{tag} {name}" for name, _ in attrs if name in ("src", "href", "onclick")]
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_holds_the_run_and_loads_nothing(spolia: Spolia, tmp_path: Path) -> None:
    path, page = tmp_path / "runs.db", tmp_path / "run.html"
    record_run(path, turned >> asked, ranking("a", "b<script>alert(1)</script>", text="<b>why</b>?"))
    ran = spolia("trace", "last", "--journal", path, "--html", page, "--json")
    assert (ran.code, ran.json["html"]) == (0, str(page))
    text = page.read_text()
    parsed = Page()
    parsed.feed(text)
    assert (parsed.loads, parsed.open) == ([], [])
    assert "<script" not in text
    assert "<b>why" not in text
    for part in ("&lt;b&gt;why&lt;/b&gt;?", "turned", "a.md", "Name parts.", "↑1", "text of a"):
        assert part in text


def test_two_runs_are_compared_step_by_step(spolia: Spolia, tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    first = record_run(path, turned, ranking("a", "b", "c"))
    second = record_run(path, turned >> asked, ranking("b", "a", "d"))
    comparison = spolia("trace", "--diff", first, second, "--journal", path, "--json").json
    assert (comparison["before"], comparison["after"]) == (first, second)
    assert [(compared_step["before"], compared_step["after"]) for compared_step in comparison["steps"]] == [
        (None, 1),
        (None, 2),
        (None, 3),
        (None, 4),
        (1, None),
    ]
    third = record_run(path, turned, ranking("c", "a", "b"))
    comparison = spolia("trace", third, "--diff", first, "--journal", path, "--json").json
    (change,) = comparison["steps"]
    assert change["changes"]["documents"] == {"new": ["a.md"], "gone": ["c.md"], "moved": [["b.md", 2, 1]]}
    text = spolia("trace", third, "--diff", first, "--journal", path).out
    assert "moved: b.md 2 → 1" in text
    same = spolia("trace", first, "--diff", first, "--journal", path)
    assert "are the same" in same.err


def test_a_step_is_run_again_with_what_it_took_or_with_something_else(spolia: Spolia, store: Path) -> None:
    spolia("search", "tide", "--store", store, "--flow", "bm25")
    replay = spolia("trace", "last", "--replay", 1, "--store", store, "--json").json
    assert replay["same"] is True
    other_replay = spolia("trace", "last", "--replay", 1, "--input", "owls", "--store", store, "--json").json
    assert other_replay["same"] is None
    assert "n2" in json.dumps(other_replay["output"])
    assert "owls.pdf" in spolia("trace", "last", "--replay", 1, "--input", "owls", "--store", store).out
    wrong = spolia("trace", "last", "--replay", 1, "--input", "{", "--store", store)
    assert (wrong.code, "cannot be read" in wrong.err) == (2, True)
    none = spolia("trace", "last", "--replay", 9, "--store", store)
    assert (none.code, "has no step 9" in none.err) == (2, True)


def test_several_rankings_of_a_step_are_shown_as_rankings(spolia: Spolia, store: Path, tmp_path: Path) -> None:
    arms = "{BM25: {group: {use: chunks}, source: words}}, {TFIDF: {group: {use: chunks}, source: terms}}"
    (tmp_path / "two.yaml").write_text(f"- Branch: [{arms}]\n- ReciprocalRankFusion\n")
    spolia("search", "tide", "--store", store, "--flow", tmp_path / "two.yaml")
    steps = spolia("trace", "last", "--store", store).out.splitlines()
    number = next(line.partition("#")[2].split()[0] for line in steps if "Branch" in line)
    output = spolia("trace", "last", "--replay", number, "--store", store).out
    assert "Ranking(" not in output
    assert [line for line in output.splitlines() if line in ("words", "terms")] == ["words", "terms"]
    assert output.count("sea/tides.md, lines 4-5") == 2


def test_a_step_is_run_again_with_other_fields(spolia: Spolia, store: Path) -> None:
    spolia("search", "by the sea owls tide", "--store", store, "--flow", "bm25")
    command = ("trace", "last", "--replay", 1, "--store", store)
    whole = spolia(*command, "--json").json["output"]["Ranking"]["hits"]
    cut = spolia(*command, "--set", "top_k=1", "--json").json
    assert (len(whole) > 1, cut["output"]["Ranking"]["hits"], cut["same"]) == (True, whole[:1], None)
    for wrong, message in (
        ("top_k", "names no value"), ("top=1", "has no field 'top'"), ("top_k=few", "does not fit BM25"),
        ("top_k=-1", "does not fit BM25"),
    ):  # fmt: skip
        refused = spolia(*command, "--set", wrong)
        assert (refused.code, message in refused.err) == (2, True), refused.err


def test_a_keyword_argument_of_a_function_is_set_as_it_is_declared(spolia: Spolia, tmp_path: Path) -> None:
    (tmp_path / "ending.py").write_text(
        "from spolia import Query, step\n\n@step\ndef ended(query: Query, *, end: str = '!') -> Query:\n"
        "    return query.rewritten(query.text + end)\n"
    )
    path, options = tmp_path / "runs.db", ("--known", tmp_path / "ending.py")
    record_run(path, load_user_modules((str(options[1]),)).operators[0], Query("why"))  # type: ignore[arg-type]
    for setting, text in (("end=?", "why?"), ("end=7", "why7"), ('end="7"', "why7")):
        replay = spolia("trace", "last", "--replay", 1, "--journal", path, *options, "--set", setting, "--json").json
        assert replay["output"]["Query"]["text"] == text


def test_runs_are_those_of_the_profiles_store(
    spolia: Spolia, store: Path, journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(store.parent)
    (store.parent / "spolia.toml").write_text(f'store = "{store.name}"\n')
    spolia("search", "tide", "--flow", "bm25")
    (run,) = spolia("trace", "--json").json["runs"]
    assert run["question"] == "tide"
    (other_run,) = spolia("trace", "--journal", journal, "--json").json["runs"]
    assert other_run["run"] != run["run"]


def test_a_journal_with_changed_bytes_is_called_damaged(spolia: Spolia, tmp_path: Path) -> None:
    run, file = record_run(tmp_path / "runs.db", turned, ranking("a", "b")), tmp_path / "runs.db"
    with tamper(file) as connection:
        connection.execute("UPDATE spans SET notes = '{'")
    ran = spolia("trace", run, "--journal", file)
    assert (ran.code, ran.out) == (3, "")
    assert "is damaged" in ran.err
    assert "spolia repair --store" in ran.err


def test_the_steps_of_a_run_that_was_killed_are_shown(spolia: Spolia, tmp_path: Path) -> None:
    run, file = record_run(tmp_path / "runs.db", turned >> asked, ranking("a", "b")), tmp_path / "runs.db"
    with tamper(file) as connection:
        connection.execute("DELETE FROM spans WHERE parent = 0")  # what is around a step is written after it
    shown = spolia("trace", run, "--journal", file)
    assert shown.code == 0
    assert "turned" in shown.out


def test_a_step_of_the_users_own_needs_its_module(spolia: Spolia, tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(
        "from spolia import Query, step\n\n@step\ndef shout(query: Query) -> Query:\n"
        "    return query.rewritten(query.text.upper())\n"
    )
    path, options = tmp_path / "runs.db", ("--known", tmp_path / "own.py")
    record_run(path, load_user_modules((str(options[1]),)).operators[0], Query("why?"))  # type: ignore[arg-type]
    replay = spolia("trace", "last", "--replay", 1, "--journal", path, *options, "--json").json
    assert (replay["same"], replay["output"]["Query"]["text"]) == (True, "WHY?")


def test_a_journal_of_before_is_read_and_says_what_it_lacks(spolia: Spolia, tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    record_run(path, turned, ranking("a", "b"), values=False)
    assert not sqlite3.connect(path).execute("SELECT 1 FROM sqlite_master WHERE name LIKE 'trace%'").fetchall()
    ran = spolia("trace", "last", "--journal", path)
    assert ran.code == 0
    assert re.search(r"1 +1 +b", ran.out)
    assert "kept no values" in ran.err
    assert spolia("trace", "last", "--journal", path, "--html", tmp_path / "x.html").code == 0
    assert spolia("trace", "last", "--diff", "last", "--journal", path).code == 0
    refused = spolia("trace", "last", "--replay", 1, "--journal", path)
    assert (refused.code, "kept no values" in refused.err) == (2, True)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), "--store PATH"),
        (("--store", "x", "--journal", "y"), "not both"),
        (("--journal", "no.db"), "does not exist"),
        (("--html", "x.html"), "No run is named"),
        (("last", "--input", "x"), "Name the step"),
        (("last", "--set", "top_k=1"), "Name the step"),
    ],
)
def test_options_that_do_not_fit_are_refused(
    spolia: Spolia, journal: Path, options: tuple[str, ...], said: str
) -> None:
    place_options = () if {"--store", "--journal"} & {*options} or not options else ("--journal", str(journal))
    ran = spolia("trace", *options, *place_options)
    assert ran.code in (2, 3)
    assert said in ran.err


def test_a_flow_is_drawn_as_svg(spolia: Spolia) -> None:
    root = ElementTree.fromstring(spolia("show", "corag", "--svg").out)
    assert root.tag.endswith("svg")
    assert spolia("show", "hybrid", "--json").json["svg"].startswith("<svg")
