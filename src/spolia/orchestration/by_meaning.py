"""Which arm a question belongs to, by what it means."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from spolia.errors import WiringError
from spolia.models.embedded import embedded
from spolia.models.protocols import Embedder, refuse_no_embedder
from spolia.operator import Operator
from spolia.orchestration.by_keywords import Arms, refuse_no_arm
from spolia.surrounding import note
from spolia.types import ArmScores, Query, kept

if TYPE_CHECKING:
    from spolia.models.protocols import Vectors


@dataclass(frozen=True)
class ByMeaning(Operator[Query, ArmScores]):
    """Score arms by how alike the query is to what they are described by: P(F_j|q) = softmax_j(s_j / τ).

    s_j is the highest cosine of the query with the arm's descriptions: sentences about it, or questions that belong to
    it. Where no arm has at least `threshold`, all scores are 0: the question is about something else. Neither the order
    of arms nor that of descriptions matters.

    Args:
        embedder: of queries, and of descriptions as passages.
        arms: descriptions by arm.
        temperature: τ; a low one makes the scores of the best arm near 1.
        threshold: cosine, at least; -1 for none.

    Raises:
        WiringError: for no arm, one without a description, a temperature that is not above 0.
        ModelError: what the embedder gives are no vectors.

    Source: Gao et al., "Modular RAG: Transforming RAG Systems into LEGO-like Reconfigurable Frameworks", 2024, semantic
    routing (a softmax of similarities, where the paper has one of probabilities).

    >>> from spolia.testing import HashingEmbedder
    >>> arms = (("tides", ("Why does the sea rise and fall?",)), ("salt", ("Where is salt dug?",)))
    >>> scores = ByMeaning(HashingEmbedder(), arms)(Query("Why does the sea fall?")).by_arm
    >>> scores["tides"] > 0.9 > 0.1 > scores["salt"]
    True
    """

    embedder: Embedder
    arms: Arms
    temperature: float = 0.1
    threshold: float = 0.2

    version: ClassVar[int] = 2
    cached: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_no_embedder(self.embedder, "ByMeaning", Embedder)
        refuse_no_arm(self.arms, self.short)
        if empty := [arm for arm, texts in self.arms if not any(text.strip() for text in texts)]:
            raise WiringError(f"{self.short}: the arm {empty[0]!r} has no description. Write a sentence about it.")
        if not 0 < self.temperature < math.inf:
            raise WiringError(f"{self.short}: temperature is {self.temperature}. Write a number above 0.")

    def reads(self, value: Query, /) -> object:
        return value.text, value.vector

    def apply(self, value: Query, /) -> ArmScores:
        alike = self._cosines(value)
        best = max(alike.values())
        if best < self.threshold:
            note(f"No arm is alike: {best:.2f} at most, where {self.threshold} is wanted.")
            return ArmScores.of(dict.fromkeys(alike, 0.0))
        weights = {arm: math.exp((score - best) / self.temperature) for arm, score in alike.items()}
        return ArmScores.of({arm: weight / math.fsum(weights.values()) for arm, weight in weights.items()})

    def _cosines(self, query: Query) -> dict[str, float]:
        import numpy as np

        vector = query.vector if query.vector is not None else self._embedded((query.text,), passages=False)[0]
        asked = np.asarray(vector, dtype=float)
        length = float(np.linalg.norm(asked)) or 1.0
        found = {}
        for arm, vectors in self._described.items():
            found[arm] = max(math.fsum(row * asked) / length for row in vectors.astype(float))
        return found

    @kept
    def _described(self) -> dict[str, Vectors]:
        """The vectors of the descriptions, embedded once."""
        return {arm: self._embedded(texts, passages=True) for arm, texts in self.arms}

    def _embedded(self, texts: tuple[str, ...], *, passages: bool) -> Vectors:
        return embedded(self.embedder, texts, "passage" if passages else "query")
