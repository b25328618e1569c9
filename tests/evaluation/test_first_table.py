"""The first table: its page says what its numbers are."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]
RESULT = ROOT / "benchmarks" / "results" / "first_table.json"


@pytest.fixture
def table_module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setattr(sys, "path", [str(ROOT / "benchmarks"), *sys.path])
    import importlib

    return importlib.import_module("first_table_page")


def test_the_page_is_made_from_the_numbers(table_module: ModuleType) -> None:
    assert (ROOT / "benchmarks" / "results" / "first_table.md").read_text() == table_module.page(
        json.loads(RESULT.read_text())
    )


def test_every_set_with_a_reference_is_compared_and_differences_are_explained(table_module: ModuleType) -> None:
    sets = json.loads(RESULT.read_text())["sets"]
    assert set(table_module.REFERENCE) == set(sets)
    for references, measure in ((table_module.REFERENCE, "R"), (table_module.REFERENCE_FULL, "full")):
        rows = list(table_module.agreements(sets, references, measure))
        assert {name for name, *_ in rows} == set(references)
        for name, flow, *_, agreement in rows:
            assert agreement == "yes" or re.match("no[:;] .", agreement), (name, flow)


@pytest.mark.parametrize(
    ("plain", "said"), [(0.72, "0, which agrees"), (0.6, "does not explain all of it"), (None, "not")]
)
def test_why_a_number_differs_is_read_from_the_numbers(
    table_module: ModuleType, plain: float | None, said: str
) -> None:
    def recall_row(mean: float) -> dict[str, dict[str, float]]:
        return {"R@2": {"mean": mean, "low": mean - 0.02, "high": mean + 0.02}}

    flows = {"bm25": recall_row(0.82)} | ({table_module.PLAIN: recall_row(plain)} if plain else {})
    row = {"n": 1000, "data": "arcd", "retrieval": {"flows": flows}}
    assert said in table_module.why("bm25", row, ["R@2"], [72.5])


def test_a_set_without_vectors_is_named_with_how_to_measure_it(table_module: ModuleType) -> None:
    row = {"default_is": "bm25: why", "retrieval": {"flows": {"bm25": {}}}}
    [message] = table_module.left_out({"arcd": row})
    assert "first_table.py arcd`" in message
    assert list(table_module.unknown({"arcd": row})) == [("arcd", "why")]


def test_where_something_was_chosen_the_table_says_so(table_module: ModuleType) -> None:
    sets = json.loads(RESULT.read_text())["sets"]
    assert {name for name, row in sets.items() if row["retrieval"]["chosen_on"]} == {
        "hotpotqa",
        "squad2_dev",
        "musique",
    }
    assert {name for name, *_ in table_module.scores(sets) if name.endswith("†")} == {
        "hotpotqa †",
        "squad2_dev †",
        "musique †",
    }


@pytest.mark.parametrize(
    ("ours", "reference", "drawn", "agrees"),
    [((0.5, 0.4, 0.6), 59.0, False, True), ((0.5, 0.4, 0.6), 63.0, False, False), ((0.5, 0.4, 0.6), 63.0, True, True)],
)
def test_agreement(
    table_module: ModuleType, ours: tuple[float, float, float], reference: float, drawn: bool, agrees: bool
) -> None:
    assert table_module.agrees(dict(zip(("mean", "low", "high"), ours, strict=True)), reference, drawn) is agrees
