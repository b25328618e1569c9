"""Boxes of mails in one file (mbox, RFC 4155): each mail is a part."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from spolia.errors import DocumentError
from spolia.indexing.readers.reading import Blob, Reading
from spolia.types import Value

_BEGIN = b"From "
_QUOTED = re.compile(rb"^>(>*From )", re.MULTILINE)
_LONGEST_LINE = 1 << 20
LARGEST_MAIL = 200_000_000
"""Bytes of a mail at most."""


@dataclass(frozen=True)
class MboxReader(Value):
    """Reads boxes of mails; what is to be read is in their parts, `box.mbox/1.eml` and so on."""

    name = "mbox"
    version = 1
    media_type = "application/mbox"
    suffixes = (".mbox", ".mbx")
    apart = True

    def read(self, blob: Blob, /) -> Reading:
        _refuse_other(blob)
        return Reading(blob.document(self, ""))

    def parts(self, blob: Blob, /) -> Iterator[Blob]:
        """The mails, one after the other; the box is never in memory."""
        _refuse_other(blob)
        lines, size, number = list[bytes](), 0, 0
        after_blank = True
        with blob.open() as file:
            while line := file.readline(_LONGEST_LINE):
                if after_blank and line.startswith(_BEGIN):
                    if number:
                        yield _mail(blob, number, lines)
                    lines, size, number = [], 0, number + 1
                else:
                    lines.append(line)
                    size += len(line)
                    if size > LARGEST_MAIL:
                        raise DocumentError(
                            f"{blob.uri}: mail {number} has more than {LARGEST_MAIL} bytes. Take it out."
                        )
                after_blank = not line.strip()
        yield _mail(blob, number, lines)


def _mail(blob: Blob, number: int, lines: list[bytes]) -> Blob:
    return Blob(f"{blob.uri}/{number}.eml", _QUOTED.sub(rb"\1", b"".join(lines)))


def _refuse_other(blob: Blob) -> None:
    with blob.open() as file:
        begin = file.read(len(_BEGIN))
    if begin != _BEGIN:
        raise DocumentError(f"{blob.uri} is no box of mails: it begins with {begin!r}, not with 'From '. Rename it.")
