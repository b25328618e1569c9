"""Store in a folder: its lock and leases, which are advisory locks of the kernel, and its garbage collection."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, nullcontext
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from spolia.errors import StoreBusy, StoreCorrupt, StoreError
from spolia.private_files import make_folder, private, set_aside, touch
from spolia.record_files import log_damage
from spolia.stores import vectors
from spolia.stores.backends import sql
from spolia.stores.backends.backend import Connection, Manifests
from spolia.stores.backends.publication import wait_for_right
from spolia.stores.backends.rows import deep_problems
from spolia.stores.backends.sqlite.connection import (
    ERRORS,
    ImmutableSession,
    SqliteSession,
    connect,
    create,
    has_pending_log,
    sqlite_errors,
    translate_sqlite_error,
)
from spolia.stores.backends.sqlite.salvage import refuse_foreign, rewrite_damaged
from spolia.stores.files import (
    DATABASE,
    GRAPHS_LOCK,
    LEXICAL,
    LOCK,
    PINS,
    VECTORS,
    entries,
    fail_point,
    fsync,
    lexical_folder,
    lexical_names,
    pin_path,
    segment_names,
    segment_path,
    size_of,
    try_lock,
)
from spolia.stores.integrity import damaged_segments, find_sqlite_problems
from spolia.stores.manifest import read

if TYPE_CHECKING:
    from spolia.stores.backends.backend import OpenedStore, PinnedSnapshot, WriteSession
    from spolia.stores.backends.searches import DenseSearch, StoredVectors
    from spolia.stores.vectors.external_index import ExternalIndexes
    from spolia.stores.vectors.segments import VectorWriter
    from spolia.stores.vectors.sparse import SparseSearch


class WriterLock:
    """The right to write to a store, or the one called `name`; a process that waits too long learns the pid of the
    holder."""

    def __init__(self, store: Path, timeout_s: float, name: str = LOCK) -> None:
        self._pid = os.getpid()
        with sqlite_errors(store, "locked for writing"):
            self._descriptor = private(store / name, os.O_RDWR | os.O_CREAT)
        try:
            wait_for_right(lambda: try_lock(self._descriptor), store, self._holder, timeout_s)
            with sqlite_errors(store, "locked for writing"):
                fail_point("lock.write")
                # For the message of a process that waits; blanks overwrite a longer pid.
                os.pwrite(self._descriptor, b"%-12d\n" % os.getpid(), 0)
        except BaseException:
            os.close(self._descriptor)
            raise

    def _holder(self) -> str:
        pid = os.pread(self._descriptor, 20, 0).decode("ascii", "replace").strip() or "unknown"
        return f"{'this' if pid == str(os.getpid()) else 'another'} process, pid {pid}"

    def close(self) -> None:
        """Let the next one write. A child that was forked meanwhile has the lock too, so that closing is not enough."""
        if os.getpid() == self._pid:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)
        os.close(self._descriptor)


class FileLease:
    can_be_lost: ClassVar[bool] = False

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def is_held(self) -> bool:
        return True

    def __del__(self) -> None:
        os.close(self._descriptor)


def _take_lease(descriptor: int, kind: int) -> FileLease | None:
    if try_lock(descriptor, kind):
        return FileLease(descriptor)
    os.close(descriptor)
    return None


FileIdentity = tuple[int, int, int, int]
"""Device, inode, size and time of the last change of `corpus.db`; zeros when it is not there."""


class FolderBackend:
    def __init__(self, path: Path) -> None:
        self.folder, self.place = path, os.path.normpath(path)
        self._database = os.path.join(path, DATABASE)

    def __str__(self) -> str:
        return str(self.folder)

    def exists(self) -> bool:
        return (self.folder / DATABASE).is_file()

    def create(self) -> None:
        create(self.folder)

    def connect_for_reading(self) -> Connection:
        return connect(self.folder, writing=False)

    def begin_writing(self, timeout_s: float, connection: Connection | None = None) -> FolderWriteSession:
        # Another database may have been put in the place of the one that is open.
        is_same = isinstance(connection, SqliteSession) and connection.file == self.identity()[:2]
        return FolderWriteSession(self.folder, timeout_s, connection if is_same else None)

    def read_after(self, session: WriteSession) -> Connection:
        assert isinstance(session, FolderWriteSession)
        return session.release()

    def identity(self) -> FileIdentity:
        try:
            status = os.stat(self._database)
        except OSError:
            return (0, 0, 0, 0)
        return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)

    def is_current(self, open_store: OpenedStore) -> bool:
        identity, opened_identity = self.identity(), open_store.identity
        assert isinstance(opened_identity, tuple)
        # Another device or inode: another file took its place, as a backup that is put back.
        if opened_identity[:2] != identity[:2]:
            return False
        if not isinstance(open_store.connection, ImmutableSession):
            return True
        # Such a connection sees no changes, so that size and time must be unchanged, too.
        return opened_identity == identity and not has_pending_log(self.folder)

    def translate_error(self, doing: str, error: Exception) -> StoreError | None:
        return translate_sqlite_error(self.folder, doing, error) if isinstance(error, ERRORS) else None

    def lease(self, generation: int) -> FileLease | None:
        try:
            descriptor = os.open(pin_path(self.folder, generation), os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return None
        return _take_lease(descriptor, fcntl.LOCK_SH)

    def lease_exclusively(self, connection: Connection, generation: int) -> FileLease | None:
        pin = private(pin_path(self.folder, generation), os.O_RDONLY | os.O_CREAT)
        return _take_lease(pin, fcntl.LOCK_EX)

    def pin(self, generation: int) -> None:
        fail_point("publish.pin")
        touch(pin_path(self.folder, generation))
        fail_point("publish.fsync_pins")
        fsync(self.folder / PINS)

    def published_index(self, group: str, generation: int) -> Path | None:
        return lexical_folder(self.folder, group, generation)

    def lexical_index(self, snapshot: PinnedSnapshot, group: str) -> Path:
        return lexical_folder(self.folder, group, snapshot.indexes[group][0])

    def make_vector_writer(self, connection: Connection) -> VectorWriter:
        return vectors.segments.SegmentWriter(self.folder, connection)

    def vector_search(self, snapshot: PinnedSnapshot, group: str, embedder: str) -> DenseSearch | SparseSearch:
        return vectors.external_index.open_vector_search(snapshot, group, embedder)

    def follow(
        self, connection: Connection, manifests: Manifests, last_keys: Mapping[str, int], published: int
    ) -> None:
        if external := self._external_indexes(connection, manifests):
            external.follow(last_keys, published)
            fail_point("databases.followed")

    def recover(
        self, connection: Connection, manifests: Manifests, last_keys: Mapping[str, int], published: int
    ) -> None:
        if external := self._external_indexes(connection, manifests):
            external.recover(last_keys, published)

    def derive(self, connection: Connection, manifests: Manifests) -> list[str]:
        if external := self._external_indexes(connection, manifests):
            external.confirm()
        return []

    def _external_indexes(self, connection: Connection, manifests: Manifests) -> ExternalIndexes | None:
        if not any(embedding.is_external for manifest in manifests.values() for embedding in manifest.embeddings):
            return None

        return vectors.external_index.ExternalIndexes(self.folder, connection, manifests)

    def compact(
        self, manifests: Manifests, *, has_ended: bool, waits: bool, connection: Connection | None = None
    ) -> bool:
        if not any(manifest.embeddings for manifest in manifests.values()):
            return False

        with closing(self.connect_for_reading()) if connection is None else nullcontext(connection) as reading:
            compaction = vectors.compaction.Compaction(
                self.folder, reading, manifests, has_ended, lambda: self.begin_writing(inf)
            )
            if not compaction.is_needed():
                return False
            try:
                # Another process that joins does the same work.
                lock = WriterLock(self.folder, inf if waits else 0, GRAPHS_LOCK)
            except StoreBusy:
                return False
            with closing(lock):
                return compaction.run()

    def stored_vectors(self, snapshot: PinnedSnapshot, group: str, embedder: str) -> StoredVectors:
        return vectors.segment_search.locate_vectors(snapshot, group, embedder)[0]

    def sweep(self, connection: Connection) -> list[str]:
        generations = connection.execute(sql.GENERATIONS).fetchall()
        _sweep_indexes(self.folder, [json.loads(indexes) for _, indexes in generations])
        _sweep_pins(self.folder, {str(generation) for generation, _ in generations})
        return _sweep_segments(self.folder, connection)

    def repair(self, connection: Connection) -> list[str]:
        repairs = []
        if manifests := self._embedded_manifests(connection):
            for path, wrong in vectors.graphs.damaged_graphs(self.folder).items():
                set_aside(path, self.folder)
                repairs.append(f"{wrong}. It is built again.")
            if external := self._external_indexes(connection, manifests):
                repairs += external.mark_damaged()
        if segments := damaged_segments(self.folder, connection):
            repairs += forget(self.folder, connection, segments)
        return repairs

    def salvage(self, timeout_s: float) -> tuple[list[str], bool]:
        with sqlite_errors(self.folder, "repaired"):
            # Before the lock, whose file would be put into a folder that is no store.
            refuse_foreign(self.folder)
        with closing(WriterLock(self.folder, timeout_s)), sqlite_errors(self.folder, "repaired"):
            ahead = log_damage(self.folder / DATABASE)
            return [*([ahead] if ahead else ()), *rewrite_damaged(self.folder)], bool(ahead)

    def row_problems(self, share: int = 0) -> list[str]:
        with sqlite_errors(self.folder, "read"), closing(self.connect_for_reading()) as connection:
            ahead = "" if share else log_damage(self.folder / DATABASE)
            return [*deep_problems(connection, DATABASE, share), *([ahead] if ahead else ())]

    def problems(self, connection: Connection) -> Iterator[str]:
        yield from find_sqlite_problems(connection)
        yield from damaged_segments(self.folder, connection).values()
        if manifests := self._embedded_manifests(connection):
            yield from vectors.graphs.damaged_graphs(self.folder).values()
            if external := self._external_indexes(connection, manifests):
                yield from external.problems()

    def _embedded_manifests(self, connection: Connection) -> Manifests:
        manifests = [read(text) for (text,) in connection.execute(sql.MANIFESTS)]
        return {manifest.group: manifest for manifest in manifests if manifest.embeddings}

    def bytes(self, connection: Connection) -> int:
        return size_of(self.folder)


class FolderWriteSession:
    """The lock of a store, and a connection: its own, or one that it was lent and that only reads again at the end."""

    def __init__(self, store: Path, timeout_s: float, lent: Connection | None = None) -> None:
        self._is_lent = lent is not None
        if not os.path.exists(store / LOCK):  # in a folder that may not be read, Path.exists raises
            connect(store, writing=False).close()  # refuses what is not a store before a lock file is put there
        self._lock = WriterLock(store, timeout_s)
        try:
            self.connection: Connection = connect(store, writing=True) if lent is None else lent
            if self._is_lent:
                self.connection.execute(sql.QUERY_AND_WRITE)
        except BaseException:
            self._lock.close()
            raise

    def release(self) -> Connection:
        """Let the next one write, and return the connection, which can only read then."""
        try:
            # Before the lock is released: from then on another process may write.
            self.connection.execute(sql.QUERY_ONLY)
        finally:
            self._lock.close()
        return self.connection

    def close(self) -> None:
        try:
            if not self._is_lent:
                # Before the lock is released: closing may still write, when SQLite moves its log into the database.
                self.connection.close()
                return
            if self.connection.in_transaction:
                self.connection.execute(sql.ROLLBACK)
            self.connection.execute(sql.QUERY_ONLY)
        finally:
            self._lock.close()


def _sweep_indexes(store: Path, published: list[dict[str, tuple[int, int]]]) -> None:
    needed = {lexical_names(group, generation) for indexes in published for group, (generation, _) in indexes.items()}
    folders = ((entry.path, (folder, entry.name)) for folder, entry in entries(store / LEXICAL))
    for path in sorted(path for path, names in folders if names not in needed):
        fail_point("sweep.lexical")
        shutil.rmtree(path)


def _sweep_pins(store: Path, needed: set[str]) -> None:
    folder = os.path.join(store, PINS)
    make_folder(folder)  # of a database that was put back alone it is not there
    for name in sorted(os.listdir(folder)):
        if name not in needed:
            fail_point("sweep.pin")
            os.unlink(os.path.join(folder, name))


def _sweep_segments(store: Path, connection: Connection) -> list[str]:
    """Compare segments with the database; drop or adopt those that differ. Segments are opened only then: numpy is not
    imported for nothing."""
    rows = connection.execute(sql.SEGMENTS).fetchall()
    sizes = {(folder, entry.name): entry.stat().st_size for folder, entry in entries(store / VECTORS)}
    if sizes == {segment_names(name, number): size for name, number, _, _, size in rows}:
        return []
    sizes_on_disk = {store.joinpath(VECTORS, *names): size for names, size in sorted(sizes.items())}
    registered = {segment_path(store, name, number): size for name, number, _, _, size in rows}
    lost = {
        path: f"The vector segment {path} has {sizes_on_disk.get(path, 0)} bytes, and {size} were written"
        for path, size in registered.items()
        if sizes_on_disk.get(path) != size
    }
    damage = forget(store, connection, lost) if lost else []
    # The latest first: of a text in several segments, the first one adopted counts.
    return damage + adopt(connection, [path for path in reversed(sizes_on_disk) if path not in registered])


def adopt(connection: Connection, unknown: Iterable[Path]) -> list[str]:
    """Take over what a killed writer had made durable, and remove what is of no use; return the damage in words.

    Of a text that is in several, the first counts: write the latest first.
    """
    damaged = []
    connection.execute(sql.BEGIN)
    for path in unknown:
        try:
            is_adopted = path.suffix == ".seg" and _register(connection, path)  # a `.tmp` is cut off
        except StoreCorrupt as error:
            set_aside(path, path.parents[2])
            damaged.append(str(error))
            continue
        if not is_adopted:
            fail_point("sweep.segment")
            path.unlink()
    fail_point("adopt.commit")
    connection.execute(sql.COMMIT)
    return damaged


def _register(connection: Connection, path: Path) -> bool:
    """Register a segment that holds a vector which the database lacks; return whether it does."""
    segment, number = vectors.segments.open_any(path), int(path.stem)
    count, dimension = len(segment.hashes), vectors.segments.dimension_of(vectors.segments.content_of(segment))
    fail_point("adopt.write")
    connection.execute(sql.ADD_SEGMENT, (segment.embedder, number, dimension, count, path.stat().st_size))
    rows = ((segment.embedder, hash, number, row) for row, hash in enumerate(segment.hashes))
    if connection.executemany(sql.ADD_VECTOR, rows).rowcount > 0:
        return True
    connection.execute(sql.DROP_SEGMENT, (segment.embedder, number))  # all of its texts have vectors elsewhere
    return False


def forget(store: Path, connection: Connection, damaged: Mapping[Path, str]) -> list[str]:
    """Drop the vectors of damaged segments from the database, so that their texts count as not embedded; return that in
    words.

    A segment that can be read is taken over again: then it was the database that was wrong.
    """
    counts = {}
    connection.execute(sql.BEGIN)
    connection.execute(sql.FORGET_EMBEDDED)  # the noted keys say that these texts have vectors
    for embedder, number, _, count, _ in connection.execute(sql.SEGMENTS).fetchall():
        path = segment_path(store, embedder, number)
        if path in damaged:
            fail_point("forget.write")
            connection.execute(sql.DROP_VECTORS, (embedder, number))
            connection.execute(sql.DROP_SEGMENT, (embedder, number))
            counts[path] = count
    fail_point("forget.commit")
    connection.execute(sql.COMMIT)
    adopt(connection, [path for path in counts if path.exists()])
    return [
        f"{damaged[path]}. Its {count} vectors were {'read from it again' if path.exists() else 'dropped'}."
        for path, count in counts.items()
    ]
