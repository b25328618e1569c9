"""SemScore: likeness of meaning."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from spolia.evaluation.measures.answers.answer import AnswerMeasure
from spolia.models.protocols import Embedder


@dataclass(frozen=True)
class SemScore(AnswerMeasure):
    """Cosine of the embeddings of the answer and an accepted one, from -1 to 1; the best over these. No words: 0.

    A text that is longer than the embedder's window is not compared by its beginning: the question is undetermined.

    Numbers of different embedders do not compare. The original has all-mpnet-base-v2.

    Args:
        embedder: any; its name is a part of the measure's.

    Source: Aynetdinov and Akbik 2024.

    >>> from spolia.testing import HashingEmbedder
    >>> str(SemScore(HashingEmbedder())), round(SemScore(HashingEmbedder()).of("the moon", ["tax", "The moon"]), 4)
    ('SemScore(embedder="hashing-64")', 1.0)
    """

    embedder: Embedder

    called: ClassVar[str] = "SemScore"
    range: ClassVar[tuple[float, float]] = (-1.0, 1.0)

    def of(self, text: str, answers: Sequence[str]) -> float | None:
        if not text.strip():
            return 0.0
        if max(self.embedder.tokens([text, *answers])) > self.embedder.window:
            return None
        own, *others = self.embedder.embed([text, *answers], kind="passage")
        return float(max(own @ other for other in others))
