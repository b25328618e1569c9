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
    ancestor_uris,
    make_failed_row,
)
from spolia.indexing.sync.files import (
    FOLDER,
    ROOT,
    File,
    FileListing,
    SourceChanges,
    make_folder_check,
    refuse_other_folder,
)
from spolia.indexing.sync.groups import Batch, BatchItem, RequestedGroups, find_groups_behind
from spolia.indexing.sync.metadata import DocumentLabels, MetadataDiff
from spolia.indexing.sync.prefetch import FetchItem, Prefetch, Unreadable, fetch_file
from spolia.indexing.sync.report import DocumentReport, Progress, SyncCounts, SyncOutcome, container_of
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
    """Options of `sync` for each listing; `reread` retries all that could not be read. Without `compacts` the caller
    joins small pieces of the store later."""

    requested_groups: RequestedGroups
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


def run_round(
    staging: Staging,
    listing: FileListing,
    labels: DocumentLabels,
    prefetch: Prefetch,
    options: SyncOptions,
    previous: SyncRun | None = None,
) -> SyncRun:
    """Run one sync round, over a staging area that is committed or only counts; the next one retries conflicts."""
    round_listing = listing
    if previous is not None:
        round_listing = select_sources(listing, previous.staging.conflicts)
        labels = _limit_access(previous.labels, staging.readers(round_listing.uris))
    stamps = staging.stamps(round_listing.uris)

    staging.refuse = make_folder_check(staging.cursor(FOLDER, ROOT), listing)
    is_other = _is_other_folder(round_listing, stamps, staging, rebuild=options.rebuild)
    if listing.folder:
        staging.remember(listing.source, listing.cursors)  # with the first commit: no other folder begins beside it

    for uri in round_listing.files if labels.access is not None else ():
        labels.readers(uri)  # raises before anything is written: a mistake could open a file to others
    if labels.access is None and staging.is_restricted():
        labels = replace(
            labels, stored_readers=staging.readers(round_listing.uris), is_closed=cache(staging.is_restricted_now)
        )

    revoked = Revoked() if is_other or not stamps else revoke(staging, round_listing, labels, stamps, prefetch)

    if options.fields is not None:
        staging.declare(options.fields)
    old_manifests = dict(staging.manifests)
    renews = options.requested_groups.define(staging, round_listing, prefetch, rebuild=options.rebuild)
    options.requested_groups.refuse_changed(staging.manifests)
    if revoked.removed or renews:
        stamps = staging.stamps(round_listing.uris)

    rebuilt: list[str] = []
    # What was there is found until all is made.
    if options.rebuild and old_manifests and old_manifests != staging.manifests:
        options, new_manifests = replace(options, batch=None), staging.manifests
        rebuilt = [
            name
            for name, manifest in old_manifests.items()
            if name in new_manifests and manifest.signature != new_manifests[name].signature
        ]

    run = SyncRun(
        staging, labels, round_listing, prefetch, stamps, options, revoked, LinkedImages(listing, labels), previous
    )
    run.run(recount=renews, rebuilt=rebuilt)
    return run


def select_sources(listing: FileListing, uris: Set[str]) -> SourceChanges:
    """Return some of the listed sources, each with the container that it is in."""
    outermost = {
        next((candidate for candidate in (*ancestor_uris(uri), uri) if candidate in listing.files), uri) for uri in uris
    }
    files = listing.files.select(uri for uri in listing.files if uri in outermost)
    gone = frozenset(outermost - files.keys())
    changes = SourceChanges(files, source=listing.source, cursors=listing.cursors, gone=gone, folders=listing.folders)
    return replace(changes, forced_uris=listing.forced_uris)


def _limit_access(labels: DocumentLabels, stored_readers: Mapping[str, tuple[str, ...]]) -> DocumentLabels:
    """Return the caller's labels, with no more readers than another writer has left meanwhile."""
    if (caller_access := labels.access) is None:
        return replace(labels)  # the caller's functions are asked again

    def access(uri: str) -> Iterable[str]:
        new_readers, old_readers = tuple(caller_access(uri)), stored_readers.get(uri, ())
        return new_readers if not old_readers or (new_readers and set(new_readers) <= set(old_readers)) else old_readers

    return replace(labels, access=access)


def _is_other_folder(listing: FileListing, stamps: Mapping[str, Stamp], writer: Staging, *, rebuild: bool) -> bool:
    """Return whether a store holds another folder, which stays searchable until all of this one is stored."""
    try:
        refuse_other_folder(listing, stamps, writer)
    except FolderError:
        if not rebuild:
            raise
        return True
    return False


class SyncRun:
    """One run: the order of its steps, what it does with each source, and when it publishes; counts of a `previous`
    round go on."""

    def __init__(
        self,
        staging: Staging,
        labels: DocumentLabels,
        listing: FileListing,
        prefetch: Prefetch,
        stamps: Mapping[str, Stamp],
        options: SyncOptions,
        revoked: Revoked,
        linked_images: LinkedImages,
        previous: SyncRun | None = None,
    ) -> None:
        self.staging, self.labels, self.listing, self.options = staging, labels, listing, options
        self.tally: SyncCounts = previous.tally if previous else SyncCounts()
        self.prefetch = prefetch
        self.revoked, self.linked_images = revoked, linked_images
        self.builds = options.requested_groups.builds(staging.manifests)
        prefetch.follow(self.builds)
        self.unembedded: list[Unmade] = previous.unembedded if previous else []
        tried: set[str] = previous.pending_batch.tried if previous else set()
        self.metadata_diff = MetadataDiff(staging, labels, listing.uris, self.builds)
        self.pending_batch: Batch = Batch(
            staging, self.builds, options.requested_groups.main, self.metadata_diff, tried=tried
        )
        self.diff = SourceDiff(staging, listing, stamps, self.linked_images, all=self._looks_at_all)
        for container, parts in self.diff.parts.items() if self._looks_at_all else ():
            for uri in parts:
                self.labels.contain(uri, container_of(self.diff.rows[uri]) or container)
        self._cut_at_once = min(CUT_AT_ONCE, options.batch or CUT_AT_ONCE)
        self._changes, self._chunks, self._earlier = 0, self.tally.chunks, self.tally.chunks
        self._published_at = time.monotonic()

    def run(self, *, recount: bool, rebuilt: Collection[str]) -> None:
        """Bring the store in step; `recount` where no report tells the nodes of the main group any more.

        Groups in `rebuilt` would lose what they have if their model is away.
        """
        self._revoke_stale_versions()
        given_up = self.diff.find_given_up(retry=self.options.retry, reread=self.options.reread)
        for row in given_up:
            self.tally.fail(row)
        changed = self._find_changed_files({row.uri for row in given_up})
        self.tally.total += len(changed)
        changed_uris = {file.uri for file in changed}
        unopened_count = sum(
            len(parts) for container, parts in self.diff.parts.items() if container not in changed_uris
        )
        self.tally.unchanged += len(self.listing.files) - len(changed) + unopened_count - len(given_up)
        self._count_revoked(changed_uris)
        if not self.prefetch.is_first:  # from the other end than the run that is under way, so that the two meet
            changed.reverse()
        for item in self.prefetch.read_ahead(self._make_items(changed), self._is_read):
            self._sync_item(item)
        # Before removals: a file that was moved has been taken out of `gone` by then.
        self._cut(self.pending_batch)
        for uri in self.diff.gone:
            self._remove(uri)
        self._build_missing()
        for document in self.staging.documents() if recount else ():
            if document.id not in self.pending_batch.recounted:
                self.pending_batch.recount(document)
        refuse_away(build for build in self.builds if build.group in rebuilt)
        # Last: a run that ends before it asks the source for the same changes again.
        self.staging.remember(self.listing.source, self.listing.cursors)
        self._publish()

    def _count_revoked(self, changed: Set[str]) -> None:
        """Count and report what was published before; files to read for other reasons too are reported in their
        turn."""
        for uri in self.revoked.removed:
            self._count(uri, "removed")
        for uri in sorted(self.revoked.relabelled):
            if changed.isdisjoint((uri, *ancestor_uris(uri))):
                self.tally.total, self.tally.done = self.tally.total + 1, self.tally.done + 1
                self.tally.unchanged -= 1
                self._count(uri, "changed")

    def _revoke_stale_versions(self) -> None:
        """Apply changed access to stale versions: a source that is not retried may have other readers by now."""
        for uri, row in self.diff.rows.items() if self.labels.access else ():
            if row.is_stale and uri not in self.diff.gone and not self.metadata_diff.may_stay(row):
                self.staging.fail(row.but(document=""))

    def _find_changed_files(self, given_up: set[str]) -> list[File]:
        """Return the files that have changed since they were indexed, or that the caller labels otherwise now."""
        if self._looks_at_all:
            for uri in (uri for parts in self.diff.parts.values() for uri in parts):
                if self.diff.rows[uri].status == "indexed" and self.metadata_diff.differs(self.diff.rows[uri]):
                    self.diff.reopen(uri)
        if not (self._looks_at_all or self.diff.reopened):
            return [file for uri, file in self.diff.changed_files.items() if uri not in given_up]

        def is_wanted(uri: str) -> bool:
            if uri in self.diff.changed_files or uri in self.diff.reopened:
                return True
            return self._looks_at_all and self.metadata_diff.differs(self.diff.rows[uri])

        return [file for uri, file in self.listing.files.items() if uri not in given_up and is_wanted(uri)]

    def _make_items(self, files: Iterable[File]) -> Iterator[FetchItem]:
        """Yield an item for each file, without those that another run has published meanwhile."""
        for batch in in_batches(files, CUT_AT_ONCE):
            changed = self.staging.find_changed(file.uri for file in batch)
            self.tally.total -= len(changed)
            yield from (self._make_item(file) for file in batch if file.uri not in changed)

    def _make_item(self, file: File) -> FetchItem:
        stored = self.diff.rows.get(file.uri)
        return FetchItem(file.uri, file.reader, file.size, lambda: fetch_file(file, stored, self.prefetch.spool))

    def _build_missing(self) -> None:
        """Build missing nodes of documents that this run has left alone: what could not be made is retried."""
        buildable_groups = {build.group for build in self.builds} - {
            group for group, _ in find_groups_behind(self.builds)
        }
        tried, retries = self.pending_batch.tried, self.options.retry
        lacking = (
            lack for lack in self.staging.unmade() if lack.group in buildable_groups and (retries or lack.is_untried)
        )
        unmade = [lack for lack in lacking if lack.document not in tried]
        for document_nodes in build_missing(self.staging, self.builds, unmade):
            self.pending_batch.tried.add(document_nodes.document.id)
            if self.pending_batch.main in document_nodes.by_group:
                self.pending_batch.recount(document_nodes.document)
            self._changes += 1
            self._report_progress(document_nodes.document.uri)
            self._publish_if_many()

    def report_group_progress(self, group: str, documents: int, embedded: int) -> None:
        """Report the progress of building further groups."""
        self._count_embedded(embedded)

    # What becomes of one source.

    def _is_read(self, uri: str, row: SourceRow) -> bool:
        """Return whether a source will be read, as far as is known before its turn."""
        stored = self.diff.rows.get(uri)
        return not (_is_same(stored, row) or (stored is None and any(self.diff.find_gone(row.content_hash))))

    def _remove(self, uri: str) -> None:
        self.staging.remove(uri)
        self._count(uri, "removed")

    @property
    def _looks_at_all(self) -> bool:
        return bool(self.labels.metadata or self.labels.access)

    def _sync_item(
        self, item: FetchItem, container: str = "", contents: ContainerContents | None = None, depth: int = 0
    ) -> None:
        """Bring the store in step with a source, `depth` containers deep, or have it wait to be cut with others."""
        check_cancelled()
        stored, contents = self.diff.rows.get(item.uri), contents or ContainerContents(item.uri)
        try:
            if container:
                self.labels.contain(item.uri, container)
            container_result = self._open_container(item, stored, contents, depth + 1)
            self._update_source(item, stored, container_result, container)
        except Unreadable as failure:
            if not container and (path := self.listing.files[item.uri].path) and self.listing.is_deleted(path):
                self.tally.total -= 1
                self.diff.mark_deleted(item.uri)
            else:
                self._leave_unseen(item.uri, contents)
                self._fail(failure, item.reader.name, container)
        except DocumentError as error:  # by what the caller says of it
            row = stored or SourceRow(item.uri)
            row = row.but(size=item.row.size, mtime_ns=item.row.mtime_ns, reader=item.row.reader)
            self._fail(Unreadable(row, str(error), None), item.reader.name, container)
        finally:
            if "source" in vars(item):
                self.prefetch.drop(item.source.blob)
        batch = self.pending_batch
        if len(batch.pending) >= self._cut_at_once or batch.weight >= WEIGHT_AT_ONCE or self._is_late:
            self._cut(batch)

    def _open_container(
        self, item: FetchItem, stored: SourceRow | None, contents: ContainerContents, depth: int
    ) -> ContainerResult:
        """Bring the store in step with the members of a source.

        Its own row is written after theirs: a run that is killed between them finds it changed, and opens it again.
        """
        if not is_container(item.reader):
            return NOT_OPENED
        row = item.row
        stored_uris = self.diff.fetch_members(item.uri) if depth == 1 else ()
        is_whole = item.source.is_empty or row.size <= getattr(item.reader, "undivided", -1)
        if is_whole and not (stored_uris or item.source.is_unreadable):
            return NOT_OPENED
        if _is_same(stored, row) and item.uri not in self.diff.reopened:
            self._leave_members(self.diff.members_of(item.uri), contents)
            return NOT_OPENED
        parts, problem = 0, None
        items = contents.items(item.reader, item.source, depth, self.listing.files.readers, self.prefetch)
        try:
            for part in () if is_whole else self.prefetch.read_ahead(items, self._is_read):
                parts += 1
                self.tally.total += 1
                self._sync_item(part, item.uri, contents, depth)
        except (DocumentError, MissingExtra) as error:
            problem = error
        if problem is not None or item.source.is_unreadable:
            self._leave_unseen(item.uri, contents)
        if depth == 1:
            self.listing.unread.update(contents.unread)
            if gone := sorted(set(stored_uris) - contents.uris):
                self._cut(self.pending_batch)  # what has another name now is not made again
            for uri in gone:
                self._remove(uri)
        return ContainerResult(parts, contents.unread.total(), problem)

    def _leave_unseen(self, container: str, contents: ContainerContents) -> None:
        """Leave the members of a source that cannot be unpacked now, but remove those whose readers have changed."""
        self.diff.fetch_members(container)
        unseen = [uri for uri in self.diff.members_of(container) if uri not in contents.uris]
        stored_rows = (row for uri in unseen if (row := self.diff.rows[uri]).document)
        revoked = {row.uri for row in stored_rows if not self.metadata_diff.may_stay(row)}
        contents.uris.update(revoked)
        for uri in sorted(revoked):
            self._remove(uri)
        self._leave_members([uri for uri in unseen if uri not in revoked], contents)

    def _leave_members(self, parts: Iterable[str], contents: ContainerContents) -> None:
        for uri in parts:
            contents.uris.add(uri)
            if (row := self.diff.rows[uri]).status == "failed":
                self.tally.fail(row)
            elif uri in self.revoked.relabelled:
                self._count(uri, "changed")
            else:
                self.tally.count(uri, "unchanged")

    def _update_source(
        self, item: FetchItem, stored: SourceRow | None, container_result: ContainerResult, container: str
    ) -> None:
        row = item.row
        if stored is not None and _is_same(stored, row) and self.metadata_diff.is_same(stored):
            if (stored.size, stored.mtime_ns) != (row.size, row.mtime_ns):
                self.staging.touch(stored.but(size=row.size, mtime_ns=row.mtime_ns))
            self._finish(row.uri, "changed" if row.uri in self.revoked.relabelled else "unchanged")
        elif stored is not None and _is_same(stored, row) and self.metadata_diff.update_readers(stored):
            self._changes += 1
            self._finish(row.uri, "changed")
        elif stored is None and (old := self._find_moved(item, container)) is not None:
            self.staging.move(old.uri, old.but(uri=row.uri, size=row.size, mtime_ns=row.mtime_ns))
            self._changes += 1
            self._finish(row.uri, "moved")
        else:
            self._read_source(item, stored, container_result, container)

    def _read_source(
        self, item: FetchItem, stored: SourceRow | None, container_result: ContainerResult, container: str
    ) -> None:
        try:
            prepared = self.prefetch.prepare_source(item.reader, item.source)
            reading = prepared.reading if container_result is NOT_OPENED else container_result.add_to(prepared.reading)
        except (DocumentError, MissingExtra) as error:
            raise Unreadable(item.row, str(error), error) from error
        is_forced = self.listing.is_forced(item.uri)
        batch_item = BatchItem(
            reading, item.row, stored, prepared.pieces, container_result.parts, container, is_forced=is_forced
        )
        if reading.linked_images:
            batch_item.image_versions = self.linked_images.image_versions(reading)
            batch_item.pieces = {}  # they may see the pictures
            batch_item.reading = self.linked_images.add_images(reading)
        self.pending_batch.add(batch_item)

    def _find_moved(self, item: FetchItem, container: str) -> SourceRow | None:
        """Return the removed source with the same content, reader and labels, after giving it the new readers."""
        diff, uri = self.metadata_diff, item.uri
        for old in self.diff.find_gone(item.row.content_hash):
            if old.reader != item.row.reader or not (diff.is_same(old, uri) or diff.update_readers(old, uri)):
                continue
            report = DocumentReport.from_json(old.report) if old.report else None
            if report is not None and report.beside:
                continue  # other pictures stand beside it there
            del self.diff.gone[old.uri]
            return (
                old
                if report is None or report.within == container
                else old.but(report=report.but(within=container).json)
            )
        return None

    def _cut(self, batch: Batch) -> None:
        for item, result in batch.flush():
            if isinstance(result, Unreadable):
                self._fail(result, item.reading.document.id.rpartition(".")[2], item.container)
            else:
                self._changes += 1
                self.tally.warned += bool(result.warnings)
                self._finish(item.row.uri, "added" if item.stored is None else "changed")

    def _fail(self, failure: Unreadable, reader: str, container: str) -> None:
        """Note why a source could not be read, and how often it was tried. Its last good version stays."""
        stored, row = self.diff.rows.get(failure.row.uri), failure.row.but(document="")
        if stored is not None and self.metadata_diff.may_stay(stored):
            row = row.but(document=stored.document, report=stored.report)
        row = make_failed_row(row, failure.reason, failure.cause, stored, reader)
        row = row.but(report=DocumentReport.from_json(row.report).but(within=container).json)
        self.tally.fail(row)
        if stored is not None and (stored.status, stored.error, stored.document) == ("failed", row.error, row.document):
            self.staging.touch(row)  # nothing changes for who searches
        else:
            self.staging.fail(row)
            self._changes += 1
        self._finish(row.uri, "failed")

    def _finish(self, uri: str, outcome: SyncOutcome) -> None:
        self.tally.done += 1
        self._count(uri, outcome)
        self._publish_if_many()

    def _count(self, uri: str, outcome: SyncOutcome) -> None:
        """Count and tell what became of a source."""
        self.tally.count(uri, outcome)
        self._report_progress(uri, "" if outcome == "unchanged" else outcome)

    def _publish_if_many(self) -> None:
        if self.options.batch is None:  # all is published together at the end: until then only memory is freed
            if self.staging.weight >= STAGED_AT_ONCE:
                self.unembedded += embed(self.staging, self.builds, self._count_embedded, self.prefetch.embed_texts)
                self.staging.spill()
            return
        chunks = min(self.options.batch * CHUNKS_PER_DOCUMENT, MOST_CHUNKS)
        are_many = self._changes >= self.options.batch or self.tally.chunks - self._chunks >= chunks
        if are_many or self._is_late or self.staging.weight >= STAGED_AT_ONCE:
            self._publish()
            self.staging.join_full()

    @property
    def _is_late(self) -> bool:
        return self.options.batch is not None and time.monotonic() - self._published_at >= LONGEST_UNPUBLISHED_S

    def _publish(self) -> None:
        """Embed what has no vector yet, then make everything since the last time visible."""
        self.unembedded += embed(self.staging, self.builds, self._count_embedded, self.prefetch.embed_texts)
        self.staging.publish(self._build_new_groups)
        self.tally.publish(self.staging.conflicts)
        self._changes, self._chunks = 0, self.tally.chunks
        self._published_at = time.monotonic()

    def _build_new_groups(self, writer: AnyWriter) -> None:
        """Make and embed what another writer has added meanwhile to groups that this run defines."""
        own_manifests = self.staging.manifests
        builds = [build for build in self.builds if writer.manifests.get(build.group) == own_manifests[build.group]]
        for _ in build_groups(writer, builds) if self.options.batch is None else ():
            if writer is self.staging and self.staging.weight >= STAGED_AT_ONCE:
                self.unembedded += embed(writer, builds, self._count_embedded)
                self.staging.spill()
        self.unembedded += embed(writer, builds, self._count_embedded)

    def _count_embedded(self, count: int) -> None:
        self.tally.embedded += count
        self._report_progress("")

    def _report_progress(self, uri: str, change: str = "") -> None:
        self.tally.chunks = self._earlier + self.staging.node_counts[self.pending_batch.main]
        if self.options.progress is not None:
            done, total, failed = self.tally.done, self.tally.total, len(self.tally.failed)
            self.options.progress(Progress(done, total, uri, failed, self.tally.chunks, self.tally.embedded, change))


def _is_same(stored: SourceRow | None, row: SourceRow) -> bool:
    if stored is None or stored.status != "indexed":
        return False
    return (stored.content_hash, stored.reader) == (row.content_hash, row.reader)
