"""Vectors of the sentences of passages, computed once for all questions about a passage."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from spolia.core.operator import Operator
from spolia.deferred import numpy as np
from spolia.models.protocols import Embedder, embed_checked
from spolia.types import Failure

if TYPE_CHECKING:
    from spolia.types.arrays import Vectors


@dataclass(frozen=True)
class SentenceVectors(Operator[tuple[str, ...], str]):
    """The vectors of a passage's sentences: float32, little-endian, one after the other, in base64.

    A run's cache keeps them under the sentences and the embedder's fingerprint, so that other questions about the
    passage embed none of them again, in other processes too. No text is kept with them.

    Args:
        embedder: embeds each sentence, once in a process.

    >>> from spolia.testing import HashingEmbedder
    >>> kept = SentenceVectors(HashingEmbedder(16))(("The tide rises.", "Ships wait."))
    >>> len(b64decode(kept)) == 2 * 16 * 4
    True
    """

    embedder: Embedder

    cached: ClassVar[bool] = True

    def apply(self, value: tuple[str, ...], /) -> str:
        (vectors,) = self.apply_batch([value])
        return vectors

    def apply_batch(self, values: Sequence[tuple[str, ...]], /) -> list[str]:
        vectors = _embed_cached(self.embedder, list(dict.fromkeys(text for texts in values for text in texts)))
        rows = (b"".join(vectors[text].astype("<f4").tobytes() for text in texts) for texts in values)
        return [b64encode(row).decode() for row in rows]


def sentence_vectors(embedder: Embedder, passages: Sequence[Sequence[tuple[str, ...]]]) -> list[list[Vectors]]:
    """Return for each row of a batch the vectors of each of its passages: float32[sentences, d]."""
    rows = [row for row, sentences in enumerate(passages) for _ in sentences]
    results = SentenceVectors(embedder).batch([passage for sentences in passages for passage in sentences], rows=rows)
    vectors_by_row: list[list[Vectors]] = [[] for _ in passages]
    for row, result in zip(rows, results, strict=True):
        if isinstance(result, Failure):
            raise result.raised()
        vectors_by_row[row].append(np.frombuffer(b64decode(result), "<f4").reshape(-1, embedder.dimension))
    return vectors_by_row


KEPT_SENTENCES = 20_000
"""Vectors of sentences that a process keeps, of all embedders together: 31 MB at 384 numbers. Then it begins again."""
_vector_cache: dict[tuple[str, str], Vectors] = {}


def _embed_cached(embedder: Embedder, sentences: Sequence[str]) -> dict[str, Vectors]:
    """Return the vector of each sentence, computed once in a process: passages that overlap share it.

    Nothing is kept of an embedder without a fingerprint, or whose vectors depend on who asks.
    """
    content = None if embedder.scoped else embedder.fingerprint()
    if content is None:
        return dict(zip(sentences, embed_checked(embedder, sentences, "passage"), strict=True))
    owner = f"{type(embedder).__qualname__}|{embedder.name}|{content}"
    vectors = {text: cached for text in sentences if (cached := _vector_cache.get((owner, text))) is not None}
    if missing := [text for text in sentences if text not in vectors]:
        rows = embed_checked(embedder, missing, "passage")
        # A row is a view, which would keep the array of the whole batch alive.
        fresh = {text: row.copy() for text, row in zip(missing, rows, strict=True)}
        if len(_vector_cache) + len(fresh) > KEPT_SENTENCES:
            _vector_cache.clear()
        # Without a lock: at worst two threads compute the same vector.
        _vector_cache.update({(owner, text): row for text, row in fresh.items()})
        vectors |= fresh
    return vectors
