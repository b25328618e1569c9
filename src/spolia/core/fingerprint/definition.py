"""Hash of a class of Spolia, from its definition and the definitions that it names where results are made."""

import ast
import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from spolia.core.fingerprint.source_text import parse_lock

EXECUTION_MEMBERS = {"composes", "run_variants", "variant_key", "is_nested"}
"""How results are shared and swept; property tests hold that they stay the same."""
IRRELEVANT_MEMBERS = EXECUTION_MEMBERS.union(
    ["fuses", "beyond", "version", "waits", "needs", "takes", "gives", "tail", "calls", "fanout", "short", "__repr__"]
)
# Beginnings of module names: `pre_` stands for `pre_retrieval`.
_FOLLOWED = """
ranking evaluation.measures core.sentences core.combinators core.sweepable retrieval generation orchestration pre_ post_
indexing.splitters indexing.structure indexing.transforms
"""
FOLLOWED = tuple(f"spolia.{part}" for part in _FOLLOWED.split())


@dataclass(frozen=True)
class Module:
    """Functions, classes, constants and imports of a module, each by name."""

    statements: dict[str, ast.AST]
    imports: dict[str, str]
    parts: dict[tuple[str, bool], tuple[str, list[str]]] = field(default_factory=dict)

    @classmethod
    def from_text(cls, text: str) -> "Module":
        tree = ast.parse(text)
        statements: dict[str, ast.AST] = {}
        for node in tree.body:
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                statements[node.name] = node
            elif isinstance(node, (ast.Assign, ast.AnnAssign)):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                statements.update((target.id, node) for target in targets if isinstance(target, ast.Name))
        sources = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module]
        return cls(statements, {item.name: str(node.module) for node in sources for item in node.names})

    def part(self, name: str, root: bool) -> tuple[str, list[str]]:
        """Return a statement in the form that is hashed, and the names in it; `root` for the class itself."""
        if (name, root) not in self.parts:  # most classes name the same ones
            names = set[str]()
            self.parts[name, root] = repr(_plain(self.statements[name], names, root)), sorted(names - {"Operator"})
        return self.parts[name, root]


@cache
def definition_digest(cls: type) -> bytes:
    """Hash what a class of Spolia does; see `spolia.core.fingerprint`."""
    digest = hash_definition(cls.__module__, cls.__qualname__, module)
    return bytes.fromhex(_former().get(digest.hex(), "")) or digest


@cache
def _former() -> dict[str, str]:
    """Read the digests that stand for the same code as an earlier one, which stores, caches and studies hold.

    `python -m tests.versions --equal` writes them, where code was moved or renamed and gives the same results.
    """
    table: dict[str, str] = json.loads(Path(__file__).with_name("former_digests.json").read_text("utf-8"))
    return table


def hash_definition(home: str, name: str, module: Callable[[str], Module]) -> bytes:
    """Hash a class and all that it names, directly or not, in the packages that are followed."""
    pending, done = [(home, name)], dict[tuple[str, str], str]()
    while pending:
        module_name, part = place = pending.pop()
        source = module(module_name)
        if part in source.imports and source.imports[part].startswith(FOLLOWED):
            pending.append((source.imports[part], part))
        if place in done or part not in source.statements:
            continue
        done[place], used = source.part(part, place == (home, name))
        pending += [(module_name, used_name) for used_name in used]
    text = "\n".join(sorted(f"{part}={plain}" for (_, part), plain in done.items()))
    return hashlib.sha256(text.encode()).digest()[:8]


@cache
def module(name: str) -> Module:
    with parse_lock:
        return Module.from_text(Path(str(import_module(name).__file__)).read_text("utf-8"))


def _plain(node: Any, names: set[str], root: bool = False) -> Any:
    """Convert a tree to nested tuples that are the same in every version of Python; add its names to `names`."""
    if isinstance(node, list):
        return tuple([_plain(item, names) for item in node])
    if not isinstance(node, ast.AST):
        return (type(node).__name__, repr(node))
    if isinstance(node, ast.Raise):
        return ("Raise",)  # what an error says does not change a result
    if isinstance(node, ast.Name):
        names.add(node.id)
    parts: list[Any] = [type(node).__name__]
    for name in node._fields:
        value = getattr(node, name, None)
        if value is None or value == [] or name in ("annotation", "returns", "ctx", "kind", "type_comment"):
            continue
        if name == "body" and isinstance(value, list):
            value = [item for item in value if _counts(item, root)]
        parts.append((name, _plain(value, names)))
    return tuple(parts)


def _counts(item: ast.stmt, root: bool) -> bool:
    """Return whether a statement affects results; docstrings and methods for wiring and drawing do not."""
    if isinstance(item, ast.Expr) and isinstance(item.value, ast.Constant):
        return False
    target = getattr(item, "target", None)
    return getattr(item, "name", getattr(target, "id", None)) not in (IRRELEVANT_MEMBERS if root else EXECUTION_MEMBERS)
