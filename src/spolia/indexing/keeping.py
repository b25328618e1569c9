"""One run over the sources of a store: what is known beside what is there."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from spolia.errors import DocumentError
from spolia.filters import Field
from spolia.indexing.files import File, Found
from spolia.indexing.filing import Filed, Filing, Unreadable, fetched, read
from spolia.indexing.held import Held
from spolia.indexing.labels import Labels
from spolia.indexing.parts import Wanted
from spolia.indexing.readers.reading import Reading
from spolia.indexing.report import DocumentReport, Progress, SyncReport
from spolia.indexing.tally import Tally
from spolia.stores.corpus import Corpus
from spolia.stores.groups.growing import embed, in_batches
from spolia.stores.groups.materialising import materialise
from spolia.stores.groups.storing import make_up
from spolia.stores.tables.rows import SourceRow, Stamp
from spolia.stores.writer import Writer
from spolia.surrounding import check_cancelled
from spolia.types import Document

CUT_AT_ONCE, CHARACTERS_AT_ONCE = 64, 5_000_000
"""Documents whose nodes are made together, so that a transform asks its model for all of them at once."""
CHUNKS_PER_DOCUMENT = 20
"""A batch of documents is published early when it has more chunks than so many for each."""


def keep(
    corpus: Corpus,
    found: Found,
    wanted: Wanted,
    labels: Labels,
    *,
    refuse: Callable[[Mapping[str, Stamp]], None] = lambda known: None,
    fields: Sequence[Field] | None = None,
    progress: Callable[[Progress], None] | None = None,
    batch: int = 1000,
    rebuild: bool = False,
    retry: bool = True,
    timeout_s: float | None = None,
) -> SyncReport:
    """Bring a store, made if it is not there, in step with what was found; see `sync`.

    Args:
        refuse: raises if this is not to be done to a store with these sources.
    """
    began = time.perf_counter()
    corpus.create()
    with corpus.writer(timeout_s) as writer:
        refuse(known := writer.stamps(found.uris))
        labels.refuse_bad_readers(found.files)
        fits = fields is None or writer.declare(fields)
        if not (fits or labels.metadata or rebuild):
            writer.publish()  # is refused, and says why: nothing gives other values
        if labels.access is None and writer.is_restricted():
            labels = replace(labels, kept={uri: readers for uri, (_, readers) in writer.readers().items()})
        others = others_than(found, writer) if rebuild else Others()
        forgets = wanted.define(writer, found, rebuild=rebuild)
        wanted.refuse_changed(writer.manifests)
        if rebuild:
            known = writer.stamps(found.uris)
        run = Keeping(writer, wanted, labels, found, known, progress, batch if fits and not forgets else None, retry)
        if forgets:
            run.put_back(others)
        run.run()
    if wanted.groups:
        materialise(wanted.groups, retry=False, known=wanted.known, tell=run.tell_of_groups, wait_s=timeout_s)
    published = corpus.latest()
    report = run.tally.report(published.generation, found, time.perf_counter() - began)
    return report.but(unmade=published.unmade())


@dataclass(frozen=True)
class Others:
    """What a store holds beside what was found: it is put back when a group is built with other parts.

    Args:
        documents: with their sources, which are read again as soon as they are looked at.
        cursors: how far each source was read.
    """

    documents: Sequence[tuple[SourceRow, Document]] = ()
    cursors: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


def others_than(found: Found, writer: Writer) -> Others:
    """What a store holds of which this says nothing."""
    rows = [row for row in writer.sources().values() if row.status == "indexed" and not found.concerns(row.uri)]
    documents = [(row, writer.document(row.document)) for row in rows]
    return Others(documents, {source: said for source, said in writer.cursors().items() if source != found.source})


class Keeping:
    """One run.

    Args:
        writer: of the store.
        wanted: the groups.
        labels: what the caller says of files.
        found: what there is.
        known: the stamps of the sources that the store has.
        progress: is told how far it is.
        batch: documents that are published together; None for all.
        retry: try files again that could not be read.
    """

    def __init__(
        self,
        writer: Writer,
        wanted: Wanted,
        labels: Labels,
        found: Found,
        known: Mapping[str, Stamp],
        progress: Callable[[Progress], None] | None,
        batch: int | None = None,
        retry: bool = True,
    ) -> None:
        self.writer, self.labels, self.found, self.progress, self.batch = writer, labels, found, progress, batch
        self.tally = Tally()
        self.stamps, self.retry = known, retry
        self.growths = wanted.growths(writer.manifests)
        self.filing = Filing(writer, self.growths, wanted.main, labels)
        self.held = Held(writer.readers() if labels.access or labels.kept else {})
        self._other = found.files.unlike(known)
        gone = sorted(uri for uri in known.keys() - found.files.keys() if found.misses(uri))
        self.known = writer.sources(None if self._looks_at_all else [*self._other, *gone])
        self.gone = {uri: self.known[uri] for uri in gone}
        self.gone_with: dict[str, list[str]] = {}
        for uri, row in self.gone.items():
            if row.status == "indexed":
                self.gone_with.setdefault(row.content_hash, []).append(uri)
        self._changes = self._chunks = 0

    def put_back(self, others: Others) -> None:
        """Cut again what went when a group was built with other parts."""
        filing = Filing(self.writer, self.growths, self.filing.main, Labels())
        unread = {"size": 0, "mtime_ns": 0, "content_hash": ""}
        gone = (Filed(Reading(document), row.but(**unread), False) for row, document in others.documents)
        for filing.pending in in_batches(gone, CUT_AT_ONCE):
            self._cut(filing)
        for source, cursors in others.cursors.items():
            self.writer.remember(source, cursors)

    def run(self) -> None:
        given_up = [] if self.retry else [uri for uri in self._other if self._is_given_up(uri)]
        self.tally.failed += [(uri, self.known[uri].error) for uri in given_up]
        changed = self._changed(set(given_up))
        self.tally.unchanged = len(self.found.files) - len(changed) - len(self.tally.failed)
        self.tally.total = len(changed)
        for file in changed:
            check_cancelled()
            self._take(file)
            if len(self.filing.pending) >= CUT_AT_ONCE or self.filing.characters >= CHARACTERS_AT_ONCE:
                self._cut(self.filing)
        self._cut(self.filing)
        for uri in self.gone:
            self.writer.remove(uri)
            self.tally.removed += 1
            self._tell(uri, "removed")
        if self.retry:
            self._make_up()
        self.writer.remember(self.found.source, self.found.cursors)
        self._publish()

    def _make_up(self) -> None:
        """Try again what could not be made of documents that this run has left alone."""
        unmade = [lack for lack in self.writer.unmade() if lack.document not in self.filing.tried]
        for one in make_up(self.writer, self.growths, unmade):
            self._tell(one.document.uri)

    @property
    def _looks_at_all(self) -> bool:
        """Whether more than its stamp can tell that a file has to be taken."""
        return bool(self.labels.metadata or self.labels.access)

    def _is_given_up(self, uri: str) -> bool:
        """Whether a file could not be read the last time, and has not changed since."""
        file = self._other[uri]
        return self.stamps.get(uri) == (file.size, file.mtime_ns, "failed")

    def _changed(self, given_up: set[str]) -> list[File]:
        """Files that are not as they were when they were indexed, or of which the caller says something else now."""
        if not self._looks_at_all:
            return [file for uri, file in self._other.items() if uri not in given_up]
        return [
            file
            for uri, file in self.found.files.items()
            if uri not in given_up and (uri in self._other or self._is_labelled_otherwise(uri))
        ]

    def _is_labelled_otherwise(self, uri: str) -> bool:
        try:
            return not self._is_labelled(self.known[uri])
        except DocumentError:
            return True  # it is recorded when its turn comes

    def _is_labelled(self, row: SourceRow, uri: str = "") -> bool:
        """Whether a source has the metadata and readers that the caller says; of another uri, if it is named."""
        if not self._is_described(row, uri or row.uri):
            return False
        return not self.labels.access or self.held.readers(row.uri) == self.labels.readers(uri or row.uri)

    def _is_described(self, row: SourceRow, uri: str) -> bool:
        return not self.labels.metadata or DocumentReport.of(row.report).labels == self.labels.mark(uri)

    def _take(self, file: File) -> None:
        """Bring the store in step with a file, or have it wait to be cut with others."""
        before = self.known.get(file.uri)
        try:
            self._read(file, before)
        except Unreadable as failure:
            self._fail(failure, before)
            self._done(file.uri, "failed")
        except DocumentError as error:
            row = (before or SourceRow(file.uri)).but(size=file.size, mtime_ns=file.mtime_ns)
            self._fail(Unreadable(row.but(status="failed", error=str(error))), before)
            self._done(file.uri, "failed")

    def _read(self, file: File, before: SourceRow | None) -> None:
        found = fetched(file, before)
        row, change = found.row, ""
        same = before is not None and before.status == "indexed" and before.content_hash == row.content_hash
        if before is not None and same and self._is_labelled(before):
            self.writer.touch(before.but(size=row.size, mtime_ns=row.mtime_ns))
            self.tally.unchanged += 1
        elif before is not None and same and self._gives_other_readers(before):
            self._changes += 1
            self.tally.changed += 1
            change = "changed"
        elif before is None and (old := self._moved_from(row, file)) is not None:
            self.writer.move(old.uri, old.but(uri=file.uri, size=row.size, mtime_ns=row.mtime_ns))
            self._changes += 1
            self.tally.moved += 1
            change = "moved"
        else:
            reading = read(file, found)
            reading = reading.but(document=self.labels.on(reading.document, self.held.is_free))
            self.held.add(reading.document)
            self.filing.pending.append(Filed(reading, row, before is None))
            return
        self._done(file.uri, change)

    def _gives_other_readers(self, row: SourceRow) -> bool:
        """Whether only the reader list was another one, so that nothing has to be cut again."""
        if not self._is_described(row, row.uri) or self.held.is_shared(row.document):
            return False  # another source may have another list: this one's becomes a document of its own
        readers = self.labels.readers(row.uri)
        self.writer.set_readers(self.writer.document(row.document), readers)
        self.held.change(row.document, readers)
        return True

    def _moved_from(self, row: SourceRow, file: File) -> SourceRow | None:
        """The source that is gone and held the same, read and labelled in the same way."""
        for uri in self.gone_with.get(row.content_hash, ()):
            old = self.gone.get(uri)
            read_so = old is not None and old.document.endswith(f".{file.reader.name}")
            if old is not None and read_so and self._is_labelled(old, file.uri):
                return self.gone.pop(uri)
        return None

    def _cut(self, filing: Filing) -> None:
        for filed, result in filing.flush():
            if isinstance(result, Unreadable):
                self._fail(result, self.known.get(filed.row.uri))
                self._done(filed.row.uri, "failed")
            else:
                self.tally.put(result, is_new=filed.is_new)
                self._changes += 1
                self._done(filed.row.uri, "added" if filed.is_new else "changed")

    def _fail(self, failure: Unreadable, before: SourceRow | None) -> None:
        self.tally.failed.append((failure.row.uri, failure.row.error))
        if before != failure.row:
            self.writer.fail(failure.row)
            self._changes += 1

    def _done(self, uri: str, change: str) -> None:
        self.tally.done += 1
        self._tell(uri, change)
        if self.batch is None:
            return
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

    def _tell(self, uri: str, change: str = "") -> None:
        if self.progress is not None:
            self.progress(self.tally.progress(uri, change))
