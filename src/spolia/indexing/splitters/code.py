"""Program text, cut between definitions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from spolia.indexing.splitters.indentation import by_indentation, whole
from spolia.indexing.splitters.layers import Unit, by_line
from spolia.indexing.splitters.python_code import python_layers
from spolia.indexing.splitters.sized import Sized
from spolia.stores.definition import Part, Piece

Language: TypeAlias = Literal["auto", "python", "any"]
DEEPEST = 6
"""Levels of definitions and blocks that are looked into."""
PYTHON = (".py", ".pyi", ".pyw")


@dataclass(frozen=True)
class CodeSplitter(Sized):
    """Whole functions and classes, as many as fit together; one that is too long is cut between what is inside it.

    A piece from inside a definition has the definitions around it as context: `class Arch > def span`. Python is cut
    where its own parser says that statements begin; any other language, and Python that does not parse, by the
    indentation of its lines. Below that, code is cut between lines, then after words. Together the pieces cover every
    character but blanks.

    Args:
        size: tokens of a piece at most.
        language: `python`, `any`, or `auto` to tell by the name of the file.

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
        return self.cut(text, [whole(text)], *[by_indentation] * DEEPEST, by_line)
