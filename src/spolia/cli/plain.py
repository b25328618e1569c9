"""Text from documents made safe to print: nothing in it can move the cursor or turn the direction of writing."""

from __future__ import annotations

import json
import re
from typing import Any

UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\U000e0000-\U000e007f\ud800-\udfff]"
)


def visible(text: str) -> str:
    """The text with control, bidi and other invisible characters written out; line ends and tabs stay.

    >>> print(visible("a\\x1b[31mb\\u202ec\\r\\nd"))
    a\\x1b[31mb\\u202ec
    d
    """
    return UNSAFE.sub(_written, text.replace("\r\n", "\n"))


def one_line(text: str, width: int = 0) -> str:
    """The text in one line, at most `width` characters where that is not 0.

    >>> one_line("two\\n  lines  and more", 12)
    'two lines a…'
    """
    flat = visible(" ".join(text.split()))
    return flat if not width or len(flat) <= width else flat[: width - 1] + "…"


def json_text(value: Any, *, ascii_only: bool = False) -> str:
    """JSON in which every unsafe character is escaped; it means the same.

    >>> json_text({"quote": "é\\u202e"})
    '{"quote": "é\\\\u202e"}'
    """
    text = json.dumps(value, ensure_ascii=ascii_only, allow_nan=False)
    return UNSAFE.sub(lambda found: json.dumps(found[0])[1:-1], text)


def _written(found: re.Match[str]) -> str:
    return found[0].encode("ascii", "backslashreplace").decode() if ord(found[0]) > 0x7F else f"\\x{ord(found[0]):02x}"
