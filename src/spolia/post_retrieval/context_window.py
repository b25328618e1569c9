"""Context of hits: their neighbours, a window of their document, or the nodes of another group."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar

from spolia.core.operator import Operator
from spolia.core.run_context import access, note, run_filter
from spolia.core.type_compatibility import refuse_counts, refuse_numbers
from spolia.errors import StoreError, WiringError
from spolia.filters import combine_filters
from spolia.ranking.fusion import descending_key
from spolia.stores.corpus import Corpus, NodeGroup, refuse_no_corpus, refuse_no_group
from spolia.stores.definition import DOCUMENT
from spolia.stores.snapshot.lineage import filter_nodes, related_by_lineage, related_by_place
from spolia.types import Document, Filter, Hit, Node, Ranking, Span

if TYPE_CHECKING:
    from spolia.stores.snapshot.snapshot import Snapshot

T = TypeVar("T", int, float)


def neighbours(
    snapshot: "Snapshot", node: Node, count_before: int, count_after: int, access: frozenset[str], filter: Filter | None
) -> list[Node]:
    """Return a node with its neighbours in the group, in order, up to the first that may not be read or found."""
    if node.number < 1:  # nobody knows where it stands
        return [node]
    nodes = snapshot.numbered_nodes(
        node.document, node.group, node.number - count_before, node.number + count_after, access
    )
    # The hit stays, whatever the filter says of its own fields: the runs start from it.
    by_number = {neighbour.number: neighbour for neighbour in filter_nodes(snapshot, nodes, access, filter)} | {
        node.number: node
    }
    first = last = node.number
    while first - 1 in by_number:
        first -= 1
    while last + 1 in by_number:
        last += 1
    return [by_number[number] for number in range(first, last + 1)]


def refuse_nothing(op: Operator[Any, Any], *names: str) -> None:
    """Refuse negative counts, and counts that are all 0."""
    refuse_counts(op, *names, minimum=0)
    if not any(getattr(op, name) for name in names):
        raise WiringError(
            f"{op.short} does nothing: {' and '.join(names)} are 0. Write a number above 0 for one of them."
        )


def split_runs(nodes: Sequence[Node]) -> list[list[Node]]:
    """Group nodes of one document and group into runs without a gap, each node once.

    >>> [[node.number for node in run] for run in split_runs([Node(str(n), "", number=n) for n in (4, 1, 2, 5, 2)])]
    [[1, 2], [4, 5]]
    """
    groups: list[list[Node]] = []
    for _, node in sorted({node.number: node for node in nodes}.items()):
        if groups and groups[-1][-1].number + 1 == node.number:
            groups[-1].append(node)
        else:
            groups.append([node])
    return groups


@dataclass(frozen=True)
class Neighbours(Operator[Ranking, Ranking]):
    """Add the nodes before and after each hit in its document.

    A neighbour that is j nodes away has score(n) = s - (1 - decay^j) · |s|, s the hit's: less than the hit, whatever
    the sign. A node that is reached from several hits, or is one, keeps its best score. No text is embedded again.
    Best first; between equals a hit, then the nearer neighbour. The way ends with the document, and at a node that may
    not be read or that the filters do not let be found. 10 hits become 10 · (1 + before + after) at most.

    Args:
        corpus: the store that the hits are from.
        before: neighbours before a hit.
        after: neighbours after it.
        decay: what a neighbour keeps of the score with every step, from 0 to 1.
        top_k: hits to return, at most; None for all.

    Raises:
        StoreError: when the store cannot be read.
        FilterError: for a filter on a field that the store does not declare.

    Source: `prev_next_augmenter` in Kim et al., "AutoRAG", 2024 (arXiv 2410.20878), which embeds all of them again
    instead.

    >>> Neighbours(Corpus("notes.spolia"), before=0, after=2).short
    'Neighbours(before=0, after=2, decay=0.5)'
    """

    corpus: Corpus
    before: int = 1
    after: int = 1
    decay: float = 0.5
    top_k: int | None = None

    version: ClassVar[int] = 2

    def __post_init__(self) -> None:
        refuse_no_corpus(self.corpus, "Neighbours(corpus)")
        refuse_nothing(self, "before", "after")
        refuse_numbers(self, "a number from 0 to 1", "decay")
        refuse_counts(self, "top_k", optional=True)

    def apply(self, value: Ranking, /) -> Ranking:
        snapshot, principals = self.corpus.snapshot(), access()
        filter = combine_filters(value.query.filter, run_filter())
        best_places: dict[str, tuple[float, int, int, Hit]] = {}
        for rank, hit in enumerate(value.hits):
            for node in neighbours(snapshot, hit.node, self.before, self.after, principals, filter):
                steps = abs(node.number - hit.node.number)
                new = self._decay_hit(hit, node, steps)
                # hits have no order: only the first three are compared
                place = (descending_key(new.score), steps, rank, new)
                if node.id not in best_places or place[:3] < best_places[node.id][:3]:
                    best_places[node.id] = place
        hits = [place[3] for place in sorted(best_places.values(), key=lambda place: place[:3])]
        return value.but(hits=tuple(hits[: self.top_k]))

    def _decay_hit(self, hit: Hit, node: Node, steps: int) -> Hit:
        if not steps:  # the hit itself keeps its parts and what was found in it
            return hit
        # infinity less infinity is NaN
        less = (1 - self.decay**steps) * abs(hit.score) if math.isfinite(hit.score) else 0.0
        return Hit(node, hit.score - less)


@dataclass(frozen=True)
class SentenceWindow(Operator[Ranking, Ranking]):
    """Show each hit with the nodes around it, as one part of the document: you search sentences and read windows.

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

    version: ClassVar[int] = 3  # 3: a quote is cited by its own page, not by all of the window

    def __post_init__(self) -> None:
        refuse_no_corpus(self.corpus, "SentenceWindow(corpus)")
        refuse_nothing(self, "before", "after")
        refuse_counts(self, "top_k", optional=True)

    def apply(self, value: Ranking, /) -> Ranking:
        snapshot, principals = self.corpus.snapshot(), access()
        filter = combine_filters(value.query.filter, run_filter())
        cut: dict[tuple[str, str], list[Hit]] = {}
        for hit in value.hits:
            if is_cut(hit.node) and hit.node.number:  # others have no known place that a window could reach around
                cut.setdefault((hit.node.document, hit.node.group), []).append(hit)
        windows: list[Hit] = []
        for (document, _), hits in cut.items():
            window_nodes = [
                node
                for hit in hits
                for node in neighbours(snapshot, hit.node, self.before, self.after, principals, filter)
            ]
            windows += _build_windows(_find_document(snapshot, document, principals), hits, split_runs(window_nodes))
        rest = [hit for hit in value.hits if not is_cut(hit.node) or not hit.node.number]
        return value.but(hits=tuple(_sort_hits([*windows, *rest], value.hits)[: self.top_k]))


def _find_document(snapshot: "Snapshot", id: str, access: frozenset[str]) -> Document | None:
    """Return the document, or None if it may not be read as a whole."""
    try:
        return snapshot.document(id, access)
    except StoreError:
        return None


def _build_windows(document: Document | None, hits: Sequence[Hit], node_runs: Iterable[Sequence[Node]]) -> list[Hit]:
    """Return windows around the hits of one document; without the document, the hits themselves."""
    if document is None:
        return list(hits)
    windows = []
    for run in node_runs:
        numbers = {node.number for node in run}
        inside = sorted((hit for hit in hits if hit.node.number in numbers), key=_score_key)
        windows.append(
            _show_node(_merge_nodes(document, inside[0].node, [node for node in run if is_cut(node)]), inside)
        )
    return windows


def _merge_nodes(document: Document, best: Node, nodes: Sequence[Node]) -> Node:
    """Return a node that reaches from the first of some nodes to the last."""
    spans = [node.span for node in nodes if node.span is not None]
    start, end = min(span.start for span in spans), max(span.end for span in spans)
    pages = _find_extent([page for span in spans if span.pages for page in span.pages])
    lines = [line for span in spans if span.lines for line in span.lines]
    seconds = [second for span in spans if span.seconds for second in span.seconds]
    # pages count from 1: where those after the first begin
    starts = document.pages[pages[0] : pages[1]] if pages else ()
    span = Span(start, end, pages, _find_extent(lines), _find_extent(seconds), starts)
    return best.but(text=document.text[start:end], span=span, context=nodes[0].context, search_text="")


def _find_extent(places: Sequence[T]) -> tuple[T, T] | None:
    return (min(places), max(places)) if places else None


def _sort_hits(hits: Iterable[Hit], original: Sequence[Hit]) -> list[Hit]:
    ranks = {hit.node.id: rank for rank, hit in reversed(list(enumerate(original)))}  # backwards: the first rank stays
    return sorted(hits, key=lambda hit: (descending_key(hit.score), ranks[hit.node.id]))


def cited_nodes(shown_node: Node, hit: Hit) -> Iterator[Node]:
    """Yield the nodes that a citation of `shown_node` points to: the smaller retrieved parts of its document in it.

    >>> from spolia.types import Span
    >>> whole = Node("n", "One. Two.", "d", span=Span(0, 9))
    >>> [node.text for node in cited_nodes(whole, Hit(Node("s", "Two.", "d", span=Span(5, 9)), 1.0))]
    ['Two.']
    >>> list(cited_nodes(whole, Hit(Node("q", "What?", "d", span=Span(0, 9)), 1.0)))
    []
    """
    for node in hit.found or (hit.node,):
        if is_cut(node) and _contains(shown_node, node):
            yield node


def is_cut(node: Node) -> bool:
    """Return whether the node's text is a part of its document, not a text about it."""
    return node.span is not None and node.span.end - node.span.start == len(node.text)


def _contains(large: Node, small: Node) -> bool:
    if large.span is None or small.span is None or large.document != small.document:
        return False
    inside = large.span.start <= small.span.start and small.span.end <= large.span.end
    return inside and len(small.text) < len(large.text)  # one of the same length is the shown node itself


def show_text(hit: Hit, text: str, parts: tuple[Node, ...] = ()) -> Hit:
    """Return the hit with another text, made of `parts` of its node if known; citations still point to the retrieved
    node.

    >>> hit = show_text(Hit(Node("n", "One. Two."), 1.0), "Two.")
    >>> hit.node.text, [node.text for node in hit.found]
    ('Two.', ['One. Two.'])
    """
    return hit.but(node=hit.node.but(text=text, search_text=""), found=parts or hit.found or (hit.node,))


@dataclass(frozen=True)
class Mapped(Operator[Ranking, Ranking]):
    """The nodes of another group that belong to the hits: you search small nodes and read large ones.

    By lineage the way goes up to the nearest group that both were made from, and down from there: from sentences to
    the chunks that they were cut from, from questions to the text that they were written about, from chunks to all
    their sentences. By span it goes to what overlaps the hit in the document, however the two were made.

    Each node comes once, with the score of the best hit that leads to it; best first, ties in the order of the hits,
    then of the text. Where a larger node stands for a smaller one, `Hit.found` holds the smaller one, and citations
    point to that. A hit that belongs to nothing there is left out; where none is left, as of hits of another corpus,
    the trace says so.

    What may not be read is neither shown nor passed through. The run's filter holds for all that is shown; the query's
    for what a hit is not a part of, since the fields of what a larger node is made of are not the larger node's.

    Args:
        target: the group that is shown; `document` for whole documents.
        by: `lineage`, or `span` for the place in the document.
        top_k: hits to return, at most; None for all.

    Raises:
        StoreError: when the store cannot be read, or lacks the group.
        FilterError: for a filter on a field that the store does not declare.

    Source: small-to-big in Gao et al., "Modular RAG", 2024 (arXiv 2407.21059).

    >>> from spolia import BM25, Corpus
    >>> notes = Corpus("notes.spolia")
    >>> small_to_big = BM25(notes.group("sentence"), top_k=30) >> Mapped(notes.group("coarse"), top_k=5)
    >>> small_to_big.gives(small_to_big.takes()).__name__
    'Ranking'
    """

    target: NodeGroup
    by: Literal["lineage", "span"] = "lineage"
    top_k: int | None = None

    version: ClassVar[int] = 2

    def __post_init__(self) -> None:
        refuse_no_group(self.target, "Mapped")
        if self.by not in ("lineage", "span"):
            raise WiringError(f"{self.short}: there is no way by {self.by!r}. Write 'lineage' or 'span'.")
        refuse_counts(self, "top_k", optional=True)

    def apply(self, value: Ranking, /) -> Ranking:
        find_related = related_by_lineage if self.by == "lineage" else related_by_place
        snapshot, principals = self._snapshot(), access()
        related = find_related(snapshot, value.nodes, self.target.name, principals)
        if value.hits and not any(related):
            note(f"Nothing of group {self.target.name!r} belongs to the {len(value.hits)} hits, or may be read.")
        pairs = [(hit, node) for hit, nodes in zip(value.hits, related, strict=True) for node in nodes]
        allowed_ids = self._allowed_ids(snapshot, pairs, value)
        hits = _merge_by_node((hit, node) for hit, node in pairs if node.id in allowed_ids)
        return value.but(hits=tuple(hits[: self.top_k]))

    def _snapshot(self) -> "Snapshot":
        # Whole documents are there whether or not a group was made of them.
        return self.target.corpus.snapshot() if self.target.name == DOCUMENT else self.target.snapshot()

    def _allowed_ids(self, snapshot: "Snapshot", pairs: Sequence[tuple[Hit, Node]], value: Ranking) -> set[str]:
        """Return the ids of the nodes that pass the filters."""
        principals, groups = access(), {hit.node.group for hit in value.hits}
        # What a hit was made from needs not fulfil the query's filter, whose fields may be those of the smaller node
        # alone.
        descendant_groups = {group for group in groups if self.target.name in snapshot.lineage_of(group)}
        containing = {node.id: node for hit, node in pairs if hit.node.group in descendant_groups}
        related = {node.id: node for _, node in pairs if node.id not in containing}
        allowed = filter_nodes(snapshot, list(containing.values()), principals, run_filter())
        allowed += filter_nodes(
            snapshot, list(related.values()), principals, combine_filters(value.query.filter, run_filter())
        )
        return {node.id for node in allowed}


def _merge_by_node(candidates: Iterable[tuple[Hit, Node]]) -> list[Hit]:
    """Return each node once, with its best score and the hits in it, best first."""
    by_node: dict[str, list[tuple[Hit, Node]]] = {}
    for hit, node in candidates:
        by_node.setdefault(node.id, []).append((hit, node))
    hits = (_show_node(pairs[0][1], sorted((hit for hit, _ in pairs), key=_score_key)) for pairs in by_node.values())
    return sorted(hits, key=_score_key)


def _show_node(node: Node, hits: Sequence[Hit]) -> Hit:
    """Return a node in place of some hits, with the best score and these hits."""
    cited = dict.fromkeys(part for hit in hits for part in cited_nodes(node, hit))
    return Hit(node, hits[0].score, hits[0].parts, tuple(cited))


def _score_key(hit: Hit) -> float:
    return descending_key(hit.score)


@dataclass(frozen=True)
class WindowReplacement(Operator[Ranking, Ranking]):
    """Replace the text of each hit by the window around it that a metadata field holds.

    For corpora that were cut into sentences elsewhere and keep the text around each beside it. `SentenceWindow` reads
    that from the store instead. A hit without the field stays as it is. Citations point to the hit.

    Args:
        field: name of the metadata field.

    Source: `window_replacement` in Kim et al., "AutoRAG", 2024 (arXiv 2410.20878).

    >>> from spolia.types import Node, Query
    >>> node = Node("n", "It rises.", meta=(("window", "Ships wait for the tide. It rises."),))
    >>> (hit,) = WindowReplacement()(Ranking(Query("tide"), (Hit(node, 1.0),)))
    >>> hit.node.text, hit.found[0].text
    ('Ships wait for the tide. It rises.', 'It rises.')
    """

    field: str = "window"

    def apply(self, value: Ranking, /) -> Ranking:
        return value.but(hits=tuple(map(self._show_window, value.hits)))

    def _show_window(self, hit: Hit) -> Hit:
        window = next((str(value) for name, value in hit.node.meta if name == self.field and value), "")
        return show_text(hit, window) if window else hit
