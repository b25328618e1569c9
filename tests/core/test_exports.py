"""The public names: lazily imported, complete, and cheap."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import spolia


def test_every_public_name_can_be_imported() -> None:
    for name, module in spolia.MODULE_OF.items():
        assert getattr(spolia, name) is getattr(importlib.import_module(module), name)
    with pytest.raises(AttributeError, match="spolia has no 'BM52'"):
        _ = spolia.BM52


def test_type_checkers_see_the_same_names() -> None:
    source = ast.parse(Path(spolia.__file__).read_text())
    checking = next(node for node in source.body if isinstance(node, ast.If))
    seen = {
        (alias.name, node.module) for node in checking.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    assert seen == set(spolia.MODULE_OF.items())


HEAVY = ("numpy", "tantivy", "onnxruntime", "tokenizers", "urllib3", "yaml", "typer", "rich", "sqlite3", "selectolax")


@pytest.mark.parametrize(
    ("code", "allowed"), [("import spolia", ()), ("from spolia import Query, BM25, Reader", ("sqlite3",))]
)
def test_importing_loads_nothing_heavy(code: str, allowed: tuple[str, ...]) -> None:
    program = f"import sys\n{code}\nprint(*[name for name in {HEAVY!r} if name in sys.modules])"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert set(ran.stdout.split()) <= set(allowed)


def test_every_module_states_what_it_is_for() -> None:
    for path in Path(spolia.__file__).parent.rglob("*.py"):
        assert ast.get_docstring(ast.parse(path.read_text())), path
