"""What results say of themselves is what the limits say of their numbers."""

from __future__ import annotations

import ast
import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from tests.cases import check_each

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A module beside the scripts, which are run from their folder."""
    previous_modules = set(sys.modules)
    monkeypatch.syspath_prepend(BENCHMARKS)
    yield import_module
    for name in {"limits", "results"} - previous_modules:
        sys.modules.pop(name, None)


@pytest.mark.parametrize("path", sorted((BENCHMARKS / "results").rglob("*.json")), ids=lambda path: path.stem)
def test_a_result_is_judged_by_the_limits_as_they_are(path: Path, benchmark: Any) -> None:
    judge = benchmark("limits").JUDGES.get(path.stem)
    if judge is None:
        pytest.skip("nothing is judged of it")
    result = json.loads(path.read_text())
    for part in result if isinstance(result, list) else [result]:
        judged = benchmark("results").told(judge(part))
        assert {name: part[name] for name in judged} == judged
        assert part["machine"]


def test_the_readme_names_every_result_that_is_beyond_a_limit() -> None:
    readme = (BENCHMARKS.parent / "README.md").read_text("utf-8")
    missed = readme.partition("**Targets we miss**")[2].partition("<!-- end -->")[0]
    for path in (BENCHMARKS / "results").rglob("*.json"):
        result = json.loads(path.read_text())
        beyond = any(part.get("reached") is False for part in (result if isinstance(result, list) else [result]))
        assert beyond == (f"`{path.stem}` " in missed), path.stem


def test_what_is_judged_was_measured(benchmark: Any) -> None:
    measured = {path.stem for path in (BENCHMARKS / "results").rglob("*.json")}
    assert set(benchmark("limits").JUDGES) <= measured


def test_a_limit_is_reached_at_its_bound_and_not_beyond(benchmark: Any) -> None:
    results = benchmark("results")
    numbers = {"fast": (5.0, results.most(5)), "right": (0.98, results.least(0.98)), "noted": (7, None)}
    judged = results.told(numbers)
    assert judged["reached"] is True
    assert judged["limit"] == {"fast": {"at_most": 5}, "right": {"at_least": 0.98}}
    assert results.told({**numbers, "fast": (5.01, results.most(5))})["reached"] is False
    assert results.told({"noted": (7, None)})["reached"] is None


@check_each("path", sorted(BENCHMARKS.glob("*.py")))
def test_what_a_script_imports_of_the_package_is_there(path: Path) -> None:
    for statement in ast.walk(ast.parse(path.read_text())):
        if isinstance(statement, ast.ImportFrom) and statement.module and statement.module.split(".")[0] == "spolia":
            module = import_module(statement.module)
            for alias in statement.names:
                assert hasattr(module, alias.name) or import_module(f"{statement.module}.{alias.name}")
