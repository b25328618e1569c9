"""Structure without a model: topics by words, and summaries of the most central sentences."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import islice
from typing import TYPE_CHECKING, ClassVar, TypeAlias

from spolia.core.operator import Operator
from spolia.core.sentences import sentences
from spolia.deferred import numpy as np
from spolia.indexing.splitters.sized_splitter import require_minimums
from spolia.indexing.splitters.windows import sentence_units
from spolia.models.protocols import Embedder
from spolia.stores.definition import Part, Piece, Pieces, Splitter

if TYPE_CHECKING:
    import numpy.typing as npt

    Vectors: TypeAlias = npt.NDArray[np.float64]

# Merging takes time and memory for all sentences of a block; the bound holds for books too.
BLOCK = 1_000
"""Sentences that are compared together; a break always follows."""
EMBEDDED_CHARACTERS = 2_000
"""Characters of a sentence that are embedded."""


@dataclass(frozen=True)
class Topics(Splitter):
    """Splitter into stretches of neighbouring sentences with one topic: a level of a tree by meaning.

    At first each sentence is a stretch of its own. Again and again the two neighbours are joined that make stretches
    least different within: a and b with the smallest |a| · |b| / (|a| + |b|) · ‖mean(a) - mean(b)‖² (Ward's method,
    between neighbours only), until there is one stretch for every `sentences` sentences. Between equals the first are
    joined, so that the same text gives the same stretches. Together they cover every character but blanks. Spolia
    reads a long text in blocks of 1,000 sentences.

    `SemanticBreaks` looks at one place at a time and is bounded in size; this looks at whole stretches, and is for the
    inner nodes of a tree: a few topics, of these finer ones, of these chunks.

    Args:
        embedder: gives the vectors; each sentence costs one text.
        sentences: of a stretch, on average.

    Raises:
        WiringError: for fewer than one sentence.

    Source: Ward, "Hierarchical grouping to optimize an objective function", 1963; with neighbours only, Choi, "Advances
    in domain independent linear text segmentation", 2000.

    >>> from spolia.models.onnx.minilm import MiniLM
    >>> Topics(MiniLM(), sentences=12).short
    'Topics(sentences=12)'
    """

    embedder: Embedder
    sentences: int = 20

    cached: ClassVar[bool] = True

    def __post_init__(self) -> None:
        require_minimums(self, sentences=1)

    def pieces(self, part: Part, /) -> Iterator[Piece]:
        text, spans = part.node.text, sentence_units(part.node.text, 0, len(part.node.text))
        while units := list(islice(spans, BLOCK)):
            first = 0
            embedded_texts = [text[start : min(end, start + EMBEDDED_CHARACTERS)] for start, end, *_ in units]
            vectors = self.embedder.embed(embedded_texts, kind="passage").astype("float64")
            for end in merge_neighbours(vectors, -(-len(units) // self.sentences)):
                start, stop = units[first][0], units[end - 1][1]
                yield Piece(text[start:stop], start)
                first = end


def merge_neighbours(vectors: "Vectors", count: int) -> list[int]:
    """Return where each stretch ends after neighbouring rows of float64[n, d] were merged until `count` stretches are
    left."""
    sums, sizes = dict(enumerate(vectors)), dict.fromkeys(range(len(vectors)), 1)
    following = {i: i + 1 for i in range(len(vectors))}
    preceding = {row + 1: row for row in range(len(vectors))}

    def cost(row: int) -> tuple[float, int, int, int]:
        next_row = following[row]
        difference = sums[row] / sizes[row] - sums[next_row] / sizes[next_row]
        weight = sizes[row] * sizes[next_row] / (sizes[row] + sizes[next_row])
        return weight * float(difference @ difference), row, sizes[row], sizes[next_row]

    heap = [cost(i) for i in range(len(vectors) - 1)]
    heapify(heap)
    while len(sizes) > count:
        # Entries of the heap are not removed when their stretches grow; the sizes in them show that they are outdated.
        _, i, size, following_size = heappop(heap)
        if sizes.get(i) != size or sizes.get(following[i]) != following_size:
            continue  # one of the two was joined with another meanwhile
        merged = following[i]
        sums[i] = sums[i] + sums.pop(merged)
        sizes[i] += sizes.pop(merged)
        following[i] = following.pop(merged)
        preceding[following[i]] = i
        if following[i] in sizes:  # the last stretch has no next one
            heappush(heap, cost(i))
        if i in preceding:
            heappush(heap, cost(preceding[i]))
    return [following[i] for i in sorted(sizes)]


LONGEST = 1_000
"""Sentences of a text that are looked at."""


@dataclass(frozen=True)
class ExtractiveSummary(Operator[Part, Pieces]):
    """Summary of a text by some of its own sentences, in their order.

    With an embedder those whose vectors have the largest cosine with the mean of all, which say what the text is about;
    without one the first, which in reports and articles often do. `Summary` asks a language model instead.

    Args:
        sentences: of a summary, at most.
        embedder: of the sentences; each costs one text. None for the first sentences.

    Raises:
        WiringError: for fewer than one sentence.

    Source: Radev et al., "Centroid-based summarization of multiple documents", 2004.

    >>> from spolia.stores.definition import document_node
    >>> from spolia.types import Document
    >>> document = Document("d", "The moon makes the tide. Ships wait for it. So do crabs.")
    >>> ExtractiveSummary(sentences=2)(Part(document_node(document), document))[0].text
    'The moon makes the tide. Ships wait for it.'
    """

    sentences: int = 3
    embedder: Embedder | None = None

    cached: ClassVar[bool] = True

    def __post_init__(self) -> None:
        require_minimums(self, sentences=1)

    def apply(self, value: Part, /) -> Pieces:
        text = value.node.text
        sentence_texts = [" ".join(text[start:end].split()) for start, end in sentences(text)[:LONGEST]]
        sentence_texts = [sentence for sentence in sentence_texts if any(map(str.isalnum, sentence))]
        return (Piece(" ".join(sentence_texts[i] for i in self._choose(sentence_texts))),) if sentence_texts else ()

    def reads(self, value: Part, /) -> object:
        return value.node.text

    def fanout(self, rows: int | None = None, /) -> int | None:
        return 1

    def _choose(self, sentence_texts: Sequence[str]) -> list[int]:
        if self.embedder is None or len(sentence_texts) <= self.sentences:
            return list(range(len(sentence_texts)))[: self.sentences]

        vectors = self.embedder.embed(sentence_texts, kind="passage").astype(np.float64)
        nearest = np.argsort(-(vectors @ vectors.mean(axis=0)), kind="stable")[: self.sentences]
        return sorted(nearest.tolist())
