"""What was found, where something else is shown in its place."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from spolia.core.operator import Operator
from spolia.core.run_context import access, narrowing, note
from spolia.core.wiring import refuse_counts
from spolia.errors import WiringError
from spolia.filters import narrowed
from spolia.ranking.fusion import falling
from spolia.stores.corpus import NodeGroup, refuse_no_group
from spolia.stores.definition import DOCUMENT
from spolia.stores.snapshot.lineage import by_lineage, by_place, passing
from spolia.types import Hit, Node, Ranking

if TYPE_CHECKING:
    from spolia.stores.snapshot.snapshot import Snapshot


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
    """The hit with another text shown in the place of its node's; citations point to what was found all the same.
    `parts` are the stretches of the node that the text is made of, if known.

    >>> hit = showing(Hit(Node("n", "One. Two."), 1.0), "Two.")
    >>> hit.node.text, [node.text for node in hit.found]
    ('Two.', ['One. Two.'])
    """
    return hit.but(node=hit.node.but(text=text, search_text=""), found=parts or hit.found or (hit.node,))


@dataclass(frozen=True)
class Mapped(Operator[Ranking, Ranking]):
    """The nodes of another group that belong to what was found: small nodes are searched, large ones are shown.

    By lineage the way goes up to the nearest group that both were made from, and down from there: from sentences to
    the chunks that they were cut from, from questions to the text that they were written about, from chunks to all
    sentences of theirs. By span it goes to what overlaps the hit in the document, however the two were made.

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
        StoreError: when the store cannot be read, or has no such group.
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
        way = by_lineage if self.by == "lineage" else by_place
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
        below = {group for group in groups if self.target.name in snapshot.above(group)}
        around = {node.id: node for hit, node in found if hit.node.group in below}
        beside = {node.id: node for _, node in found if node.id not in around}
        shown = passing(snapshot, list(around.values()), who, narrowing())
        shown += passing(snapshot, list(beside.values()), who, narrowed(value.query.filter, narrowing()))
        return {node.id for node in shown}


def _once(found: Iterable[tuple[Hit, Node]]) -> list[Hit]:
    """Each node once, with its best score and what was found in it, best first."""
    by_node: dict[str, list[tuple[Hit, Node]]] = {}
    for hit, node in found:
        by_node.setdefault(node.id, []).append((hit, node))
    hits = (_shown(pairs[0][1], sorted((hit for hit, _ in pairs), key=_best)) for pairs in by_node.values())
    return sorted(hits, key=_best)


def _shown(node: Node, hits: Sequence[Hit]) -> Hit:
    found = dict.fromkeys(_parts(node, hits))
    return Hit(node, hits[0].score, hits[0].parts, tuple(found))


def _parts(node: Node, hits: Iterable[Hit]) -> Iterator[Node]:
    for hit in hits:
        yield from found_in(node, hit)


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
