"""The files that are attached to a PDF."""

from __future__ import annotations

import re
from collections.abc import Iterator
from ctypes import byref, c_ulong
from typing import Any

from pypdfium2 import PdfiumError, raw

from spolia.indexing.readers.pages.line import NO_TEXT
from spolia.indexing.readers.reading import Blob

_MOST = 1_000
_LARGEST = 200_000_000
_SEPARATORS = re.compile(r"[/\\]+")


def attached(pdf: Any, uri: str) -> Iterator[Blob]:
    """Each attached file, under the PDF's name; a name that is a path loses its folders."""
    used: set[str] = set()
    for number in range(min(pdf.count_attachments(), _MOST)):
        part = pdf.get_attachment(number)
        name = _SEPARATORS.split(NO_TEXT.sub("", part.get_name()).strip())[-1]
        if name in ("", ".", "..") or name in used:
            name = f"{number + 1}-{name}".rstrip(".-") or str(number + 1)
        used.add(name)
        data = _data(part)
        if data:
            yield Blob(f"{uri}/{name}", data)


def _data(part: Any) -> bytes:
    """Its bytes; none for one that is damaged or larger than a document may be."""
    size = c_ulong()
    if not raw.FPDFAttachment_GetFile(part, None, 0, byref(size)) or not 0 < size.value <= _LARGEST:
        return b""
    try:
        return bytes(part.get_data())
    except PdfiumError:
        return b""
