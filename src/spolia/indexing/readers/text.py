"""Plain text: the document is the decoded file, character for character."""

from __future__ import annotations

from dataclasses import dataclass

from spolia.indexing.readers.decoding import decoded
from spolia.indexing.readers.reading import Blob, Reading
from spolia.types import Value


@dataclass(frozen=True)
class TextReader(Value):
    """Reads text files; line ends are kept, so that offsets count characters of the decoded file.

    >>> TextReader().read(Blob("a.txt", b"One.\\r\\nTwo.")).document.text
    'One.\\r\\nTwo.'
    """

    name = "text"
    version = 1
    media_type = "text/plain"
    suffixes = (".txt", ".text", ".rst", ".adoc", ".asciidoc")

    def read(self, blob: Blob, /) -> Reading:
        found = decoded(blob.data, blob.uri)
        return Reading(blob.document(self, found.text), found.encoding, warnings=found.warnings)
