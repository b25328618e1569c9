"""The nouns: frozen values that flow between operators.

Documents are cut into nodes, a query finds hits, hits make a ranking, a ranking is read into an answer. Values are
immutable and comparable, and know a hash of their content. What a value was made from (`compare=False`) is carried
along and belongs neither to its identity nor to its hash.
"""

from __future__ import annotations

import hashlib
import struct
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache
from typing import Any, Generic, Protocol, Self, TypeAlias, TypeVar, overload, runtime_checkable

Scalar: TypeAlias = str | int | float | bool | None
Meta: TypeAlias = tuple[tuple[str, Scalar], ...]
"""Names and values. A name that stands there more than once has several values."""
Record: TypeAlias = Mapping[str, Sequence[Scalar]]
"""All values of each declared metadata field."""
T = TypeVar("T")


@runtime_checkable
class Addressed(Protocol):
    """Something outside the flow (a store, a model) that a value names without holding it.

    `fingerprint()` tells its present content apart from another; `None` means that nothing that uses it may be cached.
    `scoped` says that what it returns depends on who asks.
    """

    @property
    def scoped(self) -> bool: ...

    def fingerprint(self) -> str | None: ...


@cache
def identity_fields(cls: Any) -> tuple[str, ...]:
    """Names of the fields of a dataclass that make up its identity."""
    return tuple(f.name for f in fields(cls) if f.compare)


def digest_of(value: object) -> bytes:
    """16 bytes that equal values share and different values do not: a Merkle hash (BLAKE2b).

    >>> digest_of((1, "a")) == digest_of((1, "a")), digest_of(1) == digest_of(True)
    (True, False)
    """
    return hashlib.blake2b(_encoded(value), digest_size=16).digest()


def _encoded(value: object) -> bytes:
    kind = type(value)
    if isinstance(value, str):
        raw = value.encode("utf-8", "surrogatepass")
        return b"s%d:" % len(raw) + raw
    if value is None or kind is bool or kind is int:
        return b"%c%r;" % (kind.__name__[0].encode(), value)
    if isinstance(value, float):
        return b"f" + struct.pack("<d", value)
    if isinstance(value, bytes):
        return b"y%d:" % len(value) + value
    if isinstance(value, (tuple, list)):
        return b"(%s)" % b"".join(map(_encoded, value))
    if isinstance(value, frozenset):
        return b"<%s>" % b"".join(sorted(map(_encoded, value)))
    if isinstance(value, Mapping):
        return b"{%s}" % b"".join(_encoded(key) + _encoded(value[key]) for key in sorted(value))
    digest = getattr(value, "digest", None)
    if isinstance(digest, bytes):
        return b"v" + digest
    raise TypeError(
        f"{value!r} of type {kind.__name__} has no content hash. "
        "Use scalars, tuples, mappings, values, operators and addresses."
    )


class kept(Generic[T]):
    """A property computed once and kept in the instance's `__dict__`: `functools.cached_property` without its lock."""

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self.compute = compute
        self.__doc__ = compute.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, instance: None, owner: type) -> Self: ...
    @overload
    def __get__(self, instance: object, owner: type) -> T: ...
    def __get__(self, instance: object, owner: type) -> Self | T:
        if instance is None:
            return self
        found: T = self.compute(instance)
        instance.__dict__[self.name] = found
        return found


@cache
def qualified(cls: Any) -> str:
    """What tells a class apart in hashes: its name, outside Spolia with its module."""
    name: str = cls.__qualname__
    return name if cls.__module__.startswith("spolia.") else f"{cls.__module__}:{name}"


class Value:
    """Base of all values. Subclasses are frozen dataclasses without slots, so that the digest is kept on them."""

    @kept
    def digest(self) -> bytes:
        """Content hash over the identity, computed once."""
        cls: Any = type(self)
        parts = b"".join(_encoded(getattr(self, name)) for name in identity_fields(cls))
        return hashlib.blake2b(qualified(cls).encode() + b"|" + parts, digest_size=16).digest()

    def but(self, **changes: Any) -> Self:
        """The same value with some fields changed."""
        return replace(self, **changes)  # type: ignore[type-var]


# ---------------------------------------------------------------------------------------------- documents and nodes


@dataclass(frozen=True)
class Span(Value):
    """A stretch of a document.

    Args:
        start: first character, an offset into the document's text, from 0.
        end: one past the last character.
        pages: first and last page, from 1; None where the format has no pages.
        lines: first and last line of the document's text, from 1; None where unknown.
    """

    start: int
    end: int
    pages: tuple[int, int] | None = None
    lines: tuple[int, int] | None = None


@dataclass(frozen=True)
class Heading(Value):
    """A heading of a document: where its line starts, its level from 1, its text."""

    start: int
    level: int
    text: str


@dataclass(frozen=True)
class Box(Value):
    """A rectangle on a page, in points (1/72 inch) from the upper left corner of the page as it is shown.

    Args:
        page: from 1.
        left, top, right, bottom: its sides; `left <= right`, `top <= bottom`.
    """

    page: int
    left: float
    top: float
    right: float
    bottom: float


@dataclass(frozen=True)
class Boxes(Value):
    """Where the lines of a document stand on its pages, packed: a long document has a hundred thousand of them.

    A node has no boxes of its own: those of its span are looked up here, so that they survive whatever a splitter or a
    merger does.

    Args:
        packed: for each line, in the order of the text, 28 bytes: start, end and page, then the four sides.

    >>> boxes = Boxes.of([(0, 9, Box(1, 72.0, 72.0, 300.0, 84.0)), (10, 19, Box(1, 72.0, 86.0, 300.0, 98.0))])
    >>> [box.top for box in boxes.within(4, 12)], len(boxes)
    ([72.0, 86.0], 2)
    """

    packed: bytes = b""

    @classmethod
    def of(cls, lines: Iterable[tuple[int, int, Box]]) -> Boxes:
        """Boxes of lines, each with its start and end in the text of the document, in this order."""
        return cls(b"".join(
            _BOX.pack(start, end, box.page, box.left, box.top, box.right, box.bottom) for start, end, box in lines
        ))  # fmt: skip

    def __len__(self) -> int:
        return len(self.packed) // _BOX.size

    def __iter__(self) -> Iterator[tuple[int, int, Box]]:
        for start, end, page, *sides in _BOX.iter_unpack(self.packed):
            yield start, end, Box(page, *sides)

    def within(self, start: int, end: int) -> tuple[Box, ...]:
        """The boxes of the lines of which a part stands between two places of the text."""
        first = bisect_right(range(len(self)), start, key=lambda at: self._line(at)[1])
        found = []
        for at in range(first, len(self)):
            begin, _, page, *sides = self._line(at)
            if begin >= end:
                break
            found.append(Box(page, *sides))
        return tuple(found)

    def _line(self, at: int) -> tuple[Any, ...]:
        return _BOX.unpack_from(self.packed, at * _BOX.size)


_BOX = struct.Struct("<3i4f")
NO_BOXES = Boxes()


@dataclass(frozen=True)
class Region(Value):
    """A stretch of a document that is not running text: it can be a node of its own, and no splitter should cut it.

    Args:
        kind: `table`, `image`, `code`, `formula`, or `segment`: what was said at a time of a recording.
        start: its first character in the document's text.
        end: one past its last one. The text between is what is indexed of it: the rows of a table, a picture's caption.
        rows: the cells of a table, row by row, the head first; empty for others.
        image: content hash of the picture; empty for others.
        caption: what the document says of it, where it does.
        box: where it stands; None where the format has no pages.
    """

    kind: str
    start: int
    end: int
    rows: tuple[tuple[str, ...], ...] = ()
    image: str = ""
    caption: str = ""
    box: Box | None = None


@dataclass(frozen=True)
class Document(Value):
    """The text that a reader got out of a source.

    Args:
        id: unique within a corpus; by default a hash of the source's bytes.
        text: all of it; every span counts characters in it.
        uri: where it came from: a path relative to the indexed folder, or the caller's own name.
        title: from the content, never from the file name; empty when there is none.
        media_type: for example `text/markdown`.
        pages: where each page starts in `text`; empty where the format has no pages.
        headings: in the order of the text.
        meta: fields of the caller, the reader and the file, in this precedence.
        readers: principals who may see it; empty means everybody.
        regions: tables, pictures, code, in the order of the text.
        boxes: where its lines stand on the pages.
    """

    id: str
    text: str
    uri: str = ""
    title: str = ""
    media_type: str = "text/plain"
    pages: tuple[int, ...] = ()
    headings: tuple[Heading, ...] = ()
    meta: Meta = ()
    readers: tuple[str, ...] = ()
    regions: tuple[Region, ...] = ()
    boxes: Boxes = NO_BOXES


@dataclass(frozen=True)
class Node(Value):
    """A piece of a document in one node group.

    Args:
        id: unique within a corpus.
        text: what is shown, exactly `document.text[span.start:span.end]` for a chunk.
        document: the document's id.
        group: the node group's name.
        span: where it stands in the document.
        context: what is put before the text when it is indexed or embedded (title and headings), never shown as quote.
        uri: where the document came from.
        parent: id of the node that it was cut from; for those cut from the whole document the document's id.
        meta: inherited from the document and its own.
        readers: principals who may see it; empty means everybody.
        number: position among the document's nodes of the group, from 1; 0 where unknown.
        search_text: what is indexed and embedded in place of context and text; empty for these.
    """

    id: str
    text: str
    document: str = ""
    group: str = "chunk"
    span: Span | None = None
    context: str = ""
    uri: str = ""
    parent: str = ""
    meta: Meta = ()
    readers: tuple[str, ...] = ()
    number: int = 0
    search_text: str = ""

    @property
    def shown_text(self) -> str:
        """What a reader is shown: the context, then the text."""
        return f"{self.context}\n{self.text}" if self.context else self.text

    @property
    def indexed_text(self) -> str:
        """What is indexed and embedded: what is shown, unless another text is to be."""
        return self.search_text or self.shown_text


# ------------------------------------------------------------------------------------------------ query and ranking


class Filter(Value):
    """Which nodes may be found, by their metadata; `spolia.filters` has the conditions."""

    def accepts(self, record: Record, /) -> bool:
        """Whether all values of the fields, defaults filled in, fulfil it."""
        raise NotImplementedError


@dataclass(frozen=True)
class Query(Value):
    """A question on its way through a flow.

    Args:
        text: what is searched.
        question: what was asked; `text` unless a step has rewritten it.
        vector: an embedding to search with instead of the text's own.
        weight: how much its hits count when several queries are fused.
        sample: number of the random draw; part of the identity, so that samples differ in the cache.
        filter: which nodes may be found; None for all.
        origin: the query that it was made from.

    >>> Query("Who employed Carsten Olsen?").question
    'Who employed Carsten Olsen?'
    """

    text: str
    question: str = ""
    vector: tuple[float, ...] | None = None
    weight: float = 1.0
    sample: int = 0
    filter: Filter | None = None
    origin: Query | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        if not self.question:
            object.__setattr__(self, "question", self.text)

    def rewritten(self, text: str) -> Query:
        """This query searching for another text; what was asked stays."""
        return replace(self, text=text, vector=None, origin=self)


Queries: TypeAlias = tuple[Query, ...]


@dataclass(frozen=True)
class Hit(Value):
    """A node that was found. Higher score is better, always.

    Args:
        node: what is shown.
        score: of this ranking.
        parts: the scores that were fused, by source.
        found: the smaller nodes that were searched, best first, where `node` is shown in their place. A citation of the
            hit points to them.
    """

    node: Node
    score: float
    parts: tuple[tuple[str, float], ...] = field(default=(), compare=False)
    found: tuple[Node, ...] = ()


@dataclass(frozen=True)
class Ranking(Value):
    """Hits, best first, and the query that found them. `source` names the retriever, for weights per source."""

    query: Query
    hits: tuple[Hit, ...]
    source: str = ""

    def __len__(self) -> int:
        return len(self.hits)

    def __iter__(self) -> Iterator[Hit]:
        return iter(self.hits)

    @property
    def nodes(self) -> tuple[Node, ...]:
        return tuple(hit.node for hit in self.hits)

    def cut(self, top_k: int) -> Ranking:
        """The best `top_k` hits."""
        return self if len(self.hits) <= top_k else replace(self, hits=self.hits[:top_k])


# ------------------------------------------------------------------------------------------------ models and answers


@dataclass(frozen=True)
class Message(Value):
    """One message of a chat: the role is `system`, `user` or `assistant`."""

    role: str
    content: str


@dataclass(frozen=True)
class Prompt(Value):
    """What is sent to a language model. `sample` numbers the random draw."""

    messages: tuple[Message, ...]
    sample: int = 0

    @property
    def text(self) -> str:
        return "\n\n".join(message.content for message in self.messages)


@dataclass(frozen=True)
class Token(Value):
    """A generated token and its natural log-probability."""

    text: str
    logprob: float


@dataclass(frozen=True)
class Generation(Value):
    """What a language model replied.

    Args:
        text: the reply.
        finish_reason: `stop`, or `length` when the model was cut off.
        tokens: with log-probabilities, when they were asked for.
    """

    text: str
    finish_reason: str = "stop"
    tokens: tuple[Token, ...] = ()


@dataclass(frozen=True)
class Citation(Value):
    """The passage behind a statement.

    Args:
        marker: how the answer refers to it, for example `1` for `[1]`.
        node: id of the node.
        document: id of the document.
        uri: where the document came from.
        quote: the text, exactly as it stands in the document at `span`.
        span: where the quote stands in the document.
    """

    marker: str
    node: str
    document: str
    uri: str
    quote: str
    span: Span | None = None

    @property
    def place(self) -> str:
        """File and page or lines, for people.

        >>> Citation("1", "n", "d", "a.pdf", "...", Span(0, 3, pages=(2, 3))).place
        'a.pdf, pages 2-3'
        """
        if self.span is None or (self.span.pages or self.span.lines) is None:
            return self.uri
        name, ends = ("page", self.span.pages) if self.span.pages else ("line", self.span.lines)
        assert ends is not None
        first, last = ends
        return f"{self.uri}, {name} {first}" if first == last else f"{self.uri}, {name}s {first}-{last}"


@dataclass(frozen=True)
class Answer(Value):
    """A reply with its sources.

    Args:
        text: the reply; for an abstention, the sentence that says so.
        citations: the passages that the text refers to.
        stop_reason: `answered`, `abstained`, or why a loop ended: `sufficient`, `judged`, `cap`, `budget`, `forced`,
            `error`.
        evidence: everything that was shown to the reader.
    """

    text: str
    citations: tuple[Citation, ...] = ()
    stop_reason: str = "answered"
    evidence: Ranking | None = field(default=None, compare=False, repr=False)

    @property
    def abstained(self) -> bool:
        return self.stop_reason == "abstained"


# ---------------------------------------------------------------------------------------------------- running a flow


@dataclass(frozen=True)
class Verdict(Value):
    """What a judge says of a state: whether to stop, and why."""

    stop: bool
    reason: str = ""


@dataclass(frozen=True)
class Failure(Value):
    """A row that could not be computed.

    Args:
        kind: name of the error's class.
        message: the error's message.
        step: the operator in which it was raised.
        error: the exception itself.
    """

    kind: str
    message: str
    step: str = ""
    error: Exception | None = field(default=None, compare=False, repr=False)

    @classmethod
    def of(cls, error: Exception, step: str = "") -> Failure:
        """The failure that an exception stands for."""
        return cls(type(error).__name__, str(error), step, error)

    def raised(self) -> Exception:
        """The exception, to be raised again."""
        return self.error if self.error is not None else RuntimeError(f"{self.step}: {self.kind}: {self.message}")


@dataclass(frozen=True)
class Usage(Value):
    """What a step cost.

    Args:
        calls: requests to language models.
        input_tokens: tokens sent to them.
        output_tokens: tokens that they generated.
        embedded: texts that were embedded.
        cost_usd: price in US dollars, where it is known.

    >>> Usage(calls=1) + Usage(calls=2, output_tokens=5)
    Usage(calls=3, input_tokens=0, output_tokens=5, embedded=0, cost_usd=0.0)
    """

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    embedded: int = 0
    cost_usd: float = 0.0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.calls + other.calls,
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.embedded + other.embedded,
            self.cost_usd + other.cost_usd,
        )

    def __sub__(self, other: Usage) -> Usage:
        return Usage(
            self.calls - other.calls,
            self.input_tokens - other.input_tokens,
            self.output_tokens - other.output_tokens,
            self.embedded - other.embedded,
            self.cost_usd - other.cost_usd,
        )


@dataclass(frozen=True)
class State(Value):
    """Base of the states of adaptive flows.

    Args:
        stop: why the flow ended; empty while it runs.
        sample: number of the random draw.
    """

    stop: str = field(default="", kw_only=True)
    sample: int = field(default=0, kw_only=True)

    @kept
    def identity(self) -> bytes:
        """Content hash without `stop` and `sample`: what a set of visited states compares."""
        return replace(self, stop="", sample=0).digest


# -------------------------------------------------------------------------------------------------------- evaluation


@dataclass(frozen=True)
class SubQuestion(Value):
    """One hop of a question: what it asks, its answer, the passage that states it."""

    question: str
    answer: str
    gold_id: str = ""


@dataclass(frozen=True)
class Item(Value):
    """A question with its gold.

    Args:
        id: unique within a data set.
        question: what is asked.
        answers: accepted answers, the main one first.
        gold: groups of passage ids; a group is satisfied by any of its members, the gold by all groups.
        grades: how relevant a gold passage is, higher is better, where judges gave grades; else every one counts 1.
        type: a label to slice by.
        decomposition: the hops, where they are known.
        meta: anything else that the data set says.
    """

    id: str
    question: str
    answers: tuple[str, ...] = ()
    gold: tuple[tuple[str, ...], ...] = ()
    grades: tuple[tuple[str, float], ...] = ()
    type: str = ""
    decomposition: tuple[SubQuestion, ...] = ()
    meta: Meta = ()
