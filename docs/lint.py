"""Check the English of README, docs, changelog, docstrings, help and errors against `style.toml` and proselint.

    python docs/lint.py [--json] [FILE…]

Prints each sentence that is flagged with its place and what to write; `--json` prints {"flagged": n, "words": n}.
Identifiers are counted too; see `lint_names.py`.
Code, names in backquotes and the parts of pages that are made from code are not checked.
"""

from __future__ import annotations

import ast
import json
import re
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from inspect import cleandoc
from pathlib import Path

import lint_names
from proselint.checks import __register__
from proselint.registry import CheckRegistry
from proselint.tools import LintFile

ROOT = Path(__file__).resolve().parents[1]
BUILT = "docs/reference/api"
"""How the names of pages begin that building the site makes."""
STYLE = tomllib.loads((ROOT / "docs" / "style.toml").read_text("utf-8"))
RULES = [(re.compile(rule["pattern"], re.I | re.M), rule["write"], rule.get("private", True)) for rule in STYLE["rule"]]
LONGEST = STYLE["longest"]["words"]
MADE = re.compile(r"<!-- made: .*?<!-- end -->", re.S)
CODE = re.compile(r"^(`{3,}|~{3,}|:{3,}).*?^\1\s*?$|^ {4}.*?$|<!--.*?-->|`[^`]*`|\]\([^)]*\)", re.S | re.M)
EXAMPLE = re.compile(r"^ *>>>.*?(?=\n\s*\n|\Z)|`[^`]*`", re.S | re.M)  # it ends with an empty line
PUBLIC = set(re.findall(r"\w+", (ROOT / "src" / "spolia" / "core" / "public_names.txt").read_text("utf-8")))
MESSAGE = re.compile(r"[a-zA-Z] [^\n]*? [^\n]*? [a-z]")
"""A string of four words or more: help, an error, a line of a report."""


@dataclass(frozen=True)
class Flag:
    """A phrase to rewrite."""

    place: str
    phrase: str
    write: str


@dataclass(frozen=True)
class Prose:
    """A text that people read, and where it begins. Private are docstrings of what is not public."""

    path: Path
    line: int
    text: str
    is_private: bool = False

    def place(self, at: int) -> str:
        return f"{self.path.relative_to(ROOT)}:{self.line + self.text.count(chr(10), 0, at)}"


def blanked(found: re.Match[str]) -> str:
    """What is no prose, as blanks: lines and columns stay."""
    return re.sub(r"[^\n]", " ", found[0])


def pages() -> Iterator[Path]:
    yield from (ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"))
    yield from sorted(
        path for path in (ROOT / "docs").rglob("*.md") if not str(path.relative_to(ROOT)).startswith(BUILT)
    )
    yield from sorted((ROOT / "src").rglob("*.py"))


def prose(path: Path) -> Iterator[Prose]:
    """What people read of a file."""
    text = path.read_text("utf-8")
    if path.suffix == ".md":
        yield Prose(path, 1, CODE.sub(blanked, MADE.sub(blanked, text)))
        return
    tree, is_data = ast.parse(text), path.relative_to(ROOT).as_posix() in STYLE["data"]["files"]
    named = [node for node in tree.body if isinstance(node, (ast.ClassDef, ast.FunctionDef))]
    shown = {node.body[0] for node in named if node.name in PUBLIC or path.parent.name == "commands"}
    for node in _strings(tree):
        if isinstance(node, ast.Expr):
            yield Prose(path, node.lineno, EXAMPLE.sub(blanked, cleandoc(_text(node.value))), node not in shown)
        elif not is_data and MESSAGE.search(message := _text(node)):
            yield Prose(path, node.lineno, EXAMPLE.sub(blanked, message))


def _strings(tree: ast.AST) -> Iterator[ast.Expr | ast.Constant | ast.JoinedStr]:
    """Strings of a file: a docstring as the statement that it is."""
    nodes: list[ast.AST] = [tree]
    while nodes:
        node = nodes.pop()
        if isinstance(node, (ast.Name, ast.Attribute)):
            continue
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node
            continue
        if isinstance(node, ast.JoinedStr):
            yield node
            nodes += [part.value for part in node.values if isinstance(part, ast.FormattedValue)]
            continue
        if isinstance(node, ast.Constant):
            if isinstance(node.value, str):
                yield node
            continue
        for name in node._fields:
            inner = getattr(node, name)
            if isinstance(inner, list):
                nodes += [one for one in inner if isinstance(one, ast.AST)]
            elif isinstance(inner, ast.AST):
                nodes.append(inner)


def _text(node: ast.AST) -> str:
    """The text of a string; a gap of an f-string is X."""
    if isinstance(node, ast.JoinedStr):
        return "".join(str(part.value) if isinstance(part, ast.Constant) else "X" for part in node.values)
    return str(node.value) if isinstance(node, ast.Constant) else ""


def sentences(text: str) -> Iterator[tuple[int, str]]:
    """Sentences with where they begin; a list item, a table cell and a heading each end one."""
    for found in re.finditer(r"(?:[^.!?|\n]|[.!?](?!\s|$)|\n(?!\s*\n|\s*[-*#|>]|\s*\d+\.))+", text):
        yield found.start(), found[0]


def flags(found: Prose) -> Iterator[Flag]:
    flat = re.sub(r"\n(?!\s*\n|\s*[-*#|>]|\s*\w+:)", " ", found.text)
    for pattern, write, private in RULES:
        if private or not found.is_private:
            for one in pattern.finditer(flat):
                yield Flag(found.place(one.start()), " ".join(one[0].split())[:80], write)
    if found.path.suffix == ".md":
        for start, sentence in sentences(found.text):
            if (words := len(sentence.split())) > LONGEST:
                yield Flag(found.place(start), f"{' '.join(sentence.split()[:8])} …", f"shorter: {words} words")
        checks = dict.fromkeys(STYLE["proselint"]["checks"], True)
        for one in LintFile(found.path, found.text).lint({"max_errors": 0, "checks": checks}):
            yield Flag(found.place(one.check_result.span[0]), one.check_result.check_path, one.check_result.message)


def main() -> None:
    CheckRegistry().register_many(__register__)
    named = [Path(name).resolve() for name in sys.argv[1:] if not name.startswith("-")]
    every = [one for path in named or pages() for one in prose(path)]
    found = [flag for one in every for flag in flags(one)]
    names = [] if named else lint_names.excess()
    words = sum(len(re.findall(r"\w+", one.text)) for one in every if one.path.suffix == ".md")
    if "--json" in sys.argv:
        sys.stdout.write(json.dumps({"flagged": len(found), "words": words}) + "\n")
    else:
        sys.stdout.writelines(f"{one.place}: “{one.phrase}” → {one.write}\n" for one in found)
        sys.stdout.writelines(f"{problem}\n" for problem in names)
    sys.exit(bool(found or names))


if __name__ == "__main__":
    main()
