"""Files that are to be documents, as a walk through folders found them or somebody gave them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from spolia.indexing.loading import Loaded, load
from spolia.indexing.readers.reader import Reader
from spolia.indexing.readers.registry import reader_of, versioned
from spolia.indexing.readers.text import TextReader
from spolia.stores.tables.rows import Stamp
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
        path: where it is.
        size: bytes.
        mtime_ns: time of the last change, nanoseconds.
        reader: reads it.
        is_link: whether the name is a link to it.
        data: its bytes, where they were given and are in no file.
    """

    uri: str
    path: str
    size: int
    mtime_ns: int
    reader: Reader
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

    Args:
        readers: by suffix and pattern.

    Attributes:
        kept: by uri the size in bytes, the time of the last change in nanoseconds, the path, and whether it is a link.
    """

    def __init__(self, readers: Mapping[str, Reader]) -> None:
        self.readers = readers
        self.kept: dict[str, tuple[int, int, str, bool]] = {}
        self._data: dict[str, bytes] = {}

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
        found = self._by_suffix.get(uri[dot:]) if dot > 0 and uri[dot - 1] != "/" else None
        return found or versioned(self[uri].reader)

    @cached_property
    def _by_suffix(self) -> Mapping[str, str]:
        """Of suffixes that no pattern and no longer suffix stands above."""
        names = self.readers.keys()
        if any(not name.startswith(".") or set(name) & set("*?[/") for name in names):
            return {}
        longer = {name[name.rfind(".") :] for name in names if name.count(".") > 1}
        return {name: versioned(reader) for name, reader in self.readers.items() if name not in longer}


@dataclass(frozen=True)
class Skipped(Value):
    """Something in the folder that was left out, and why."""

    uri: str
    reason: str


@dataclass
class Found:
    """What there is: here, what a walk through folders found.

    Attributes:
        files: by uri, in the order of their names.
        skipped: links, special files and what may not be read.
        unread: number of files that no reader knows, by suffix.
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

    @property
    def uris(self) -> Collection[str] | None:
        """What has to be known of a store to compare it; None for all."""
        return None

    def concerns(self, uri: str) -> bool:
        """Whether it tells whether this document is there."""
        return not is_elsewhere(uri) and not uri.startswith(self.closed)

    def misses(self, uri: str) -> bool:
        """Whether what was there is gone."""
        return uri not in self.files and self.concerns(uri)


@dataclass
class Lot(Found):
    """Some of what is there, and what is gone; of all else nothing is said.

    Attributes:
        gone: uris of documents that are there no more.
    """

    gone: frozenset[str] = frozenset()

    @property
    def uris(self) -> Collection[str] | None:
        return [*self.files, *self.gone]

    def concerns(self, uri: str) -> bool:
        return uri in self.files or uri in self.gone
