"""Embedder without weights: feature hashing, so that texts with words in common are near."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar
from warnings import warn
from zlib import crc32

from spolia import models
from spolia.core.run_context import charge, check_cancelled, record_access
from spolia.deferred import numpy as np
from spolia.models.protocols import Kind
from spolia.types import Usage, Value

if TYPE_CHECKING:
    from spolia.models.vectors import TokenVectors
    from spolia.types.arrays import Vectors


@dataclass(frozen=True)
class HashingEmbedder(Value):
    """Embedder that adds up a place and a sign for every word and every three letters of it, by their CRC-32.

    Deterministic on every machine and cheap. Weinberger et al. 2009, "Feature hashing for large scale multitask
    learning".

    Args:
        dimension: length of a vector.
        window: words of a text that are read.
        salt: another salt makes another embedder, whose vectors do not fit.

    >>> from spolia.testing import HashingEmbedder
    >>> sea, ocean, tax = HashingEmbedder(256).embed(["the blue sea", "a blue sea", "income tax"], kind="passage")
    >>> bool(sea @ ocean > sea @ tax)
    True
    """

    dimension: int = 64
    window: int = 256
    salt: str = ""

    @property
    def name(self) -> str:
        return f"hashing-{self.dimension}" + (f"@{self.salt}" if self.salt else "")

    waits: ClassVar[bool] = False
    scoped: ClassVar[bool] = False

    def fingerprint(self) -> str:
        return f"{self.name}/{self.window}"

    def embed(self, texts: Sequence[str], *, kind: Kind) -> "Vectors":
        """Return one vector of length 1 for each text; the first unit vector for a text without words."""
        record_access(self)
        return self.hash_texts(texts)

    def hash_texts(self, texts: Sequence[str]) -> "Vectors":
        """Compute the vectors of `embed`, for embedders that are built on this one."""
        check_cancelled()
        vectors = np.zeros((len(texts), self.dimension), np.float32)
        for row, text in enumerate(texts):
            for feature in self._features(text):
                code = crc32(f"{self.salt}{feature}".encode("utf-8", "replace"))  # half characters have no bytes
                vectors[row, (code >> 1) % self.dimension] += 1.0 if code & 1 else -1.0  # the lowest bit is the sign
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        vectors[lengths[:, 0] == 0.0, 0] = lengths[lengths == 0.0] = 1.0
        charge(Usage(embedded=len(texts)))
        vectors /= lengths
        return vectors

    def hashed(self, texts: Sequence[str]) -> "Vectors":
        """Compute the vectors of `embed`, by the method's former name."""
        text = "HashingEmbedder.hashed is hash_texts now. The former name goes with the next minor version."
        warn(text, DeprecationWarning, stacklevel=2)
        return self.hash_texts(texts)

    def tokens(self, texts: Sequence[str]) -> list[int]:
        return [len(re.findall(r"\w+", text)) for text in texts]

    def covers(self, text: str) -> float:
        """Return 1.0: any script is hashed."""
        return 1.0

    def _features(self, text: str) -> Iterator[str]:
        for word in re.findall(r"\w+", text.lower())[: self.window]:
            yield word
            yield from (word[start : start + 3] for start in range(len(word) - 2))


@dataclass(frozen=True)
class HashingTokens(Value):
    """Token embedder without weights: each word is a token, with the vector of the word alone."""

    dimension: int = 64
    window: int = 256

    @property
    def name(self) -> str:
        return f"hashing-tokens-{self.dimension}"

    waits: ClassVar[bool] = False
    scoped: ClassVar[bool] = False

    def fingerprint(self) -> str:
        return f"{self.name}/{self.window}"

    def embed_tokens(self, texts: Sequence[str], *, kind: Kind) -> "TokenVectors":
        """Return one vector of length 1 for each word of each text."""
        check_cancelled()
        record_access(self)
        words = HashingEmbedder(self.dimension)
        rows = [words.hash_texts(re.findall(r"\w+", text)[: self.window]) for text in texts]
        return models.vectors.TokenVectors.from_vectors(rows, self.dimension)
