"""Sparse vectors (SPLADE, Formal et al. 2021) and token vectors (ColBERT)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from spolia.errors import ModelError

TermOffsets = npt.NDArray[np.int64]
Terms = npt.NDArray[np.int32]
TermWeights = npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class SparseRows:
    """Sparse vectors, one below the other, in compressed rows.

    Args:
        offsets: int64[n + 1], where each row begins; the last is the number of entries.
        terms: int32[entries], at least 0, ascending within a row.
        weights: float32[entries], of the terms.

    Raises:
        ModelError: the arrays do not fit together, terms do not ascend, a weight is NaN or infinite; naming the row.

    >>> rows = SparseRows.from_weights([{7: 1.5, 2: 0.5}, {}])
    >>> rows.terms.tolist(), rows.weights.tolist(), len(rows)
    ([2, 7], [0.5, 1.5], 2)
    """

    offsets: TermOffsets
    terms: Terms
    weights: TermWeights

    def __post_init__(self) -> None:
        ends, entries = self.offsets, len(self.terms)
        if not len(ends) or ends[0] != 0 or ends[-1] != entries or (np.diff(ends) < 0).any():
            raise ModelError(
                f"Sparse rows have offsets that do not go from 0 to {entries}, the number of terms. Write them so."
            )
        if len(self.weights) != entries:
            raise ModelError(f"Sparse rows have {entries} terms and {len(self.weights)} weights. Write one for each.")
        follows = np.ones(entries, dtype=np.bool_)
        follows[1:] = self.terms[1:] > self.terms[:-1]
        follows[ends[:-1][np.diff(ends) > 0]] = True  # the first term of a row follows none
        wrong = np.flatnonzero(~follows | (self.terms < 0) | ~np.isfinite(self.weights))
        if len(wrong):
            row = int(np.searchsorted(ends, wrong[0], side="right")) - 1
            raise ModelError(
                f"Sparse row {row} holds the term {self.terms[wrong[0]]} with the weight {self.weights[wrong[0]]}. "
                "Write terms of at least 0, ascending, each once, with finite weights."
            )

    @classmethod
    def from_weights(cls, rows: Iterable[Mapping[int, float]]) -> SparseRows:
        """Build the rows from weights by term."""
        ordered = [sorted(row.items()) for row in rows]
        entries = [entry for row in ordered for entry in row]
        return cls(
            np.cumsum([0, *map(len, ordered)], dtype=np.int64),
            np.array([term for term, _ in entries], dtype=np.int32),
            np.array([weight for _, weight in entries], dtype=np.float32),
        )

    @classmethod
    def concatenate(cls, parts: Iterable[SparseRows]) -> SparseRows:
        """Return the rows of all parts, one below the other."""
        parts = list(parts)
        lengths = np.concatenate([np.zeros(1, np.int64), *(np.diff(part.offsets) for part in parts)])
        return cls(
            np.cumsum(lengths),
            np.concatenate([np.zeros(0, np.int32), *(part.terms for part in parts)]),
            np.concatenate([np.zeros(0, np.float32), *(part.weights for part in parts)]),
        )

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def row(self, index: int) -> tuple[Terms, TermWeights]:
        """Return terms and weights of one row."""
        entries = slice(int(self.offsets[index]), int(self.offsets[index + 1]))
        return self.terms[entries], self.weights[entries]

    def select(self, index: int) -> SparseRows:
        """Return one row alone."""
        terms, weights = self.row(index)
        return SparseRows(np.array([0, len(terms)]), terms, weights)

    def weights_of(self, index: int) -> dict[int, float]:
        """Return the weights of one row by term."""
        terms, weights = self.row(index)
        return dict(zip(terms.tolist(), weights.tolist(), strict=True))


TokenOffsets = npt.NDArray[np.int64]
Vectors = npt.NDArray[np.float32]

BATCH_TEXTS = 256
"""Texts whose products are in memory at the same time."""


@dataclass(frozen=True, eq=False)
class TokenVectors:
    """Token vectors of several texts, one below the other, without any padding.

    Args:
        offsets: int64[n + 1], where the tokens of each text begin; the last is the number of tokens.
        vectors: float32[tokens, d], of length 1, so that their products are cosines.

    Raises:
        ModelError: the arrays do not fit together, or a vector holds NaN or infinity; naming the text.

    >>> two = TokenVectors.from_vectors([[[1.0, 0.0], [0.0, 2.0]], []], dimension=2)
    >>> len(two), two.row(0).tolist(), two.row(1).shape
    (2, [[1.0, 0.0], [0.0, 1.0]], (0, 2))
    """

    offsets: TokenOffsets
    vectors: Vectors

    def __post_init__(self) -> None:
        ends = self.offsets
        if self.vectors.ndim != 2 or not len(ends) or ends[0] != 0 or ends[-1] != len(self.vectors):
            raise ModelError(
                f"Token vectors of shape {self.vectors.shape} have offsets that do not go from 0 to their number. "
                "Write one row for each token, and where the tokens of each text begin."
            )
        if (np.diff(ends) < 0).any():
            raise ModelError("The offsets of token vectors descend. Write them in the order of the texts.")
        wrong = np.flatnonzero(~np.isfinite(self.vectors).all(axis=1))
        if len(wrong):
            text = int(np.searchsorted(ends, wrong[0], side="right")) - 1
            raise ModelError(f"A token of text {text} has a vector with NaN or infinity. Correct the embedder.")

    @classmethod
    def from_vectors(cls, texts: Iterable[Sequence[Sequence[float]] | Vectors], dimension: int) -> TokenVectors:
        """Build them from the vectors of each text's tokens, scaled to length 1; zeros stay zeros."""
        rows = [np.asarray(text, dtype=np.float32).reshape(-1, dimension) for text in texts]
        vectors = np.concatenate([np.zeros((0, dimension), np.float32), *rows])
        # squares of float32 numbers may overflow
        lengths = np.linalg.norm(vectors.astype(np.float64), axis=1, keepdims=True)
        unit = (vectors / np.where(lengths > 0, lengths, 1.0)).astype(np.float32)
        return cls(np.cumsum([0, *map(len, rows)], dtype=np.int64), unit)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def row(self, index: int) -> Vectors:
        """Return the vectors float32[tokens, d] of one text."""
        return self.vectors[int(self.offsets[index]) : int(self.offsets[index + 1])]


def max_sims(query: Vectors, texts: TokenVectors) -> npt.NDArray[np.float64]:
    """Return float64[n]: for each text Σ over the query's tokens of their largest product with a token of the text.

    score(q, d) = Σ_i max_j q_i · d_j, with q float32[tokens, d]. A text without tokens scores 0, like one without
    similarity.

    >>> texts = TokenVectors.from_vectors([[[1.0, 0.0]], [[1.0, 0.0], [0.0, 1.0]], []], dimension=2)
    >>> max_sims(np.eye(2, dtype=np.float32), texts).tolist()
    [1.0, 2.0, 0.0]
    """
    scores = np.zeros(len(texts))
    query_columns = query.astype(np.float64).T
    for first in range(0, len(texts) if len(query) else 0, BATCH_TEXTS):
        starts = texts.offsets[first : first + BATCH_TEXTS + 1]
        nonempty = np.flatnonzero(np.diff(starts))  # `reduceat` takes an empty stretch for the row after it
        if len(nonempty):
            products = texts.vectors[starts[0] : starts[-1]].astype(np.float64) @ query_columns
            best = np.maximum.reduceat(products, starts[nonempty] - starts[0], axis=0)
            scores[first + nonempty] = best.sum(axis=1)
    return scores
