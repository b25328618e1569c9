"""Files and folders that only their owner may read, whatever the umask; below a folder shared with a group, the group
may read them too.

A folder is shared by its mode: readable by its group, with the set-group-id bit (`share`).
"""

import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

FILE, FOLDER = 0o600, 0o700
SHARED_FILE, SHARED_FOLDER = 0o640, 0o2750
DAMAGED = "damaged"
"""The folder for what is damaged: nothing is deleted."""
_SHARED = stat.S_ISGID | stat.S_IRGRP


def private(path: str | os.PathLike[str], flags: int) -> int:
    """Open a file; one that is made gets the mode of its folder's files. For `open(path, "wb", opener=private)`."""
    flags |= os.O_CLOEXEC
    # The file can appear or vanish between the two attempts to open it, so both are repeated.
    while flags & os.O_CREAT:
        try:
            descriptor = os.open(path, flags | os.O_EXCL, FILE)
        except FileExistsError:
            if flags & os.O_EXCL:
                raise
            with suppress(FileNotFoundError):  # another process has removed it in between
                return os.open(path, flags & ~os.O_CREAT)
        else:
            os.fchmod(descriptor, _mode_in(os.path.dirname(path), FILE, SHARED_FILE))
            return descriptor
    return os.open(path, flags)


def make_folder(path: str | os.PathLike[str]) -> None:
    """Make a folder and those above it that are missing; one that is there keeps its mode."""
    path = os.path.abspath(path)
    while not os.path.isdir(path):
        parent = os.path.dirname(path)
        if not os.path.isdir(parent):
            make_folder(parent)
        try:
            os.mkdir(path, FOLDER)
        except FileExistsError:
            if os.path.isdir(path):
                return
            raise
        os.chmod(path, _mode_in(parent, FOLDER, SHARED_FOLDER))


def touch(path: str | os.PathLike[str]) -> None:
    """Make an empty file if it is missing: SQLite gives its `-wal` and `-shm` the mode of the database.

    One that is there is not opened: closing it would drop the locks that SQLite holds on it in this process.
    """
    with suppress(FileExistsError):
        os.close(private(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL))


def write_text(path: str | os.PathLike[str], text: str) -> None:
    with open(path, "w", encoding="utf-8", opener=private) as file:
        file.write(text)


def file_mode(folder: str | os.PathLike[str]) -> int:
    """Return the mode of the files in a folder."""
    return _mode_in(os.fspath(folder), FILE, SHARED_FILE)


def protect(path: str | os.PathLike[str]) -> None:
    """Give what a library has written, a file or a tree, the modes of the folder that it is in."""
    is_shared = _is_shared(os.path.dirname(os.path.abspath(path)))
    for entry, mode in _modes(path, is_shared=is_shared):
        with suppress(FileNotFoundError):
            os.chmod(entry, mode)


def set_aside(path: Path, root: Path | None = None, *, replaced: bool = False) -> Path:
    """Move a damaged file or folder, with SQLite's files beside it, to `damaged/` in its folder, or in `root`.

    Args:
        replaced: it also stays where it is, until the caller renames another file to its name.

    Returns:
        Where it is now.
    """
    root = root or path.parent
    target = _free(root) / path.relative_to(root)
    make_folder(target.parent)
    for end in ("", "-wal", "-shm"):
        move = os.link if replaced and not end else os.rename
        with suppress(FileNotFoundError):
            move(f"{path}{end}", f"{target}{end}")
    return target


def keep_copy(path: Path) -> Path:
    """Copy a damaged file to `damaged/` in its folder, before it is mended where it is; return where the copy is."""
    target = _free(path.parent) / path.name
    make_folder(target.parent)
    with open(path, "rb") as source, open(target, "wb", opener=private) as copy:
        shutil.copyfileobj(source, copy)
    return target


def _free(root: Path) -> Path:
    number = 1
    while (folder := root / DAMAGED / str(number)).exists():
        number += 1
    return folder


def share(folder: str | os.PathLike[str], group: str = "") -> int:
    """Set the modes of a folder and everything in it: for its owner alone, or readable by a group; how many changed.

    Raises:
        LookupError: the system does not know the group.
        PermissionError: it belongs to another user, or its owner is not in the group.
    """
    count = 0
    for path, mode in list(_modes(folder, is_shared=bool(group))):
        old_state = os.lstat(path)
        if group:
            shutil.chown(path, group=group)
        os.chmod(path, mode)
        new_state = os.lstat(path)
        count += (old_state.st_mode, old_state.st_gid) != (new_state.st_mode, new_state.st_gid)
    return count


def _modes(path: str | os.PathLike[str], *, is_shared: bool) -> Iterator[tuple[str, int]]:
    """Yield a file, or the folders and files of a tree without links, with the modes that belong to them."""
    file, folder = (SHARED_FILE, SHARED_FOLDER) if is_shared else (FILE, FOLDER)
    if not os.path.isdir(path):
        yield os.fspath(path), file
        return
    for root, _, names in os.walk(path):
        yield root, folder
        for name in names:
            file_path = os.path.join(root, name)
            if stat.S_ISREG(os.lstat(file_path).st_mode):
                yield file_path, file


def _mode_in(folder: str, alone: int, shared: int) -> int:
    return shared if _is_shared(folder or ".") else alone


def _is_shared(folder: str) -> bool:
    return os.stat(folder).st_mode & _SHARED == _SHARED
