"""Cutting where the meaning changes."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, ClassVar

from spolia.errors import WiringError
from spolia.indexing.splitters.sized_splitter import Sized, at_least
from spolia.indexing.splitters.windows import Unit, alone, at_places, by_sentence
from spolia.models.protocols import Embedder
from spolia.stores.definition import Part, Piece

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

BATCH = 1000
"""Groups of sentences that are embedded at one time."""


@dataclass(frozen=True)
class SemanticBreaks(Sized):
    """Cuts between sentences that are far apart in meaning.

    Each sentence is embedded together with the `buffer` sentences on either side. With v_i of length 1 for the i-th,
    the distance to the next is d_i = 1 - v_i · v_(i+1); there is a break after the i-th where d_i is above the
    percentile of all distances in the text. What is too long between two breaks is cut between sentences. Together the
    pieces cover every character but blanks.

    Args:
        embedder: gives the vectors; each sentence costs one text.
        percentile: of the distances, 0 to 100; a higher one makes fewer and longer pieces.
        buffer: sentences on either side.
        size: tokens of a piece at most.

    Raises:
        WiringError: for a percentile or a buffer that makes no sense.

    Source: Greg Kamradt, "5 Levels of Text Splitting", 2024, level 4; the semantic chunkers of LangChain and LlamaIndex
    are made after it.

    >>> from spolia.models.onnx.minilm import MiniLM
    >>> SemanticBreaks(MiniLM(), percentile=90).percentile
    90
    """

    embedder: Embedder
    percentile: float = 95
    buffer: int = 1
    cached: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, buffer=0)
        if not 0 <= self.percentile <= 100:
            raise WiringError(f"SemanticBreaks got percentile={self.percentile}. Write a number from 0 to 100.")

    def pieces(self, part: Part, /) -> Iterator[Piece]:
        text = part.node.text
        sentences = list(by_sentence(text, 0, len(text)))
        breaks = self._breaks(text, sentences)
        return self.cut(text, alone(at_places(breaks)(text, 0, len(text))), by_sentence)

    def _breaks(self, text: str, sentences: Sequence[Unit]) -> list[int]:
        """Where sentences begin that are far from the one before."""
        import numpy as np

        if len(sentences) < 2:
            return []
        distances = np.concatenate(list(self._distances(self._groups(text, sentences))))
        far = np.flatnonzero(distances > np.percentile(distances, self.percentile))
        return [sentences[number + 1].start for number in far.tolist()]

    def _groups(self, text: str, sentences: Sequence[Unit]) -> list[str]:
        """Each sentence with its neighbours; of one that is longer than a piece, what fits into a piece."""
        longest = self.bound.characters
        short = [text[start : min(end, start + longest)] for start, end, *_ in sentences]
        return [" ".join(short[max(0, at - self.buffer) : at + self.buffer + 1]) for at in range(len(short))]

    def _distances(self, groups: Sequence[str]) -> "Iterator[npt.NDArray[np.float32]]":
        """From each group to the next; batches share a group, so that none of it is left out."""
        for start, end in pairwise((*range(0, len(groups) - 1, BATCH), len(groups) - 1)):
            vectors = self.embedder.embed(groups[start : end + 1], kind="passage")
            yield 1 - (vectors[:-1] * vectors[1:]).sum(axis=1)
