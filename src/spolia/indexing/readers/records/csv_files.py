"""How the rows of a text file are parted, and whether the first one names the columns."""

import csv
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from io import StringIO
from statistics import mode

from spolia.indexing.readers.reader import Blob, Reading
from spolia.indexing.readers.text import is_large, parts, source_text
from spolia.types import Region, Value

SAMPLE = 1 << 16
"""Characters at the beginning of a file by which it is judged."""
_MARKS = "\t;|,"
_NUMBER = re.compile(r"[-+]?[\d.,\s]*\d%?|\d{1,4}[-/.]\d{1,2}[-/.]\d{1,4}.{0,20}")
csv.field_size_limit(2**31 - 1)  # the limit of 131,072 is the process's, and no protection: whole files are bounded


@dataclass(frozen=True)
class Dialect(Value):
    """What stands between the fields of a row; whether the first row names the columns."""

    mark: str = ","
    has_head: bool = True


def dialect_of(text: str) -> Dialect:
    """The dialect of a table by its beginning: the mark that parts most rows into equally many fields, two or more.

    The first row names the columns unless a field of it is empty, a number or a date, or stands there twice.

    >>> dialect_of("stone;weight, t\\nbasalt;3,0\\nmarble;2,7\\n")
    Dialect(mark=';', has_head=True)
    """
    sample = text[:SAMPLE]
    if len(text) > SAMPLE:  # the last row is cut
        sample = sample[: sample.rfind("\n") + 1] or sample
    best, mark = (0.0, 0), ","
    for candidate in _MARKS:
        widths = [len(row) for row in rows_of(sample, candidate) if row]
        usual = mode(widths) if widths else 0
        if usual > 1 and (rating := (widths.count(usual) / len(widths), usual)) > best:
            best, mark = rating, candidate
    first = next(iter(rows_of(sample, mark)), [])
    return Dialect(mark, _is_head(first))


def rows_of(text: str, mark: str) -> Iterator[list[str]]:
    """The fields of each row. A quote that is not closed ends with the file."""
    return csv.reader(StringIO(text, newline=""), delimiter=mark, skipinitialspace=mark != "\t")


def _is_head(row: Sequence[str]) -> bool:
    cells = [cell.strip() for cell in row]
    named = all(cells) and not any(_NUMBER.fullmatch(cell) for cell in cells)
    return bool(cells) and named and len(set(cells)) == len(cells)


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
        found = source_text(blob, "rows")
        text = found.text
        dialect = dialect_of(text)
        rows = tuple(tuple(cell.strip() for cell in row) for row in rows_of(text, dialect.mark) if any(row))
        start, end = len(text) - len(text.lstrip("\r\n")), len(text.rstrip())
        table = (Region("table", start, end, rows),) if rows and start < end else ()
        return found.reading(self, blob, regions=table)

    def parts(self, blob: Blob, /) -> Iterator[Blob]:
        """The rows of a file that is too large for one document; none for others."""
        if is_large(blob):
            dialect = dialect_of(source_text(blob, "rows").text)
            yield from parts(blob, "rows", quoted=True, head=1 if dialect.has_head else 0)
