"""One file on its way into the store: its bytes, its document, its nodes, its report."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from spolia.errors import SpoliaError, StoreError
from spolia.indexing.loading import Loaded, load
from spolia.indexing.readers.reading import Reading, Source
from spolia.indexing.report import DocumentReport
from spolia.indexing.splitter import Splitter
from spolia.indexing.walking import File
from spolia.models.protocols import Embedder
from spolia.stores.rows import SourceRow
from spolia.stores.writer import Writer
from spolia.types import Document, Node

LISTED = 1_000_000
"""Characters; the nodes of a longer document are not in memory all at once."""
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

    source: Source
    row: SourceRow


def fetched(file: File, before: SourceRow | None) -> Bytes:
    """The bytes of a file.

    Args:
        before: what is known of it; where the bytes cannot be had, the document that they held stays.

    Raises:
        Unreadable: they could not be read, are too many, or change all the time.
    """
    try:
        loaded = load(file.path, follow=file.is_link)
    except (OSError, SpoliaError) as error:
        row = before or SourceRow(file.uri)
        reason = f"It cannot be read: {error.strerror}." if isinstance(error, OSError) else str(error)
        raise Unreadable(row.but(size=file.size, mtime_ns=file.mtime_ns, status="failed", error=reason)) from error
    source = Source(file.uri, loaded.data)
    return Bytes(source, _row(file, loaded, source.content_hash))


def _row(file: File, loaded: Loaded, content_hash: str) -> SourceRow:
    return SourceRow(file.uri, loaded.size, loaded.mtime_ns, content_hash)


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


class Filing:
    """Puts documents into the store with their nodes and reports.

    Args:
        writer: of the store.
        splitter: cuts documents into nodes.
        group: the nodes' group.
        embedder: counts tokens for the report; None for none.
    """

    def __init__(self, writer: Writer, splitter: Splitter, group: str, embedder: Embedder | None) -> None:
        self.writer, self.splitter, self.group, self.embedder = writer, splitter, group, embedder

    def put(self, reading: Reading, row: SourceRow) -> DocumentReport:
        """Store what was read in the place of what its source held before.

        Raises:
            Unreadable: it could not be cut; nothing of it is stored.
            StoreError: the store could not take it.
        """
        document = reading.document
        tally = _Tally(self.embedder)
        nodes = tally.over(self.splitter.split(document, self.group))
        try:
            if len(document.text) <= LISTED:
                listed = list(nodes)
                report = self._report(reading, tally)
                self.writer.put(document, listed, row.but(document=document.id, report=report.json))
                return report
            self.writer.put(document, nodes, row)
            for _ in nodes:  # a document that was there already was not cut
                pass
        except (StoreError, Unreadable):
            raise
        except Exception as error:
            reason = f"The splitter failed on it: {type(error).__name__}: {error}"
            raise Unreadable(row.but(status="failed", error=reason)) from error
        report = self._report(reading, tally)
        self.writer.touch(row.but(document=document.id, report=report.json))
        return report

    def _report(self, reading: Reading, tally: _Tally) -> DocumentReport:
        document = reading.document
        return DocumentReport(
            reader=document.id.rpartition(".")[2],
            characters=len(document.text),
            pages=len(document.pages),
            empty_pages=reading.empty_pages,
            chunks=tally.nodes,
            tokens=tally.tokens if self.embedder else None,
            beyond_window=tally.beyond_window,
            encoding=reading.encoding,
            warnings=(*reading.warnings, *self._warnings(document, tally)),
        )

    def _warnings(self, document: Document, tally: _Tally) -> Iterator[str]:
        if not tally.nodes:
            yield "It has no text."
        if self.embedder is None:
            return
        if tally.beyond_window:
            yield f"{tally.beyond_window} of {tally.nodes} chunks are longer than the embedder's window."
        if (known := self.embedder.covers(document.text[:_SAMPLE])) < _KNOWN_SHARE:
            yield f"The embedder knows {known:.0%} of its characters; words are the better way to search it."


class _Tally:
    """Counts nodes and their tokens as they pass."""

    def __init__(self, embedder: Embedder | None) -> None:
        self.embedder = embedder
        self.nodes = self.tokens = self.beyond_window = 0

    def over(self, nodes: Iterator[Node]) -> Iterator[Node]:
        for node in nodes:
            self.nodes += 1
            if self.embedder is not None:
                (tokens,) = self.embedder.tokens([node.indexed_text])
                self.tokens += tokens
                self.beyond_window += tokens > self.embedder.window
            yield node
