"""Which source each version of an operator has: `python -m tests.versions` records it, `make versions` calls that.

An operator's version is part of the cache key. A result computed by other code under the same version would be taken
for this code's result, so a test compares the source with what was recorded when the version was last counted up.
"""

from __future__ import annotations

import ast
import hashlib
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tests.tree import operators

RECORD = Path(__file__).parent / "versions.json"
COMPUTED_OTHERWISE = {"composes", "together", "alike", "is_nested"}
"""How results are shared and swept; property tests hold that they stay the same."""
BESIDE_THE_RESULT = COMPUTED_OTHERWISE | {
    "version",
    "waits",
    "needs",
    "takes",
    "gives",
    "tail",
    "calls",
    "fanout",
    "short",
    "__repr__",
}
FOLLOWED = tuple(
    f"spolia.{part}"
    for part in (
        "ranking",
        "core.sentences",
        "core.combinators",
        "core.sweepable",
        "indexing.splitters",
        "indexing.structure",
        "indexing.transforms",
        "retrieval",
        "generation",
        "orchestration",
        "pre_",
        "post_",
    )
)
Recorded = dict[str, tuple[int, str]]


def sources() -> Recorded:
    """Version and source hash of every operator by id."""
    return {cls.type_id(): (cls.version, source_hash(cls)) for cls in operators()}


def recorded() -> Recorded:
    """What was recorded."""
    if not RECORD.exists():
        return {}
    return {name: (version, source) for name, (version, source) in json.loads(RECORD.read_text("utf-8")).items()}


def stale(now: Recorded, before: Recorded) -> list[str]:
    """Operators whose source has changed while their version has not."""
    known = [name for name in now if name in before]
    return [name for name in known if now[name][0] == before[name][0] and now[name][1] != before[name][1]]


def refresh(now: Recorded, before: Recorded) -> Recorded:
    """What to record: new operators and counted-up versions; refused while any is stale."""
    if names := stale(now, before):
        raise SystemExit(
            f"The source of {', '.join(names)} has changed and the version has not. Count `version` up where the "
            "result for the same fields and value may differ, also if only sometimes. Nothing was recorded."
        )
    return dict(sorted(now.items()))


@dataclass(frozen=True)
class Module:
    """The functions, classes and constants of a module, and what it imports, each by name."""

    statements: dict[str, ast.AST]
    imports: dict[str, str]

    @classmethod
    def parsed(cls, text: str) -> Module:
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


def source_hash(cls: type) -> str:
    """Hash of what an operator's result depends on in the code, without comments, docstrings and annotations."""
    return hash_of(cls.__module__, cls.__qualname__, module)


def hash_of(home: str, name: str, module: Callable[[str], Module]) -> str:
    """Hash of a class and of all that it names, directly or not, in its module and in those that it is built on.

    What all operators are, `Operator`, is no part of what one of them does.
    """
    wanted, done = [(home, name)], dict[tuple[str, str], str]()
    while wanted:
        where, part = place = wanted.pop()
        source = module(where)
        if part in source.imports and source.imports[part].startswith(FOLLOWED):
            wanted.append((source.imports[part], part))
        if place in done or part not in source.statements:
            continue
        plain = _plain(source.statements[part], place == (home, name))
        done[place] = repr(plain)
        wanted += [(where, used) for used in sorted(_names(plain)) if used != "Operator"]
    text = "\n".join(sorted(f"{part}={plain}" for (_, part), plain in done.items()))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@cache
def module(name: str) -> Module:
    """A module of Spolia, read from its file."""
    spec = find_spec(name)
    assert spec is not None
    assert spec.origin is not None
    return Module.parsed(Path(spec.origin).read_text("utf-8"))


def _plain(node: Any, root: bool = False) -> Any:
    """The tree as nested tuples that are the same in every version of Python."""
    if isinstance(node, list):
        return tuple(_plain(item) for item in node)
    if not isinstance(node, ast.AST):
        return (type(node).__name__, repr(node))
    if isinstance(node, ast.Raise):
        return ("Raise",)  # what an error says does not change a result
    held = {}
    for name, value in ast.iter_fields(node):
        if value is None or value == [] or name in ("annotation", "returns", "ctx", "kind", "type_comment"):
            continue
        held[name] = value
    if isinstance(held.get("body"), list):
        held["body"] = [item for item in held["body"] if _counts(item, root)]
    return (type(node).__name__, *((name, _plain(value)) for name, value in held.items()))


def _counts(item: ast.stmt, root: bool) -> bool:
    """Whether a statement has a part in the result: no docstring, and no method for wiring and drawing."""
    if isinstance(item, ast.Expr) and isinstance(item.value, ast.Constant):
        return False
    target = getattr(item, "target", None)
    return getattr(item, "name", getattr(target, "id", None)) not in (BESIDE_THE_RESULT if root else COMPUTED_OTHERWISE)


def _names(plain: Any) -> set[str]:
    if not isinstance(plain, tuple):
        return set()
    if plain and plain[0] == "Name":
        return {ast.literal_eval(value[1]) for key, value in plain[1:] if key == "id"}
    return {name for part in plain for name in _names(part)}


def main() -> None:
    """Record the sources as they are."""
    kept = refresh(sources(), recorded())
    lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(list(pair))}" for name, pair in kept.items())
    RECORD.write_text(f"{{\n{lines}\n}}\n", "utf-8")
    sys.stdout.write(f"{len(kept)} operators recorded in {RECORD.name}.\n")


if __name__ == "__main__":
    main()
