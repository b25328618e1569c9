"""Plain text: the document is the decoded file, character for character."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from spolia.indexing.readers.encoding import source_text
from spolia.indexing.readers.reader import Blob, Reading
from spolia.indexing.readers.records.large_files import beginning, is_large, parts
from spolia.types import Value


@dataclass(frozen=True)
class TextReader(Value):
    """Reads text files; line ends are kept, so that offsets count characters of the decoded file.

    A file of more than 20 MB is read in parts of 50,000 lines at most; its own document is its beginning.

    >>> TextReader().read(Blob("a.txt", b"One.\\r\\nTwo.")).document.text
    'One.\\r\\nTwo.'
    """

    name = "text"
    version = 1
    media_type = "text/plain"
    suffixes = (".txt", ".text", ".log")

    def read(self, blob: Blob, /) -> Reading:
        large = is_large(blob)
        found = source_text(beginning(blob) if large else blob)
        warnings = found.warnings
        if large:
            warnings += (f"It has {blob.size} bytes: this is its beginning, its lines are read in parts.",)
        return Reading(blob.document(self, found.text), found.encoding, warnings=warnings)

    def parts(self, blob: Blob, /) -> Iterator[Blob]:
        """The lines of a file that is too large for one document; none for others."""
        if is_large(blob):
            yield from parts(blob, "lines")
