"""PDFs drawn by hand: pages from content streams, with whatever else a file may hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tests.indexing.sample_documents import pdf_file

FONTS = (
    b"/Font << /F1 << /Type /Font /Subtype /Type1 /BaseFont /Helvetica >> "
    b"/F2 << /Type /Font /Subtype /Type1 /BaseFont /Helvetica-Bold >> >>"
)
FIRST = 3
"""Number of the first object that a test adds."""


@dataclass(frozen=True)
class Sheet:
    """A page: what is drawn on it, and further entries of its dictionary and its resources."""

    drawn: bytes
    entries: bytes = b""
    resources: bytes = b""
    box: bytes = b"[0 0 600 800]"


def pdf(sheets: Sequence[Sheet], *, objects: Sequence[bytes] = (), catalog: bytes = b"", info: bytes = b"") -> bytes:
    """A file of some pages; objects are numbered from `FIRST`, and what the pages are made of comes after them."""
    bodies: list[bytes] = [b"", b"", *objects]
    kids = []
    for sheet in sheets:
        bodies.append(b"<< /Length %d >>\nstream\n%s\nendstream" % (len(sheet.drawn), sheet.drawn))
        bodies.append(
            b"<< /Type /Page /Parent 2 0 R /MediaBox %s /Contents %d 0 R /Resources << %s %s >> %s >>"
            % (sheet.box, len(bodies), FONTS, sheet.resources, sheet.entries)
        )
        kids.append(b"%d 0 R" % len(bodies))
    bodies[0] = b"<< /Type /Catalog /Pages 2 0 R %s >>" % catalog
    bodies[1] = b"<< /Type /Pages /Kids [%s] /Count %d >>" % (b" ".join(kids), len(kids))
    return pdf_file([*bodies, b"<< %s >>" % info], b"/Info %d 0 R" % (len(bodies) + 1))


def text(x: float, y: float, characters: str, *, size: float = 10, bold: bool = False) -> bytes:
    """Letters from a point on, as y grows upwards."""
    escaped = characters.replace("\\", r"\\").replace("(", r"\(").replace(")", r"\)").encode("ascii")
    return b"BT /F%d %g Tf %g %g Td (%s) Tj ET\n" % (2 if bold else 1, size, x, y, escaped)


def lines(x: float, y: float, *words: str, leading: float = 12, size: float = 10) -> bytes:
    """Lines below each other."""
    return b"".join(text(x, y - number * leading, line, size=size) for number, line in enumerate(words))


def rules(*strokes: tuple[float, float, float, float]) -> bytes:
    """Straight lines from point to point."""
    return b"".join(b"%g %g m %g %g l S\n" % stroke for stroke in strokes)


def stream(entries: bytes, data: bytes) -> bytes:
    """A stream object."""
    return b"<< %s /Length %d >>\nstream\n%s\nendstream" % (entries, len(data), data)
