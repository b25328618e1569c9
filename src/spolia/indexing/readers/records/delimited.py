"""CSV and TSV: the document is the source itself; its rows are a table."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from spolia.indexing.readers.decoding import source_text
from spolia.indexing.readers.reading import Blob, Reading
from spolia.indexing.readers.records.large import beginning, is_large, parts
from spolia.indexing.readers.records.rows import dialect_of, rows_of
from spolia.types import Region, Value


@dataclass(frozen=True)
class CsvReader(Value):
    """Reads tables in text files: the fields parted by commas, semicolons, tabs or bars, quoted as in RFC 4180.

    Rows may have more or fewer fields than the first one. A file of more than 20 MB is read in parts of 50,000 rows
    at most, each below the row that names the columns; its own document is its beginning.

    >>> document = CsvReader().read(Blob("a.csv", b"stone,t\\nbasalt,3.0\\n")).document
    >>> document.regions[0].rows
    (('stone', 't'), ('basalt', '3.0'))
    """

    name = "csv"
    version = 1
    media_type = "text/csv"
    suffixes = (".csv", ".tsv", ".tab", ".psv")

    def read(self, blob: Blob, /) -> Reading:
        large = is_large(blob)
        found = source_text(beginning(blob) if large else blob)
        text = found.text
        warnings = found.warnings
        if large:
            warnings += (f"It has {blob.size} bytes: this is its beginning, its rows are read in parts.",)
        dialect = dialect_of(text)
        rows = tuple(tuple(cell.strip() for cell in row) for row in rows_of(text, dialect.mark) if any(row))
        start, end = len(text) - len(text.lstrip("\r\n")), len(text.rstrip())
        table = (Region("table", start, end, rows),) if rows and start < end else ()
        return Reading(blob.document(self, text, regions=table), found.encoding, warnings=warnings)

    def parts(self, blob: Blob, /) -> Iterator[Blob]:
        """The rows of a file that is too large for one document; none for others."""
        if is_large(blob):
            dialect = dialect_of(source_text(beginning(blob)).text)
            yield from parts(blob, "rows", quoted=True, head=1 if dialect.has_head else 0)
