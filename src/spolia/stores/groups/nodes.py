"""Nodes of documents, made group by group from the pieces that transforms give."""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, count, islice, repeat
from types import MappingProxyType
from typing import TypeAlias, cast

from spolia.core.run_context import collect_degradations
from spolia.errors import GroupError
from spolia.models.protocols import Embedder, SparseEmbedder
from spolia.stores.definition import (
    CONTEXT_CHARACTERS,
    DOCUMENT,
    Part,
    Piece,
    Pieces,
    Splitter,
    Transform,
    Whole,
    document_node,
    transform_for,
)
from spolia.types import Document, Failure, Heading, Node, Region, Span
from spolia.types.value import lazy_property, unchecked_constructor

_node, _part, _span = unchecked_constructor(Node), unchecked_constructor(Part), unchecked_constructor(Span)
_LF, _CR = re.compile("\n"), re.compile("\r")


class NodeFactory:
    def __init__(self, document: Document, group: str, transform: Transform) -> None:
        self.document, self.group = document, group
        self._numbers = count(1)
        self._outline = Outline(document, getattr(transform, "context_characters", CONTEXT_CHARACTERS))

    def make_nodes(self, part: Part, pieces: Iterable[Piece]) -> Iterator[Node]:
        offset = part.offset
        inherited, meta = self.document.meta, part.node.meta
        part_meta = () if meta == inherited else tuple(pair for pair in meta if pair not in inherited)
        for piece in pieces:
            number = next(self._numbers)
            self._refuse_unwritable(part, piece)
            span = self._span(part, piece, offset)
            headings, context = self._outline.heading_path(span.start if span else offset or 0), piece.context
            yield _node(
                f"{self.document.id}:{self.group}:{number}", piece.text, self.document.id, self.group, span,
                f"{headings}\n{context}" if headings and context else headings or context, self.document.uri,
                part.node.id, inherited + part_meta + piece.meta, part.node.readers, number, piece.search_text,
            )  # fmt: skip

    def _refuse_unwritable(self, part: Part, piece: Piece) -> None:
        texts = piece.text, piece.context, piece.search_text
        for text in (*texts, *(str(item) for pair in piece.meta for item in pair)) if piece.meta else texts:
            try:
                text.encode()
            except UnicodeEncodeError as error:
                raise GroupError(
                    f"A transform of group {self.group!r} gave {text[error.start]!r} for {part.node.id!r}, which no "
                    "encoding of Unicode has. Have it give text.encode('utf-8', 'replace').decode()."
                ) from error

    def _span(self, part: Part, piece: Piece, offset: int | None) -> Span | None:
        """Return the span of a piece in the document; for a written one, that of the part."""
        if offset is None:
            return None
        if piece.start is None:
            return part.node.span if part.node.id != self.document.id else None
        end = piece.start + len(piece.text)
        if not part.node.text.startswith(piece.text, piece.start):
            raise GroupError(
                f"A transform of group {self.group!r} says that {piece.text[:40]!r} begins at {piece.start} of "
                f"{part.node.id!r}, where there is {part.node.text[piece.start : end][:40]!r}. "
                "Give the piece its true start, or None."
            )
        return self._locate(offset + piece.start, offset + end)

    def _locate(self, start: int, end: int) -> Span:
        """Return a stretch of the document with its pages or lines, from 1, and its time in a recording."""
        if pages := self.document.pages:
            # Text before the first page's start belongs to page 1.
            first, last = max(1, bisect_right(pages, start)), max(1, bisect_right(pages, end - 1))
            return _span(start, end, (first, last), page_starts=pages[first:last])
        # `end - 1`: a piece that ends with its line is not on the next one.
        lines = bisect_right(self._line_ends, start) + 1, bisect_right(self._line_ends, end - 1) + 1
        return _span(start, end, None, lines, self._seconds(start, end) if self._segments else None)

    def _seconds(self, start: int, end: int) -> tuple[float, float] | None:
        """Return start and end of a stretch in the recording, by the segments that it overlaps."""
        first = bisect_right(self._segments, start, key=lambda segment: segment.end)
        last = bisect_left(self._segments, end, key=lambda segment: segment.start)
        times = [time for segment in self._segments[first:last] if (time := segment.seconds)]
        return (min(start for start, _ in times), max(end for _, end in times)) if times else None

    @lazy_property
    def _segments(self) -> list[Region]:
        """In the order of the text, without any within another one."""
        return [region for region in self.document.regions if region.seconds]

    @lazy_property
    def _line_ends(self) -> list[int]:
        text = self.document.text
        # Only texts without LF end their lines by CR.
        return [match.end() for match in (_LF if "\n" in text or "\r" not in text else _CR).finditer(text)]


FEW, MANY = 3, 64
"""Parts that a transform gets together: until it has answered, and afterwards."""


class Availability:
    """Availability of the model behind a group, in one run, and its replies that could not be read.

    After `FEW` failures in a row of a kind that may pass, nothing more is asked for. `failure` is the last of them;
    `degraded` says of each reply that could not be read why.
    """

    def __init__(self) -> None:
        self.failure: Failure | None = None
        self.degraded: list[str] = []
        self._in_a_row, self._has_answered = 0, False

    @property
    def is_away(self) -> bool:
        """Return whether there is no use in asking again in this run."""
        return self._in_a_row >= FEW

    @property
    def reason(self) -> str:
        """Return why the group is not in step, if nobody could be reached for what it lacks; else empty."""
        if self.failure is None or (self._has_answered and not self.is_away):
            return ""
        return f"{self.failure.kind}: {self.failure.message} What it lacks is made by the next run that finds it there."

    @property
    def degradation(self) -> str:
        """Return how often results are not what they should be, and why; empty where all are."""
        if not self.degraded:
            return ""
        times = f"{len(self.degraded)} times" if len(self.degraded) > 1 else "once"
        return f"{times}: {self.degraded[-1]} To have these made again, drop the group and build it."

    def run_transform(self, transform: Transform, parts: Sequence[Part]) -> Iterator[Pieces | Failure]:
        """Yield what a transform makes of each part; once it is away, the failure that showed it."""
        done = 0
        while done < len(parts) and not self.is_away:
            # Small batches until the first answer: a model that is away costs few calls.
            batch = parts[done : done + (MANY if self._has_answered else FEW)]
            with collect_degradations() as notes:
                results = transform.batch(batch)
            self.degraded += notes
            self._note(results)
            yield from results
            done += len(batch)
        if done < len(parts):
            assert self.failure is not None
            yield from repeat(self.failure, len(parts) - done)

    def _note(self, answers: Sequence[Pieces | Failure]) -> None:
        for answer in answers:
            if isinstance(answer, Failure) and is_transient(answer):
                self.failure, self._in_a_row = answer, self._in_a_row + 1
            else:
                self._has_answered, self._in_a_row = True, 0


def is_transient(failure: Failure) -> bool:
    """Return whether the service was at fault, so that a retry may succeed."""
    return bool(getattr(failure.raised(), "transient", False))


LISTED = 1_000_000
"""Characters; the nodes of a longer document are not all in memory together if no group is made of them."""


@dataclass(frozen=True)
class GroupBuild:
    """Plan of a group's build: what its manifest says, with the objects that do it.

    `between`: the groups through which those of `ref` were made from the parent's.
    """

    group: str
    transform: Transform
    parent: str = DOCUMENT
    ref: str = ""
    embedders: tuple[Embedder | SparseEmbedder, ...] = ()
    availability: Availability = field(default_factory=Availability, compare=False, repr=False)
    between: tuple[str, ...] = ()


class GroupNodes:
    """Nodes of one document, group by group; some are made only when they are asked for.

    Groups are in `passed_over` that are made of one that could not be made.
    """

    def __init__(self, document: Document, load_nodes: Callable[[str], Sequence[Node]]) -> None:
        self.document = document
        self.by_group: dict[str, Iterable[Node]] = {}
        self.failures: dict[str, Failure] = {}
        self.passed_over: set[str] = set()
        self._load_nodes, self._nodes = load_nodes, {DOCUMENT: [document_node(document)]}

    @property
    def reasons(self) -> dict[str, str]:
        """Return in words why groups could not be made."""
        return {group: f"{failure.kind}: {failure.message}" for group, failure in self.failures.items()}

    def can_build(self, build: GroupBuild) -> bool:
        """Return whether a group can be built: the groups that it is made from could be made."""
        lost = {*self.failures, *self.passed_over}
        if not lost or lost.isdisjoint({build.parent, build.ref} - {DOCUMENT}):
            return True
        self.passed_over.add(build.group)
        return False

    def nodes_of(self, group: str) -> Sequence[Node]:
        if group not in self._nodes:
            self._nodes[group] = list(self._load_nodes(group))
        return self._nodes[group]

    def parts(self, build: GroupBuild) -> list[Part]:
        nodes = self.nodes_of(build.parent)
        if not build.ref:
            return [_part(node, self.document, ()) for node in nodes]
        parents = {item.id: item.parent for group in (*build.between, build.ref) for item in self.nodes_of(group)}
        return [_part(node, self.document, tuple(self._find_refs(build.ref, node, parents))) for node in nodes]

    def add(self, group: str, nodes: Iterable[Node], *, streamed: bool = False) -> None:
        if streamed:
            self.by_group[group] = nodes
            return
        try:
            self.by_group[group] = self._nodes[group] = list(nodes)
        except Exception as error:  # whatever a transform raises concerns this document and this group
            self.fail(group, Failure.from_error(error, group))

    def fail(self, group: str, failure: Failure) -> None:
        self.by_group.pop(group, None)
        self.failures[group] = failure

    def _find_refs(self, ref: str, node: Node, parents: Mapping[str, str]) -> Iterator[Node]:
        """Yield the nodes of `ref` made from a node; `parents` says what each node between was made from."""
        for candidate in self.nodes_of(ref):
            ancestor = candidate.parent
            while ancestor and ancestor != node.id:
                ancestor = parents.get(ancestor, "")
            if ancestor:
                yield candidate


CutPieces: TypeAlias = "Mapping[str, Sequence[Pieces]]"
"""By group, the pieces of each part of a document."""


def split_document(document: Document, builds: Sequence[GroupBuild]) -> CutPieces:
    """Return the pieces of a document in groups of splitters; without those that fail, and none of a long document."""
    pieces_by_group: dict[str, Sequence[Pieces]] = {}
    document_nodes = GroupNodes(document, lambda group: ())
    for build in builds if len(document.text) <= LISTED else ():
        with suppress(Exception):  # the one who makes the nodes meets it too, and reports it
            parts = document_nodes.parts(build)
            transform = cast(Splitter, build.transform)
            pieces_by_group[build.group] = pieces = [tuple(transform.pieces(part)) for part in parts]
            if any(build.group in (child.parent, child.ref) for child in builds):
                document_nodes.add(build.group, _make_nodes(document_nodes, build, transform, parts, pieces))
    return pieces_by_group


def grow(
    documents: Sequence[Document],
    builds: Sequence[GroupBuild],
    load_nodes: Callable[[Document, str], Sequence[Node]] = lambda document, group: (),
    prepared: Mapping[str, CutPieces] = MappingProxyType({}),
) -> list[GroupNodes]:
    """Make the nodes of documents in some groups. A transform that asks models gets the parts of all documents at once.

    What cannot be made of one document in one group is noted; the other groups and documents go on.

    Args:
        builds: each after its parents.
        load_nodes: the nodes of a document in a group that is not among them.
        prepared: what splitters were found to give, by the id of the document.
    """
    results = [GroupNodes(document, partial(load_nodes, document)) for document in documents]
    needed = {name for build in builds for name in (build.parent, build.ref)}
    for build in builds:
        pending: dict[bytes, tuple[Transform, list[GroupNodes]]] = {}
        for document_nodes in results:
            if not document_nodes.can_build(build):
                continue
            transform = transform_for(build.transform, document_nodes.document)
            if build.group == DOCUMENT and isinstance(transform, Whole):
                document_nodes.add(
                    DOCUMENT, document_nodes.nodes_of(DOCUMENT) if document_nodes.document.text.strip() else ()
                )
            elif isinstance(transform, Splitter):
                parts = document_nodes.parts(build)
                # Streamed, unless another group is made from these nodes and needs them together.
                long = len(document_nodes.document.text) > LISTED and build.group not in needed
                pieces = prepared.get(document_nodes.document.id, {}).get(build.group) or map(transform.pieces, parts)
                document_nodes.add(
                    build.group, _make_nodes(document_nodes, build, transform, parts, pieces), streamed=long
                )
            else:
                pending.setdefault(transform.digest, (transform, []))[1].append(document_nodes)
        for transform, same_transform in pending.values():
            _ask_model(build, transform, same_transform)
    return results


def _make_nodes(
    document_nodes: GroupNodes,
    build: GroupBuild,
    transform: Transform,
    parts: Sequence[Part],
    pieces: Iterable[Iterable[Piece]],
) -> Iterator[Node]:
    factory = NodeFactory(document_nodes.document, build.group, transform)
    return chain.from_iterable(
        factory.make_nodes(part, part_pieces) for part, part_pieces in zip(parts, pieces, strict=True)
    )


def _ask_model(build: GroupBuild, transform: Transform, items: Sequence[GroupNodes]) -> None:
    parts = [document_nodes.parts(build) for document_nodes in items]
    answers = build.availability.run_transform(transform, [part for document_parts in parts for part in document_parts])
    for document_nodes, document_parts in zip(items, parts, strict=True):
        pieces = list(islice(answers, len(document_parts)))
        if failure := next((answer for answer in pieces if isinstance(answer, Failure)), None):
            document_nodes.fail(build.group, failure)
        else:
            document_nodes.add(build.group, _make_nodes(document_nodes, build, transform, document_parts, pieces))  # type: ignore[arg-type]


def cut_document(document: Document, transform: Transform, group: str = "chunk") -> Iterator[Node]:
    """Yield the nodes that a transform makes of a whole document."""
    part, transform = Part(document_node(document), document), transform_for(transform, document)
    pieces = transform.pieces(part) if isinstance(transform, Splitter) else transform(part)
    return NodeFactory(document, group, transform).make_nodes(part, pieces)


BETWEEN = " > "


class Outline:
    """Title and headings above places of a document; fast for places in the order of the text."""

    def __init__(self, document: Document, longest: int) -> None:
        self._title, self._headings, self._longest = document.title, document.headings, longest
        self._next = self._position = 0
        self._path: list[Heading] = []

    def heading_path(self, start: int) -> str:
        """Return title and headings; a heading at `start` itself belongs to the text, not to what is above it."""
        if not self._headings:
            return self._title[: self._longest]
        # A place before the last one: the headings are walked from the first again.
        if start < self._position:
            self._next, self._path = 0, []
        self._position = start
        while self._next < len(self._headings) and self._headings[self._next].start < start:
            heading = self._headings[self._next]
            self._close(heading.level)
            self._path.append(heading)
            self._next += 1
        if self._next < len(self._headings) and self._headings[self._next].start == start:
            self._close(self._headings[self._next].level)
        return self._join_path()

    def _close(self, level: int) -> None:
        while self._path and self._path[-1].level >= level:
            self._path.pop()

    def _join_path(self) -> str:
        parts = [self._title] if self._title else []
        parts += [heading.text for heading in self._path if heading.text != self._title]
        text = BETWEEN.join(parts)
        if len(text) <= self._longest:
            return text
        # Every heading keeps an equal share of the length, so that none is lost.
        limit = max(1, self._longest // len(parts) - len(BETWEEN))
        return BETWEEN.join(part[:limit].rstrip() for part in parts)[: self._longest]
