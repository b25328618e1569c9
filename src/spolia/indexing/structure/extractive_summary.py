"""Summaries without a language model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from spolia.core.operator import Operator
from spolia.core.sentences import sentences
from spolia.errors import WiringError
from spolia.models.protocols import Embedder
from spolia.stores.definition import Part, Piece, Pieces

LONGEST = 1_000
"""Sentences of a text that are looked at."""


@dataclass(frozen=True)
class ExtractiveSummary(Operator[Part, Pieces]):
    """One node for each: sentences of its text, in their order.

    With an embedder those whose vectors have the largest cosine with the mean of all, which say what the text is about;
    without one the first, which in reports and articles often do. `Summary` asks a language model instead.

    Args:
        sentences: of a summary, at most.
        embedder: of the sentences; each costs one text. None for the first sentences.

    Raises:
        WiringError: for fewer than one sentence.

    Source: Radev et al., "Centroid-based summarization of multiple documents", 2004.

    >>> from spolia.stores.definition import whole
    >>> from spolia.types import Document
    >>> document = Document("d", "The moon makes the tide. Ships wait for it. So do crabs.")
    >>> ExtractiveSummary(sentences=2)(Part(whole(document), document))[0].text
    'The moon makes the tide. Ships wait for it.'
    """

    sentences: int = 3
    embedder: Embedder | None = None

    cached: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.sentences < 1:
            raise WiringError(f"ExtractiveSummary got sentences={self.sentences}. Write a number of at least 1.")

    def apply(self, value: Part, /) -> Pieces:
        text = value.node.text
        found = [" ".join(text[start:end].split()) for start, end in sentences(text)[:LONGEST]]
        found = [sentence for sentence in found if any(map(str.isalnum, sentence))]
        return (Piece(" ".join(found[at] for at in self._chosen(found))),) if found else ()

    def reads(self, value: Part, /) -> object:
        return value.node.text

    def fanout(self, rows: int | None = None, /) -> int | None:
        return 1

    def _chosen(self, found: Sequence[str]) -> list[int]:
        if self.embedder is None or len(found) <= self.sentences:
            return list(range(len(found)))[: self.sentences]
        import numpy as np

        vectors = self.embedder.embed(found, kind="passage").astype(np.float64)
        nearest = np.argsort(-(vectors @ vectors.mean(axis=0)), kind="stable")[: self.sentences]
        return sorted(nearest.tolist())
