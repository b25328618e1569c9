"""Difference between a store and its sources: changed and removed ones, members of containers, linked images."""

from __future__ import annotations

import posixpath
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import blake2b
from os.path import splitext
from urllib.parse import unquote

from spolia.errors import DocumentError, EncryptedDocument, MissingExtra, SpoliaError
from spolia.indexing.readers.pictures.linked_images import MINIMUM_CAPTION
from spolia.indexing.readers.reader import (
    LIMITS,
    ArchiveLimits,
    Blob,
    Container,
    FileReader,
    ProgramReader,
    Reading,
    is_container,
    reader_of,
    versioned_name,
)
from spolia.indexing.sync.files import File, FileListing, is_elsewhere
from spolia.indexing.sync.metadata import DocumentLabels
from spolia.indexing.sync.prefetch import FetchedSource, FetchItem, Prefetch
from spolia.indexing.sync.report import DocumentReport, container_of
from spolia.stores.backends.rows import SourceRow, Stamp
from spolia.stores.staging import AnyWriter
from spolia.types import Region

Reports = Sequence[tuple[str, DocumentReport]]

LACKING = "lacking"
"""The status of a source here that is read again though it has not changed."""


class SourceDiff:
    """Sources of a store compared with the listed ones by their stamps; only rows that differ are fetched.

    Attributes:
        changed_files: files of another stamp than their source.
        parts: uris of what is in each container that was found.
        rows: what is known of sources, as far as it was fetched.
        gone: rows of what is not there any more; those that turn up elsewhere are taken out.
        reopened: containers that are opened though they are as they were, for what is in them.
    """

    def __init__(
        self, writer: AnyWriter, listing: FileListing, stamps: Mapping[str, Stamp], linked: LinkedImages, *, all: bool
    ) -> None:
        self._writer, self._listing, self._stamps = writer, listing, stamps
        self._containers: dict[str, bool] = {}
        self.changed_files: dict[str, File] = listing.files.find_changed(stamps)
        self.parts: dict[str, list[str]] = {}

        gone = []
        other_uris = sorted(stamps.keys() - listing.files.entries.keys())
        if listing.uris is None:  # a folder says nothing of documents that are in none
            other_uris = [uri for uri in other_uris if not is_elsewhere(uri)]
        pages = {uri for uri, row in writer.sources(filter(is_elsewhere, other_uris)).items() if not container_of(row)}
        for uri in other_uris:
            if uri in pages:  # below the address of another one, as no file is below another file
                gone += [uri] if listing.misses(uri) else []
            elif container := self._find_container(uri):
                self.parts.setdefault(container, []).append(uri)
            elif listing.misses(uri) or any(listing.misses(ancestor) for ancestor in ancestor_uris(uri)):
                gone.append(uri)

        self._broken = [uri for parts in self.parts.values() for uri in parts if stamps[uri][2] == "failed"]
        compared_uris = None if listing.uris is None else list(stamps)  # of a lot, the rows of all that it is about
        dependent = [(uri, DocumentReport.from_json(report)) for uri, report in writer.dependent_sources(compared_uris)]
        outdated = (
            *self._find_newly_readable(dependent),
            *self._find_with_changed_images(dependent, linked),
            *self._find_with_changed_readers(),
        )

        forced = (uri for uri, stamp in stamps.items() if stamp[2] == "indexed" and listing.is_forced(uri))
        lacking = list(dict.fromkeys((*outdated, *forced)))
        self.changed_files |= {uri: listing.files[uri] for uri in lacking if uri in listing.files}
        self.rows = writer.sources(compared_uris if all else [*self.changed_files, *gone, *self._broken, *lacking])
        self.rows |= {uri: self.rows[uri].but(status=LACKING) for uri in lacking}

        self.gone: dict[str, SourceRow] = {}
        self._gone_by_hash: dict[str, list[str]] = {}
        self._add_gone(uri for uri in gone if listing.misses(uri) or container_of(self.rows[uri]))

        self.reopened: set[str] = set()
        for uri in (uri for uri in lacking if uri not in listing.files):
            self.reopen(uri)

    def _find_newly_readable(self, dependent: Reports) -> Iterator[str]:
        """Yield sources that lacked a program when they were read, if that program is there now."""
        equipped: dict[FileReader | None, bool] = {}
        for uri in (uri for uri, report in dependent if report.lacks):
            file = self._listing.files.get(uri)
            reader = file.reader if file is not None else reader_of(uri, self._listing.files.readers)
            if reader not in equipped:
                equipped[reader] = isinstance(reader, ProgramReader) and not reader.lacking()
            if equipped[reader] and (uri in self._listing.files or self._find_container(uri)):
                yield uri

    def _find_with_changed_images(self, dependent: Reports, linked: LinkedImages) -> Iterator[str]:
        """Yield documents whose linked images have changed."""
        for uri, report in dependent:
            if linked.differs(uri, report) and (uri in self._listing.files or self._find_container(uri)):
                yield uri

    def _find_with_changed_readers(self) -> Iterator[str]:
        """Yield members of containers that another reader, or another version of it, would read now."""
        for uri in (uri for parts in self.parts.values() for uri in parts):
            *_, status, reader_version = self._stamps[uri]
            reader = reader_of(uri, self._listing.files.readers) if status == "indexed" else None
            if reader is not None and versioned_name(reader) != reader_version:
                yield uri

    def _find_container(self, uri: str) -> str:
        files = self._listing.files
        for ancestor in (ancestor for ancestor in ancestor_uris(uri) if ancestor in files):
            if ancestor not in self._containers:
                self._containers[ancestor] = is_container(files[ancestor].reader)
            if self._containers[ancestor]:
                return ancestor
        return ""

    def fetch_members(self, container: str) -> list[str]:
        """Fetch the rows of all members of a container; return their uris."""
        members = self.parts.get(container, [])
        if unseen := [uri for uri in members if uri not in self.rows]:
            self.rows |= self._writer.sources(unseen)
        return members

    def members_of(self, uri: str) -> list[str]:
        """Return all known members of a source."""
        outermost = next((ancestor for ancestor in ancestor_uris(uri) if ancestor in self.parts), uri)
        return [part for part in self.parts.get(outermost, ()) if part.startswith(f"{uri}/")]

    def find_given_up(self, *, retry: bool, reread: bool = False) -> list[SourceRow]:
        """Return the sources that failed, have not changed since, and are not retried now; none with `reread`."""
        broken = [
            uri
            for uri, file in self.changed_files.items()
            if self._stamps.get(uri) == (file.size, file.mtime_ns, "failed", versioned_name(file.reader))
        ]
        broken += [uri for uri in self._broken if self._find_container(uri) not in self.changed_files]
        given_up = [row for uri in broken if not reread and not (is_due(row := self.rows[uri]) and retry)]
        given_up_uris = {row.uri for row in given_up}
        for uri in (uri for uri in self._broken if uri not in given_up_uris):
            self.reopen(uri)
        return given_up

    def reopen(self, part: str) -> None:
        """Look into the containers of a source again."""
        outer = [uri for uri in ancestor_uris(part) if uri in self._stamps and uri not in self.reopened]
        self.reopened.update(outer)
        self.rows |= self._writer.sources([uri for uri in outer if uri not in self.rows])

    def mark_deleted(self, uri: str) -> None:
        """Count a file that was deleted since it was listed as gone, with its members."""
        parts = self.fetch_members(uri)
        del self._listing.files.entries[uri]
        self._add_gone(deleted for deleted in (uri, *parts) if deleted in self.rows)

    def _add_gone(self, uris: Iterable[str]) -> None:
        for uri in uris:
            row = self.gone[uri] = self.rows[uri]
            if row.status == "indexed":
                self._gone_by_hash.setdefault(row.content_hash, []).append(uri)

    def find_gone(self, content_hash: str) -> Iterator[SourceRow]:
        """Return the removed sources with the same content."""
        return (self.gone[uri] for uri in self._gone_by_hash.get(content_hash, ()) if uri in self.gone)


def ancestor_uris(uri: str) -> Iterator[str]:
    """Yield every uri that a source may be inside of by its name, the outermost first."""
    end = uri.find("/")
    while end > 0:
        yield uri[:end]
        end = uri.find("/", end + 1)


ATTEMPTS = 3
"""How often a source is tried; then it is left alone until it changes."""
WAIT_S, GROWTH = 30, 4
"""Seconds between the first two attempts where the cause may pass, and by how much each further wait is longer."""


def make_failed_row(
    row: SourceRow, reason: str, cause: Exception | None, stored: SourceRow | None, reader: str
) -> SourceRow:
    """Return the row of a source that cannot be read, with one attempt more than before.

    Whether the cause may pass, it says itself (`transient`). None, a missing package and a password that is not known
    are not the source's fault and do not count as an attempt: every run retries it.
    """
    row = row.but(status="failed", error=reason)
    report = DocumentReport.from_json(row.report) if row.report else DocumentReport(reader, 0)
    if cause is None or isinstance(cause, (EncryptedDocument, MissingExtra)):
        return row.but(report=report.but(attempts=0, tried_ns=0).json)
    is_tried = stored is not None and stored.status == "failed" and _content_key(stored) == _content_key(row)
    attempts = DocumentReport.from_json(stored.report).attempts if stored and is_tried and stored.report else 0
    passes = bool(getattr(cause, "transient", False))
    return row.but(report=report.but(attempts=attempts + 1, tried_ns=time.time_ns(), passes=passes).json)


def _content_key(row: SourceRow) -> tuple[int, int, str, str]:
    return row.size, row.mtime_ns, row.content_hash, row.reader


def is_due(row: SourceRow) -> bool:
    """Return whether a source that failed, and has not changed since, is due for a retry."""
    if not row.report:
        return True
    report = DocumentReport.from_json(row.report)
    return report.attempts < ATTEMPTS and time.time_ns() >= retry_time_ns(report)


def retry_time_ns(report: DocumentReport) -> int:
    """Return the time from which a source is retried, in nanoseconds."""
    wait_s = WAIT_S * GROWTH ** max(0, report.attempts - 1) if report.passes else 0
    return report.tried_ns + wait_s * 1_000_000_000


UNKNOWN = "files of no known format"


@dataclass
class ContainerContents:
    """Members of a container, at any depth: they count together against the limits."""

    container: str
    limits: ArchiveLimits = LIMITS
    uris: set[str] = field(default_factory=set)
    unread: Counter[str] = field(default_factory=Counter)
    _entries: int = 0
    _size: int = 0

    def items(
        self, outer: Container, source: FetchedSource, depth: int, readers: Mapping[str, FileReader], prefetch: Prefetch
    ) -> Iterator[FetchItem]:
        """Yield the direct members, `depth` containers deep, that a reader knows."""
        if depth > self.limits.depth:
            raise DocumentError(
                f"It is nested {depth} deep; {self.limits.depth} levels are allowed. Unpack what is inside."
            )
        for part in prefetch.parts(outer, source.blob):
            self._count(part)
            uri = self._make_uri(part.uri, source.blob.uri)
            if (reader := reader_of(uri, readers)) is None:
                self.unread[splitext(uri)[1].lower()] += 1
                prefetch.drop(part)
                continue
            self.uris.add(uri)
            yield _make_item(Blob(uri, part.content), reader, source.row)

    def _count(self, part: Blob) -> None:
        self._entries += 1
        self._size += part.size
        if self._entries > self.limits.entries or self._size > self.limits.size:
            raise DocumentError(
                f"{self.container} holds, with all that is within it, {self._entries} files or more of {self._size} "
                f"bytes; {self.limits.entries} and {self.limits.size} are allowed. Split it."
            )

    def _make_uri(self, name: str, container: str) -> str:
        name = name if name.startswith(f"{container}/") else f"{container}/{name.lstrip('/')}"
        stem, suffix = splitext(name)
        number, uri = 1, name
        while uri in self.uris:  # an archive may hold a name twice
            number += 1
            uri = f"{stem}-{number}{suffix}"
        return uri


def _make_item(blob: Blob, reader: FileReader, container: SourceRow) -> FetchItem:
    def fetch() -> FetchedSource:
        row = SourceRow(blob.uri, blob.size, container.mtime_ns, blob.content_hash, reader=versioned_name(reader))
        return FetchedSource(blob, row.but(created_ns=container.created_ns, accessed_ns=container.accessed_ns))

    return FetchItem(blob.uri, reader, blob.size, fetch)


@dataclass(frozen=True)
class ContainerResult:
    """Outcome of a container; `parts` counts the files that a reader knows, at any depth, `unknown` the others."""

    parts: int = 0
    unknown: int = 0
    problem: SpoliaError | None = None

    def add_to(self, reading: Reading) -> Reading:
        """Return the container's own document with notes on its members; raise their problem if it has no text."""
        if self.unknown:
            reading = reading.but(dropped=(*reading.dropped, (UNKNOWN, self.unknown)))
        if self.problem is not None:
            if not reading.document.text.strip():
                raise self.problem
            reading = reading.but(warnings=(*reading.warnings, f"Not all that is in it was read: {self.problem}"))
        return reading


NOT_OPENED = ContainerResult()


MOST_IMAGES, LARGEST_IMAGE = 200, 50_000_000
"""Pictures of a document, and bytes of one; further and larger ones are left out."""


@dataclass(frozen=True)
class LinkedImages:
    """Images of a folder as the documents in it may show them.

    Only files listed in the folder may be shown: no name leads out of it, and hidden files and links
    stay closed. Every reader of the document would see the picture too, so it is shown only if all of them may read its
    file. What a document has seen of each picture is kept in its report: where that is another by now, it is read
    again.
    """

    listing: FileListing
    labels: DocumentLabels

    def add_images(self, reading: Reading) -> Reading:
        """Return a reading with the images that it names; those that cannot be shown are counted."""
        uri, regions = reading.document.uri, list(reading.document.regions)
        pictures = {name: self._load_picture(_image_uri(uri, name), uri) for name in _image_names(reading)}
        images = {name: image for name, image in pictures.items() if image is not None}
        for number, name in reading.linked_images:
            if name in images:
                regions[number] = regions[number].but(image=images[name].content_hash)
        missing = {number for number, name in reading.linked_images if name not in images}
        remaining_regions = [
            region
            for index, region in enumerate(regions)
            if index not in missing or len(region.caption) >= MINIMUM_CAPTION
        ]
        # The sum leaves out counts of 0.
        dropped = Counter(dict(reading.dropped)) + Counter({"pictures": len(missing)})
        document = reading.document.but(
            regions=tuple(remaining_regions), id=_image_id(reading.document.id, remaining_regions, bool(images))
        )
        images_by_hash = {image.content_hash: image for image in (*reading.images, *images.values())}
        return reading.but(document=document, images=tuple(images_by_hash.values()), dropped=tuple(dropped.items()))

    def image_versions(self, reading: Reading) -> tuple[tuple[str, str], ...]:
        """Return the version of each image that a document names, by uri."""
        document = reading.document.uri
        uris = dict.fromkeys(_image_uri(document, name) for name in _image_names(reading))
        return tuple((uri, self.image_version(uri, document)) for uri in uris)

    def image_version(self, uri: str, document: str) -> str:
        """Return the version of an image; empty if the document's readers may not all see it."""
        file = self._find_file(uri, document)
        return f"{file.size}-{file.mtime_ns}" if file is not None else ""

    def differs(self, uri: str, report: DocumentReport) -> bool:
        """Return whether images that a document names have changed since it was read."""
        return any(self.image_version(picture, uri) != version for picture, version in report.beside)

    def _find_file(self, uri: str, document: str) -> File | None:
        """Return the file of an image if everybody who may read the document may read it."""
        file = self.listing.files.get(uri)
        if file is None or not file.reader.media_type.startswith("image") or file.size > LARGEST_IMAGE:
            return None
        with suppress(SpoliaError):  # the picture's own turn reports the error
            allowed, asking = self.labels.readers(uri), self.labels.readers(document)
            if not allowed or (asking and set(asking) <= set(allowed)):
                return file
        return None

    def _load_picture(self, uri: str, document: str) -> Blob | None:
        if (file := self._find_file(uri, document)) is None:
            return None
        with suppress(OSError, SpoliaError):  # as above
            content = file.load().content
            return Blob(uri, content) if isinstance(content, bytes) and content else None
        return None


def _image_names(reading: Reading) -> list[str]:
    return list(dict.fromkeys(name for _, name in reading.linked_images))[:MOST_IMAGES]


def _image_uri(document: str, name: str) -> str:
    """Return the uri that a name means in the folder; a name that leads out of it matches no file."""
    plain = unquote(name.partition("#")[0].partition("?")[0])
    return posixpath.normpath(posixpath.join(posixpath.dirname(document), plain))


def _image_id(id: str, regions: list[Region], is_marked: bool) -> str:
    """Return the id of a document with its images: the same bytes with other images are another document."""
    if not is_marked:
        return id
    name, _, reader = id.rpartition(".")
    image_hashes = ",".join(region.image for region in regions)
    return f"{name}-{blake2b(image_hashes.encode(), digest_size=16).hexdigest()}.{reader}"
