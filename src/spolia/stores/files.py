"""The files of a store's folder: where they are, how they are made durable, whether a lexical index is whole."""

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
    return _named(embedder), f"{number:06d}.seg"


def lexical_names(group: str, generation: object) -> tuple[str, str]:
    """Return the names of the folder of a group's lexical indexes, and of one of them."""
    return _named(group), f"g{generation}"


def entries(folder: Path) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Yield the name of each folder in a folder, with each entry of it, as `glob("*/*")` in a tenth of the time."""
    with suppress(FileNotFoundError):
        for outer in os.scandir(folder):
            if outer.is_dir():
                for entry in os.scandir(outer.path):
                    yield outer.name, entry


def graph_folder(store: Path, embedder: str) -> Path:
    return store / GRAPHS / _named(embedder)


def links_folder(store: Path, group: str) -> Path:
    return store / LINKS / _named(group)


def tokens_folder(store: Path, embedder: str) -> Path:
    return store / TOKENS / _named(embedder)


@lru_cache(256)
def _named(name: str) -> str:
    """A folder for any name, another one for each name; plain names keep their name."""
    if re.fullmatch(r"[a-z0-9_]{1,64}", name):
        return name
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.")[:48]
    return f"{plain}-{blake2b(name.encode(), digest_size=4).hexdigest()}"


SPOOL = "spool"
"""The folder with these folders, in that of the store."""


def claimed(store: Path) -> tuple[Path, int, bool]:
    """A new folder for one run, its lock, and whether it is the first that runs now. Folders of killed runs go."""
    spool = store / SPOOL
    made, lock = _made(spool)
    is_first = True
    for other in spool.iterdir():
        if not other.is_dir():
            other.unlink(missing_ok=True)
        elif other != made and (left := _locked(other)) is not None:
            shutil.rmtree(other, ignore_errors=True)
            os.close(left)
        else:
            is_first = is_first and other.name >= made.name
    return made, lock, is_first


def _made(spool: Path) -> tuple[Path, int]:
    while True:
        make_folder(spool)
        with suppress(FileNotFoundError):  # a run that ended has removed it
            made = Path(mkdtemp(prefix=f"{time.time_ns():020}-{os.getpid()}-", dir=spool))
            if (lock := _locked(made)) is not None:
                if made.exists():
                    return made, lock
                os.close(lock)


def claimer(store: Path) -> str:
    """The process of a run that reads for a store now, in words; empty if no run reads."""
    spool = store / SPOOL
    for folder in spool.iterdir() if spool.is_dir() else ():
        if (lock := _locked(folder)) is not None:
            os.close(lock)
        elif folder.exists():
            pid = folder.name.split("-")[1]
            return f"{'this' if pid == str(os.getpid()) else 'another'} process, pid {pid}"
    return ""


def _locked(folder: Path) -> int | None:
    """A lock on a folder, which ends with its process; None where another one has it, or the folder is gone."""
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


def corrupt(path: Path, cause: str, remedy: str) -> StoreCorrupt:
    """The error for a derived file, which is two folders below its store."""
    error = StoreCorrupt(f"{cause}. {remedy.format(store=path.parents[2])}")
    error.cause = cause
    return error


def size_of(folder: Path) -> int:
    """Bytes of all files below a folder; a file with two names counts once."""
    seen: dict[tuple[int, int], int] = {}
    for root, _, names in os.walk(folder):
        for name in names:
            found = os.lstat(os.path.join(root, name))
            seen[found.st_dev, found.st_ino] = found.st_size
    return sum(seen.values())


CHECKSUMS = "checksums.json"
_BUFFER_BYTES = 1 << 20


def checksums(folder: Path) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = json.loads((folder / CHECKSUMS).read_text())
    return found


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


def damaged(folder: Path) -> str:
    """What is wrong with an index, in words; empty if nothing is. All of it is read."""
    return _wrong(folder, lambda path, written: checksum(path) != written)


def shortened(folder: Path) -> str:
    """What is wrong with an index as far as sizes and its list of segments tell, in words; nothing else is read."""
    return _wrong(
        folder,
        lambda path, written: (
            os.stat(path).st_size != written[0] or (path.endswith("meta.json") and checksum(path) != written)
        ),
    )


_TOO_MANY = (errno.EMFILE, errno.ENFILE)


def lacks_files(error: BaseException | None) -> bool:
    """Return whether an error, or one behind it, means that this process or machine has too many open files."""
    while error is not None:
        text = str(error)
        if getattr(error, "errno", None) in _TOO_MANY or any(f"os error {number})" in text for number in _TOO_MANY):
            return True
        if getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_CANTOPEN:  # it does not say why
            try:
                os.close(os.open(os.devnull, os.O_RDONLY))
            except OSError as none_left:
                return none_left.errno in _TOO_MANY
        error = error.__cause__ or error.__context__
    return False


def _wrong(folder: Path, is_wrong: Callable[[str, list[Any]], bool]) -> str:
    try:
        place = str(folder)  # once: an index has some fifty files
        wrong = [name for name, written in checksums(folder).items() if is_wrong(f"{place}/{name}", written)]
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        if lacks_files(error):
            raise
        return f"The lexical index {folder} is damaged: {error}"
    return f"The lexical index {folder} is damaged: {', '.join(wrong)} changed since it was written" if wrong else ""


FEW = 1_000
"""Nodes up to which an index is made again as soon as one is deleted: that takes less than 50 CPU-ms."""
SHARE = 0.05
"""Share of a larger index that may be deleted nodes."""


def gone(folder: Path) -> int:
    return sum(dead for _, dead in _segments(folder))


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
    return _COLUMN + "_".join(field.encode("utf-8", "surrogatepass").hex() for field in fields)


def columns_in(folder: Path) -> dict[str, TermColumn]:
    """Return the columns of an index, by metadata field. Fields of one column tell their terms apart by their names."""
    found = dict[str, TermColumn]()
    for name in _index_names(folder):
        if name.startswith(_COLUMN):
            coded = name[len(_COLUMN) :].split("_")
            fields = [bytes.fromhex(each).decode("utf-8", "surrogatepass") for each in coded]
            found |= {field: TermColumn(name, json.dumps(field) if len(fields) > 1 else "") for field in fields}
    return found


def lacks_columns(folder: Path, fields: Iterable[str]) -> bool:
    """Return whether to rebuild an index to get columns for these metadata fields; a large one goes without."""
    try:
        return not columns_in(folder).keys() >= set(fields) and sum(held for held, _ in _segments(folder)) <= REBUILT
    except (OSError, ValueError, TypeError):
        return False  # who goes on with it says that it is damaged


def holds_lengths(folder: Path) -> bool:
    """Whether an index holds how many terms each node has; those of earlier versions do not."""
    return "length" in _index_names(folder)


def _index_names(folder: Path) -> set[str]:
    return {str(dict(field).get("name")) for field in _meta(folder, "schema")}


def is_worn(folder: Path, more: int) -> bool:
    """Whether to rebuild an index instead of extending it."""
    try:
        segments, is_outdated = _segments(folder), not holds_lengths(folder)
    except (OSError, ValueError, TypeError):
        return False  # who goes on with it says that it is damaged
    dead, held = more + sum(dead for _, dead in segments), sum(held for held, _ in segments)
    return is_outdated or dead > (SHARE * held if held > FEW else 0)


MERGED = 8
"""Segments of about one size that tantivy merges into one."""
_SMALL = log2(10_000)
_LEVEL = 0.75


def small_segments(folder: Path) -> list[int]:
    """Nodes in each segment that tantivy would merge with more small ones: the lowest level of its `LogMergePolicy`."""
    level, top = list[int](), inf
    for nodes in sorted((held - dead for held, dead in _segments(folder)), reverse=True):
        size = max(log2(max(nodes, 1)), _SMALL)
        if size < top - _LEVEL:
            level, top = [], size
        level.append(nodes)
    return level if top - _LEVEL <= _SMALL else []


def is_scattered(folder: Path) -> bool:
    """Whether an index is to be merged: it has many nodes, and more than a quarter are not in the largest segment."""
    try:
        small = small_segments(folder)
        return (1 < len(small) < MERGED and sum(small) > FEW and _is_apart(small)) or is_split(folder)
    except (OSError, ValueError):
        return False


REBUILT = 200_000
"""Nodes up to which an index is built again, at 30 CPU-µs a node under the lock, to get a column for a field that was
declared since, or to join large segments; then a query of 100,000 takes a tenth less."""


def is_split(folder: Path) -> bool:
    """Whether more than a quarter of the nodes are not in the largest segment, and tantivy would not merge these."""
    held = sorted((held - dead for held, dead in _segments(folder)), reverse=True)
    return len(small_segments(folder)) < len(held) and sum(held) <= REBUILT and _is_apart(held)


def _is_apart(segments: Sequence[int]) -> bool:
    return sum(segments[1:]) > sum(segments) / 4


def _segments(folder: Path) -> list[tuple[int, int]]:
    """Nodes in each, and how many of them are gone."""
    try:
        return [
            (int(one["max_doc"]), int(one["deletes"]["num_deleted_docs"]) if one["deletes"] else 0)
            for one in _meta(folder, "segments")
        ]
    except (LookupError, TypeError, OverflowError) as error:
        raise ValueError(f"meta.json lacks {error}") from error


def _meta(folder: Path, part: str) -> list[Any]:
    path = os.path.join(folder, "meta.json")
    state = os.stat(path)
    try:
        found: list[Any] = _read_meta(path, state.st_ino, state.st_size, state.st_mtime_ns)[part]
        return found
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
            os.kill(os.getpid(), signal.SIGKILL)


arm(os.environ.get("SPOLIA_FAIL_POINT", ""))


class translated:
    """Turn what the database and the file system raise into a `StoreError` that says what to do."""

    __slots__ = ("_backend", "_doing")

    def __init__(self, backend: "Backend", doing: str) -> None:
        self._backend, self._doing = backend, doing

    def __enter__(self) -> None:
        return

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: object) -> None:
        if not isinstance(error, Exception) or isinstance(error, StoreError):
            return
        if (problem := self._backend.problem(self._doing, error)) is not None:
            raise problem from error


@contextmanager
def tantivy_errors(problem: Callable[[Exception], StoreError]) -> Iterator[None]:
    """tantivy raises `ValueError` for everything, and panics past `Exception` when one of its threads has died."""
    try:
        yield
    except (ValueError, OSError) as error:
        raise problem(error) from error
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        raise problem(ValueError(str(error))) from error
