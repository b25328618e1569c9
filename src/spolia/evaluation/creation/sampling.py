"""Samplers of the passages that questions come from: single ones, and pairs and chains along the graph of a corpus."""

import errno
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import ClassVar

from spolia.core.operator import Operator
from spolia.core.run_context import access, note, run_filter
from spolia.core.type_compatibility import refuse_counts
from spolia.errors import StoreError, WiringError
from spolia.evaluation.creation.draft import QuestionDraft, SampleRange
from spolia.evaluation.creation.passage_chains import (
    ChainWalk,
    PassageChain,
    find_references,
    pairs_sharing_names,
    place_in_order,
)
from spolia.evaluation.creation.replies import MOST_HOPS
from spolia.retrieval.graph.edges import SharedEntities
from spolia.retrieval.graph.node_graph import NodeGraph
from spolia.stores.corpus import NodeGroup
from spolia.stores.snapshot.lineage import filter_nodes
from spolia.stores.snapshot.snapshot import Snapshot
from spolia.types import Node

SHORTEST = 80
"""Characters of a passage that says enough for a question, by default."""
FEWEST = 64
"""Chains that are drawn together."""


def _passages(snapshot: Snapshot, group: NodeGroup) -> list[Node]:
    """Return the nodes of a group that the asker may read and that the run does not filter out."""
    return filter_nodes(snapshot, list(snapshot.all_nodes(group.name, access())), access(), run_filter())


@dataclass(frozen=True)
class SamplePassages(Operator[SampleRange, tuple[QuestionDraft, ...]]):
    """Single passages of a node group in an order that the seed shuffles.

    A longer sample begins with the shorter one, and a new document moves none of the others past each other. Passages
    with the same text count once. Only what the asker may read and the run's filter lets pass is drawn.

    Args:
        group: its nodes are the passages.
        type: of the questions.
        seed: of the order.
        per_document: passages of one document at most; 0 for no limit.
        shortest: characters; shorter passages are left out.

    >>> from spolia.evaluation.creation.draft import SampleRange
    >>> from spolia.indexing import temporary
    >>> with temporary({"a": "Ann was born in Ulm.", "b": "Bo is the mayor of Ulm."}) as corpus:
    ...     sample = SamplePassages(corpus.group(), shortest=10)
    ...     [len(sample(SampleRange(0, stop))) for stop in (1, 2, 9)]
    [1, 2, 2]
    """

    group: NodeGroup
    type: str = "factoid"
    seed: int = 0
    per_document: int = 0
    shortest: int = SHORTEST

    def __post_init__(self) -> None:
        refuse_counts(self, "shortest")

    def apply(self, value: SampleRange, /) -> tuple[QuestionDraft, ...]:
        snapshot = self.group.snapshot()
        ids = self._order(snapshot)[value.start : value.stop]
        nodes = snapshot.nodes_of_ids(ids, access())
        return tuple(QuestionDraft(self.type, (nodes[id],)) for id in ids if id in nodes)

    def _order(self, snapshot: Snapshot) -> tuple[str, ...]:
        derived = snapshot.derived_of(access(), self.group.name)
        key = (type(self).__name__, self.but(type=""), run_filter())
        # Each batch draws from the same order; it is kept with the snapshot, for one access and filter.
        if key not in derived:
            derived[key] = tuple(self._draw(_passages(snapshot, self.group)))
        ids: tuple[str, ...] = derived[key]
        return ids

    def _draw(self, nodes: Sequence[Node]) -> Iterator[str]:
        of_document, texts = Counter[str](), set[str]()
        for node in sorted(nodes, key=lambda node: place_in_order(self.seed, node.id)):
            if len(node.text.strip()) < self.shortest or node.text in texts:
                continue
            texts.add(node.text)
            of_document[node.document] += 1
            if not self.per_document or of_document[node.document] <= self.per_document:
                yield node.id


@dataclass(frozen=True)
class SampleLinked(Operator[SampleRange, tuple[QuestionDraft, ...]]):
    """Passages of different documents that belong together, in an order that the seed shuffles: pairs, or chains.

    Two passages belong together where the graph links them, or where one names the title of the other's document; of
    that document its first passage is taken. The link is that title, or the longest name that occurs in both. Titles
    need no capitals, so that they link passages in every script. In a chain of three or more passages each belongs
    together with the next, over another name each time. A longer sample begins with the shorter one. Only what the
    asker may read and the run's filter lets pass is drawn.

    Args:
        graph: nodes and what links them, for example `NodeGraph(chunks, (SharedEntities(),))`.
        type: of the questions.
        seed: of the order.
        per_passage: pairs or chains with the same passage at most.
        shortest: characters; shorter passages are left out.
        passages: how many belong together, from 2 to 4.
        titles_first: begin with those in which each passage names the title of the next one's document, which tells
            more of what the passage only names; a comparison does not need this.

    Source: the walk along entities and links between documents, as in Yang et al., "HotpotQA", EMNLP 2018; chains as in
    Trivedi et al., "MuSiQue", TACL 2022.
    """

    graph: NodeGraph
    type: str = "multi-hop"
    seed: int = 0
    per_passage: int = 2
    shortest: int = SHORTEST
    passages: int = 2
    titles_first: bool = True

    version: ClassVar[int] = 3

    def __post_init__(self) -> None:
        refuse_counts(self, "per_passage", "shortest")
        if not 2 <= self.passages <= MOST_HOPS:
            raise WiringError(f"passages is {self.passages}. Write a number from 2 to {MOST_HOPS}.")

    def apply(self, value: SampleRange, /) -> tuple[QuestionDraft, ...]:
        snapshot, is_linked = self._open_snapshot()
        chains = self._order(snapshot, is_linked, value.stop)[value.start : value.stop]
        nodes = snapshot.nodes_of_ids([id for chain in chains for id in chain.ids], access())
        return tuple(
            QuestionDraft(self.type, tuple(nodes[id] for id in chain.ids), chain.links)
            for chain in chains
            if all(id in nodes for id in chain.ids)
        )

    def _open_snapshot(self) -> tuple[Snapshot, bool]:
        """Return the generation, and whether the graph is there: in a store that may only be read its names cannot be
        saved."""
        try:
            return self.graph.snapshot(), True
        except StoreError as error:
            # The graph's names would be written into the store, which may be read-only.
            is_denied = getattr(error.__cause__, "errno", 0) in (errno.EACCES, errno.EPERM, errno.EROFS)
            if not is_denied or not all(isinstance(edges, SharedEntities) for edges in self.graph.edges):
                raise
        note("The store is read-only and lacks the names of its passages, so each run finds them again.")
        return self.graph.group.snapshot(), False

    def _order(self, snapshot: Snapshot, is_linked: bool, number: int) -> tuple[PassageChain, ...]:
        """Return the first chains, at least `number` if the store has as many."""
        # Doubling bounds how often a growing range walks the graph from its start.
        width = max(FEWEST, 1 << (number - 1).bit_length())
        derived = snapshot.derived_of(access(), self.graph.group.name)
        key = (type(self).__name__, self.but(type=""), run_filter(), is_linked, width)
        if key not in derived:
            derived[key] = tuple(islice(self._draw_chains(snapshot, is_linked), width))
        chains: tuple[PassageChain, ...] = derived[key]
        return chains

    def _draw_chains(self, snapshot: Snapshot, is_linked: bool) -> Iterator[PassageChain]:
        passages = _passages(snapshot, self.graph.group)
        nodes = {node.id: node for node in passages if len(node.text.strip()) >= self.shortest}
        pairs = self._linked_pairs(snapshot) if is_linked else pairs_sharing_names(nodes)
        linked = [pair for pair in pairs if nodes.keys() >= set(pair)]
        document_titles = {document.id: document.title for document in snapshot.documents(access())}
        titles = {(first, second): title for first, second, title in find_references(nodes, document_titles)}
        walk = ChainWalk(nodes, linked, titles, self.seed, self.per_passage)
        return walk.chains(self.passages, self.titles_first)

    def _linked_pairs(self, snapshot: Snapshot) -> Iterator[tuple[str, str]]:
        """Yield the ids of nodes that the graph links, each pair once."""
        links = self.graph.links(snapshot, access())
        ids = snapshot.ids(links.keys.tolist())
        node_ids = [ids.get(key, "") for key in links.keys.tolist()]
        for source, target in zip(links.sources.tolist(), links.targets.tolist(), strict=True):
            if source < target:
                yield min(node_ids[source], node_ids[target]), max(node_ids[source], node_ids[target])
