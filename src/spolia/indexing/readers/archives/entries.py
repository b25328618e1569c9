"""How many entries a ZIP archive has, before all of them are in memory."""

from __future__ import annotations

import struct
from contextlib import suppress
from typing import BinaryIO

from spolia.errors import DocumentError

_END, _END_64, _LOCATOR_64 = b"PK\x05\x06", b"PK\x06\x06", b"PK\x06\x07"
_ENTRY = b"PK\x01\x02"
_LONGEST_COMMENT = 65_535 + 22 + 20
_LARGEST_DIRECTORY = 100_000_000


def refuse_many(file: BinaryIO, uri: str, most: int) -> None:
    """Refuse an archive of more entries than are allowed, by its directory, whatever number that states.

    Raises:
        DocumentError: it has more.
    """
    end = file.seek(0, 2)
    file.seek(max(0, end - _LONGEST_COMMENT))
    tail = file.read()
    at = tail.rfind(_END)
    if at < 0 or len(tail) < at + 22:
        return  # it is no archive, which is said when it is opened
    (size,) = struct.unpack_from("<I", tail, at + 12)
    if (located := tail.rfind(_LOCATOR_64, 0, at)) >= 0 and len(tail) >= located + 16:
        file.seek(struct.unpack_from("<Q", tail, located + 8)[0] % (end + 1))
        record = file.read(56)
        if record.startswith(_END_64) and len(record) == 56:
            (size,) = struct.unpack_from("<Q", record, 40)
    directory_end = end - len(tail) + at
    file.seek(max(0, directory_end - size))
    directory = file.read(min(size, _LARGEST_DIRECTORY))
    if (count := directory.count(_ENTRY)) > most or size > _LARGEST_DIRECTORY:
        raise DocumentError(
            f"{uri} has {max(count, size // 100)} entries or more; {most} are allowed. Unpack it, or split it."
        )


def name_of(said: str) -> str:
    """The name of a member with `/`, in characters that can be written; names that are no UTF-8 were read as CP437.

    >>> name_of("a\\\\b.txt"), name_of("Caf├⌐.txt")
    ('a/b.txt', 'Café.txt')
    """
    with suppress(UnicodeEncodeError, UnicodeDecodeError):
        said = said.encode("cp437").decode("utf-8")
    said = said.replace("\\", "/")
    try:
        return said.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    except UnicodeEncodeError:
        return said.encode("utf-8", "backslashreplace").decode()
