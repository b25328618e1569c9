"""SemScore: likeness of meaning."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from spolia.evaluation.measures.answers.answer import AnswerMeasure
from spolia.models.protocols import Embedder
from spolia.surrounding import note


@dataclass(frozen=True)
class SemScore(AnswerMeasure):
    """Cosine of the embeddings of the answer and an accepted one, from -1 to 1; the best over these. No words: 0.

    The embedder is a part of its name, since numbers of different embedders do not compare. The original has
    all-mpnet-base-v2.

    Args:
        embedder: what is longer than its window is compared by its beginning, which the trace notes.

    Source: Aynetdinov and Akbik 2024.

    >>> from spolia.testing import HashingEmbedder
    >>> str(SemScore(HashingEmbedder())), round(SemScore(HashingEmbedder()).of("the moon", ["tax", "The moon"]), 4)
    ('SemScore(embedder="hashing-64")', 1.0)
    """

    embedder: Embedder

    called: ClassVar[str] = "SemScore"

    def of(self, text: str, answers: Sequence[str]) -> float:
        if not text.strip():
            return 0.0
        if max(self.embedder.tokens([text, *answers])) > self.embedder.window:
            note(f"{self}: only the first {self.embedder.window} tokens of a longer text are compared.")
        own, *others = self.embedder.embed([text, *answers], kind="passage")
        return float(max(own @ other for other in others))
