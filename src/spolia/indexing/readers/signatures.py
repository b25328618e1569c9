"""What a blob is by its first bytes, whatever its name says."""

from __future__ import annotations

import re
from typing import NamedTuple


class Signature(NamedTuple):
    """How files of a format begin, what they are called, and the suffix that they should have."""

    begins: bytes
    what: str
    suffix: str


OLD_OFFICE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
"""An OLE compound file: old Office, Outlook, and new Office that is locked."""
ZIP = b"PK\x03\x04"
_SIGNATURES = (
    Signature(b"%PDF-", "a PDF", ".pdf"),
    Signature(ZIP, "a ZIP archive (DOCX, EPUB, XLSX ...)", ".zip"),
    Signature(OLD_OFFICE, "an old Office file", ".doc"),
    Signature(b"\x89PNG\r\n", "a PNG image", ".png"),
    Signature(b"\xff\xd8\xff", "a JPEG image", ".jpg"),
    Signature(b"GIF8", "a GIF image", ".gif"),
    Signature(b"\x1f\x8b", "a gzip archive", ".gz"),
    Signature(b"BZh", "a bzip2 archive", ".bz2"),
    Signature(b"\xfd7zXZ\0", "an xz archive", ".xz"),
    Signature(b"7z\xbc\xaf\x27\x1c", "a 7z archive", ".7z"),
    Signature(b"Rar!\x1a\x07", "a RAR archive", ".rar"),
    Signature(b"{\\rtf", "an RTF document", ".rtf"),
    Signature(b"\x7fELF", "a program", ""),
    Signature(b"SQLite format 3\0", "an SQLite database", ".sqlite"),
)
_PAGE = re.compile(r"\s*(?:<\?xml[^>]{0,200}>\s*)?<(?:!doctype\s+html|html)[\s>]", re.IGNORECASE)


def signature_of(head: bytes) -> Signature | None:
    """The format whose files begin like this; None for text and for what is not known.

    >>> signature_of(b"%PDF-1.7 ...").what
    'a PDF'
    """
    return next((found for found in _SIGNATURES if head.startswith(found.begins)), None)


def is_page(text: str) -> bool:
    """Whether a text is an HTML page as a whole.

    >>> is_page("<!DOCTYPE html><p>One"), is_page("# One <b>two</b>")
    (True, False)
    """
    return _PAGE.match(text, 0, 2000) is not None
