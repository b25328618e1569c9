"""Count identifiers that do not say what they hold: pronouns, adverbs, prepositions and bare participles.

    python docs/lint_names.py [--list] [FOLDER…]

The words and the bounds stand in `style.toml`. A bound only goes down: `found` is good English and a bad name.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
NAMES = tomllib.loads((ROOT / "docs" / "style.toml").read_text("utf-8"))["names"]
WORDS = frozenset(NAMES["words"])
PUBLIC = set(re.findall(r"\w+", (ROOT / "src" / "spolia" / "core" / "public_names.txt").read_text("utf-8")))
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Hit:
    """Name on the list, and its place."""

    path: Path
    line: int
    name: str

    def __str__(self) -> str:
        return f"{self.path.relative_to(ROOT)}:{self.line}: {self.name}"


def hits(folder: Path) -> list[Hit]:
    """List the names that the files of a folder bind and that stand on the list."""
    return [
        Hit(path, line, name)
        for path in sorted(folder.rglob("*.py"))
        for line, name in bound_names(ast.parse(path.read_text("utf-8")))
        if name.lstrip("_") in WORDS
    ]


def bound_names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield each variable, parameter and function that a tree binds, with its line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, Function):
            yield node.lineno, node.name


def public_hits() -> list[Hit]:
    """List the names of the list in signatures of public functions, and of public methods of public classes.

    Fields are left out, also as arguments of `__init__`: flow files, stores and reports hold their names.
    """
    return [
        Hit(path, line, name)
        for path in sorted((ROOT / "src").rglob("*.py"))
        for node in ast.parse(path.read_text("utf-8")).body
        if isinstance(node, (ast.ClassDef, Function)) and node.name in PUBLIC
        for line, name in _signature(node)
        if name in WORDS
    ]


def _signature(node: ast.ClassDef | Function) -> Iterator[tuple[int, str]]:
    if isinstance(node, ast.ClassDef):
        fields = {ast.unparse(member.target) for member in node.body if isinstance(member, ast.AnnAssign)}
        for member in node.body:
            if isinstance(member, Function) and (member.name == "__init__" or not member.name.startswith("_")):
                yield member.lineno, member.name
                yield from (name for name in _signature(member) if member.name != "__init__" or name[1] not in fields)
        return
    arguments = node.args
    for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
        yield argument.lineno, argument.arg


def excess() -> list[str]:
    """Describe each folder with more names on the list than its bound, and each public signature with one."""
    problems = [f"{hit} → say what it holds; users read this name" for hit in public_hits()]
    for folder, bound in NAMES["most"].items():
        listed = hits(ROOT / folder)
        if len(listed) > bound:
            common = ", ".join(f"{name} {count}" for name, count in Counter(hit.name for hit in listed).most_common(5))
            problems.append(
                f"{folder}: {len(listed)} names do not say what they hold (at most {bound}): {common}. "
                f"Rename yours: python docs/lint_names.py --list {folder}"
            )
    return problems


def main(arguments: Sequence[str]) -> None:
    folders = [name for name in arguments if not name.startswith("-")] or list(NAMES["most"])
    for folder in folders:
        listed = hits(ROOT / folder)
        if "--list" in arguments:
            sys.stdout.writelines(f"{hit}\n" for hit in listed)
        sys.stdout.write(f"{folder}: {len(listed)} (at most {NAMES['most'].get(folder, '–')})\n")
    sys.stdout.writelines(f"{hit} (public)\n" for hit in public_hits())


if __name__ == "__main__":
    main(sys.argv[1:])
