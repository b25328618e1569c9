"""Registry of public names and their modules: for flow files, lazy exports, type stubs and the docs.

Each line of `public_names.txt` has a module below `spolia`, and the public names that it defines.
"""

import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

_TABLE = Path(__file__).with_suffix(".txt").read_text()
_TOP = """
Answer Citation Document Failure Hit Item Message Node Query Ranking Span State Verdict Operator Retriever step Branch
Each Route Loop Explore Guard Choice Samples Best Identity check dump load decide places settle Run Budget Cache Runs
Corpus Definition sync add_texts where Field Between ChatModel EmbeddingModel MiniLM RerankModel ScriptedModel BM25
Dense HyDE MultiQuery Decompose ReciprocalRankFusion CrossEncoder Cut Reader Extract
"""

MODULE_OF: Mapping[str, str] = {
    name: f"spolia.{module}"
    for module, _, names in (line.partition(": ") for line in _TABLE.splitlines())
    for name in names.split()
}
"""Every public name, with the module that defines it."""

RENAMED: Mapping[str, str] = {"Limits": "QueryLimits", "TwoHops": "HopQuestions"}
"""Names that flow files and stores of earlier versions may hold, and what they are called now."""

TOP = frozenset(_TOP.split())
"""What `from spolia import …` offers: the first hour. The rest is imported from its package."""


def names_of(package: str) -> dict[str, str]:
    """Return the names that a package offers, with the module of each; without names of the package's own modules."""
    if package == "spolia":
        return {name: module for name, module in MODULE_OF.items() if name in TOP}
    inside = f"{package}."
    return {
        name: module
        for name, module in MODULE_OF.items()
        if module.startswith(inside) and module.removeprefix(inside).partition(".")[0] != name
    }


def exports(package: str) -> tuple[Callable[[str], object], Callable[[], list[str]], list[str]]:
    """Make `__getattr__`, `__dir__` and `__all__` of a package that imports its names on first use (PEP 562).

    Its modules are found the same way: `flow_files.prompts` imports one.
    """
    offered = names_of(package)
    public, inner = sorted(offered), submodules(package)

    def get(name: str) -> object:
        if name not in offered and not name.startswith("_") and package != "spolia":
            with suppress(AttributeError):
                return inner(name)
        if name not in offered:
            caller = sys._getframe(1).f_code.co_name  # `from package import name` drops the text of an AttributeError
            if caller == "_handle_fromlist" and name in MODULE_OF and find_spec(f"{package}.{name}") is None:
                raise ImportError(_absent(package, name, public), name=package)
            raise AttributeError(_absent(package, name, public), name=name, obj=sys.modules[package])
        value = load_name(offered[name], name)
        setattr(sys.modules[package], name, value)
        return value

    return get, lambda: public, public


def load_name(module: str, name: str) -> Any:
    """Import a module that a registry names, and return a name of it."""
    return getattr(import_module(module), name)


def submodules(package: str) -> Callable[[str], ModuleType]:
    """Make the `__getattr__` of a package that imports its modules on first use (PEP 562)."""

    def get(name: str) -> ModuleType:
        place = f"{package}.{name}"
        if name.startswith("_") or find_spec(place) is None:
            raise AttributeError(f"{package} has no {name!r}", name=name, obj=sys.modules[package])
        return import_module(place)

    return get


def _absent(package: str, name: str, public: list[str]) -> str:
    if name in MODULE_OF:
        module = MODULE_OF[name]
        lazy = ".".join(module.split(".")[:2])
        home = "spolia" if name in TOP else lazy if name in names_of(lazy) else module
        return f"{package} has no {name!r}. Write: from {home} import {name}"
    return f"{package} has no {name!r}. It has: {', '.join(public)}."
