"""One run of `sync`: sources are read ahead and prepared without a lock, and committed batch by batch."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cache

from spolia.core.run_context import check_cancelled
from spolia.errors import DocumentError, FolderError, MissingExtra
from spolia.filters import Field
from spolia.indexing.readers.reader import is_container
from spolia.indexing.sync.diff import (
    NOT_OPENED,
    ContainerContents,
    ContainerResult,
    LinkedImages,
    SourceDiff,
    above,
    failed,
)
from spolia.indexing.sync.files import (
    FOLDER,
    ROOT,
    File,
    FileListing,
    SourceChanges,
    refuse_folder_since,
    refuse_other,
)
from spolia.indexing.sync.groups import Batch, BatchItem, RequestedGroups, behind
from spolia.indexing.sync.metadata import DocumentLabels, MetadataDiff
from spolia.indexing.sync.prefetch import FetchItem, Prefetch, Unreadable, fetched
from spolia.indexing.sync.report import DocumentReport, Progress, SyncCounts, What, container_of
from spolia.indexing.sync.revoke import Revoked, revoke
from spolia.indexing.workers.prepare import Executor
from spolia.indexing.workers.protocol import WorkerLimits
from spolia.stores.backends.rows import SourceRow, Stamp, Unmade, in_batches
from spolia.stores.groups.group_build import STAGED_AT_ONCE, build_groups, build_missing, embed, refuse_away
from spolia.stores.staging import AnyWriter, Staging

CUT_AT_ONCE, WEIGHT_AT_ONCE = 64, 5_000_000
"""Documents whose nodes are made together, so that a transform asks its model for all of them at once; and their
characters and bytes of pictures, beyond which they are fewer."""
CHUNKS_PER_DOCUMENT = 20
MOST_CHUNKS = 4_000
"""A batch of documents is published early when it has more chunks than this in one document or in all, or takes much
memory (`STAGED_AT_ONCE`): other writers wait for as long as a batch is written."""
LONGEST_UNPUBLISHED_S = 60.0
"""Seconds after which what was read is published, however little it is: who stops a run over scans loses no hours."""


@dataclass(frozen=True)
class SyncOptions:
    """Arguments of `sync` that hold for all that it finds; `reread` tries all again that could not be read. Without
    `compacts` the caller joins small pieces of the store later."""

    wanted: RequestedGroups
    fields: Sequence[Field] | None = None
    progress: Callable[[Progress], None] | None = None
    batch: int | None = 2000
    rebuild: bool = False
    retry: bool = True
    reread: bool = False
    workers: int | Executor | None = None
    limits: WorkerLimits | None = None
    timeout_s: float | None = None
    compacts: bool = True


def staged(
    writer: Staging,
    found: FileListing,
    labels: DocumentLabels,
    prefetch: Prefetch,
    how: SyncOptions,
    before: SyncRun | None = None,
) -> SyncRun:
    """One round of `keep`, over a staging that is committed or only counts; a further one takes what is in conflict."""
    lot = found
    if before is not None:
        lot = only(found, before.writer.conflicts)
        labels = _not_wider(before.labels, writer.readers(lot.uris))
    stamps = writer.stamps(lot.uris)
    writer.refuse = refuse_folder_since(writer.cursor(FOLDER, ROOT), found)
    is_other = _is_other(lot, stamps, writer, rebuild=how.rebuild)
    if found.folder:
        writer.remember(found.source, found.cursors)  # with the first commit: no other folder begins beside it
    for uri in lot.files if labels.access is not None else ():
        labels.readers(uri)  # raises before anything is written: a mistake could open a file to others
    if labels.access is None and writer.is_restricted():
        labels = replace(labels, kept=writer.readers(lot.uris), is_closed=cache(writer.is_restricted_now))
    revoked = Revoked() if is_other or not stamps else revoke(writer, lot, labels, stamps, prefetch)
    if how.fields is not None:
        writer.declare(how.fields)
    made = dict(writer.manifests)
    renews = how.wanted.define(writer, lot, prefetch, rebuild=how.rebuild)
    how.wanted.refuse_changed(writer.manifests)
    if revoked.removed or renews:
        stamps = writer.stamps(lot.uris)
    rebuilt: list[str] = []
    if how.rebuild and made and made != writer.manifests:  # what was there is found until all is made
        how, now = replace(how, batch=None), writer.manifests
        rebuilt = [name for name, there in made.items() if name in now and there.signature != now[name].signature]
    run = SyncRun(writer, labels, lot, prefetch, stamps, how, revoked, LinkedImages(found, labels), before)
    run.run(recount=renews, rebuilt=rebuilt)
    return run


def only(found: FileListing, uris: Set[str]) -> SourceChanges:
    """Some of the sources that were found, each with the container that it is in."""
    outermost = {next((one for one in (*above(uri), uri) if one in found.files), uri) for uri in uris}
    files = found.files.only(uri for uri in found.files if uri in outermost)
    gone = frozenset(outermost - files.keys())
    some = SourceChanges(files, source=found.source, cursors=found.cursors, gone=gone, folders=found.folders)
    return replace(some, again=found.again)


def _not_wider(labels: DocumentLabels, there: Mapping[str, tuple[str, ...]]) -> DocumentLabels:
    """What the caller says, but no more readers than another writer has left meanwhile."""
    if (said := labels.access) is None:
        return replace(labels)  # the caller's functions are asked again

    def access(uri: str) -> Iterable[str]:
        named, kept = tuple(said(uri)), there.get(uri, ())
        return named if not kept or (named and set(named) <= set(kept)) else kept

    return replace(labels, access=access)


def _is_other(found: FileListing, stamps: Mapping[str, Stamp], writer: Staging, *, rebuild: bool) -> bool:
    """Whether a store holds another folder, which is found until all of this one is there."""
    try:
        refuse_other(found, stamps, writer)
    except FolderError:
        if not rebuild:
            raise
        return True
    return False


class SyncRun:
    """The order of a run, what it does with each source, and when it publishes; counts of a round `before` go on."""

    def __init__(
        self,
        writer: Staging,
        labels: DocumentLabels,
        found: FileListing,
        prefetch: Prefetch,
        stamps: Mapping[str, Stamp],
        how: SyncOptions,
        revoked: Revoked,
        linked_images: LinkedImages,
        before: SyncRun | None = None,
    ) -> None:
        self.writer, self.labels, self.found, self.how = writer, labels, found, how
        self.tally: SyncCounts = before.tally if before else SyncCounts()
        self.prefetch = prefetch
        self.revoked, self.linked_images = revoked, linked_images
        self.builds = how.wanted.builds(writer.manifests)
        prefetch.follow(self.builds)
        self.unread: list[Unmade] = before.unread if before else []
        tried: set[str] = before.pending_batch.tried if before else set()
        self.metadata_diff = MetadataDiff(writer, labels, found.uris, self.builds)
        self.pending_batch: Batch = Batch(writer, self.builds, how.wanted.main, self.metadata_diff, tried=tried)
        self.diff = SourceDiff(writer, found, stamps, self.linked_images, all=self._looks_at_all)
        for container, parts in self.diff.parts.items() if self._looks_at_all else ():
            for uri in parts:
                self.labels.contain(uri, container_of(self.diff.rows[uri]) or container)
        self._cut_at_once = min(CUT_AT_ONCE, how.batch or CUT_AT_ONCE)
        self._changes, self._chunks, self._earlier = 0, self.tally.chunks, self.tally.chunks
        self._published_at = time.monotonic()

    def run(self, *, recount: bool, rebuilt: Collection[str]) -> None:
        """Bring the store in step; `recount` where no report tells the nodes of the main group any more.

        Groups in `rebuilt` would lose what they have if their model is away.
        """
        self._open_stale_to_those_who_may_read_it()
        given_up = self.diff.given_up(retry=self.how.retry, reread=self.how.reread)
        for row in given_up:
            self.tally.fail(row)
        changed = self._changed({row.uri for row in given_up})
        self.tally.total += len(changed)
        opened = {file.uri for file in changed}
        closed = sum(len(parts) for container, parts in self.diff.parts.items() if container not in opened)
        self.tally.unchanged += len(self.found.files) - len(changed) + closed - len(given_up)
        self._tell_of_revoked(opened)
        if not self.prefetch.is_first:  # from the other end than the run that is under way, so that the two meet
            changed.reverse()
        for taken in self.prefetch.ahead(self._items(changed), self._is_read):
            self._take(taken)
        self._cut(self.pending_batch)
        for uri in self.diff.gone:
            self._remove(uri)
        self._make_up()
        for document in self.writer.documents() if recount else ():
            if document.id not in self.pending_batch.counted:
                self.pending_batch.recount(document)
        refuse_away(build for build in self.builds if build.group in rebuilt)
        self.writer.remember(self.found.source, self.found.cursors)
        self._publish()

    def _tell_of_revoked(self, changed: Set[str]) -> None:
        """Count and report what was published before; files to read for other reasons too are reported in their
        turn."""
        for uri in self.revoked.removed:
            self._count(uri, "removed")
        for uri in sorted(self.revoked.relabelled):
            if changed.isdisjoint((uri, *above(uri))):
                self.tally.total, self.tally.done = self.tally.total + 1, self.tally.done + 1
                self.tally.unchanged -= 1
                self._count(uri, "changed")

    def _open_stale_to_those_who_may_read_it(self) -> None:
        """A source that is not tried again may have other readers by now all the same."""
        for uri, row in self.diff.rows.items() if self.labels.access else ():
            if row.is_stale and uri not in self.diff.gone and not self.metadata_diff.may_stay(row):
                self.writer.fail(row.but(document=""))

    def _changed(self, given_up: set[str]) -> list[File]:
        """Files that are not as they were when they were indexed, or of which the caller says something else now."""
        if self._looks_at_all:
            for uri in (uri for parts in self.diff.parts.values() for uri in parts):
                if self.diff.rows[uri].status == "indexed" and self.metadata_diff.differs(self.diff.rows[uri]):
                    self.diff.reopen(uri)
        if not (self._looks_at_all or self.diff.reopened):
            return [file for uri, file in self.diff.unlike.items() if uri not in given_up]

        def is_wanted(uri: str) -> bool:
            if uri in self.diff.unlike or uri in self.diff.reopened:
                return True
            return self._looks_at_all and self.metadata_diff.differs(self.diff.rows[uri])

        return [file for uri, file in self.found.files.items() if uri not in given_up and is_wanted(uri)]

    def _items(self, files: Iterable[File]) -> Iterator[FetchItem]:
        """Files to take, but those that another run has published meanwhile."""
        for some in in_batches(files, CUT_AT_ONCE):
            changed = self.writer.find_changed(file.uri for file in some)
            self.tally.total -= len(changed)
            yield from (self._item(file) for file in some if file.uri not in changed)

    def _item(self, file: File) -> FetchItem:
        before = self.diff.rows.get(file.uri)
        return FetchItem(file.uri, file.reader, file.size, lambda: fetched(file, before, self.prefetch.spool))

    def _make_up(self) -> None:
        """Make what is lacking of documents that this run has left alone: what could not be made is tried again."""
        made = {build.group for build in self.builds} - {group for group, _ in behind(self.builds)}
        tried, again = self.pending_batch.tried, self.how.retry
        lacking = (lack for lack in self.writer.unmade() if lack.group in made and (again or lack.is_untried))
        unmade = [lack for lack in lacking if lack.document not in tried]
        for one in build_missing(self.writer, self.builds, unmade):
            self.pending_batch.tried.add(one.document.id)
            if self.pending_batch.main in one.by_group:
                self.pending_batch.recount(one.document)
            self._changes += 1
            self._tell(one.document.uri)
            self._publish_if_many()

    def tell_of_groups(self, group: str, documents: int, embedded: int) -> None:
        """How far the building of further groups is."""
        self._embedded(embedded)

    # What becomes of one source.

    def _is_read(self, uri: str, row: SourceRow) -> bool:
        """Whether a source will be read, as far as is known before its turn."""
        before = self.diff.rows.get(uri)
        return not (_is_same(before, row) or (before is None and any(self.diff.gone_with(row.content_hash))))

    def _remove(self, uri: str) -> None:
        self.writer.remove(uri)
        self._count(uri, "removed")

    @property
    def _looks_at_all(self) -> bool:
        return bool(self.labels.metadata or self.labels.access)

    def _take(
        self, taken: FetchItem, within: str = "", contents: ContainerContents | None = None, depth: int = 0
    ) -> None:
        """Bring the store in step with a source, `depth` containers deep, or have it wait to be cut with others."""
        check_cancelled()
        before, contents = self.diff.rows.get(taken.uri), contents or ContainerContents(taken.uri)
        try:
            if within:
                self.labels.contain(taken.uri, within)
            opened = self._open(taken, before, contents, depth + 1)
            self._keep(taken, before, opened, within)
        except Unreadable as failure:
            if not within and (path := self.found.files[taken.uri].path) and self.found.is_deleted(path):
                self.tally.total -= 1
                self.diff.lose(taken.uri)
            else:
                self._leave_unseen(taken.uri, contents)
                self._fail(failure, taken.reader.name, within)
        except DocumentError as error:  # by what the caller says of it
            row = before or SourceRow(taken.uri)
            row = row.but(size=taken.row.size, mtime_ns=taken.row.mtime_ns, reader=taken.row.reader)
            self._fail(Unreadable(row, str(error), None), taken.reader.name, within)
        finally:
            if "found" in vars(taken):
                self.prefetch.drop(taken.found.blob)
        batch = self.pending_batch
        if len(batch.pending) >= self._cut_at_once or batch.weight >= WEIGHT_AT_ONCE or self._is_late:
            self._cut(batch)

    def _open(
        self, taken: FetchItem, before: SourceRow | None, contents: ContainerContents, depth: int
    ) -> ContainerResult:
        """Bring the store in step with the members of a source.

        Its own row is written after theirs: a run that is killed between them finds it changed, and opens it again.
        """
        if not is_container(taken.reader):
            return NOT_OPENED
        row = taken.row
        stored = self.diff.fetch(taken.uri) if depth == 1 else ()
        is_whole = taken.found.is_empty or row.size <= getattr(taken.reader, "undivided", -1)
        if is_whole and not (stored or taken.found.is_unreadable):
            return NOT_OPENED
        if _is_same(before, row) and taken.uri not in self.diff.reopened:
            self._leave(self.diff.within(taken.uri), contents)
            return NOT_OPENED
        parts, problem = 0, None
        items = contents.items(taken.reader, taken.found, depth, self.found.files.readers, self.prefetch)
        try:
            for part in () if is_whole else self.prefetch.ahead(items, self._is_read):
                parts += 1
                self.tally.total += 1
                self._take(part, taken.uri, contents, depth)
        except (DocumentError, MissingExtra) as error:
            problem = error
        if problem is not None or taken.found.is_unreadable:
            self._leave_unseen(taken.uri, contents)
        if depth == 1:
            self.found.unread.update(contents.unread)
            if gone := sorted(set(stored) - contents.seen):
                self._cut(self.pending_batch)  # what has another name now is not made again
            for uri in gone:
                self._remove(uri)
        return ContainerResult(parts, contents.unread.total(), problem)

    def _leave_unseen(self, container: str, contents: ContainerContents) -> None:
        """Leave what was in a source that cannot be unpacked now, but for what others may read by now."""
        self.diff.fetch(container)
        unseen = [uri for uri in self.diff.within(container) if uri not in contents.seen]
        held = (row for uri in unseen if (row := self.diff.rows[uri]).document)
        revoked = {row.uri for row in held if not self.metadata_diff.may_stay(row)}
        contents.seen.update(revoked)
        for uri in sorted(revoked):
            self._remove(uri)
        self._leave([uri for uri in unseen if uri not in revoked], contents)

    def _leave(self, parts: Iterable[str], contents: ContainerContents) -> None:
        for uri in parts:
            contents.seen.add(uri)
            if (row := self.diff.rows[uri]).status == "failed":
                self.tally.fail(row)
            elif uri in self.revoked.relabelled:
                self._count(uri, "changed")
            else:
                self.tally.count(uri, "unchanged")

    def _keep(self, taken: FetchItem, before: SourceRow | None, opened: ContainerResult, within: str) -> None:
        row = taken.row
        if before is not None and _is_same(before, row) and self.metadata_diff.is_same(before):
            if (before.size, before.mtime_ns) != (row.size, row.mtime_ns):
                self.writer.touch(before.but(size=row.size, mtime_ns=row.mtime_ns))
            self._done(row.uri, "changed" if row.uri in self.revoked.relabelled else "unchanged")
        elif before is not None and _is_same(before, row) and self.metadata_diff.gives_other_readers(before):
            self._changes += 1
            self._done(row.uri, "changed")
        elif before is None and (old := self._moved_from(taken, within)) is not None:
            self.writer.move(old.uri, old.but(uri=row.uri, size=row.size, mtime_ns=row.mtime_ns))
            self._changes += 1
            self._done(row.uri, "moved")
        else:
            self._read(taken, before, opened, within)

    def _read(self, taken: FetchItem, before: SourceRow | None, opened: ContainerResult, within: str) -> None:
        try:
            prepared = self.prefetch.prepared(taken.reader, taken.found)
            reading = prepared.reading if opened is NOT_OPENED else opened.on(prepared.reading)
        except (DocumentError, MissingExtra) as error:
            raise Unreadable(taken.row, str(error), error) from error
        again = self.found.is_again(taken.uri)
        item = BatchItem(reading, taken.row, before, prepared.pieces, opened.parts, within, again=again)
        if reading.linked_images:
            item.beside = self.linked_images.seen_by(reading)
            item.pieces = {}  # they may see the pictures
            item.reading = self.linked_images.on(reading)
        self.pending_batch.add(item)

    def _moved_from(self, taken: FetchItem, within: str) -> SourceRow | None:
        """The source that is gone and held the same, read and described in the same way; it gets the new readers."""
        diff, uri = self.metadata_diff, taken.uri
        for old in self.diff.gone_with(taken.row.content_hash):
            if old.reader != taken.row.reader or not (diff.is_same(old, uri) or diff.gives_other_readers(old, uri)):
                continue
            report = DocumentReport.of(old.report) if old.report else None
            if report is not None and report.beside:
                continue  # other pictures stand beside it there
            del self.diff.gone[old.uri]
            return old if report is None or report.within == within else old.but(report=report.but(within=within).json)
        return None

    def _cut(self, batch: Batch) -> None:
        for filed, result in batch.flush():
            if isinstance(result, Unreadable):
                self._fail(result, filed.reading.document.id.rpartition(".")[2], filed.within)
            else:
                self._changes += 1
                self.tally.warned += bool(result.warnings)
                self._done(filed.row.uri, "added" if filed.before is None else "changed")

    def _fail(self, failure: Unreadable, reader: str, within: str) -> None:
        """Note why a source could not be read, and how often it was tried. Its last good version stays."""
        before, row = self.diff.rows.get(failure.row.uri), failure.row.but(document="")
        if before is not None and self.metadata_diff.may_stay(before):
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

    def _done(self, uri: str, what: What) -> None:
        self.tally.done += 1
        self._count(uri, what)
        self._publish_if_many()

    def _count(self, uri: str, what: What) -> None:
        """Count and tell what became of a source."""
        self.tally.count(uri, what)
        self._tell(uri, "" if what == "unchanged" else what)

    def _publish_if_many(self) -> None:
        if self.how.batch is None:
            if self.writer.weight >= STAGED_AT_ONCE:
                self.unread += embed(self.writer, self.builds, self._embedded, self.prefetch.embedded)
                self.writer.spill()
            return
        chunks = min(self.how.batch * CHUNKS_PER_DOCUMENT, MOST_CHUNKS)
        are_many = self._changes >= self.how.batch or self.tally.chunks - self._chunks >= chunks
        if are_many or self._is_late or self.writer.weight >= STAGED_AT_ONCE:
            self._publish()
            self.writer.join_full()

    @property
    def _is_late(self) -> bool:
        return self.how.batch is not None and time.monotonic() - self._published_at >= LONGEST_UNPUBLISHED_S

    def _publish(self) -> None:
        """Embed what has no vector yet, then make everything since the last time visible."""
        self.unread += embed(self.writer, self.builds, self._embedded, self.prefetch.embedded)
        self.writer.publish(self._complete)
        self.tally.publish(self.writer.conflicts)
        self._changes, self._chunks = 0, self.tally.chunks
        self._published_at = time.monotonic()

    def _complete(self, writer: AnyWriter) -> None:
        """Make and embed what another one has added meanwhile to groups that this run defines."""
        seen = self.writer.manifests
        builds = [build for build in self.builds if writer.manifests.get(build.group) == seen[build.group]]
        for _ in build_groups(writer, builds) if self.how.batch is None else ():
            if writer is self.writer and self.writer.weight >= STAGED_AT_ONCE:
                self.unread += embed(writer, builds, self._embedded)
                self.writer.spill()
        self.unread += embed(writer, builds, self._embedded)

    def _embedded(self, count: int) -> None:
        self.tally.embedded += count
        self._tell("")

    def _tell(self, uri: str, change: str = "") -> None:
        self.tally.chunks = self._earlier + self.writer.node_counts[self.pending_batch.main]
        if self.how.progress is not None:
            done, total, failed = self.tally.done, self.tally.total, len(self.tally.failed)
            self.how.progress(Progress(done, total, uri, failed, self.tally.chunks, self.tally.embedded, change))


def _is_same(before: SourceRow | None, row: SourceRow) -> bool:
    if before is None or before.status != "indexed":
        return False
    return (before.content_hash, before.reader) == (row.content_hash, row.reader)
