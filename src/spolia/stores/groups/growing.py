"""Growing groups: nodes from those of the parent group, vectors from texts. Sync and a group's first use both do it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import TypeVar

from spolia.models.protocols import Embedder, SparseEmbedder
from spolia.stores.definition import DOCUMENT, Part, Pieces, Splitter, Transform, whole
from spolia.stores.groups.making import Making
from spolia.stores.writer import Writer
from spolia.surrounding import check_cancelled
from spolia.types import Document, Failure, Node

T = TypeVar("T")

EMBEDDED_AT_ONCE = 256
LISTED = 1_000_000
"""Characters; the nodes of a longer document are not in memory all at once where nothing is made of them."""


@dataclass(frozen=True)
class Growth:
    """How one group grows: what its manifest says, with the objects that do it.

    Args:
        group: its name.
        transform: makes the nodes.
        parent: of whose nodes.
        ref: whose nodes the transform sees beside; empty for none.
        embedders: of the nodes.
    """

    group: str
    transform: Transform
    parent: str = DOCUMENT
    ref: str = ""
    embedders: tuple[Embedder | SparseEmbedder, ...] = ()


class Grown:
    """The nodes of one document, group by group.

    Args:
        document: of which.
        there: gives the nodes of a group that is not made here.

    Attributes:
        failure: why they could not be made.
        is_streamed: some are made only when they are asked for.
    """

    def __init__(self, document: Document, there: Callable[[str], Sequence[Node]]) -> None:
        self.document = document
        self.failure: Failure | None = None
        self._there, self._known = there, {DOCUMENT: [whole(document)]}
        self._made: list[Iterable[Node]] = []
        self.is_streamed = False

    def of(self, group: str) -> Sequence[Node]:
        """The nodes of a group."""
        if group not in self._known:
            self._known[group] = list(self._there(group))
        return self._known[group]

    def parts(self, growth: Growth) -> list[Part]:
        """What a transform is given."""
        return [
            Part(node, self.document, tuple(self._below(growth.ref, node)) if growth.ref else ())
            for node in self.of(growth.parent)
        ]

    def take(self, growth: Growth, parts: Sequence[Part], pieces: Iterable[Pieces], *, streamed: bool) -> None:
        """Make nodes of what a transform gave."""
        making = Making(self.document, growth.group, growth.transform)
        nodes = chain.from_iterable(making.nodes(part, some) for part, some in zip(parts, pieces, strict=True))
        self.put(growth.group, nodes, streamed=streamed)

    def put(self, group: str, nodes: Iterable[Node], *, streamed: bool = False) -> None:
        """These are the nodes of a group.

        Args:
            streamed: make them when they are stored, since no other group is made of them.
        """
        if streamed:
            self.is_streamed = True
            self._made.append(nodes)
            return
        try:
            self._known[group] = list(nodes)
        except Exception as error:
            self.failure = Failure.of(error, group)
        else:
            self._made.append(self._known[group])

    def nodes(self) -> Iterator[Node]:
        """All nodes that were made, to be stored."""
        return chain.from_iterable(self._made)

    def _below(self, ref: str, node: Node) -> Iterator[Node]:
        parents = {known.id: known.parent for nodes in self._known.values() for known in nodes}
        for found in self.of(ref):
            at = found.parent
            while at and at != node.id:
                at = parents.get(at, "")
            if at:
                yield found


def grow(
    documents: Sequence[Document],
    growths: Sequence[Growth],
    there: Callable[[Document, str], Sequence[Node]] = lambda document, group: (),
) -> list[Grown]:
    """The nodes of documents in some groups. A transform that asks models gets the parts of all documents at once.

    Args:
        growths: each after those that it is made from.
        there: the nodes of a document in a group that is not among them.

    Raises:
        SpoliaError: what may succeed later, as when a model cannot be reached; what lies at a document fails it alone.
    """
    found = [Grown(document, lambda group, of=document: there(of, group)) for document in documents]  # type: ignore[misc]
    needed = {name for growth in growths for name in (growth.parent, growth.ref)}
    for growth in growths:
        if growth.group == DOCUMENT:
            for one in found:
                one.put(DOCUMENT, one.of(DOCUMENT) if one.document.text.strip() else ())
        elif isinstance(growth.transform, Splitter):
            for one in found:
                parts = one.parts(growth)
                long = len(one.document.text) > LISTED and growth.group not in needed
                one.take(growth, parts, map(growth.transform.pieces, parts), streamed=long)  # type: ignore[arg-type]
        else:
            _ask(growth, [one for one in found if one.failure is None])
    return found


def _ask(growth: Growth, found: Sequence[Grown]) -> None:
    parts = [one.parts(growth) for one in found]
    answers = iter(growth.transform.batch([part for some in parts for part in some]))
    for one, some in zip(found, parts, strict=True):
        pieces = list(islice(answers, len(some)))
        failures = [answer for answer in pieces if isinstance(answer, Failure)]
        if failures:
            error = failures[0].raised()
            if getattr(error, "transient", False):
                raise error
            one.failure = failures[0]
        else:
            one.take(growth, some, pieces, streamed=False)  # type: ignore[arg-type]


def embed(writer: Writer, growths: Iterable[Growth], tell: Callable[[int], None] = lambda count: None) -> None:
    """Embed what groups hold and has no vector yet.

    Args:
        tell: is told how many texts were embedded, some hundred at a time.
    """
    for growth in growths:
        for embedder in growth.embedders:
            for lacking in in_batches(writer.unembedded(growth.group, embedder.name), EMBEDDED_AT_ONCE):
                check_cancelled()
                hashes, texts = [hash for hash, _ in lacking], [text for _, text in lacking]
                if isinstance(embedder, SparseEmbedder):
                    writer.add_sparse(embedder.name, hashes, embedder.embed_sparse(texts, kind="passage"))
                else:
                    writer.add_vectors(embedder.name, hashes, embedder.embed(texts, kind="passage"))
                tell(len(lacking))


def in_batches(items: Iterator[T], size: int) -> Iterator[list[T]]:
    """Lists of so many items, the last one shorter."""
    while batch := list(islice(items, size)):
        yield batch
