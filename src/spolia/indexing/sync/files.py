"""Files to index: found by walking folders, or given by the caller."""

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
from spolia.types.value import unchecked_constructor

TEXT = "text:"
"""How the uris of documents begin that were given as texts."""
_ELSEWHERE = re.compile(r"text:|[a-z][a-z0-9+.-]*://")


def is_elsewhere(uri: str) -> bool:
    """Return whether a document belongs to no folder, so that no walk finds or misses it. No path has `://` in it."""
    return _ELSEWHERE.match(uri) is not None


@dataclass(frozen=True)
class File(Value):
    """File that a reader reads: `uri` is its path in the folder, with `/`; `data` its bytes, if it is not on disk.

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
        """Return its bytes as they are now; a large file is copied into the folder `spool`, if given."""
        if self.data is not None:
            return Loaded(self.data, self.size, self.mtime_ns, self.mtime_ns, self.mtime_ns)
        return load(self.path, follow=self.is_link, spool=spool, identity=self.identity, place=self.place)


class Files(Mapping[str, File]):
    """Files by uri, in the order in which they came.

    There may be many, of which few have changed. So `entries` holds plain tuples, which Python's collector of garbage
    leaves out, and a `File` is made when it is asked for.
    """

    def __init__(self, readers: Mapping[str, FileReader]) -> None:
        self.readers = readers
        self.entries: dict[str, tuple[int, int, str, bool, tuple[int, int] | None]] = {}
        self.places: dict[str, tuple[int, int]] = {}
        self._data: dict[str, bytes] = {}
        self._readers_by_suffix: dict[str, FileReader] = {}

    def __len__(self) -> int:
        return len(self.entries)

    def __iter__(self) -> Iterator[str]:
        return iter(self.entries)

    def __contains__(self, uri: object) -> bool:
        return uri in self.entries

    def __getitem__(self, uri: str) -> File:
        size, mtime_ns, path, is_link, identity = self.entries[uri]
        suffix = suffix_of(uri)
        if (reader := self._readers_by_suffix.get(suffix)) is None:
            reader = reader_of(uri.removeprefix(TEXT), self.readers) or TextReader()
            if suffix in self._deciding_suffixes:
                self._readers_by_suffix[suffix] = reader
        place = self.places.get(path[: path.rfind(os.sep) + 1])
        return _file(uri, path, size, mtime_ns, reader, is_link, self._data.get(uri), identity, place)

    def add_bytes(self, uri: str, data: bytes, mtime_ns: int) -> None:
        """Add bytes that are in no file."""
        self.entries[uri], self._data[uri] = (len(data), mtime_ns, "", False, None), data

    def select(self, uris: Iterable[str]) -> Files:
        selected = copy(self)
        selected.entries = {uri: self.entries[uri] for uri in uris}
        return selected

    def sizes(self) -> dict[str, tuple[int, int]]:
        """Return size and time of the last change of each file."""
        return {uri: (size, mtime_ns) for uri, (size, mtime_ns, *_) in self.entries.items()}

    def find_changed(self, stamps: Mapping[str, Stamp]) -> dict[str, File]:
        """Return new files, and those with another size, time of change or reader than when they were indexed."""
        changed_files: dict[str, File] = {}
        versions: dict[str, str] = {}  # of readers by suffix, where the end of a name decides: no `File` is made for it
        for uri, (size, mtime_ns, *_) in self.entries.items():
            suffix = suffix_of(uri)
            if (reader := versions.get(suffix)) is None:
                reader = versioned_name(self[uri].reader)
                if suffix in self._deciding_suffixes:
                    versions[suffix] = reader
            if stamps.get(uri) != (size, mtime_ns, "indexed", reader):
                changed_files[uri] = self[uri]
        return changed_files

    @cached_property
    def _deciding_suffixes(self) -> frozenset[str]:
        return deciding_suffixes(frozenset(self.readers))


@lru_cache(16)
def deciding_suffixes(names: frozenset[str]) -> frozenset[str]:
    """Return the suffixes that no pattern and no longer suffix stands above."""
    if any(is_pattern(name) for name in names):
        return frozenset()
    return names - {name[name.rfind(".") :] for name in names if name.count(".") > 1}


def suffix_of(uri: str) -> str:
    """Return the suffix of a uri, with its dot; empty where the dot begins the name."""
    dot = uri.rfind(".")
    return uri[dot:] if dot > 0 and uri[dot - 1] not in "/:" else ""


@dataclass(frozen=True)
class Skipped(Value):
    """Entry of a folder that was left out, and why."""

    uri: str
    reason: str


@dataclass
class FileListing:
    """Listing of a source's files; this one comes from walking folders.

    Attributes:
        unread: number of files that no reader knows, by suffix.
        unknown: their uris: what another reader made of them before is kept.
        unlisted: folders that could not be listed, or hold what could not be looked at, as uris with `/` at the end,
            the whole folder as an empty one; what is in them is not known.
        source: where it is from, by the name under which a store remembers that.
        cursors: how far each part was read with this batch; an empty one is forgotten.
        folder: as the caller named it; empty where this is not all of a folder.
        folders: device and inode of each folder that was listed.
        forced_uris: files that are read, split and asked about again although they have not changed.
    """

    files: Files
    skipped: list[Skipped] = field(default_factory=list)
    unread: Counter[str] = field(default_factory=Counter)
    unlisted: tuple[str, ...] = ()
    source: str = ""
    cursors: Mapping[str, str] = field(default_factory=dict)
    unknown: set[str] = field(default_factory=set, kw_only=True)
    folder: str = field(default="", kw_only=True)
    folders: set[tuple[int, int]] = field(default_factory=set, kw_only=True)
    forced_uris: frozenset[str] = field(default=frozenset(), kw_only=True)

    def is_forced(self, uri: str) -> bool:
        """Return whether a file, or the container that it is in, is to be indexed again though unchanged."""
        return bool(self.forced_uris) and any(
            uri == forced_uri or uri.startswith(f"{forced_uri}/") for forced_uri in self.forced_uris
        )

    @property
    def uris(self) -> Collection[str] | None:
        """Return the uris whose rows a store must read to be compared; None for all."""
        return None

    def concerns(self, uri: str) -> bool:
        """Return whether the listing tells if this document still exists."""
        return not is_elsewhere(uri) and not uri.startswith(self.unlisted) and uri not in self.unknown

    def misses(self, uri: str) -> bool:
        """Return whether a file has been removed."""
        return uri not in self.files and self.concerns(uri)

    def is_deleted(self, path: str) -> bool:
        """Return whether a listed path was deleted since, or a folder above it: the next one above is as it was listed.

        If the whole folder vanished, or a network folder in it, the next one above is none that was listed.
        """
        for candidate in () if os.path.lexists(path) else (Path(path), *Path(path).parents):
            try:
                status = candidate.stat()
            except OSError as error:
                if not isinstance(error, FileNotFoundError) or candidate.is_symlink():
                    return False
            else:
                return (status.st_dev, status.st_ino) in self.folders
        return False


@dataclass
class SourceChanges(FileListing):
    """Changes of a source: some of its files, and the uris of those `gone`; it says nothing of all others."""

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
    """Content of a file, of a large one the path of a copy; its size and times (nanoseconds) when it was read."""

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
        if (loaded := _try_load(path, follow, spool, identity, place)) is not None:
            return loaded
    raise DocumentError(f"It changed while it was read, {ATTEMPTS} times. Index again when it is no longer written to.")


_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK  # else opening a pipe would wait for a writer


def _open_listed(
    path: str, follow: bool, identity: tuple[int, int] | None, place: tuple[int, int] | None
) -> tuple[int, os.stat_result]:
    """Open a file and return its status: the file that was listed, or another one in the same folder."""
    # A link may have taken the place of a listed file, and lead out of the folder.
    flags = _READ if follow else _READ | os.O_NOFOLLOW
    descriptor = os.open(path, flags)
    status = os.fstat(descriptor)
    if place is None or _device_and_inode(status) == identity:
        return descriptor, status
    os.close(descriptor)
    folder = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if _device_and_inode(os.fstat(folder)) != place:
            os.stat(os.path.basename(path), dir_fd=folder, follow_symlinks=False)  # raises if the file is gone
            raise DocumentError("Its folder is another one than was listed. Index again.")
        descriptor = os.open(os.path.basename(path), flags, dir_fd=folder)
        return descriptor, os.fstat(descriptor)
    finally:
        os.close(folder)


def _device_and_inode(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _try_load(
    path: str, follow: bool, spool: Path | None, identity: tuple[int, int] | None, place: tuple[int, int] | None
) -> Loaded | None:
    descriptor, status = _open_listed(path, follow, identity, place)
    try:
        if not stat.S_ISREG(status.st_mode):
            raise DocumentError("It is not a file any more. Index again.")
        if follow and identity not in (None, _device_and_inode(status)):
            raise DocumentError("It is a link to another file than when it was listed. Index again.")
        if status.st_size > LARGEST_BYTES:
            raise DocumentError(
                f"It has {status.st_size} bytes; a document has at most {LARGEST_BYTES}. Split it, for example: "
                "split --line-bytes=100M FILE"
            )
        # A time in the future is not reached by waiting.
        if 0 <= time.time_ns() - status.st_mtime_ns < SETTLED_NS:
            time.sleep(SETTLED_NS / 1e9)
        content: bytes | Path
        if spool is None or status.st_size <= IN_MEMORY:
            content = _read_all(descriptor, status.st_size)
        else:
            copy_descriptor, name = mkstemp(dir=spool)
            content = Path(name)
            with open(descriptor, "rb", buffering=0, closefd=False) as file, open(copy_descriptor, "wb") as out:
                shutil.copyfileobj(file, out, _PIECE)
        final_status = os.fstat(descriptor)
    finally:
        os.close(descriptor)
    read = len(content) if isinstance(content, bytes) else content.stat().st_size
    if (status.st_size, status.st_mtime_ns, read) != (
        final_status.st_size,
        final_status.st_mtime_ns,
        final_status.st_size,
    ):
        if isinstance(content, Path):
            content.unlink()
        return None
    # Linux does not tell when a file was made: not later than either of these.
    created_ns = getattr(status, "st_birthtime_ns", min(status.st_mtime_ns, status.st_ctime_ns))
    times = final_status.st_mtime_ns, created_ns, status.st_atime_ns
    if max(times) > LATEST_NS:
        times = min(times[0], LATEST_NS), min(times[1], LATEST_NS), min(times[2], LATEST_NS)
    return _loaded(content, final_status.st_size, *times)


_file, _loaded = unchecked_constructor(File), unchecked_constructor(Loaded)


def _read_all(descriptor: int, size: int) -> bytes:
    """Read an open file: `size` bytes, or however many it has by now."""
    read = os.read(descriptor, size + 1)  # one byte more shows whether it has grown
    if len(read) == size:
        return read
    with open(descriptor, "rb", buffering=0, closefd=False) as file:  # it grows, or is larger than one call reads
        return read + file.readall()


HIDDEN = (".", "~$")  # `~$` are Office's marks for open documents
STORE_SUFFIX = ".spolia"


def walk(
    folder: str | Path | Sequence[str | Path], readers: Mapping[str, FileReader], *, follow_links: bool = False
) -> FileListing:
    """List all files of a folder that can be read. Hidden files, stores and links that lead out are left out.

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
        return _Walk([os.fspath(folder)], os.fspath(folder), str(folder), readers, follow_links).listing
    paths = [os.path.abspath(path) for path in folder]
    if missing := [path for path in paths if not os.path.exists(path)]:
        raise FolderError(f"There is no file or folder {missing[0]}. Write paths of files, or of folders with some.")
    if not paths:
        raise FolderError("No file and no folder is named. Write paths of files, or of folders with some.")
    base = os.path.commonpath([path if os.path.isdir(path) else os.path.dirname(path) for path in paths])
    return _Walk(paths, base, ", ".join(map(str, folder)), readers, follow_links).listing


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
        self, paths: Sequence[str], base: str, name: str, readers: Mapping[str, FileReader], follow_links: bool
    ) -> None:
        self.readers, self.follow_links, self._suffixes = readers, follow_links, frozenset(readers)
        cursors = {ROOT: os.path.realpath(base)}
        self.listing = FileListing(Files(readers), source=FOLDER, cursors=cursors, folder=name)
        for path in paths:
            name = os.path.relpath(path, base)
            if not os.path.isdir(path):  # it was named itself, hidden or a link or not
                if _uri(name) not in self.listing.files:
                    self._add_file(path, name, _get_status(path), os.path.islink(path))
                continue
            self.root = os.path.realpath(path)
            self._todo = [(path, "" if name == os.curdir else f"{name}/", _device_and_inode(_get_status(path)))]
            while self._todo:
                self._list_folder(*self._todo.pop())

    def _list_folder(self, path: str, prefix: str, place: tuple[int, int]) -> None:
        """List a folder; `prefix` is its name in uris, with `/` at the end, `place` its inode when it was met."""
        subfolders: list[_Folder] = []
        folder_path = os.path.join(path, "")
        try:
            with _open_folder(path) as (folder, names):
                if _device_and_inode(os.fstat(folder)) != place:
                    raise OSError(0, "another folder took its place")  # handled below as one that cannot be listed
                if place in self.listing.folders:
                    self._skip(prefix, "It is a link to a folder that is read anyway.")
                    return
                self.listing.folders.add(place)
                self.listing.files.places[folder_path] = place
                for name in names:
                    if not name.startswith(HIDDEN):
                        self._add_entry(folder, name, folder_path + name, prefix + name, subfolders)
        except OSError as error:
            if not prefix:
                raise FolderError(f"{path} cannot be listed: {error.strerror}. Change its permissions.") from error
            if not self.listing.is_deleted(path):
                self.listing.unlisted += (_uri(prefix),)
                self._skip(prefix, f"It cannot be listed: {error.strerror}.")
        self._todo += reversed(subfolders)  # a stack: the first one comes off first

    def _add_entry(self, folder: int, base_name: str, path: str, name: str, subfolders: list[_Folder]) -> None:
        try:
            status = os.lstat(base_name, dir_fd=folder)
            if is_link := stat.S_ISLNK(status.st_mode):
                target, status = _follow_link(folder, base_name)
                if reason := _reason_to_skip_link(target, status, self.root, self.follow_links):
                    self._skip(name, reason)
                    return
            if not stat.S_ISDIR(status.st_mode):
                self._add_file(path, name, status, is_link)
            elif not _is_store(path):
                subfolders.append((path, f"{name}/", _device_and_inode(status)))
        except OSError as error:
            if not self.listing.is_deleted(path):
                self._skip(name, f"It cannot be looked at: {error.strerror}.")
                # Entries of one folder come one after the other, so the last one noted is enough to look at.
                if (folder_uri := _uri(name.removesuffix(base_name))) not in self.listing.unlisted[-1:]:
                    self.listing.unlisted += (folder_uri,)

    def _add_file(self, path: str, name: str, status: os.stat_result, is_link: bool) -> None:
        # Fast path: the end of a name decides for most files.
        if name[name.rfind(".") :] not in self._suffixes and reader_of(name, self.readers) is None:
            self.listing.unread[splitext(name)[1].lower()] += 1
            self.listing.unknown.add(_uri(name))
            return
        uri, entries = _uri(name), self.listing.files.entries
        mtime_ns = status.st_mtime_ns
        if not stat.S_ISREG(status.st_mode):
            self._skip(uri, "It is not a file but a device, a pipe or a socket.")
        elif ":" in uri and is_elsewhere(uri):
            self._skip(uri, f"Its name begins with {uri[:5]!r}, as those of texts do that were given. Rename it.")
        elif uri not in entries:
            entries[uri] = (
                status.st_size,
                mtime_ns if mtime_ns < LATEST_NS else LATEST_NS,
                path,
                is_link,
                _device_and_inode(status),
            )
        elif entries[uri][2] != path:
            self._skip(uri, "Another file has this name once both are written in UTF-8. Rename it.")

    def _skip(self, name: str, reason: str) -> None:
        self.listing.skipped.append(Skipped(_uri(name), reason))


def _get_status(path: str) -> os.stat_result:
    try:
        return os.stat(path)
    except OSError as error:
        raise FolderError(f"There is no folder or file {path} any more: {error.strerror}. Put it back.") from error


@contextmanager
def _open_folder(path: str) -> Iterator[tuple[int, list[str]]]:
    """Open a folder and list its names; entries are reached through the descriptor, not by path again."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield descriptor, sorted(os.listdir(descriptor))
    finally:
        os.close(descriptor)


_LOOK = os.O_CLOEXEC | getattr(os, "O_PATH", os.O_RDONLY | os.O_NONBLOCK)
"""Opens a file without reading it; if a system cannot, as for reading."""


def _follow_link(folder: int, link: str) -> tuple[str, os.stat_result]:
    """Return the target of a link and its status, of one open file, so that both hold if the link changes meanwhile."""
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
        # As long as a path can be on macOS.
        return os.fsdecode(fcntl.fcntl(descriptor, fcntl.F_GETPATH, bytes(1_024)).rstrip(b"\0"))
    return os.readlink(f"/proc/self/fd/{descriptor}")


def _reason_to_skip_link(target: str, status: os.stat_result, root: str, follow_links: bool) -> str:
    if not target:
        return "It is a link that leads nowhere."
    inside = target == root or target.startswith(root.rstrip(os.sep) + os.sep)
    if inside and stat.S_ISDIR(status.st_mode):
        return "It is a link to a folder within this one, which is read anyway."
    if not inside and not follow_links:
        return f"It is a link out of the folder, to {_uri(target)}; write follow_links=True to follow it."
    return ""


def _is_store(path: str) -> bool:
    name = os.path.basename(path)
    # `.tmp`: a store that is being made.
    return name.endswith(STORE_SUFFIX) or f"{STORE_SUFFIX}.tmp" in name or os.path.exists(os.path.join(path, DATABASE))


def _uri(name: str) -> str:
    """Return a file name as Unicode; bytes that are not UTF-8 are written as `\\xNN`."""
    if name.isascii():
        return name
    return os.fsencode(name).decode("utf-8", "backslashreplace")


FOLDER, ROOT = "folder", "root"
"""Under which a store remembers its folder, as it does how far sources were read."""


def refuse_other_folder(listing: FileListing, stamps: Mapping[str, Stamp], writer: Draft) -> None:
    """Raise FolderError unless a folder is the store's own, in its place or in another one.

    It is the same in another place if it has at least half of the documents by their names, as a copy has, or all by
    their sizes and times, as folders have that were moved into one another.
    """
    root = writer.cursor(FOLDER, ROOT)
    if not listing.folder or (root and root == listing.cursors.get(ROOT)):
        return
    stored_files = {
        uri: (size, mtime_ns) for uri, (size, mtime_ns, *_) in stamps.items() if is_folder_file(uri, stamps)
    }
    common_count = sum(uri in listing.files for uri in stored_files)
    if 2 * common_count >= len(stored_files) or set(stored_files.values()) <= set(listing.files.sizes().values()):
        return
    origin = f"of {root}, and " if root else "and "
    raise FolderError(
        f"{writer.store} holds {len(stored_files)} documents {origin}{common_count or 'none'} of them "
        f"{'are' if common_count > 1 else 'is'} in {listing.folder}: to index it would forget the others. "
        "A store has one folder: name that, or another --store, "
        "or write --rebuild (rebuild=True) to forget what it holds."
    )


def make_folder_check(known_root: str, listing: FileListing) -> Callable[[Draft], None]:
    """Return a check that refuses as `refuse_other_folder` does if the store's folder is not `known_root` any more."""

    def refuse(writer: Draft) -> None:
        if listing.folder and writer.cursor(FOLDER, ROOT) not in (known_root, listing.cursors.get(ROOT)):
            refuse_other_folder(listing, writer.stamps(), writer)

    return refuse


def is_folder_file(uri: str, stamps: Mapping[str, Stamp]) -> bool:
    """Return whether a document is a file of a folder: neither of another source nor read out of a container."""
    parts = uri.split("/")
    container_uris = ("/".join(parts[:depth]) for depth in range(1, len(parts)))
    return not is_elsewhere(uri) and stamps.keys().isdisjoint(container_uris)
