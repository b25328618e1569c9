"""Which passages questions are made of: single ones, and pairs along the graph of a corpus."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b

from spolia.core.operator import Operator
from spolia.core.run_context import access
from spolia.core.wiring import refuse_counts
from spolia.evaluation.creation.draft import QuestionDraft, SampleRange
from spolia.indexing.transforms.rule_entities import RuleEntities
from spolia.retrieval.graph.node_graph import NodeGraph
from spolia.stores.corpus import NodeGroup
from spolia.stores.definition import Part
from spolia.stores.snapshot.snapshot import Snapshot
from spolia.types import Document, Node

SHORTEST = 80
"""Characters of a passage that says enough for a question, by default."""


def _place(seed: int, *ids: str) -> bytes:
    """Where something stands in the order of a seed. It depends on nothing else that is there."""
    return blake2b("\0".join((str(seed), *ids)).encode("utf-8", "surrogatepass"), digest_size=16).digest()


@dataclass(frozen=True)
class SamplePassages(Operator[SampleRange, tuple[QuestionDraft, ...]]):
    """Single passages of a node group in an order that the seed shuffles.

    A longer sample begins with the shorter one, and a new document moves none of the others past each other. Passages
    with the same text count once. Only what the asker may read is drawn.

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
        key = (type(self).__name__, self.but(type=""))
        if key not in derived:
            derived[key] = tuple(self._drawn(list(snapshot.all_nodes(self.group.name, access()))))
        found: tuple[str, ...] = derived[key]
        return found

    def _drawn(self, nodes: Sequence[Node]) -> Iterator[str]:
        of_document, seen = Counter[str](), set[str]()
        for node in sorted(nodes, key=lambda node: _place(self.seed, node.id)):
            if len(node.text.strip()) < self.shortest or node.text in seen:
                continue
            seen.add(node.text)
            of_document[node.document] += 1
            if not self.per_document or of_document[node.document] <= self.per_document:
                yield node.id


_NAMES = RuleEntities(("name", "acronym", "quote"))


@dataclass(frozen=True)
class SampleLinked(Operator[SampleRange, tuple[QuestionDraft, ...]]):
    """Pairs of passages that a graph links, of different documents, in an order that the seed shuffles.

    The link is what both passages name, the longest name first. A longer sample begins with the shorter one. Only
    links between passages that the asker may read are followed.

    Args:
        graph: nodes and what links them, for example `NodeGraph(chunks, (SharedEntities(),))`.
        type: of the questions.
        seed: of the order.
        per_passage: pairs with the same passage at most.
        shortest: characters; shorter passages are left out.

    Source: the walk along entities that passages share, as in Yang et al., "HotpotQA", EMNLP 2018.
    """

    graph: NodeGraph
    type: str = "multi-hop"
    seed: int = 0
    per_passage: int = 2
    shortest: int = SHORTEST

    def __post_init__(self) -> None:
        refuse_counts(self, "per_passage", "shortest")

    def apply(self, value: SampleRange, /) -> tuple[QuestionDraft, ...]:
        snapshot = self.graph.snapshot()
        pairs = self._order(snapshot)[value.start : value.stop]
        nodes = snapshot.nodes_of_ids([id for pair in pairs for id in pair], access())
        both = ((nodes[one], nodes[other]) for one, other in pairs if one in nodes and other in nodes)
        return tuple(QuestionDraft(self.type, pair, shared_name(*pair)) for pair in both)

    def _order(self, snapshot: Snapshot) -> tuple[tuple[str, str], ...]:
        derived = snapshot.derived_of(access(), self.graph.group.name)
        key = (type(self).__name__, self.but(type=""))
        if key not in derived:
            derived[key] = tuple(self._drawn(snapshot))
        found: tuple[tuple[str, str], ...] = derived[key]
        return found

    def _drawn(self, snapshot: Snapshot) -> Iterator[tuple[str, str]]:
        links = self.graph.links(snapshot, access())
        ids = snapshot.ids(links.keys.tolist())
        nodes = {node.id: node for node in snapshot.all_nodes(self.graph.group.name, access())}
        long = {id for id, node in nodes.items() if len(node.text.strip()) >= self.shortest}
        named = [ids.get(key, "") for key in links.keys.tolist()]
        pairs = {
            (min(one, other), max(one, other))
            for one, other in ((named[a], named[b]) for a, b in zip(links.sources, links.targets, strict=True))
            if one in long and other in long and nodes[one].document != nodes[other].document
        }
        used = Counter[str]()
        for pair in sorted(pairs, key=lambda pair: _place(self.seed, *pair)):
            if nodes[pair[0]].text == nodes[pair[1]].text or max(used[id] for id in pair) >= self.per_passage:
                continue
            used.update(pair)
            yield pair


def shared_name(one: Node, other: Node) -> str:
    """The longest name that stands in two passages, by rule; empty where the rules find none.

    >>> shared_name(Node("n", "There Ann Bo was born in Ulm."), Node("m", "The mayor of Ulm is Cy."))
    'Ulm'
    """
    found = [{piece.text for piece in _NAMES(Part(node, Document(node.document, node.text)))} for node in (one, other)]
    return max(sorted(found[0] & found[1]), key=len, default="")
