"""Files that are to be documents, as a walk through folders found them or somebody gave them."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import stat
import sys
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from os.path import splitext
from pathlib import Path
from tempfile import mkstemp

from spolia.errors import DocumentError, FolderError
from spolia.indexing.readers.reader import FileReader, is_pattern, reader_of, versioned_name
from spolia.indexing.readers.text import TextReader
from spolia.stores.backends.publication import Draft
from spolia.stores.backends.rows import Stamp
from spolia.stores.files import DATABASE, PINS
from spolia.types import Value
from spolia.types.value import maker

TEXT = "text:"
"""How the uris of documents begin that were given as texts."""
_ELSEWHERE = re.compile(r"text:|[a-z][a-z0-9+.-]*://")


def is_elsewhere(uri: str) -> bool:
    """Whether a document is of no folder: nothing that a walk finds or misses concerns it. No path has `://` in it."""
    return _ELSEWHERE.match(uri) is not None


@dataclass(frozen=True)
class File(Value):
    """A file that a reader reads: `uri` is its path in the folder, with `/`; `data` its bytes, where it is no file.

    `identity`: device and number of the file when it was listed, of a link those of its target; `place`: those of the
    folder in which it was listed.
    """

    uri: str
    path: str
    size: int
    mtime_ns: int
    reader: FileReader
    is_link: bool = False
    data: bytes | None = field(default=None, repr=False)
    identity: tuple[int, int] | None = field(default=None, repr=False)
    place: tuple[int, int] | None = field(default=None, repr=False)

    def load(self, spool: Path | None = None) -> Loaded:
        """Its bytes as they are now; those of a large file in a copy in the folder `spool`, where there is one."""
        if self.data is not None:
            return Loaded(self.data, self.size, self.mtime_ns, self.mtime_ns, self.mtime_ns)
        return load(self.path, follow=self.is_link, spool=spool, identity=self.identity, place=self.place)


class Files(Mapping[str, File]):
    """Files by uri, in the order in which they came.

    There may be many, of which few have changed. So plain tuples are `kept`, which Python's collector of garbage leaves
    out, and a `File` is made when it is asked for.
    """

    def __init__(self, readers: Mapping[str, FileReader]) -> None:
        self.readers = readers
        self.kept: dict[str, tuple[int, int, str, bool, tuple[int, int] | None]] = {}
        self.places: dict[str, tuple[int, int]] = {}
        self._data: dict[str, bytes] = {}
        self._known: dict[str, FileReader] = {}

    def __len__(self) -> int:
        return len(self.kept)

    def __iter__(self) -> Iterator[str]:
        return iter(self.kept)

    def __contains__(self, uri: object) -> bool:
        return uri in self.kept

    def __getitem__(self, uri: str) -> File:
        size, mtime_ns, path, is_link, identity = self.kept[uri]
        suffix = suffix_of(uri)
        if (reader := self._known.get(suffix)) is None:
            reader = reader_of(uri.removeprefix(TEXT), self.readers) or TextReader()
            if suffix in self._deciding:
                self._known[suffix] = reader
        place = self.places.get(path[: path.rfind(os.sep) + 1])
        return _file(uri, path, size, mtime_ns, reader, is_link, self._data.get(uri), identity, place)

    def give(self, uri: str, data: bytes, mtime_ns: int) -> None:
        """What is no file, but bytes."""
        self.kept[uri], self._data[uri] = (len(data), mtime_ns, "", False, None), data

    def only(self, uris: Iterable[str]) -> Files:
        some = copy(self)
        some.kept = {uri: self.kept[uri] for uri in uris}
        return some

    def sizes(self) -> dict[str, tuple[int, int]]:
        """Size and time of the last change of each."""
        return {uri: (size, mtime_ns) for uri, (size, mtime_ns, *_) in self.kept.items()}

    def unlike(self, known: Mapping[str, Stamp]) -> dict[str, File]:
        """Files with another size, time of change or reader than when they were indexed, and new ones."""
        found: dict[str, File] = {}
        versions: dict[str, str] = {}  # of readers by suffix, where the end of a name decides: no `File` is made for it
        for uri, (size, at, *_) in self.kept.items():
            suffix = suffix_of(uri)
            if (reader := versions.get(suffix)) is None:
                reader = versioned_name(self[uri].reader)
                if suffix in self._deciding:
                    versions[suffix] = reader
            if known.get(uri) != (size, at, "indexed", reader):
                found[uri] = self[uri]
        return found

    @cached_property
    def _deciding(self) -> frozenset[str]:
        return deciding_suffixes(frozenset(self.readers))


@lru_cache(16)
def deciding_suffixes(names: frozenset[str]) -> frozenset[str]:
    """Return the suffixes that no pattern and no longer suffix stands above."""
    if any(is_pattern(name) for name in names):
        return frozenset()
    return names - {name[name.rfind(".") :] for name in names if name.count(".") > 1}


def suffix_of(uri: str) -> str:
    """With its dot; empty where the dot begins the name."""
    dot = uri.rfind(".")
    return uri[dot:] if dot > 0 and uri[dot - 1] not in "/:" else ""


@dataclass(frozen=True)
class Skipped(Value):
    """Something in the folder that was left out, and why."""

    uri: str
    reason: str


@dataclass
class FileListing:
    """What there is: here, what a walk through folders found.

    Attributes:
        unread: number of files that no reader knows, by suffix.
        unknown: their uris: what another reader made of them before is kept.
        closed: folders that could not be listed, or hold what could not be looked at, as uris with `/` at the end, the
            whole folder as an empty one; what is in them is not known.
        source: where it is from, by the name under which a store remembers that.
        cursors: how far each part was read with this batch; an empty one is forgotten.
        folder: as the caller named it; empty where this is not all of a folder.
        folders: device and inode of each folder that was listed.
        again: files that are read, split and asked about again although they have not changed.
    """

    files: Files
    skipped: list[Skipped] = field(default_factory=list)
    unread: Counter[str] = field(default_factory=Counter)
    closed: tuple[str, ...] = ()
    source: str = ""
    cursors: Mapping[str, str] = field(default_factory=dict)
    unknown: set[str] = field(default_factory=set, kw_only=True)
    folder: str = field(default="", kw_only=True)
    folders: set[tuple[int, int]] = field(default_factory=set, kw_only=True)
    again: frozenset[str] = field(default=frozenset(), kw_only=True)

    def is_again(self, uri: str) -> bool:
        """Whether a file, or the container that it is in, is to be made again."""
        return bool(self.again) and any(uri == one or uri.startswith(f"{one}/") for one in self.again)

    @property
    def uris(self) -> Collection[str] | None:
        """What has to be known of a store to compare it; None for all."""
        return None

    def concerns(self, uri: str) -> bool:
        """Whether it tells whether this document is there."""
        return not is_elsewhere(uri) and not uri.startswith(self.closed) and uri not in self.unknown

    def misses(self, uri: str) -> bool:
        """Whether a file has been removed."""
        return uri not in self.files and self.concerns(uri)

    def is_deleted(self, path: str) -> bool:
        """Whether what was listed was deleted since, or a folder above it: the next one above is as it was listed.

        If the whole folder vanished, or a network folder in it, the next one above is none that was listed.
        """
        for at in () if os.path.lexists(path) else (Path(path), *Path(path).parents):
            try:
                there = at.stat()
            except OSError as error:
                if not isinstance(error, FileNotFoundError) or at.is_symlink():
                    return False
            else:
                return (there.st_dev, there.st_ino) in self.folders
        return False


@dataclass
class SourceChanges(FileListing):
    """Some of the files, and the uris of those `gone`; leaves all others open."""

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
    """All bytes of a file, of a large one the path of a copy; its size and times (nanoseconds) when they were read."""

    content: bytes | Path = field(repr=False)
    size: int
    mtime_ns: int
    created_ns: int = 0
    accessed_ns: int = 0


def load(
    path: str,
    *,
    follow: bool = False,
    spool: Path | None = None,
    identity: tuple[int, int] | None = None,
    place: tuple[int, int] | None = None,
) -> Loaded:
    """Read a file that does not change meanwhile; large ones into a copy in the folder `spool`, where there is one.

    `identity`: device and number of the file that a link must lead to. Another file may have them by now, but in the
    folder with those of `place`; one that took its place, as a link, is not read.
    """
    for attempt in range(ATTEMPTS):
        if attempt:
            time.sleep(attempt * SETTLED_NS / 1e9)
        if (loaded := _attempt(path, follow, spool, identity, place)) is not None:
            return loaded
    raise DocumentError(f"It changed while it was read, {ATTEMPTS} times. Index again when it is no longer written to.")


_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK


def _opened(
    path: str, follow: bool, identity: tuple[int, int] | None, place: tuple[int, int] | None
) -> tuple[int, os.stat_result]:
    """A file and its status: the file that was listed, or another one in the same folder."""
    flags = _READ if follow else _READ | os.O_NOFOLLOW
    descriptor = os.open(path, flags)
    there = os.fstat(descriptor)
    if place is None or _place(there) == identity:
        return descriptor, there
    os.close(descriptor)
    folder = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if _place(os.fstat(folder)) != place:
            os.stat(os.path.basename(path), dir_fd=folder, follow_symlinks=False)  # raises if the file is gone
            raise DocumentError("Its folder is another one than was listed. Index again.")
        descriptor = os.open(os.path.basename(path), flags, dir_fd=folder)
        return descriptor, os.fstat(descriptor)
    finally:
        os.close(folder)


def _place(there: os.stat_result) -> tuple[int, int]:
    return there.st_dev, there.st_ino


def _attempt(
    path: str, follow: bool, spool: Path | None, identity: tuple[int, int] | None, place: tuple[int, int] | None
) -> Loaded | None:
    descriptor, before = _opened(path, follow, identity, place)
    try:
        if not stat.S_ISREG(before.st_mode):
            raise DocumentError("It is not a file any more. Index again.")
        if follow and identity not in (None, _place(before)):
            raise DocumentError("It is a link to another file than when it was listed. Index again.")
        if before.st_size > LARGEST_BYTES:
            raise DocumentError(
                f"It has {before.st_size} bytes; a document has at most {LARGEST_BYTES}. Split it, for example: "
                "split --line-bytes=100M FILE"
            )
        if 0 <= time.time_ns() - before.st_mtime_ns < SETTLED_NS:
            time.sleep(SETTLED_NS / 1e9)
        content: bytes | Path
        if spool is None or before.st_size <= IN_MEMORY:
            content = _all_of(descriptor, before.st_size)
        else:
            copy, name = mkstemp(dir=spool)
            content = Path(name)
            with open(descriptor, "rb", buffering=0, closefd=False) as file, open(copy, "wb") as out:
                shutil.copyfileobj(file, out, _PIECE)
        after = os.fstat(descriptor)
    finally:
        os.close(descriptor)
    read = len(content) if isinstance(content, bytes) else content.stat().st_size
    if (before.st_size, before.st_mtime_ns, read) != (after.st_size, after.st_mtime_ns, after.st_size):
        if isinstance(content, Path):
            content.unlink()
        return None
    made = getattr(before, "st_birthtime_ns", min(before.st_mtime_ns, before.st_ctime_ns))
    times = after.st_mtime_ns, made, before.st_atime_ns
    if max(times) > LATEST_NS:
        times = min(times[0], LATEST_NS), min(times[1], LATEST_NS), min(times[2], LATEST_NS)
    return _loaded(content, after.st_size, *times)


_file, _loaded = maker(File), maker(Loaded)


def _all_of(descriptor: int, size: int) -> bytes:
    """The bytes of an open file that has as many; where it has not, those that can be had."""
    read = os.read(descriptor, size + 1)
    if len(read) == size:
        return read
    with open(descriptor, "rb", buffering=0, closefd=False) as file:  # it grows, or is larger than one call reads
        return read + file.readall()


HIDDEN = (".", "~$")
STORE_SUFFIX = ".spolia"


def walk(
    folder: str | Path | Sequence[str | Path], readers: Mapping[str, FileReader], *, follow_links: bool = False
) -> FileListing:
    """All files of a folder that can be read. Hidden files, stores and what links lead out to are left out.

    Of several folders and files, the uris are relative to the folder that all of them are in.
    """
    for path in [folder] if isinstance(folder, (str, Path)) else folder:
        if all(os.path.exists(os.path.join(path, name)) for name in (DATABASE, PINS)):
            raise FolderError(
                f"{path} is a store, not a folder with documents. Write --store {path} to ask it "
                f"(in Python Corpus({str(path)!r})), or the folder with the documents."
            )
    if isinstance(folder, (str, Path)):
        _refuse_no_folder(os.fspath(folder))
        return _Walk([os.fspath(folder)], os.fspath(folder), str(folder), readers, follow_links).found
    given = [os.path.abspath(path) for path in folder]
    if missing := [path for path in given if not os.path.exists(path)]:
        raise FolderError(f"There is no file or folder {missing[0]}. Write paths of files, or of folders with some.")
    if not given:
        raise FolderError("No file and no folder is named. Write paths of files, or of folders with some.")
    base = os.path.commonpath([path if os.path.isdir(path) else os.path.dirname(path) for path in given])
    return _Walk(given, base, ", ".join(map(str, folder)), readers, follow_links).found


def _refuse_no_folder(folder: str) -> None:
    if not os.path.lexists(folder):
        raise FolderError(f"There is no folder {folder}. Write the path of a folder with documents.")
    if not os.path.isdir(folder):
        inside = os.path.dirname(folder) or "."
        raise FolderError(
            f"{folder} is a file, not a folder. Write the folder that it is in: {inside} "
            f"(in Python a list, [{folder!r}], for a store that holds this file alone)."
        )


_Folder = tuple[str, str, tuple[int, int]]
"""Path, name in uris, device and number."""


class _Walk:
    def __init__(
        self, given: Sequence[str], base: str, name: str, readers: Mapping[str, FileReader], follow_links: bool
    ) -> None:
        self.readers, self.follow_links, self._suffixes = readers, follow_links, frozenset(readers)
        cursors = {ROOT: os.path.realpath(base)}
        self.found = FileListing(Files(readers), source=FOLDER, cursors=cursors, folder=name)
        for path in given:
            name = os.path.relpath(path, base)
            if not os.path.isdir(path):  # it was named itself, hidden or a link or not
                if _uri(name) not in self.found.files:
                    self._take(path, name, _seen(path), os.path.islink(path))
                continue
            self.root = os.path.realpath(path)
            self._todo = [(path, "" if name == os.curdir else f"{name}/", _place(_seen(path)))]
            while self._todo:
                self._list(*self._todo.pop())

    def _list(self, path: str, prefix: str, place: tuple[int, int]) -> None:
        """Note what is in a folder; prefix: its name in uris, with `/` at the end; place: as it was when it was met."""
        below: list[_Folder] = []
        within = os.path.join(path, "")
        try:
            with _listed(path) as (folder, names):
                if _place(os.fstat(folder)) != place:
                    raise OSError(0, "another folder took its place")
                if place in self.found.folders:
                    self._skip(prefix, "It is a link to a folder that is read anyway.")
                    return
                self.found.folders.add(place)
                self.found.files.places[within] = place
                for name in names:
                    if not name.startswith(HIDDEN):
                        self._note(folder, name, within + name, prefix + name, below)
        except OSError as error:
            if not prefix:
                raise FolderError(f"{path} cannot be listed: {error.strerror}. Change its permissions.") from error
            if not self.found.is_deleted(path):
                self.found.closed += (_uri(prefix),)
                self._skip(prefix, f"It cannot be listed: {error.strerror}.")
        self._todo += reversed(below)

    def _note(self, folder: int, last: str, path: str, name: str, below: list[_Folder]) -> None:
        try:
            there = os.lstat(last, dir_fd=folder)
            if is_link := stat.S_ISLNK(there.st_mode):
                target, there = _led_to(folder, last)
                if reason := _refused_link(target, there, self.root, self.follow_links):
                    self._skip(name, reason)
                    return
            if not stat.S_ISDIR(there.st_mode):
                self._take(path, name, there, is_link)
            elif not _is_store(path):
                below.append((path, f"{name}/", _place(there)))
        except OSError as error:
            if not self.found.is_deleted(path):
                self._skip(name, f"It cannot be looked at: {error.strerror}.")
                if (folder_uri := _uri(name.removesuffix(last))) not in self.found.closed[-1:]:
                    self.found.closed += (folder_uri,)

    def _take(self, path: str, name: str, there: os.stat_result, is_link: bool) -> None:
        if name[name.rfind(".") :] not in self._suffixes and reader_of(name, self.readers) is None:
            self.found.unread[splitext(name)[1].lower()] += 1
            self.found.unknown.add(_uri(name))
            return
        uri, kept = _uri(name), self.found.files.kept
        mtime_ns = there.st_mtime_ns
        if not stat.S_ISREG(there.st_mode):
            self._skip(uri, "It is not a file but a device, a pipe or a socket.")
        elif ":" in uri and is_elsewhere(uri):
            self._skip(uri, f"Its name begins with {uri[:5]!r}, as those of texts do that were given. Rename it.")
        elif uri not in kept:
            kept[uri] = there.st_size, mtime_ns if mtime_ns < LATEST_NS else LATEST_NS, path, is_link, _place(there)
        elif kept[uri][2] != path:
            self._skip(uri, "Another file has this name once both are written in UTF-8. Rename it.")

    def _skip(self, name: str, reason: str) -> None:
        self.found.skipped.append(Skipped(_uri(name), reason))


def _seen(path: str) -> os.stat_result:
    try:
        return os.stat(path)
    except OSError as error:
        raise FolderError(f"There is no folder or file {path} any more: {error.strerror}. Put it back.") from error


@contextmanager
def _listed(path: str) -> Iterator[tuple[int, list[str]]]:
    """A folder and the names in it; while it is open, nobody has to go the way to it again."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield descriptor, sorted(os.listdir(descriptor))
    finally:
        os.close(descriptor)


_LOOK = os.O_CLOEXEC | getattr(os, "O_PATH", os.O_RDONLY | os.O_NONBLOCK)
"""Opens a file without reading it; if a system cannot, as for reading."""


def _led_to(folder: int, link: str) -> tuple[str, os.stat_result]:
    """The target of a link and its status; of one open file, so that both hold even if the link changes meanwhile."""
    try:
        descriptor = os.open(link, _LOOK, dir_fd=folder)
    except OSError:
        return "", os.lstat(link, dir_fd=folder)
    try:
        return _path_of(descriptor), os.fstat(descriptor)
    finally:
        os.close(descriptor)


def _path_of(descriptor: int) -> str:
    if sys.platform == "darwin":
        return os.fsdecode(fcntl.fcntl(descriptor, fcntl.F_GETPATH, bytes(1_024)).rstrip(b"\0"))
    return os.readlink(f"/proc/self/fd/{descriptor}")


def _refused_link(target: str, there: os.stat_result, root: str, follow_links: bool) -> str:
    if not target:
        return "It is a link that leads nowhere."
    inside = target == root or target.startswith(root.rstrip(os.sep) + os.sep)
    if inside and stat.S_ISDIR(there.st_mode):
        return "It is a link to a folder within this one, which is read anyway."
    if not inside and not follow_links:
        return f"It is a link out of the folder, to {_uri(target)}; write follow_links=True to follow it."
    return ""


def _is_store(path: str) -> bool:
    name = os.path.basename(path)
    return name.endswith(STORE_SUFFIX) or f"{STORE_SUFFIX}.tmp" in name or os.path.exists(os.path.join(path, DATABASE))


def _uri(name: str) -> str:
    """A file name as Unicode; bytes that are not UTF-8 are written as `\\xNN`."""
    if name.isascii():
        return name
    return os.fsencode(name).decode("utf-8", "backslashreplace")


FOLDER, ROOT = "folder", "root"
"""Under which a store remembers its folder, as it does how far sources were read."""


def refuse_other(found: FileListing, known: Mapping[str, Stamp], writer: Draft) -> None:
    """Refuse a folder that is not where the store's folder was, nor that folder in another place.

    It is the same in another place if it has at least half of the documents by their names, as a copy has, or all by
    their sizes and times, as folders have that were moved into one another.
    """
    root = writer.cursor(FOLDER, ROOT)
    if not found.folder or (root and root == found.cursors.get(ROOT)):
        return
    held = {uri: (size, mtime_ns) for uri, (size, mtime_ns, *_) in known.items() if is_top(uri, known)}
    there = sum(uri in found.files for uri in held)
    if 2 * there >= len(held) or set(held.values()) <= set(found.files.sizes().values()):
        return
    where = f"of {root}, and " if root else "and "
    raise FolderError(
        f"{writer.store} holds {len(held)} documents {where}{there or 'none'} of them {'are' if there > 1 else 'is'} "
        f"in {found.folder}: to index it would forget the others. A store has one folder: name that, or another "
        "--store, or write --rebuild (rebuild=True) to forget what it holds."
    )


def refuse_folder_since(seen: str, found: FileListing) -> Callable[[Draft], None]:
    """Refuses as `refuse_other` does where a store has another folder than the one that was `seen`, or none then."""

    def refuse(writer: Draft) -> None:
        if found.folder and writer.cursor(FOLDER, ROOT) not in (seen, found.cursors.get(ROOT)):
            refuse_other(found, writer.stamps(), writer)

    return refuse


def is_top(uri: str, known: Mapping[str, Stamp]) -> bool:
    """Whether a document is a file of a folder: neither of another source nor read out of a container."""
    parts = uri.split("/")
    above = ("/".join(parts[:depth]) for depth in range(1, len(parts)))
    return not is_elsewhere(uri) and known.keys().isdisjoint(above)
