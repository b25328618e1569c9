"""What is shown around a hit, or in its place: its neighbours, a window, the nodes of another group."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar

from spolia.core.operator import Operator
from spolia.core.run_context import access, narrowing, note
from spolia.core.type_compatibility import refuse_counts, refuse_numbers
from spolia.errors import StoreError, WiringError
from spolia.filters import narrowed
from spolia.ranking.fusion import falling
from spolia.stores.corpus import Corpus, NodeGroup, refuse_no_corpus, refuse_no_group
from spolia.stores.definition import DOCUMENT
from spolia.stores.snapshot.lineage import filter_nodes, related_by_lineage, related_by_place
from spolia.types import Document, Filter, Hit, Node, Ranking, Span

if TYPE_CHECKING:
    from spolia.stores.snapshot.snapshot import Snapshot

T = TypeVar("T", int, float)


def beside(
    snapshot: "Snapshot", node: Node, before: int, after: int, access: frozenset[str], filter: Filter | None
) -> list[Node]:
    """A node with at most `before` and `after` nodes of its group around it, in order, up to the first that may not be
    read or found.
    """
    if node.number < 1:  # nobody knows where it stands
        return [node]
    around = snapshot.numbered_nodes(node.document, node.group, node.number - before, node.number + after, access)
    there = {found.number: found for found in filter_nodes(snapshot, around, access, filter)} | {node.number: node}
    first = last = node.number
    while first - 1 in there:
        first -= 1
    while last + 1 in there:
        last += 1
    return [there[number] for number in range(first, last + 1)]


def refuse_nothing(op: Operator[Any, Any], *names: str) -> None:
    """Refuse fields that are no counts from 0 on, and all of them 0."""
    refuse_counts(op, *names, least=0)
    if not any(getattr(op, name) for name in names):
        raise WiringError(
            f"{op.short} does nothing: {' and '.join(names)} are 0. Write a number above 0 for one of them."
        )


def runs(nodes: Sequence[Node]) -> list[list[Node]]:
    """Nodes of one document and group as runs without a gap, each node once.

    >>> [[node.number for node in run] for run in runs([Node(str(n), "", number=n) for n in (4, 1, 2, 5, 2)])]
    [[1, 2], [4, 5]]
    """
    found: list[list[Node]] = []
    for _, node in sorted({node.number: node for node in nodes}.items()):
        if found and found[-1][-1].number + 1 == node.number:
            found[-1].append(node)
        else:
            found.append([node])
    return found


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
        snapshot, who = self.corpus.snapshot(), access()
        wanted = narrowed(value.query.filter, narrowing())
        found: dict[str, tuple[float, int, int, Hit]] = {}
        for rank, hit in enumerate(value.hits):
            for node in beside(snapshot, hit.node, self.before, self.after, who, wanted):
                steps = abs(node.number - hit.node.number)
                new = self._hit(hit, node, steps)
                place = (falling(new.score), steps, rank, new)
                if node.id not in found or place[:3] < found[node.id][:3]:
                    found[node.id] = place
        hits = [place[3] for place in sorted(found.values(), key=lambda place: place[:3])]
        return value.but(hits=tuple(hits[: self.top_k]))

    def _hit(self, hit: Hit, node: Node, steps: int) -> Hit:
        if not steps:
            return hit
        less = (1 - self.decay**steps) * abs(hit.score) if math.isfinite(hit.score) else 0.0
        return Hit(node, hit.score - less)


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

    version: ClassVar[int] = 3

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


def _document(snapshot: "Snapshot", id: str, access: frozenset[str]) -> Document | None:
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
        inside = sorted((hit for hit in hits if hit.node.number in numbers), key=_best)
        found.append(_shown(_stretch(document, inside[0].node, [node for node in run if is_cut(node)]), inside))
    return found


def _stretch(document: Document, best: Node, nodes: Sequence[Node]) -> Node:
    """A node that reaches from the first of some nodes to the last."""
    spans = [node.span for node in nodes if node.span is not None]
    start, end = min(span.start for span in spans), max(span.end for span in spans)
    pages = _ends([page for span in spans if span.pages for page in span.pages])
    lines = [line for span in spans if span.lines for line in span.lines]
    seconds = [second for span in spans if span.seconds for second in span.seconds]
    starts = document.pages[pages[0] : pages[1]] if pages else ()
    span = Span(start, end, pages, _ends(lines), _ends(seconds), starts)
    return best.but(text=document.text[start:end], span=span, context=nodes[0].context, search_text="")


def _ends(places: Sequence[T]) -> tuple[T, T] | None:
    return (min(places), max(places)) if places else None


def _in_order(hits: Iterable[Hit], before: Sequence[Hit]) -> list[Hit]:
    ranks = {hit.node.id: rank for rank, hit in reversed(list(enumerate(before)))}
    return sorted(hits, key=lambda hit: (falling(hit.score), ranks[hit.node.id]))


def found_in(shown: Node, hit: Hit) -> Iterator[Node]:
    """What a citation of `shown` points to: the smaller stretches of its document that were found in it.

    >>> from spolia.types import Span
    >>> whole = Node("n", "One. Two.", "d", span=Span(0, 9))
    >>> [node.text for node in found_in(whole, Hit(Node("s", "Two.", "d", span=Span(5, 9)), 1.0))]
    ['Two.']
    >>> list(found_in(whole, Hit(Node("q", "What?", "d", span=Span(0, 9)), 1.0)))
    []
    """
    for node in hit.found or (hit.node,):
        if is_cut(node) and _holds(shown, node):
            yield node


def is_cut(node: Node) -> bool:
    """Whether its text is a stretch of its document, not written about one."""
    return node.span is not None and node.span.end - node.span.start == len(node.text)


def _holds(large: Node, small: Node) -> bool:
    if large.span is None or small.span is None or large.document != small.document:
        return False
    inside = large.span.start <= small.span.start and small.span.end <= large.span.end
    return inside and len(small.text) < len(large.text)


def showing(hit: Hit, text: str, parts: tuple[Node, ...] = ()) -> Hit:
    """The hit with another text shown in place of its node's; citations still point to the retrieved node.
    `parts` are the stretches of the node that the text is made of, if known.

    >>> hit = showing(Hit(Node("n", "One. Two."), 1.0), "Two.")
    >>> hit.node.text, [node.text for node in hit.found]
    ('Two.', ['One. Two.'])
    """
    return hit.but(node=hit.node.but(text=text, search_text=""), found=parts or hit.found or (hit.node,))


@dataclass(frozen=True)
class Mapped(Operator[Ranking, Ranking]):
    """The nodes of another group that belong to the hits: small nodes are searched, large ones are shown.

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
        way = related_by_lineage if self.by == "lineage" else related_by_place
        snapshot, who = self._snapshot(), access()
        related = way(snapshot, value.nodes, self.target.name, who)
        if value.hits and not any(related):
            note(f"Nothing of group {self.target.name!r} belongs to the {len(value.hits)} hits, or may be read.")
        found = [(hit, node) for hit, nodes in zip(value.hits, related, strict=True) for node in nodes]
        shown = self._allowed(snapshot, found, value)
        hits = _once((hit, node) for hit, node in found if node.id in shown)
        return value.but(hits=tuple(hits[: self.top_k]))

    def _snapshot(self) -> "Snapshot":
        # Whole documents are there whether or not a group was made of them.
        return self.target.corpus.snapshot() if self.target.name == DOCUMENT else self.target.snapshot()

    def _allowed(self, snapshot: "Snapshot", found: Sequence[tuple[Hit, Node]], value: Ranking) -> set[str]:
        """Ids of what the filters let be shown."""
        who, groups = access(), {hit.node.group for hit in value.hits}
        below = {group for group in groups if self.target.name in snapshot.lineage_of(group)}
        around = {node.id: node for hit, node in found if hit.node.group in below}
        beside = {node.id: node for _, node in found if node.id not in around}
        shown = filter_nodes(snapshot, list(around.values()), who, narrowing())
        shown += filter_nodes(snapshot, list(beside.values()), who, narrowed(value.query.filter, narrowing()))
        return {node.id for node in shown}


def _once(found: Iterable[tuple[Hit, Node]]) -> list[Hit]:
    """Each node once, with its best score and the hits in it, best first."""
    by_node: dict[str, list[tuple[Hit, Node]]] = {}
    for hit, node in found:
        by_node.setdefault(node.id, []).append((hit, node))
    hits = (_shown(pairs[0][1], sorted((hit for hit, _ in pairs), key=_best)) for pairs in by_node.values())
    return sorted(hits, key=_best)


def _shown(node: Node, hits: Sequence[Hit]) -> Hit:
    """A node in place of some hits, with the best score and these hits."""
    found = dict.fromkeys(part for hit in hits for part in found_in(node, hit))
    return Hit(node, hits[0].score, hits[0].parts, tuple(found))


def _best(hit: Hit) -> float:
    return falling(hit.score)


@dataclass(frozen=True)
class WindowReplacement(Operator[Ranking, Ranking]):
    """Show the window around each hit, as a metadata field holds it, in place of the hit's text.

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
        return value.but(hits=tuple(map(self._shown, value.hits)))

    def _shown(self, hit: Hit) -> Hit:
        window = next((str(value) for name, value in hit.node.meta if name == self.field and value), "")
        return showing(hit, window) if window else hit
