"""The tokenizer of all-MiniLM-L6-v2: WordPiece; a word with unknown characters is one unknown token."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from spolia.deferred import tokenizers
from spolia.errors import require
from spolia.models.onnx import weights
from spolia.types import Value

if TYPE_CHECKING:
    from tokenizers import Encoding, Tokenizer

UNKNOWN = 100
SPECIALS = 2
"""Tokens that the model puts around every text: one before, one after."""

_opened: dict[Path, Tokenizer] = {}
_opening = threading.Lock()


class Tokens(NamedTuple):
    """A text as tokens: their numbers, and the characters `text[start:end]` that each stands for."""

    ids: list[int]
    ends: list[tuple[int, int]]


class TokenPiece(NamedTuple):
    """A token: the characters `text[start:end]` that it stands for, and whether it is in the vocabulary."""

    start: int
    end: int
    known: bool


@dataclass(frozen=True)
class WordPiece(Value):
    """Counts and places tokens as the embedder reads them.

    Args:
        weights: folder with `tokenizer.json`; empty to look it up (`spolia.models.onnx.weights.find`).

    Raises:
        WeightsError: on first use, when there are no weights.
        MissingExtra: on first use, when the package tokenizers is not installed.

    >>> WordPiece().count(["Who employed Carsten Olsen?"])  # doctest: +SKIP
    [7]
    """

    weights: str = ""

    waits: ClassVar[bool] = False
    scoped: ClassVar[bool] = False

    def fingerprint(self) -> str:
        return f"{weights.MODEL}:{weights.VOCABULARY_SHA256[:8]}"

    def ids(self, text: str, window: int | None = None) -> list[int]:
        """Numbers of the tokens, special ones included; of the first `window` where that is given."""
        found: list[int] = self._encoded(text, specials=True).ids
        return found if window is None or len(found) <= window else [*found[: window - 1], found[-1]]

    def count(self, texts: Iterable[str]) -> list[int]:
        """Length of each text in tokens, without special ones."""
        return [len(self._encoded(text)) for text in texts]

    def pieces(self, text: str) -> list[TokenPiece]:
        """The tokens of a text and where they stand; characters between them (blanks, controls) belong to none."""
        encoded = self._encoded(text)
        return [TokenPiece(*ends, token != UNKNOWN) for ends, token in zip(encoded.offsets, encoded.ids, strict=True)]

    def covers(self, text: str) -> float:
        """Share of the characters, blanks included, that are not mapped to unknown; 1 for an empty text."""
        unknown = sum(piece.end - piece.start for piece in self.pieces(text) if not piece.known)
        return 1 - unknown / len(text) if text else 1.0

    def read(self, text: str) -> Tokens:
        """The tokens of a text, special ones excluded."""
        encoded = self._encoded(text)
        return Tokens(encoded.ids, encoded.offsets)

    def _encoded(self, text: str, specials: bool = False) -> Encoding:
        tokenizer = _tokenizer(self.weights)
        try:
            return tokenizer.encode(text, add_special_tokens=specials)
        except TypeError:  # half of a surrogate pair, which is no Unicode text; `?` in its place keeps the offsets
            return tokenizer.encode(text.encode("utf-8", "replace").decode(), add_special_tokens=specials)


def _tokenizer(given: str) -> Tokenizer:
    path = _paths.get(given)
    found = _opened.get(path) if path else None
    if found is not None:
        return found
    with _opening:
        path = weights.find(given).tokenizer
        if path not in _opened:
            _opened[path] = _loaded(path)
        _paths[given] = path
        return _opened[path]


_paths: dict[str, Path] = {}


def _loaded(path: Path) -> tokenizers.Tokenizer:
    require(tokenizers, "Counting tokens as the embedder does")
    tokenizer = tokenizers.Tokenizer.from_file(os.fspath(path))
    tokenizer.no_truncation()  # copies of one model differ here
    tokenizer.no_padding()
    return tokenizer
