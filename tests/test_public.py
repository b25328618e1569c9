"""The public names: lazily imported, complete, and cheap."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import spolia
from tests import stubs
from tests.cases import check_each


@check_each("package", list(stubs.packages()))
def test_a_package_gives_each_of_its_public_names(package: str) -> None:
    public: Any = importlib.import_module(package)
    for name, module in stubs.public(package).items():
        assert getattr(public, name) is getattr(importlib.import_module(module), name)


def test_a_name_that_is_not_there_is_told_with_where_it_is() -> None:
    package: Any = spolia
    with pytest.raises(AttributeError, match="spolia has no 'BM52'"):
        _ = package.BM52
    with pytest.raises(AttributeError, match=r"Write: from spolia\.retrieval import Phrase"):
        _ = package.Phrase
    with pytest.raises(ImportError, match=r"Write: from spolia\.retrieval import Phrase"):
        exec("from spolia import Phrase")
    assert not hasattr(package, "Phrase")


@check_each("package", list(stubs.packages()))
def test_type_checkers_see_the_same_names(package: str) -> None:
    assert stubs.file_of(package).read_text() == stubs.stub(package), "python -m tests.stubs writes it"


HEAVY = ("numpy", "tantivy", "onnxruntime", "tokenizers", "urllib3", "yaml", "click", "pydantic", "rich", "sqlite3",
         "selectolax",
         "email.message", "zipfile", "importlib.metadata", "concurrent.futures", "logging", "html.entities", "textwrap",
         "difflib", "calendar", "spolia.indexing.sync.sync_run")  # fmt: skip


README = next(
    line
    for line in Path(spolia.__file__).parents[2].joinpath("README.md").read_text("utf-8").splitlines()
    if line.startswith("from spolia import ")
)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "allowed"),
    [("import spolia", ()), ("from spolia import Query, BM25, Reader", ("sqlite3",)), (README, ("sqlite3",))],
)
def test_importing_loads_nothing_heavy(code: str, allowed: tuple[str, ...]) -> None:
    program = f"import sys\n{code}\nprint(*[name for name in {HEAVY!r} if name in sys.modules])"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert set(ran.stdout.split()) <= set(allowed)


@pytest.mark.slow
def test_every_module_states_what_it_is_for() -> None:
    for path in Path(spolia.__file__).parent.rglob("*.py"):
        assert ast.get_docstring(ast.parse(path.read_text())), path
