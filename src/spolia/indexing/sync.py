"""Keeping a store in step with a folder: only what has changed is read, cut and embedded again."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path

from spolia.errors import FolderError
from spolia.indexing.filing import Filing, Unreadable, fetched, read
from spolia.indexing.parts import Parts, parts_for
from spolia.indexing.readers.choosing import READERS, by_suffix
from spolia.indexing.readers.reading import Reader
from spolia.indexing.report import Progress, SyncReport
from spolia.indexing.splitter import Splitter
from spolia.indexing.tally import Tally
from spolia.indexing.walking import File, Found, walk
from spolia.models.protocols import Embedder
from spolia.stores.analysis import Analyzer
from spolia.stores.corpus import Corpus
from spolia.stores.rows import SourceRow
from spolia.stores.writer import Writer
from spolia.surrounding import check_cancelled

EMBEDDED_AT_ONCE = 256
CHUNKS_PER_DOCUMENT = 20
"""A batch of documents is published early when it has more chunks than so many for each."""


def sync(
    folder: str | Path,
    corpus: Corpus,
    *,
    splitter: Splitter | None = None,
    embedder: Embedder | None = None,
    analyzer: Analyzer | None = None,
    readers: Sequence[Reader] = READERS,
    group: str = "chunk",
    progress: Callable[[Progress], None] | None = None,
    batch: int = 1000,
    follow_links: bool = False,
    rebuild: bool = False,
    timeout_s: float = 10.0,
) -> SyncReport:
    """Make a store hold the documents of a folder, and nothing else.

    A file whose size and time are the same is not opened, one whose content is the same is not read again; a moved file
    keeps its nodes, and a text that was embedded before is not embedded again. Each batch is published when it is
    complete, so that it can be searched, and a run that is stopped goes on where it was. A file that cannot be read is
    recorded with the reason, and the others go on; the next run tries it again.

    Args:
        folder: with documents; a store has one folder.
        corpus: the store; made if it is not there.
        splitter: cuts documents; by default windows of 200 tokens of the embedder, or of 800 characters.
        embedder: gives the vectors for dense search; None for search by words only.
        analyzer: makes the terms; by default that of the group, or one for the language of the first documents.
        readers: of the formats that are indexed; other files are left out.
        group: the node group's name.
        progress: is told how far it is, after every file and every few hundred texts that were embedded.
        batch: documents that are published together.
        follow_links: go where links lead out of the folder too.
        rebuild: if the group was built with other parts, or of another folder, forget that and index this.
        timeout_s: how long to wait for another writer, seconds.

    Raises:
        FolderError: there is no such folder, it may not be listed, no file in it can be read by a reader, or the store
            holds another one.
        ManifestMismatch: the group was built with another splitter, embedder, analyser or reader, naming both.
        StoreError: the store cannot be written.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "stones.txt").write_text("Spolia are stones that builders take from older buildings.")
    ...     report = sync(folder, Corpus(f"{folder}/notes.spolia"))
    >>> report.added, report.chunks
    (1, 1)
    """
    began = time.perf_counter()
    by_name = by_suffix(readers)
    found = walk(os.fspath(folder), by_name, follow_links=follow_links)
    _refuse_empty(os.fspath(folder), found, by_name)
    corpus.create()
    with corpus.writer(timeout_s) as writer:
        if not rebuild:
            _refuse_other(os.fspath(folder), found, writer.sources(), corpus.path)
        parts = parts_for(writer, group, splitter, embedder, analyzer, readers, found)
        writer.define(group, parts.manifest, rebuild=rebuild)
        run = _Sync(writer, parts, found, progress, batch)
        run.run()
        return run.tally.report(writer.generation, found, time.perf_counter() - began)


def _refuse_empty(folder: str, found: Found, readers: dict[str, Reader]) -> None:
    if found.files or found.closed:
        return
    if not found.unread and not found.skipped:
        there = "is empty"
    else:
        kinds = ", ".join(f"{count} {suffix or 'without suffix'}" for suffix, count in found.unread.most_common(5))
        reasons = "; ".join(f"{item.uri}: {item.reason}" for item in found.skipped[:3])
        there = f"holds no document that can be read, but: {'; '.join(filter(None, (kinds, reasons)))}"
    raise FolderError(
        f"{folder} {there}. Put files there that end in {', '.join(sorted(readers))}, or name another folder. "
        "Nothing was changed; to have an empty store, delete it."
    )


def _refuse_other(folder: str, found: Found, known: dict[str, SourceRow], store: str) -> None:
    """A store has one folder: to index another into it would forget everything that it holds."""
    sizes = {row.size for row in known.values()}
    if known and not any(uri in known or file.size in sizes for uri, file in found.files.items()):
        raise FolderError(
            f"{store} holds {len(known)} documents ({next(iter(known))!r} …), and none of them is in {folder}. "
            "A store has one folder: name another --store, or write --rebuild (rebuild=True) to forget what it holds."
        )


class _Sync:
    """One run: what is known beside what is there."""

    def __init__(
        self, writer: Writer, parts: Parts, found: Found, progress: Callable[[Progress], None] | None, batch: int
    ) -> None:
        self.writer, self.parts, self.found, self.progress, self.batch = writer, parts, found, progress, batch
        self.tally = Tally()
        self.known = writer.sources()
        self.filing = Filing(writer, parts.splitter, parts.group, parts.embedder)
        self.gone = {
            uri: row for uri, row in self.known.items() if uri not in found.files and not uri.startswith(found.closed)
        }
        self.gone_with: dict[str, list[str]] = {}
        for uri, row in self.gone.items():
            if row.status == "indexed":
                self.gone_with.setdefault(row.content_hash, []).append(uri)

    def run(self) -> None:
        changed = [file for file in self.found.files.values() if not self._is_unchanged(file)]
        self.tally.unchanged = len(self.found.files) - len(changed)
        self.tally.total = len(changed)
        pending, chunks = 0, 0
        for file in changed:
            check_cancelled()
            pending += self._take(file)
            self._tell(file.uri)
            if pending >= self.batch or self.tally.chunks - chunks >= self.batch * CHUNKS_PER_DOCUMENT:
                self._publish()
                pending, chunks = 0, self.tally.chunks
        for uri in self.gone:
            self.writer.remove(uri)
            self.tally.removed += 1
        self._publish()

    def _is_unchanged(self, file: File) -> bool:
        row = self.known.get(file.uri)
        return row is not None and row.status == "indexed" and (row.size, row.mtime_ns) == (file.size, file.mtime_ns)

    def _take(self, file: File) -> int:
        """Bring the store in step with a file; returns 1 if that changed it."""
        before = self.known.get(file.uri)
        self.tally.done += 1
        try:
            return self._put(file, before)
        except Unreadable as failure:
            self.tally.failed.append((file.uri, failure.row.error))
            if before == failure.row:
                return 0
            self.writer.fail(failure.row)
            return 1

    def _put(self, file: File, before: SourceRow | None) -> int:
        found = fetched(file, before)
        row = found.row
        if before is not None and before.status == "indexed" and before.content_hash == row.content_hash:
            self.writer.touch(before.but(size=row.size, mtime_ns=row.mtime_ns))
            self.tally.unchanged += 1
            return 0
        if before is None and (old := self._moved_from(row, file)) is not None:
            self.writer.move(old.uri, old.but(uri=file.uri, size=row.size, mtime_ns=row.mtime_ns))
            self.tally.moved += 1
            return 1
        report = self.filing.put(read(file, found), row)
        self.tally.put(report, is_new=before is None)
        return 1

    def _moved_from(self, row: SourceRow, file: File) -> SourceRow | None:
        """The source that is gone and held the same, read in the same way."""
        for uri in self.gone_with.get(row.content_hash, ()):
            if uri in self.gone and self.gone[uri].document == f"{row.content_hash}.{file.reader.name}":
                return self.gone.pop(uri)
        return None

    def _publish(self) -> None:
        """Embed what has no vector yet, then make everything since the last time visible."""
        embedder = self.parts.embedder
        if embedder is not None:
            for lacking in _in_batches(self.writer.unembedded(self.parts.group, embedder.name), EMBEDDED_AT_ONCE):
                vectors = embedder.embed([text for _, text in lacking], kind="passage")
                self.writer.add_vectors(embedder.name, [hash for hash, _ in lacking], vectors)
                self.tally.embedded += len(lacking)
                self._tell("")
        self.writer.publish()

    def _tell(self, uri: str) -> None:
        if self.progress is not None:
            self.progress(self.tally.progress(uri))


def _in_batches(items: Iterator[tuple[bytes, str]], size: int) -> Iterator[list[tuple[bytes, str]]]:
    while batch := list(islice(items, size)):
        yield batch
