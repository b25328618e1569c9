"""Structure without a model: topics by words, and summaries of the most central sentences."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import islice
from typing import TYPE_CHECKING, ClassVar, TypeAlias

from spolia.core.operator import Operator
from spolia.core.sentences import sentences
from spolia.deferred import numpy as np
from spolia.indexing.splitters.sized_splitter import at_least
from spolia.indexing.splitters.windows import sentence_units
from spolia.models.protocols import Embedder
from spolia.stores.definition import Part, Piece, Pieces, Splitter

if TYPE_CHECKING:
    import numpy.typing as npt

    Vectors: TypeAlias = npt.NDArray[np.float64]

BLOCK = 1_000
"""Sentences that are compared together; a break always follows."""
READ = 2_000
"""Characters of a sentence that are embedded."""


@dataclass(frozen=True)
class Topics(Splitter):
    """Cuts a text into stretches of neighbouring sentences that mean the same: a level of a tree by meaning.

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
        at_least(self, sentences=1)

    def pieces(self, part: Part, /) -> Iterator[Piece]:
        text, spans = part.node.text, sentence_units(part.node.text, 0, len(part.node.text))
        while some := list(islice(spans, BLOCK)):
            first = 0
            read = [text[start : min(end, start + READ)] for start, end, *_ in some]
            vectors = self.embedder.embed(read, kind="passage").astype("float64")
            for end in joined(vectors, -(-len(some) // self.sentences)):
                start, stop = some[first][0], some[end - 1][1]
                yield Piece(text[start:stop], start)
                first = end


def joined(vectors: "Vectors", count: int) -> list[int]:
    """Where the stretches end when neighbouring rows float64[n, d] were joined until there are `count` of them."""
    sums, sizes = dict(enumerate(vectors)), dict.fromkeys(range(len(vectors)), 1)
    after = {at: at + 1 for at in range(len(vectors))}
    before = {at + 1: at for at in range(len(vectors))}

    def cost(at: int) -> tuple[float, int, int, int]:
        other = after[at]
        apart = sums[at] / sizes[at] - sums[other] / sizes[other]
        weight = sizes[at] * sizes[other] / (sizes[at] + sizes[other])
        return weight * float(apart @ apart), at, sizes[at], sizes[other]

    open_ = [cost(at) for at in range(len(vectors) - 1)]
    heapify(open_)
    while len(sizes) > count:
        _, at, mine, others = heappop(open_)
        if sizes.get(at) != mine or sizes.get(after[at]) != others:
            continue  # one of the two was joined with another meanwhile
        gone = after[at]
        sums[at] = sums[at] + sums.pop(gone)
        sizes[at] += sizes.pop(gone)
        after[at] = after.pop(gone)
        before[after[at]] = at
        if after[at] in sizes:
            heappush(open_, cost(at))
        if at in before:
            heappush(open_, cost(before[at]))
    return [after[at] for at in sorted(sizes)]


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
        at_least(self, sentences=1)

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

        vectors = self.embedder.embed(found, kind="passage").astype(np.float64)
        nearest = np.argsort(-(vectors @ vectors.mean(axis=0)), kind="stable")[: self.sentences]
        return sorted(nearest.tolist())
