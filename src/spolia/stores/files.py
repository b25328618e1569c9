"""Files of a store's folder: where they are, how they are made durable, whether a lexical index is whole."""

import errno
import fcntl
import json
import os
import re
import shutil
import signal
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from hashlib import blake2b
from math import inf, log2
from pathlib import Path
from tempfile import mkdtemp
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from spolia.errors import StoreCorrupt, StoreError
from spolia.private_files import make_folder

if TYPE_CHECKING:
    from spolia.stores.backends.backend import Backend

DATABASE = "corpus.db"
LOCK, BUILD_LOCK, GRAPHS_LOCK = "writer.lock", "build.lock", "graphs.lock"
"""The right to write; to build groups of documents that are there; to build graphs of vectors."""
PINS = "pins"
LEXICAL = "lexical"
VECTORS = "vectors"
GRAPHS = "graphs"
DATABASES = "databases"
LINKS = "links"
TOKENS = "tokens"


# Paths are joined in one call: each `/` parses its path again, and a writer asks for hundreds.


def pin_path(store: Path, generation: int) -> Path:
    return store.joinpath(PINS, str(generation))


def lexical_folder(store: Path, group: str, generation: object) -> Path:
    return store.joinpath(LEXICAL, *lexical_names(group, generation))


def segment_path(store: Path, embedder: str, number: int) -> Path:
    return store.joinpath(VECTORS, *segment_names(embedder, number))


def segment_names(embedder: str, number: int) -> tuple[str, str]:
    """Return the names of a segment's folder and file."""
    return _folder_name(embedder), f"{number:06d}.seg"


def lexical_names(group: str, generation: object) -> tuple[str, str]:
    """Return the names of the folder of a group's lexical indexes, and of one of them."""
    return _folder_name(group), f"g{generation}"


def entries(folder: Path) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Yield the name of each folder in a folder, with each entry of it, as `glob("*/*")` in a tenth of the time."""
    with suppress(FileNotFoundError):
        for outer in os.scandir(folder):
            if outer.is_dir():
                for entry in os.scandir(outer.path):
                    yield outer.name, entry


def graph_folder(store: Path, embedder: str) -> Path:
    return store / GRAPHS / _folder_name(embedder)


def links_folder(store: Path, group: str) -> Path:
    return store / LINKS / _folder_name(group)


def tokens_folder(store: Path, embedder: str) -> Path:
    return store / TOKENS / _folder_name(embedder)


@lru_cache(256)  # every path of a segment, index or graph asks for it
def _folder_name(name: str) -> str:
    """Return the name of a folder for any name, different for each; plain names stay as they are."""
    if re.fullmatch(r"[a-z0-9_]{1,64}", name):
        return name
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.")[:48]
    # Names that differ only in replaced characters must not share a folder.
    return f"{plain}-{blake2b(name.encode(), digest_size=4).hexdigest()}"


SPOOL = "spool"
"""The folder with these folders, in that of the store."""


def claim_run_folder(store: Path) -> tuple[Path, int, bool]:
    """Make a folder for one run, remove those of killed runs; return it, its lock, and whether no older run goes on."""
    spool = store / SPOOL
    folder, lock = _make_run_folder(spool)
    is_first = True
    for entry in spool.iterdir():
        if not entry.is_dir():
            entry.unlink(missing_ok=True)
        # The lock ends with its process, so a folder that can be locked belongs to a killed run.
        elif entry != folder and (stale_lock := _lock_folder(entry)) is not None:
            shutil.rmtree(entry, ignore_errors=True)
            os.close(stale_lock)
        else:
            is_first = is_first and entry.name >= folder.name  # names begin with the time: older runs sort first
    return folder, lock, is_first


def _make_run_folder(spool: Path) -> tuple[Path, int]:
    while True:
        make_folder(spool)
        with suppress(FileNotFoundError):  # a run that ended has removed it
            # The time sorts runs by age; `describe_claimer` reads the pid.
            folder = Path(mkdtemp(prefix=f"{time.time_ns():020}-{os.getpid()}-", dir=spool))
            if (lock := _lock_folder(folder)) is not None:
                # Between mkdtemp and the lock another run may have removed the folder as that of a killed one.
                if folder.exists():
                    return folder, lock
                os.close(lock)


def describe_claimer(store: Path) -> str:
    """Return in words the process of a run that reads for a store now; empty if no run reads."""
    spool = store / SPOOL
    for folder in spool.iterdir() if spool.is_dir() else ():
        if (lock := _lock_folder(folder)) is not None:
            os.close(lock)
        elif folder.exists():  # its run may have ended between the two looks
            pid = folder.name.split("-")[1]
            return f"{'this' if pid == str(os.getpid()) else 'another'} process, pid {pid}"
    return ""


def _lock_folder(folder: Path) -> int | None:
    """Lock a folder until its process ends; return None where another one has it, or the folder is gone."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None
    if try_lock(descriptor):
        return descriptor
    os.close(descriptor)
    return None


def try_lock(descriptor: int, kind: int = fcntl.LOCK_EX) -> bool:
    """Lock an open file or folder; False if another process holds it."""
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def fsync(path: Path) -> None:
    """Wait until the content of a file, or the names in a folder, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def corrupt_error(path: Path, cause: str, remedy: str) -> StoreCorrupt:
    """Build the error for a derived file, which is two folders below its store."""
    error = StoreCorrupt(f"{cause}. {remedy.format(store=path.parents[2])}")
    error.cause = cause
    return error


def size_of(folder: Path) -> int:
    """Count the bytes of all files below a folder; a file with two names counts once."""
    sizes: dict[tuple[int, int], int] = {}
    for root, _, names in os.walk(folder):
        for name in names:
            status = os.lstat(os.path.join(root, name))  # indexes share segments by hard links
            sizes[status.st_dev, status.st_ino] = status.st_size
    return sum(sizes.values())


CHECKSUMS = "checksums.json"
# Files are hashed piece by piece, so that memory stays bounded.
_BUFFER_BYTES = 1 << 20


def read_checksums(folder: Path) -> dict[str, list[Any]]:
    sums: dict[str, list[Any]] = json.loads((folder / CHECKSUMS).read_text())
    return sums


def checksum(path: str | Path) -> list[Any]:
    with open(path, "rb", buffering=0) as file:
        return checksum_of_file(file)


def checksum_of_file(file: IO[bytes]) -> list[Any]:
    """Return size and checksum of an open file."""
    total, size = blake2b(digest_size=16), 0
    while piece := file.read(_BUFFER_BYTES):
        total.update(piece)
        size += len(piece)
    return [size, total.hexdigest()]


def index_damage(folder: Path) -> str:
    """Return in words what is wrong with an index; empty if nothing is. All of it is read."""
    return _describe_damage(folder, lambda path, recorded: checksum(path) != recorded)


def quick_index_damage(folder: Path) -> str:
    """Return in words what is wrong with an index, by sizes and its list of segments only; empty if nothing is."""
    return _describe_damage(
        folder,
        lambda path, recorded: (
            os.stat(path).st_size != recorded[0] or (path.endswith("meta.json") and checksum(path) != recorded)
        ),
    )


_TOO_MANY_FILES = (errno.EMFILE, errno.ENFILE)


def lacks_files(error: BaseException | None) -> bool:
    """Return whether an error, or one behind it, means that this process or machine has too many open files."""
    while error is not None:
        text = str(error)
        # tantivy gives no number, only the text of Rust's error.
        if getattr(error, "errno", None) in _TOO_MANY_FILES or any(
            f"os error {number})" in text for number in _TOO_MANY_FILES
        ):
            return True
        if getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_CANTOPEN:  # it does not say why
            try:
                os.close(os.open(os.devnull, os.O_RDONLY))
            except OSError as none_left:
                return none_left.errno in _TOO_MANY_FILES
        error = error.__cause__ or error.__context__
    return False


def _describe_damage(folder: Path, is_wrong: Callable[[str, list[Any]], bool]) -> str:
    try:
        place = str(folder)  # once: an index has some fifty files
        changed = [name for name, recorded in read_checksums(folder).items() if is_wrong(f"{place}/{name}", recorded)]
    # Damaged JSON may be anything.
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        if lacks_files(error):  # too many open files is no damage: a sound index would be set aside and built again
            raise
        return f"The lexical index {folder} is damaged: {error}"
    return (
        f"The lexical index {folder} is damaged: {', '.join(changed)} changed since it was written" if changed else ""
    )


FEW = 1_000
"""Nodes up to which an index is made again as soon as one is deleted: that takes less than 50 CPU-ms."""
SHARE = 0.05
"""Share of a larger index that may be deleted nodes."""


def count_deleted(folder: Path) -> int:
    return sum(dead for _, dead in _count_segments(folder))


_COLUMN = "meta_"


class TermColumn(NamedTuple):
    """Where an index has the values of a metadata field: a field of tantivy's, and what its terms begin with."""

    name: str
    prefix: str


def column_of(fields: Iterable[str]) -> str:
    """Return the name, one that tantivy allows, of an index's column for metadata fields.

    >>> column_of(["année", "by"])
    'meta_616e6ec3a965_6279'
    """
    # A field's name may hold lone surrogates, which plain UTF-8 refuses.
    return _COLUMN + "_".join(field.encode("utf-8", "surrogatepass").hex() for field in fields)


def columns_in(folder: Path) -> dict[str, TermColumn]:
    """Return the columns of an index, by metadata field. Fields of one column tell their terms apart by their names."""
    columns = dict[str, TermColumn]()
    for name in _index_names(folder):
        if name.startswith(_COLUMN):
            coded = name[len(_COLUMN) :].split("_")
            fields = [bytes.fromhex(hex_name).decode("utf-8", "surrogatepass") for hex_name in coded]
            columns |= {field: TermColumn(name, json.dumps(field) if len(fields) > 1 else "") for field in fields}
    return columns


def lacks_columns(folder: Path, fields: Iterable[str]) -> bool:
    """Return whether to rebuild an index to get columns for these metadata fields; a large one goes without."""
    try:
        return (
            not columns_in(folder).keys() >= set(fields)
            and sum(nodes for nodes, _ in _count_segments(folder)) <= REBUILT
        )
    except (OSError, ValueError, TypeError):
        return False  # who goes on with it says that it is damaged


def holds_lengths(folder: Path) -> bool:
    """Return whether an index holds how many terms each node has; those of earlier versions do not."""
    return "length" in _index_names(folder)


def _index_names(folder: Path) -> set[str]:
    return {str(dict(field).get("name")) for field in _meta_part(folder, "schema")}


def is_worn(folder: Path, added_dead: int) -> bool:
    """Return whether to rebuild an index instead of extending it."""
    try:
        segments, is_outdated = _count_segments(folder), not holds_lengths(folder)
    except (OSError, ValueError, TypeError):
        return False  # who goes on with it says that it is damaged
    dead, total = added_dead + sum(dead for _, dead in segments), sum(nodes for nodes, _ in segments)
    return is_outdated or dead > (SHARE * total if total > FEW else 0)


MERGED = 8
"""Segments of about one size that tantivy merges into one."""
# As in tantivy's `LogMergePolicy`: segments up to this size count as equally small, and a level spans so much.
_SMALL = log2(10_000)
_LEVEL = 0.75


def small_segments(folder: Path) -> list[int]:
    """List the nodes in each segment that tantivy would merge with more small ones: the lowest level of its
    `LogMergePolicy`."""
    level, top = list[int](), inf
    for nodes in sorted((size - dead for size, dead in _count_segments(folder)), reverse=True):
        size = max(log2(max(nodes, 1)), _SMALL)
        if size < top - _LEVEL:
            level, top = [], size
        level.append(nodes)
    return level if top - _LEVEL <= _SMALL else []


def is_scattered(folder: Path) -> bool:
    """Return whether to merge an index: it has many nodes, and more than a quarter are not in the largest segment."""
    try:
        small = small_segments(folder)
        return (1 < len(small) < MERGED and sum(small) > FEW and _is_apart(small)) or is_split(folder)
    except (OSError, ValueError):
        return False


REBUILT = 200_000
"""Nodes up to which an index is built again, at 30 CPU-µs a node under the lock, to get a column for a field that was
declared since, or to join large segments; then a query of 100,000 takes a tenth less."""


def is_split(folder: Path) -> bool:
    """Return whether more than a quarter of the nodes are not in the largest segment, and tantivy would not merge
    these."""
    sizes = sorted((nodes - dead for nodes, dead in _count_segments(folder)), reverse=True)
    return len(small_segments(folder)) < len(sizes) and sum(sizes) <= REBUILT and _is_apart(sizes)


def _is_apart(segments: Sequence[int]) -> bool:
    return sum(segments[1:]) > sum(segments) / 4


def _count_segments(folder: Path) -> list[tuple[int, int]]:
    """Return the nodes in each segment, and how many of them are deleted."""
    try:
        return [
            (int(segment["max_doc"]), int(segment["deletes"]["num_deleted_docs"]) if segment["deletes"] else 0)
            for segment in _meta_part(folder, "segments")
        ]
    except (LookupError, TypeError, OverflowError) as error:
        raise ValueError(f"meta.json lacks {error}") from error


def _meta_part(folder: Path, part: str) -> list[Any]:
    path = os.path.join(folder, "meta.json")
    state = os.stat(path)
    try:
        values: list[Any] = _read_meta(path, state.st_ino, state.st_size, state.st_mtime_ns)[part]
        return values
    except (LookupError, TypeError, RecursionError) as error:
        raise ValueError(f"meta.json lacks {error}") from error


@lru_cache(16)  # a publication asks for it eight times
def _read_meta(path: str, *state: int) -> Any:
    """Read what tantivy writes of an index; `state` is that of the file, which it replaces."""
    with open(path, encoding="utf-8") as file:
        return json.load(file)


_POINTS = """
    create.write create.fsync create.rename create.fsync_folder migrate.step migrate.commit lock.write sweep.lexical
    sweep.pin sweep.segment adopt.write adopt.commit forget.write forget.commit define.write redefine.write drop.write
    declare.write put.document put.nodes put.source insert.documents insert.sources insert.nodes remember.write
    add.nodes unmade.write clear.nodes readers.document readers.nodes touch.write move.write remove.write fail.write
    vectors.write vectors.fsync vectors.rename vectors.fsync_folder vectors.register vectors.merge vectors.join
    vectors.joined vectors.move graphs.add graphs.save graphs.fsync graphs.rename graphs.fsync_folder graphs.sweep
    lexical.clone lexical.write lexical.commit lexical.merge lexical.checksums lexical.fsync lexical.rename
    lexical.fsync_folder databases.follow databases.followed databases.recovered publish.pin publish.fsync_pins
    publish.purge publish.row publish.commit publish.committed
"""
FAIL_POINTS: tuple[str, ...] = tuple(_POINTS.split())

_POSTGRES_POINTS = """
    postgres.create postgres.create_commit postgres.vectors postgres.vectors_written postgres.index
    postgres.indexed follow.build follow.sweep
"""
POSTGRES_FAIL_POINTS: tuple[str, ...] = tuple(_POSTGRES_POINTS.split())
"""Fail points that only a store in PostgreSQL has."""

_name, _passes = "", 0


def arm(point: str) -> None:
    """Kill this process when it comes to `point`: a name, or `name@n` for the n-th time."""
    global _name, _passes
    _name, _, count = point.partition("@")
    _passes = int(count or 1)


def fail_point(name: str) -> None:
    """Kill this process with SIGKILL if `SPOLIA_FAIL_POINT` (read once) or `arm` names this place."""
    global _passes
    if name == _name:
        _passes -= 1
        if _passes == 0:
            os.kill(os.getpid(), signal.SIGKILL)  # no exit handler may tidy up what a real kill would leave


arm(os.environ.get("SPOLIA_FAIL_POINT", ""))


class store_errors:
    """Context manager that turns errors of the database and the file system into a `StoreError` with advice."""

    __slots__ = ("_backend", "_doing")

    def __init__(self, backend: "Backend", doing: str) -> None:
        self._backend, self._doing = backend, doing

    def __enter__(self) -> None:
        return

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: object) -> None:
        if not isinstance(error, Exception) or isinstance(error, StoreError):
            return
        if (problem := self._backend.translate_error(self._doing, error)) is not None:
            raise problem from error


@contextmanager
def tantivy_errors(problem: Callable[[Exception], StoreError]) -> Iterator[None]:
    """Translate errors of tantivy, which raises `ValueError` for everything, and panics past `Exception` when one of
    its threads has died."""
    try:
        yield
    except (ValueError, OSError) as error:
        raise problem(error) from error
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise problem(ValueError(str(error))) from error
