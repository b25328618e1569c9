"""Keeping the sentences that are nearest to the question."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import ClassVar

from spolia.errors import WiringError
from spolia.models.embedded import embedded
from spolia.models.protocols import Embedder
from spolia.operator import Operator
from spolia.post_retrieval.selection.kept import best_share, reaching
from spolia.post_retrieval.shown import is_cut, showing
from spolia.sentences import sentences
from spolia.stores.lexical.analysis import Analyzer
from spolia.types import Hit, Node, Ranking, Span
from spolia.wiring import refuse_counts


@dataclass(frozen=True)
class Extractive(Operator[Ranking, Ranking]):
    """Keep the sentences of the hits that are alike enough, sim(q, s) ≥ at_least, and of them the `most` nearest ones.

    sim is the cosine of the vectors; without an embedder, the share of the question's terms that a sentence holds.
    Sentences stay in their order; of equal ones the first are kept, of some hits at least one sentence. A hit of which
    none is kept goes. Citations point to the stretches that are left, with their places in the document.

    Args:
        embedder: gives the vectors; each sentence costs one text. None compares terms.
        at_least: the least likeness, from -1 to 1.
        most: sentences of all hits together; None for all that are alike enough.
        analyzer: cuts into terms, where there is no embedder.

    Raises:
        WiringError: a bound that is not from -1 to 1.
        ModelError: what the embedder gives are no vectors.

    Source: extractive compression in Xu, Shi, Choi, "RECOMP: Improving retrieval-augmented LMs with compression and
    selective augmentation", ICLR 2024.

    >>> from spolia.types import Query
    >>> text = "Ships wait for the tide. The tide is caused by the moon. Salt is dug."
    >>> hit = Hit(Node("n", text, "d", span=Span(100, 169)), 1.0)
    >>> (kept,) = Extractive(most=1)(Ranking(Query("What causes the tide?"), (hit,)))
    >>> kept.node.text, kept.found[0].span
    ('The tide is caused by the moon.', Span(start=125, end=156, pages=None, lines=None))
    """

    embedder: Embedder | None = None
    at_least: float = 0.1
    most: int | None = None
    analyzer: Analyzer = field(default_factory=Analyzer)

    version: ClassVar[int] = 2
    cached: ClassVar[bool] = True
    waits: ClassVar[bool] = True

    def __post_init__(self) -> None:
        refuse_counts(self, "most", optional=True)
        if not -1 <= self.at_least <= 1:
            raise WiringError(f"{self.short}: at_least is {self.at_least}. Write a number from -1 to 1.")

    def apply(self, value: Ranking, /) -> Ranking:
        spans = [(at, *span) for at, hit in enumerate(value.hits) for span in sentences(hit.node.text)]
        if not spans:
            return value
        scores = self._likeness(value.query.question, [value.hits[at].node.text[start:end] for at, start, end in spans])
        # a sentence stands for a hit, so that bounds keep of them what they keep of hits
        places = [Hit(Node(str(number), ""), score) for number, score in enumerate(scores)]
        kept = reaching(places, scores, self.at_least)
        if self.most is not None and len(kept) > self.most:
            kept = best_share(kept, [place.score for place in kept], self.most / len(kept))
        left = [spans[int(place.node.id)] for place in kept]
        hits = [
            _left(value.hits[at], [(start, end) for _, start, end in own]) for at, own in groupby(left, lambda p: p[0])
        ]
        return value.but(hits=tuple(hits))

    def _likeness(self, question: str, texts: Sequence[str]) -> list[float]:
        if self.embedder is not None:
            (asked,) = embedded(self.embedder, [question], "query")
            return [float(vector @ asked) for vector in embedded(self.embedder, texts, "passage")]
        terms = frozenset(self.analyzer.terms(question))
        return [len(terms.intersection(self.analyzer.terms(text))) / (len(terms) or 1) for text in texts]


def _left(hit: Hit, spans: Sequence[tuple[int, int]]) -> Hit:
    """The hit with some sentences of its text."""
    text = hit.node.text
    shown = " ".join(text[start:end] for start, end in spans)
    parts = tuple(_part(hit.node, *span) for span in spans) if is_cut(hit.node) and not hit.found else ()
    return hit if shown == text.strip() else showing(hit, shown, parts)


def _part(node: Node, start: int, end: int) -> Node:
    """A stretch of a node with its place in the document."""
    whole, lines = node.span, None
    assert whole is not None
    if whole.lines is not None:
        first = whole.lines[0] + node.text.count("\n", 0, start)
        lines = (first, first + node.text.count("\n", start, end))
    span = Span(whole.start + start, whole.start + end, whole.pages, lines)
    return node.but(text=node.text[start:end], span=span, search_text="")
