"""A hash of a class of Spolia as it is written, with what it names where results are made."""

import ast
import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from spolia.core.fingerprint.source_text import parsing

COMPUTED_OTHERWISE = {"composes", "together", "alike", "is_nested"}
"""How results are shared and swept; property tests hold that they stay the same."""
BESIDE_THE_RESULT = COMPUTED_OTHERWISE.union(
    ["fuses", "beyond", "version", "waits", "needs", "takes", "gives", "tail", "calls", "fanout", "short", "__repr__"]
)
_FOLLOWED = """
ranking evaluation.measures core.sentences core.combinators core.sweepable retrieval generation orchestration pre_ post_
indexing.splitters indexing.structure indexing.transforms
"""
FOLLOWED = tuple(f"spolia.{part}" for part in _FOLLOWED.split())


@dataclass(frozen=True)
class Module:
    """The functions, classes and constants of a module, and what it imports, each by name."""

    statements: dict[str, ast.AST]
    imports: dict[str, str]
    parts: dict[tuple[str, bool], tuple[str, list[str]]] = field(default_factory=dict)

    @classmethod
    def parsed(cls, text: str) -> "Module":
        tree = ast.parse(text)
        found: dict[str, ast.AST] = {}
        for node in tree.body:
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                found[node.name] = node
            elif isinstance(node, (ast.Assign, ast.AnnAssign)):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                found.update((target.id, node) for target in targets if isinstance(target, ast.Name))
        sources = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module]
        return cls(found, {item.name: str(node.module) for node in sources for item in node.names})

    def part(self, name: str, root: bool) -> tuple[str, list[str]]:
        """A statement in the form that is hashed, and what it names; `root` for the class that is asked for."""
        if (name, root) not in self.parts:  # most classes name the same ones
            named = set[str]()
            self.parts[name, root] = repr(_plain(self.statements[name], named, root)), sorted(named - {"Operator"})
        return self.parts[name, root]


@cache
def definition_digest(cls: type) -> bytes:
    """A hash of what a class of Spolia does; `spolia.core.fingerprint` says what is looked at."""
    digest = hash_of(cls.__module__, cls.__qualname__, module)
    return bytes.fromhex(_former().get(digest.hex(), "")) or digest


@cache
def _former() -> dict[str, str]:
    """Read which digests stand for the same code as an earlier one, which stores, caches and studies hold.

    `python -m tests.versions --equal` writes them, where code was moved or renamed and gives the same results.
    """
    table: dict[str, str] = json.loads(Path(__file__).with_name("former_digests.json").read_text("utf-8"))
    return table


def hash_of(home: str, name: str, module: Callable[[str], Module]) -> bytes:
    """Hash of a class and of all that it names, directly or not, in the packages that are followed."""
    wanted, done = [(home, name)], dict[tuple[str, str], str]()
    while wanted:
        where, part = place = wanted.pop()
        source = module(where)
        if part in source.imports and source.imports[part].startswith(FOLLOWED):
            wanted.append((source.imports[part], part))
        if place in done or part not in source.statements:
            continue
        done[place], used = source.part(part, place == (home, name))
        wanted += [(where, one) for one in used]
    text = "\n".join(sorted(f"{part}={plain}" for (_, part), plain in done.items()))
    return hashlib.sha256(text.encode()).digest()[:8]


@cache
def module(name: str) -> Module:
    with parsing:
        return Module.parsed(Path(str(import_module(name).__file__)).read_text("utf-8"))


def _plain(node: Any, named: set[str], root: bool = False) -> Any:
    """The tree as nested tuples that are the same in every version of Python; `named` gets the names in it."""
    if isinstance(node, list):
        return tuple([_plain(item, named) for item in node])
    if not isinstance(node, ast.AST):
        return (type(node).__name__, repr(node))
    if isinstance(node, ast.Raise):
        return ("Raise",)  # what an error says does not change a result
    if isinstance(node, ast.Name):
        named.add(node.id)
    found: list[Any] = [type(node).__name__]
    for name in node._fields:
        value = getattr(node, name, None)
        if value is None or value == [] or name in ("annotation", "returns", "ctx", "kind", "type_comment"):
            continue
        if name == "body" and isinstance(value, list):
            value = [item for item in value if _counts(item, root)]
        found.append((name, _plain(value, named)))
    return tuple(found)


def _counts(item: ast.stmt, root: bool) -> bool:
    """Whether a statement has a part in the result: no docstring, and no method for wiring and drawing."""
    if isinstance(item, ast.Expr) and isinstance(item.value, ast.Constant):
        return False
    target = getattr(item, "target", None)
    return getattr(item, "name", getattr(target, "id", None)) not in (BESIDE_THE_RESULT if root else COMPUTED_OTHERWISE)
