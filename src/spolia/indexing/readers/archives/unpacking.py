"""All that stands in a container, and in the containers within it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from spolia.errors import DocumentError
from spolia.indexing.readers.archives.limits import LIMITS, Limits
from spolia.indexing.readers.choosing import reader_of
from spolia.indexing.readers.reading import Blob, Container, Reader


def unpacked(
    blob: Blob, container: Container, readers: Mapping[str, Reader], limits: Limits = LIMITS
) -> Iterator[tuple[Blob, Reader | None]]:
    """Everything in a container, what is in a part right after it; each with the reader of its name, None for none.

    Args:
        limits: for all of it together.

    Raises:
        DocumentError: there is more in it than is allowed, or it cannot be read.
    """
    return _Walk(blob, readers, limits).within(blob, container, 1)


@dataclass
class _Walk:
    whole: Blob
    readers: Mapping[str, Reader]
    limits: Limits
    entries: int = 0
    size: int = 0

    def within(self, blob: Blob, container: Container, depth: int) -> Iterator[tuple[Blob, Reader | None]]:
        if depth > self.limits.depth:
            raise DocumentError(
                f"{blob.uri} is nested {depth} deep; {self.limits.depth} levels are allowed. Unpack what is inside."
            )
        for part in container.parts(blob):
            self.entries += 1
            self.size += part.size
            if self.entries > self.limits.entries or self.size > self.limits.size:
                raise DocumentError(
                    f"{self.whole.uri} holds, with all that is within it, {self.entries} files or more of {self.size} "
                    f"bytes; {self.limits.entries} and {self.limits.size} are allowed. Split it."
                )
            reader = reader_of(part.uri, self.readers)
            yield part, reader
            if isinstance(reader, Container):
                yield from self.within(part, reader, depth + 1)
