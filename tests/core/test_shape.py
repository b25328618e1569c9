"""The shape of the code: imports inside functions, import cycles, and how many names there are."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from spolia.core.public_names import TOP

pytestmark = pytest.mark.slow
BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def shape() -> Iterator[Any]:
    """The script, which imports modules beside it."""
    previous_modules, limit = set(sys.modules), sys.getrecursionlimit()
    sys.path.insert(0, str(BENCHMARKS))
    sys.setrecursionlimit(10_000)
    try:
        yield import_module("shape")
    finally:
        sys.setrecursionlimit(limit)
        sys.path.remove(str(BENCHMARKS))
        for name in {"shape", "limits", "results"} - previous_modules:
            sys.modules.pop(name, None)


@pytest.fixture(scope="module")
def modules(shape: Any) -> Any:
    return shape.trees()


LATE = 73
"""Pairs of a module and what it imports late; only downward. The rule: docs/contributing/architecture.md."""
CIRCLES = 0
"""Groups of modules that import each other late or for types; only downward."""


def test_few_modules_import_late(shape: Any, modules: Any) -> None:
    assert len(shape.late_import_pairs(modules)) <= LATE, "import it at the top; a large package: from spolia.deferred"


def test_no_modules_need_each_other(shape: Any, modules: Any) -> None:
    assert len(shape.circles(modules)) <= CIRCLES


def test_no_modules_import_each_other_when_they_are_loaded(shape: Any, modules: Any) -> None:
    assert shape.cycles(modules) == 0


def test_few_public_classes_share_a_name(shape: Any, modules: Any) -> None:
    assert len(shape.duplicate_classes(modules)) <= 8


def test_few_names_are_at_the_top() -> None:
    assert len(TOP) <= 60
