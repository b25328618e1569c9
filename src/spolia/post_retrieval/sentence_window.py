"""Hits with the text around them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from spolia.errors import StoreError
from spolia.filters import narrowed
from spolia.operator import Operator
from spolia.post_retrieval.beside import beside, refuse_nothing, runs
from spolia.post_retrieval.shown import found_in, is_cut
from spolia.ranking.order import falling
from spolia.stores.corpus import Corpus, refuse_no_corpus
from spolia.surrounding import access, narrowing
from spolia.types import Document, Hit, Node, Ranking, Span
from spolia.wiring import refuse_counts

if TYPE_CHECKING:
    from spolia.stores.snapshot import Snapshot


@dataclass(frozen=True)
class SentenceWindow(Operator[Ranking, Ranking]):
    """Show each hit with the nodes around it, as one stretch of the document: sentences are searched, windows are read.

    Windows that overlap or touch become one, with the best score of its hits. Its text is the document's from the
    first node to the last, its id that of the best hit in it, and `Hit.found` holds the hits, to which citations
    point. A window ends with the document, and at a node that may not be read or that the filters do not let be found.
    Best first; ties in the order of the hits.

    Hits stay as they are where there is no stretch to show: the text was written, not cut, or has no number.

    Args:
        corpus: the store that the hits are from.
        before: nodes of the hit's group that are shown before it.
        after: nodes that are shown after it.
        top_k: hits to return, at most; None for all.

    Raises:
        StoreError: when the store cannot be read.
        FilterError: for a filter on a field that the store does not declare.

    Source: Liu, LlamaIndex, sentence window retrieval, 2023.

    >>> SentenceWindow(Corpus("notes.spolia"), before=1).short
    'SentenceWindow(before=1, after=3)'
    """

    corpus: Corpus
    before: int = 3
    after: int = 3
    top_k: int | None = None

    version: ClassVar[int] = 2

    def __post_init__(self) -> None:
        refuse_no_corpus(self.corpus, "SentenceWindow(corpus)")
        refuse_nothing(self, "before", "after")
        refuse_counts(self, "top_k", optional=True)

    def apply(self, value: Ranking, /) -> Ranking:
        snapshot, who = self.corpus.snapshot(), access()
        wanted = narrowed(value.query.filter, narrowing())
        cut: dict[tuple[str, str], list[Hit]] = {}
        for hit in value.hits:
            if is_cut(hit.node) and hit.node.number:
                cut.setdefault((hit.node.document, hit.node.group), []).append(hit)
        windows: list[Hit] = []
        for (document, _), hits in cut.items():
            around = [node for hit in hits for node in beside(snapshot, hit.node, self.before, self.after, who, wanted)]
            windows += _windows(_document(snapshot, document, who), hits, runs(around))
        rest = [hit for hit in value.hits if not is_cut(hit.node) or not hit.node.number]
        return value.but(hits=tuple(_in_order([*windows, *rest], value.hits)[: self.top_k]))


def _document(snapshot: Snapshot, id: str, access: frozenset[str]) -> Document | None:
    """The document, None where it may not be read as a whole."""
    try:
        return snapshot.document(id, access)
    except StoreError:
        return None


def _windows(document: Document | None, hits: Sequence[Hit], around: Iterable[Sequence[Node]]) -> list[Hit]:
    """The hits of one document with what stands around them; without the document as they are."""
    if document is None:
        return list(hits)
    found = []
    for run in around:
        numbers = {node.number for node in run}
        inside = sorted((hit for hit in hits if hit.node.number in numbers), key=lambda hit: falling(hit.score))
        best = inside[0]
        shown = _stretch(document, best.node, [node for node in run if is_cut(node)])
        parts = dict.fromkeys(part for hit in inside for part in found_in(shown, hit))
        found.append(Hit(shown, best.score, best.parts, tuple(parts)))
    return found


def _stretch(document: Document, best: Node, nodes: Sequence[Node]) -> Node:
    """A node that reaches from the first of some nodes to the last."""
    spans = [node.span for node in nodes if node.span is not None]
    start, end = min(span.start for span in spans), max(span.end for span in spans)
    pages = [page for span in spans if span.pages for page in span.pages]
    lines = [line for span in spans if span.lines for line in span.lines]
    span = Span(start, end, _ends(pages), _ends(lines))
    return best.but(text=document.text[start:end], span=span, context=nodes[0].context, search_text="")


def _ends(places: Sequence[int]) -> tuple[int, int] | None:
    return (min(places), max(places)) if places else None


def _in_order(hits: Iterable[Hit], before: Sequence[Hit]) -> list[Hit]:
    ranks = {hit.node.id: rank for rank, hit in reversed(list(enumerate(before)))}
    return sorted(hits, key=lambda hit: (falling(hit.score), ranks[hit.node.id]))
