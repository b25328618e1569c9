"""`spolia check` and `spolia show`: nothing is opened, nothing is spent."""

from __future__ import annotations

from pathlib import Path

import pytest

from spolia.flows.builtin import BUILT_IN

from .conftest import Spolia


@pytest.mark.parametrize("flow", BUILT_IN)
def test_every_built_in_flow_has_no_problem(spolia: Spolia, flow: str) -> None:
    ran = spolia("check", flow, "--json")
    assert ran.code == 0
    assert (ran.json["ok"], ran.json["takes"], ran.json["problems"]) == (True, "Query", [])
    assert spolia("check", flow).out.endswith("no problem found\n")


def test_a_flow_can_be_shown_written_changed_and_shown_again(spolia: Spolia, tmp_path: Path) -> None:
    shown = spolia("show", "hybrid", "--json").json
    assert shown["tree"].startswith("Then: Query → Ranking")
    assert shown["mermaid"].startswith("flowchart")
    file = tmp_path / "mine.yaml"
    file.write_text(spolia("show", "hybrid", "--yaml").out.replace("top_k: 100", "top_k: 7"))
    assert "top_k=7" in spolia("show", file).out
    assert spolia("show", "hybrid", "--mermaid").out.strip() == shown["mermaid"].strip()


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
    assert "bm25, dense, hybrid" in ran.json["error"]["message"]
