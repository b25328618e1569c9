"""Sources on their way to being documents: loaded, and read by workers or in this process, ahead of who files them."""

from __future__ import annotations

import os
import shutil
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from contextvars import copy_context
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import chain, islice
from pathlib import Path
from tempfile import mkstemp
from typing import TYPE_CHECKING

from spolia.core.run_context import check_cancelled, on_cancel
from spolia.errors import DocumentError, SpoliaError, WorkersFailed
from spolia.indexing.readers.reader import (
    Blob,
    Container,
    FileReader,
    Reading,
    is_container,
    is_isolated,
    versioned_name,
)
from spolia.indexing.sync.files import IN_MEMORY, File
from spolia.indexing.workers.pool import HERE, WorkerProcesses
from spolia.indexing.workers.prepare import NOTHING, Executor, InProcess, Prepared, SplitPlan
from spolia.indexing.workers.protocol import WorkerLimits
from spolia.stores.backends.rows import SourceRow, in_batches
from spolia.stores.files import claim_run_folder
from spolia.stores.groups.group_build import EMBEDDED_AT_ONCE, Texts, embed_in_turn
from spolia.stores.groups.nodes import GroupBuild
from spolia.types import kept
from spolia.types.value import maker
from spolia.worker_process import pickle_value

if TYPE_CHECKING:
    from spolia.models.protocols import Embedder
    from spolia.types.arrays import Vectors

MOST_WORKERS = 4
MANY_CALLS = 4
"""Calls of an embedder from which on it is worth while to have processes compute them: each first opens its weights."""
LONGEST_TEXT, LARGEST_HERE = 200_000_000, 900_000_000
"""Characters of a document, which a store can take, and bytes that are read in this process."""
AHEAD, AHEAD_BYTES = 8, 32 << 20
"""Files that are read ahead for each worker, so that none waits while another has a long one; bytes of all these."""


class Unreadable(Exception):
    """A source that no document can be got out of; `cause` is None where it is not the source's fault."""

    def __init__(self, row: SourceRow, reason: str, cause: Exception | None) -> None:
        super().__init__(reason)
        self.row, self.reason, self.cause = row, reason, cause


@dataclass(frozen=True)
class FetchedSource:
    """A source's bytes, the row that stands for them, and what became of them; None where nothing was read yet."""

    blob: Blob
    row: SourceRow
    prepared: Prepared | Unreadable | None = None

    @property
    def is_unreadable(self) -> bool:
        """Whether it is known by now that there is no document in it."""
        return isinstance(self.prepared, Unreadable)

    @property
    def is_empty(self) -> bool:
        """Whether it is known to be empty."""
        return self.is_unreadable or getattr(self.prepared, "has_parts", None) is False


@dataclass(eq=False)
class FetchItem:
    """Something to read, of `size` bytes as far as is known. What was not begun ahead is done when it is asked for."""

    uri: str
    reader: FileReader
    size: int
    fetch: Callable[[], FetchedSource]
    begun: Future[FetchedSource] | None = None

    @kept
    def found(self) -> FetchedSource:
        """Its bytes; raises `Unreadable` if they cannot be had."""
        if self.begun is None:
            return self.fetch()
        try:
            return self.begun.result()
        finally:
            check_cancelled()

    @kept
    def row(self) -> SourceRow:
        """The row that stands for its bytes."""
        return self.found.row


def fetched(file: File, before: SourceRow | None, spool: Path | None = None) -> FetchedSource:
    """The bytes of a file; where they cannot be had (`Unreadable`), the document that they held `before` stays."""
    reader = versioned_name(file.reader)
    try:
        loaded = file.load(spool)
    except (OSError, SpoliaError) as error:
        row = (before or SourceRow(file.uri)).but(size=file.size, mtime_ns=file.mtime_ns, reader=reader)
        if isinstance(error, OSError):
            raise Unreadable(row, f"It cannot be read: {error.strerror}.", None) from error
        raise Unreadable(row, str(error), error) from error
    blob = _blob(file.uri, loaded.content)
    row = _source_row(
        file.uri,
        loaded.size,
        loaded.mtime_ns,
        blob.content_hash,
        created_ns=loaded.created_ns,
        accessed_ns=loaded.accessed_ns,
        reader=reader,
    )
    return FetchedSource(blob, row)


_blob, _source_row = maker(Blob), maker(SourceRow)


class Prefetch:
    """Reads sources ahead.

    Args:
        count: how many calls the executor takes at the same time; 0 to do all in this process.
        make: makes the executor, for readers that are to be apart, large files, and embedders that compute.
        is_first: whether no other run began before to read for the same store.
        all: send it whatever can be sent.
    """

    def __init__(
        self, count: int, make: Callable[[], Executor], spool: Path, *, is_first: bool = True, all: bool = False
    ) -> None:
        self.count, self._make, self.spool, self.is_first, self.all = count, make, spool, is_first, all
        self._is_ended = False
        self.plan, self._here = NOTHING, InProcess()
        self.threads = ThreadPoolExecutor(max(1, count), thread_name_prefix="spolia-read")
        self._sent: dict[int, tuple[object, bool]] = {}
        self._sampled: dict[str, FetchedSource] = {}

    @cached_property
    def executor(self) -> Executor:
        """Made when the first file needs it."""
        made = self._make()
        if self._is_ended:  # a cancellation came first
            made.end()
        return made

    def end(self) -> None:
        """End what is under way elsewhere, also while somebody waits for it."""
        self._is_ended = True
        if "executor" in self.__dict__:
            self.executor.end()

    def sample(self, file: File) -> Reading:
        """What is in a file whose turn has not come yet; it is not read again then. May raise `Unreadable`."""
        found = self._sampled[file.uri] = self._looked(file.reader, fetched(file, None))
        return self.prepared(file.reader, found).reading

    def ahead(self, items: Iterable[FetchItem], is_wanted: Callable[[str, SourceRow], bool]) -> Iterator[FetchItem]:
        """Items in their order, while workers read the next ones that probably are wanted (asked in threads)."""
        waiting, under_way = deque[FetchItem](), deque[FetchItem]()

        def next_one() -> FetchItem:
            if waiting[0].begun is not None:
                under_way.popleft()
            return waiting.popleft()

        try:
            for item in items:
                if self._is_apart(item.reader, item.size):
                    item.begun = self.threads.submit(copy_context().run, self._work, item, is_wanted)
                    under_way.append(item)
                elif not waiting:
                    yield item
                    continue
                waiting.append(item)
                while waiting and (waiting[0].begun is None or self._is_enough([one.size for one in under_way])):
                    yield next_one()
            while waiting:
                yield next_one()
        finally:
            for item in under_way:
                if item.begun is not None:
                    item.begun.cancel()

    def _is_enough(self, sizes: Sequence[int]) -> bool:
        """Whether nothing more is begun before the first is taken."""
        return len(sizes) > (AHEAD if sum(sizes) <= AHEAD_BYTES else 2) * self.count

    def _work(self, item: FetchItem, is_wanted: Callable[[str, SourceRow], bool]) -> FetchedSource:
        found = item.fetch()
        return self._looked(item.reader, found) if is_wanted(item.uri, found.row) else found

    def _looked(self, reader: FileReader, found: FetchedSource) -> FetchedSource:
        return replace(found, prepared=self._outcome(reader, found))

    def _outcome(self, reader: FileReader, found: FetchedSource) -> Prepared | Unreadable | None:
        sampled = self._sampled.pop(found.row.uri, None)
        if sampled is not None and sampled.row.content_hash == found.row.content_hash:
            return sampled.prepared
        try:
            return self._prepare(reader, found)
        except Unreadable as failure:
            return failure

    def prepared(self, reader: FileReader, found: FetchedSource) -> Prepared:
        """What becomes of a source; `Unreadable` if its reader refuses it, failed or died on it."""
        made = found.prepared or self._outcome(reader, found)
        if isinstance(made, Unreadable):
            raise made
        assert made is not None
        return made

    def _prepare(self, reader: FileReader, found: FetchedSource) -> Prepared:
        try:
            is_apart = self._is_apart(reader, found.blob.size)
            if not is_apart and found.blob.size > LARGEST_HERE and not is_container(reader):
                raise DocumentError(f"It has {found.blob.size} bytes; {LARGEST_HERE} are read at most. Split it.")
            executor, plan = (self.executor, self._sent_plan) if is_apart else (self._here, NOTHING)
            made = executor.prepare(reader, found.blob, plan)
            if made.reading.document.uri != found.blob.uri:  # whose readers and metadata would be those of another file
                raise DocumentError(
                    f"The {reader.name} reader gave a document of {made.reading.document.uri!r:.80} for "
                    f"{found.blob.uri!r:.80}. Make it with blob.document(reader, text)."
                )
            if len(made.reading.document.text) > LONGEST_TEXT:
                raise DocumentError(f"Its text has more than {LONGEST_TEXT} characters. Split it.")
        except WorkersFailed:
            raise
        except SpoliaError as error:
            raise Unreadable(found.row, str(error), error) from error
        except Exception as error:  # a reader's fault on a strange file must not stop the others; it is recorded
            raise Unreadable(found.row, _fault(reader, error), error) from error
        return made

    def parts(self, container: Container, blob: Blob) -> Iterator[Blob]:
        """The members of a container, large ones as copies; DocumentError if it cannot be unpacked."""
        if self._is_apart(container, blob.size):
            yield from self.executor.parts(container, blob)
            return
        try:
            for part in self._here.parts(container, blob):
                yield self._kept(part)
        except SpoliaError:
            raise
        except Exception as error:
            raise DocumentError(_fault(container, error)) from error

    def _kept(self, part: Blob) -> Blob:
        if isinstance(part.content, bytes):
            return part
        copy, name = mkstemp(dir=self.spool)
        os.close(copy)
        shutil.copyfile(part.content, name)
        return Blob(part.uri, Path(name))

    def drop(self, blob: Blob) -> None:
        if isinstance(blob.content, Path) and blob.content.parent == self.spool:
            blob.content.unlink(missing_ok=True)

    def _is_apart(self, reader: FileReader | Container, size: int) -> bool:
        is_wanted = self.count and (self.all or is_isolated(reader) or size > IN_MEMORY)
        return bool(is_wanted) and self._is_sendable(reader)

    def _is_sendable(self, given: object) -> bool:
        if id(given) not in self._sent:
            try:
                pickle_value(given, HERE)
                self._sent[id(given)] = given, True
            except SpoliaError:
                self._sent[id(given)] = given, False
        return self._sent[id(given)][1]

    def follow(self, builds: Iterable[GroupBuild]) -> None:
        """Split what is read from now on for these groups."""
        self.plan = SplitPlan.of(builds)
        self.__dict__.pop("_sent_plan", None)

    @cached_property
    def _sent_plan(self) -> SplitPlan:
        return SplitPlan.of(one for one in self.plan.groups if self._is_sendable(one.transform))

    def embedded(self, embedder: Embedder, calls: Iterable[Texts]) -> Iterator[tuple[Texts, Vectors]]:
        """The vectors of texts. Many of them are computed by the executor, where the embedder says so (`apart`).

        All calls under way have together as many texts as one call in this process, so that no more are lost by a kill.
        """
        count, calls = self.count, iter(calls)
        first = list(islice(calls, MANY_CALLS))
        is_wanted = count and (self.all or is_isolated(embedder)) and len(first) == MANY_CALLS
        if not (is_wanted and self._is_sendable(embedder)):
            yield from embed_in_turn(embedder, chain(first, calls))
            return
        waiting: deque[tuple[Texts, Future[Vectors]]] = deque()
        texts = chain.from_iterable(chain(first, calls))
        try:
            for some in in_batches(texts, max(1, EMBEDDED_AT_ONCE // (count + 1))):
                call = partial(self.executor.embed, embedder, [text for _, text in some])
                waiting.append((some, self.threads.submit(copy_context().run, call)))
                if len(waiting) > count:
                    yield self._result(waiting)
            while waiting:
                yield self._result(waiting)
        finally:
            for _, future in waiting:
                future.cancel()

    def _result(self, waiting: deque[tuple[Texts, Future[Vectors]]]) -> tuple[Texts, Vectors]:
        some, future = waiting.popleft()
        try:
            return some, future.result()
        finally:
            check_cancelled()


def _fault(reader: FileReader | Container, error: Exception) -> str:
    return f"The {reader.name} reader failed on it: {type(error).__name__}: {error}"


@contextmanager
def open_prefetch(
    folder: Path, workers: int | Executor | None = None, limits: WorkerLimits | None = None
) -> Iterator[Prefetch]:
    """What reads the sources of a run. In `folder` a folder for copies is made until then; those of killed runs go."""
    spool, lock, is_first = claim_run_folder(folder)
    count = min(MOST_WORKERS, os.cpu_count() or 1) if workers is None else workers
    if isinstance(count, int):
        made = Prefetch(count, partial(WorkerProcesses, count, limits, spool), spool, is_first=is_first)
    else:
        made = Prefetch(count.count, lambda: count, spool, is_first=is_first, all=getattr(count, "takes_all", True))
    try:
        with on_cancel(made.end):
            yield made
    finally:
        made.end()
        made.threads.shutdown(cancel_futures=True)
        shutil.rmtree(spool, ignore_errors=True)
        os.close(lock)
        with suppress(OSError):  # another run has its folder there
            spool.parent.rmdir()
