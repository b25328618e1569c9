"""What stands in a container and in those within it: named, counted, bounded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from os.path import splitext

from spolia.errors import DocumentError, SpoliaError
from spolia.indexing.intake import Bytes, Intake, Item
from spolia.indexing.readers.archives.limits import LIMITS, ArchiveLimits
from spolia.indexing.readers.reader import Blob, Container, Reader, Reading
from spolia.indexing.readers.registry import reader_of, versioned
from spolia.stores.tables.rows import SourceRow

UNKNOWN = "files of no known format"


@dataclass
class Contents:
    """All that is in one container, however deep: it counts together.

    Args:
        whole: uri of the container that is in no other one.
        limits: for all of it.

    Attributes:
        seen: uris of what is there.
        unread: number of files that no reader knows, by suffix.
    """

    whole: str
    limits: ArchiveLimits = LIMITS
    seen: set[str] = field(default_factory=set)
    unread: Counter[str] = field(default_factory=Counter)
    _entries: int = 0
    _size: int = 0

    def items(
        self, container: Container, found: Bytes, depth: int, readers: Mapping[str, Reader], intake: Intake
    ) -> Iterator[Item]:
        """What stands right in a container, if a reader knows it.

        Args:
            depth: how many containers it is in, itself counted.

        Raises:
            DocumentError: it cannot be unpacked, is nested too deep, or there is more in it than is allowed.
        """
        if depth > self.limits.depth:
            raise DocumentError(
                f"It is nested {depth} deep; {self.limits.depth} levels are allowed. Unpack what is inside."
            )
        for part in intake.parts(container, found.blob):
            self._count(part)
            uri = self._name(part.uri, found.blob.uri)
            if (reader := reader_of(uri, readers)) is None:
                self.unread[splitext(uri)[1].lower()] += 1
                intake.drop(part)
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
        """A name of its own, within the container whatever that says."""
        said = said if said.startswith(f"{container}/") else f"{container}/{said.lstrip('/')}"
        stem, suffix = splitext(said)
        number, uri = 1, said
        while uri in self.seen:
            number += 1
            uri = f"{stem}-{number}{suffix}"
        return uri


def _item(blob: Blob, reader: Reader, container: SourceRow) -> Item:
    def fetch() -> Bytes:
        row = SourceRow(blob.uri, blob.size, container.mtime_ns, blob.content_hash, reader=versioned(reader))
        return Bytes(blob, row.but(created_ns=container.created_ns, accessed_ns=container.accessed_ns))

    return Item(blob.uri, reader, blob.size, fetch)


@dataclass(frozen=True)
class Opened:
    """What became of a container.

    Args:
        parts: number of the files in it that a reader knows, with those within them.
        unknown: number of the others.
        problem: why not all of it could be unpacked; None if all was.
    """

    parts: int = 0
    unknown: int = 0
    problem: SpoliaError | None = None

    def on(self, reading: Reading) -> Reading:
        """The container's own document, with what is to be known of what is in it.

        Raises:
            DocumentError: not all could be unpacked, and it has no text that could be found without that.
        """
        if self.unknown:
            reading = reading.but(dropped=(*reading.dropped, (UNKNOWN, self.unknown)))
        if self.problem is not None:
            if not reading.document.text.strip():
                raise self.problem
            reading = reading.but(warnings=(*reading.warnings, f"Not all that is in it was read: {self.problem}"))
        return reading


NOT_OPENED = Opened()
