"""Writing a PNG: pictures that are kept in no format of their own inside a PDF."""

from __future__ import annotations

import struct
import zlib
from typing import Any

_COLOURS = {1: 0, 3: 2, 4: 6}  # channels to PNG's colour type


def png_of(pixels: Any) -> bytes:
    """The PNG of an array of bytes: height × width, for colours × 3 (red, green, blue) or × 4 (and opacity).

    Portable Network Graphics, W3C Recommendation, 2003.

    >>> import numpy as np
    >>> png_of(np.zeros((2, 3), np.uint8))[:8]
    b'\\x89PNG\\r\\n\\x1a\\n'
    """
    import numpy as np

    height, width, *channels = pixels.shape
    rows = np.zeros((height, 1 + width * (channels[0] if channels else 1)), np.uint8)  # each begins with filter 0
    rows[:, 1:] = pixels.reshape(height, -1)
    head = struct.pack(">IIBBBBB", width, height, 8, _COLOURS[channels[0] if channels else 1], 0, 0, 0)
    parts = (b"IHDR", head), (b"IDAT", zlib.compress(rows.tobytes(), 6)), (b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(*part) for part in parts)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
