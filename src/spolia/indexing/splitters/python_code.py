"""Where the statements of a Python program end."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator, Sequence
from itertools import accumulate

from spolia.indexing.splitters.layers import Layer, at_places

LARGEST = 1_000_000
"""Characters of a program that is parsed at most: its tree is a hundred times as large as its text."""
_LINE = re.compile(r"[^\r\n]*(?:\r\n|[\r\n])|[^\r\n]+\Z")


def python_layers(text: str, deepest: int) -> Sequence[Layer]:
    """A layer for each level of nested statements; none for what is not Python, or too large.

    A statement goes from the end of the one before to the end of its last line, so that comments and decorators belong
    to what is below them.
    """
    ends = list(accumulate((len(line) for line in _LINE.findall(text)), initial=0))
    level, layers = _statements(text), list[Layer]()
    while level and len(layers) < deepest:
        last = [(ends[min(node.end_lineno or node.lineno, len(ends) - 1)], node) for node in level]
        layers.append(at_places(sorted({end for end, _ in last}), {end: _label(node) for end, node in last}))
        level = [inner for node in level for inner in _inside(node)]
    return layers


def _statements(text: str) -> list[ast.stmt]:
    if len(text) > LARGEST:
        return []
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the program that is cut
            return ast.parse(text).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # broken, null bytes, nested too deep
        return []


def _inside(node: ast.AST) -> Iterator[ast.stmt]:
    """The statements directly inside another, in the order of the text."""
    for inner in ast.iter_child_nodes(node):
        if isinstance(inner, ast.stmt):
            yield inner
        elif isinstance(inner, (ast.ExceptHandler, ast.match_case)):
            yield from inner.body


def _label(node: ast.stmt) -> str:
    if isinstance(node, ast.ClassDef):
        return f"class {node.name}"
    if isinstance(node, ast.AsyncFunctionDef):
        return f"async def {node.name}"
    return f"def {node.name}" if isinstance(node, ast.FunctionDef) else ""
