"""The shape of the code, in numbers.

    python benchmarks/shape.py [--json] [--out FILE]

Prints a table with what is left to mend; `--json` prints the numbers alone, `--out` writes a result beside `BEFORE`.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
import subprocess
import sys
import threading
import tokenize
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from types import CodeType, FrameType

from results import publish

import spolia
from spolia import Corpus, sync
from spolia.core.public_names import names_of

sys.path.append(str(Path(__file__).resolve().parents[1] / "docs"))
import lint_names

ROOT = Path(__file__).resolve().parents[1]
SRC = ROOT / "src"
PACKAGE = f"{SRC}/"
DIRECTIVE = re.compile(r"#!|# (type: |fmt: |noqa)")
NO_CODE = (
    tokenize.NEWLINE, tokenize.NL, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING, tokenize.ENDMARKER,
)  # fmt: skip
Trees = dict[str, ast.Module]


def trees() -> Trees:
    """Every module of the package, parsed, by its dotted name."""
    return {module_name(path): ast.parse(path.read_text("utf-8")) for path in sorted(SRC.rglob("*.py"))}


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(SRC).with_suffix("").parts).removesuffix(".__init__")


def imports(body: list[ast.stmt]) -> Iterator[str]:
    """Yield what a module imports when it is loaded."""
    for node in body:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            yield from imported_names(node)
        elif isinstance(node, ast.Try):
            yield from imports(node.body)


def imported_names(node: ast.Import | ast.ImportFrom) -> Iterator[str]:
    """Yield the modules that a statement imports, and each name within them, which may be a module too."""
    if isinstance(node, ast.Import):
        yield from (item.name for item in node.names)
    elif node.module:
        yield from (node.module, *(f"{node.module}.{item.name}" for item in node.names))


def late_import_pairs(modules: Trees) -> set[tuple[str, str]]:
    """Return each late import once, as (importing module, imported module).

    Late are imports inside functions. Calls of the functions that import by name count too, except in the `__init__` of
    a package, which is the place for them.
    """
    pairs = set()
    for name, tree in modules.items():
        is_package = SRC.joinpath(*name.split("."), "__init__.py").exists()
        todo: list[tuple[ast.AST, bool]] = [(tree, False)]
        while todo:
            node, is_late = todo.pop()
            if is_late and isinstance(node, ast.ImportFrom) and node.module:
                submodules = {f"{node.module}.{item.name}" for item in node.names} & modules.keys()
                pairs |= {(name, module) for module in submodules or {node.module}}
            elif is_late and isinstance(node, ast.Import):
                pairs |= {(name, item.name) for item in node.names}
            elif not is_package and isinstance(node, ast.Call) and node.args and _called_name(node) in DEFERRING:
                pairs.add((name, ast.unparse(node.args[0])))
            is_late = is_late or isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
            todo += [(inner, is_late) for inner in ast.iter_child_nodes(node)]
    return pairs


DEFERRING = ("import_module", "deferred", "load_name", "load_module")


def _called_name(call: ast.Call) -> str:
    return getattr(call.func, "attr", getattr(call.func, "id", ""))


def circles(modules: Trees) -> list[list[str]]:
    """Return groups of modules that import each other, where late and type imports count as well.

    A name that is read from a lazy package (`stores.Corpus`, `readers.text`) counts as an import of its module.
    """
    edges = {}
    for name, tree in modules.items():
        nodes = list(ast.walk(tree))
        statements = [node for node in nodes if isinstance(node, (ast.Import, ast.ImportFrom))]
        reached = {other_module for node in statements for other_module in imported_names(node)}
        packages = {
            item.asname or item.name: f"{node.module}.{item.name}"
            for node in statements
            if isinstance(node, ast.ImportFrom)
            for item in node.names
            if f"{node.module}.{item.name}" in modules
        }
        for node in nodes:
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in packages:
                package = packages[node.value.id]
                reached |= {f"{package}.{node.attr}", names_of(package).get(node.attr, "")}
        edges[name] = {
            other_module for other_module in reached if other_module in modules and not _within(name, other_module)
        }
    return components(edges)


def _within(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


def _package(module: str) -> str:
    return ".".join(module.split(".")[:2])


def duplicate_classes(modules: Trees) -> dict[str, list[str]]:
    """Names of public classes that several modules bind at their top: to a class, a type or another value."""
    homes_by_name, classes = defaultdict(list), set[str]()
    for name, tree in modules.items():
        for node in tree.body:
            targets = getattr(node, "targets", [getattr(node, "target", None)])
            bound = {target.id for target in targets if isinstance(target, ast.Name)}
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                classes.add(node.name)
                bound = {node.name}
            for bound_name in bound:
                homes_by_name[bound_name].append(name)
    return {name: homes for name, homes in homes_by_name.items() if name in classes and len(homes) > 1}


def cycles(modules: Trees) -> int:
    """Count the groups of modules that import each other when they are loaded."""
    edges = {
        name: {
            other_module
            for other_module in imports(tree.body)
            if other_module in modules and not _within(name, other_module)
        }
        for name, tree in modules.items()
    }
    return len(components(edges))


def components(edges: dict[str, set[str]]) -> list[list[str]]:
    """Return the strongly connected components of more than one module (Tarjan 1972)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    groups: list[list[str]] = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for other_module in edges[name]:
            if other_module not in index:
                visit(other_module)
            if other_module in stack:
                low[name] = min(low[name], low[other_module])
        if low[name] == index[name]:
            start = stack.index(name)
            if len(stack) - start > 1:
                groups.append(sorted(stack[start:]))
            del stack[start:]

    for name in edges:
        if name not in index:
            visit(name)
    return groups


def is_function(code: CodeType) -> bool:
    """Return whether code is that of a function with a name; not of a module, a class or a comprehension."""
    return bool(code.co_flags & inspect.CO_OPTIMIZED) and not code.co_name.startswith("<")


def walk(profiled: Callable[[], object]) -> tuple[set[CodeType], int]:
    """Return the package's functions that run in a call, and how deep their calls nest."""
    entered: set[CodeType] = set()
    depth = threading.local()
    deepest = 0

    def note(frame: FrameType, event: str, _: object) -> None:
        nonlocal deepest
        code = frame.f_code
        if event not in ("call", "return") or not code.co_filename.startswith(PACKAGE) or not is_function(code):
            return
        level = getattr(depth, "level", 0) + (1 if event == "call" else -1)
        depth.level, deepest = level, max(deepest, level)
        if event == "call":
            entered.add(code)

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        profiled()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return entered, deepest


def sync_files() -> int:
    """Count the files of the package of which a function runs while one text file is synced into a new store."""
    with TemporaryDirectory() as place:
        folder = Path(place, "notes")
        folder.mkdir()
        (folder / "ferry.txt").write_text("The ferry sailed twice each day.")
        sync(folder, Corpus(f"{place}/first.spolia"))  # what is imported late is imported now
        entered, _ = walk(lambda: sync(folder, Corpus(f"{place}/second.spolia")))
    return len({code.co_filename for code in entered})


def cold_walk() -> dict[str, int]:
    """Count the functions that `spolia index` and `spolia ask` enter in a new process, and the depth of calls."""
    with TemporaryDirectory() as place:
        (Path(place) / "notes").mkdir()
        (Path(place) / "notes" / "ferry.txt").write_text("The ferry sailed twice each day.")
        command = [sys.executable, __file__, "--walk"]
        done = subprocess.run(command, cwd=place, check=True, capture_output=True, text=True)
    counts: dict[str, int] = json.loads(done.stdout.splitlines()[-1])
    return counts


def print_walk() -> None:
    """Run both commands in the working directory, and print the counts."""
    from spolia.cli.app import run

    def commands() -> None:
        for arguments in (
            ["index", "notes", "--store", "s.spolia", "--no-vectors"],
            ["ask", "How often did the ferry sail?", "--store", "s.spolia"],
        ):
            sys.argv = ["spolia", *arguments]
            with suppress(SystemExit):
                run()

    entered, depth = walk(commands)
    print(json.dumps({"functions_of_index_and_ask": len(entered), "depth_of_index_and_ask": depth}))


def docstrings_without_verb() -> int:
    """Count the function docstrings that do not open with a verb, by ruff's D401."""
    command = [sys.executable, "-m", "ruff", "check", "--isolated", "--select", "D401", "--output-format", "concise"]
    done = subprocess.run([*command, str(SRC)], capture_output=True, text=True, check=False)
    return done.stdout.count(" D401 ")


def comments_per_100_lines() -> float:
    """Count comments, directives to tools apart, for each 100 lines that hold code."""
    comments, code_lines = 0, set[tuple[Path, int]]()
    for path in SRC.rglob("*.py"):
        with path.open("rb") as file:
            for token in tokenize.tokenize(file.readline):
                if token.type == tokenize.COMMENT:
                    comments += not DIRECTIVE.match(token.string)
                elif token.type not in NO_CODE and not token.line.lstrip().startswith(('"""', 'r"""')):
                    code_lines |= {(path, number) for number in range(token.start[0], token.end[0] + 1)}
    return round(100 * comments / len(code_lines), 2)


def shape() -> dict[str, float]:
    """Return all numbers."""
    modules = trees()
    return {
        "files": len(modules),
        "lines": sum(path.read_text("utf-8").count("\n") for path in SRC.rglob("*.py")),
        "sync_files": sync_files(),
        "late_import_pairs": len(late_import_pairs(modules)),
        "circles": len(circles(modules)),
        "duplicate_classes": len(duplicate_classes(modules)),
        "cycles": cycles(modules),
        "top_names": len(spolia.__all__),
        "names_that_say_nothing": len(lint_names.hits(SRC)),
        "docstrings_without_verb": docstrings_without_verb(),
        "comments_per_100_lines": comments_per_100_lines(),
        **cold_walk(),
    }


BEFORE = {
    "files": 802,
    "lines": 81_850,
    "sync_files": 83,
    "late_import_pairs": 478,
    "duplicate_classes": 61,
    "cycles": 0,
    "top_names": 217,
}
"""The same numbers of version 8ed6536, before the tree was laid out by stage."""


def main() -> None:
    modules, counts = trees(), shape()
    if "--out" in sys.argv:
        publish("shape", {**counts, "before": BEFORE}, Path(sys.argv[sys.argv.index("--out") + 1]))
        return
    if "--json" in sys.argv:
        print(json.dumps(counts))
        return
    for name, number in counts.items():
        print(f"{name.replace('_', ' '):18} {number:,}")
    for name, homes in duplicate_classes(modules).items():
        print(f"  class {name}: {', '.join(homes)}")
    for package, count in Counter(_package(name) for name, _ in late_import_pairs(modules)).most_common():
        print(f"  late imports of {package}: {count}")
    for circle in circles(modules):
        print(f"  circle: {', '.join(circle)}")


if __name__ == "__main__":
    sys.setrecursionlimit(10_000)
    print_walk() if "--walk" in sys.argv else main()
