"""The passages of a ranking as sentences that can be quoted and know where they stand."""

from __future__ import annotations

import re
from collections.abc import Iterator

from spolia.generation.evidence import Passage
from spolia.sentences import sentences
from spolia.types import Citation, Node, Ranking, Span

# Thai, Lao, Burmese, Khmer, Japanese and Chinese write no spaces between words; Korean does.
_UNSPACED = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]")
_CLAUSE_END = re.compile(r"[,;:)\]—–](?=\s)|\n|[、，；：]")
_BLANK = re.compile(r"\s")
LONGEST = 60
"""Words of the longest sentence that is quoted whole. 3 % of the sentences of squad_newwiki have more."""
LONGEST_WORD = 12
"""Characters of a word, on average, above which a text is no prose (encoded data, a path) and is cut by characters."""


def count_words(text: str) -> float:
    """Words between blanks; in scripts without blanks between words, two characters count as one word.

    >>> count_words("The moon pulls."), count_words("月が引く"), count_words("東京 tower")
    (3.0, 2.0, 2.0)
    """
    if text.isascii():
        return float(len(text.split()))
    rest, characters = _UNSPACED.subn(" ", text)
    return len([word for word in rest.split() if any(map(str.isalnum, word))]) + characters / 2


def quotable(text: str, longest: int = LONGEST) -> list[tuple[int, int]]:
    """Spans of the sentences of a text; those with more than `longest` words are cut at their clauses.

    >>> text = "Stones, old and new, were set. All held."
    >>> [text[start:end] for start, end in quotable(text, longest=4)]
    ['Stones, old and new,', 'were set.', 'All held.']
    """
    return [piece for start, end in sentences(text) for piece in _pieces(text, start, end, longest)]


def _pieces(text: str, start: int, end: int, longest: int) -> Iterator[tuple[int, int]]:
    """Halves of halves, cut where a clause ends nearest to the middle, else at a blank, else in the middle."""
    while start < end and text[start].isspace():
        start += 1
    while start < end and text[end - 1].isspace():
        end -= 1
    if count_words(text[start:end]) <= longest and end - start <= LONGEST_WORD * longest:
        if start < end:
            yield start, end
        return
    middle = (start + end) // 2
    cut = _cut(_CLAUSE_END, text, start, end) or _cut(_BLANK, text, start, end) or middle
    yield from _pieces(text, start, cut, longest)
    yield from _pieces(text, cut, end, longest)


def _cut(pattern: re.Pattern[str], text: str, start: int, end: int) -> int | None:
    """The end of the match nearest to the middle; None if that lies in the first or last quarter."""
    margin = (end - start) // 4
    ends = [match.end() for match in pattern.finditer(text, start + margin, end - margin)]
    return min(ends, key=lambda at: abs(at - (start + end) // 2), default=None)


class Reading:
    """The passages of a ranking, cut into sentences.

    Attributes:
        question: what was asked.
        sentences: of all passages, best passage first.
        passages: the same sentences, passage by passage.
    """

    def __init__(self, ranking: Ranking) -> None:
        self.ranking, self.question = ranking, ranking.query.question
        spans = [(node, quotable(node.text)) for node in ranking.nodes]
        self.passages = [
            Passage(node.context, tuple(node.text[start:end] for start, end in found)) for node, found in spans
        ]
        self.sentences = [sentence for passage in self.passages for sentence in passage.sentences]
        self._places = [(node, start, end) for node, found in spans for start, end in found]

    def quote(self, index: int, number: int) -> Citation:
        """The citation of a sentence, exactly as it stands in the document."""
        node, start, end = self._places[index]
        return Citation(str(number), node.id, node.document, node.uri, node.text[start:end], _span(node, start, end))


def _span(node: Node, start: int, end: int) -> Span | None:
    """Where a part of a node stands in the document; the whole node's span where its text is not the document's."""
    whole = node.span
    if whole is None or whole.end - whole.start != len(node.text):
        return whole
    lines = None
    if whole.lines is not None:
        first = whole.lines[0] + node.text.count("\n", 0, start)
        lines = (first, first + node.text.count("\n", start, end))
    return Span(whole.start + start, whole.start + end, whole.pages, lines)


_ITEM = re.compile(r"^\s*(?:[-*+>•]|\d{1,3}[.)])\s+(?=\S)")
_EMPHASIS = re.compile(r"(\*\*|__)(?=\S)(.+?)(?<=\S)\1")


def plain(quote: str) -> str:
    """A quote as it is read in a reply: on one line, without the marks of a list item and of bold type.

    >>> plain("- **One index**\\n  per generation")
    'One index per generation'
    >>> plain("2 * 3 * 4"), plain("1999. A year")
    ('2 * 3 * 4', '1999. A year')
    """
    return _EMPHASIS.sub(r"\2", " ".join(_ITEM.sub("", quote).split()))
