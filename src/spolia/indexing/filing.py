"""Files on their way into the store: their bytes, documents, nodes, reports."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b

from spolia.errors import FilterError, SpoliaError, StoreError
from spolia.indexing.loading import Loaded
from spolia.indexing.readers.reading import Reading, Blob
from spolia.indexing.report import DocumentReport
from spolia.indexing.walking import File
from spolia.models.protocols import Embedder, SparseEmbedder
from spolia.stores.groups.growing import Grown, Growth, grow
from spolia.stores.tables.rows import SourceRow
from spolia.stores.writer import Writer
from spolia.types import Document, Meta, Node, Scalar

_SAMPLE = 2_000
_KNOWN_SHARE = 0.95


class Unreadable(Exception):
    """A file that is to be recorded as failed; `row` says how."""

    def __init__(self, row: SourceRow) -> None:
        super().__init__(row.error)
        self.row = row


@dataclass(frozen=True)
class Bytes:
    """A file's bytes and the row that stands for them, before they are read."""

    source: Blob
    row: SourceRow


def fetched(file: File, before: SourceRow | None) -> Bytes:
    """The bytes of a file.

    Args:
        before: what is known of it; where the bytes cannot be had, the document that they held stays.

    Raises:
        Unreadable: they could not be read, are too many, or change all the time.
    """
    try:
        loaded = file.load()
    except (OSError, SpoliaError) as error:
        row = before or SourceRow(file.uri)
        reason = f"It cannot be read: {error.strerror}." if isinstance(error, OSError) else str(error)
        raise Unreadable(row.but(size=file.size, mtime_ns=file.mtime_ns, status="failed", error=reason)) from error
    source = Blob(file.uri, loaded.data)
    return Bytes(source, _row(file, loaded, source.content_hash))


def _row(file: File, loaded: Loaded, content_hash: str) -> SourceRow:
    row = SourceRow(file.uri, loaded.size, loaded.mtime_ns, content_hash)
    return row.but(created_ns=loaded.created_ns, accessed_ns=loaded.accessed_ns)


def read(file: File, found: Bytes) -> Reading:
    """The document in a file.

    Raises:
        Unreadable: no document could be got out of its bytes; whatever the reason, other files go on.
    """
    try:
        return file.reader.read(found.source)
    except SpoliaError as error:
        reason = str(error)
    except Exception as error:  # a reader's fault on a strange file must not stop the others; it is recorded
        reason = f"The {file.reader.name} reader failed on it: {type(error).__name__}: {error}"
    raise Unreadable(found.row.but(status="failed", error=reason))


@dataclass(frozen=True)
class Labels:
    """What the caller says of files beside their content.

    Args:
        metadata: fields of the document in a file, by its uri; None for none.
        access: principals who may read it, none for everybody; None where nothing is said of that.
        kept: who may read what the store has, by uri, where nothing else is said.
    """

    metadata: Callable[[str], Mapping[str, Scalar | Sequence[Scalar]]] | None = None
    access: Callable[[str], Iterable[str]] | None = None
    kept: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def readers(self, uri: str) -> tuple[str, ...]:
        """Who may read a file, in order. Where nothing is said of it, whoever could read it before.

        Raises:
            StoreError: nothing is said of a new file, and other files of the store may be read by some only.
        """
        if self.access is not None:
            return _principals(self.access(uri), uri)
        if uri not in self.kept and any(self.kept.values()):
            raise StoreError(
                f"Nothing says who may read {uri!r}, and the store holds documents that not everybody may read. "
                "Write sync(..., access=lambda uri: [...]), where an empty list is for everybody; on the command line, "
                "spolia index with --readers FILE."
            )
        return self.kept.get(uri, ())

    def meta(self, uri: str) -> Meta:
        """The caller's fields; a name with several values stands there several times."""
        found = self.metadata(uri) if self.metadata else {}
        return tuple((name, value) for name, values in found.items() for value in _each(values))

    def mark(self, uri: str) -> str:
        """Tells the caller's fields of a file apart from others; empty for none."""
        meta = self.meta(uri)
        return blake2b(repr(meta).encode("utf-8", "replace"), digest_size=8).hexdigest() if meta else ""

    def on(self, document: Document) -> Document:
        """A document with what the caller says of its file; fields of the caller stand before those of the reader.

        Two files with the same content and other labels are two documents.
        """
        meta, readers = self.meta(document.uri), self.readers(document.uri)
        if not meta and not readers:
            return document
        named = {name for name, _ in meta}
        kept = tuple(pair for pair in document.meta if pair[0] not in named)
        labelled = document.but(meta=meta + kept, readers=readers)
        mark = blake2b(repr((labelled.meta, readers)).encode("utf-8", "replace"), digest_size=4).hexdigest()
        name, _, reader = document.id.rpartition(".")
        return labelled.but(id=f"{name}-{mark}.{reader}")


def _principals(said: object, uri: str) -> tuple[str, ...]:
    listed = list(said) if isinstance(said, Iterable) and not isinstance(said, str) else None
    if listed is None or not all(isinstance(name, str) and name for name in listed):
        raise StoreError(
            f"access({uri!r}) gave {said!r:.80}. Give a list of principals, each a text that is not empty: ['ann']."
        )
    return tuple(sorted(set(listed)))


def _each(values: Scalar | Sequence[Scalar]) -> Sequence[Scalar]:
    return values if isinstance(values, (list, tuple)) else (values,)


@dataclass
class Filed:
    """A file that was read and waits to be stored with others."""

    reading: Reading
    row: SourceRow
    is_new: bool


@dataclass
class Filing:
    """Puts documents into the store with the nodes of all groups, and reports.

    Args:
        writer: of the store.
        growths: the groups, in order.
        main: name of the group whose nodes the report counts.
        labels: what the caller says of files.
    """

    writer: Writer
    growths: Sequence[Growth]
    main: str
    labels: Labels
    pending: list[Filed] = field(default_factory=list)

    @property
    def characters(self) -> int:
        """How much waits."""
        return sum(len(filed.reading.document.text) for filed in self.pending)

    def flush(self) -> Iterator[tuple[Filed, DocumentReport | Unreadable]]:
        """Store what waits; for each file its report, or why it could not be cut.

        Raises:
            StoreError: the store could not take it.
            SpoliaError: a model that a transform asks could not be reached.
        """
        pending, self.pending = self.pending, []
        documents = [filed.reading.document for filed in pending]
        for filed, one in zip(pending, grow(documents, self.growths), strict=True):
            try:
                yield filed, self._put(filed, one)
            except Unreadable as failure:
                yield filed, failure

    def _put(self, filed: Filed, one: Grown) -> DocumentReport:
        if one.failure is not None:
            raise Unreadable(filed.row.but(status="failed", error=f"{one.failure.kind}: {one.failure.message}"))
        document = filed.reading.document
        tally = _Tally(self.main, self._embedder)
        row = filed.row.but(document=document.id)
        nodes = tally.over(one.nodes())
        try:
            if not one.is_streamed:
                listed = list(nodes)
                report = self._report(filed.reading, tally)
                self.writer.put(document, listed, row.but(report=report.json))
                return report
            self.writer.put(document, nodes, row)
            for _ in nodes:  # a document that was there already was not cut
                pass
        except StoreError:
            raise
        except FilterError as error:
            raise Unreadable(filed.row.but(status="failed", error=str(error))) from error
        except Exception as error:
            reason = f"The splitter failed on it: {type(error).__name__}: {error}"
            raise Unreadable(filed.row.but(status="failed", error=reason)) from error
        report = self._report(filed.reading, tally)
        self.writer.touch(row.but(report=report.json))
        return report

    @property
    def _embedder(self) -> Embedder | SparseEmbedder | None:
        embedders = (embedder for growth in self.growths if growth.group == self.main for embedder in growth.embedders)
        return next(embedders, None)

    def _report(self, reading: Reading, tally: _Tally) -> DocumentReport:
        document = reading.document
        return DocumentReport(
            reader=document.id.rpartition(".")[2],
            characters=len(document.text),
            pages=len(document.pages),
            empty_pages=reading.empty_pages,
            chunks=tally.nodes,
            tokens=tally.tokens if self._embedder else None,
            beyond_window=tally.beyond_window,
            encoding=reading.encoding,
            warnings=(*reading.warnings, *self._warnings(document, tally)),
            labels=self.labels.mark(document.uri),
        )

    def _warnings(self, document: Document, tally: _Tally) -> Iterator[str]:
        if not tally.nodes:
            yield "It has no text."
        if (embedder := self._embedder) is None:
            return
        if tally.beyond_window:
            yield f"{tally.beyond_window} of {tally.nodes} chunks are longer than the embedder's window."
        if (known := embedder.covers(document.text[:_SAMPLE])) < _KNOWN_SHARE:
            yield f"The embedder knows {known:.0%} of its characters; words are the better way to search it."


class _Tally:
    """Counts the nodes of one group and their tokens as they pass."""

    def __init__(self, group: str, embedder: Embedder | SparseEmbedder | None) -> None:
        self.group, self.embedder = group, embedder
        self.nodes = self.tokens = self.beyond_window = 0

    def over(self, nodes: Iterator[Node]) -> Iterator[Node]:
        for node in nodes:
            if node.group == self.group:
                self.nodes += 1
                if self.embedder is not None:
                    (tokens,) = self.embedder.tokens([node.indexed_text])
                    self.tokens += tokens
                    self.beyond_window += tokens > self.embedder.window
            yield node
