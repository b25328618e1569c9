"""One run over the sources of a store: what is known beside what is there."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import closing, contextmanager
from functools import cache

from spolia.errors import FolderError
from spolia.filters import Field, notes_on
from spolia.indexing.beside import Beside
from spolia.indexing.closing import Closed, above, close
from spolia.indexing.files import File, Found, Lot
from spolia.indexing.intake import Item, fetched, intake
from spolia.indexing.labels import Labels
from spolia.indexing.parts import Wanted, makeshift
from spolia.indexing.report import Progress, SyncReport
from spolia.indexing.same_folder import FOLDER, ROOT
from spolia.indexing.taking import Taking
from spolia.indexing.workers.protocol import WorkerLimits
from spolia.stores.corpus import Corpus
from spolia.stores.groups.materialising import materialise, refuse_away
from spolia.stores.groups.storing import make_up
from spolia.stores.manifest import Manifest
from spolia.stores.staging import AnyWriter, Staging
from spolia.stores.tables.rows import Stamp
from spolia.stores.writer import Writer


def keep(
    corpus: Corpus,
    found: Found,
    wanted: Wanted,
    labels: Labels,
    *,
    refuse: Callable[[Mapping[str, Stamp], str], None] | None = None,
    fields: Sequence[Field] | None = None,
    progress: Callable[[Progress], None] | None = None,
    batch: int = 1000,
    rebuild: bool = False,
    retry: bool = True,
    afresh: bool = False,
    workers: int | None = None,
    limits: WorkerLimits | None = None,
    timeout_s: float | None = None,
) -> SyncReport:
    """Bring a store, made if it is not there, in step with what was found; see `sync`.

    Args:
        refuse: raises if the store holds, with these sources, another folder than was found.
        afresh: try all again that could not be read, however often it was tried.
    """
    began = time.perf_counter()
    corpus.create()
    wait_s = corpus.wait_s if timeout_s is None else timeout_s
    run: Keeping | None = None
    notes: tuple[str, ...] = ()
    with intake(corpus.truth.folder, workers, limits) as taking:
        lot = found
        while run is None or run.conflicts:
            if run is not None:
                lot, refuse = _again(found, run.conflicts), None
            with _opened(corpus, wait_s, whole=rebuild) as writer:
                labels = labels if run is None else _not_wider(labels, writer.readers(lot.uris))
                known = writer.stamps(lot.uris)
                is_other = _is_other(refuse, known, writer, rebuild=rebuild)
                labels.refuse_bad_readers(lot.files)
                if labels.access is None and writer.is_restricted():
                    is_closed = cache(writer.is_restricted_now)
                    labels = labels.anew(kept=writer.readers(lot.uris), is_closed=is_closed)
                closed = Closed() if is_other else close(writer, lot, labels, known, taking)
                if closed.removed:
                    known = writer.stamps(lot.uris)
                before = writer.schema
                if fields is not None:
                    writer.declare(fields)
                made = dict(writer.manifests)
                renews = wanted.define(writer, lot, taking, rebuild=rebuild)
                wanted.refuse_changed(writer.manifests)
                if renews:
                    known = writer.stamps(lot.uris)
                is_anew = rebuild and made and made != writer.manifests  # what was there is found until all is made
                batches, beside = None if is_anew else batch, Beside(found, labels)
                run = Keeping(
                    writer, wanted, labels, lot, taking, known, progress, batches, retry, closed, beside, run
                )  # fmt: skip
                run.run(recount=renews, anew=_anew(made, writer.manifests) if is_anew else (), afresh=afresh)
                notes = notes_on(writer.declared, writer.metadata()) if writer.declared != before else notes
    if wanted.groups:
        tell = run.tell_of_groups
        run.unread += materialise(wanted.groups, retry=False, known=wanted.known, tell=tell, wait_s=timeout_s)
    published = corpus.latest()
    report = run.tally.report(published.generation, found, time.perf_counter() - began)
    unmade = tuple(dict.fromkeys((*published.unmade(), *(lack for lack in run.unread if lack.document))))
    left = (*run.behind, *makeshift(run.growths, run.unread))
    return report.but(unmade=unmade, behind=left, fields=notes)


@contextmanager
def _opened(corpus: Corpus, wait_s: float, *, whole: bool) -> Iterator[AnyWriter]:
    """What takes the changes of a run: they are collected without the writer's lock, and committed batch by batch.

    Args:
        whole: have all changes in one transaction, which holds the lock: where groups are built anew, readers see none
            of it before it is complete.
    """
    writer = Writer(corpus.truth, wait_s) if whole else Staging(corpus.truth, wait_s)
    with closing(writer):
        yield writer
        writer.publish()


def _again(found: Found, conflicts: Set[str]) -> Lot:
    """The sources that another writer has changed meanwhile, each with the container that it is in."""
    outermost = {next((one for one in (*above(uri), uri) if one in found.files), uri) for uri in conflicts}
    files = found.files.only(uri for uri in found.files if uri in outermost)
    return Lot(files, source=found.source, cursors=found.cursors, gone=frozenset(outermost - files.keys()))


def _not_wider(labels: Labels, there: Mapping[str, tuple[str, ...]]) -> Labels:
    """What the caller says, but no more readers than another writer has left meanwhile.

    Args:
        there: who may read what the store has now, by uri.
    """
    if (said := labels.access) is None:
        return labels.anew()

    def access(uri: str) -> Iterable[str]:
        named, kept = tuple(said(uri)), there.get(uri, ())
        return named if not kept or (named and set(named) <= set(kept)) else kept

    return labels.anew(access=access)


def _is_other(
    refuse: Callable[[Mapping[str, Stamp], str], None] | None,
    known: Mapping[str, Stamp],
    writer: AnyWriter,
    *,
    rebuild: bool,
) -> bool:
    """Whether a store holds another folder, which is found until all of this one is there."""
    try:
        if refuse is not None:
            refuse(known, writer.cursor(FOLDER, ROOT))
    except FolderError:
        if not rebuild:
            raise
        return True
    return False


def _anew(made: Mapping[str, Manifest], now: Mapping[str, Manifest]) -> list[str]:
    """Groups that had nodes which were made otherwise."""
    return [name for name, there in made.items() if name in now and there.signature != now[name].signature]


class Keeping(Taking):
    """One run: its order."""

    def run(self, *, recount: bool = False, anew: Collection[str] = (), afresh: bool = False) -> None:
        """Bring the store in step.

        Args:
            recount: the main group was built anew, so that no report tells its nodes any more.
            anew: groups that would lose what they have if their model is away.
            afresh: try all again that could not be read.
        """
        self._open_stale_to_those_who_may_read_it()
        given_up = self.known.given_up(retry=self.retry, afresh=afresh)
        for row in given_up:
            self.tally.fail(row)
        changed = self._changed({row.uri for row in given_up})
        self.tally.total += len(changed)
        self.tally.unchanged += len(self.found.files) - len(changed) + self._parts_left_alone(changed) - len(given_up)
        self._tell_of_closed({file.uri for file in changed})
        if not self.intake.is_first:  # from the other end than the run that is under way, so that the two meet
            changed.reverse()
        for taken in self.intake.ahead(self._items(changed), self._is_read):
            self._take(taken)
        self._cut(self.filing)
        for uri in self.known.gone:
            self._remove(uri)
        self._make_up()
        for document in self.writer.documents() if recount else ():
            if document.id not in self.filing.counted:
                self.filing.recount(document)
        refuse_away(growth for growth in self.growths if growth.group in anew)
        self.writer.remember(self.found.source, self.found.cursors)
        self._publish()

    def _tell_of_closed(self, changed: Set[str]) -> None:
        """Count and tell what was published before; what is taken for other reasons too is told when its turn comes."""
        for uri in self.closed.removed:
            self._tell_of_removed(uri)
        for uri in sorted(self.closed.relabelled):
            if changed.isdisjoint((uri, *above(uri))):
                self.tally.total, self.tally.done = self.tally.total + 1, self.tally.done + 1
                self.tally.unchanged -= 1
                self.tally.count(uri, "changed")
                self._tell(uri, "changed")

    def _open_stale_to_those_who_may_read_it(self) -> None:
        """A source that is not tried again may have other readers by now all the same."""
        for uri, row in self.known.rows.items() if self.labels.access else ():
            if row.is_stale and uri not in self.known.gone and not self.labelled.may_stay(row):
                self.writer.fail(row.but(document=""))

    def _changed(self, given_up: set[str]) -> list[File]:
        """Files that are not as they were when they were indexed, or of which the caller says something else now."""
        if self._looks_at_all:
            for uri in (uri for parts in self.known.parts.values() for uri in parts):
                if self.known.rows[uri].status == "indexed" and self.labelled.differs(self.known.rows[uri]):
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
        return uri in self.known.reopened or (self._looks_at_all and self.labelled.differs(self.known.rows[uri]))

    def _parts_left_alone(self, changed: Sequence[File]) -> int:
        """How much stands in containers that are not opened."""
        opened = {file.uri for file in changed}
        return sum(len(parts) for container, parts in self.known.parts.items() if container not in opened)

    def _items(self, files: Iterable[File]) -> Iterator[Item]:
        """Files to take, but those that another run has published meanwhile."""
        for file in files:
            if isinstance(self.writer, Staging) and self.writer.is_changed(file.uri):
                self.tally.total -= 1
            else:
                yield self._item(file)

    def _item(self, file: File) -> Item:
        before = self.known.get(file.uri)
        return Item(file.uri, file.reader, file.size, lambda: fetched(file, before, self.intake.spool))

    def _make_up(self) -> None:
        """Make what is lacking of documents that this run has left alone: what could not be made is tried again."""
        if isinstance(self.writer, Staging) and self.writer.defines:
            self._publish()
        made = {growth.group for growth in self.growths} - {group for group, _ in self.behind}
        unmade = [
            lack
            for lack in self.writer.unmade()
            if lack.document not in self.filing.tried and lack.group in made and (self.retry or lack.is_untried)
        ]
        for one in make_up(self.writer, self.growths, unmade):
            self.filing.tried.add(one.document.id)
            if self.filing.main in one.made:
                self.tally.chunks += self.filing.recount(one.document)
            self._changes += 1
            self._tell(one.document.uri)
            self._publish_if_many()

    def tell_of_groups(self, group: str, documents: int, embedded: int) -> None:
        """Pass on how far the building of further groups is."""
        self._embedded(embedded)
