"""Making documents on the spot: PDF by hand, DOCX with python-docx."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Sequence
from typing import Any

_PADDING = bytes.fromhex("28BF4E5E4E758A4164004E56FFFA01082E2E00B6D0683E802F0CA9FE6453697A")


def pdf_of(pages: Sequence[Sequence[str]], *, title: str = "", outline: Sequence[tuple[int, str]] = ()) -> bytes:
    """A PDF with lines of ASCII text on its pages; outline: bookmarks as (page from 0, title)."""
    objects: list[bytes] = [b"", b"", b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>"]
    numbers = []
    for lines in pages:
        operators = b"".join(b"(" + line.encode("ascii") + b") Tj T*\n" for line in lines)
        stream = b"BT /F1 11 Tf 14 TL 72 720 Td\n" + operators + b"ET"
        objects.append(b"<< /Length %d >>\nstream\n%s\nendstream" % (len(stream), stream))
        objects.append(
            b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Contents %d 0 R "
            b"/Resources << /Font << /F1 3 0 R >> >> >>" % len(objects)
        )
        numbers.append(len(objects))
    kids = b" ".join(b"%d 0 R" % number for number in numbers)
    objects[1] = b"<< /Type /Pages /Kids [%s] /Count %d >>" % (kids, len(numbers))
    root = b"<< /Type /Catalog /Pages 2 0 R"
    if outline:
        first = len(objects) + 2
        objects.append(b"<< /Type /Outlines /First %d 0 R /Last %d 0 R >>" % (first, first + len(outline) - 1))
        root += b" /Outlines %d 0 R" % len(objects)
        for number, (page, name) in enumerate(outline):
            item = b"<< /Title (%s) /Parent %d 0 R /Dest [%d 0 R /Fit]" % (name.encode(), first - 1, numbers[page])
            following = b" /Next %d 0 R" % (first + number + 1) if number + 1 < len(outline) else b""
            objects.append(item + following + b" >>")
    objects[0] = root + b" >>"
    objects.append(b"<< /Title (%s) >>" % title.encode())
    return pdf_file(objects, b"/Info %d 0 R" % len(objects))


def locked_pdf(password: str) -> bytes:
    """A PDF that wants a password (standard security handler, revision 2)."""
    padded = (password.encode() + _PADDING)[:32]
    owner = _rc4(hashlib.md5(padded).digest()[:5], padded)
    allowed = (-4).to_bytes(4, "little", signed=True)
    key = hashlib.md5(padded + owner + allowed + b"0123456789abcdef").digest()[:5]
    user = _rc4(key, _PADDING)
    encrypt = b"<< /Filter /Standard /V 1 /R 2 /O <%s> /U <%s> /P -4 >>" % (
        owner.hex().encode(),
        user.hex().encode(),
    )
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 100 100] >>",
        encrypt,
    ]
    id = b"<" + b"0123456789abcdef".hex().encode() + b">"
    return pdf_file(objects, b"/Encrypt 4 0 R /ID [%s %s]" % (id, id))


def pdf_file(objects: Sequence[bytes], trailer: bytes) -> bytes:
    """A file of some objects, the first of which is the catalogue, with further entries of its trailer."""
    out = io.BytesIO()
    out.write(b"%PDF-1.4\n")
    places = []
    for number, content in enumerate(objects, 1):
        places.append(out.tell())
        out.write(b"%d 0 obj\n%s\nendobj\n" % (number, content))
    start = out.tell()
    out.write(b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1))
    out.write(b"".join(b"%010d 00000 n \n" % place for place in places))
    out.write(b"trailer\n<< /Size %d /Root 1 0 R %s >>\nstartxref\n%d\n%%%%EOF\n" % (len(objects) + 1, trailer, start))
    return out.getvalue()


def _rc4(key: bytes, data: bytes) -> bytes:
    state, j = list(range(256)), 0
    for i in range(256):
        j = (j + state[i] + key[i % len(key)]) % 256
        state[i], state[j] = state[j], state[i]
    out, i, j = bytearray(), 0, 0
    for byte in data:
        i = (i + 1) % 256
        j = (j + state[i]) % 256
        state[i], state[j] = state[j], state[i]
        out.append(byte ^ state[(state[i] + state[j]) % 256])
    return bytes(out)


def docx_of(write: Callable[[Any], None]) -> bytes:
    """A DOCX that a function writes with python-docx."""
    import docx

    document = docx.Document()
    write(document)
    out = io.BytesIO()
    document.save(out)
    return out.getvalue()
