"""Text files that are too large for one document, as parts that are cut between rows or lines."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from typing import BinaryIO

from spolia.errors import DocumentError
from spolia.indexing.readers.encoding import decoded
from spolia.indexing.readers.reader import Blob

LARGEST = 20_000_000
"""Bytes that are read as one document; a larger file is read in parts."""
PART_BYTES, PART_ROWS = 5_000_000, 50_000
"""Of a part at most; a single row that is longer is a part of its own."""
LONGEST_ROW = 100_000_000
"""Bytes of a row; beyond them it is cut."""
_PIECE = 1 << 20
_HEAD = 1 << 16


def is_large(blob: Blob) -> bool:
    """Whether it is read in parts."""
    return blob.size > LARGEST


def beginning(blob: Blob) -> Blob:
    """The first rows of a large file, as a blob under its name."""
    with blob.open() as file:
        head = file.read(_HEAD)
    return Blob(blob.uri, head[: head.rfind(b"\n") + 1] or head)


def parts(blob: Blob, word: str, *, quoted: bool = False, head: int = 0) -> Iterator[Blob]:
    """The parts of a large file, in UTF-8: `big.csv/rows-1-50000.csv`.

    Args:
        word: what is counted: `rows` or `lines`.
        quoted: a line break within double quotes belongs to its row.
        head: lines at the beginning that every part begins with, and that are not counted.

    Raises:
        DocumentError: it is no text, or in an encoding whose lines cannot be told.
    """
    encoding = _encoding(blob)
    suffix = blob.uri[blob.uri.rfind(".") :]
    above, number, rows, size = b"", 0, list[bytes](), 0
    for row in _rows(blob, encoding, quoted):
        if head:
            above, head = above + row, head - 1
            continue
        if rows and (size + len(row) > PART_BYTES or len(rows) == PART_ROWS):
            yield _part(blob, word, suffix, above, number, rows)
            number, rows, size = number + len(rows), [], 0
        rows.append(row)
        size += len(row)
    if rows:
        yield _part(blob, word, suffix, above, number, rows)


def _part(blob: Blob, word: str, suffix: str, above: bytes, before: int, rows: list[bytes]) -> Blob:
    return Blob(f"{blob.uri}/{word}-{before + 1}-{before + len(rows)}{suffix}", above + b"".join(rows))


def _encoding(blob: Blob) -> str:
    """By the beginning; what comes later and is otherwise is shown as lost."""
    with blob.open() as file:
        sample = file.read(_HEAD)
    sample = sample[: sample.rfind(b"\n") + 1] or sample
    found = decoded(sample, blob.uri).encoding
    if found.startswith("utf-32") or found == "utf-8 and cp1252":
        raise DocumentError(
            f"{blob.uri} is too large to be read as {found}. Convert it: iconv -f UTF-32 -t UTF-8 OLD > NEW"
        )
    return found


def _rows(blob: Blob, encoding: str, quoted: bool) -> Iterator[bytes]:
    """Rows in UTF-8, with their line ends."""
    open_row, quotes, size = list[bytes](), 0, 0
    with blob.open() as file:
        for line in _lines(file, encoding):
            quotes += line.count(b'"') if quoted else 0
            open_row.append(line)
            size += len(line)
            if quotes % 2 == 0 or size > PART_BYTES:  # a quote that is never closed must not hold all that follows
                yield b"".join(open_row)
                open_row, quotes, size = [], 0, 0
    if open_row:
        yield b"".join(open_row)


def _lines(file: BinaryIO, encoding: str) -> Iterator[bytes]:
    """Lines in UTF-8, none longer than `LONGEST_ROW`."""
    decoder = codecs.getincrementaldecoder(encoding)("replace")
    kept, first, is_plain = list[bytes](), True, encoding in ("utf-8", "ascii")
    while piece := file.read(_PIECE):
        text = piece if is_plain else decoder.decode(piece).encode("utf-8", "replace")
        if first and text:
            text, first = text.removeprefix(codecs.BOM_UTF8), False
        *ended, rest = text.split(b"\n")
        for line in ended:
            yield b"".join((*kept, line, b"\n"))
            kept.clear()
        kept.append(rest)
        if sum(map(len, kept)) > LONGEST_ROW:
            yield b"".join(kept)
            kept.clear()
    if last := b"".join(kept):
        yield last
