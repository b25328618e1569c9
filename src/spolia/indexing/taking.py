"""Taking a source: the store is brought in step with it, and with what stands in it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping

from spolia.core.run_context import check_cancelled
from spolia.errors import DocumentError, MissingExtra
from spolia.indexing.attempts import failed
from spolia.indexing.beside import Beside
from spolia.indexing.closing import Closed
from spolia.indexing.contents import NOT_OPENED, Contents, Opened
from spolia.indexing.files import Found
from spolia.indexing.filing import Filed, Filing
from spolia.indexing.held import Held
from spolia.indexing.intake import Intake, Taken, Unreadable
from spolia.indexing.known import Known
from spolia.indexing.labelled import Labelled
from spolia.indexing.labels import Labels
from spolia.indexing.parts import Wanted, behind
from spolia.indexing.readers.reader import Container
from spolia.indexing.report import DocumentReport, Progress
from spolia.indexing.tally import Tally
from spolia.stores.groups.growing import embed
from spolia.stores.staging import AnyWriter, Staging
from spolia.stores.tables.rows import SourceRow, Stamp, Unmade

CUT_AT_ONCE, WEIGHT_AT_ONCE = 64, 5_000_000
"""Documents whose nodes are made together, so that a transform asks its model for all of them at once; and their
characters and bytes of pictures, beyond which they are fewer."""
CHUNKS_PER_DOCUMENT = 20
MOST_CHUNKS, STAGED_AT_ONCE = 4_000, 32_000_000
"""A batch of documents is published early when it has more chunks than so many for each, or in all, or takes so many
characters and bytes of memory: other writers wait for as long as a batch is written."""
LONGEST_UNPUBLISHED_S = 60.0
"""Seconds after which what was read is published, however little it is: who stops a run over scans loses no hours."""


NOTHING = Closed()


class Taking:
    """What a run does with each source, and when it publishes.

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
        closed: what was published before.
        beside: the pictures that documents show.
        before: what an earlier round of the same run has counted and tried.
    """

    def __init__(
        self,
        writer: AnyWriter,
        wanted: Wanted,
        labels: Labels,
        found: Found,
        taking: Intake,
        known: Mapping[str, Stamp],
        progress: Callable[[Progress], None] | None,
        batch: int | None = None,
        retry: bool = True,
        closed: Closed = NOTHING,
        beside: Beside | None = None,
        before: Taking | None = None,
    ) -> None:
        self.writer, self.labels, self.found, self.progress, self.batch = writer, labels, found, progress, batch
        self.tally: Tally = before.tally if before else Tally()
        self.intake = taking
        self.retry, self.closed = retry, closed
        self.growths = wanted.growths(writer.manifests)
        self.unread: list[Unmade] = before.unread if before else []
        tried: set[str] = before.filing.tried if before else set()
        self.filing: Filing = Filing(writer, self.growths, wanted.main, labels, tried=tried)
        says = labels.access or labels.metadata or labels.kept is not None
        held = (
            Held(writer.held(found.uris), _none if found.uris is None else writer.held_as) if says else Held({}, _none)
        )
        self.labelled = Labelled(writer, labels, held, self.filing)
        self.beside = beside or Beside(found, labels)
        self.known = Known(writer, found, known, self.beside, all=self._looks_at_all)
        for container, parts in self.known.parts.items() if self._looks_at_all else ():
            for uri in parts:
                row = self.known.rows[uri]
                self.labels.contain(uri, (DocumentReport.of(row.report).within if row.report else "") or container)
        self._changes, self._chunks = 0, self.tally.chunks
        self._published_at = time.monotonic()

    @property
    def behind(self) -> tuple[tuple[str, str], ...]:
        """Groups that are not kept in step, and why."""
        return behind(self.growths)

    @property
    def conflicts(self) -> set[str]:
        """Sources that other writers have changed meanwhile; they are to be taken once more."""
        return self.writer.conflicts if isinstance(self.writer, Staging) else set()

    def _is_read(self, uri: str, row: SourceRow) -> bool:
        """Whether a source is read, as far as can be told before its turn comes."""
        before = self.known.get(uri)
        return not (_is_same(before, row) or (before is None and self.known.is_elsewhere(row.content_hash)))

    def _remove(self, uri: str) -> None:
        self.writer.remove(uri)
        self._tell_of_removed(uri)

    def _tell_of_removed(self, uri: str) -> None:
        self.tally.count(uri, "removed")
        self._tell(uri, "removed")

    @property
    def _looks_at_all(self) -> bool:
        """Whether more than its stamp can tell that a file has to be taken."""
        return bool(self.labels.metadata or self.labels.access)

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
            row = before or SourceRow(taken.uri)
            row = row.but(size=taken.row.size, mtime_ns=taken.row.mtime_ns, reader=taken.row.reader)
            self._fail(Unreadable(row, str(error), None), taken.reader.name, within)
        finally:
            taken.drop()
        if (
            len(self.filing.pending) >= min(CUT_AT_ONCE, self.batch or CUT_AT_ONCE)
            or self.filing.weight >= WEIGHT_AT_ONCE
            or self._is_late
        ):
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
        closed = {
            uri for uri in unseen if self.known.rows[uri].document and not self.labelled.may_stay(self.known.rows[uri])
        }
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
                self._count_same(uri)

    def _count_same(self, uri: str) -> str:
        """Count a source that holds what it held, unless for other readers by now; what became of it."""
        if uri in self.closed.relabelled:
            self.tally.count(uri, "changed")
            return "changed"
        self.tally.count(uri, "unchanged")
        return ""

    def _keep(self, taken: Taken, before: SourceRow | None, opened: Opened, within: str) -> None:
        row, change = taken.row, ""
        if before is not None and _is_same(before, row) and self.labelled.is_same(before):
            if (before.size, before.mtime_ns) != (row.size, row.mtime_ns):
                self.writer.touch(before.but(size=row.size, mtime_ns=row.mtime_ns))
            change = self._count_same(taken.uri)
        elif before is not None and _is_same(before, row) and self.labelled.gives_other_readers(before):
            self._changes += 1
            self.tally.count(taken.uri, "changed")
            change = "changed"
        elif before is None and (old := self._moved_from(taken, within)) is not None:
            self.writer.move(old.uri, old.but(uri=taken.uri, size=row.size, mtime_ns=row.mtime_ns))
            self._changes += 1
            self.tally.count(taken.uri, "moved")
            change = "moved"
        else:
            try:
                reading = opened.on(taken.read())
            except (DocumentError, MissingExtra) as error:
                raise Unreadable(row, str(error), error) from error
            beside = self.beside.seen_by(reading)
            reading = self.beside.on(reading) if reading.beside else reading
            reading = reading.but(document=self.labelled.on(reading.document, before))
            self.labelled.held.add(reading.document)
            self.filing.pending.append(Filed(reading, row, before is None, opened.parts, within, beside))
            return
        self._done(taken.uri, change)

    def _moved_from(self, taken: Taken, within: str) -> SourceRow | None:
        """The source that is gone and held the same, read and described in the same way; it gets the new readers."""
        for old in self.known.gone_with(taken.row.content_hash):
            if old.reader != taken.row.reader:
                continue
            if not (self.labelled.is_same(old, taken.uri) or self.labelled.gives_other_readers(old, taken.uri)):
                continue
            report = DocumentReport.of(old.report) if old.report else None
            if report is not None and report.beside:
                continue  # other pictures stand beside it there
            del self.known.gone[old.uri]
            return old if report is None or report.within == within else old.but(report=report.but(within=within).json)
        return None

    def _cut(self, filing: Filing) -> None:
        for filed, result in filing.flush():
            if isinstance(result, Unreadable):
                self._fail(result, filed.reading.document.id.rpartition(".")[2], filed.within)
            else:
                self.tally.put(filed.row.uri, result, is_new=filed.is_new)
                self._changes += 1
                self._done(filed.row.uri, "added" if filed.is_new else "changed")

    def _fail(self, failure: Unreadable, reader: str, within: str) -> None:
        """Note why a source could not be read, and how often it was tried. Its last good version stays."""
        before, row = self.known.get(failure.row.uri), failure.row.but(document="")
        if before is not None and self.labelled.may_stay(before):
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

    def _done(self, uri: str, change: str) -> None:
        self.tally.done += 1
        self._tell(uri, change)
        self._publish_if_many()

    def _publish_if_many(self) -> None:
        if self.batch is None:
            return
        chunks = min(self.batch * CHUNKS_PER_DOCUMENT, MOST_CHUNKS)
        are_many = self._changes >= self.batch or self.tally.chunks - self._chunks >= chunks
        if are_many or self._is_late or self.writer.weight >= STAGED_AT_ONCE:
            self._publish()

    @property
    def _is_late(self) -> bool:
        """Whether nothing was published for long, where parts of a run are published at all."""
        return self.batch is not None and time.monotonic() - self._published_at >= LONGEST_UNPUBLISHED_S

    def _publish(self) -> None:
        """Embed what has no vector yet, then make everything since the last time visible."""
        self.unread += embed(self.writer, self.growths, self._embedded)
        self.writer.publish()
        self.tally.take_back(self.conflicts & self.tally.counted.keys())
        self.tally.counted.clear()
        self._changes, self._chunks = 0, self.tally.chunks
        self._published_at = time.monotonic()

    def _embedded(self, count: int) -> None:
        self.tally.embedded += count
        self._tell("")

    def _tell(self, uri: str, change: str = "") -> None:
        if self.progress is not None:
            self.progress(self.tally.progress(uri, change))


def _none(id: str) -> None:
    """No source holds it."""


def _is_same(before: SourceRow | None, row: SourceRow) -> bool:
    """Whether a source was indexed with this content by this reader."""
    return before is not None and before.status == "indexed" and _content(before) == _content(row)


def _content(row: SourceRow) -> tuple[str, str]:
    return row.content_hash, row.reader
