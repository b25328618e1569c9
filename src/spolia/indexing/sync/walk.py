"""What is in folders: files that can be read, and what is left out and why."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from operator import attrgetter
from os.path import splitext
from pathlib import Path

from spolia.errors import FolderError
from spolia.indexing.readers.reader import FileReader, reader_of
from spolia.indexing.sync.files import LATEST_NS, FileListing, Files, Skipped, is_elsewhere
from spolia.stores.backends.rows import Stamp

HIDDEN = (".", "~$")
STORE_SUFFIX, STORE_FILE = ".spolia", "corpus.db"


def walk(
    folder: str | Path | Sequence[str | Path], readers: Mapping[str, FileReader], *, follow_links: bool = False
) -> FileListing:
    """All files of a folder that can be read. Hidden files, stores and what links lead out to are left out.

    Args:
        folder: or several folders and files; their uris are relative to the folder that all of them are in.
        follow_links: go where links lead out of the folder too.

    Raises:
        FolderError: there is no such folder or file, or it may not be listed.
    """
    if isinstance(folder, (str, Path)):
        _refuse_no_folder(os.fspath(folder))
        return _Walk([os.fspath(folder)], os.fspath(folder), readers, follow_links).found
    given = [os.path.abspath(path) for path in folder]
    if missing := [path for path in given if not os.path.exists(path)]:
        raise FolderError(f"There is no file or folder {missing[0]}. Write paths of files, or of folders with some.")
    if not given:
        raise FolderError("No file and no folder is named. Write paths of files, or of folders with some.")
    base = os.path.commonpath([path if os.path.isdir(path) else os.path.dirname(path) for path in given])
    return _Walk(given, base, readers, follow_links).found


def _refuse_no_folder(folder: str) -> None:
    if not os.path.lexists(folder):
        raise FolderError(f"There is no folder {folder}. Write the path of a folder with documents.")
    if not os.path.isdir(folder):
        inside = os.path.dirname(folder) or "."
        raise FolderError(
            f"{folder} is a file, not a folder. Write the folder that it is in: {inside} "
            f"(in Python a list, [{folder!r}], for a store that holds this file alone)."
        )


class _Walk:
    def __init__(self, given: Sequence[str], base: str, readers: Mapping[str, FileReader], follow_links: bool) -> None:
        self.readers, self.follow_links = readers, follow_links
        self.found = FileListing(Files(readers), source=FOLDER, cursors={ROOT: os.path.realpath(base)})
        self._seen: set[tuple[int, int]] = set()
        for path in given:
            name = os.path.relpath(path, base)
            if not os.path.isdir(path):
                self._file(path, name)
                continue
            self.root = os.path.realpath(path)
            self._todo = [(path, "" if name == os.curdir else f"{name}/")]
            while self._todo:
                self._list(*self._todo.pop())

    def _file(self, path: str, name: str) -> None:
        """Note a file that was named itself, hidden or a link or not."""
        if _uri(name) not in self.found.files:
            self._take(path, name, partial(os.stat, path), os.path.islink(path))

    def _list(self, path: str, prefix: str) -> None:
        """Note what is in a folder; prefix: its name in uris, with `/` at the end."""
        below: list[tuple[str, str]] = []
        within = os.path.join(path, "")
        try:
            with _listed(path) as (there, entries):
                if (there.st_dev, there.st_ino) in self._seen:
                    self._skip(prefix, "It is a link to a folder that is read anyway.")
                    return
                self._seen.add((there.st_dev, there.st_ino))
                while entries:
                    entry = entries.pop()  # let go with what the system said of it: there are many
                    if not (name := entry.name).startswith(HIDDEN):
                        self._note(entry, within + name, prefix + name, below)
        except OSError as error:
            if not prefix:
                raise FolderError(f"{path} cannot be listed: {error.strerror}. Change its permissions.") from error
            self.found.closed += (_uri(prefix),)
            self._skip(prefix, f"It cannot be listed: {error.strerror}.")
        self._todo += reversed(below)

    def _note(self, entry: os.DirEntry[str], path: str, name: str, below: list[tuple[str, str]]) -> None:
        try:
            if entry.is_file(follow_symlinks=False):  # as most are
                self._take(path, name, entry.stat, False)
            elif (is_link := entry.is_symlink()) and (reason := _refused_link(path, self.root, self.follow_links)):
                self._skip(name, reason)
            elif not entry.is_dir():
                self._take(path, name, entry.stat, is_link)
            elif not _is_store(path):
                below.append((path, f"{name}/"))
        except OSError as error:
            self._skip(name, f"It cannot be looked at: {error.strerror}.")

    def _take(self, path: str, name: str, look: Callable[[], os.stat_result], is_link: bool) -> None:
        """Note a file, if a reader knows it."""
        if name[name.rfind(".") :] not in self.readers and reader_of(name, self.readers) is None:
            self.found.unread[splitext(name)[1].lower()] += 1
            self.found.unknown.add(_uri(name))
            return
        there, uri, kept = look(), _uri(name), self.found.files.kept
        mtime_ns = there.st_mtime_ns
        if not stat.S_ISREG(there.st_mode):
            self._skip(uri, "It is no file but a device, a pipe or a socket.")
        elif ":" in uri and is_elsewhere(uri):
            self._skip(uri, f"Its name begins with {uri[:5]!r}, as those of texts do that were given. Rename it.")
        elif uri not in kept:
            kept[uri] = there.st_size, mtime_ns if mtime_ns < LATEST_NS else LATEST_NS, path, is_link
        elif kept[uri][2] != path:
            self._skip(uri, "Another file has this name once both are written in UTF-8. Rename it.")

    def _skip(self, name: str, reason: str) -> None:
        self.found.skipped.append(Skipped(_uri(name), reason))


@contextmanager
def _listed(path: str) -> Iterator[tuple[os.stat_result, list[os.DirEntry[str]]]]:
    """A folder and what is in it, the last name first; while it is open, nobody has to go the way to it again."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with os.scandir(descriptor) as found:
            yield os.fstat(descriptor), sorted(found, key=attrgetter("name"), reverse=True)
    finally:
        os.close(descriptor)


def _refused_link(path: str, root: str, follow_links: bool) -> str:
    """Why a link is not followed; empty if it is."""
    target = os.path.realpath(path)
    if not os.path.exists(target):
        return "It is a link that leads nowhere."
    inside = target == root or target.startswith(root.rstrip(os.sep) + os.sep)
    if inside and os.path.isdir(target):
        return "It is a link to a folder within this one, which is read anyway."
    if not inside and not follow_links:
        return f"It is a link out of the folder, to {_uri(target)}; write follow_links=True to follow it."
    return ""


def _is_store(path: str) -> bool:
    """Whether a folder is a store, or one that is being made."""
    name = os.path.basename(path)
    return (
        name.endswith(STORE_SUFFIX) or f"{STORE_SUFFIX}.tmp" in name or os.path.exists(os.path.join(path, STORE_FILE))
    )


def _uri(name: str) -> str:
    """A file name as Unicode; bytes that are not UTF-8 are written as `\\xNN`."""
    if name.isascii():
        return name
    return os.fsencode(name).decode("utf-8", "backslashreplace")


FOLDER, ROOT = "folder", "root"
"""Under which a store remembers its folder, as it does how far sources were read."""


def refuse_other(folder: str, found: FileListing, known: Mapping[str, Stamp], root: str, *, store: str) -> None:
    """Refuse a folder that is not where the store's folder was, nor that folder in another place.

    It is the same in another place if it has at least half of the documents by their names, as a copy has, or all by
    their sizes and times, as folders have that were moved into one another.

    Args:
        root: where its folder was the last time; empty where that is not known.

    Raises:
        FolderError: it is another folder.
    """
    if root and root == found.cursors.get(ROOT):
        return
    held = {uri: (size, mtime_ns) for uri, (size, mtime_ns, *_) in known.items() if is_top(uri, known)}
    if not held or 2 * sum(uri in found.files for uri in held) >= len(held):
        return
    if set(held.values()) <= set(found.files.sizes().values()):
        return
    there = sum(uri in found.files for uri in held)
    where = f"of {root}, and " if root else "and "
    raise FolderError(
        f"{store} holds {len(held)} documents {where}{there or 'none'} of them {'are' if there > 1 else 'is'} in "
        f"{folder}: to index it would forget the others. A store has one folder: name that, or another --store, or "
        "write --rebuild (rebuild=True) to forget what it holds."
    )


def is_top(uri: str, known: Mapping[str, Stamp]) -> bool:
    """Whether a document is a file of a folder: neither of another source nor read out of a container."""
    parts = uri.split("/")
    above = ("/".join(parts[:depth]) for depth in range(1, len(parts)))
    return not is_elsewhere(uri) and known.keys().isdisjoint(above)
