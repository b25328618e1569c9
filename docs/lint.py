"""Check the English of README, docs, changelog, docstrings, help and errors against `style.toml` and proselint.

    python docs/lint.py [--json] [FILE…]

Prints each sentence that is flagged with its place and what to write; `--json` prints {"flagged": n, "words": n}.
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
from pathlib import Path

from proselint.checks import __register__
from proselint.registry import CheckRegistry
from proselint.tools import LintFile

ROOT = Path(__file__).resolve().parents[1]
STYLE = tomllib.loads((ROOT / "docs" / "style.toml").read_text("utf-8"))
RULES = [
    (re.compile(rule["pattern"], re.I | re.M), rule["write"], rule.get("docstrings", True)) for rule in STYLE["rule"]
]
LONGEST = STYLE["longest"]["words"]
MADE = re.compile(r"<!-- made: .*?<!-- end -->", re.S)
CODE = re.compile(  # an example ends with an empty line
    r"^(`{3,}|~{3,}|:{3,}).*?^\1\s*?$|^ {4}.*?$|^>>>.*?(?=\n\s*\n|\Z)|<!--.*?-->|`[^`]*`|\]\([^)]*\)", re.S | re.M
)
SPOKEN = {"option", "argument", "Option", "Argument"}
"""Functions whose texts `--help` shows."""


@dataclass(frozen=True)
class Flag:
    """A phrase to rewrite."""

    place: str
    phrase: str
    write: str


@dataclass(frozen=True)
class Prose:
    """A text that people read, and where it begins."""

    path: Path
    line: int
    text: str
    is_docstring: bool = False

    def place(self, at: int) -> str:
        return f"{self.path.relative_to(ROOT)}:{self.line + self.text.count(chr(10), 0, at)}"


def blanked(found: re.Match[str]) -> str:
    """What is no prose, as blanks: lines and columns stay."""
    return re.sub(r"[^\n]", " ", found[0])


def pages() -> Iterator[Path]:
    yield from (ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"))
    yield from sorted((ROOT / "docs").rglob("*.md"))
    yield from sorted((ROOT / "src").rglob("*.py"))


def prose(path: Path) -> Iterator[Prose]:
    """What people read of a file."""
    text = path.read_text("utf-8")
    if path.suffix == ".md":
        yield Prose(path, 1, CODE.sub(blanked, MADE.sub(blanked, text)))
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            if (said := ast.get_docstring(node)) is not None:
                yield Prose(path, node.body[0].lineno, CODE.sub(blanked, said), True)
        elif isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            yield from (Prose(path, node.lineno, CODE.sub(blanked, said)) for said in _texts(node.exc))
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) in SPOKEN:
            yield from (Prose(path, node.lineno, CODE.sub(blanked, said)) for said in _texts(node))


def _texts(call: ast.Call) -> Iterator[str]:
    """The sentences among the arguments of a call; a gap of an f-string is X."""
    for one in [*call.args, *(keyword.value for keyword in call.keywords)]:
        if isinstance(one, ast.Constant) and isinstance(one.value, str):
            yield one.value
        elif isinstance(one, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "X" for part in one.values)


def sentences(text: str) -> Iterator[tuple[int, str]]:
    """Sentences with where they begin; a list item, a table cell and a heading each end one."""
    for found in re.finditer(r"(?:[^.!?|\n]|[.!?](?!\s|$)|\n(?!\s*\n|\s*[-*#|>]|\s*\d+\.))+", text):
        yield found.start(), found[0]


def flags(found: Prose) -> Iterator[Flag]:
    flat = re.sub(r"\n(?!\s*\n|\s*[-*#|>]|\s*\w+:)", " ", found.text)
    for pattern, write, docstrings in RULES:
        if docstrings or not found.is_docstring:
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
    words = sum(len(re.findall(r"\w+", one.text)) for one in every if one.path.suffix == ".md")
    if "--json" in sys.argv:
        sys.stdout.write(json.dumps({"flagged": len(found), "words": words}) + "\n")
    else:
        sys.stdout.writelines(f"{one.place}: “{one.phrase}” → {one.write}\n" for one in found)
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
