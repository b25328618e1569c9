"""The difference between a store and its sources: changed and removed ones, members of containers, linked pictures."""

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
    """The sources of a store, compared by their stamps with the listed ones; only rows that differ are fetched.

    Attributes:
        unlike: files of another stamp than their source.
        parts: uris of what is in each container that was found.
        rows: what is known of sources, as far as it was fetched.
        gone: rows of what is not there any more; those that turn up elsewhere are taken out.
        reopened: containers that are opened though they are as they were, for what is in them.
    """

    def __init__(
        self, writer: AnyWriter, found: FileListing, stamps: Mapping[str, Stamp], linked: LinkedImages, *, all: bool
    ) -> None:
        self._writer, self._found, self._stamps = writer, found, stamps
        self._containers: dict[str, bool] = {}
        self.unlike: dict[str, File] = found.files.unlike(stamps)
        self.parts: dict[str, list[str]] = {}
        gone = []
        others = sorted(stamps.keys() - found.files.kept.keys())
        if found.uris is None:
            others = [uri for uri in others if not is_elsewhere(uri)]
        pages = {uri for uri, row in writer.sources(filter(is_elsewhere, others)).items() if not container_of(row)}
        for uri in others:
            if uri in pages:  # below the address of another one, as no file is below another file
                gone += [uri] if found.misses(uri) else []
            elif container := self._container(uri):
                self.parts.setdefault(container, []).append(uri)
            elif found.misses(uri) or any(found.misses(one) for one in above(uri)):
                gone.append(uri)
        self._broken = [uri for parts in self.parts.values() for uri in parts if stamps[uri][2] == "failed"]
        looked_at = None if found.uris is None else list(stamps)  # of a lot, the rows of all that it is about
        dependent = [(uri, DocumentReport.of(report)) for uri, report in writer.dependent_sources(looked_at)]
        again = (*self._readable_now(dependent), *self._seen_otherwise(dependent, linked), *self._read_otherwise())
        asked = (uri for uri, stamp in stamps.items() if stamp[2] == "indexed" and found.is_again(uri))
        lacking = list(dict.fromkeys((*again, *asked)))
        self.unlike |= {uri: found.files[uri] for uri in lacking if uri in found.files}
        self.rows = writer.sources(looked_at if all else [*self.unlike, *gone, *self._broken, *lacking])
        self.rows |= {uri: self.rows[uri].but(status=LACKING) for uri in lacking}
        self.gone: dict[str, SourceRow] = {}
        self._gone_with: dict[str, list[str]] = {}
        self._note_gone(uri for uri in gone if found.misses(uri) or container_of(self.rows[uri]))
        self.reopened: set[str] = set()
        for uri in (uri for uri in lacking if uri not in found.files):
            self.reopen(uri)

    def _readable_now(self, dependent: Reports) -> Iterator[str]:
        """What lacked a program when it was read, and has the same bytes, where that program is there now."""
        equipped: dict[FileReader | None, bool] = {}
        for uri in (uri for uri, report in dependent if report.lacks):
            file = self._found.files.get(uri)
            reader = file.reader if file is not None else reader_of(uri, self._found.files.readers)
            if reader not in equipped:
                equipped[reader] = isinstance(reader, ProgramReader) and not reader.lacking()
            if equipped[reader] and (uri in self._found.files or self._container(uri)):
                yield uri

    def _seen_otherwise(self, dependent: Reports, linked: LinkedImages) -> Iterator[str]:
        """What shows pictures that stand beside it, and are others by now."""
        for uri, report in dependent:
            if linked.differs(uri, report) and (uri in self._found.files or self._container(uri)):
                yield uri

    def _read_otherwise(self) -> Iterator[str]:
        """Members of containers that another reader, or another version of their reader, would read now."""
        for uri in (uri for parts in self.parts.values() for uri in parts):
            *_, status, before = self._stamps[uri]
            reader = reader_of(uri, self._found.files.readers) if status == "indexed" else None
            if reader is not None and versioned_name(reader) != before:
                yield uri

    def _container(self, uri: str) -> str:
        files = self._found.files
        for one in (one for one in above(uri) if one in files):
            if one not in self._containers:
                self._containers[one] = is_container(files[one].reader)
            if self._containers[one]:
                return one
        return ""

    def fetch(self, container: str) -> list[str]:
        """The rows of all that is in a container; returns the uris."""
        there = self.parts.get(container, [])
        if unseen := [uri for uri in there if uri not in self.rows]:
            self.rows |= self._writer.sources(unseen)
        return there

    def within(self, uri: str) -> list[str]:
        """All known members of a source."""
        outermost = next((one for one in above(uri) if one in self.parts), uri)
        return [part for part in self.parts.get(outermost, ()) if part.startswith(f"{uri}/")]

    def given_up(self, *, retry: bool, reread: bool = False) -> list[SourceRow]:
        """What could not be read, has not changed since, and is not tried again now: all is where `reread`."""
        broken = [
            uri
            for uri, file in self.unlike.items()
            if self._stamps.get(uri) == (file.size, file.mtime_ns, "failed", versioned_name(file.reader))
        ]
        broken += [uri for uri in self._broken if self._container(uri) not in self.unlike]
        given_up = [row for uri in broken if not reread and not (is_due(row := self.rows[uri]) and retry)]
        left = {row.uri for row in given_up}
        for uri in (uri for uri in self._broken if uri not in left):
            self.reopen(uri)
        return given_up

    def reopen(self, part: str) -> None:
        """Look into the containers of a source again."""
        outer = [uri for uri in above(part) if uri in self._stamps and uri not in self.reopened]
        self.reopened.update(outer)
        self.rows |= self._writer.sources([uri for uri in outer if uri not in self.rows])

    def lose(self, uri: str) -> None:
        """A file was deleted since it was listed: it counts as gone, with what is in it."""
        parts = self.fetch(uri)
        del self._found.files.kept[uri]
        self._note_gone(one for one in (uri, *parts) if one in self.rows)

    def _note_gone(self, uris: Iterable[str]) -> None:
        for uri in uris:
            row = self.gone[uri] = self.rows[uri]
            if row.status == "indexed":
                self._gone_with.setdefault(row.content_hash, []).append(uri)

    def gone_with(self, content_hash: str) -> Iterator[SourceRow]:
        """Removed sources with the same content."""
        return (self.gone[uri] for uri in self._gone_with.get(content_hash, ()) if uri in self.gone)


def above(uri: str) -> Iterator[str]:
    """Everything that a source may be in by its name, the outermost first."""
    at = uri.find("/")
    while at > 0:
        yield uri[:at]
        at = uri.find("/", at + 1)


ATTEMPTS = 3
"""How often a source is tried; then it is left alone until it changes."""
WAIT_S, GROWTH = 30, 4
"""Seconds between the first two attempts where the cause may pass, and by how much each further wait is longer."""


def failed(row: SourceRow, reason: str, cause: Exception | None, before: SourceRow | None, reader: str) -> SourceRow:
    """The row of a source that cannot be read, with one attempt more than before.

    Whether the cause may pass, it says itself (`transient`). None, a missing package and a password that is not known
    are not the source's fault and do not count as an attempt: every run retries it.
    """
    row = row.but(status="failed", error=reason)
    told = DocumentReport.of(row.report) if row.report else DocumentReport(reader, 0)
    if cause is None or isinstance(cause, (EncryptedDocument, MissingExtra)):
        return row.but(report=told.but(attempts=0, tried_ns=0).json)
    is_tried = before is not None and before.status == "failed" and _content(before) == _content(row)
    attempts = DocumentReport.of(before.report).attempts if before and is_tried and before.report else 0
    passes = bool(getattr(cause, "transient", False))
    return row.but(report=told.but(attempts=attempts + 1, tried_ns=time.time_ns(), passes=passes).json)


def _content(row: SourceRow) -> tuple[int, int, str, str]:
    return row.size, row.mtime_ns, row.content_hash, row.reader


def is_due(row: SourceRow) -> bool:
    """Whether a source that could not be read, and has not changed since, is to be tried again now."""
    if not row.report:
        return True
    told = DocumentReport.of(row.report)
    return told.attempts < ATTEMPTS and time.time_ns() >= again_ns(told)


def again_ns(told: DocumentReport) -> int:
    """From when on a source is tried again, nanoseconds."""
    wait_s = WAIT_S * GROWTH ** max(0, told.attempts - 1) if told.passes else 0
    return told.tried_ns + wait_s * 1_000_000_000


UNKNOWN = "files of no known format"


@dataclass
class ContainerContents:
    """All that is in the container `whole`, however deep: it counts together."""

    whole: str
    limits: ArchiveLimits = LIMITS
    seen: set[str] = field(default_factory=set)
    unread: Counter[str] = field(default_factory=Counter)
    _entries: int = 0
    _size: int = 0

    def items(
        self, outer: Container, found: FetchedSource, depth: int, readers: Mapping[str, FileReader], prefetch: Prefetch
    ) -> Iterator[FetchItem]:
        """What stands right in a container that is `depth` deep, if a reader knows it."""
        if depth > self.limits.depth:
            raise DocumentError(
                f"It is nested {depth} deep; {self.limits.depth} levels are allowed. Unpack what is inside."
            )
        for part in prefetch.parts(outer, found.blob):
            self._count(part)
            uri = self._name(part.uri, found.blob.uri)
            if (reader := reader_of(uri, readers)) is None:
                self.unread[splitext(uri)[1].lower()] += 1
                prefetch.drop(part)
                continue
            self.seen.add(uri)
            yield _item(Blob(uri, part.content), reader, found.row)

    def _count(self, part: Blob) -> None:
        self._entries += 1
        self._size += part.size
        if self._entries > self.limits.entries or self._size > self.limits.size:
            raise DocumentError(
                f"{self.whole} holds, with all that is within it, {self._entries} files or more of {self._size} bytes; "
                f"{self.limits.entries} and {self.limits.size} are allowed. Split it."
            )

    def _name(self, said: str, container: str) -> str:
        said = said if said.startswith(f"{container}/") else f"{container}/{said.lstrip('/')}"
        stem, suffix = splitext(said)
        number, uri = 1, said
        while uri in self.seen:
            number += 1
            uri = f"{stem}-{number}{suffix}"
        return uri


def _item(blob: Blob, reader: FileReader, container: SourceRow) -> FetchItem:
    def fetch() -> FetchedSource:
        row = SourceRow(blob.uri, blob.size, container.mtime_ns, blob.content_hash, reader=versioned_name(reader))
        return FetchedSource(blob, row.but(created_ns=container.created_ns, accessed_ns=container.accessed_ns))

    return FetchItem(blob.uri, reader, blob.size, fetch)


@dataclass(frozen=True)
class ContainerResult:
    """What became of a container; `parts` counts the files that a reader knows, at any depth, `unknown` the others."""

    parts: int = 0
    unknown: int = 0
    problem: SpoliaError | None = None

    def on(self, reading: Reading) -> Reading:
        """The container's own document, with what is to be known of what is in it; raises why, if it has no text."""
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
    """The pictures of a folder as the documents in it see them.

    Only files listed in the folder may be shown: no name leads out of it, and hidden files and links
    stay closed. Every reader of the document would see the picture too, so it is shown only if all of them may read its
    file. What a document has seen of each picture is kept in its report: where that is another by now, it is read
    again.
    """

    found: FileListing
    labels: DocumentLabels

    def on(self, reading: Reading) -> Reading:
        """A reading with the pictures that it names; those that cannot be shown are counted."""
        uri, regions = reading.document.uri, list(reading.document.regions)
        found = {name: self._picture(_image_uri(uri, name), uri) for name in _image_names(reading)}
        images = {name: image for name, image in found.items() if image is not None}
        for number, name in reading.linked_images:
            if name in images:
                regions[number] = regions[number].but(image=images[name].content_hash)
        missing = {number for number, name in reading.linked_images if name not in images}
        told = [one for at, one in enumerate(regions) if at not in missing or len(one.caption) >= MINIMUM_CAPTION]
        dropped = Counter(dict(reading.dropped)) + Counter({"pictures": len(missing)})
        document = reading.document.but(regions=tuple(told), id=_image_id(reading.document.id, told, bool(images)))
        shown = {image.content_hash: image for image in (*reading.images, *images.values())}
        return reading.but(document=document, images=tuple(shown.values()), dropped=tuple(dropped.items()))

    def seen_by(self, reading: Reading) -> tuple[tuple[str, str], ...]:
        """What was seen of each picture that a document names, by uri."""
        document = reading.document.uri
        uris = dict.fromkeys(_image_uri(document, name) for name in _image_names(reading))
        return tuple((uri, self.seen(uri, document)) for uri in uris)

    def seen(self, uri: str, document: str) -> str:
        """The version of a picture; empty if the document's readers may see none."""
        file = self._file(uri, document)
        return f"{file.size}-{file.mtime_ns}" if file is not None else ""

    def differs(self, uri: str, report: DocumentReport) -> bool:
        """Whether a document would see other pictures by now than when it was read."""
        return any(self.seen(picture, uri) != seen for picture, seen in report.beside)

    def _file(self, uri: str, document: str) -> File | None:
        """A picture, if all who may read a document may read it."""
        file = self.found.files.get(uri)
        if file is None or not file.reader.media_type.startswith("image") or file.size > LARGEST_IMAGE:
            return None
        with suppress(SpoliaError):  # the picture's own turn reports the error
            allowed, asking = self.labels.readers(uri), self.labels.readers(document)
            if not allowed or (asking and set(asking) <= set(allowed)):
                return file
        return None

    def _picture(self, uri: str, document: str) -> Blob | None:
        if (file := self._file(uri, document)) is None:
            return None
        with suppress(OSError, SpoliaError):  # as above
            content = file.load().content
            return Blob(uri, content) if isinstance(content, bytes) and content else None
        return None


def _image_names(reading: Reading) -> list[str]:
    return list(dict.fromkeys(name for _, name in reading.linked_images))[:MOST_IMAGES]


def _image_uri(document: str, name: str) -> str:
    """The file that a name means in the folder; a name that leads out of it gives no uri."""
    plain = unquote(name.partition("#")[0].partition("?")[0])
    return posixpath.normpath(posixpath.join(posixpath.dirname(document), plain))


def _image_id(id: str, regions: list[Region], is_marked: bool) -> str:
    """The same bytes with other pictures beside them are another document."""
    if not is_marked:
        return id
    name, _, reader = id.rpartition(".")
    said = ",".join(region.image for region in regions)
    return f"{name}-{blake2b(said.encode(), digest_size=16).hexdigest()}.{reader}"
