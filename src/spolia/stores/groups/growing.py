"""Growing groups: nodes from those of the parent group, vectors from texts. Sync and a group's first use both do it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import TypeVar

from spolia.core.run_context import check_cancelled
from spolia.models.protocols import Embedder, ImageEmbedder, SparseEmbedder
from spolia.stores.definition import DOCUMENT, Part, Piece, Splitter, Transform, Whole, transform_for, whole
from spolia.stores.groups.making import Making
from spolia.stores.groups.pictures import embed_pictures
from spolia.stores.groups.reaching import Reach
from spolia.stores.staging import AnyWriter
from spolia.stores.tables.rows import Unmade
from spolia.types import Document, Failure, Node

T = TypeVar("T")

EMBEDDED_AT_ONCE = 64
"""Texts in one call of an embedder: what is interrupted loses those of the call that was under way, and no others."""
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
        reach: whether that which makes it could be reached in this run.
    """

    group: str
    transform: Transform
    parent: str = DOCUMENT
    ref: str = ""
    embedders: tuple[Embedder | SparseEmbedder, ...] = ()
    reach: Reach = field(default_factory=Reach, compare=False, repr=False)


class Grown:
    """The nodes of one document, group by group.

    Args:
        document: of which.
        there: gives the nodes of a group that is not made here.

    Attributes:
        made: the nodes of each group that could be made; of some they are made only when they are asked for.
        failures: why a group could not be made.
        passed_over: groups that are made of one that could not be made.
    """

    def __init__(self, document: Document, there: Callable[[str], Sequence[Node]]) -> None:
        self.document = document
        self.made: dict[str, Iterable[Node]] = {}
        self.failures: dict[str, Failure] = {}
        self.passed_over: set[str] = set()
        self._there, self._known = there, {DOCUMENT: [whole(document)]}

    @property
    def reasons(self) -> dict[str, str]:
        """Why groups could not be made, in words."""
        return {group: f"{failure.kind}: {failure.message}" for group, failure in self.failures.items()}

    def may_grow(self, growth: Growth) -> bool:
        """Whether a group's turn has come, as far as those that it is made from could be made; documents are there."""
        if ({growth.parent, growth.ref} - {DOCUMENT}).isdisjoint({*self.failures, *self.passed_over}):
            return True
        self.passed_over.add(growth.group)
        return False

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

    def take(self, group: str, made: Iterable[Node], *, streamed: bool = False) -> None:
        """These are the nodes of a group.

        Args:
            streamed: make them when they are stored, since no other group is made of them.
        """
        if streamed:
            self.made[group] = made
            return
        try:
            self.made[group] = self._known[group] = list(made)
        except Exception as error:  # whatever a transform raises concerns this document and this group
            self.fail(group, Failure.of(error, group))

    def fail(self, group: str, failure: Failure) -> None:
        """A group could not be made."""
        self.made.pop(group, None)
        self.failures[group] = failure

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

    What cannot be made of one document in one group is noted; the other groups and documents go on. What is away is
    asked a few times, and then no more in this run.

    Args:
        growths: each after those that it is made from.
        there: the nodes of a document in a group that is not among them.
    """
    found = [Grown(document, lambda group, of=document: there(of, group)) for document in documents]  # type: ignore[misc]
    needed = {name for growth in growths for name in (growth.parent, growth.ref)}
    for growth in growths:
        asked: dict[bytes, tuple[Transform, list[Grown]]] = {}
        for one in found:
            if not one.may_grow(growth):
                continue
            transform = transform_for(growth.transform, one.document)
            if growth.group == DOCUMENT and isinstance(transform, Whole):
                one.take(DOCUMENT, one.of(DOCUMENT) if one.document.text.strip() else ())
            elif isinstance(transform, Splitter):
                parts = one.parts(growth)
                long = len(one.document.text) > LISTED and growth.group not in needed
                one.take(growth.group, _nodes(one, growth, parts, map(transform.pieces, parts)), streamed=long)
            else:
                asked.setdefault(transform.digest, (transform, []))[1].append(one)
        for transform, some in asked.values():
            _ask(growth, transform, some)
    return found


def _nodes(one: Grown, growth: Growth, parts: Sequence[Part], pieces: Iterable[Iterable[Piece]]) -> Iterator[Node]:
    making = Making(one.document, growth.group, transform_for(growth.transform, one.document))
    return chain.from_iterable(making.nodes(part, some) for part, some in zip(parts, pieces, strict=True))


def _ask(growth: Growth, transform: Transform, found: Sequence[Grown]) -> None:
    parts = [one.parts(growth) for one in found]
    answers = growth.reach.answers(transform, [part for some in parts for part in some])
    for one, some in zip(found, parts, strict=True):
        pieces = list(islice(answers, len(some)))
        if failure := next((answer for answer in pieces if isinstance(answer, Failure)), None):
            one.fail(growth.group, failure)
        else:
            one.take(growth.group, _nodes(one, growth, some, pieces))  # type: ignore[arg-type]


def embed(
    writer: AnyWriter, growths: Iterable[Growth], tell: Callable[[int], None] = lambda count: None
) -> list[Unmade]:
    """Embed what groups hold and has no vector yet.

    Args:
        tell: is told how many texts and pictures were embedded, some hundred at a time.

    Returns:
        The pictures that an embedder could not read: their nodes are found by words only.
    """
    unread: list[Unmade] = []
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
            if isinstance(embedder, ImageEmbedder):
                unread += embed_pictures(writer, growth.group, embedder, tell)
    return unread


def in_batches(items: Iterator[T], size: int) -> Iterator[list[T]]:
    """Lists of so many items, the last one shorter."""
    while batch := list(islice(items, size)):
        yield batch
