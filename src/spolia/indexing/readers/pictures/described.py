"""What a picture says of itself: its description in EXIF, in the texts of a PNG, in a comment."""

from __future__ import annotations

from typing import Any

from spolia.indexing.readers.pages.line import NO_TEXT

_EXIF_DESCRIPTION, _EXIF_TITLE = 0x010E, 0x9C9B
_TEXTS = ("Description", "Title", "Comment", "comment")
_LONGEST = 10_000


def description_of(image: Any) -> str:
    """The first description that a picture of Pillow has; empty if none."""
    exif = image.getexif()
    said = (exif.get(_EXIF_DESCRIPTION), _utf16(exif.get(_EXIF_TITLE)), *(image.info.get(name) for name in _TEXTS))
    return next((words for value in said if (words := _words(value))), "")


def _utf16(value: Any) -> str:
    return bytes(value).decode("utf-16-le", "replace") if isinstance(value, (bytes, tuple)) else ""


def _words(value: Any) -> str:
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else value if isinstance(value, str) else ""
    return " ".join(NO_TEXT.sub("", text[:_LONGEST].replace("\0", "")).split())
