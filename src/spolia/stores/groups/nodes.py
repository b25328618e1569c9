"""Making the nodes of documents, group by group, of the pieces that transforms give."""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain, count, islice, repeat
from types import MappingProxyType
from typing import TypeAlias, cast

from spolia.core.run_context import overhearing
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
    transform_for,
    whole,
)
from spolia.types import Document, Failure, Heading, Node, Region, Span
from spolia.types.value import kept, maker

_node, _part, _span = maker(Node), maker(Part), maker(Span)
_LF, _CR = re.compile("\n"), re.compile("\r")


class NodeFactory:
    def __init__(self, document: Document, group: str, transform: Transform) -> None:
        self.document, self.group = document, group
        self._numbers = count(1)
        self._outline = Outline(document, getattr(transform, "context_characters", CONTEXT_CHARACTERS))

    def nodes(self, part: Part, pieces: Iterable[Piece]) -> Iterator[Node]:
        offset = part.offset
        inherited, meta = self.document.meta, part.node.meta
        own = () if meta == inherited else tuple(pair for pair in meta if pair not in inherited)
        for piece in pieces:
            number = next(self._numbers)
            self._refuse_unwritable(part, piece)
            span = self._span(part, piece, offset)
            above, within = self._outline.above(span.start if span else offset or 0), piece.context
            yield _node(
                f"{self.document.id}:{self.group}:{number}", piece.text, self.document.id, self.group, span,
                f"{above}\n{within}" if above and within else above or within, self.document.uri, part.node.id,
                inherited + own + piece.meta, part.node.readers, number, piece.search_text,
            )  # fmt: skip

    def _refuse_unwritable(self, part: Part, piece: Piece) -> None:
        said = piece.text, piece.context, piece.search_text
        for text in (*said, *(str(item) for pair in piece.meta for item in pair)) if piece.meta else said:
            try:
                text.encode()
            except UnicodeEncodeError as error:
                raise GroupError(
                    f"A transform of group {self.group!r} gave {text[error.start]!r} for {part.node.id!r}, which no "
                    "encoding of Unicode has. Have it give text.encode('utf-8', 'replace').decode()."
                ) from error

    def _span(self, part: Part, piece: Piece, offset: int | None) -> Span | None:
        """The span of a piece in the document; for a written one, that of the part."""
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
        return self._place(offset + piece.start, offset + end)

    def _place(self, start: int, end: int) -> Span:
        """A stretch of the document with its pages or lines, from 1, and its time in a recording."""
        if pages := self.document.pages:
            first, last = max(1, bisect_right(pages, start)), max(1, bisect_right(pages, end - 1))
            return _span(start, end, (first, last), page_starts=pages[first:last])
        lines = bisect_right(self._line_ends, start) + 1, bisect_right(self._line_ends, end - 1) + 1
        return _span(start, end, None, lines, self._seconds(start, end) if self._segments else None)

    def _seconds(self, start: int, end: int) -> tuple[float, float] | None:
        """Start and end of a stretch in the recording, by the segments that it overlaps."""
        first = bisect_right(self._segments, start, key=lambda segment: segment.end)
        last = bisect_left(self._segments, end, key=lambda segment: segment.start)
        times = [time for segment in self._segments[first:last] if (time := segment.seconds)]
        return (min(start for start, _ in times), max(end for _, end in times)) if times else None

    @kept
    def _segments(self) -> list[Region]:
        """In the order of the text, without any within another one."""
        return [region for region in self.document.regions if region.seconds]

    @kept
    def _line_ends(self) -> list[int]:
        text = self.document.text
        return [found.end() for found in (_LF if "\n" in text or "\r" not in text else _CR).finditer(text)]


FEW, MANY = 3, 64
"""Parts that a transform gets together: until it has answered, and afterwards."""


class Availability:
    """Whether that which makes a group could be reached, in one run, and whether what it gave could be read.

    After `FEW` failures in a row of a kind that may pass, nothing more is asked for. `failure` is the last of them;
    `degraded` says of each reply that could not be read why.
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
    """Whether the service was at fault, so that a retry may succeed."""
    return bool(getattr(failure.raised(), "transient", False))


LISTED = 1_000_000
"""Characters; the nodes of a longer document are not all in memory together if no group is made of them."""


@dataclass(frozen=True)
class GroupBuild:
    """How one group grows: what its manifest says, with the objects that do it.

    `between`: the groups through which those of `ref` were made from the parent's.
    """

    group: str
    transform: Transform
    parent: str = DOCUMENT
    ref: str = ""
    embedders: tuple[Embedder | SparseEmbedder, ...] = ()
    reach: Availability = field(default_factory=Availability, compare=False, repr=False)
    between: tuple[str, ...] = ()


class GroupNodes:
    """The nodes of one document, group by group; some are made only when they are asked for.

    Groups are in `passed_over` that are made of one that could not be made.
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

    def may_grow(self, build: GroupBuild) -> bool:
        """Whether a group can be built: the groups that it is made from could be made."""
        lost = {*self.failures, *self.passed_over}
        if not lost or lost.isdisjoint({build.parent, build.ref} - {DOCUMENT}):
            return True
        self.passed_over.add(build.group)
        return False

    def of(self, group: str) -> Sequence[Node]:
        if group not in self._known:
            self._known[group] = list(self._there(group))
        return self._known[group]

    def parts(self, build: GroupBuild) -> list[Part]:
        nodes = self.of(build.parent)
        if not build.ref:
            return [_part(node, self.document, ()) for node in nodes]
        above = {made.id: made.parent for group in (*build.between, build.ref) for made in self.of(group)}
        return [_part(node, self.document, tuple(self._below(build.ref, node, above))) for node in nodes]

    def take(self, group: str, made: Iterable[Node], *, streamed: bool = False) -> None:
        if streamed:
            self.made[group] = made
            return
        try:
            self.made[group] = self._known[group] = list(made)
        except Exception as error:  # whatever a transform raises concerns this document and this group
            self.fail(group, Failure.of(error, group))

    def fail(self, group: str, failure: Failure) -> None:
        self.made.pop(group, None)
        self.failures[group] = failure

    def _below(self, ref: str, node: Node, above: Mapping[str, str]) -> Iterator[Node]:
        """The nodes of `ref` that were made from a node; `above` says what each on the way was made from."""
        for found in self.of(ref):
            at = found.parent
            while at and at != node.id:
                at = above.get(at, "")
            if at:
                yield found


CutPieces: TypeAlias = "Mapping[str, Sequence[Pieces]]"
"""By group, the pieces of each part of a document."""


def split(document: Document, builds: Sequence[GroupBuild]) -> CutPieces:
    """The pieces of a document in groups of splitters; without those that fail, and none of a long document."""
    found: dict[str, Sequence[Pieces]] = {}
    one = GroupNodes(document, lambda group: ())
    for build in builds if len(document.text) <= LISTED else ():
        with suppress(Exception):  # the one who makes the nodes meets it too, and reports it
            parts = one.parts(build)
            transform = cast(Splitter, build.transform)
            found[build.group] = pieces = [tuple(transform.pieces(part)) for part in parts]
            if any(build.group in (below.parent, below.ref) for below in builds):
                one.take(build.group, _nodes(one, build, transform, parts, pieces))
    return found


def grow(
    documents: Sequence[Document],
    builds: Sequence[GroupBuild],
    there: Callable[[Document, str], Sequence[Node]] = lambda document, group: (),
    prepared: Mapping[str, CutPieces] = MappingProxyType({}),
) -> list[GroupNodes]:
    """The nodes of documents in some groups. A transform that asks models gets the parts of all documents at once.

    What cannot be made of one document in one group is noted; the other groups and documents go on.

    Args:
        builds: each after its parents.
        there: the nodes of a document in a group that is not among them.
        prepared: what splitters were found to give, by the id of the document.
    """
    found = [GroupNodes(document, lambda group, of=document: there(of, group)) for document in documents]  # type: ignore[misc]
    needed = {name for build in builds for name in (build.parent, build.ref)}
    for build in builds:
        asked: dict[bytes, tuple[Transform, list[GroupNodes]]] = {}
        for one in found:
            if not one.may_grow(build):
                continue
            transform = transform_for(build.transform, one.document)
            if build.group == DOCUMENT and isinstance(transform, Whole):
                one.take(DOCUMENT, one.of(DOCUMENT) if one.document.text.strip() else ())
            elif isinstance(transform, Splitter):
                parts = one.parts(build)
                long = len(one.document.text) > LISTED and build.group not in needed
                pieces = prepared.get(one.document.id, {}).get(build.group) or map(transform.pieces, parts)
                one.take(build.group, _nodes(one, build, transform, parts, pieces), streamed=long)
            else:
                asked.setdefault(transform.digest, (transform, []))[1].append(one)
        for transform, some in asked.values():
            _ask(build, transform, some)
    return found


def _nodes(
    one: GroupNodes, build: GroupBuild, transform: Transform, parts: Sequence[Part], pieces: Iterable[Iterable[Piece]]
) -> Iterator[Node]:
    making = NodeFactory(one.document, build.group, transform)
    return chain.from_iterable(making.nodes(part, some) for part, some in zip(parts, pieces, strict=True))


def _ask(build: GroupBuild, transform: Transform, found: Sequence[GroupNodes]) -> None:
    parts = [one.parts(build) for one in found]
    answers = build.reach.answers(transform, [part for some in parts for part in some])
    for one, some in zip(found, parts, strict=True):
        pieces = list(islice(answers, len(some)))
        if failure := next((answer for answer in pieces if isinstance(answer, Failure)), None):
            one.fail(build.group, failure)
        else:
            one.take(build.group, _nodes(one, build, transform, some, pieces))  # type: ignore[arg-type]


def cut(document: Document, transform: Transform, group: str = "chunk") -> Iterator[Node]:
    """The nodes that a transform makes of a whole document."""
    part, transform = Part(whole(document), document), transform_for(transform, document)
    pieces = transform.pieces(part) if isinstance(transform, Splitter) else transform(part)
    return NodeFactory(document, group, transform).nodes(part, pieces)


BETWEEN = " > "


class Outline:
    """Tells the title and the headings above places; fast for those that come in the order of the text."""

    def __init__(self, document: Document, longest: int) -> None:
        self._title, self._headings, self._longest = document.title, document.headings, longest
        self._next = self._at = 0
        self._path: list[Heading] = []

    def above(self, start: int) -> str:
        """Title and headings; a heading at `start` itself belongs to the text, not to what is above it."""
        if not self._headings:
            return self._title[: self._longest]
        if start < self._at:
            self._next, self._path = 0, []
        self._at = start
        while self._next < len(self._headings) and self._headings[self._next].start < start:
            heading = self._headings[self._next]
            self._close(heading.level)
            self._path.append(heading)
            self._next += 1
        if self._next < len(self._headings) and self._headings[self._next].start == start:
            self._close(self._headings[self._next].level)
        return self._joined()

    def _close(self, level: int) -> None:
        while self._path and self._path[-1].level >= level:
            self._path.pop()

    def _joined(self) -> str:
        parts = [self._title] if self._title else []
        parts += [heading.text for heading in self._path if heading.text != self._title]
        joined = BETWEEN.join(parts)
        if len(joined) <= self._longest:
            return joined
        each = max(1, self._longest // len(parts) - len(BETWEEN))
        return BETWEEN.join(part[:each].rstrip() for part in parts)[: self._longest]
