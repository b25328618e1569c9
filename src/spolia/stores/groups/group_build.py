"""Building the nodes of groups for documents, embedding them, and making again what could not be made."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice, repeat
from typing import TypeVar

from spolia.core.run_context import check_cancelled, overhearing
from spolia.errors import GroupError, StoreError
from spolia.models.protocols import Embedder, ImageEmbedder, SparseEmbedder
from spolia.stores.backends.rows import NOT_YET, Unmade, in_batches
from spolia.stores.definition import DOCUMENT, Part, Piece, Pieces, Splitter, Transform, Whole, transform_for, whole
from spolia.stores.groups.nodes import NodeFactory
from spolia.stores.groups.picture_vectors import embed_pictures
from spolia.stores.manifest import Manifest
from spolia.stores.staging import AnyWriter
from spolia.stores.writer import Writer
from spolia.types import Document, Failure, Node

FEW, MANY = 3, 64
"""Parts that a transform is given at once: until it has answered, and afterwards."""


class Availability:
    """Whether that which makes a group could be reached, in one run, and whether what it gave could be read.

    After `FEW` failures in a row of a kind that may pass, nothing more is asked for.

    Attributes:
        failure: the last one of that kind; None where there was none.
        degraded: why results are not what they should be: replies that could not be read, one each.
    """

    def __init__(self) -> None:
        self.failure: Failure | None = None
        self.degraded: list[str] = []
        self._in_a_row, self._has_answered = 0, False

    @property
    def is_away(self) -> bool:
        """Whether there is no use in asking again in this run."""
        return self._in_a_row >= FEW

    @property
    def reason(self) -> str:
        """Why the group is not in step, if nobody could be reached for what it lacks; else empty."""
        if self.failure is None or (self._has_answered and not self.is_away):
            return ""
        return f"{self.failure.kind}: {self.failure.message} What it lacks is made by the next run that finds it there."

    @property
    def makeshift(self) -> str:
        """How often results are not what they should be, and why; empty where all are."""
        if not self.degraded:
            return ""
        times = f"{len(self.degraded)} times" if len(self.degraded) > 1 else "once"
        return f"{times}: {self.degraded[-1]} To have these made again, drop the group and build it."

    def answers(self, transform: Transform, parts: Sequence[Part]) -> Iterator[Pieces | Failure]:
        """What a transform makes of each part; once it is away, the failure that told so."""
        at = 0
        while at < len(parts) and not self.is_away:
            some = parts[at : at + (MANY if self._has_answered else FEW)]
            with overhearing() as said:
                found = transform.batch(some)
            self.degraded += said
            self._note(found)
            yield from found
            at += len(some)
        if at < len(parts):
            assert self.failure is not None
            yield from repeat(self.failure, len(parts) - at)

    def _note(self, answers: Sequence[Pieces | Failure]) -> None:
        for answer in answers:
            if isinstance(answer, Failure) and passes(answer):
                self.failure, self._in_a_row = answer, self._in_a_row + 1
            else:
                self._has_answered, self._in_a_row = True, 0


def passes(failure: Failure) -> bool:
    """Whether it lies at what was asked, which may be there another time."""
    return bool(getattr(failure.raised(), "transient", False))


EMBEDDED_AT_ONCE = 64
"""Texts in one call of an embedder: what is interrupted loses those of the call that was under way, and no others."""
STAGED_AT_ONCE = 32_000_000
"""Characters and bytes of memory that wait for one commit; then they are committed, or kept in a file."""
LISTED = 1_000_000
"""Characters; the nodes of a longer document are not in memory all at once where nothing is made of them."""


@dataclass(frozen=True)
class GroupBuild:
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
    reach: Availability = field(default_factory=Availability, compare=False, repr=False)


class GroupNodes:
    """The nodes of one document, group by group.

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

    def may_grow(self, growth: GroupBuild) -> bool:
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

    def parts(self, growth: GroupBuild) -> list[Part]:
        """What a transform is given."""
        return [
            Part(node, self.document, tuple(self._below(growth.ref, node)) if growth.ref else ())
            for node in self.of(growth.parent)
        ]

    def take(self, group: str, made: Iterable[Node], *, streamed: bool = False) -> None:
        """These are the nodes of a group."""
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
    growths: Sequence[GroupBuild],
    there: Callable[[Document, str], Sequence[Node]] = lambda document, group: (),
) -> list[GroupNodes]:
    """The nodes of documents in some groups. A transform that asks models gets the parts of all documents at once.

    What cannot be made of one document in one group is noted; the other groups and documents go on. What is away is
    asked a few times, and then no more in this run.

    Args:
        growths: each after those that it is made from.
        there: the nodes of a document in a group that is not among them.
    """
    found = [GroupNodes(document, lambda group, of=document: there(of, group)) for document in documents]  # type: ignore[misc]
    needed = {name for growth in growths for name in (growth.parent, growth.ref)}
    for growth in growths:
        asked: dict[bytes, tuple[Transform, list[GroupNodes]]] = {}
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


def _nodes(
    one: GroupNodes, growth: GroupBuild, parts: Sequence[Part], pieces: Iterable[Iterable[Piece]]
) -> Iterator[Node]:
    making = NodeFactory(one.document, growth.group, transform_for(growth.transform, one.document))
    return chain.from_iterable(making.nodes(part, some) for part, some in zip(parts, pieces, strict=True))


def _ask(growth: GroupBuild, transform: Transform, found: Sequence[GroupNodes]) -> None:
    parts = [one.parts(growth) for one in found]
    answers = growth.reach.answers(transform, [part for some in parts for part in some])
    for one, some in zip(found, parts, strict=True):
        pieces = list(islice(answers, len(some)))
        if failure := next((answer for answer in pieces if isinstance(answer, Failure)), None):
            one.fail(growth.group, failure)
        else:
            one.take(growth.group, _nodes(one, growth, some, pieces))  # type: ignore[arg-type]


def embed(
    writer: AnyWriter, growths: Iterable[GroupBuild], tell: Callable[[int], None] = lambda count: None
) -> list[Unmade]:
    """Embed what groups hold and has no vector yet.

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


G = TypeVar("G", GroupBuild, Manifest)

DOCUMENTS_AT_ONCE = 64


def store(writer: AnyWriter, one: GroupNodes, before: Mapping[str, str] | None = None) -> None:
    """Add what could be made of a document that is there, and note what could not."""
    for group, nodes in list(one.made.items()):
        try:
            if nodes or not isinstance(nodes, Sequence):
                writer.add_nodes(one.document, nodes)
        except Exception as error:
            if isinstance(error, StoreError) and not isinstance(error, GroupError):
                raise
            one.fail(group, Failure.of(error, group))  # metadata of another type; a late failure of a splitter
    there, now = before or {}, one.reasons
    made = {group: "" for group in there if group in one.made or group in one.passed_over}
    if changed := {group: why for group, why in {**now, **made}.items() if there.get(group, "") != why}:
        writer.note_unmade(one.document.id, changed)


def make_up(writer: AnyWriter, growths: Sequence[GroupBuild], unmade: Sequence[Unmade]) -> Iterator[GroupNodes]:
    """Try again what could not be made, and what is made of that; but not in groups whose model is away."""
    before: dict[str, dict[str, str]] = {}
    for lack in unmade:
        before.setdefault(lack.document, {})[lack.group] = lack.reason
    alike: dict[frozenset[str], list[str]] = {}
    for document, reasons in before.items():
        alike.setdefault(frozenset(reasons), []).append(document)
    for groups, documents in alike.items():
        for some in in_batches(iter(documents), DOCUMENTS_AT_ONCE):
            check_cancelled()
            if not (left := groups - {growth.group for growth in growths if growth.reach.is_away}):
                break
            wanted = with_those_below(left, growths)
            found = [writer.document(id) for id in some]
            for one in grow(found, wanted, lambda document, group: writer.nodes(document.id, group)):
                store(writer, one, before[one.document.id])
                yield one


def complete(writer: Writer, built: Sequence[GroupBuild]) -> None:
    """Make groups that are about to be published of what another writer has committed meanwhile."""
    names = {growth.group for growth in built}
    lacking = [lack for lack in writer.unmade() if lack.is_untried and lack.group in names]
    for _ in make_up(writer, built, lacking):
        """Each of them is stored as it comes."""


def refuse_away(growths: Iterable[GroupBuild]) -> None:
    """Raise what kept a group that is made anew from being made: it would lose what it has of the documents."""
    for growth in growths:
        if growth.reach.reason and growth.reach.failure is not None:
            error = growth.reach.failure.raised()
            error.add_note(f"Group {growth.group!r} stays as it was. Nothing was published.")
            raise error


def with_those_below(groups: Iterable[str], all: Sequence[G]) -> list[G]:
    """These groups and those that are made from them, of `all` in order; the documents are what they are."""
    found, wanted = set(groups) - {DOCUMENT}, set(groups)
    for one in all:
        if not found.isdisjoint((one.parent, one.ref)):
            found.add(one.group)
    return [one for one in all if one.group in found | wanted]


def relabel(writer: AnyWriter, growths: Sequence[GroupBuild], old: Document, new: Document) -> None:
    """Give a document the metadata and readers of another one with the same text.

    Its nodes stay, and nothing is asked or embedded again, but in groups whose transform reads what has changed
    (`Operator.reads`), and in those that are made from them. Where a model for that is away, they are left to a later
    run.
    """
    before = _parts(writer, growths, old)
    writer.relabel(old, new.meta, new.readers)
    now = _parts(writer, growths, new)
    other = [growth.group for growth in growths if _reads_otherwise(growth, new, before, now)]
    again = [growth.group for growth in with_those_below(other, growths)]
    if other:
        writer.unmake(new.id, again)
        for _ in make_up(writer, growths, [Unmade(new.id, new.uri, group, NOT_YET) for group in again]):
            """Each of them is stored as it comes."""


def _parts(writer: AnyWriter, growths: Sequence[GroupBuild], document: Document) -> Mapping[str, Sequence[Part]]:
    """What the transform of each group is given."""
    there = GroupNodes(document, lambda group: writer.nodes(document.id, group))
    return {growth.group: there.parts(growth) for growth in growths if growth.group != DOCUMENT}


def _reads_otherwise(
    growth: GroupBuild, document: Document, before: Mapping[str, Sequence[Part]], now: Mapping[str, Sequence[Part]]
) -> bool:
    if growth.group == DOCUMENT:
        return False
    transform = transform_for(growth.transform, document)
    pairs = zip(before[growth.group], now[growth.group], strict=True)
    return any(transform.reads(part) != transform.reads(other) for part, other in pairs)
