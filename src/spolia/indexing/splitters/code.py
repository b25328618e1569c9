"""Splitter of program text: Python by its parser, any language by the indentation of its lines."""

import ast
import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Literal, NamedTuple, TypeAlias

from spolia.indexing.splitters.sized_splitter import SizedSplitter
from spolia.indexing.splitters.windows import LABEL, Layer, Unit, by_line, layer_at
from spolia.stores.definition import Part, Piece

_CLOSING = re.compile(r"[)\]}{]|(?:end|else|elif|elsif|except|rescue|finally|ensure|catch|then|fi|done|esac)\b")
_LEADING = re.compile(r"//|/?\*|#|@|--|;|<!--|\"\"\"")
"""Comments and decorators: they belong to what is below them."""


class _Line(NamedTuple):
    """Start of a line of code, its indentation (a tab counts one), and its first words."""

    start: int
    depth: int
    words: str

    @property
    def closes(self) -> bool:
        return _CLOSING.match(self.words) is not None

    @property
    def leads_on(self) -> bool:
        return _LEADING.match(self.words) is not None


def units_by_indentation(text: str, start: int, end: int) -> Iterator[Unit]:
    """Yield a unit for each least indented line below the head, with the deeper lines that follow it.

    The head is what stands above that: the first line that is no comment. It is the label of its unit.
    """
    lines = _lines(text, start, end)
    head_lines = next((number for number, line in enumerate(lines, 1) if not line.leads_on), len(lines))
    outer_depth = min((line.depth for line in lines[head_lines:] if not line.closes), default=0)
    begin, label, head = start, "", True
    for line in lines:
        if line.depth > outer_depth:
            continue
        if not head and not line.closes:
            yield Unit(begin, line.start, label)
            begin, label = line.start, ""
        head = line.leads_on
        label = label if head or label else _label(line)
    yield Unit(begin, end, label if begin > start else "")  # a single unit is what is being cut, which has its label


def whole_unit(text: str) -> Unit:
    """Return a text as one unit, labelled with its head if it is a single block."""
    lines = _lines(text, 0, len(text))
    head_lines = next((number for number, line in enumerate(lines, 1) if not line.leads_on), 0)
    head = lines[head_lines - 1] if head_lines else None
    single = (
        head and head_lines < len(lines) and all(line.depth > head.depth or line.closes for line in lines[head_lines:])
    )
    return Unit(0, len(text), _label(head) if head and single else "")


def _label(line: _Line) -> str:
    return line.words.rstrip(" \t{:(")


def _lines(text: str, start: int, end: int) -> list[_Line]:
    lines = ((line.start, text[line.start : line.end]) for line in by_line(text, start, end))
    bodies = ((start, words, words.lstrip()) for start, words in lines)
    return [_Line(start, len(words) - len(body), body[:LABEL].rstrip()) for start, words, body in bodies if body]


LARGEST = 1_000_000
"""Characters of a program that is parsed at most: its tree is a hundred times as large as its text."""
_LINE = re.compile(r"[^\r\n]*(?:\r\n|[\r\n])|[^\r\n]+\Z")


def python_layers(text: str, deepest: int) -> Sequence[Layer]:
    """Build a layer for each level of nested statements; none if the text is not Python."""
    ends = list(accumulate((len(line) for line in _LINE.findall(text)), initial=0))
    level, layers = _parse_statements(text), list[Layer]()
    while level and len(layers) < deepest:
        last = [(ends[min(node.end_lineno or node.lineno, len(ends) - 1)], node) for node in level]
        layers.append(layer_at(sorted({end for end, _ in last}), {end: _python_label(node) for end, node in last}))
        level = [inner for node in level for inner in _inner_statements(node)]
    return layers


def _parse_statements(text: str) -> list[ast.stmt]:
    if len(text) > LARGEST:
        return []
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the program that is cut
            return ast.parse(text).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # broken, null bytes, nested too deep
        return []


def _inner_statements(node: ast.AST) -> Iterator[ast.stmt]:
    """Yield the statements directly inside another, in the order of the text."""
    for inner in ast.iter_child_nodes(node):
        if isinstance(inner, ast.stmt):
            yield inner
        elif isinstance(inner, (ast.ExceptHandler, ast.match_case)):
            yield from inner.body


_DEFINES: dict[type, str] = {ast.ClassDef: "class", ast.FunctionDef: "def", ast.AsyncFunctionDef: "async def"}


def _python_label(node: Any) -> str:
    return f"{_DEFINES[type(node)]} {node.name}" if type(node) in _DEFINES else ""


Language: TypeAlias = Literal["auto", "python", "any"]
DEEPEST = 6
"""Levels of definitions and blocks that are looked into."""
PYTHON = (".py", ".pyi", ".pyw")


@dataclass(frozen=True)
class CodeSplitter(SizedSplitter):
    """Whole functions and classes, as many as fit together; one that is too long is cut between what is inside it.

    A piece from inside a definition has the definitions around it as context: `class Arch > def span`. Python is cut
    where its own parser says that statements begin; any other language, and Python that does not parse, by the
    indentation of its lines. Below that, code is cut between lines, then after words. Together the pieces cover every
    character but blanks.

    Args:
        size: tokens of a piece at most.
        language: `python`, `any`, or `auto` to decide by the name of the file.

    >>> from spolia.types import Document, Node
    >>> lines = "import os", "class Arch:", "    def span(self):", "        pass", "    def load(self):", "        pass"
    >>> text = "\\n".join(lines)
    >>> part = Part(Node("d", text), Document("d", text, uri="arch.py"))
    >>> for piece in CodeSplitter(size=12).pieces(part):
    ...     print([piece.context, piece.text])
    ['', 'import os']
    ['class Arch', 'class Arch:\\n    def span(self):\\n        pass']
    ['class Arch', 'def load(self):\\n        pass']
    """

    size: int = 400
    language: Language = "auto"

    def pieces(self, part: Part, /) -> Iterator[Piece]:
        text = part.node.text
        by_name = self.language == "auto" and part.document.uri.lower().endswith(PYTHON)
        if (by_name or self.language == "python") and (layers := python_layers(text, DEEPEST)):
            return self.cut(text, [Unit(0, len(text))], *layers, by_line)
        return self.cut(text, [whole_unit(text)], *[units_by_indentation] * DEEPEST, by_line)
