"""One run over the sources of a store: what is known beside what is there."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from spolia.errors import DocumentError, FilterError, MissingExtra
from spolia.filters import Field
from spolia.indexing.attempts import failed
from spolia.indexing.contents import NOT_OPENED, Contents, Opened
from spolia.indexing.files import File, Found
from spolia.indexing.filing import Filed, Filing
from spolia.indexing.held import Held
from spolia.indexing.intake import Intake, Item, Taken, Unreadable, fetched, intake
from spolia.indexing.known import Known
from spolia.indexing.labels import Labels
from spolia.indexing.parts import Wanted, behind
from spolia.indexing.readers.reading import Container
from spolia.indexing.report import DocumentReport, Progress, SyncReport
from spolia.indexing.tally import Tally
from spolia.indexing.workers.limits import Limits
from spolia.stores.corpus import Corpus
from spolia.stores.groups.growing import embed
from spolia.stores.groups.materialising import materialise
from spolia.stores.groups.relabelling import relabel
from spolia.stores.groups.storing import make_up
from spolia.stores.tables.rows import SourceRow, Stamp
from spolia.stores.writer import Writer
from spolia.surrounding import check_cancelled
from spolia.types import Document

CUT_AT_ONCE, WEIGHT_AT_ONCE = 64, 5_000_000
"""Documents whose nodes are made together, so that a transform asks its model for all of them at once; and their
characters and bytes of pictures, beyond which they are fewer."""
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
    workers: int | None = None,
    limits: Limits | None = None,
    timeout_s: float | None = None,
) -> SyncReport:
    """Bring a store, made if it is not there, in step with what was found; see `sync`.

    Args:
        refuse: raises if this is not to be done to a store with these sources.
    """
    began = time.perf_counter()
    corpus.create()
    with corpus.writer(timeout_s) as writer, intake(corpus.truth.folder, workers, limits) as taking:
        refuse(known := writer.stamps(found.uris))
        labels.refuse_bad_readers(found.files)
        fits = fields is None or writer.declare(fields)
        if not (fits or labels.metadata or rebuild):
            writer.publish()  # is refused, and says why: nothing gives other values
        if labels.access is None and writer.is_restricted():
            labels = replace(labels, kept=writer.readers())
        renews = wanted.define(writer, found, taking, rebuild=rebuild)
        wanted.refuse_changed(writer.manifests)
        if renews:
            known = writer.stamps(found.uris)
        batches = batch if fits and not renews else None
        run = Keeping(writer, wanted, labels, found, taking, known, progress, batches, retry)
        run.run(recount=renews)
    if wanted.groups:
        materialise(wanted.groups, retry=False, known=wanted.known, tell=run.tell_of_groups, wait_s=timeout_s)
    published = corpus.latest()
    report = run.tally.report(published.generation, found, time.perf_counter() - began)
    return report.but(unmade=published.unmade(), behind=run.behind)


class Keeping:
    """One run.

    Args:
        writer: of the store.
        wanted: the groups.
        labels: what the caller says of files.
        found: what there is.
        taking: reads it.
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
        taking: Intake,
        known: Mapping[str, Stamp],
        progress: Callable[[Progress], None] | None,
        batch: int | None = None,
        retry: bool = True,
    ) -> None:
        self.writer, self.labels, self.found, self.progress, self.batch = writer, labels, found, progress, batch
        self.tally, self.intake = Tally(), taking
        self.retry = retry
        self.growths = wanted.growths(writer.manifests)
        self.behind = behind(self.growths)
        self.filing = Filing(writer, self.growths, wanted.main, labels)
        if labels.access or labels.kept or labels.metadata:
            self.held = Held(writer.held(found.uris), _none if found.uris is None else writer.held_as)
        else:
            self.held = Held({}, _none)
        self.known = Known(writer, found, known, all=self._looks_at_all)
        for container, parts in self.known.parts.items() if self._looks_at_all else ():
            for uri in parts:
                row = self.known.rows[uri]
                self.labels.contain(uri, (DocumentReport.of(row.report).within if row.report else "") or container)
        self._changes = self._chunks = 0

    def run(self, *, recount: bool = False) -> None:
        """Bring the store in step.

        Args:
            recount: the main group was built anew, so that no report tells its nodes any more.
        """
        self._open_stale_to_those_who_may_read_it()
        given_up = self.known.given_up(retry=self.retry)
        for row in given_up:
            self.tally.fail(row)
        changed = self._changed({row.uri for row in given_up})
        self.tally.total = len(changed)
        self.tally.unchanged = len(self.found.files) - len(changed) + self._parts_left_alone(changed) - len(given_up)
        for taken in self.intake.ahead(map(self._item, changed), self._is_read):
            self._take(taken)
        self._cut(self.filing)
        for uri in self.known.gone:
            self._remove(uri)
        self._make_up()
        for document in self.writer.documents() if recount else ():
            if document.id not in self.filing.counted:
                self.filing.recount(document)
        self.writer.remember(self.found.source, self.found.cursors)
        self._publish()

    def _parts_left_alone(self, changed: Sequence[File]) -> int:
        """How much stands in containers that are not opened."""
        opened = {file.uri for file in changed}
        return sum(len(parts) for container, parts in self.known.parts.items() if container not in opened)

    def _item(self, file: File) -> Item:
        before = self.known.get(file.uri)
        return Item(file.uri, file.reader, file.size, lambda: fetched(file, before, self.intake.spool))

    def _is_read(self, uri: str, row: SourceRow) -> bool:
        """Whether a source is read, as far as can be told before its turn comes."""
        before = self.known.get(uri)
        return not (_is_same(before, row) or (before is None and self.known.is_elsewhere(row.content_hash)))

    def _remove(self, uri: str) -> None:
        self.writer.remove(uri)
        self.tally.removed += 1
        self._tell(uri, "removed")

    def _make_up(self) -> None:
        """Make what is lacking of documents that this run has left alone: what could not be made is tried again."""
        left = {group for group, _ in self.behind}
        unmade = [
            lack
            for lack in self.writer.unmade()
            if lack.document not in self.filing.tried and lack.group not in left and (self.retry or lack.is_untried)
        ]
        for one in make_up(self.writer, self.growths, unmade):
            if self.filing.main in one.made:
                self.tally.chunks += self.filing.recount(one.document)
            self._changes += 1
            self._tell(one.document.uri)
            self._publish_if_many()

    @property
    def _looks_at_all(self) -> bool:
        """Whether more than its stamp can tell that a file has to be taken."""
        return bool(self.labels.metadata or self.labels.access)

    def _changed(self, given_up: set[str]) -> list[File]:
        """Files that are not as they were when they were indexed, or of which the caller says something else now."""
        if self._looks_at_all:
            for uri in (uri for parts in self.known.parts.values() for uri in parts):
                if self.known.rows[uri].status == "indexed" and self._is_labelled_otherwise(uri):
                    self.known.reopen(uri)
        if not (self._looks_at_all or self.known.reopened):
            return [file for uri, file in self.known.unlike.items() if uri not in given_up]
        return [
            file
            for uri, file in self.found.files.items()
            if uri not in given_up and (uri in self.known.unlike or self._is_to_be_looked_at(uri))
        ]

    def _is_to_be_looked_at(self, uri: str) -> bool:
        """Whether something is to be done with a file that is as it was."""
        return uri in self.known.reopened or (self._looks_at_all and self._is_labelled_otherwise(uri))

    def _is_labelled_otherwise(self, uri: str) -> bool:
        try:
            return not self._is_labelled(self.known.rows[uri])
        except DocumentError:
            return True  # it is recorded when its turn comes

    def _is_labelled(self, row: SourceRow, uri: str = "") -> bool:
        """Whether a source has the metadata and readers that the caller says; of another uri, if it is named."""
        if not self._is_described(row, uri or row.uri):
            return False
        return not self.labels.access or self.held.readers(row.document) == self.labels.readers(uri or row.uri)

    def _is_described(self, row: SourceRow, uri: str) -> bool:
        return not self.labels.metadata or DocumentReport.of(row.report).labels == self.labels.mark(uri)

    def _take(self, taken: Taken, within: str = "", contents: Contents | None = None, depth: int = 0) -> None:
        """Bring the store in step with a source, or have it wait to be cut with others.

        Args:
            within: uri of the container that it stands in.
            contents: what stands in the outermost one.
            depth: number of containers that it stands in.
        """
        check_cancelled()
        before, contents = self.known.get(taken.uri), contents or Contents(taken.uri)
        try:
            if within:
                self.labels.contain(taken.uri, within)
            opened = self._open(taken, before, contents, depth + 1)
            self._keep(taken, before, opened, within)
        except Unreadable as failure:
            self._leave_unseen(taken.uri, contents)
            self._fail(failure, taken.reader.name, within)
        except DocumentError as error:  # by what the caller says of it
            row = (before or SourceRow(taken.uri)).but(size=taken.row.size, mtime_ns=taken.row.mtime_ns)
            self._fail(Unreadable(row, str(error), None), taken.reader.name, within)
        finally:
            taken.drop()
        if len(self.filing.pending) >= CUT_AT_ONCE or self.filing.weight >= WEIGHT_AT_ONCE:
            self._cut(self.filing)

    def _open(self, taken: Taken, before: SourceRow | None, contents: Contents, depth: int) -> Opened:
        """Bring the store in step with what stands in a source.

        Its own row is written after theirs: a run that is killed between them finds it changed, and opens it again.
        """
        if not isinstance(taken.reader, Container):
            return NOT_OPENED
        row = taken.row
        known = self.known.fetch(taken.uri) if depth == 1 else ()
        if _is_same(before, row) and taken.uri not in self.known.reopened:
            self._leave(self.known.within(taken.uri), contents)
            return NOT_OPENED
        parts, problem = 0, None
        items = contents.items(taken.reader, taken.bytes, depth, self.found.files.readers, self.intake)
        try:
            for part in self.intake.ahead(items if taken.is_container else (), self._is_read):
                parts += 1
                self.tally.total += 1
                self._take(part, taken.uri, contents, depth)
        except (DocumentError, MissingExtra) as error:
            problem = error
        if problem is not None or taken.is_unreadable:
            self._leave_unseen(taken.uri, contents)
        if depth == 1:
            self.found.unread.update(contents.unread)
            if gone := sorted(set(known) - contents.seen):
                self._cut(self.filing)  # what has another name now is not made anew
            for uri in gone:
                self._remove(uri)
        return Opened(parts, contents.unread.total(), problem)

    def _leave_unseen(self, container: str, contents: Contents) -> None:
        """Leave what was in a source that cannot be unpacked now, but for what others may read by now."""
        self.known.fetch(container)
        unseen = [uri for uri in self.known.within(container) if uri not in contents.seen]
        closed = {uri for uri in unseen if self.known.rows[uri].document and not self._may_stay(self.known.rows[uri])}
        contents.seen.update(closed)
        for uri in sorted(closed):
            self._remove(uri)
        self._leave([uri for uri in unseen if uri not in closed], contents)

    def _leave(self, parts: Iterable[str], contents: Contents) -> None:
        """Leave what is in a source as it is."""
        for uri in parts:
            contents.seen.add(uri)
            if (row := self.known.rows[uri]).status == "failed":
                self.tally.fail(row)
            else:
                self.tally.unchanged += 1

    def _keep(self, taken: Taken, before: SourceRow | None, opened: Opened, within: str) -> None:
        row, change = taken.row, ""
        if before is not None and _is_same(before, row) and self._is_labelled(before):
            self.writer.touch(before.but(size=row.size, mtime_ns=row.mtime_ns))
            self.tally.unchanged += 1
        elif before is not None and _is_same(before, row) and self._gives_other_readers(before):
            self._changes += 1
            self.tally.changed += 1
            change = "changed"
        elif before is None and (old := self._moved_from(taken, within)) is not None:
            self.writer.move(old.uri, old.but(uri=taken.uri, size=row.size, mtime_ns=row.mtime_ns))
            self._changes += 1
            self.tally.moved += 1
            change = "moved"
        else:
            try:
                reading = opened.on(taken.read())
            except (DocumentError, MissingExtra) as error:
                raise Unreadable(row, str(error), error) from error
            try:
                reading = reading.but(document=self._labelled(reading.document, before))
            except FilterError as error:
                raise Unreadable(row, str(error), None) from error
            self.held.add(reading.document)
            self.filing.pending.append(Filed(reading, row, before is None, opened.parts, within))
            return
        self._done(taken.uri, change)

    def _labelled(self, document: Document, before: SourceRow | None) -> Document:
        """What was read, with what the caller says of it.

        What is there already of this source, but for its labels, gets these and keeps its id and its nodes: it is cut
        again and models are asked again only where a transform reads what has changed.
        """
        labelled = self.labels.on(document, self._is_free)
        if before is None or not before.document or self.held.is_shared(before.document):
            return labelled
        there = self.writer.document(before.document)
        kept = labelled.but(id=there.id)
        if there.but(uri=kept.uri, meta=kept.meta, readers=kept.readers) != kept:
            return labelled
        if (there.meta, there.readers) != (kept.meta, kept.readers):
            relabel(self.writer, self.growths, there, kept)
            self.held.change(there.id, kept.readers)
        return kept

    def _is_free(self, document: Document) -> bool:
        """Whether a document may have its id: no other one has it, with other labels."""
        there = self.writer.meta_of(document.id)
        return self.held.is_free(document.id, document.readers) and there in (None, document.meta)

    def _gives_other_readers(self, row: SourceRow) -> bool:
        """Whether only the reader list was another one, so that nothing has to be cut again."""
        if not self._is_described(row, row.uri) or self.held.is_shared(row.document):
            return False  # another source may have another list: this one's becomes a document of its own
        readers = self.labels.readers(row.uri)
        self.writer.set_readers(self.writer.document(row.document), readers)
        self.held.change(row.document, readers)
        return True

    def _moved_from(self, taken: Taken, within: str) -> SourceRow | None:
        """The source that is gone and held the same, read and labelled in the same way."""
        for old in self.known.gone_with(taken.row.content_hash):
            if not old.document.endswith(f".{taken.reader.name}") or not self._is_labelled(old, taken.uri):
                continue
            del self.known.gone[old.uri]
            report = DocumentReport.of(old.report) if old.report else None
            return old if report is None or report.within == within else old.but(report=report.but(within=within).json)
        return None

    def _cut(self, filing: Filing) -> None:
        for filed, result in filing.flush():
            if isinstance(result, Unreadable):
                self._fail(result, filed.reading.document.id.rpartition(".")[2], filed.within)
            else:
                self.tally.put(result, is_new=filed.is_new)
                self._changes += 1
                self._done(filed.row.uri, "added" if filed.is_new else "changed")

    def _fail(self, failure: Unreadable, reader: str, within: str) -> None:
        """Note why a source could not be read, and how often it was tried. Its last good version stays."""
        before, row = self.known.get(failure.row.uri), failure.row.but(document="")
        if before is not None and self._may_stay(before):
            row = row.but(document=before.document, report=before.report)
        row = failed(row, failure.reason, failure.cause, before, reader)
        row = row.but(report=DocumentReport.of(row.report).but(within=within).json)
        self.tally.fail(row)
        if before is not None and (before.status, before.error, before.document) == ("failed", row.error, row.document):
            self.writer.touch(row)  # nothing changes for who searches
        else:
            self.writer.fail(row)
            self._changes += 1
        self._done(row.uri, "failed")

    def _may_stay(self, before: SourceRow) -> bool:
        """Whether the last good version of what cannot be read stays: for those only who may read it now."""
        if not before.document or self.labels.access is None:
            return bool(before.document)
        readers = self.labels.readers(before.uri)
        if readers == self.held.readers(before.document):
            return True
        if self.held.is_shared(before.document):
            return False
        self.writer.set_readers(self.writer.document(before.document), readers)
        self.held.change(before.document, readers)
        return True

    def _open_stale_to_those_who_may_read_it(self) -> None:
        """A source that is not tried again may have other readers by now all the same."""
        for uri, row in self.known.rows.items() if self.labels.access else ():
            if row.is_stale and uri not in self.known.gone and not self._may_stay(row):
                self.writer.fail(row.but(document=""))

    def _done(self, uri: str, change: str) -> None:
        self.tally.done += 1
        self._tell(uri, change)
        self._publish_if_many()

    def _publish_if_many(self) -> None:
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


def _none(id: str) -> None:
    """No source holds it."""


def _is_same(before: SourceRow | None, row: SourceRow) -> bool:
    """Whether a source was indexed with this content."""
    return before is not None and before.status == "indexed" and before.content_hash == row.content_hash
