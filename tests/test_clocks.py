"""No test depends on how fast the machine is: none asserts a time, none sets a deadline of its own."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
CLOCKS = {
    f"{name}{unit}" for name in ("perf_counter", "monotonic", "process_time", "thread_time") for unit in ("", "_ns")
}


def reads_clock(node: ast.AST, names: set[str]) -> bool:
    """Whether an expression reads a clock, or a name that was made of one."""
    for part in ast.walk(node):
        callee = part.func if isinstance(part, ast.Call) else None
        name = callee.attr if isinstance(callee, ast.Attribute) else getattr(callee, "id", "")
        if name in CLOCKS or (isinstance(part, ast.Name) and part.id in names):
            return True
    return False


def asserted_times(source: str) -> Iterator[int]:
    """The lines of assertions on times that a function has measured."""
    for function in ast.walk(ast.parse(source)):
        if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        names = set[str]()
        for node in ast.walk(function):
            if isinstance(node, ast.Assign) and reads_clock(node.value, names):
                names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
        yield from (
            node.lineno for node in ast.walk(function) if isinstance(node, ast.Assert) and reads_clock(node.test, names)
        )


def test_the_rule_sees_an_assertion_on_a_time() -> None:
    source = "def f():\n    began = time.monotonic()\n    took = time.monotonic() - began\n    assert took < 4\n"
    assert list(asserted_times(source)) == [4]


@pytest.mark.slow
def test_no_test_asserts_a_time_or_sets_a_deadline() -> None:
    sources = {
        path.relative_to(TESTS).as_posix(): path.read_text("utf-8")
        for path in TESTS.rglob("*.py")
        if path.name != Path(__file__).name
    }
    lines_found = [f"{name}:{line}" for name, source in sources.items() for line in asserted_times(source)]
    lines_found += [
        name for name, source in sources.items() if "deadline=" in source or "suppress_health_check=" in source
    ]
    assert sorted(lines_found) == [], (
        "Assert what happened; the profile in conftest.py sets no limit of time for examples."
    )
