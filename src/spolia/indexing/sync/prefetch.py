"""Prefetch of sources: they are loaded, and read by workers or in this process, before they are stored."""

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
from spolia.indexing.workers.prepare import EMPTY_PLAN, Executor, InProcess, Prepared, SplitPlan
from spolia.indexing.workers.protocol import WorkerLimits
from spolia.stores.backends.rows import SourceRow, in_batches
from spolia.stores.files import claim_run_folder
from spolia.stores.groups.group_build import EMBEDDED_AT_ONCE, Texts, embed_in_turn
from spolia.stores.groups.nodes import GroupBuild
from spolia.types import lazy_property
from spolia.types.value import unchecked_constructor
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
    """Failure to read a source; `cause` is None if it is not the source's fault."""

    def __init__(self, row: SourceRow, reason: str, cause: Exception | None) -> None:
        super().__init__(reason)
        self.row, self.reason, self.cause = row, reason, cause


@dataclass(frozen=True)
class FetchedSource:
    """Bytes of a source, the row that stands for them, and what was read from them; None if nothing was read yet."""

    blob: Blob
    row: SourceRow
    prepared: Prepared | Unreadable | None = None

    @property
    def is_unreadable(self) -> bool:
        """Return whether it is known by now that it holds no document."""
        return isinstance(self.prepared, Unreadable)

    @property
    def is_empty(self) -> bool:
        """Return whether it is known to be empty."""
        return self.is_unreadable or getattr(self.prepared, "has_parts", None) is False


@dataclass(eq=False)
class FetchItem:
    """Source to fetch, of `size` bytes as far as is known; if it was not begun ahead, it is fetched on first use."""

    uri: str
    reader: FileReader
    size: int
    fetch: Callable[[], FetchedSource]
    begun: Future[FetchedSource] | None = None

    @lazy_property
    def source(self) -> FetchedSource:
        """Return the fetched source; raise `Unreadable` if its bytes cannot be had."""
        if self.begun is None:
            return self.fetch()
        try:
            return self.begun.result()
        finally:
            check_cancelled()

    @lazy_property
    def row(self) -> SourceRow:
        """Return the row that stands for its bytes."""
        return self.source.row


def fetch_file(file: File, stored: SourceRow | None, spool: Path | None = None) -> FetchedSource:
    """Load a file; if it cannot be loaded (`Unreadable`), the document of the `stored` row stays."""
    reader = versioned_name(file.reader)
    try:
        loaded = file.load(spool)
    except (OSError, SpoliaError) as error:
        row = (stored or SourceRow(file.uri)).but(size=file.size, mtime_ns=file.mtime_ns, reader=reader)
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


_blob, _source_row = unchecked_constructor(Blob), unchecked_constructor(SourceRow)


class Prefetch:
    """Reader of sources ahead of their turn.

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
        self.plan, self._here = EMPTY_PLAN, InProcess()
        self.threads = ThreadPoolExecutor(max(1, count), thread_name_prefix="spolia-read")
        self._sendable: dict[int, tuple[object, bool]] = {}
        self._sampled: dict[str, FetchedSource] = {}

    @cached_property
    def executor(self) -> Executor:
        """Make the executor when the first file needs it."""
        executor = self._make()
        if self._is_ended:  # a cancellation came first
            executor.end()
        return executor

    def end(self) -> None:
        """End what is under way elsewhere, also while a caller waits for it."""
        self._is_ended = True
        if "executor" in self.__dict__:  # asked as a property, it would be made now
            self.executor.end()

    def sample(self, file: File) -> Reading:
        """Read a file before its turn; it is not read again then. May raise `Unreadable`."""
        source = self._sampled[file.uri] = self._with_outcome(file.reader, fetch_file(file, None))
        return self.prepare_source(file.reader, source).reading

    def read_ahead(
        self, items: Iterable[FetchItem], is_wanted: Callable[[str, SourceRow], bool]
    ) -> Iterator[FetchItem]:
        """Yield items in order, while workers read the next ones that are probably wanted (`is_wanted` runs in
        threads)."""
        waiting, under_way = deque[FetchItem](), deque[FetchItem]()

        def take_next() -> FetchItem:
            if waiting[0].begun is not None:
                under_way.popleft()
            return waiting.popleft()

        try:
            for item in items:
                if self._is_apart(item.reader, item.size):
                    # The context goes along: a thread of a pool knows nothing of the run, its budget and its end.
                    item.begun = self.threads.submit(copy_context().run, self._fetch_ahead, item, is_wanted)
                    under_way.append(item)
                elif not waiting:
                    yield item
                    continue
                waiting.append(item)
                while waiting and (
                    waiting[0].begun is None or self._is_enough([begun_item.size for begun_item in under_way])
                ):
                    yield take_next()
            while waiting:
                yield take_next()
        finally:
            for item in under_way:
                if item.begun is not None:
                    item.begun.cancel()

    def _is_enough(self, sizes: Sequence[int]) -> bool:
        """Return whether nothing more is begun before the first item is taken."""
        return len(sizes) > (AHEAD if sum(sizes) <= AHEAD_BYTES else 2) * self.count

    def _fetch_ahead(self, item: FetchItem, is_wanted: Callable[[str, SourceRow], bool]) -> FetchedSource:
        source = item.fetch()
        return self._with_outcome(item.reader, source) if is_wanted(item.uri, source.row) else source

    def _with_outcome(self, reader: FileReader, source: FetchedSource) -> FetchedSource:
        return replace(source, prepared=self._try_prepare(reader, source))

    def _try_prepare(self, reader: FileReader, source: FetchedSource) -> Prepared | Unreadable | None:
        sampled = self._sampled.pop(source.row.uri, None)
        if sampled is not None and sampled.row.content_hash == source.row.content_hash:
            return sampled.prepared
        try:
            return self._prepare(reader, source)
        except Unreadable as failure:
            return failure

    def prepare_source(self, reader: FileReader, source: FetchedSource) -> Prepared:
        """Return what was read from a source; raise `Unreadable` if its reader refuses it, failed or died on it."""
        prepared = source.prepared or self._try_prepare(reader, source)
        if isinstance(prepared, Unreadable):
            raise prepared
        assert prepared is not None
        return prepared

    def _prepare(self, reader: FileReader, source: FetchedSource) -> Prepared:
        try:
            is_apart = self._is_apart(reader, source.blob.size)
            if not is_apart and source.blob.size > LARGEST_HERE and not is_container(reader):
                raise DocumentError(f"It has {source.blob.size} bytes; {LARGEST_HERE} are read at most. Split it.")
            executor, plan = (self.executor, self._sent_plan) if is_apart else (self._here, EMPTY_PLAN)
            prepared = executor.prepare(reader, source.blob, plan)
            # Its readers and metadata would be those of another file.
            if prepared.reading.document.uri != source.blob.uri:
                raise DocumentError(
                    f"The {reader.name} reader gave a document of {prepared.reading.document.uri!r:.80} for "
                    f"{source.blob.uri!r:.80}. Make it with blob.document(reader, text)."
                )
            if len(prepared.reading.document.text) > LONGEST_TEXT:
                raise DocumentError(f"Its text has more than {LONGEST_TEXT} characters. Split it.")
        except WorkersFailed:
            raise
        except SpoliaError as error:
            raise Unreadable(source.row, str(error), error) from error
        except Exception as error:  # a reader's fault on a strange file must not stop the others; it is recorded
            raise Unreadable(source.row, _describe_fault(reader, error), error) from error
        return prepared

    def parts(self, container: Container, blob: Blob) -> Iterator[Blob]:
        """Yield the members of a container, large ones as copies; raise DocumentError if it cannot be unpacked."""
        if self._is_apart(container, blob.size):
            yield from self.executor.parts(container, blob)
            return
        try:
            for part in self._here.parts(container, blob):
                yield self._copy_part(part)
        except SpoliaError:
            raise
        except Exception as error:
            raise DocumentError(_describe_fault(container, error)) from error

    def _copy_part(self, part: Blob) -> Blob:
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

    def _is_sendable(self, value: object) -> bool:
        # The value is kept with the answer: else its id could go to another object.
        if id(value) not in self._sendable:
            try:
                pickle_value(value, HERE)
                self._sendable[id(value)] = value, True
            except SpoliaError:
                self._sendable[id(value)] = value, False
        return self._sendable[id(value)][1]

    def follow(self, builds: Iterable[GroupBuild]) -> None:
        """Split what is read from now on for these groups."""
        self.plan = SplitPlan.from_builds(builds)
        self.__dict__.pop("_sent_plan", None)  # it was made of the builds before

    @cached_property
    def _sent_plan(self) -> SplitPlan:
        return SplitPlan.from_builds(group for group in self.plan.groups if self._is_sendable(group.transform))

    def embed_texts(self, embedder: Embedder, calls: Iterable[Texts]) -> Iterator[tuple[Texts, Vectors]]:
        """Yield the vectors of texts. The executor computes them if there are many and the embedder allows it
        (`apart`).

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
            for batch in in_batches(texts, max(1, EMBEDDED_AT_ONCE // (count + 1))):
                call = partial(self.executor.embed, embedder, [text for _, text in batch])
                waiting.append((batch, self.threads.submit(copy_context().run, call)))
                if len(waiting) > count:
                    yield self._take_result(waiting)
            while waiting:
                yield self._take_result(waiting)
        finally:
            for _, future in waiting:
                future.cancel()

    def _take_result(self, waiting: deque[tuple[Texts, Future[Vectors]]]) -> tuple[Texts, Vectors]:
        batch, future = waiting.popleft()
        try:
            return batch, future.result()
        finally:
            check_cancelled()


def _describe_fault(reader: FileReader | Container, error: Exception) -> str:
    return f"The {reader.name} reader failed on it: {type(error).__name__}: {error}"


@contextmanager
def open_prefetch(
    folder: Path, workers: int | Executor | None = None, limits: WorkerLimits | None = None
) -> Iterator[Prefetch]:
    """Open the prefetch of a run. A folder for copies is made in `folder` until it ends; those of killed runs go."""
    spool, lock, is_first = claim_run_folder(folder)
    count = min(MOST_WORKERS, os.cpu_count() or 1) if workers is None else workers
    if isinstance(count, int):
        prefetch = Prefetch(count, partial(WorkerProcesses, count, limits, spool), spool, is_first=is_first)
    else:
        prefetch = Prefetch(count.count, lambda: count, spool, is_first=is_first, all=getattr(count, "takes_all", True))
    try:
        with on_cancel(prefetch.end):
            yield prefetch
    finally:
        prefetch.end()  # first: the threads wait for the workers
        prefetch.threads.shutdown(cancel_futures=True)
        shutil.rmtree(spool, ignore_errors=True)
        os.close(lock)  # after the removal: without its lock, the folder would look like that of a killed run
        with suppress(OSError):  # another run has its folder there
            spool.parent.rmdir()
