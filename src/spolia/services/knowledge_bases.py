"""Knowledge bases of a service, and folders of the server whose files may be added to them."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from time import time
from unicodedata import category, normalize

from spolia.errors import DocumentError, NotAllowed, NotFound, QueryError
from spolia.indexing.readers.reader import FileReader, reader_of
from spolia.indexing.sync.files import STORE_SUFFIX
from spolia.services.jobs import Job, JobTable
from spolia.types import Value

LARGEST_BYTES = 100 << 20
"""Of a file that is sent or added by its path."""
MOST_FILES = 10_000
"""In one folder that is added."""
BASE = "base"
"""The field of a document with its knowledge base; users search one by `where: ["base=notes"]`."""
OWNER = "owner"
"""In the payload of a change: who owns the document. Jobs of version 0.2.0 lack it."""
LIST_BASES = "SELECT name, description, owner, access, made FROM bases ORDER BY name"
PUT_BASE = """INSERT INTO bases (name, description, owner, access, made)
    VALUES (:name, :description, :owner, :access, :made)
    ON CONFLICT (name) DO UPDATE SET description = excluded.description, access = excluded.access RETURNING name"""
REMOVE_BASE = "DELETE FROM bases WHERE name = :name RETURNING name"
# No link is followed, and a named pipe does not wait for its writer.
_FILE = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


def base_of(name: str) -> str:
    """Return the knowledge base of a document: the first folder in its name.

    >>> base_of("notes/2026/tides.md"), base_of("tides.md")
    ('notes', '')
    """
    return name.partition("/")[0] if "/" in name else ""


_LATIN = str.maketrans(
    "\u0410\u0412\u0415\u0405\u0406\u0408\u041a\u041c\u041d\u041e\u0420\u0421\u0422\u0423\u0425"
    "\u0430\u0435\u0455\u0456\u0458\u043e\u0440\u0441\u0443\u0445\u04bb\u0501\u051b\u051d"
    "\u0391\u0392\u0395\u0396\u0397\u0399\u039a\u039c\u039d\u039f\u03a1\u03a4\u03a5\u03a7\u03bf\u03bd",
    "ABESIJKMHOPCTYXaesijopcyxhdqwABEZHIKMNOPTYXov",
)
"""Cyrillic and Greek letters that look like Latin ones, from Unicode's list of confusables (UTS 39)."""


def confusable_skeleton(base: str) -> str:
    """Return the same text for names that look alike: without invisible characters, in compatibility form (NFKC), with
    Latin letters for those of other scripts that have their shape. Case and accents still differ.

    >>> confusable_skeleton("S\\u0415C"), confusable_skeleton("\\uff33EC\\u200b"), confusable_skeleton("sec")
    ('SEC', 'SEC', 'sec')
    """
    visible = "".join(character for character in base if category(character) not in ("Cf", "Cc", "Zl", "Zp"))
    return normalize("NFKC", visible).translate(_LATIN)


@dataclass(frozen=True)
class Requester(Value):
    """User behind a change.

    Args:
        name: of the key; tasks belong to it.
        principals: the documents that these may read can be copied; None for the administrator, who may change all.
        owner: documents and knowledge bases belong to this name; empty for none.
    """

    name: str = ""
    principals: frozenset[str] | None = None
    owner: str = ""

    @property
    def is_administrator(self) -> bool:
        return self.principals is None

    def is_owner(self, name: str) -> bool:
        """Return whether what belongs to this name may be changed. The administrator owns what has no owner."""
        return self.is_administrator or (name != "" and name == self.owner)

    def owns(self, last: Job | None) -> bool:
        """Return whether a document is the requester's, by its last change; None if no user sent it."""
        if last is None or OWNER in last.payload:
            return self.is_owner("" if last is None else last.payload[OWNER])
        return self.is_administrator or last.owner == self.name  # made by version 0.2.0: the key that sent it

    def owner_after(self, last: Job | None) -> str:
        """Return the owner of a document that the requester may change, after that: as before, if there was one."""
        if last is None:
            return self.owner
        return str(last.payload.get(OWNER, last.owner if self.is_administrator else self.owner))


@dataclass(frozen=True)
class KnowledgeBase(Value):
    """A name for documents that belong together.

    Args:
        name: the first folder in the names of its documents.
        owner: who may change and delete it.
        access: who may add documents, and reads them unless an upload names others; nobody named for everybody.
        made: seconds since the epoch.
    """

    name: str
    description: str = ""
    owner: str = ""
    access: tuple[str, ...] = ()
    made: float = 0.0

    def admits(self, requester: Requester) -> bool:
        """Return whether a user may add documents."""
        if not self.access or requester.principals is None:
            return True
        return requester.is_owner(self.owner) or not requester.principals.isdisjoint(self.access)


class KnowledgeBases:
    """Knowledge bases of a store that have a description or readers of their own, stored with its table of jobs.

    >>> import tempfile
    >>> from spolia.services.jobs import SqliteTable
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     bases = KnowledgeBases(SqliteTable(Path(folder) / "jobs.db"))
    ...     bases.save(KnowledgeBase("notes", "Minutes of meetings", "ann", ("staff",)))
    ...     bases.all()["notes"].access
    ('staff',)
    """

    def __init__(self, table: JobTable) -> None:
        self.table = table

    def all(self) -> dict[str, KnowledgeBase]:
        """Return all knowledge bases by name."""
        with self.table.transaction():
            rows = self.table.ask(LIST_BASES, [{}])
        return {
            name: KnowledgeBase(name, description, owner, tuple(json.loads(access)), created)
            for name, description, owner, access, created in rows
        }

    def save(self, base: KnowledgeBase) -> None:
        """Add a knowledge base, or change the description and readers of one; its owner stays."""
        row = {**vars(base), "access": json.dumps(base.access), "made": base.made or time()}
        self._execute(PUT_BASE, row)

    def remove(self, name: str) -> None:
        """Forget a knowledge base; its documents stay."""
        self._execute(REMOVE_BASE, {"name": name})

    def _execute(self, statement: str, row: dict[str, object]) -> None:
        with self.table.transaction():
            self.table.ask(statement, [row])


class ServerFolders:
    """Folders by their names. Nothing outside them is opened, and no link in them is followed, even one added
    meanwhile: each part of a path is opened in its parent folder.

    Raises:
        QueryError: one is not a folder, or two have the same name.

    >>> import tempfile
    >>> from spolia.indexing.readers.registry import READERS, by_suffix
    >>> with tempfile.TemporaryDirectory(suffix="-notes") as folder:
    ...     _ = Path(folder, "tides.md").write_text("The moon causes the tides.")
    ...     folders = ServerFolders([folder])
    ...     name, = folders.files([folder], by_suffix(READERS))
    ...     folders.read(name), name == f"{Path(folder).name}/tides.md"
    (b'The moon causes the tides.', True)
    """

    def __init__(self, folders: Iterable[str | Path]) -> None:
        self._folders: dict[str, Path] = {}
        for path in folders:
            folder = Path(os.path.abspath(path))
            if not folder.is_dir():
                raise QueryError(f"{path} is not a folder. Write one whose files may be added by their path.")
            if self._folders.setdefault(folder.name, folder) != folder:
                raise QueryError(f"Two folders have the name {folder.name!r}. Rename one.")

    def files(self, paths: Iterable[str], readers: Mapping[str, FileReader]) -> list[str]:
        """Return the names of documents at paths: of files, and of all files in folders whose format a reader knows.
        Links and hidden files in a folder are left out.

        Args:
            paths: `/srv/notes/tides.md`, or `notes/tides.md` in the folder `notes`.

        Raises:
            NotAllowed: one is in none of the folders, or there is a link in it.
            NotFound: nothing is there.
        """
        return list(dict.fromkeys(name for path in paths for name in self._list_files(path, readers)))

    def _list_files(self, path: str, readers: Mapping[str, FileReader]) -> list[str]:
        name = self._document_name(path)
        with self._open_path(name) as descriptor:
            if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
                return [name]
            found_names: list[str] = []
            for directory, folders, files, inner in os.fwalk(".", dir_fd=descriptor, follow_symlinks=False):
                # in place: `fwalk` leaves out what is removed
                folders[:] = sorted(entry for entry in folders if not _is_hidden(entry))
                readable = (
                    entry for entry in sorted(files) if not _is_hidden(entry) and reader_of(entry, readers) is not None
                )
                found_names += [
                    str(PurePosixPath(name, directory, entry)) for entry in readable if _is_file(entry, inner)
                ]
                if len(found_names) > MOST_FILES:  # inside the loop, so that a huge tree is not read to its end
                    raise QueryError(f"{path!r:.200} holds more than {MOST_FILES:,} files. Add the folders in it.")
            return found_names

    def state(self, name: str) -> tuple[int, int, int]:
        """Return a value that differs after a change of a file; its first number is the change's time in ns."""
        with self._open_path(name) as descriptor:
            status = os.fstat(descriptor)
        # the inode tells a replaced file of the same size and time
        return status.st_mtime_ns, status.st_size, status.st_ino

    @property
    def names(self) -> list[str]:
        return list(self._folders)

    def read(self, name: str) -> bytes:
        """Return the bytes of a file; raise DocumentError if it changes meanwhile."""
        # `_open_path` closes it.
        with self._open_path(name) as descriptor, open(descriptor, "rb", closefd=False) as file:
            old_status = os.fstat(descriptor)
            if not stat.S_ISREG(old_status.st_mode):  # a pipe or a device may never end
                raise NotFound(f"{name!r:.200} is not a file. Write the path of one.")
            # one more, to notice a file that is too large without reading all of it
            data = file.read(LARGEST_BYTES + 1)
            new_status = os.fstat(descriptor)
        if len(data) > LARGEST_BYTES:
            raise QueryError(f"{name!r:.200} has more than {LARGEST_BYTES:,} bytes. Split it.")
        if (old_status.st_size, old_status.st_mtime_ns, len(data)) != (
            new_status.st_size,
            new_status.st_mtime_ns,
            new_status.st_size,
        ):
            raise DocumentError(f"{name!r:.200} changed while it was read. Add it again.")
        return data

    def _document_name(self, path: str) -> str:
        """Return a path as the name of its folder and the rest below it; only the text decides."""
        parts = PurePosixPath(path).parts
        for name, folder in self._folders.items() if "\0" not in path else ():
            outer = (name,) if parts[:1] == (name,) else folder.parts
            inner = parts[len(outer) :]
            if parts[: len(outer)] == outer and not any(map(_is_hidden, inner)):
                return "/".join((name, *inner))
        raise NotAllowed(
            f"{path!r:.200} is in no folder of this server that documents may be added from: "
            f"{', '.join(self._folders) or 'it has none'}. Start it with --folder DIR to add one."
        )

    @contextmanager
    def _open_path(self, name: str) -> Iterator[int]:
        first, *parts = PurePosixPath(name).parts
        descriptor = os.open(self._folders[first], os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY)
        try:
            for part in parts:
                inner = _open(part, descriptor, name)
                os.close(descriptor)
                descriptor = inner
            yield descriptor
        finally:
            os.close(descriptor)


def _open(part: str, folder: int, name: str) -> int:
    try:
        return os.open(part, _FILE, dir_fd=folder)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise NotFound(f"{name!r:.200} is not there. Write the path of a file or a folder.") from error
    except OSError as error:  # what O_NOFOLLOW says of a link, ELOOP, is one of them
        raise NotAllowed(f"{name!r:.200} is a link, is in one, or may not be read ({error.strerror}).") from error


def _is_file(name: str, folder: int) -> bool:
    try:
        return stat.S_ISREG(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    except FileNotFoundError:  # removed since the folder was listed
        return False


def _is_hidden(name: str) -> bool:
    return name.startswith((".", "~$")) or name.endswith(STORE_SUFFIX)  # `~$` are lock files of Office
