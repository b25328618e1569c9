"""`spolia check` and `spolia show`: nothing is opened, nothing is spent."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from spolia.cli.options import FLOWS
from spolia.flow_files.built_in_flows import BUILT_IN
from spolia.flows.catalogue import MODULES
from spolia.indexing.sync.sync import sync
from spolia.stores.corpus import Corpus
from tests.cases import check_each

from .conftest import Spolia


@pytest.fixture
def small_store(tmp_path: Path) -> Path:
    """A small store."""
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "salt.txt").write_text("Salt is dug in mines.")
    sync(tmp_path / "notes", Corpus(str(tmp_path / "notes.spolia")))
    return tmp_path / "notes.spolia"


@check_each("flow", BUILT_IN)
def test_every_built_in_flow_has_no_problem(spolia: Spolia, flow: str) -> None:
    ran = spolia("check", flow, "--json")
    assert ran.code == 0
    assert (ran.json["ok"], ran.json["takes"], ran.json["problems"]) == (True, "Query", [])
    assert spolia("check", flow).out.endswith("no problem found\n")


def test_a_flow_can_be_shown_written_changed_and_shown_again(spolia: Spolia, tmp_path: Path) -> None:
    output = spolia("show", "hybrid", "--json").json
    assert output["tree"].startswith("Then: Query → Ranking")
    assert output["mermaid"].startswith("flowchart")
    file = tmp_path / "mine.yaml"
    file.write_text(spolia("show", "hybrid", "--yaml").out.replace("top_k: 100", "top_k: 7"))
    assert "top_k=7" in spolia("show", file).out
    assert spolia("show", "hybrid", "--mermaid").out.strip() == output["mermaid"].strip()


def test_problems_are_listed_and_decide_the_exit_code(spolia: Spolia, tmp_path: Path) -> None:
    (tmp_path / "idle.yaml").write_text("Guard: {body: {BM25: {group: {use: chunks}}}}")
    ran = spolia("check", tmp_path / "idle.yaml")
    assert ran.code == 2
    assert "Guard has neither a limit nor a fallback" in ran.out
    assert spolia("check", tmp_path / "idle.yaml", "--json").json["problems"][0]["message"].startswith("Guard")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("BM52: {group: {use: chunks}}", "BM52"),
        ("BM25: {group: {use: chunks}, topk: 5}", "topk"),
        ("BM25: {group: {use: chunks}, top_k: many}", "many"),
        ("BM25: {group: {use: chunks}, top_k: 5, top_k: 6}", "second time"),
        ("BM25: {group: {use: chunks}, top_k: .nan}", "top_k"),
        ("BM25: &a {group: *a}", "cycle"),
        ("", "empty"),
        ("BM25: {group: {use: notes}}", "notes"),
        ("[", "not YAML"),
    ],
)
def test_a_file_that_is_no_flow_is_refused_in_one_line(spolia: Spolia, tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "flow.yaml").write_text(text)
    ran = spolia("check", tmp_path / "flow.yaml")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("error: ")
    assert ran.err.count("\n") == 1
    assert says in ran.err


def test_an_unknown_flow_is_told_which_there_are(spolia: Spolia) -> None:
    ran = spolia("show", "bm52", "--json")
    assert ran.code == 2
    assert ran.json["exit_code"] == 2
    assert "Did you mean bm25?" in ran.json["error"]["message"]
    assert "`spolia flows` lists" in ran.json["error"]["message"]


@pytest.mark.slow
def test_a_file_that_asks_for_a_model_is_told_the_options(spolia: Spolia, small_store: Path, tmp_path: Path) -> None:
    (tmp_path / "f.yaml").write_text("[BM25: {group: {use: chunks}}, Reader: {llm: {use: llm}}]")
    for ran in (
        spolia("search", "?", "--store", small_store, "--flow", tmp_path / "f.yaml"),
        spolia("ask", "?", "--store", small_store, "--flow", tmp_path / "f.yaml"),
    ):
        assert ran.code == 2
        assert "{use: llm} needs --llm URL --model NAME" in ran.err
        assert "load(" not in ran.err


@pytest.mark.slow
def test_the_schema_of_flow_files_can_be_printed(spolia: Spolia) -> None:
    ran = spolia("show", "--schema")
    assert ran.code == 0
    assert json.loads(ran.out) == spolia("show", "--schema", "--json").json
    assert "operator.BM25" in json.loads(ran.out)["$defs"]


def test_to_show_nothing_is_told_what_to_write(spolia: Spolia) -> None:
    ran = spolia("show")
    assert (ran.code, ran.out) == (2, "")
    assert "spolia show hybrid" in ran.err


def test_help_names_the_first_built_in_flows_and_the_command_that_lists_the_others() -> None:
    first, published = list(BUILT_IN)[:6], set(BUILT_IN) - {"bm25", "dense", "hybrid", "multi-hop", "default"}
    assert ", ".join(first) in FLOWS
    assert "`spolia flows`" in FLOWS
    assert published == set(MODULES)
