"""Files that are to be documents, as a walk through folders found them or somebody gave them."""

from __future__ import annotations

import os
import re
import stat
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from tempfile import mkstemp

from spolia.errors import DocumentError
from spolia.indexing.readers.reader import FileReader, is_pattern, reader_of, versioned
from spolia.indexing.readers.text import TextReader
from spolia.stores.backends.rows import Stamp
from spolia.types import Value

TEXT = "text:"
"""How the uris of documents begin that were given as texts."""
_ELSEWHERE = re.compile(r"text:|[a-z][a-z0-9+.-]*://")


def is_elsewhere(uri: str) -> bool:
    """Whether a document is of no folder: nothing that a walk finds or misses concerns it. No path has `://` in it.

    >>> is_elsewhere("text:faq"), is_elsewhere("sql://notes/17"), is_elsewhere("notes/17.md")
    (True, True, False)
    """
    return _ELSEWHERE.match(uri) is not None


@dataclass(frozen=True)
class File(Value):
    """A file that a reader reads.

    Args:
        uri: its path relative to the folder, with `/`; what is not UTF-8 in it is written as `\\xNN`.
        size: bytes.
        mtime_ns: time of the last change, nanoseconds.
        is_link: whether the name is a link to it.
        data: its bytes, where they were given and are in no file.
    """

    uri: str
    path: str
    size: int
    mtime_ns: int
    reader: FileReader
    is_link: bool = False
    data: bytes | None = field(default=None, repr=False)

    def load(self, spool: Path | None = None) -> Loaded:
        """Its bytes as they are now; those of a large file in a copy in the folder `spool`, where there is one."""
        if self.data is not None:
            return Loaded(self.data, self.size, self.mtime_ns, self.mtime_ns, self.mtime_ns)
        return load(self.path, follow=self.is_link, spool=spool)


class Files(Mapping[str, File]):
    """Files by uri, in the order in which they came.

    There may be many, of which few have changed. So plain tuples are kept, which Python's collector of garbage leaves
    out, and a `File` is made when it is asked for.

    Attributes:
        kept: by uri the size in bytes, the time of the last change in nanoseconds, the path, and whether it is a link.
    """

    def __init__(self, readers: Mapping[str, FileReader]) -> None:
        self.readers = readers
        self.kept: dict[str, tuple[int, int, str, bool]] = {}
        self._data: dict[str, bytes] = {}
        self._versions: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self.kept)

    def __iter__(self) -> Iterator[str]:
        return iter(self.kept)

    def __contains__(self, uri: object) -> bool:
        return uri in self.kept

    def __getitem__(self, uri: str) -> File:
        size, mtime_ns, path, is_link = self.kept[uri]
        reader = reader_of(uri.removeprefix(TEXT), self.readers) or TextReader()
        return File(uri, path, size, mtime_ns, reader, is_link, self._data.get(uri))

    def give(self, uri: str, data: bytes, mtime_ns: int) -> None:
        """What is no file, but bytes."""
        self.kept[uri], self._data[uri] = (len(data), mtime_ns, "", False), data

    def only(self, uris: Iterable[str]) -> Files:
        """Some of them."""
        some = copy(self)
        some.kept = {uri: self.kept[uri] for uri in uris}
        return some

    def sizes(self) -> dict[str, tuple[int, int]]:
        """Size and time of the last change of each."""
        return {uri: (size, mtime_ns) for uri, (size, mtime_ns, _, _) in self.kept.items()}

    def unlike(self, known: Mapping[str, Stamp]) -> dict[str, File]:
        """Those of another size, time of change or reader than when they were indexed, and those that were not."""
        kept, reader = self.kept.items(), self.reader_version
        return {
            uri: self[uri] for uri, (size, at, _, _) in kept if known.get(uri) != (size, at, "indexed", reader(uri))
        }

    def reader_version(self, uri: str) -> str:
        """The reader of a file with its version, without making a `File`, as far as the end of the name decides."""
        dot = uri.rfind(".")
        suffix = uri[dot:] if dot > 0 and uri[dot - 1] != "/" else ""
        if (found := self._versions.get(suffix)) is None:
            found = versioned(self[uri].reader)
            if suffix in self._deciding:
                self._versions[suffix] = found
        return found

    @cached_property
    def _deciding(self) -> frozenset[str]:
        """Suffixes that no pattern and no longer suffix stands above."""
        names = self.readers.keys()
        if any(is_pattern(name) for name in names):
            return frozenset()
        return frozenset(names) - {name[name.rfind(".") :] for name in names if name.count(".") > 1}


@dataclass(frozen=True)
class Skipped(Value):
    """Something in the folder that was left out, and why."""

    uri: str
    reason: str


@dataclass
class FileListing:
    """What there is: here, what a walk through folders found.

    Attributes:
        files: by uri, in the order of their names.
        skipped: links, special files and what may not be read.
        unread: number of files that no reader knows, by suffix.
        unknown: their uris: what another reader made of them before is kept.
        closed: folders that could not be listed, as uris with `/` at the end; what is in them is not known.
        source: where it is from, by the name under which a store remembers that.
        cursors: how far it was read with this, by what that is said of; an empty one is forgotten.
    """

    files: Files
    skipped: list[Skipped] = field(default_factory=list)
    unread: Counter[str] = field(default_factory=Counter)
    closed: tuple[str, ...] = ()
    source: str = ""
    cursors: Mapping[str, str] = field(default_factory=dict)
    unknown: set[str] = field(default_factory=set, kw_only=True)

    @property
    def uris(self) -> Collection[str] | None:
        """What has to be known of a store to compare it; None for all."""
        return None

    def concerns(self, uri: str) -> bool:
        """Whether it tells whether this document is there."""
        return not is_elsewhere(uri) and not uri.startswith(self.closed) and uri not in self.unknown

    def misses(self, uri: str) -> bool:
        """Whether what was there is gone."""
        return uri not in self.files and self.concerns(uri)


@dataclass
class SourceChanges(FileListing):
    """Some of what is there, and the uris of what is `gone`; of all else nothing is said."""

    gone: frozenset[str] = frozenset()

    @property
    def uris(self) -> Collection[str] | None:
        return [*self.files, *self.gone]

    def concerns(self, uri: str) -> bool:
        return uri in self.files or uri in self.gone


ATTEMPTS = 3
SETTLED_NS = 20_000_000
"""A file that was changed later than this before now could change again without its time telling: the clocks of file
systems tick every few milliseconds. It is waited for."""
IN_MEMORY = 16_000_000
"""Bytes of a file that are kept in memory; a larger one is copied."""
LARGEST_BYTES = 20_000_000_000
_PIECE = 1 << 20
LATEST_NS = 2**63 - 1
"""The year 2262; a later time of change, which some file systems have, counts as this."""


@dataclass(frozen=True)
class Loaded(Value):
    """All bytes of a file, and its size and times when they were read.

    Args:
        content: the bytes; of a large file, the path of a copy, which nobody changes.
        created_ns: where the file system does not tell, the earlier one of the times of change of content and of name.
        accessed_ns: before this reading.
    """

    content: bytes | Path = field(repr=False)
    size: int
    mtime_ns: int
    created_ns: int = 0
    accessed_ns: int = 0


def load(path: str, *, follow: bool = False, spool: Path | None = None) -> Loaded:
    """Read a file that does not change meanwhile.

    Args:
        path: of a file; nothing else is opened, so that no pipe can block.
        follow: read what a link leads to.
        spool: folder for copies of large files; None where all are read into memory.

    Raises:
        OSError: it cannot be read, or is gone.
        DocumentError: it is too large, no file, or changes all the time.
    """
    for attempt in range(ATTEMPTS):
        if attempt:
            time.sleep(attempt * SETTLED_NS / 1e9)
        if (loaded := _attempt(path, follow, spool)) is not None:
            return loaded
    raise DocumentError(f"It changed while it was read, {ATTEMPTS} times. Index again when it is no longer written to.")


def _attempt(path: str, follow: bool, spool: Path | None) -> Loaded | None:
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | (0 if follow else os.O_NOFOLLOW)
    descriptor = os.open(path, flags)
    try:
        before = os.fstat(descriptor)
        _refuse(before)
        if 0 <= time.time_ns() - before.st_mtime_ns < SETTLED_NS:
            time.sleep(SETTLED_NS / 1e9)
        is_large = spool is not None and before.st_size > IN_MEMORY
        content = _copy(descriptor, spool) if spool and is_large else _bytes(descriptor, before.st_size)
        after = os.fstat(descriptor)
    finally:
        os.close(descriptor)
    read = len(content) if isinstance(content, bytes) else content.stat().st_size
    if (before.st_size, before.st_mtime_ns, read) != (after.st_size, after.st_mtime_ns, after.st_size):
        if isinstance(content, Path):
            content.unlink()
        return None
    made = getattr(before, "st_birthtime_ns", min(before.st_mtime_ns, before.st_ctime_ns))
    times = (min(time_ns, LATEST_NS) for time_ns in (after.st_mtime_ns, made, before.st_atime_ns))
    return Loaded(content, after.st_size, *times)


def _refuse(there: os.stat_result) -> None:
    if not stat.S_ISREG(there.st_mode):
        raise DocumentError("It is no file any more. Index again.")
    if there.st_size > LARGEST_BYTES:
        raise DocumentError(
            f"It has {there.st_size} bytes; a document has at most {LARGEST_BYTES}. Split it, for example: "
            "split --line-bytes=100M FILE"
        )


def _bytes(descriptor: int, size: int) -> bytes:
    data = os.read(descriptor, size)
    if len(data) == size:
        return data
    pieces = [data]
    while pieces[-1]:
        pieces.append(os.read(descriptor, size))
    return b"".join(pieces)


def _copy(descriptor: int, spool: Path) -> Path:
    copy, name = mkstemp(dir=spool)
    with open(copy, "wb") as out:
        while piece := os.read(descriptor, _PIECE):
            out.write(piece)
    return Path(name)
