"""What is in a folder: files that can be read, and what is left out and why."""

from __future__ import annotations

import os
import stat
from collections import Counter
from dataclasses import dataclass, field
from os.path import splitext

from spolia.errors import FolderError
from spolia.indexing.loading import LATEST_NS
from spolia.indexing.readers.choosing import reader_of
from spolia.indexing.readers.reading import Reader
from spolia.types import Value

HIDDEN = (".", "~$")
STORE_SUFFIX, STORE_FILE = ".spolia", "corpus.db"


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
    """

    uri: str
    path: str
    size: int
    mtime_ns: int
    reader: Reader
    is_link: bool = False


@dataclass(frozen=True)
class Skipped(Value):
    """Something in the folder that was left out, and why."""

    uri: str
    reason: str


@dataclass
class Found:
    """What a walk through a folder found.

    Attributes:
        files: by uri, in the order of their names.
        skipped: links, special files and what may not be read.
        unread: number of files that no reader knows, by suffix.
        closed: folders that could not be listed, as uris with `/` at the end; what is in them is not known.
    """

    files: dict[str, File] = field(default_factory=dict)
    skipped: list[Skipped] = field(default_factory=list)
    unread: Counter[str] = field(default_factory=Counter)
    closed: tuple[str, ...] = ()


def walk(folder: str, readers: dict[str, Reader], *, follow_links: bool = False) -> Found:
    """All files of a folder that can be read. Hidden files, stores and what links lead out to are left out.

    Args:
        readers: by suffix.
        follow_links: go where links lead out of the folder too.

    Raises:
        FolderError: there is no such folder, or it may not be listed.
    """
    if not os.path.lexists(folder):
        raise FolderError(f"There is no folder {folder}. Write the path of a folder with documents.")
    if not os.path.isdir(folder):
        inside = os.path.dirname(folder) or "."
        raise FolderError(f"{folder} is a file, not a folder. Write the folder that it is in: {inside}")
    return _Walk(folder, readers, follow_links).found


class _Walk:
    def __init__(self, folder: str, readers: dict[str, Reader], follow_links: bool) -> None:
        self.readers, self.follow_links = readers, follow_links
        self.root = os.path.realpath(folder)
        self.found = Found()
        self._seen: set[tuple[int, int]] = set()
        self._todo = [(folder, "")]
        while self._todo:
            self._list(*self._todo.pop())

    def _list(self, path: str, prefix: str) -> None:
        """Note what is in a folder; prefix: its name in uris, with `/` at the end."""
        try:
            there = os.stat(path)
            if (there.st_dev, there.st_ino) in self._seen:
                self._skip(prefix, "It is a link to a folder that is read anyway.")
                return
            self._seen.add((there.st_dev, there.st_ino))
            with os.scandir(path) as listed:
                entries = sorted(listed, key=lambda entry: entry.name)
        except OSError as error:
            if not prefix:
                raise FolderError(f"{path} cannot be listed: {error.strerror}. Change its permissions.") from error
            self.found.closed += (_uri(prefix),)
            self._skip(prefix, f"It cannot be listed: {error.strerror}.")
            return
        below: list[tuple[str, str]] = []
        for entry in entries:
            if not entry.name.startswith(HIDDEN):
                self._note(entry, prefix + entry.name, below)
        self._todo += reversed(below)

    def _note(self, entry: os.DirEntry[str], name: str, below: list[tuple[str, str]]) -> None:
        try:
            is_link = entry.is_symlink()
            if is_link and (reason := _refused_link(entry, self.root, self.follow_links)):
                self._skip(name, reason)
            elif entry.is_dir():
                if not _is_store(entry):
                    below.append((entry.path, f"{name}/"))
            elif (reader := reader_of(entry.name, self.readers)) is None:
                self.found.unread[splitext(entry.name)[1].lower()] += 1
            else:
                self._add(entry, _uri(name), reader, is_link)
        except OSError as error:
            self._skip(name, f"It cannot be looked at: {error.strerror}.")

    def _add(self, entry: os.DirEntry[str], uri: str, reader: Reader, is_link: bool) -> None:
        there = entry.stat()
        if not stat.S_ISREG(there.st_mode):
            self._skip(uri, "It is no file but a device, a pipe or a socket.")
        elif uri in self.found.files:
            self._skip(uri, "Another file has this name once both are written in UTF-8. Rename it.")
        else:
            time_ns = min(there.st_mtime_ns, LATEST_NS)
            self.found.files[uri] = File(uri, entry.path, there.st_size, time_ns, reader, is_link)

    def _skip(self, name: str, reason: str) -> None:
        self.found.skipped.append(Skipped(_uri(name), reason))


def _refused_link(entry: os.DirEntry[str], root: str, follow_links: bool) -> str:
    """Why a link is not followed; empty if it is."""
    target = os.path.realpath(entry.path)
    if not os.path.exists(target):
        return "It is a link that leads nowhere."
    inside = target == root or target.startswith(root.rstrip(os.sep) + os.sep)
    if inside and os.path.isdir(target):
        return "It is a link to a folder within this one, which is read anyway."
    if not inside and not follow_links:
        return f"It is a link out of the folder, to {_uri(target)}; write follow_links=True to follow it."
    return ""


def _is_store(entry: os.DirEntry[str]) -> bool:
    """Whether a folder is a store, or one that is being made."""
    return (
        entry.name.endswith(STORE_SUFFIX)
        or f"{STORE_SUFFIX}.tmp" in entry.name
        or os.path.exists(os.path.join(entry.path, STORE_FILE))
    )


def _uri(name: str) -> str:
    """A file name as Unicode; bytes that are not UTF-8 are written as `\\xNN`."""
    if name.isascii():
        return name
    return os.fsencode(name).decode("utf-8", "backslashreplace")
