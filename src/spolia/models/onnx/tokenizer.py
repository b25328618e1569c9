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

UNKNOWN = 100  # [UNK] in BERT's vocabulary
SPECIALS = 2
"""Tokens that the model puts around every text: one before, one after."""

_tokenizers: dict[Path, Tokenizer] = {}
_open_lock = threading.Lock()


class Tokens(NamedTuple):
    """Text as tokens: their numbers, and the characters `text[start:end]` that each stands for."""

    ids: list[int]
    ends: list[tuple[int, int]]


class TokenPiece(NamedTuple):
    """Token: the characters `text[start:end]` that it stands for, and whether it is in the vocabulary."""

    start: int
    end: int
    is_known: bool


@dataclass(frozen=True)
class WordPiece(Value):
    """Tokenizer that counts and places tokens as the embedder reads them.

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
        """Return the numbers of the tokens, special ones included; of the first `window` if that is given."""
        ids: list[int] = self._encode(text, specials=True).ids
        return ids if window is None or len(ids) <= window else [*ids[: window - 1], ids[-1]]

    def count(self, texts: Iterable[str]) -> list[int]:
        """Return the length of each text in tokens, without special ones."""
        return [len(self._encode(text)) for text in texts]

    def pieces(self, text: str) -> list[TokenPiece]:
        """Return the tokens of a text and their places; characters between them (blanks, controls) belong to none."""
        encoded = self._encode(text)
        return [TokenPiece(*ends, token != UNKNOWN) for ends, token in zip(encoded.offsets, encoded.ids, strict=True)]

    def covers(self, text: str) -> float:
        """Return the share of the characters, blanks included, that are not mapped to unknown; 1 for an empty text."""
        unknown = sum(piece.end - piece.start for piece in self.pieces(text) if not piece.is_known)
        return 1 - unknown / len(text) if text else 1.0

    def read(self, text: str) -> Tokens:
        """Return the tokens of a text, special ones excluded."""
        encoded = self._encode(text)
        return Tokens(encoded.ids, encoded.offsets)

    def _encode(self, text: str, specials: bool = False) -> Encoding:
        tokenizer = _get_tokenizer(self.weights)
        try:
            return tokenizer.encode(text, add_special_tokens=specials)
        except TypeError:  # half of a surrogate pair, which is no Unicode text; `?` in its place keeps the offsets
            return tokenizer.encode(text.encode("utf-8", "replace").decode(), add_special_tokens=specials)


def _get_tokenizer(folder: str) -> Tokenizer:
    # The lock and the search for the weights are only needed the first time.
    path = _paths.get(folder)
    tokenizer = _tokenizers.get(path) if path else None
    if tokenizer is not None:
        return tokenizer
    with _open_lock:
        path = weights.find(folder).tokenizer
        if path not in _tokenizers:
            _tokenizers[path] = _load(path)
        _paths[folder] = path
        return _tokenizers[path]


_paths: dict[str, Path] = {}


def _load(path: Path) -> tokenizers.Tokenizer:
    require(tokenizers, "Counting tokens as the embedder does")
    tokenizer = tokenizers.Tokenizer.from_file(os.fspath(path))
    tokenizer.no_truncation()  # copies of one model differ here
    tokenizer.no_padding()
    return tokenizer
