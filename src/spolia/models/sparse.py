"""Sparse vectors: for each text, weights of some terms of a vocabulary, as learned sparse models give them.

Source: Formal et al., "SPLADE: Sparse lexical and expansion model for first stage ranking", 2021.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from spolia.errors import ModelError

Offsets = npt.NDArray[np.int64]
Terms = npt.NDArray[np.int32]
Weights = npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class SparseRows:
    """Sparse vectors, one below the other, in compressed rows.

    Args:
        offsets: int64[n + 1], where each row begins; the last is the number of entries.
        terms: int32[entries], at least 0, ascending within a row.
        weights: float32[entries], of the terms.

    Raises:
        ModelError: the arrays do not fit together, terms do not ascend, a weight is NaN or infinite; naming the row.

    >>> rows = SparseRows.of([{7: 1.5, 2: 0.5}, {}])
    >>> rows.terms.tolist(), rows.weights.tolist(), len(rows)
    ([2, 7], [0.5, 1.5], 2)
    """

    offsets: Offsets
    terms: Terms
    weights: Weights

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
        follows[ends[:-1][np.diff(ends) > 0]] = True
        wrong = np.flatnonzero(~follows | (self.terms < 0) | ~np.isfinite(self.weights))
        if len(wrong):
            row = int(np.searchsorted(ends, wrong[0], side="right")) - 1
            raise ModelError(
                f"Sparse row {row} holds the term {self.terms[wrong[0]]} with the weight {self.weights[wrong[0]]}. "
                "Write terms of at least 0, ascending, each once, with finite weights."
            )

    @classmethod
    def of(cls, rows: Iterable[Mapping[int, float]]) -> SparseRows:
        """From weights by term."""
        ordered = [sorted(row.items()) for row in rows]
        entries = [entry for row in ordered for entry in row]
        return cls(
            np.cumsum([0, *map(len, ordered)], dtype=np.int64),
            np.array([term for term, _ in entries], dtype=np.int32),
            np.array([weight for _, weight in entries], dtype=np.float32),
        )

    @classmethod
    def together(cls, parts: Iterable[SparseRows]) -> SparseRows:
        """Rows of all parts, one below the other."""
        parts = list(parts)
        lengths = np.concatenate([np.zeros(1, np.int64), *(np.diff(part.offsets) for part in parts)])
        return cls(
            np.cumsum(lengths),
            np.concatenate([np.zeros(0, np.int32), *(part.terms for part in parts)]),
            np.concatenate([np.zeros(0, np.float32), *(part.weights for part in parts)]),
        )

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def row(self, at: int) -> tuple[Terms, Weights]:
        """Terms and weights of one row."""
        entries = slice(int(self.offsets[at]), int(self.offsets[at + 1]))
        return self.terms[entries], self.weights[entries]

    def only(self, at: int) -> SparseRows:
        """One row alone."""
        terms, weights = self.row(at)
        return SparseRows(np.array([0, len(terms)]), terms, weights)

    def weights_of(self, at: int) -> dict[int, float]:
        """Weights of one row by term."""
        terms, weights = self.row(at)
        return dict(zip(terms.tolist(), weights.tolist(), strict=True))
