"""Keeping a store in step with a folder: only what has changed is read, cut and embedded again."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from spolia.errors import FolderError
from spolia.filters import Field
from spolia.indexing.filing import Filed, Filing, Labels, Unreadable, fetched, read
from spolia.indexing.parts import Wanted, main_definition
from spolia.indexing.readers.choosing import READERS, by_suffix
from spolia.indexing.readers.reading import Reader
from spolia.indexing.report import DocumentReport, Progress, SyncReport
from spolia.indexing.tally import Tally
from spolia.indexing.walking import File, Found, walk
from spolia.models.protocols import Embedder
from spolia.operator import Operator
from spolia.stores.analysis import Analyzer
from spolia.stores.corpus import Corpus, NodeGroup
from spolia.stores.definition import Transform
from spolia.stores.growing import embed
from spolia.stores.materialising import materialise
from spolia.stores.rows import SourceRow
from spolia.stores.writer import Writer
from spolia.surrounding import check_cancelled
from spolia.types import Scalar

CUT_AT_ONCE, CHARACTERS_AT_ONCE = 64, 5_000_000
"""Documents whose nodes are made together, so that a transform asks its model for all of them at once."""
CHUNKS_PER_DOCUMENT = 20
"""A batch of documents is published early when it has more chunks than so many for each."""


def sync(
    folder: str | Path,
    corpus: Corpus,
    *,
    splitter: Transform | None = None,
    embedder: Embedder | None = None,
    analyzer: Analyzer | None = None,
    readers: Sequence[Reader] = READERS,
    group: str = "chunk",
    groups: Sequence[NodeGroup] = (),
    fields: Sequence[Field] | None = None,
    metadata: Callable[[str], Mapping[str, Scalar | Sequence[Scalar]]] | None = None,
    access: Callable[[str], Iterable[str]] | None = None,
    known: Sequence[Operator[Any, Any] | type] = (),
    progress: Callable[[Progress], None] | None = None,
    batch: int = 1000,
    follow_links: bool = False,
    rebuild: bool = False,
    timeout_s: float = 10.0,
) -> SyncReport:
    """Make a store hold the documents of a folder, and nothing else, in all its node groups.

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
        group: name of the node group that `splitter` makes.
        groups: further ones to build at once; those that the store has are kept in step whether named or not.
        fields: metadata fields that can be filtered by; None for those that were declared before.
        metadata: fields of the document in a file, by its uri.
        access: principals who may read the document in a file, by its uri; none for everybody. Another list for a file
            that is there already applies with the next publication, and embeds nothing.
        known: operators of your own in definitions of groups that the store has.
        progress: is told how far it is, after every file and every few hundred texts that were embedded.
        batch: documents that are published together.
        follow_links: go where links lead out of the folder too.
        rebuild: if the group was built with other parts, or of another folder, forget that and index this.
        timeout_s: how long to wait for another writer, seconds.

    Raises:
        FolderError: there is no such folder, it may not be listed, no file in it can be read by a reader, or the store
            holds another one.
        ManifestMismatch: the group was built with another splitter, embedder, analyser or reader, naming both.
        GroupError: a group of the store is made by what is not known here.
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
    wanted = Wanted(group, main_definition(splitter, embedder, analyzer), groups, known, readers)
    with corpus.writer(timeout_s) as writer:
        there = writer.sources()
        if not rebuild:
            _refuse_other(os.fspath(folder), found, there, corpus.path)
        if fields is not None:
            writer.declare(fields)
        wanted.define(writer, found, rebuild=rebuild)
        run = _Sync(
            writer, wanted, Labels(metadata, access), found, writer.sources() if rebuild else there, progress, batch
        )
        run.run()
    if groups:
        materialise(groups, known=known, tell=run.tell_of_groups)
    generation = corpus.latest().generation
    return run.tally.report(generation, found, time.perf_counter() - began)


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
        self,
        writer: Writer,
        wanted: Wanted,
        labels: Labels,
        found: Found,
        known: dict[str, SourceRow],
        progress: Callable[[Progress], None] | None,
        batch: int,
    ) -> None:
        self.writer, self.labels, self.found, self.progress, self.batch = writer, labels, found, progress, batch
        self.tally = Tally()
        self.known = known
        self.growths = wanted.growths(writer.manifests)
        self.filing = Filing(writer, self.growths, wanted.main, labels)
        self.stored = writer.readers() if labels.access else {}
        self.gone = {
            uri: row for uri, row in self.known.items() if uri not in found.files and not uri.startswith(found.closed)
        }
        self.gone_with: dict[str, list[str]] = {}
        for uri, row in self.gone.items():
            if row.status == "indexed":
                self.gone_with.setdefault(row.content_hash, []).append(uri)
        self._changes = self._chunks = 0

    def run(self) -> None:
        changed = [file for file in self.found.files.values() if not self._is_unchanged(file)]
        self.tally.unchanged = len(self.found.files) - len(changed)
        self.tally.total = len(changed)
        for file in changed:
            check_cancelled()
            self._take(file)
            if len(self.filing.pending) >= CUT_AT_ONCE or self.filing.characters >= CHARACTERS_AT_ONCE:
                self._cut()
        self._cut()
        for uri in self.gone:
            self.writer.remove(uri)
            self.tally.removed += 1
        self._publish()

    def _is_unchanged(self, file: File) -> bool:
        row = self.known.get(file.uri)
        if row is None or row.status != "indexed" or (row.size, row.mtime_ns) != (file.size, file.mtime_ns):
            return False
        return self._is_labelled(row)

    def _is_labelled(self, row: SourceRow) -> bool:
        """Whether a source has the metadata and readers that the caller says."""
        if self.labels.metadata and DocumentReport.of(row.report).labels != self.labels.mark(row.uri):
            return False
        return not self.labels.access or self.stored[row.uri][1] == self.labels.readers(row.uri)

    def _take(self, file: File) -> None:
        """Bring the store in step with a file, or have it wait to be cut with others."""
        before = self.known.get(file.uri)
        try:
            self._read(file, before)
        except Unreadable as failure:
            self._fail(failure, before)
            self._done(file.uri)

    def _read(self, file: File, before: SourceRow | None) -> None:
        found = fetched(file, before)
        row = found.row
        same = before is not None and before.status == "indexed" and before.content_hash == row.content_hash
        if before is not None and same and self._is_labelled(before):
            self.writer.touch(before.but(size=row.size, mtime_ns=row.mtime_ns))
            self.tally.unchanged += 1
        elif before is not None and same and self._gives_other_readers(before):
            self._changes += 1
            self.tally.changed += 1
        elif before is None and (old := self._moved_from(row, file)) is not None:
            self.writer.move(old.uri, old.but(uri=file.uri, size=row.size, mtime_ns=row.mtime_ns))
            self._changes += 1
            self.tally.moved += 1
        else:
            reading = read(file, found)
            reading = reading.but(document=self.labels.on(reading.document))
            self.filing.pending.append(Filed(reading, row, before is None))
            return
        self._done(file.uri)

    def _gives_other_readers(self, row: SourceRow) -> bool:
        """Whether only the reader list was another one, so that nothing has to be cut again."""
        if self.labels.metadata and DocumentReport.of(row.report).labels != self.labels.mark(row.uri):
            return False
        if sum(document == row.document for document, _ in self.stored.values()) > 1:
            return False  # the other source may have another list: it becomes a document of its own
        self.writer.set_readers(self.writer.document(row.document), self.labels.readers(row.uri))
        return True

    def _moved_from(self, row: SourceRow, file: File) -> SourceRow | None:
        """The source that is gone and held the same, read and labelled in the same way."""
        for uri in self.gone_with.get(row.content_hash, ()):
            if uri not in self.gone or not self.gone[uri].document.endswith(f".{file.reader.name}"):
                continue
            if (self.labels.meta(uri), self.labels.readers(uri)) == (
                self.labels.meta(file.uri),
                self.labels.readers(file.uri),
            ) and self._is_labelled(self.gone[uri]):
                return self.gone.pop(uri)
        return None

    def _cut(self) -> None:
        for filed, result in self.filing.flush():
            if isinstance(result, Unreadable):
                self._fail(result, self.known.get(filed.row.uri))
            else:
                self.tally.put(result, is_new=filed.is_new)
                self._changes += 1
            self._done(filed.row.uri)

    def _fail(self, failure: Unreadable, before: SourceRow | None) -> None:
        self.tally.failed.append((failure.row.uri, failure.row.error))
        if before != failure.row:
            self.writer.fail(failure.row)
            self._changes += 1

    def _done(self, uri: str) -> None:
        self.tally.done += 1
        self._tell(uri)
        if self._changes >= self.batch or self.tally.chunks - self._chunks >= self.batch * CHUNKS_PER_DOCUMENT:
            self._publish()

    def _publish(self) -> None:
        """Embed what has no vector yet, then make everything since the last time visible."""
        embed(self.writer, self.growths, self._embedded)
        self.writer.publish()
        self._changes, self._chunks = 0, self.tally.chunks

    def _embedded(self, count: int) -> None:
        self.tally.embedded += count
        self._tell("")

    def tell_of_groups(self, group: str, documents: int, embedded: int) -> None:
        """Pass on how far the building of further groups is."""
        self._embedded(embedded)

    def _tell(self, uri: str) -> None:
        if self.progress is not None:
            self.progress(self.tally.progress(uri))
