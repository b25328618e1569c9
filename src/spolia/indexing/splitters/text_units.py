"""Splitters for plain text: by page, paragraph, sentence, separator or meaning."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, ClassVar

from spolia.deferred import numpy as np
from spolia.errors import WiringError
from spolia.indexing.splitters.sized_splitter import SizedSplitter, require_progress
from spolia.indexing.splitters.windows import Atom, Layer, Unit, by_sentence, isolate, layer_at, sentence_atoms
from spolia.models.protocols import Embedder
from spolia.stores.definition import Part, Piece, places_in

if TYPE_CHECKING:
    import numpy.typing as npt


@dataclass(frozen=True)
class Pages(SizedSplitter):
    """Splitter into pages, by the beginnings in `Document.pages`; pages without text give no piece.

    A document of a format without pages is one page. A page that is longer than `size` is cut between paragraphs, then
    between sentences. Together the pieces cover every character but blanks.

    Args:
        size: tokens of a piece at most.

    >>> from spolia.types import Document, Node
    >>> document = Document("d", "First page.\\nSecond page.", pages=(0, 12))
    >>> [piece.text for piece in Pages().pieces(Part(Node("d", document.text), document))]
    ['First page.', 'Second page.']
    """

    size: int = 2000

    def pieces(self, part: Part, /) -> Iterator[Piece]:
        text = part.node.text
        pages: Iterator[Unit] = isolate(layer_at(places_in(part, part.document.pages))(text, 0, len(text)))
        return self.cut(text, pages, by_paragraph, by_sentence)


_END = re.compile(r"(?:\r\n|[\n\r])[^\S\r\n]*(?:\r\n|[\n\r])|\f|\u2029")


def by_paragraph(text: str, start: int, end: int) -> Iterator[Unit]:
    """Yield a unit for each paragraph; one ends at a blank line, a form feed or a paragraph separator."""
    for gap in _END.finditer(text, start, end):
        yield Unit(start, gap.start())
        start = gap.end()
    yield Unit(start, end)


@dataclass(frozen=True)
class Paragraphs(SizedSplitter):
    """Splitter into paragraphs; one that is longer than `size` is cut between sentences.

    Together they cover every character but blanks.

    Args:
        size: tokens of a piece at most.

    >>> from spolia.types import Document, Node
    >>> text = "One paragraph\\nof two lines.\\n\\n\\nAnother."
    >>> [piece.text for piece in Paragraphs().pieces(Part(Node("d", text), Document("d", text)))]
    ['One paragraph\\nof two lines.', 'Another.']
    """

    size: int = 200

    def pieces(self, part: Part, /) -> Iterator[Piece]:
        text = part.node.text
        return self.cut(text, isolate(by_paragraph(text, 0, len(text))), by_sentence)


_NOTHING = re.compile(r"[\W_]*+(?:(?<=```)[\w+#.-]+)?")
_BLANK_LINE = re.compile(r"\n[^\S\n]*\n")


@dataclass(frozen=True)
class Sentences(SizedSplitter):
    """Splitter into sentences (`spolia.core.sentences`), for exact hits; a long sentence is cut after words.

    Together they cover every character but blanks, and none goes across the beginning of a heading. Text without a
    letter or a digit, as a rule between two parts, and a fence around code, says nothing alone: it goes with the
    sentence before it, or where a paragraph or a section begins with it, with the next one, as far as the size allows.

    >>> from spolia.types import Document, Node
    >>> text = "Rome was built of stone. Who carried it? 石头很重。"
    >>> part = Part(Node("d", text), Document("d", text))
    >>> [piece.text for piece in Sentences().pieces(part)]
    ['Rome was built of stone.', 'Who carried it?', '石头很重。']
    """

    size: int = 200

    version: ClassVar[int] = 2  # 2: what has no words joins a neighbour

    def pieces(self, part: Part, /) -> Iterator[Piece]:
        text = part.node.text
        headings = places_in(part, [heading.start for heading in part.document.headings])
        pending: Atom | None = None
        for atom in sentence_atoms(text, headings, self.bound):
            if pending is not None and self._belong_together(text, pending, atom):
                pending = pending._replace(end=atom.end)
                continue
            if pending is not None:
                yield Piece(text[pending.start : pending.end], pending.start)
            pending = atom
        if pending is not None:
            yield Piece(text[pending.start : pending.end], pending.start)

    def _belong_together(self, text: str, previous: Atom, atom: Atom) -> bool:
        joined_text = text[previous.start : atom.end]
        if (
            previous.section != atom.section
            or len(joined_text) > self.bound.characters
            or not self.bound.holds(joined_text)
        ):
            return False
        is_near = _BLANK_LINE.search(text, previous.end, atom.start) is None
        return _is_wordless(text, previous) or (is_near and _is_wordless(text, atom))


def _is_wordless(text: str, atom: Atom) -> bool:
    return _NOTHING.fullmatch(text, atom.start, atom.end) is not None


@dataclass(frozen=True)
class RecursiveCharacters(SizedSplitter):
    """Splitter at separators, tried in order: a stretch that one separator leaves too long is cut at the next.

    Neighbours that fit share a piece. Text that no separator makes short enough is cut after words, else between two
    characters as a reader sees them, so that the empty separator need not be written. A separator stays at the end of
    the text before it. Together the pieces cover every character but blanks.

    Args:
        size: tokens of a piece at most.
        overlap: tokens at most that a piece shares with the one before, in whole stretches between separators.
        separators: from coarse to fine.

    Raises:
        WiringError: for sizes that make no sense, or an empty separator.

    >>> from spolia.types import Document, Node
    >>> text = "One two three. Four five.\\n\\nSix seven."
    >>> part = Part(Node("d", text), Document("d", text))
    >>> [piece.text for piece in RecursiveCharacters(size=4, overlap=0).pieces(part)]
    ['One two three.', 'Four five.', 'Six seven.']
    """

    size: int = 200
    overlap: int = 20
    separators: tuple[str, ...] = ("\n\n", "\n", ". ", " ")

    def __post_init__(self) -> None:
        super().__post_init__()
        require_progress(self)
        if "" in self.separators:
            raise WiringError(
                "RecursiveCharacters got an empty separator. Leave it out: what is too long between the others is cut "
                "between characters anyway."
            )

    def pieces(self, part: Part, /) -> Iterator[Piece]:
        text = part.node.text
        layers = map(layer_of_separator, self.separators)
        return self.cut(text, [Unit(0, len(text))], *layers, overlap=self.overlap_bound(self.overlap))


def layer_of_separator(separator: str) -> Layer:
    """Return a layer that cuts after every separator."""

    def layer(text: str, start: int, end: int) -> Iterator[Unit]:
        while (place := text.find(separator, start, end)) >= 0:
            yield Unit(start, place + len(separator))
            start = place + len(separator)
        yield Unit(start, end)

    return layer


EMBEDDED_AT_ONCE = 1000
"""Groups of sentences that are embedded at one time."""


@dataclass(frozen=True)
class SemanticBreaks(SizedSplitter):
    """Splitter between sentences that are far apart in meaning.

    Each sentence is embedded together with the `buffer` sentences on either side. With v_i of length 1 for the i-th,
    the distance to the next is d_i = 1 - v_i · v_(i+1); there is a break after the i-th where d_i is above the
    percentile of all distances in the text. Text too long between two breaks is cut between sentences. Together the
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
    _minimums: ClassVar[Mapping[str, int]] = {"buffer": 0}

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.percentile <= 100:
            raise WiringError(f"SemanticBreaks got percentile={self.percentile}. Write a number from 0 to 100.")

    def pieces(self, part: Part, /) -> Iterator[Piece]:
        text = part.node.text
        sentences = list(by_sentence(text, 0, len(text)))
        breaks = self._breaks(text, sentences)
        return self.cut(text, isolate(layer_at(breaks)(text, 0, len(text))), by_sentence)

    def _breaks(self, text: str, sentences: Sequence[Unit]) -> list[int]:
        """Return where sentences begin that are far from the previous one."""
        if len(sentences) < 2:
            return []
        distances = np.concatenate(list(self._distances(self._groups(text, sentences))))
        far = np.flatnonzero(distances > np.percentile(distances, self.percentile))
        return [sentences[number + 1].start for number in far.tolist()]

    def _groups(self, text: str, sentences: Sequence[Unit]) -> list[str]:
        """Each sentence with its neighbours; of one that is longer than a piece, what fits into a piece."""
        longest = self.bound.characters
        short = [text[start : min(end, start + longest)] for start, end, *_ in sentences]
        return [" ".join(short[max(0, i - self.buffer) : i + self.buffer + 1]) for i in range(len(short))]

    def _distances(self, groups: Sequence[str]) -> "Iterator[npt.NDArray[np.float32]]":
        """From each group to the next; batches share a group, so that none of it is left out."""
        for start, end in pairwise((*range(0, len(groups) - 1, EMBEDDED_AT_ONCE), len(groups) - 1)):
            vectors = self.embedder.embed(groups[start : end + 1], kind="passage")
            yield 1 - (vectors[:-1] * vectors[1:]).sum(axis=1)
