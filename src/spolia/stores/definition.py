"""Definition of a node group: which transform of which group's nodes, and how they are embedded and indexed.

Groups form a DAG whose root is `document`, the whole documents. A transform takes one node of the parent group at a
time, as a `Part`, and gives the `Piece`s of which its children are made.
"""

from abc import abstractmethod
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeAlias

from spolia.core.function import Function, hidden_dependency
from spolia.core.operator import Operator
from spolia.core.type_compatibility import fits, name_of
from spolia.core.validation import validate
from spolia.errors import GroupError, WiringError
from spolia.models.protocols import Embedder, SparseEmbedder, refuse_no_embedder
from spolia.stores.indexes import DEFAULT_INDEX, Exact, IndexSettings
from spolia.stores.lexical.analysis import Analyzer
from spolia.types import Document, Failure, Meta, Node, Region, Span, Value
from spolia.types.value import unchecked_constructor

DOCUMENT = "document"
"""The root of all groups: each document is one node, whose id is the document's."""
MAIN = "chunk"
"""The group into which documents are put, unless another name is given."""

Metric: TypeAlias = Literal["cosine", "dot", "euclidean"]


def document_node(document: Document) -> Node:
    """Return a document as the one node of the root group.

    >>> document_node(Document("d", "Stones.")).span
    Span(start=0, end=7, pages=None, lines=None, seconds=None, page_starts=())
    """
    span = _span(0, len(document.text), None, None, None, ())
    return _node(
        document.id, document.text, document.id, DOCUMENT, span, "", document.uri, "",
        document.meta, document.readers, 1, "",
    )  # fmt: skip


_node, _span = unchecked_constructor(Node), unchecked_constructor(Span)


CONTEXT_CHARACTERS = 200
"""Of title and headings that are put before a piece when it is indexed, at most."""


@dataclass(frozen=True)
class Part(Value):
    """Input of a transform.

    Args:
        node: of the parent group; for the root the whole document.
        document: that it is a part of, with its headings and pages.
        refs: the nodes of the group's `ref` that were made from `node`, in order.
    """

    node: Node
    document: Document
    refs: tuple[Node, ...] = ()

    operator: ClassVar[str] = "a transform, an operator"
    """What an operator that takes it is called in messages."""

    @property
    def offset(self) -> int | None:
        """Return where the node's text begins in the document's; None if it is not part of it."""
        span = self.node.span
        if span is None or span.end - span.start != len(self.node.text):
            return None
        return span.start


def offset_of(part: Part) -> int | None:
    """Return where the part begins in its document; None if it is not part of it."""
    if (offset := part.offset) is not None:
        return offset
    return 0 if part.node.text == part.document.text else None


def places_in(part: Part, places: Sequence[int]) -> list[int]:
    """Return the places of the document that lie in the part, counted from the part's beginning."""
    offset = offset_of(part) if places else None
    if offset is None:
        return []
    first = bisect_left(places, offset)
    last = bisect_left(places, offset + len(part.node.text), first)
    return [place - offset for place in places[first:last]]


def regions_in(part: Part, kind: str) -> list[Region]:
    """Return the outermost regions of a kind that lie completely in the part, counted from the part's beginning."""
    offset = offset_of(part) if part.document.regions else None
    regions: list[Region] = []
    for region in part.document.regions if offset is not None else ():
        start, end = region.start - (offset or 0), region.end - (offset or 0)
        # Regions are in the order of the text, so one that begins before the last one ends is inside it.
        is_within = bool(regions) and start < regions[-1].end
        if region.kind == kind and 0 <= start <= end <= len(part.node.text) and not is_within:
            regions.append(region.but(start=start, end=end))
    return regions


def cut_part(part: Part, start: int, end: int) -> Part:
    offset = offset_of(part)
    span = None if offset is None else Span(offset + start, offset + end)
    return part.but(node=part.node.but(text=part.node.text[start:end], span=span))


@dataclass(frozen=True)
class Piece(Value):
    """A node that a transform makes.

    Args:
        text: shown to readers.
        start: its place in the text of the part's node, `node.text[start : start + len(text)]`; None when it was
            written, not cut.
        context: is put before the text when it is indexed, below title and headings: the head of a table, for example.
        search_text: is indexed and embedded instead of context and text, if they differ: the question of a pair.
        meta: fields of its own.
    """

    text: str
    start: int | None = None
    context: str = ""
    search_text: str = ""
    meta: Meta = ()


Pieces: TypeAlias = tuple[Piece, ...]
Transform: TypeAlias = Operator[Part, Pieces]


class Splitter(Operator[Part, Pieces]):
    """Base of the transforms that only cut: cheap, deterministic, one piece with a `start` after the other."""

    @property
    def context_characters(self) -> int:
        """Return how much of title and headings is put before a piece when it is indexed, at most."""
        return CONTEXT_CHARACTERS

    @abstractmethod
    def pieces(self, part: Part, /) -> Iterator[Piece]:
        """Yield the pieces in the order of the text, so that a long document needs no more memory than its text."""

    def reads(self, value: Part, /) -> object:
        """Return the part without metadata and readers, so that nothing is cut again when these change; a splitter that
        reads them says so."""
        refs = tuple(ref.but(meta=(), readers=()) for ref in value.refs)
        return Part(value.node.but(meta=(), readers=()), value.document.but(meta=(), readers=()), refs)

    def apply(self, value: Part, /) -> Pieces:
        return tuple(self.pieces(value))


class TransformChooser(Operator[Part, Pieces]):
    """Base of the transforms that choose another transform for each document."""

    @abstractmethod
    def transform_for(self, uri: str, /) -> Transform:
        """Return the transform for the parts of a document at this address."""

    def apply(self, value: Part, /) -> Pieces:
        return self.transform_for(value.document.uri)(value)

    def apply_batch(self, values: Sequence[Part], /) -> list[Pieces | Failure]:
        rows_by_transform: dict[bytes, tuple[Transform, list[int]]] = {}
        for row, part in enumerate(values):
            transform = self.transform_for(part.document.uri)
            # Grouped by digest: equal transforms get their parts in one batch.
            rows_by_transform.setdefault(transform.digest, (transform, []))[1].append(row)
        results: dict[int, Pieces | Failure] = {}
        for transform, rows in rows_by_transform.values():
            results.update(zip(rows, transform.batch([values[row] for row in rows], rows=rows), strict=True))
        return [results[row] for row in range(len(values))]


class FieldTransform(Operator[Part, Pieces]):
    """Base of the transforms that name metadata fields: it is an error if no document has one of them."""

    fields: tuple[str, ...]


def transform_for(transform: Transform, document: Document) -> Transform:
    """Return the transform that makes the pieces of a document's parts: itself, or the one that it chooses."""
    while isinstance(transform, TransformChooser):
        transform = transform.transform_for(document.uri)
    return transform


@dataclass(frozen=True)
class Whole(Splitter):
    """Splitter that gives all of a part as one piece; none of a document without text.

    >>> document = Document("d", "Stones.")
    >>> Whole()(Part(document_node(document), document))
    (Piece(text='Stones.', start=0, context='', search_text='', meta=()),)
    """

    def pieces(self, part: Part, /) -> Iterator[Piece]:
        if part.node.text.strip():
            yield Piece(part.node.text, 0)


@dataclass(frozen=True)
class Embedding(Value):
    """Settings by which the nodes of a group are embedded and their vectors searched. A group may have several.

    Args:
        embedder: gives the vectors.
        index: finds the nearest: `HNSW()`, which is exact search while that is faster, `Exact()`, or the settings of a
            vector database.
        metric: `cosine`, `dot` (of vectors as the embedder gives them) or `euclidean` (distance, negated).

    Sparse vectors are searched exactly by their products: neither index nor metric is chosen.

    Raises:
        WiringError: `embedder` is not one, with what it lacks; the metric is unknown; a sparse one comes with an index
            or metric.
    """

    embedder: Embedder | SparseEmbedder
    index: IndexSettings = DEFAULT_INDEX
    metric: Metric = "cosine"

    def __post_init__(self) -> None:
        refuse_no_embedder(self.embedder, "Embedding", Embedder, SparseEmbedder)
        validate(self)
        is_sparse = isinstance(self.embedder, SparseEmbedder) and not isinstance(self.embedder, Embedder)
        is_chosen = self.index is not DEFAULT_INDEX and self.index != Exact()  # HNSW() too, where somebody wrote it
        if is_sparse and (is_chosen or self.metric == "euclidean"):
            raise WiringError(
                f"The vectors of {self.embedder.name!r} are sparse: they are searched exactly, by their products, and "
                f"not by {self.index!r} and {self.metric!r}. Write Embedding({type(self.embedder).__name__}(...))."
            )

    def __repr__(self) -> str:
        index = "" if self.index is DEFAULT_INDEX else f", index={self.index!r}"
        return f"Embedding({self.embedder!r}{index}, metric={self.metric!r})"


@dataclass(frozen=True)
class Definition(Value):
    """The parts of a node group.

    Args:
        transform: makes the nodes of one parent's text.
        parent: the group that is cut.
        ref: a group below `parent` whose nodes the transform sees in `Part.refs`; empty for none.
        embeddings: of the nodes; none for search by words only.
        analyzer: makes the terms; None for that of the store's language.

    Raises:
        GroupError: for a transform that is none, or takes refs where there is no `ref`, a `ref` that is the parent, or
            two embeddings by one embedder.

    >>> Definition(len)
    Traceback (most recent call last):
    spolia.errors.GroupError: len is a plain function, no transform. Write @transform above its definition.
    """

    transform: Operator[Part, Pieces]
    parent: str = DOCUMENT
    ref: str = ""
    embeddings: tuple[Embedding, ...] = ()
    analyzer: Analyzer | None = None

    def __post_init__(self) -> None:
        _refuse_no_transform(self.transform)
        for name in ("parent", "ref"):
            if not isinstance(group := getattr(self, name), str):
                raise GroupError(f"The {name} is {group!r:.80} ({type(group).__name__}). Write the name of a group.")
        object.__setattr__(self, "embeddings", _as_embeddings(self.embeddings))
        if not self.ref and (name := _find_ref_reader(self.transform)):
            raise GroupError(
                f"{name} takes refs, and no group is named that they come from. Write Definition(..., ref=GROUP), one "
                f"that was made from {self.parent!r}, or have {name} take none."
            )
        if self.ref and self.ref == self.parent:
            raise GroupError(
                f"The ref {self.ref!r} is the parent itself. Write a group that was made from it, or none."
            )
        validate(self, GroupError)
        names = [embedding.embedder.name for embedding in self.embeddings]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise GroupError(f"Two embeddings are by {', '.join(twice)}. Write each embedder once.")


def _find_ref_reader(transform: Operator[Any, Any]) -> str:
    """Return the transform that needs the nodes of a `ref`, in its short form; empty if no transform does."""
    if getattr(transform, "wants_refs", False):
        return transform.short
    return next(filter(None, (_find_ref_reader(inner) for _, inner in transform.inner())), "")


def _refuse_no_transform(value: object) -> None:
    if isinstance(value, Operator):
        if fits(value.takes(), Part, {}):
            return
        raise GroupError(
            f"{value.short} takes {name_of(value.takes())}, and a transform takes a Part. Write a splitter, as in "
            "Definition(Sentences()), or a function with @transform above it."
        )
    name = getattr(value, "__name__", "")
    if isinstance(value, type):
        raise GroupError(f"{name} is a class, no transform. Write {name}(...).")
    if callable(value) and name:
        raise GroupError(f"{name} is a plain function, no transform. Write @transform above its definition.")
    raise GroupError(
        f"{value!r:.80} ({type(value).__name__}) is not a transform. Write a splitter, as in Definition(Sentences()), "
        "or a function with @transform above it."
    )


def _as_embeddings(value: object) -> tuple[Embedding, ...]:
    """Return one or several embeddings as a tuple; an embedder alone is searched as an `Embedding` says by default."""
    items = value if isinstance(value, (tuple, list)) else (value,)
    embeddings = []
    for item in items:
        if isinstance(item, Embedding):
            embeddings.append(item)
        elif isinstance(item, (Embedder, SparseEmbedder)):
            embeddings.append(Embedding(item))
        else:
            raise GroupError(
                f"The nodes would be embedded by {item!r:.80} ({type(item).__name__}). Write "
                "embeddings=(Embedding(MiniLM()),)."
            )
    return tuple(embeddings)


def refuse_unstorable(operator: Operator[Any, Any]) -> None:
    """Raise GroupError for plain functions, anywhere inside an operator, that a store could not tell from others.

    >>> from spolia.core.function import step
    >>> @step
    ... def plain(text: str) -> str:
    ...     return text
    >>> refuse_unstorable(plain >> plain)
    """
    if isinstance(operator, Function) and (reason := hidden_dependency(operator.function)):
        raise GroupError(f"{operator.name} cannot be part of a stored group: {reason}")
    for _, inner in operator.inner():
        refuse_unstorable(inner)
