"""Files that are in no folder of this machine: object stores, archives, servers, through fsspec."""

import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from operator import itemgetter
from os.path import splitext
from pathlib import Path
from typing import Any

from spolia.core.environment import without_password
from spolia.core.run_context import check_cancelled
from spolia.deferred import fsspec
from spolia.errors import DocumentError, SourceError, SourceUnavailable, SpoliaError, require
from spolia.indexing.readers.reader import FileReader, reader_of
from spolia.indexing.sources.records import seconds_of
from spolia.indexing.sources.source import (
    LONGEST_URI,
    ChangeCollector,
    Memory,
    Source,
    changed_at,
    with_secrets,
    without_secrets,
)
from spolia.indexing.sync.files import HIDDEN, IN_MEMORY, LARGEST_BYTES, Loaded, SourceChanges
from spolia.types import Scalar

_PAST_EGRESS = ("http", "https", "webhdfs", "github", "gist", "dask", "jupyter", "jlab", "dbfs", "reference")
"""Protocols with which fsspec asks any server that an address or a file names."""
_TIMES = ("mtime", "LastModified", "last_modified", "updated", "created", "date_time")
_VERSIONS = ("ETag", "etag", "md5Hash", "checksum", "CRC", "VersionId")
_CREDENTIALS = (
    "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN",
    "AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_SAS_TOKEN", "AZURE_STORAGE_CONNECTION_STRING", "AZURE_CLIENT_SECRET",
    "GOOGLE_APPLICATION_CREDENTIALS", "HF_TOKEN", "OSS_ACCESS_KEY_ID", "OSS_SECURITY_TOKEN",
)  # fmt: skip
"""Variables with which libraries sign requests to object stores, or which they send."""
_SERVERS = re.compile(r"endpoint|host|url|server|domain", re.IGNORECASE)
"""Names of options that name another server than that of the protocol."""
_NAMING = ("protocol", "target_protocol", "remote_protocol", "fo", "url", "base_url")


@dataclass(frozen=True)
class RemoteFiles(Source):
    """All files of a file system that fsspec knows, below an address: `s3://bucket/docs`, `zip://::file:///a.zip`.

    Their uris are their addresses. They are listed in each run, and a file is fetched when its size, its time or what
    the server tells versions apart by (an ETag, a checksum) is another one than before. Hidden files and links are left
    out. `http://` and `https://` are read by `WebPages`, which asks public addresses only.

    Args:
        url: where they are; protocols may be chained with `::`, as fsspec does it.
        options: of the file system, as `anon: true`; `${NAME}` stands for the environment variable.

    Raises:
        SourceError: it is not an address of a file system, is one of the web, or holds a password.

    >>> RemoteFiles("s3://archive/docs", (("profile", "reading"),)).id
    's3://archive/docs/'
    """

    url: str
    options: tuple[tuple[str, Scalar], ...] = ()

    def __post_init__(self) -> None:
        if "://" not in self.url:
            raise SourceError(
                f"{self.url!r} is not an address of a file system. Write PROTOCOL://PATH, as s3://BUCKET/docs."
            )
        if self.url != (safe_url := without_password(self.url)):
            raise SourceError(
                f"{safe_url!r} holds a password, and addresses are the names of documents. Write it without, and "
                "options: {username: ${NAME}, password: ${NAME}} with the names of environment variables."
            )
        addresses = self.url.split("::")
        addresses += [str(value) for name, value in self.options if name in _NAMING]
        if odd := [address for address in addresses if address.partition("://")[0].lower() in _PAST_EGRESS]:
            raise SourceError(
                f"{odd[0]!r} would be asked past the check of addresses. Pages and files of the web are read by "
                "WebPages: start: [https://HOST/PATH]."
            )

    @property
    def id(self) -> str:
        """Return the address; of chained protocols the path comes last, so that it begins the uris of all files."""
        first, *chained = self.url.split("::")
        protocol, _, path = first.partition("://")
        if chained:
            path = "/".join(filter(None, ["::".join(chained).rstrip("/"), path.strip("/")]))
        return f"{protocol}://{path.rstrip('/')}/"

    @property
    def env_names(self) -> dict[str, bool]:
        """See `spolia.core.environment.env_of`; another server than that of the protocol gets its credentials, too."""
        elsewhere = any(_SERVERS.search(name) for name, _ in self.options)
        return dict.fromkeys(_CREDENTIALS if elsewhere else (), False) | super().env_names

    def change_batches(self, memory: Memory, readers: Mapping[str, FileReader]) -> Iterator[SourceChanges]:
        with _translate_errors(self):
            system, root = _open_file_system(self)
            collector = ChangeCollector(self.id, readers)
            listed_uris = set[str]()
            for path, details in _list_files(system, root):
                uri = self.id + path[len(root) :].lstrip("/")
                listed_uris.add(uri)
                _add_file(collector, system, path, uri, details, readers)
                if collector.is_full:
                    yield collector.take_batch({})
        unlisted_uris = (uri for uri in memory.uris(self.id) if uri not in listed_uris)
        yield from collector.lose_all(
            (uri for uri in unlisted_uris if not _is_in_container(uri, listed_uris, self.id)), {}
        )
        yield collector.take_batch({})


def _is_in_container(uri: str, listed_uris: set[str], prefix: str) -> bool:
    """Return whether it is in a listed container, which decides when it is opened."""
    while len(uri := uri.rpartition("/")[0]) > len(prefix):
        if uri in listed_uris:
            return True
    return False


def _add_file(
    collector: ChangeCollector,
    system: Any,
    path: str,
    uri: str,
    details: Mapping[str, Any],
    readers: Mapping[str, FileReader],
) -> None:
    if len(uri) > LONGEST_URI:
        collector.skip(uri[:LONGEST_URI], f"Its address is longer than {LONGEST_URI} characters.")
    elif (reader := reader_of(path, readers)) is None:
        collector.unread[splitext(path)[1].lower()] += 1
    else:
        size, mtime_ns = details["size"] or 0, _version_time_ns(details)
        collector.items.add_item(uri, size, mtime_ns, reader, partial(_load, system, path, size, mtime_ns))


def _open_file_system(source: RemoteFiles) -> tuple[Any, str]:
    require(fsspec, f"Reading {source.url}")
    options = {name: with_secrets(value) if isinstance(value, str) else value for name, value in source.options}
    try:
        # A cached listing would show the files of an earlier run.
        system, root = fsspec.core.url_to_fs(source.url, use_listings_cache=False, **options)
    except ImportError as error:
        problem = "is not installed" if isinstance(error, ModuleNotFoundError) else "cannot be loaded"
        raise SourceError(f"{source.url} needs a package that {problem}: {error}.") from error
    except ValueError as error:
        raise SourceError(f"{source.url} is not an address of a file system: {error}.") from error
    return system, root.rstrip("/")


def _list_files(system: Any, root: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield all files below a folder. One that cannot be listed raises: its files may not be taken for removed."""
    todo = [root]
    while todo:
        check_cancelled()
        subfolders = []
        listed = system.ls(todo.pop() or system.root_marker, detail=True)
        for details in sorted(listed, key=itemgetter("name")):
            path = details["name"].rstrip("/")
            if path == root and details["type"] == "file":  # the address may be that of one file
                yield path, details
            elif path == root or path.rpartition("/")[2].startswith(HIDDEN) or details.get("islink"):
                continue
            elif details["type"] == "directory":
                subfolders.append(path)
            elif details["type"] == "file":
                yield path, details
        todo += reversed(subfolders)


def _version_time_ns(details: Mapping[str, Any]) -> int:
    """Return a time that tells versions of a file apart: its own, and what the file system calls its version."""
    moment = next((details[name] for name in _TIMES if details.get(name)), None)
    time = moment
    if isinstance(moment, (tuple, list)):
        with suppress(TypeError, ValueError, OverflowError):
            time = datetime(*moment[:6])  # ZIP gives times as tuples
    return changed_at(seconds_of(time), repr([moment, *(details.get(name) for name in _VERSIONS)]).encode())


def _load(system: Any, path: str, size: int, mtime_ns: int, spool: Path | None) -> Loaded:
    """Load the bytes of a file as it was listed; a large one is copied."""
    if size > LARGEST_BYTES:
        raise DocumentError(f"It has {size} bytes; a document has at most {LARGEST_BYTES}. Split it.")
    try:
        content = _copy(system, path, spool) if spool is not None and size > IN_MEMORY else system.cat_file(path)
    except (SpoliaError, OSError):
        raise
    except Exception as error:
        raise DocumentError(f"It cannot be fetched: {type(error).__name__}: {error}") from error
    read = content.stat().st_size if isinstance(content, Path) else len(content)
    if read != size:
        raise DocumentError(f"It was listed with {size} bytes and has {read}: it has changed. Index again.")
    return Loaded(content, size, mtime_ns, max(mtime_ns, 0), max(mtime_ns, 0))


def _copy(system: Any, path: str, spool: Path) -> Path:
    descriptor, name = tempfile.mkstemp(dir=spool)
    with open(descriptor, "wb") as out, system.open(path, "rb") as file:
        shutil.copyfileobj(file, out, 1 << 20)
    return Path(name)


@contextmanager
def _translate_errors(source: RemoteFiles) -> Iterator[None]:
    try:
        yield
    except (SpoliaError, GeneratorExit):  # GeneratorExit: who reads the changes has stopped
        raise
    except FileNotFoundError as error:
        raise SourceError(f"Not found: {source.url}. Write an address of files or folders.") from error
    except Exception as error:  # each file system has errors of its own
        described = [str(value) for _, value in source.options]
        message = without_secrets(f"{type(error).__name__}: {error}"[:400], *described)
        raise SourceUnavailable(f"{source.url} cannot be listed: {message}. Nothing of it was removed.") from error
