"""SemScore and BERTScore: similarity of answers by their embeddings."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, TypeAlias

from spolia.core.type_compatibility import missing_members
from spolia.errors import MeasureError
from spolia.evaluation.measures.answers.answer_text import AnswerMeasure
from spolia.evaluation.measures.rank_measures import harmonic_mean
from spolia.models.protocols import Embedder, TokenEmbedder


@dataclass(frozen=True)
class SemScore(AnswerMeasure):
    """Cosine of the embeddings of the answer and an accepted one, from -1 to 1; the best over these. No words: 0.

    A text that is longer than the embedder's window is not compared by its beginning: the question is undetermined.

    Numbers of different embedders do not compare. The original has all-mpnet-base-v2.

    Args:
        embedder: any; its name is a part of the measure's.

    Source: Aynetdinov and Akbik 2024.

    >>> from spolia.testing import HashingEmbedder
    >>> measure = SemScore(HashingEmbedder())
    >>> str(measure), round(measure.score_text("the moon", ["tax", "The moon"]), 4)
    ('SemScore(embedder="hashing-64")', 1.0)
    """

    embedder: Embedder

    notation: ClassVar[str] = "SemScore"
    range: ClassVar[tuple[float, float]] = (-1.0, 1.0)

    def score_text(self, text: str, answers: Sequence[str]) -> float | None:
        if not text.strip():
            return 0.0
        if max(self.embedder.tokens([text, *answers])) > self.embedder.window:
            return None
        answer_vector, *references = self.embedder.embed([text, *answers], kind="passage")
        return float(max(answer_vector @ reference for reference in references))


if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Vectors: TypeAlias = npt.NDArray[np.float32]

BLOCK = 1 << 22
"""Cosines in memory at a time."""


@dataclass(frozen=True)
class BERTScore(AnswerMeasure):
    """F1 of tokens matched greedily by cosine; the best over the accepted answers. Without idf, without rescaling.

    P = mean over the answer's tokens of the highest cosine with a token of the reference, R the reverse, F1 = 2·P·R /
    (P + R). Special tokens such as [CLS] and [SEP] do not count in a mean, but a token may be nearest to one, as in the
    authors' package (`idf=False`, `rescale_with_baseline=False`, the last layer). A text without tokens scores 0. One
    that is longer than the embedder's window is not compared by its beginning: the question is undetermined.

    Args:
        embedder: gives a vector for each token, as `LocalTokenEmbedder` does; its name is a part of the measure's.
            All tokens count if it has no method `own_tokens`, and texts are taken as they are cut if it has no
            `tokens`, which counts them.

    Source: Zhang et al. 2020.
    """

    embedder: TokenEmbedder

    notation: ClassVar[str] = "BERTScore"

    def __post_init__(self) -> None:
        if lacks := missing_members(self.embedder, TokenEmbedder):
            raise MeasureError(
                f"{self.embedder!r:.80} is not a token embedder: it lacks {', '.join(lacks)}. Give BERTScore a "
                "LocalTokenEmbedder, or an object of your own with these."
            )

    def score_text(self, text: str, answers: Sequence[str]) -> float | None:
        texts = [text, *answers]
        tokens = getattr(self.embedder, "tokens", None)
        # The embedder would cut a longer text, and the score would compare its beginning only.
        if tokens is not None and max(tokens(texts)) > self.embedder.window:
            return None
        vectors = self.embedder.embed_tokens(texts, kind="passage")
        rows = [vectors.row(index) for index in range(len(vectors))]
        own_tokens = getattr(self.embedder, "own_tokens", None)
        counted_rows = rows if own_tokens is None else _select_counted(rows, own_tokens(texts, kind="passage"))
        return max(
            # A mean cosine may be below 0, where a harmonic mean says nothing.
            harmonic_mean(
                max(0.0, _mean_best_cosine(counted_rows[0], reference)),
                max(0.0, _mean_best_cosine(reference_counted, rows[0])),
            )
            for reference_counted, reference in zip(counted_rows[1:], rows[1:], strict=True)
        )


def _select_counted(rows: "Sequence[Vectors]", is_counted: Sequence[Sequence[bool]]) -> "list[Vectors]":
    return [row[list(counts)] for row, counts in zip(rows, is_counted, strict=True)]


def _mean_best_cosine(rows: "Vectors", columns: "Vectors") -> float:
    """Return the mean over rows of the highest cosine with a column, in blocks of bounded memory."""
    if not len(rows) or not len(columns):
        return 0.0
    step = max(1, BLOCK // len(columns))
    best = [(rows[start : start + step] @ columns.T).max(axis=1).sum() for start in range(0, len(rows), step)]
    return float(sum(best) / len(rows))
