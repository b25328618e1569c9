"""Which passages questions are made of: single ones, and pairs along the graph of a corpus."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b

from spolia.core.operator import Operator
from spolia.core.run_context import access, narrowing
from spolia.core.wiring import refuse_counts
from spolia.evaluation.creation.draft import QuestionDraft, SampleRange
from spolia.indexing.transforms.rule_entities import RuleEntities
from spolia.retrieval.graph.node_graph import NodeGraph
from spolia.stores.corpus import NodeGroup
from spolia.stores.definition import Part
from spolia.stores.snapshot.lineage import passing
from spolia.stores.snapshot.snapshot import Snapshot
from spolia.types import Document, Node

SHORTEST = 80
"""Characters of a passage that says enough for a question, by default."""


def _place(seed: int, *ids: str) -> bytes:
    """Where something stands in the order of a seed. It depends on nothing else that is there."""
    return blake2b("\0".join((str(seed), *ids)).encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _passages(snapshot: Snapshot, group: NodeGroup) -> list[Node]:
    """The nodes of a group that the asker may read and that the run does not filter out."""
    return passing(snapshot, list(snapshot.all_nodes(group.name, access())), access(), narrowing())


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
        key = (type(self).__name__, self.but(type=""), narrowing())
        if key not in derived:
            derived[key] = tuple(self._drawn(_passages(snapshot, self.group)))
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
    """Pairs of passages of different documents that belong together, in an order that the seed shuffles.

    Two passages belong together where the graph links them, or where one names the title of the other's document; of
    that document its first passage is taken. The link is that title, or the longest name that stands in both. Titles
    need no capitals, so that they link passages in every script. A longer sample begins with the shorter one. Only what
    the asker may read and the run's filter lets pass is drawn.

    Args:
        graph: nodes and what links them, for example `NodeGraph(chunks, (SharedEntities(),))`.
        type: of the questions.
        seed: of the order.
        per_passage: pairs with the same passage at most.
        shortest: characters; shorter passages are left out.

    Source: the walk along entities and links between documents, as in Yang et al., "HotpotQA", EMNLP 2018.
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
        drawn = self._order(snapshot)[value.start : value.stop]
        nodes = snapshot.nodes_of_ids([id for *pair, _ in drawn for id in pair], access())
        return tuple(
            QuestionDraft(self.type, pair, title or shared_name(*pair))
            for one, other, title in drawn
            if one in nodes and other in nodes
            for pair in [(nodes[one], nodes[other])]
        )

    def _order(self, snapshot: Snapshot) -> tuple[tuple[str, str, str], ...]:
        derived = snapshot.derived_of(access(), self.graph.group.name)
        key = (type(self).__name__, self.but(type=""), narrowing())
        if key not in derived:
            derived[key] = tuple(self._drawn(snapshot))
        found: tuple[tuple[str, str, str], ...] = derived[key]
        return found

    def _drawn(self, snapshot: Snapshot) -> Iterator[tuple[str, str, str]]:
        every = _passages(snapshot, self.graph.group)
        nodes = {node.id: node for node in every if len(node.text.strip()) >= self.shortest}
        pairs = {(one, other): "" for one, other in self._linked(snapshot) if one in nodes and other in nodes}
        titles = {document.id: document.title for document in snapshot.documents(access())}
        pairs |= {(min(one, other), max(one, other)): title for one, other, title in references(nodes, titles)}
        used = Counter[str]()
        for pair in sorted(pairs, key=lambda pair: _place(self.seed, *pair)):
            one, other = (nodes[id] for id in pair)
            is_pair = one.document != other.document and one.text != other.text
            if is_pair and max(used[id] for id in pair) < self.per_passage:
                used.update(pair)
                yield *pair, pairs[pair]

    def _linked(self, snapshot: Snapshot) -> Iterator[tuple[str, str]]:
        """The ids of nodes that the graph links, each pair once."""
        links = self.graph.links(snapshot, access())
        ids = snapshot.ids(links.keys.tolist())
        named = [ids.get(key, "") for key in links.keys.tolist()]
        for one, other in zip(links.sources.tolist(), links.targets.tolist(), strict=True):
            if one < other:
                yield min(named[one], named[other]), max(named[one], named[other])


SHORTEST_TITLE = 2
"""Characters of a title that is looked for in passages; of one in letters that have cases one more."""
MOST_NAMING = 50
"""A title that more passages name is a word like any other, such as "Introduction", and links none."""


def references(nodes: Mapping[str, Node], titles: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    """Passages that name the title of another document: its id, that of the other's first passage, and the title.

    Args:
        nodes: the passages by id.
        titles: by the ids of documents.

    >>> nodes = {"n": Node("n", "消息传到了长安城。", "a"), "m": Node("m", "它是唐朝的都城。", "b")}
    >>> list(references(nodes, {"a": "", "b": "长安城"}))
    [('n', 'm', '长安城')]
    """
    first: dict[str, Node] = {}
    for node in sorted(nodes.values(), key=lambda node: (node.number, node.id)):
        first.setdefault(node.document, node)
    beginning: dict[str, list[tuple[str, str]]] = {}
    count = Counter(titles.values())
    for document, title in sorted(titles.items()):
        if len(title) >= SHORTEST_TITLE + (title.lower() != title.upper()) and document in first and count[title] == 1:
            beginning.setdefault(title[:SHORTEST_TITLE], []).append((title, document))
    naming: dict[str, list[tuple[str, str, str]]] = {}
    for id, node in nodes.items():
        text, found = node.text, dict[str, str]()
        for at in range(len(text) - SHORTEST_TITLE + 1):
            for title, document in beginning.get(text[at : at + SHORTEST_TITLE], ()):
                if document != node.document and text.startswith(title, at) and _is_whole(text, at, at + len(title)):
                    found[document] = title
        for document, title in found.items():
            naming.setdefault(document, []).append((id, first[document].id, title))
    for named in naming.values():
        yield from named if len(named) <= MOST_NAMING else ()


def _is_whole(text: str, start: int, end: int) -> bool:
    """Whether a stretch cuts no word in two, in scripts that set words apart by blanks and add nothing to them."""
    return not any(0 < at < len(text) and _cuts(text[at - 1], text[at]) for at in (start, end))


def _cuts(before: str, after: str) -> bool:
    return before.isalnum() and after.isalnum() and max(before, after) < _EAST_ASIA


_EAST_ASIA = "\u1100"
"""Scripts from here on write words without blanks between them, or add particles to them."""


def shared_name(one: Node, other: Node) -> str:
    """The longest name that stands in two passages, by rule; empty where the rules find none.

    >>> shared_name(Node("n", "There Ann Bo was born in Ulm."), Node("m", "The mayor of Ulm is Cy."))
    'Ulm'
    """
    found = [{piece.text for piece in _NAMES(Part(node, Document(node.document, node.text)))} for node in (one, other)]
    return max(sorted(found[0] & found[1]), key=len, default="")
