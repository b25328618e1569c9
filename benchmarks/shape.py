"""The shape of the code, in numbers.

    python benchmarks/shape.py [--json] [--out FILE]

Prints a table with what is left to mend; `--json` prints the numbers alone, `--out` writes a result beside `BEFORE`.
"""

from __future__ import annotations

import ast
import json
import sys
import threading
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType

from results import publish

import spolia
from spolia import Corpus, sync

ROOT = Path(__file__).resolve().parents[1]
SRC = ROOT / "src"
ALLOWED = Path(__file__).with_name("late_imports.toml")
Trees = dict[str, ast.Module]


def trees() -> Trees:
    """Every module of the package, parsed, by its dotted name."""
    return {dotted(path): ast.parse(path.read_text("utf-8")) for path in sorted(SRC.rglob("*.py"))}


def dotted(path: Path) -> str:
    return ".".join(path.relative_to(SRC).with_suffix("").parts).removesuffix(".__init__")


def imports(body: list[ast.stmt]) -> Iterator[str]:
    """What a module imports when it is loaded."""
    for node in body:
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from (node.module, *(f"{node.module}.{item.name}" for item in node.names))
        elif isinstance(node, ast.Import):
            yield from (item.name for item in node.names)
        elif isinstance(node, ast.Try):
            yield from imports(node.body)


def late_imports(modules: Trees) -> list[tuple[str, str]]:
    """Imports inside functions, as (importing module, imported module)."""
    found = []

    def visit(name: str, body: Iterable[ast.AST], is_late: bool) -> None:
        for node in body:
            if is_late and isinstance(node, ast.ImportFrom) and node.module:
                found.append((name, node.module))
            elif is_late and isinstance(node, ast.Import):
                found.extend((name, item.name) for item in node.names)
            for inner in ("body", "orelse", "handlers", "finalbody", "cases"):
                within = getattr(node, inner, ())
                if isinstance(within, list):  # a lambda's and a conditional expression's are no statements
                    visit(name, within, is_late or isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)))

    for name, tree in modules.items():
        visit(name, tree.body, False)
    return sorted(found)


def rules() -> list[dict[str, str]]:
    """Which late imports are meant, each with its reason."""
    return tomllib.loads(ALLOWED.read_text("utf-8"))["late"]  # type: ignore[no-any-return]


def is_explained(pair: tuple[str, str], rule: dict[str, str]) -> bool:
    importer, imported = pair
    return _within(imported, rule["module"]) and _within(importer, rule.get("inside", "spolia"))


def unexplained(modules: Trees) -> list[tuple[str, str]]:
    """Late imports that `late_imports.toml` gives no reason for."""
    explained = rules()
    return [pair for pair in late_imports(modules) if not any(is_explained(pair, rule) for rule in explained)]


def _within(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


def duplicate_classes(modules: Trees) -> dict[str, list[str]]:
    """Names of public classes that several modules bind at their top: to a class, a type or another value."""
    found, classes = defaultdict(list), set[str]()
    for name, tree in modules.items():
        for node in tree.body:
            targets = getattr(node, "targets", [getattr(node, "target", None)])
            bound = {target.id for target in targets if isinstance(target, ast.Name)}
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                classes.add(node.name)
                bound = {node.name}
            for one in bound:
                found[one].append(name)
    return {name: homes for name, homes in found.items() if name in classes and len(homes) > 1}


def cycles(modules: Trees) -> int:
    """Groups of modules that import each other when they are loaded (Tarjan 1972)."""
    edges = {
        name: {other for other in imports(tree.body) if other in modules and not _within(name, other)}
        for name, tree in modules.items()
    }
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    components: list[int] = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for other in edges[name]:
            if other not in index:
                visit(other)
            if other in stack:
                low[name] = min(low[name], low[other])
        if low[name] == index[name]:
            at = stack.index(name)
            components.append(len(stack) - at)
            del stack[at:]

    for name in edges:
        if name not in index:
            visit(name)
    return sum(size > 1 for size in components)


def sync_files() -> int:
    """Files of the package of which a function runs while one text file of 32 bytes is synced into a new store."""
    used: set[str] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            used.add(frame.f_code.co_filename)

    with TemporaryDirectory() as place:
        folder = Path(place, "notes")
        folder.mkdir()
        (folder / "ferry.txt").write_text("The ferry sailed twice each day.")
        sync(folder, Corpus(f"{place}/first.spolia"))  # what is imported late is imported now
        threading.setprofile(note)
        sys.setprofile(note)
        try:
            sync(folder, Corpus(f"{place}/second.spolia"))
        finally:
            sys.setprofile(None)
            threading.setprofile(None)
    return sum(Path(name).is_relative_to(SRC / "spolia") for name in used)


def shape() -> dict[str, int]:
    """All numbers."""
    modules = trees()
    return {
        "files": len(modules),
        "lines": sum(path.read_text("utf-8").count("\n") for path in SRC.rglob("*.py")),
        "sync_files": sync_files(),
        "late_imports": len(unexplained(modules)),
        "duplicate_classes": len(duplicate_classes(modules)),
        "cycles": cycles(modules),
        "top_names": len(spolia.__all__),
    }


BEFORE = {
    "files": 802,
    "lines": 81_850,
    "sync_files": 83,
    "late_imports": 478,
    "duplicate_classes": 61,
    "cycles": 0,
    "top_names": 217,
}
"""The same numbers of version 8ed6536, before the tree was laid out by stage; late imports had no list of reasons."""


def main() -> None:
    modules, found = trees(), shape()
    if "--out" in sys.argv:
        publish("shape", {**found, "before": BEFORE}, Path(sys.argv[sys.argv.index("--out") + 1]))
        return
    if "--json" in sys.argv:
        print(json.dumps(found))
        return
    for name, number in found.items():
        print(f"{name.replace('_', ' '):18} {number:,}")
    for name, homes in duplicate_classes(modules).items():
        print(f"  class {name}: {', '.join(homes)}")
    for pair, count in Counter(unexplained(modules)).items():
        print(f"  late: {pair[0]} imports {pair[1]} ({count})")


if __name__ == "__main__":
    sys.setrecursionlimit(10_000)
    main()
